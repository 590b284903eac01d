"""The command line. Nothing heavy is imported before a command runs: ``bochner --help`` answers at once."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bochner import cli_rows
from bochner.cli_options import Data, Index, Json, Seed
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


app.command()(cli_rows.transform)
app.command()(cli_rows.impute)
