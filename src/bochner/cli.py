"""The command line. Nothing heavy is imported before a command runs: ``bochner --help`` answers at once."""

from __future__ import annotations

import shlex
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bochner.cli_session import INTERRUPTED, say, session

app = typer.Typer(
    name="bochner",
    help="Random-feature latent variable models: one representation of several views, with completion and uncertainty.",
    epilog="Exit codes: 0 done, 2 bad input (the message says what to change), 1 a fault of bochner, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


class Model(StrEnum):
    """Models that ``fit`` knows."""

    NG_MVLVM = "ng-mvlvm"
    ADVISED_RFLVM = "advised-rflvm"
    RANDOM_FEATURE_LVM = "random-feature-lvm"


Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output (with the key 'error' if it went wrong)."),
]
Index = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of csv files that names the rows.")]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or the folder that fit wrote.")]
Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="A .csv, .npy or .npz file, or a folder with one file per view.")
]
Seed = Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Same seed, same result; fresh when left out.")]


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"bochner {version('bochner')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for pictures, embedding and model.")] = Path("demo"),
    n_components: Annotated[int | None, typer.Option(min=2, help="Latent dimensions.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the split and the fit.")] = 0,
    as_json: Json = False,
) -> None:
    """Fit digits that ship with scikit-learn as two views, and complete halves that were not shown."""
    with session(as_json) as reply:
        from bochner import demo as logic
        from bochner.cli_show import show_demo

        options = logic.DemoOptions(out, seed=seed)
        if n_components is not None:
            options = logic.DemoOptions(out, seed=seed, n_components=n_components)
        reply.values, reply.show = logic.run(options), show_demo


@app.command()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for model, embedding and pictures.")],
    model: Annotated[Model, typer.Option(help="What to fit.")] = Model.NG_MVLVM,
    view: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COLUMNS", help="A view: rna=0:500 or protein=cd3,cd4. Repeat for each."),
    ] = None,
    likelihood: Annotated[
        list[str] | None, typer.Option(metavar="[VIEW=]NAME", help="Of all views, or of one. Repeat for each.")
    ] = None,
    index: Index = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter, such as n_components=5.")
    ] = None,
    seed: Seed = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run of the same command.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start anew where an interrupted run was left.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a model to data. Empty cells and NaN are missing; several files or arrays are several views."""
    with session(as_json) as reply:
        from bochner import cli_fit
        from bochner.cli_show import show

        options = cli_fit.FitOptions(
            data, out, model.value, view or (), likelihood or (), settings or (), index, seed, resume, force
        )
        try:
            reply.values, interrupted = cli_fit.run(options)
        except KeyboardInterrupt:  # before training, or after it while the rows are placed
            _say_how_to_resume((out / cli_fit.CHECKPOINT).exists())
            raise
        reply.show = show
        if interrupted:
            reply.values["interrupted"], reply.code = True, INTERRUPTED
            say("Interrupted: the files hold the best state until then.")
            _say_how_to_resume((out / cli_fit.CHECKPOINT).exists())


def _say_how_to_resume(checkpoint: bool) -> None:
    if not checkpoint:
        say("There is no checkpoint to continue from: run the command again.")
        return
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--resume", "--force")]
    say(f"To continue: bochner {shlex.join(arguments)} --resume")


@app.command()
def transform(
    model: ModelFile,
    data: Data,
    out: Annotated[Path, typer.Option(metavar="FILE", help="A .csv, .npy or .npz file.")],
    index: Index = None,
    as_json: Json = False,
) -> None:
    """Place rows in the latent space of a model: means and deviations. Views that DATA lacks are missing."""
    with session(as_json) as reply:
        from bochner import cli_apply
        from bochner.cli_show import show

        started = time.perf_counter()
        rows = cli_apply.transform(model, data, out, index)
        reply.values, reply.show = _done(rows, started, out), show


@app.command()
def impute(
    model: ModelFile,
    data: Data,
    out: Annotated[Path, typer.Option(metavar="FILE", help="A .csv, .npy or .npz file for the completed matrix.")],
    std: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file for the deviations, 0 where an entry was observed.")
    ] = None,
    index: Index = None,
    as_json: Json = False,
) -> None:
    """Fill in what is missing: single entries, or whole views that DATA lacks."""
    with session(as_json) as reply:
        from bochner import cli_apply
        from bochner.cli_show import show

        started = time.perf_counter()
        rows = cli_apply.impute(model, data, out, std, index)
        reply.values, reply.show = _done(rows, started, out), show
        if std is not None:
            reply.values["std_file"] = str(std)


@app.command(epilog="Example: bochner calibrate run held_out.csv --hide protein --out calibration.png")
def calibrate(
    model: ModelFile,
    data: Data,
    hide: Annotated[
        str, typer.Option(metavar="WHAT", help="'entries', 'view' (one of each row at random), or the name of a view.")
    ] = "entries",
    fraction: Annotated[float, typer.Option(help="Share of the observed entries that is hidden.")] = 0.1,
    n_draws: Annotated[int, typer.Option(min=2, help="Draws of every hidden entry.")] = 200,
    out: Annotated[Path | None, typer.Option(metavar="PNG", help="A file for the picture.")] = None,
    index: Index = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Say whether intervals hold what they promise: hide entries of rows not in training, predict and compare them."""
    with session(as_json) as reply:
        from bochner import cli_apply

        options = cli_apply.CalibrateOptions(hide, fraction, n_draws, seed, out, index)
        report = cli_apply.calibrate(model, data, options)
        reply.values, reply.show = report.to_json(), lambda _: typer.echo(str(report))
        if out is not None:
            reply.values["file"] = str(out)


def _done(rows: int, started: float, out: Path) -> dict[str, Any]:
    return {"rows": rows, "seconds": round(time.perf_counter() - started, 3), "file": str(out)}


@app.command()
def info(
    path: Annotated[Path, typer.Argument(metavar="MODEL|DATA", help="A model, the folder that fit wrote, or data.")],
    index: Index = None,
    as_json: Json = False,
) -> None:
    """Describe a model or data."""
    with session(as_json) as reply:
        from bochner import cli_info
        from bochner.cli_show import show

        reply.values, reply.show = cli_info.describe(path, index), show
