"""Replies of the commands as tables for people."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from bochner.data.columns import listing
from bochner.errors import printable


def show(values: Mapping[str, object]) -> None:
    """Print a reply: a line per value, then a table per group of named things."""
    console = Console(highlight=False, markup=False)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    nested = {}
    for name, value in values.items():
        if (
            isinstance(value, Mapping)
            and value
            and all(isinstance(v, Mapping) for v in value.values())
        ):
            nested[name] = value
        elif isinstance(value, Mapping):
            for key, item in value.items():
                grid.add_row(_label(f"{name}: {key}"), text(item))
        else:
            grid.add_row(_label(name), text(value))
    console.print(grid)
    for name, group in nested.items():
        console.print(_group(name, group))


def _group(name: str, group: Mapping[str, Mapping[str, object]]) -> Table:
    """Return a line per thing; what only some of them have is empty for the others."""
    columns = list(dict.fromkeys(column for values in group.values() for column in values))
    table = Table(name.removesuffix("s"), *(_label(column) for column in columns))
    for key, values in group.items():
        cells = (text(values[column]) if column in values else "" for column in columns)
        table.add_row(printable(key), *cells)
    return table


def _label(name: str) -> str:
    return printable(name.replace("_", " "))


def text(value: object) -> str:
    """Write a value for people: rounded, lists joined."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(str(key))} {text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        parts = [text(item) for item in value]
        return (", ".join(parts) if len(parts) <= 12 else listing(parts)) or "none"
    return "none" if value is None else printable(str(value))


def show_demo(values: Mapping[str, object]) -> None:
    """Print the demo's figures beside those of its peers."""
    console = Console(highlight=False, markup=False)
    table = Table(
        "",
        "bochner",
        "peer",
        title="Digits as two views: upper and lower half",
        title_justify="left",
    )
    peers = {
        "kernel_ridge": "kernel ridge",
        "knn": "neighbours",
        "ridge": "ridge",
        "mean": "mean",
    }
    table.add_row(
        "error of completed halves (RMSE)",
        text(values["completion_rmse"]),
        ", ".join(f"{text(values[f'{key}_rmse'])} {name}" for key, name in peers.items()),
    )
    for k in (1, 10):
        table.add_row(
            f"{k}-NN accuracy of latents",
            text(values[f"knn{k}"]),
            f"{text(values[f'pca_knn{k}'])} PCA",
        )
    console.print(table)
    show({name: values[name] for name in ("elbo", "seconds", "files")})
