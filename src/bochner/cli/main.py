"""The command line. Nothing heavy is imported before a command runs: ``bochner --help`` answers at
once.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bochner import __version__
from bochner.cli import rows, sources
from bochner.cli.options import (
    Batch,
    Columns,
    Command,
    CovariateColumns,
    Data,
    Decimal,
    DecimalMark,
    Drop,
    Force,
    Header,
    Index,
    Json,
    Layer,
    LikelihoodNames,
    Log,
    MaskVar,
    MemoryLimit,
    Model,
    ModelName,
    Seed,
    Settings,
    SettingsCommand,
    SizeFactorColumn,
    ViewColumns,
)
from bochner.cli.parse import (
    check_apart,
    check_chains,
    check_earlier_run,
    check_words,
)
from bochner.cli.session import (
    INTERRUPTED,
    follows,
    in_job,
    interrupts_as_such,
    report_progress,
    say,
    session,
)
from bochner.io.extensions import checkpoints
from bochner.progress import overall

app = typer.Typer(
    name="bochner",
    help="Random-feature latent variable models: one representation of several views, with "
    "completion and uncertainty.",
    epilog="Exit codes: 0 done, 2 bad input (the message says what to change), 3 a file could not "
    "be written (the disk is full), 1 a fault of bochner, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"bochner {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version


@app.command(cls=Command, epilog="Example: bochner demo --out demo")
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for pictures, embedding and model.")
    ] = Path("demo"),
    n_components: Annotated[int | None, typer.Option(min=2, help="Latent dimensions.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the split and the fit.")] = 0,
    force: Force = False,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Fit digits that ship with scikit-learn as two views, and complete halves that were not
    shown.
    """
    with session(as_json, log) as reply:
        from bochner import demo as logic
        from bochner.cli.show import show_demo

        options = logic.DemoOptions(out, seed=seed, force=force)
        if n_components is not None:
            options = replace(options, n_components=n_components)
        reply.values = logic.run(options)
        reply.show = show_demo


@app.command(
    cls=SettingsCommand,
    epilog="Example: bochner fit data.h5mu --layer rna=counts --likelihood rna=negative_binomial "
    "--seed 1 --out run",
)
def fit(
    data: Data,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for model, embedding and pictures.")
    ],
    model: ModelName = Model.NG_MVLVM,
    view: ViewColumns = None,
    likelihood: LikelihoodNames = None,
    index: Index = None,
    settings: Settings = None,
    chains: Annotated[
        int | None, typer.Option(min=1, help="Markov chains of rflvm (n_chains).")
    ] = None,
    seed: Seed = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run of the same command.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace the results of an earlier run, or start anew where one was left.",
        ),
    ] = False,
    layer: Layer = None,
    batch: Batch = None,
    covariate: CovariateColumns = None,
    columns: Columns = None,
    drop: Drop = None,
    header: Header = None,
    decimal: DecimalMark = Decimal.POINT,
    memory: MemoryLimit = None,
    mask_var: MaskVar = None,
    size_factors: SizeFactorColumn = None,
    page: Annotated[
        bool,
        typer.Option("--report", help="Write report.html too: one page that shows the fit."),
    ] = False,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Fit a model to data. Empty cells and NaN are missing; several files or arrays are several
    views.
    """
    with session(as_json, log, shared=True) as reply:
        check_chains(model.value, chains)
        check_words(data, model.value, likelihood or (), settings or ())
        check_apart(data, out)
        if not in_job():
            check_earlier_run(data, out, resume, force)
        shown = not follows()
        with overall(f"reading {data.name or data}", shown=shown, write=report_progress):
            from bochner.cli import fit as logic
            from bochner.cli.data import Reading
            from bochner.cli.show import show

            reading = Reading.typed(columns, drop, header, memory, mask_var, decimal)
            chained = [] if chains is None else [f"n_chains={chains}"]
            options = logic.FitOptions(
                data=data,
                out=out,
                model=model.value,
                views=view or (),
                likelihood=likelihood or (),
                settings=[*(settings or ()), *chained],
                index=index,
                seed=seed,
                resume=resume,
                force=force,
                layer=layer or (),
                report=page,
                reading=reading,
                batch=batch or (),
                covariates=covariate or (),
                size_factors=size_factors,
            )
            try:
                with interrupts_as_such():
                    reply.values, interrupted = logic.run(options)
            except KeyboardInterrupt:  # before training, or after it while the rows are placed
                _say_how_to_resume(bool(checkpoints(out)))
                raise
        reply.show = show
        if interrupted:
            reply.values["interrupted"] = True
            reply.code = INTERRUPTED
            say("Interrupted: the files hold the best state until then.")
            _say_how_to_resume(bool(checkpoints(out)))


def _say_how_to_resume(checkpoint: bool) -> None:
    if not checkpoint:
        say("There is no checkpoint to continue from: run the command again.")
        return
    arguments = [
        argument for argument in sys.argv[1:] if argument not in ("--resume", "--force")
    ]
    say(f"To continue: bochner {shlex.join(arguments)} --resume")


@app.command(
    cls=SettingsCommand,
    epilog="Example: bochner info data.h5mu --likelihood rna=negative_binomial",
)
def info(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL|DATA", help="A model, the folder that fit wrote, or data."
        ),
    ],
    model: ModelName = Model.NG_MVLVM,
    view: ViewColumns = None,
    likelihood: LikelihoodNames = None,
    index: Index = None,
    settings: Settings = None,
    layer: Layer = None,
    batch: Batch = None,
    covariate: CovariateColumns = None,
    columns: Columns = None,
    drop: Drop = None,
    header: Header = None,
    decimal: DecimalMark = Decimal.POINT,
    memory: MemoryLimit = None,
    mask_var: MaskVar = None,
    size_factors: SizeFactorColumn = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Describe a model, or data and the time and memory that a fit with these options would take
    (an estimate).
    """
    with session(as_json, log) as reply:
        from bochner.cli import info as logic
        from bochner.cli.data import Reading
        from bochner.cli.fit import FitOptions
        from bochner.cli.show import show

        options = FitOptions(
            data=path,
            out=Path(),
            model=model.value,
            views=view or (),
            likelihood=likelihood or (),
            settings=settings or (),
            index=index,
            layer=layer or (),
            reading=Reading.typed(columns, drop, header, memory, mask_var, decimal),
            batch=batch or (),
            covariates=covariate or (),
            size_factors=size_factors,
        )
        reply.values = logic.describe(options)
        reply.show = show


app.command(cls=Command, epilog="Example: bochner transform run new.csv --out latents.csv")(
    rows.transform
)
app.command(
    cls=Command,
    epilog="Example: bochner impute run new.csv --out completed.csv --std deviations.csv",
)(rows.impute)
app.command(
    cls=Command, epilog="Example: bochner sample run --n 1000 --seed 0 --out drawn.csv"
)(rows.sample)
app.command(
    cls=Command,
    epilog="Example: bochner calibrate run held_out.csv --hide protein --out calibration.png",
)(rows.calibrate)
app.command(cls=Command, epilog="Example: bochner report run data.csv --labels labels.csv")(
    rows.report
)
app.command(
    cls=Command, epilog="Example: bochner fetch oil --from https://example.org/data --out data"
)(sources.fetch)
app.command(cls=Command, epilog="Example: bochner bench 000-table-8")(sources.bench)

# the list of commands shows line ends of docstrings as they are
for command in app.registered_commands:
    command.short_help = " ".join((command.callback.__doc__ or "").split())
