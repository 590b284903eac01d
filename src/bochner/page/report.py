"""One self-contained HTML file about a fitted model, that opens without a network: `report`."""

from __future__ import annotations

import base64
import hashlib
import html
import os
import platform
import string
import warnings
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from bochner.data.accepted import FLAG, as_rows, checked, in_order_of, index_of
from bochner.data.arrays import FloatArray
from bochner.data.columns import dense_rows, evenly_spread
from bochner.data.row_sources import RowSource, source_of
from bochner.data.validation import as_array, numbers
from bochner.errors import DataWarning, InputError, message
from bochner.estimators.rflvm import RFLVM
from bochner.extras import versions
from bochner.io.outputs import replacing
from bochner.io.table import dense
from bochner.likelihoods.likelihood import offsets_of
from bochner.page import charts
from bochner.page.charts import counted
from bochner.page.content import Rows, gather
from bochner.page.encode import finite, script_json
from bochner.page.labels import as_labels
from bochner.page.layouts import as_layouts
from bochner.page.views import choose_views
from bochner.prediction.calibration import CalibrationReport
from bochner.summary import describe_model, seen_in_training

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


_PAGES = (".html", ".htm")
# rows placed again to see whether they are those of the fit
_CHECKED = 20
# columns that are named for each dimension
_TOP = 8
# A smaller share of a column's variance would be written as 0 %.
_LEAST = 0.005
# more columns without names are pixels or the like
_NAMELESS = 64
# The script, in the order of its parts.
_SCRIPTS = (
    "parts.js",
    "charts.js",
    "map.js",
    "pointer.js",
    "inspect.js",
    "selection.js",
    "tables.js",
    "page.js",
    "controls.js",
)


@checked(
    path=[str, os.PathLike],
    shapes=[Mapping, None],
    row_names=[Sequence, np.ndarray, None],
    title=[str],
    calibration=[CalibrationReport, None],
    overwrite=[FLAG],
)
def report(
    model: LatentVariableEstimator,
    X: object = None,
    labels: object = None,
    *,
    path: str | Path = "report.html",
    shapes: Mapping[str, tuple[int, int]] | None = None,
    row_names: Sequence[str] | None = None,
    title: str = "bochner report",
    calibration: CalibrationReport | None = None,
    embedding: object = None,
    size_factors: object = None,
    covariates: object = None,
    overwrite: bool = False,
) -> Path:
    """Write a page that shows a fitted model: an interactive map of the latent space and what the
    fit learned.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted, or loaded from a file.
    X : array-like, scipy sparse matrix or row source of shape (n, M), optional
        Data to show: rows of the fit, or others, which are placed first. Without it the page shows
        the rows of the fit as the model decodes them. Rows of files are read block by block.
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
    embedding : array-like of shape (n, 2), or mapping of name to one, optional
        Layouts of the rows that the page offers beside the latent dimensions, such as a UMAP of
        many of them.
    size_factors : array-like of shape (n,), or dict of view to one, optional
        Of the rows of X, for views of counts that were fitted with them.
    covariates : DataFrame, Series, dict of name to values, or array, optional
        Of the rows of X, for a model that was fitted with covariates. What places decode to is for
        the average of them.
    overwrite : bool, default=False
        Replace an existing file.

    Returns
    -------
    Path
        A notebook shows the page in its place.

    Raises
    ------
    InputError
        The file exists or cannot be written, labels, shapes or embedding do not fit the data, or X
        is not such data as the model was fitted on.
    NotFittedError
        The model was not fitted.
    """
    _check_labels(labels, X)
    target = check_page(path, overwrite)
    check_is_fitted(model)
    X = None if X is None else source_of(X) or as_rows(X)
    if X is not None and not hasattr(X, "shape"):
        X = as_array("X", X)
    if X is not None and len(X.shape) != 2:
        raise InputError(
            message("X of shape (rows, columns)", f"shape {X.shape}", "reshape it")
        )
    names = row_names if row_names is not None else _index(X)
    index = model._index if X is None else index_of(X)
    X = model._columns_of_fit(dense(X, "X") if issparse(X) else X)
    Z, std = _place(model, X, {"size_factors": size_factors, "covariates": covariates})
    if names is not None and len(names) != len(Z):
        got = f"{len(names)}"
        raise InputError(
            message(
                f"a name for each of the {len(Z)} rows",
                got,
                "give one per row, in their order",
            )
        )
    values = _values(model._coding.encode(X))
    rows = Rows(
        Z,
        std,
        values,
        None if names is None else [str(n) for n in names],
        as_labels(labels, len(Z), read_dates=True, index=index),
        as_layouts(embedding, len(Z), index),
    )
    views = choose_views(model, values, Z, shapes or {})
    content = gather(model, rows, views)
    figures = _figures(model, calibration)
    _write(target, _html(model, title, content, figures, calibration))
    return Page(target)


def _check_labels(labels: object, X: object) -> None:
    """Refuse one text in the place of labels, and say what it may be meant for."""
    if not isinstance(labels, str | os.PathLike):
        return
    names = getattr(X, "column_names", getattr(X, "columns", None))
    names = () if names is None else names
    do = "pass labels with a value per row, in their order"
    if not isinstance(labels, str) or Path(labels).suffix.lower() in _PAGES:
        do = f"write path={str(labels)!r} for the file of the page"
    elif labels in [name for name in names if isinstance(name, str)]:
        do = f"pass labels=X[{labels!r}]"
    raise InputError(
        message(
            "labels of the rows",
            repr(labels),
            do,
        )
    )


class Page(type(Path())):  # type: ignore[misc]
    """The path of a page, which a notebook shows as the page."""

    def _repr_html_(self) -> str:
        content = html.escape(self.read_text(encoding="utf-8"), quote=True)
        style = "width:100%;height:720px;border:0"
        # its buttons save files
        allowed = "allow-scripts allow-downloads"
        return f'<iframe sandbox="{allowed}" style="{style}" srcdoc="{content}"></iframe>'


def check_page(path: str | Path, overwrite: bool) -> Path:
    """Refuse a place that a page cannot be written to, before any work is done.

    Raises
    ------
    InputError
        Another extension than .html, a folder that is not there or not writable, or an existing
        file.
    """
    target = Path(path)
    if target.suffix.lower() not in _PAGES:
        raise InputError(message("an output file .html", str(target), "rename it"))
    if not target.parent.is_dir():
        raise InputError(
            message("an existing folder to write to", str(target.parent), "create it first")
        )
    if target.is_dir():
        raise InputError(
            message("an output file", f"the folder {target}", "choose another name")
        )
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
                "a folder to write to",
                f"{target.parent}, not writable",
                "choose another folder",
            )
        )
    return target


def _index(X: object) -> list[str] | None:
    """Names of a DataFrame's rows, where they are more than their count."""
    index = getattr(X, "index", None)
    if index is None or callable(index) or list(index) == list(range(len(index))):
        return None
    return [str(name) for name in index]


def _values(X: Any) -> FloatArray | RowSource | None:
    """Return numbers; NA of nullable columns is missing, and rows of files stay there."""
    if X is None or isinstance(X, RowSource):
        return X
    if hasattr(X, "iloc"):
        frame: FloatArray = X.to_numpy(dtype=np.float64, na_value=np.nan)
        return frame
    return numbers("X", X)


def _place(
    model: LatentVariableEstimator, X: Any, known: dict[str, Any]
) -> tuple[FloatArray, FloatArray]:
    """Return the latents of the rows to show, with what is known of them: those of the fit as they
    are, any others placed.
    """
    # first: rows on disk are placed once for both
    std = model.embedding_std_
    fitted = model.embedding_, std
    if X is None:
        return fitted
    known = {what: in_order_of(index_of(X), what, given) for what, given in known.items()}
    if X.shape[0] == len(fitted[0]):
        some = evenly_spread(X.shape[0], _CHECKED)
        with warnings.catch_warnings():
            # said of all rows, below
            warnings.simplefilter("ignore", DataWarning)
            values = model._validate(X, reset=False)
            given = known.get("covariates"), known.get("size_factors")
            beside = model._beside_all(X, values, *given)[some]
            offsets = offsets_of(model._offsets(values, given[1]), torch.from_numpy(some))
            sample = dense_rows(values, some)
            placed, _ = model._latents(sample, offsets, beside, with_std=False)
        if np.allclose(placed, fitted[0][some], atol=1e-4):
            return fitted
    Z, std = model.transform(X, return_std=True, **known)
    return np.asarray(Z), np.asarray(std)


def _figures(
    model: LatentVariableEstimator, calibration: CalibrationReport | None
) -> dict[str, object]:
    views = list(model.views_)
    spectra = [charts.spectrum(model, view) for view in views]
    return {
        "bound": charts.bound_trace(model),
        "chains": charts.chains(model.log_joint_) if isinstance(model, RFLVM) else [],
        "kernels": [charts.kernel(model, view) for view in views],
        "calibration": [] if calibration is None else charts.calibration(calibration),
        "spectra": [one for one in spectra if one is not None],
    }


def _html(
    model: LatentVariableEstimator,
    title: str,
    content: dict[str, object],
    figures: dict[str, object],
    calibration: CalibrationReport | None,
) -> str:
    about = describe_model(model)
    about["calibration"] = None if calibration is None else calibration.to_json()
    about["versions"] = {"python": platform.python_version(), **versions()}
    about["relevance"] = model.relevance_
    about["partial"] = _partial(model)
    about["covariates"] = _covariates(model)
    about["noise"] = _noise(model)
    about["chains"] = _chains(model)
    about["loadings"] = _loadings(model)
    assets = resources.files("bochner.page") / "assets"
    page = string.Template((assets / "page.html").read_text(encoding="utf-8"))
    style = (assets / "page.css").read_text(encoding="utf-8")
    script = _script(assets)
    return page.substitute(
        title=html.escape(title),
        policy=_policy(script, style),
        style=style,
        about=script_json(finite(about)),
        content=script_json(content),
        figures=script_json(finite(figures)),
        script=script,
        summary=_summary(model, content),
    )


def _script(assets: Traversable) -> str:
    parts = [(assets / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _policy(script: str, style: str) -> str:
    """Return the page's content security policy: its one script and its one style sheet, by their
    hashes; no evaluation of text, no markup from text, no network.
    """
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _loadings(model: LatentVariableEstimator) -> list[list[tuple[str, float]]]:
    """Return the columns that each dimension drives most, with the shares of their variance, those
    that it drives at all; none where many columns have no names, as pixels.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is None and model.n_features_in_ > _NAMELESS:
        return []
    labels = [f"column {j}" for j in range(model.n_features_in_)] if names is None else names
    shares = model.loadings()
    order = np.argsort(-shares, axis=0, kind="stable")[:_TOP]
    return [
        [(str(labels[j]), float(shares[j, d])) for j in order[:, d] if shares[j, d] >= _LEAST]
        for d in range(shares.shape[1])
    ]


def _chains(model: LatentVariableEstimator) -> str:
    """Say how chains went; nothing of models that a bound trains."""
    if not isinstance(model, RFLVM):
        return ""
    n_chains, n_draws = model.log_joint_.shape
    said = " ".join(model.advice_) or "Chains agree."
    return (
        f"{n_chains} chains of {n_draws} draws, {model.n_iter_} sweeps each. {said} The bound is "
        "that of the variational fit where they start."
    )


def _partial(model: LatentVariableEstimator) -> str:
    """Say where the steps saw less than what the final bound is about."""
    what = " and ".join(seen_in_training(model))
    return f"The bound of the steps and starts below is that of {what}." if what else ""


def _summary(model: LatentVariableEstimator, content: dict[str, Any]) -> str:
    """Return what the page shows, as markup."""
    views = ", ".join(
        f"{_apart(view['name'])} ({counted(view['width'], 'column')})"
        for view in content["views"]
    )
    said = (
        f"{type(model).__name__}: {counted(content['rows'], 'row')}, "
        f"{counted(content['dims'], 'latent dimension')}. Views: {views}."
    )
    beside = [_apart(name) for name in _covariates(model)]
    return (
        f"{said} What is decoded is for the average of {', '.join(beside)}."
        if beside
        else said
    )


def _apart(name: str) -> str:
    """Return markup of a name that, read from right to left, leaves what follows in its place."""
    return f"<bdi>{html.escape(name)}</bdi>"


def _covariates(model: LatentVariableEstimator) -> list[str]:
    """Return the names of the covariates of the fit."""
    return [f"covariate {name}" for name in model._covariate_coding.names]


def _noise(model: LatentVariableEstimator) -> dict[str, str]:
    """Say of which Gaussian views every column has a noise variance of its own: data may have
    decided it.
    """
    return {
        view.name: "one for all columns" if view.likelihood.one_variance else "one per column"
        for view in model._gaussian_views()
    }


def _write(target: Path, text: str) -> None:
    """Write the file complete or not at all."""
    with replacing(target) as part:
        part.write_text(text, encoding="utf-8", errors="replace", newline="\n")
