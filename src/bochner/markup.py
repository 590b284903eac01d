"""HTML of reports, as notebooks show it: tables with a caption and sentences below."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    sentences: Sequence[str] = (),
) -> str:
    """Return a table in HTML; every text is escaped.

    Parameters
    ----------
    caption : str
    heads : sequence of str
        Names of the columns.
    rows : iterable of sequence of object
        Cells; the first names the row.
    sentences : sequence of str
        What stands below the table.

    Returns
    -------
    str
    """
    lines = [f"<caption>{_text(caption)}</caption>"]
    lines.append(_row([f'<th scope="col">{_text(head)}</th>' for head in heads]))
    for name, *cells in rows:
        first = f'<th scope="row">{_text(name)}</th>'
        lines.append(_row([first, *(f"<td>{_text(cell)}</td>" for cell in cells)]))
    below = [f"<p>{_text(sentence)}</p>" for sentence in sentences]
    return "<div><table>" + "".join(lines) + "</table>" + "".join(below) + "</div>"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _text(value: object) -> str:
    return html.escape(str(value))
