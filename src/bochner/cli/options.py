"""Arguments and options that commands share."""

from __future__ import annotations

import itertools
import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bochner.cli.parse import COMMON, ELSEWHERE, EXTRA

_SETTINGS = {*COMMON, *itertools.chain(*EXTRA.values())} - {*ELSEWHERE}


class Command(TyperCommand):
    """A command that refuses empty words: ``--out "$OUT"`` of a variable that is not set would be
    the current folder. With ``--json`` a word that it refuses is told in JSON, too.
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Read the words."""
        asked = "--json" in [*itertools.takewhile(lambda word: word != "--", args)]
        try:
            return super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            # click's errors of usage; the class is one of typer's own click in newer versions
            if asked and hasattr(error, "format_message"):
                typer.echo(json.dumps({"error": " ".join(error.format_message().split())}))
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an empty word, and say where it stands."""
        # the shell completes what is not yet written
        words = [] if ctx.resilient_parsing else args
        for before, word in zip(["", *words], words, strict=False):
            option = word.removesuffix("=") if word.startswith("--") else before
            if word and word != f"{option}=":
                continue
            where = f"after {option}" if option.startswith("--") else "among the arguments"
            ctx.fail(
                f"Expected a value, got an empty word {where}. Write one; "
                "a variable of the shell may not be set."
            )
        files = [word for word in args if word[:1] == "-" != word[1:2] and Path(word).suffix]
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # click's error of an option that is not there names one letter of a word
            lacking = getattr(error, "option_name", None)
            for file in files:
                if file[:2] == lacking:
                    ctx.fail(f"No such option: {lacking}. Write ./{file} for the file {file}.")
            raise


class SettingsCommand(Command):
    """A command that says where settings of a model, and the folder of results, are written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a setting that is written as an option, and a fit without a folder."""
        if ctx.resilient_parsing:
            # the shell completes what is not yet written
            return super().parse_args(ctx, args)
        options = {
            name for param in self.params for name in (*param.opts, *param.secondary_opts)
        }
        words = [word.partition("=")[0] for word in args]
        for word, whole, after in zip(words, args, [*args, ""][1:], strict=True):
            name = word[2:].replace("-", "_")
            if word[:2] == "--" and word not in options and name in _SETTINGS:
                value = whole.partition("=")[2] or after or "VALUE"
                ctx.fail(f"{word} is a setting of the model. Write: --set {name}={value}")
        if any(word[:2] == "--" and word not in {*options, "--help"} for word in words):
            # says which option was meant
            return super().parse_args(ctx, args)
        if "--out" in options and not {"--out", "--help"} & {*words} and args:
            ctx.fail(
                "Expected --out with the folder for model, embedding and pictures. "
                f"Write: bochner {self.name} {' '.join(map(shlex.quote, args))} --out run"
            )
        return super().parse_args(ctx, args)


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
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter, such as n_components=5 or landmarks=None.",
    ),
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


class Decimal(StrEnum):
    """What stands before the fraction of a number in text."""

    POINT = "."
    COMMA = ","


DecimalMark = Annotated[
    Decimal,
    typer.Option(
        "--decimal", help="What stands before the fraction of numbers in csv and tsv files."
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
Batch = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="A column of labels (batch, donor) whose effects are kept out of the latents.",
    ),
]
CovariateColumns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN", help="The same for a column of numbers (age, time) or texts."
    ),
]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, or the folder that fit wrote.")
]
Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A .csv, .tsv (also .gz), .parquet, .npy, .npz, .h5ad or .h5mu file, a .zarr array or "
        "store of AnnData (A.zarr/layers/counts: inside it), a folder of parquet parts "
        "(part-0.parquet, ...), or a folder with one file per view.",
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
