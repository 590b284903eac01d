"""Arguments and options that commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Model(StrEnum):
    """Models that ``fit`` knows."""

    NG_MVLVM = "ng-mvlvm"
    ADVISED_RFLVM = "advised-rflvm"
    RANDOM_FEATURE_LVM = "random-feature-lvm"
    SRFLVM = "srflvm"
    RFLVM = "rflvm"


ModelName = Annotated[Model, typer.Option(help="What to fit.")]
ViewColumns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=COLUMNS", help="A view: rna=0:500 or protein=cd3,cd4. Repeat for each."
    ),
]
LikelihoodNames = Annotated[
    list[str] | None,
    typer.Option(metavar="[VIEW=]NAME", help="Of all views, or of one. Repeat for each."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter, such as n_components=5."),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object on standard output (with the key 'error' if it went wrong).",
    ),
]
Index = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column of csv and parquet files that names the rows."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(metavar="NAMES", help="Columns of csv and parquet files to read, as a,b."),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="NAMES", help="Columns of csv and parquet files to leave out."),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="Whether the first line of csv files names the columns."
    ),
]
MemoryLimit = Annotated[
    float | None,
    typer.Option(
        "--memory", metavar="GIB", help="Most memory that data may take; 8 when left out."
    ),
]
Layer = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[VIEW=]NAME",
        help="Layer of .h5ad and .h5mu files to read in place of X. Repeat for each.",
    ),
]
MaskVar = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[VIEW=]NAME",
        help="Column of var, such as highly_variable, that says which variables of .h5ad and .h5mu "
        "files are read. Repeat for each.",
    ),
]
SizeFactorColumn = Annotated[
    str | None,
    typer.Option(
        "--size-factors",
        metavar="COLUMN",
        help="A column of positive numbers, of obs in .h5ad files: counts of a row are "
        "proportional to its own.",
    ),
]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, or the folder that fit wrote.")
]
Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A .csv, .tsv (also .gz), .parquet, .npy, .npz, .h5ad or .h5mu file, a .zarr array, a "
        "folder of parquet parts (part-0.parquet, ...), or a folder with one file per view.",
    ),
]
Output = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="FILE",
        help="A .csv, .npy or .npz file; transform also .parquet, .zarr.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=2**32 - 1, help="Same seed, same result; fresh when left out."),
]
Log = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Append what happens, with the time, to a file: also the bound."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an output that exists.")]
