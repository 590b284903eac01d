"""Commands about data sets and benchmarks: ``fetch`` and ``bench``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from bochner.cli.options import Force, Json, Log
from bochner.cli.session import session
from bochner.errors import InputError, message


def fetch(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A data set with a loader, or an entry of --manifest."
        ),
    ],
    server: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="Folder on a server; default: BOCHNER_DATA_URL, else the public original of "
            "brendan, eeg, mnist, oil, skin and spambase.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to; default: BOCHNER_DATA.")
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help='JSON: {"name": {"url": ..., "sha256": ..., "file": ...}}.'
        ),
    ] = None,
    force: Force = False,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Download a data set's file and check its SHA-256. A file that is there and right is not
    downloaded again.
    """
    with session(as_json, log) as reply:
        from bochner.cli.show import show
        from bochner.datasets import fetch as logic

        started = time.perf_counter()
        source = logic.source_of(name, server, manifest)
        path, downloaded = logic.fetch(source, out, force)
        seconds = round(time.perf_counter() - started, 3)
        reply.values = {
            "name": name,
            "file": str(path),
            "downloaded": downloaded,
            "url": source.url,
        }
        reply.values |= {
            "sha256": source.sha256,
            "bytes": path.stat().st_size,
            "seconds": seconds,
        }
        reply.show = show


def bench(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A table or figure, such as 000-table-8, or a script of benchmarks/.",
        ),
    ] = None,
    listed: Annotated[
        bool,
        typer.Option("--list", help="Name every table and figure, and what is not there."),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Every table and figure; rows that are there are not repeated."
        ),
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Write docs/coverage.md from the stored rows.")
    ] = False,
    stored: Annotated[
        bool,
        typer.Option("--stored", help="Show a table or figure as stored; measure nothing."),
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Measure stored rows of a table or figure once more, and say whether they agree.",
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, small sizes: does it run at all.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds; default: 5 of a table.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; default: 2.")] = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Rerun a table of the papers, published beside ours and peers, or a script of benchmarks/.
    Needs a checkout of the repository.
    """
    with session(as_json, log) as reply:
        from bochner.cli import bench as logic

        chosen = {"--list": listed, "--all": everything, "--page": page}
        given = [word for word, on in chosen.items() if on]
        if (name is not None) + len(given) != 1:
            got = ", ".join([*filter(None, [name]), *given]) or "none of them"
            do = "write bochner bench 000-table-8, or bochner bench --list"
            raise InputError(message("NAME, --list, --all or --page", got, do))
        more = {"--stored": stored, "--again": again, "--quick": quick}
        options = [*given, *(word for word, on in more.items() if on)]
        numbers = {"--seeds": seeds, "--threads": threads}
        options += [w for k, n in numbers.items() if n is not None for w in (k, str(n))]
        reply.values = logic.run(name, options, aloud=as_json or log is not None)
        reply.show = logic.show_both
