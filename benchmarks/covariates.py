"""Do latents carry what is given as a covariate? ``python benchmarks/covariates.py``.

Made data: 300 rows of 20 columns, smooth functions of two latents with a batch effect (three
batches of unequal size) whose standard deviation is twice the signal's; numbers with a little
noise, and counts, whose log mean is the sum. Printed are the share of the latents' variance that
lies between batches, R^2 of the true latents by linear regression on the found ones, accuracy of
the batch by ten nearest neighbours beside that of guessing, and processor seconds. Beside the model
with the batch as covariate: without it, a linear correction (batch means taken out of the columns;
of counts, out of log(1 + count)) before the same model and before PCA, and scVI where scvi-tools is
installed. Two rows say what can be expected: the same rows without the effect in the data, and the
mean of each row's latents given its data where functions, effects and noise are known (integrated
on a grid). Settings are the defaults; choices were made on seeds from 100.
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

SCORES = {
    "batch": ".4f",
    "truth": ".3f",
    "neighbours": ".3f",
    "guess": ".3f",
    "seconds": ".1f",
}
N_ROWS, N_COLUMNS, NOISE = 300, 20, 0.2
SHARES = (0.5, 0.3, 0.2)
# Of counts: mean of the log mean, and its standard deviation from the signal alone.
LEVEL, SPREAD = 2.0, 0.5


@dataclass(frozen=True)
class Made:
    """Data, batches, the latents behind them, the signal of any latents and the rows' effects."""

    X: Array
    batch: NDArray[np.intp]
    latents: Array
    counts: bool
    signal: Callable[[Array], Array]
    effect: Array


def made(name: str, seed: int, n_rows: int = N_ROWS, size: float = 2.0) -> Made:
    """Draw data, with effects of so many standard deviations of the signal."""
    rng = np.random.default_rng(seed)
    latents = rng.standard_normal((n_rows, 2))
    waves, slopes = rng.standard_normal((2, N_COLUMNS)), rng.standard_normal((2, N_COLUMNS))

    def functions(Z: Array) -> Array:
        return np.asarray(np.sin(Z @ waves) + 0.5 * Z @ slopes)

    values = functions(latents)
    mean, std = values.mean(0), values.std()

    def signal(Z: Array) -> Array:
        return np.asarray((functions(Z) - mean) / std)

    batch = rng.choice(len(SHARES), n_rows, p=SHARES)
    effect = rng.standard_normal((len(SHARES), N_COLUMNS))[batch]
    effect = size * (effect - effect.mean(0)) / effect.std()
    if name == "counts":
        rate = np.exp(LEVEL + SPREAD * (signal(latents) + effect))
        X = rng.poisson(rate).astype(np.float64)
        return Made(X, batch, latents, True, signal, effect)
    X = signal(latents) + effect + NOISE * rng.standard_normal(values.shape)
    return Made(X, batch, latents, False, signal, effect)


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


def known(data: Made, seed: int) -> Array:
    """Return the mean of each row's latents where all but the latents is known."""
    del seed
    side = np.linspace(-4.5, 4.5, 301 if not data.counts else 151)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    at, prior = data.signal(grid), -0.5 * (grid**2).sum(1)
    out = np.empty_like(data.latents)
    for row, (x, effect) in enumerate(zip(data.X, data.effect, strict=True)):
        if data.counts:
            logs = LEVEL + SPREAD * (at + effect)
            log_density = prior + logs @ x - np.exp(logs).sum(1)
        else:
            log_density = prior - 0.5 * ((x - at - effect) ** 2).sum(1) / NOISE**2
        weights = np.exp(log_density - log_density.max())
        out[row] = weights @ grid / weights.sum()
    return out


def scvi(data: Made, seed: int) -> Array:
    package, anndata = importlib.import_module("scvi"), importlib.import_module("anndata")
    package.settings.seed = seed
    cells = anndata.AnnData(data.X, obs={"batch": data.batch.astype(str)})
    package.model.SCVI.setup_anndata(cells, batch_key="batch")
    model = package.model.SCVI(cells, n_latent=2)
    model.train(accelerator="cpu", enable_progress_bar=False)
    return np.asarray(model.get_latent_representation())


WITHOUT_EFFECT = "NG-MVLVM, no effect in the data"
METHODS: dict[str, Callable[[Made, int], Array]] = {
    "NG-MVLVM, batch as covariate": partial(ours, True),
    "NG-MVLVM without": partial(ours, False),
    "linear correction, then NG-MVLVM": after_correction,
    "linear correction, then PCA": pca,
    WITHOUT_EFFECT: partial(ours, False),
    "all but the latents known": known,
}


def between(Z: Array, batch: NDArray[np.intp]) -> float:
    """Return the share of the latents' variance that lies between batches."""
    means = np.stack([Z[batch == b].mean(0) for b in range(len(SHARES))])[batch]
    return float(np.square(means - Z.mean(0)).sum() / np.square(Z - Z.mean(0)).sum())


def measure(
    name: str, method: Callable[[Made, int], Array], seed: int, n_rows: int, size: float = 2.0
) -> dict[str, Value]:
    """Measure one method on one data set."""
    data = made(name, seed, n_rows, size)
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
                given = (name, method, seed, n_rows, 0.0 if label == WITHOUT_EFFECT else 2.0)
                yield Job(name, label, seed, partial(measure, *given))
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
