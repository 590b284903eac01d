"""Formulas without a network: MathJax from an installed package, one file that draws SVG and
therefore needs no fonts.
"""

from __future__ import annotations

import shutil
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

_PACKAGE = "sphinx-mathjax-offline"
_FILE = "tex-svg.js"


def _copy(app: Any, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    source = distribution(_PACKAGE).locate_file(f"{_PACKAGE}/static/mathjax/{_FILE}")
    shutil.copy(str(source), Path(app.outdir) / "_static" / _FILE)


def connect(app: Any) -> None:
    """Draw formulas by the file that is copied beside the pages."""
    app.config.mathjax_path = _FILE
    app.connect("build-finished", _copy)
