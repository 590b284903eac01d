"""Commands of a fitted model and rows: ``transform``, ``impute``, ``sample``, ``calibrate`` and
``report``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from bochner.cli.options import (
    Columns,
    Data,
    Decimal,
    DecimalMark,
    Drop,
    Force,
    Header,
    Index,
    Json,
    Layer,
    Log,
    MaskVar,
    MemoryLimit,
    ModelFile,
    Output,
    Seed,
    SizeFactorColumn,
)
from bochner.cli.parse import COLUMNAR, OUTPUTS, check_beside, check_model, check_output
from bochner.cli.session import session
from bochner.io.extensions import check_source


def transform(
    model: ModelFile,
    data: Data,
    out: Output,
    index: Index = None,
    layer: Layer = None,
    columns: Columns = None,
    drop: Drop = None,
    header: Header = None,
    decimal: DecimalMark = Decimal.POINT,
    memory: MemoryLimit = None,
    mask_var: MaskVar = None,
    size_factors: SizeFactorColumn = None,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Probability, such as 0.9: write the limits of central intervals of every latent "
            "too.",
        ),
    ] = None,
    force: Force = False,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Place rows in the latent space of a model: means and standard deviations. Views that DATA
    lacks are missing.
    """
    with session(as_json, log) as reply:
        check_model(model)
        check_source(data)
        check_beside(data, [out])
        check_output(out, force, (*OUTPUTS, *COLUMNAR))
        from bochner.cli import apply as logic
        from bochner.cli.data import Reading
        from bochner.cli.show import show

        started = time.perf_counter()
        reading = Reading.typed(columns, drop, header, memory, mask_var, decimal)
        beside = (size_factors, interval)
        rows = logic.Rows(model, data, out, index, layer or (), force, reading, *beside)
        reply.values = _done(logic.transform(rows), started, out)
        reply.show = show


def impute(
    model: ModelFile,
    data: Data,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="A .csv, .npy or .npz file for the completed matrix."
        ),
    ],
    std: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file for the standard deviations, 0 where an entry was observed.",
        ),
    ] = None,
    index: Index = None,
    layer: Layer = None,
    columns: Columns = None,
    drop: Drop = None,
    header: Header = None,
    decimal: DecimalMark = Decimal.POINT,
    memory: MemoryLimit = None,
    mask_var: MaskVar = None,
    size_factors: SizeFactorColumn = None,
    force: Force = False,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Fill in what is missing: single entries, or whole views that DATA lacks."""
    with session(as_json, log) as reply:
        check_model(model)
        check_source(data)
        outs = (out,) if std is None else (out, std)
        check_beside(data, outs)
        for path in outs:
            check_output(path, force)
        from bochner.cli import apply as logic
        from bochner.cli.data import Reading
        from bochner.cli.show import show

        started = time.perf_counter()
        reading = Reading.typed(columns, drop, header, memory, mask_var, decimal)
        rows = logic.Rows(model, data, out, index, layer or (), force, reading, size_factors)
        reply.values = _done(logic.impute(rows, std), started, out)
        reply.show = show
        if std is not None:
            reply.values["std_file"] = str(std)


def sample(
    model: ModelFile,
    out: Output,
    n_samples: Annotated[int, typer.Option("--n", min=1, help="How many rows.")] = 100,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COVARIATE=VALUE",
            help="What the rows are drawn for; left out, the average.",
        ),
    ] = None,
    seed: Seed = None,
    force: Force = False,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Draw new rows from a model, noise included: counts where its data are counts."""
    with session(as_json, log) as reply:
        check_model(model)
        check_output(out, force)
        from bochner.cli import apply as logic
        from bochner.cli.show import show

        started = time.perf_counter()
        rows = logic.sample(model, n_samples, out, seed, force, at or ())
        reply.values = _done(rows, started, out)
        reply.show = show


def calibrate(
    model: ModelFile,
    data: Data,
    hide: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="'entries', 'view' (one of each row at random), or the name of a view.",
        ),
    ] = "entries",
    fraction: Annotated[
        float, typer.Option(help="Share of the observed entries that is hidden.")
    ] = 0.1,
    n_draws: Annotated[int, typer.Option(min=2, help="Draws of every hidden entry.")] = 200,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Of more rows a sample of so many is compared.")
    ] = 2000,
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", help="A file for the picture.")
    ] = None,
    index: Index = None,
    layer: Layer = None,
    columns: Columns = None,
    drop: Drop = None,
    header: Header = None,
    decimal: DecimalMark = Decimal.POINT,
    memory: MemoryLimit = None,
    mask_var: MaskVar = None,
    size_factors: SizeFactorColumn = None,
    seed: Seed = None,
    force: Force = False,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Say whether intervals hold what they promise: hide entries of rows not in training, predict
    and compare them.
    """
    with session(as_json, log) as reply:
        check_model(model)
        check_source(data)
        from bochner.cli import apply as logic
        from bochner.cli.data import Reading

        reading = Reading.typed(columns, drop, header, memory, mask_var, decimal)
        options = logic.CalibrateOptions(
            model=model,
            data=data,
            hide=hide,
            fraction=fraction,
            n_draws=n_draws,
            seed=seed,
            out=out,
            index=index,
            layer=layer or (),
            force=force,
            reading=reading,
            size_factors=size_factors,
            max_rows=max_rows,
        )
        report = logic.calibrate(options)
        reply.values = report.to_json()
        reply.show = lambda _: typer.echo(str(report))
        if out is not None:
            reply.values["file"] = str(out)


def report(
    model: ModelFile,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA]", help="The rows to show; without it, what the model holds."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Labels to colour the rows by: .csv, .npy or .npz."),
    ] = None,
    index: Index = None,
    layer: Layer = None,
    columns: Columns = None,
    drop: Drop = None,
    header: Header = None,
    decimal: DecimalMark = Decimal.POINT,
    memory: MemoryLimit = None,
    mask_var: MaskVar = None,
    size_factors: SizeFactorColumn = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VIEW=HxW", help="A view of images, such as left=28x28. Repeat for each."
        ),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rows not in training, to see what intervals hold."),
    ] = None,
    embedding: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A layout to offer too: two columns, .csv or .npy."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="An .html file; by default report.html beside the model."
        ),
    ] = None,
    force: Force = False,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page that shows a model: the map of the rows, what each place decodes to, how
    the fit went.
    """
    with session(as_json, log) as reply:
        check_model(model)
        if data is not None:
            check_source(data)
        from bochner.cli import report as logic
        from bochner.cli.data import Reading
        from bochner.cli.show import show

        reading = Reading.typed(columns, drop, header, memory, mask_var, decimal)
        options = logic.ReportOptions(
            model=model,
            data=data,
            labels=labels,
            shapes=shape or (),
            index=index,
            layer=layer or (),
            held_out=held_out,
            embedding=embedding,
            out=out,
            force=force,
            reading=reading,
            size_factors=size_factors,
        )
        reply.values = logic.run(options)
        reply.show = show


def _done(rows: int, started: float, out: Path) -> dict[str, object]:
    return {"rows": rows, "seconds": round(time.perf_counter() - started, 3), "file": str(out)}
