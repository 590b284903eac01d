"""One self-contained HTML file about a fitted model, that opens without a network: `report`."""

from __future__ import annotations

import html
import os
import platform
import string
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from bochner.errors import InputError, message
from bochner.io.dense import dense
from bochner.page import drawn
from bochner.page.content import Rows, gather
from bochner.page.encode import finite, script_json
from bochner.page.labels import as_labels
from bochner.page.views import choose_views
from bochner.prediction.calibration import CalibrationReport
from bochner.summary import describe_model

FloatArray = NDArray[np.floating[Any]]

_CHECKED = 20  # rows placed again to see whether they are those of the fit
_PACKAGES = ("bochner", "torch", "numpy", "scikit-learn", "bokeh")


def report(
    model: Any,
    X: Any = None,
    labels: Any = None,
    *,
    path: str | Path = "report.html",
    shapes: Mapping[str, tuple[int, int]] | None = None,
    row_names: Sequence[str] | None = None,
    title: str = "bochner report",
    calibration: CalibrationReport | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a page that shows a fitted model: an interactive map of the latent space and what the
    fit learned.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted, or loaded from a file.
    X : array-like of shape (n, M), optional
        Data to show: rows of the fit, or others, which are placed first. Without it the page shows
        the rows of the fit as the model decodes them.
    labels : array-like of shape (n,), or mapping of name to one, optional
        Classes or numbers to colour the rows by.
    path : str or Path
        An ``.html`` file.
    shapes : mapping of view to (height, width), optional
        Views whose columns are pixels. Square images without column names are recognised.
    row_names : sequence of str, optional
        By default the index of X where it has one.
    title : str
    calibration : CalibrationReport, optional
        What `bochner.calibration` found on rows that were not in training.
    overwrite : bool, default=False
        Replace an existing file.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        The file exists or cannot be written, labels or shapes do not fit the data, X is not such
        data as the model was fitted on, or Bokeh is not installed.
    """
    target = check_page(path, overwrite)
    drawn.check_bokeh()
    names = row_names if row_names is not None else _index(X)
    X = dense(X, "X") if issparse(X) else X
    Z, std = _place(model, X)
    if names is not None and len(names) != len(Z):
        got = f"{len(names)}"
        raise InputError(
            message(
                f"a name for each of the {len(Z)} rows", got, "give one per row, in their order"
            )
        )
    values = None if X is None else np.asarray(X, dtype=np.float64)
    rows = Rows(
        Z,
        std,
        values,
        None if names is None else [str(n) for n in names],
        as_labels(labels, len(Z)),
    )
    views = choose_views(model, values, Z, shapes or {})
    content = gather(model, rows, views)
    figures = _figures(model, len(Z), calibration)
    _write(target, _html(model, title, content, figures, calibration))
    return target


def check_page(path: str | Path, overwrite: bool) -> Path:
    """Refuse a place that a page cannot be written to, before any work is done.

    Raises
    ------
    InputError
        Another extension than .html, a folder that is not there or not writable, or an existing
        file.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(message("an output file .html", str(target), "rename it"))
    if not target.parent.is_dir():
        raise InputError(
            message("an existing folder to write to", str(target.parent), "create it first")
        )
    if target.is_dir():
        raise InputError(message("an output file", f"the folder {target}", "choose another name"))
    if target.exists() and not overwrite:
        raise InputError(
            message(
                "a new file",
                f"{target}, which exists",
                "add --force (overwrite=True) to replace it",
            )
        )
    if not os.access(target.parent, os.W_OK):
        raise InputError(
            message(
                "a folder to write to", f"{target.parent}, not writable", "choose another folder"
            )
        )
    return target


def _index(X: Any) -> list[str] | None:
    """Names of a DataFrame's rows, where they are more than their count."""
    index = getattr(X, "index", None)
    if index is None or callable(index) or list(index) == list(range(len(index))):
        return None
    return [str(name) for name in index]


def _place(model: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """Return the latents of the rows to show: those of the fit as they are, any others placed."""
    fitted = model.embedding_, model.embedding_std_
    if X is None:
        return fitted
    if len(X) == len(fitted[0]):
        some = np.unique(np.linspace(0, len(X) - 1, min(len(X), _CHECKED)).round().astype(int))
        sample = X.iloc[some] if hasattr(X, "iloc") else np.asarray(X)[some]
        if np.allclose(model.transform(sample), fitted[0][some], atol=1e-4):
            return fitted
    Z, std = model.transform(X, return_std=True)
    return np.asarray(Z), np.asarray(std)


def _figures(model: Any, n_rows: int, calibration: CalibrationReport | None) -> dict[str, Any]:
    views = list(model._columns)
    spectra = [own for view in views if (own := drawn.spectrum(model, view)) is not None]
    return {
        "map": drawn.as_item(drawn.latent_map(n_rows)),
        "bound": drawn.as_item(drawn.bound_trace(model)),
        "kernels": [
            {**drawn.as_item(drawn.kernel(model, view)), "alt": f"Learned kernel of view {view}."}
            for view in views
        ],
        "calibration": []
        if calibration is None
        else [
            {**drawn.as_item(own), "alt": own.title.text} for own in drawn.calibration(calibration)
        ],
        "spectra": [
            {**drawn.as_item(own), "alt": f"Spectrum. {own.title.text}."} for own in spectra
        ],
    }


def _html(
    model: Any,
    title: str,
    content: dict[str, Any],
    figures: dict[str, Any],
    calibration: CalibrationReport | None,
) -> str:
    about = describe_model(model)
    about["calibration"] = None if calibration is None else calibration.to_json()
    packages = {name: metadata.version(name) for name in _PACKAGES}
    about["versions"] = {"python": platform.python_version(), **packages}
    about["relevance"] = model.relevance_
    about["partial"] = _partial(model)
    assets = resources.files("bochner.page") / "assets"
    page = string.Template((assets / "page.html").read_text(encoding="utf-8"))
    # The library goes into elements that do not run by themselves: the text is painted before they
    # are read.
    library = "\n".join(
        f'<script type="text/plain" class="library">{_inert(part)}</script>'
        for part in drawn.library(content["rows"])
    )
    return page.substitute(
        title=html.escape(title),
        style=(assets / "page.css").read_text(encoding="utf-8"),
        about=script_json(finite(about)),
        content=script_json(content),
        figures=script_json(figures),
        library=library,
        script=(assets / "page.js").read_text(encoding="utf-8"),
        summary=html.escape(_summary(model, content)),
    )


def _partial(model: Any) -> str:
    """Say where the steps saw less than what the final bound is about."""
    left = max(model.dropped_.values(), default=0.0)
    what = ["fewer rows (landmarks)"] if model.landmarks_ else []
    what += (
        [f"columns truncated to all but {100 * left:.1f} % of their squares"]
        if left > 0.0005
        else []
    )
    return f"The bound of the steps below is that of {' and '.join(what)}." if what else ""


def _inert(script: str) -> str:
    """No text of the library may end the element that holds it."""
    return script.replace("</script", "<\\/script")


def _summary(model: Any, content: dict[str, Any]) -> str:
    views = ", ".join(f"{view['name']} ({view['width']} columns)" for view in content["views"])
    return (
        f"{type(model).__name__}: {content['rows']:,} rows, {content['dims']} latent "
        f"dimensions. Views: {views}."
    )


def _write(target: Path, text: str) -> None:
    """Write the file complete or not at all."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
