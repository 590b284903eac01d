"""Are private latents told from shared ones? ``python benchmarks/private.py``.

Three views are smooth functions (Gaussian process draws) of two shared latents; views a and b have
one private latent each, view c has none, but the model gives it one. Printed: R² of the true
latents after the best affine map of the learned ones, shared on shared and private on private; what
a view's relevance gives to dimensions it should not need (c's private one) and cannot see (others'
private ones); and the same shared R² of a model without private latents. No label and no truth
enters the choice between starts.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Store, Value, arguments, table, timed
from numpy.typing import NDArray

import bochner as bo

SCORES = {
    "shared_r2": ".3f",
    "private_a_r2": ".3f",
    "private_b_r2": ".3f",
    "spare_relevance": ".3f",
    "unseen_relevance": ".3f",
    "elbo": ".0f",
    "seconds": ".0f",
}
WIDTHS = {"a": 30, "b": 30, "c": 20}
PRIVATE = {"a": 1, "b": 1, "c": 0}
LENGTHSCALE, NOISE, WAVES = 2.0, 0.1, 300
VIEWS = {"a": slice(0, 30), "b": slice(30, 60), "c": slice(60, 80)}

Array = NDArray[np.float64]


@functools.cache
def data_of(n_rows: int, seed: int) -> tuple[Array, Array, dict[str, Array]]:
    """Return the data, the shared latents (n, 2) and the private ones by view (n, d_v)."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n_rows, 2))
    private = {view: rng.normal(size=(n_rows, d)) for view, d in PRIVATE.items()}
    parts = []
    for view, width in WIDTHS.items():
        x = np.hstack([shared, private[view]])
        w, b = (
            rng.normal(size=(WAVES, x.shape[1])) / LENGTHSCALE,
            rng.uniform(0, 2 * np.pi, WAVES),
        )
        f = np.sqrt(2 / WAVES) * np.cos(x @ w.T + b) @ rng.normal(size=(WAVES, width))
        parts.append(f + NOISE * rng.normal(size=f.shape))
    return np.hstack(parts), shared, private


def measure(latent: Any, n_rows: int, max_iter: int, seed: int) -> dict[str, Value]:
    """Fit AdvisedRFLVM with its default starts."""
    X, shared, private_latents = data_of(n_rows, seed)
    model = bo.AdvisedRFLVM(
        views=VIEWS, latent=latent, n_frequencies=32, max_iter=max_iter, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, seconds = timed(lambda: model.fit(X))
    Z, observed = model.embedding_, model.latent_dims_
    out: dict[str, Value] = {"shared_r2": float(bo.metrics.aligned_r2(shared, Z[:, :2]).min())}
    if isinstance(latent, dict):
        for view in "ab":
            private = Z[:, [observed[view][-1]]]
            out[f"private_{view}_r2"] = float(
                bo.metrics.aligned_r2(private_latents[view], private)[0]
            )
        relevance = dict(zip(WIDTHS, model.relevance_, strict=True))
        out["spare_relevance"] = float(relevance["c"][observed["c"][-1]])
        hidden = [np.delete(relevance[view], observed[view]).max() for view in WIDTHS]
        out["unseen_relevance"] = float(max(hidden))
    return {**out, "elbo": model.elbo_, "seconds": seconds}


def jobs(seeds: range, n_rows: int, max_iter: int) -> Iterator[Job]:
    """Yield every row to measure."""
    private = {"shared": 2, "private": {"a": 1, "b": 1, "c": 1}}
    name = f"2 shared, 1 private, {n_rows} rows"
    for method, latent in (("shared and private", private), ("shared alone, D=2", "shared")):
        for seed in seeds:
            yield Job(name, method, seed, partial(measure, latent, n_rows, max_iter, seed))


def main() -> None:
    options = arguments(__doc__)
    store = Store("private", [*SCORES], options.quick)
    store.collect(jobs(options.seeds, *((120, 60) if options.quick else (400, 600))))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
