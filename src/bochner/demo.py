"""The demo: digits that ship with scikit-learn as two views, and the halves of those that were not
shown.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bochner.cli.data import write_embedding
from bochner.cli.parse import EMBEDDING, PAGE, check_replaced, check_writable
from bochner.cli.session import one_thread_if_small
from bochner.data.arrays import Float64Array
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.io.extensions import MODEL_FILE
from bochner.model_selection.calibrate import calibration
from bochner.page.report import report

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator


# Chosen by the error of completion on splits of their own (seeds 100 to 104): benchmarks/demo.py
# --choice. It is best long before the bound has converged.
N_COMPONENTS = 16
MAX_ITER = 100
_SHOWN_VIEW = "upper"
_HIDDEN_VIEW = "lower"
_FITTED_SHARE = 0.8
_PICTURES = ("latent.png", "completions.png", "bound.png", "kernels.png", "relevance.png")


@dataclass(frozen=True)
class DemoOptions:
    """What the demo may vary.

    Attributes
    ----------
    out : Path
        Folder for files.
    n_components : int
    seed : int
        Of the split and of the fit.
    n_rows : int or None
        Take only so many rows; all by default.
    max_iter : int
        Training steps.
    force : bool
        Replace files that are there.
    """

    out: Path
    n_components: int = N_COMPONENTS
    seed: int = 0
    n_rows: int | None = None
    max_iter: int = MAX_ITER
    force: bool = False


@dataclass(frozen=True)
class Split:
    """Rows to fit and rows to complete, with the labels of the first."""

    train: Float64Array
    test: Float64Array
    labels: NDArray[np.generic]
    views: dict[str, slice]
    image_shape: tuple[int, int]


def run(options: DemoOptions) -> dict[str, object]:
    """Fit four fifths of the digits, complete the lower halves of the rest, compare, and write
    files.

    Returns
    -------
    dict
        completion_rmse, ridge_rmse, kernel_ridge_rmse, knn_rmse, mean_rmse (lower halves of rows
        never seen, in grey levels 0 to 16); knn1, knn10, pca_knn1, pca_knn10 (accuracy on the
        latents of the fitted rows, by 5 folds); elbo, seconds, files.
    """
    started = time.perf_counter()
    _make_folder(options.out, options.force)
    data = split(options)
    with one_thread_if_small(data.train.size):
        model = fitted(options, data)
        completed = completion(model, data)
    values = scores(model, data, completed)
    hidden = data.views[_HIDDEN_VIEW]
    observed = np.ones(data.test.shape, dtype=bool)
    observed[:, hidden] = False
    files = _write(options.out, model, data, completed, observed)
    return {
        **values,
        "elbo": model.elbo_,
        "seconds": round(time.perf_counter() - started, 3),
        "files": [str(path) for path in files],
    }


def fitted(options: DemoOptions, data: Split) -> Any:
    """Fit the demo's model to the training rows."""
    from sklearn.exceptions import ConvergenceWarning

    from bochner.estimators import NGMVLVM

    model = NGMVLVM(
        options.n_components,
        views=data.views,
        init="pca",
        max_iter=options.max_iter,
        random_state=options.seed,
        verbose=1,
    )
    with warnings.catch_warnings():
        # the corners of every digit are blank: nothing to tell anybody
        warnings.simplefilter("ignore", DataWarning)
        # short on purpose
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(data.train)


def completion(model: LatentVariableEstimator, data: Split) -> Float64Array:
    """Complete the lower halves of the rows that the model has not seen."""
    shown = data.test.copy()
    shown[:, data.views[_HIDDEN_VIEW]] = np.nan
    return np.asarray(model.impute(shown))


def scores(
    model: LatentVariableEstimator, data: Split, completed: Float64Array
) -> dict[str, float]:
    """Return errors of the completion and of its peers, and accuracies of nearest neighbours."""
    from bochner import metrics

    hidden = data.views[_HIDDEN_VIEW]
    truth = data.test[:, hidden]
    errors = {name: metrics.rmse(truth, made) for name, made in _peers(data).items()}
    of_completion = {"completion_rmse": metrics.rmse(truth, completed[:, hidden])}
    return {**of_completion, **errors, **_neighbours(model.embedding_, data)}


def _make_folder(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(
            message("--out to be a folder", f"the file {out}", "choose another name")
        )
    check_replaced(out, (MODEL_FILE, EMBEDDING, *_PICTURES, PAGE), force)
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out)


def split(options: DemoOptions) -> Split:
    """Draw four fifths of the digits to fit; the others are to be completed."""
    from bochner.datasets import load_digits_halves

    bunch = load_digits_halves()
    order = np.random.Generator(np.random.PCG64(options.seed)).permutation(len(bunch.data))[
        : options.n_rows
    ]
    cut = int(len(order) * _FITTED_SHARE)
    train = np.sort(order[:cut])
    test = np.sort(order[cut:])
    return Split(
        bunch.data[train],
        bunch.data[test],
        bunch.target[train],
        bunch.views,
        bunch.image_shape,
    )


def _peers(data: Split) -> dict[str, Float64Array]:
    """Predict the lower halves from the upper ones by methods whose settings cross-validation on
    the training rows chooses.
    """
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KNeighborsRegressor

    upper = data.views[_SHOWN_VIEW]
    lower = data.views[_HIDDEN_VIEW]
    given = data.train[:, upper]
    asked = data.train[:, lower]
    mean = asked.mean(axis=0)
    score = {"cv": 3, "scoring": "neg_mean_squared_error"}
    penalties = {"alpha": [0.03, 0.1, 0.3, 1.0], "gamma": [5e-4, 1e-3, 2e-3, 4e-3]}
    neighbours = {"n_neighbors": [3, 5, 8, 12, 20]}
    peers = {
        "ridge_rmse": RidgeCV(np.logspace(-2, 4, 13)),
        "kernel_ridge_rmse": GridSearchCV(KernelRidge(kernel="rbf"), penalties, **score),
        "knn_rmse": GridSearchCV(KNeighborsRegressor(weights="distance"), neighbours, **score),
    }
    shown = data.test[:, upper]
    made = {
        name: peer.fit(given, asked - mean).predict(shown) + mean
        for name, peer in peers.items()
    }
    return {**made, "mean_rmse": np.broadcast_to(mean, data.test[:, lower].shape)}


def _neighbours(embedding: NDArray[np.generic], data: Split) -> dict[str, float]:
    from sklearn.decomposition import PCA

    from bochner import metrics

    linear = PCA(embedding.shape[1], random_state=0).fit_transform(data.train)
    return {
        f"{name}knn{k}": metrics.knn_accuracy(Z, data.labels, k)
        for name, Z in (("", embedding), ("pca_", linear))
        for k in (1, 10)
    }


def _write(
    out: Path,
    model: LatentVariableEstimator,
    data: Split,
    completed: Float64Array,
    observed: NDArray[np.bool_],
) -> list[Path]:
    files = [out / MODEL_FILE, out / EMBEDDING]
    model.save(files[0])
    write_embedding(files[1], (model.embedding_, model.embedding_std_), None)
    try:
        from bochner import plots

        first, second = np.argsort(-model.relevance_.mean(axis=0))[:2].tolist()
        kernels = plots.axes(10.5, 4.4, 2)
        for view, ax in zip(data.views, kernels, strict=True):
            plots.learned_kernel(model, view, ax)
        drawn = [
            plots.latent_map(model, data.labels, (first, second)),
            plots.completions(data.test, completed, observed, data.image_shape, 14),
            plots.bound_trace(model),
            kernels[0],
            plots.relevance(model),
        ]
        named = zip(_PICTURES, drawn, strict=True)
        files += [plots.save(ax, out / name) for name, ax in named]
    except ImportError as error:
        warn_user(f"No pictures: {error}", UserWarning)
    return [*files, *_page(out, model, data)]


def _page(out: Path, model: LatentVariableEstimator, data: Split) -> list[Path]:
    path = out / PAGE
    half = (data.image_shape[0] // 2, data.image_shape[1])
    labels = {"digit": data.labels}
    shapes = dict.fromkeys(data.views, half)
    title = "Digits as two views: upper and lower half"
    calibrated = calibration(model, data.test, hide=_HIDDEN_VIEW, n_draws=50, random_state=0)
    return [
        report(
            model,
            data.train,
            labels,
            path=path,
            shapes=shapes,
            title=title,
            calibration=calibrated,
            overwrite=True,
        )
    ]
