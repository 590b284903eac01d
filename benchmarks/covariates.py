"""Do latents carry what is given as a covariate? ``python benchmarks/covariates.py``.

Made data: 300 rows of 20 columns, smooth functions of two latents with a batch effect (three
batches of unequal size) whose standard deviation is twice the signal's; numbers with a little
noise, and counts, whose log mean is the sum. Printed are the share of the latents' variance that
lies between batches, R^2 of the true latents by linear regression on the found ones, accuracy of
the batch by ten nearest neighbours beside that of guessing, and processor seconds. Beside the model
with the batch as covariate: without it, a linear correction (batch means taken out of the columns;
of counts, out of log(1 + count)) before the same model and before PCA, and scVI where scvi-tools is
installed. Settings are the defaults; choices were made on seeds from 100.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Store, Value, arguments, table
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import bochner as bo

Array = NDArray[np.float64]

SCORES = {"batch": ".4f", "truth": ".3f", "neighbours": ".3f", "guess": ".3f", "seconds": ".1f"}
N_ROWS, N_COLUMNS, NOISE = 300, 20, 0.2
SHARES = (0.5, 0.3, 0.2)
# Of counts: mean of the log mean, and its standard deviation from the signal alone.
LEVEL, SPREAD = 2.0, 0.5


@dataclass(frozen=True)
class Made:
    """Data, batches, the latents behind them."""

    X: Array
    batch: NDArray[np.intp]
    latents: Array
    counts: bool


def made(name: str, seed: int, n_rows: int = N_ROWS) -> Made:
    """Draw data."""
    rng = np.random.default_rng(seed)
    latents = rng.standard_normal((n_rows, 2))
    signal = np.sin(latents @ rng.standard_normal((2, N_COLUMNS)))
    signal += 0.5 * latents @ rng.standard_normal((2, N_COLUMNS))
    signal = (signal - signal.mean(0)) / signal.std()
    batch = rng.choice(len(SHARES), n_rows, p=SHARES)
    effect = rng.standard_normal((len(SHARES), N_COLUMNS))[batch]
    effect = 2.0 * (effect - effect.mean(0)) / effect.std()
    if name == "counts":
        rate = np.exp(LEVEL + SPREAD * (signal + effect))
        return Made(rng.poisson(rate).astype(np.float64), batch, latents, True)
    X = signal + effect + NOISE * rng.standard_normal(signal.shape)
    return Made(X, batch, latents, False)


def corrected(data: Made) -> Array:
    """Return columns without the means of batches."""
    values = np.log1p(data.X) if data.counts else data.X
    means = np.stack([values[data.batch == b].mean(0) for b in range(len(SHARES))])
    return values - means[data.batch]


def ours(given: bool, data: Made, seed: int) -> Array:
    model = bo.NGMVLVM(likelihood="poisson" if data.counts else "gaussian", random_state=seed)
    covariates = {"batch": data.batch.astype(str)} if given else None
    return np.asarray(model.fit(data.X, covariates=covariates).embedding_)


def after_correction(data: Made, seed: int) -> Array:
    return np.asarray(bo.NGMVLVM(random_state=seed).fit(corrected(data)).embedding_)


def pca(data: Made, seed: int) -> Array:
    return np.asarray(PCA(2, random_state=seed).fit_transform(corrected(data)))


def scvi(data: Made, seed: int) -> Array:
    package, anndata = importlib.import_module("scvi"), importlib.import_module("anndata")
    package.settings.seed = seed
    cells = anndata.AnnData(data.X, obs={"batch": data.batch.astype(str)})
    package.model.SCVI.setup_anndata(cells, batch_key="batch")
    model = package.model.SCVI(cells, n_latent=2)
    model.train(accelerator="cpu", enable_progress_bar=False)
    return np.asarray(model.get_latent_representation())


METHODS: dict[str, Callable[[Made, int], Array]] = {
    "NG-MVLVM, batch as covariate": partial(ours, True),
    "NG-MVLVM without": partial(ours, False),
    "linear correction, then NG-MVLVM": after_correction,
    "linear correction, then PCA": pca,
}


def between(Z: Array, batch: NDArray[np.intp]) -> float:
    """Return the share of the latents' variance that lies between batches."""
    means = np.stack([Z[batch == b].mean(0) for b in range(len(SHARES))])[batch]
    return float(np.square(means - Z.mean(0)).sum() / np.square(Z - Z.mean(0)).sum())


def measure(
    name: str, method: Callable[[Made, int], Array], seed: int, n_rows: int
) -> dict[str, Value]:
    """Measure one method on one data set."""
    data = made(name, seed, n_rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.process_time()
        Z = method(data, seed)
        seconds = time.process_time() - begin
    standard: Any = (Z - Z.mean(0)) / Z.std(0)
    neighbours = cross_val_score(KNeighborsClassifier(10), standard, data.batch, cv=5).mean()
    return {
        "batch": between(standard, data.batch),
        "truth": float(LinearRegression().fit(Z, data.latents).score(Z, data.latents)),
        "neighbours": float(neighbours),
        "guess": float(np.bincount(data.batch).max() / len(data.batch)),
        "seconds": seconds,
    }


def jobs(names: list[str], seeds: range, n_rows: int) -> Iterator[Job]:
    """Yield all methods on all data, seed by seed."""
    for seed in seeds:
        for name in names:
            for label, method in METHODS.items():
                yield Job(name, label, seed, partial(measure, name, method, seed, n_rows))
            if name == "counts" and importlib.util.find_spec("scvi") is not None:
                yield Job(name, "scVI", seed, partial(measure, name, scvi, seed, n_rows))


def main() -> None:
    options = arguments(__doc__)
    store = Store("covariates", SCORES, options.quick)
    names = ["numbers"] if options.quick else ["numbers", "counts"]
    store.collect(jobs(names, options.seeds, 60 if options.quick else N_ROWS))
    print(table(store.rows(), SCORES))
    if importlib.util.find_spec("scvi") is None:
        print("scVI: scvi-tools is not installed here")


if __name__ == "__main__":
    main()
