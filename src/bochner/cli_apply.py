"""``bochner transform`` and ``bochner impute``: a fitted model on rows from a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bochner.cli_align import read_rows
from bochner.cli_data import check_output, load_model, write_embedding, write_matrices
from bochner.errors import InputError, message


def transform(model_path: Path, data: Path, out: Path, index: str | None) -> int:
    """Write latents and their deviations; return the number of rows."""
    check_output(out)
    model = load_model(model_path)
    table = read_rows(model, data, index)
    with names_are_checked():
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
    with names_are_checked():
        full, std = model.impute(table.X, return_std=True)
    write_matrices(out, {"X": full}, table.column_names, table.row_names)
    if std_out is not None:
        write_matrices(std_out, {"std": std}, table.column_names, table.row_names)
    return len(full)


@contextmanager
def names_are_checked() -> Iterator[None]:
    """Keep scikit-learn from warning about an array without names: they were compared when it was read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names", category=UserWarning)
        yield
