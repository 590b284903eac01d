"""Small fits to the last bit: ``python benchmarks/fingerprints.py > before.txt``.

Run it before and after a change that must not alter results, on one machine and with one thread,
and compare the two outputs. Every line holds the name of a fit, its bound, and a digest of
everything that users read from it.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

import bochner as bo

Array = NDArray[np.float64]
SHORT = {"max_iter": 40, "tol": 1e-3, "random_state": 0}


def curve(n: int = 60, m: int = 8, noise: float = 0.1, seed: int = 0) -> Array:
    """Return rows along a curve in a plane, seen through sines."""
    rng = np.random.default_rng(seed)
    latents = rng.normal(size=(n, 2))
    phase = latents @ rng.normal(size=(2, m))
    return np.sin(phase) + noise * rng.normal(size=(n, m))


def holes(X: Array, share: float = 0.2, seed: int = 1) -> Array:
    """Return a copy without some of its entries."""
    gone = np.random.default_rng(seed).random(X.shape) < share
    gone[:, 0] &= ~gone[:, 1:].all(axis=1)
    return np.where(gone, np.nan, X)


def counts(n: int = 60, m: int = 6, seed: int = 2) -> Array:
    """Return overdispersed counts."""
    rng = np.random.default_rng(seed)
    rate = np.exp(1.0 + curve(n, m, seed=seed))
    return rng.poisson(rate * rng.gamma(5.0, 0.2, size=rate.shape)).astype(np.float64)


def two_views() -> tuple[Array, dict[str, slice]]:
    """Return two views of the same rows, one of which some rows lack."""
    X = curve(60, 10)
    X[:12, 6:] = np.nan
    return X, {"a": slice(0, 6), "b": slice(6, 10)}


def fits() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Return the fits by name: each gives a fitted estimator and the rows that it is asked
    about.
    """
    X, Y, split = curve(), counts(), two_views()
    binary, kinds = (
        (X > 0).astype(np.float64),
        np.digitize(X[:, :3], [-0.5, 0.5]).astype(np.float64),
    )
    sparse = sp.csr_array(np.where(curve(80, 12) > 0.5, curve(80, 12), 0.0))

    def lvm(
        model: Callable[..., Any], data: Any, **given: Any
    ) -> Callable[[], tuple[Any, Any]]:
        return lambda: (model(**{**SHORT, **given}).fit(data), data)

    both = {"views": split[1]}
    ng, ad, sr, general = bo.NGMVLVM, bo.AdvisedRFLVM, bo.SRFLVM, bo.RandomFeatureLVM
    private = {"latent": {"shared": 1, "private": {"a": 1}}, **both}
    return {
        "ng": lvm(ng, X),
        "ng-default-steps": lvm(ng, X, max_iter=150),
        "ng-float64": lvm(ng, X, dtype="float64"),
        "ng-one-dimension": lvm(ng, X, n_components=1),
        "ng-three-dimensions": lvm(ng, X, n_components=3, init="pca"),
        "ng-orthogonal": lvm(ng, X, sampling="orthogonal", init="pca"),
        "ng-laplacian": lvm(ng, X, init=["laplacian", "isomap"]),
        "ng-holes": lvm(ng, holes(X)),
        "ng-many-holes": lvm(ng, holes(curve(90, 20), 0.4)),
        "ng-views": lvm(ng, split[0], **both),
        "ng-views-balanced": lvm(ng, split[0], view_weight="balanced", **both),
        "ng-views-holes": lvm(ng, holes(split[0]), **both),
        "ng-private": lvm(ng, split[0], **private),
        "ng-landmarks": lvm(ng, curve(200, 6), landmarks=60),
        "ng-landmarks-holes": lvm(ng, holes(curve(200, 6)), landmarks=60),
        "ng-truncated": lvm(ng, curve(50, 300), truncation=0.05),
        "ng-columns": lvm(ng, X, noise="column"),
        "ng-columns-views": lvm(ng, split[0], noise="column", **both),
        "ng-sparse": lvm(ng, sparse),
        "ng-sparse-counts": lvm(ng, sp.csr_array(Y), likelihood="negative_binomial"),
        "advised": lvm(ad, X),
        "advised-views": lvm(ad, split[0], **both),
        "srflvm": lvm(sr, X),
        "srflvm-holes": lvm(sr, holes(X)),
        "rbf": lvm(general, X, kernel="rbf"),
        "matern": lvm(general, X, kernel="matern"),
        "rbf+periodic": lvm(general, X, kernel="rbf+periodic"),
        "bernoulli": lvm(ng, binary, likelihood="bernoulli"),
        "bernoulli-holes": lvm(sr, holes(binary), likelihood="bernoulli"),
        "binomial": lvm(ng, binary * 2, likelihood=bo.likelihoods.Binomial(3)),
        "poisson": lvm(ng, Y, likelihood="poisson"),
        "negative-binomial": lvm(sr, Y, likelihood="negative_binomial"),
        "negative-binomial-landmarks": lvm(
            ng, counts(160, 5), likelihood="negative_binomial", landmarks=50
        ),
        "categorical": lvm(ng, kinds, likelihood="categorical"),
        "mixed-views": lvm(
            ng,
            np.hstack([X[:, :4], Y[:, :3]]),
            views={"x": slice(0, 4), "y": slice(4, 7)},
            likelihood={"y": "poisson"},
        ),
    }


def features() -> dict[str, Callable[[], list[Array]]]:
    """Return feature maps by name: each gives arrays."""
    X = curve(80, 6)
    nonnegative = np.abs(X)
    unit = (X - X.min()) / (X.max() - X.min())

    def of(model: Any, rows: Array) -> Callable[[], list[Array]]:
        return lambda: [np.asarray(model.fit(rows).transform(rows))]

    krein: dict[str, Any] = {"n_components": 32, "random_state": 0}
    return {
        "fourier": of(bo.FourierFeatures(n_components=32, random_state=0), X),
        "krein-polynomial": of(bo.KreinFeatures("polynomial", **krein), X),
        "krein-hellinger": of(bo.KreinFeatures("hellinger", **krein), nonnegative),
        "krein-tl1": of(bo.KreinFeatures("tl1", **krein), unit),
        "krein-tanh-taylor": of(bo.KreinFeatures("tanh", inference="taylor", **krein), X),
        "krein-polynomial-spectral": of(
            bo.KreinFeatures("polynomial", inference="spectral", **krein), X
        ),
        "maclaurin": of(bo.RandomMaclaurin(n_components=32, random_state=0), X),
        "spherical": of(bo.SphericalFeatures(n_components=32, random_state=0), X),
    }


def digest(arrays: list[Any]) -> str:
    """Return the first digits of a hash of arrays, bit by bit."""
    result = hashlib.sha256()
    for array in arrays:
        result.update(np.ascontiguousarray(array).tobytes())
    return result.hexdigest()[:16]


def answers(model: Any, rows: Any) -> list[Any]:
    """Return what a fitted model says about some of its rows."""
    some = rows[:20]
    mean, std = model.transform(some, return_std=True)
    drawn = model.sample(3, random_state=0)
    out = [model.embedding_, model.embedding_std_, model.elbo_, model.elbo_history_, mean, std]
    out += [np.asarray(drawn), model.relevance_, model.variance_explained_]
    if not sp.issparse(rows):
        out += [model.impute(some), model.score_samples(some)]
    return out


def main() -> None:
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, run in fits().items():
            if not wanted or name in wanted:
                model, rows = run()
                print(
                    f"{name:30s} {float(model.elbo_).hex():26s} {digest(answers(model, rows))}",
                    flush=True,
                )
        for name, arrays in features().items():
            if not wanted or name in wanted:
                print(f"{name:30s} {digest(arrays())}", flush=True)


if __name__ == "__main__":
    main()
