"""``bochner transform``, ``impute`` and ``calibrate``: a fitted model on rows from a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bochner.cli_align import read_rows
from bochner.cli_data import check_output, load_model, write_embedding, write_matrices
from bochner.errors import InputError, message
from bochner.estimators.calibrate import calibration
from bochner.inference.calibration import CalibrationReport


def transform(model_path: Path, data: Path, out: Path, index: str | None) -> int:
    """Write latents and their deviations; return the number of rows."""
    check_output(out)
    model = load_model(model_path)
    table = read_rows(model, data, index)
    with _names_are_checked():
        mean, std = model.transform(table.X, return_std=True)
    write_embedding(out, mean, std, table.row_names)
    return len(mean)


def impute(model_path: Path, data: Path, out: Path, std_out: Path | None, index: str | None) -> int:
    """Write the completed matrix, and the deviations where asked for; return the number of rows."""
    check_output(out)
    if std_out is not None:
        check_output(std_out)
        if std_out.resolve() == out.resolve():
            raise InputError(message("two files", f"{out} for both --out and --std", "rename one"))
    model = load_model(model_path)
    table = read_rows(model, data, index)
    with _names_are_checked():
        full, std = model.impute(table.X, return_std=True)
    write_matrices(out, {"X": full}, table.column_names, table.row_names)
    if std_out is not None:
        write_matrices(std_out, {"std": std}, table.column_names, table.row_names)
    return len(full)


@dataclass(frozen=True)
class CalibrateOptions:
    """The options of ``bochner calibrate``; see its help."""

    hide: str = "entries"
    fraction: float = 0.1
    n_draws: int = 200
    seed: int | None = None
    out: Path | None = None
    index: str | None = None


def calibrate(model_path: Path, data: Path, options: CalibrateOptions) -> CalibrationReport:
    """Hide entries of rows, predict them and compare; draw the comparison where asked for."""
    out = options.out
    if out is not None and (out.suffix.lower() != ".png" or not out.parent.is_dir()):
        raise InputError(message("--out a .png file in an existing folder", str(out), "rename it"))
    model = load_model(model_path)
    table = read_rows(model, data, options.index)
    how: dict[str, Any] = {"hide": options.hide, "fraction": options.fraction, "n_draws": options.n_draws}
    with _names_are_checked():
        report = calibration(model, table.X, **how, random_state=options.seed)
    if out is not None:
        from bochner import plots

        plots.save(plots.calibration(report)[0], out)
    return report


@contextmanager
def _names_are_checked() -> Iterator[None]:
    """Keep scikit-learn from warning about an array without names: they were compared when it was read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names", category=UserWarning)
        yield
