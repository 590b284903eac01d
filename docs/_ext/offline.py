"""The built pages must open without a network: no script, style, font or picture from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.errors import SphinxError

_REMOTE = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"'](?:https?:)?//[^\"']+[\"'][^>]*>"
)
_HARMLESS = re.compile(r"rel=[\"'](?:canonical|next|prev|author)[\"']")


def remote_parts(html: str) -> list[str]:
    """Return the tags of a page that would fetch something."""
    return [tag for tag in _REMOTE.findall(html) if not _HARMLESS.search(tag)]


def _check(app: Any, exception: Exception | None) -> None:
    if exception is not None or app.builder.name != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        found = remote_parts(page.read_text())
        if found:
            raise SphinxError(f"{page.name} does not open offline: {found[0]}")


def connect(app: Any) -> None:
    """Check every page once the build is done."""
    app.connect("build-finished", _check)
