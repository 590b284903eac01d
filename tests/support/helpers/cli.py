"""Runs commands in this process and reads their answers."""

import csv
import json

import numpy as np
import torch
from typer.testing import CliRunner

from bochner.cli import app
from bochner.estimators.methods import placing

# A fit of some seconds that holds no rows.
SETTINGS = [
    "--set", "landmarks=80", "--set", "n_frequencies=8", "--set", "max_iter=5", "--set", "init=pca",
    "--seed", "0",
]  # fmt: skip
# Two chains of the sampler, of a few sweeps.
CHAINS = [
    "--model", "rflvm", "--chains", "2", "--seed", "0",
    "--set", "n_warmup=2", "--set", "n_draws=4", "--set", "thin=1",
    "--set", "n_frequencies=4", "--set", "max_iter=3", "--set", "init=pca",
]  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments):
    """Message of a command that must end with exit code 2 and without a traceback."""
    done = run(*arguments)
    assert done.exit_code == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    return line.removeprefix("Error: ")


def replied(*arguments):
    """JSON object of a command that must succeed."""
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def write(path, columns, rows, matrix, key="cell"):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([key, *columns])
        writer.writerows(
            [row, *("" if np.isnan(v) else v for v in values)]
            for row, values in zip(rows, matrix, strict=True)
        )
    return path


def no_stds_in(patch):
    """Let standard deviations of rows be 1: nobody seeks them until the patch is undone."""
    patch.setattr(placing, "latent_std", lambda *given: torch.ones_like(given[2].mean))
