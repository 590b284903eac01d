"""The demo: digits that ship with scikit-learn as two views, and the halves of those that were not
shown.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bochner.cli.data import MODEL_FILE, write_embedding
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.model_selection.calibrate import calibration
from bochner.page.report import report

FloatArray = NDArray[np.float64]

# A short fit: on splits of their own (seeds 100 to 102) completion was best early, long before the
# bound had converged.
N_COMPONENTS = 8
MAX_ITER = 60
_SHOWN_VIEW, _HIDDEN_VIEW = "upper", "lower"
_FITTED_SHARE = 0.8


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
    """

    out: Path
    n_components: int = N_COMPONENTS
    seed: int = 0
    n_rows: int | None = None
    max_iter: int = MAX_ITER


@dataclass(frozen=True)
class _Split:
    train: FloatArray
    test: FloatArray
    labels: NDArray[Any]
    views: dict[str, slice]
    image_shape: tuple[int, int]


def run(options: DemoOptions) -> dict[str, Any]:
    """Fit four fifths of the digits, complete the lower halves of the rest, compare, and write
    files.

    Returns
    -------
    dict
        completion_rmse, ridge_rmse, mean_rmse (lower halves of rows never seen, in grey levels 0 to
        16); knn1, knn10, pca_knn1, pca_knn10 (accuracy on the latents of the fitted rows, by 5
        folds); elbo, seconds, files.
    """
    from sklearn.exceptions import ConvergenceWarning

    from bochner import metrics
    from bochner.estimators import NGMVLVM

    started = time.perf_counter()
    _make_folder(options.out)
    data = _split(options)
    shown = data.test.copy()
    shown[:, data.views[_HIDDEN_VIEW]] = np.nan
    model = NGMVLVM(
        options.n_components,
        views=data.views,
        init="pca",
        max_iter=options.max_iter,
        random_state=options.seed,
        verbose=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DataWarning
        )  # the corners of every digit are blank: nothing to tell anybody
        warnings.simplefilter("ignore", ConvergenceWarning)  # short on purpose
        model.fit(data.train)
    completed = model.impute(shown)
    hidden = data.views[_HIDDEN_VIEW]
    baselines = _baselines(data)
    errors = {name: metrics.rmse(data.test[:, hidden], made) for name, made in baselines.items()}
    files = _write(options.out, model, data, completed, ~np.isnan(shown))
    return {
        "completion_rmse": metrics.rmse(data.test[:, hidden], completed[:, hidden]),
        **errors,
        **_neighbours(model.embedding_, data),
        "elbo": model.elbo_,
        "seconds": round(time.perf_counter() - started, 3),
        "files": [str(path) for path in files],
    }


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(message("--out to be a folder", f"the file {out}", "choose another name"))
    out.mkdir(parents=True, exist_ok=True)


def _split(options: DemoOptions) -> _Split:
    from bochner.datasets import load_digits_halves

    bunch = load_digits_halves()
    order = np.random.Generator(np.random.PCG64(options.seed)).permutation(len(bunch.data))[
        : options.n_rows
    ]
    cut = int(len(order) * _FITTED_SHARE)
    train, test = np.sort(order[:cut]), np.sort(order[cut:])
    return _Split(
        bunch.data[train], bunch.data[test], bunch.target[train], bunch.views, bunch.image_shape
    )


def _baselines(data: _Split) -> dict[str, FloatArray]:
    from sklearn.linear_model import RidgeCV

    upper, lower = data.views[_SHOWN_VIEW], data.views[_HIDDEN_VIEW]
    ridge = RidgeCV(np.logspace(-2, 4, 13)).fit(data.train[:, upper], data.train[:, lower])
    mean = np.broadcast_to(data.train[:, lower].mean(axis=0), data.test[:, lower].shape)
    return {"ridge_rmse": ridge.predict(data.test[:, upper]), "mean_rmse": mean}


def _neighbours(embedding: NDArray[Any], data: _Split) -> dict[str, float]:
    from sklearn.decomposition import PCA

    from bochner import metrics

    linear = PCA(embedding.shape[1], random_state=0).fit_transform(data.train)
    return {
        f"{name}knn{k}": metrics.knn_accuracy(Z, data.labels, k)
        for name, Z in (("", embedding), ("pca_", linear))
        for k in (1, 10)
    }


def _write(
    out: Path, model: Any, data: _Split, completed: FloatArray, observed: NDArray[np.bool_]
) -> list[Path]:
    files = [out / MODEL_FILE, out / "embedding.csv"]
    model.save(files[0])
    write_embedding(files[1], model.embedding_, model.embedding_std_, None)
    try:
        from bochner import plots

        first, second = np.argsort(-model.relevance_.mean(axis=0))[:2].tolist()
        kernels = plots.axes(10.5, 4.4, 2)
        for view, ax in zip(data.views, kernels, strict=True):
            plots.learned_kernel(model, view, ax)
        drawn = {
            "latent.png": plots.latent_map(model, data.labels, (first, second)),
            "completions.png": plots.completions(
                data.test, completed, observed, data.image_shape, 14
            ),
            "bound.png": plots.bound_trace(model),
            "kernels.png": kernels[0],
            "relevance.png": plots.relevance(model),
        }
        files += [plots.save(ax, out / name) for name, ax in drawn.items()]
    except ImportError as error:
        warn_user(f"No pictures: {error}", UserWarning)
    return [*files, *_page(out, model, data)]


def _page(out: Path, model: Any, data: _Split) -> list[Path]:
    path, half = out / "report.html", (data.image_shape[0] // 2, data.image_shape[1])
    labels, shapes = {"digit": data.labels}, dict.fromkeys(data.views, half)
    title = "Digits as two views: upper and lower half"
    found = calibration(model, data.test, hide=_HIDDEN_VIEW, n_draws=50, random_state=0)
    return [
        report(
            model,
            data.train,
            labels,
            path=path,
            shapes=shapes,
            title=title,
            calibration=found,
            overwrite=True,
        )
    ]
