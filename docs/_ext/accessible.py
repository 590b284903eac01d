"""Names for what the theme leaves without one: screen readers read them, axe-core asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NAMES = {
    # the arrow that opens a part of the navigation
    '<summary><span class="toctree-toggle"': (
        '<summary aria-label="Show or hide the pages of this part"><span class="toctree-toggle"'
    ),
    # what is to be read aloud has to hold what is to be seen: Search Ctrl+K
    'search-button__button pst-js-only" title="Search" aria-label="Search"': (
        'search-button__button pst-js-only" title="Search"'
    ),
}


def named(html: str) -> str:
    """Return a page on which every control has a name."""
    for nameless, name in _NAMES.items():
        html = html.replace(nameless, name)
    return html


def _name(app: Any, exception: Exception | None) -> None:
    if exception is not None or app.builder.name != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        page.write_text(named(page.read_text()))


def connect(app: Any) -> None:
    """Name them once the build is done."""
    app.connect("build-finished", _name)
