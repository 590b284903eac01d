"""Do latents of cells mix batches and keep types? ``python benchmarks/cells.py``.

No set of cells with batches is among the data here, so batches are made of real ones: of the blood
cells of BOCHNER_DATA (pbmc3k) 400 are drawn and 100 genes that vary, among those that a twentieth
of the cells have. The types of these cells were once read from clusters of principal components,
which favours principal components; so there are also cells whose types are known, for they are
drawn: 400 of 100 genes, six types of which the rates of 20 genes each differ (log normal, 1.2),
three programs of genes that vary within every type, sizes of log normal deviation 0.4, counts
negative binomial with dispersion 3. Every type of cells has shares of three batches of its own
(Dirichlet, 3 each), and every batch loses molecules, gene by gene: a count becomes a binomial draw
of it with a chance whose log odds are normal (mean 1, standard deviation 1.5). Everything else is
as measured.

Beside the negative binomial model with the batch as covariate: without it, and principal components
of log(1 + counts per typical cell), as they are and after the means of batches were taken out of
every gene (a linear correction); scVI where scvi-tools is installed. Five latents each. Scores are
like LISI (Korsunsky et al., 2019) and kBET (Buettner et al., 2019), within types, for the types of
these batches differ: `mixing`, the inverse Simpson index of batches among a cell's 30 nearest cells
of its type, scaled so that one batch alone is 0 and the type's shares are 1; `accepted`, the share
of cells of whose 30 neighbours a chi-squared test at 5 % does not tell the batches from the type's;
`types`, the accuracy of types by ten nearest neighbours (cross-validated); processor seconds. Where
scib-metrics is installed, its `ilisi` (batches), `clisi` (types) and `kbet` per type stand beside
them.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from harness import Job, Store, Value, arguments, table
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

import bochner as bo

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

SCIB = {"ilisi": ".3f", "clisi": ".3f", "kbet": ".3f"}
SCORES = {"mixing": ".3f", "accepted": ".3f", "types": ".3f", **SCIB, "seconds": ".1f"}
N_CELLS, N_GENES, N_BATCHES, N_LATENTS, NEIGHBOURS = 400, 100, 3, 5, 30
N_TYPES, DISPERSION = 6, 3.0
# of scib-metrics: three times the perplexity of LISI
N_SCIB = 90


@dataclass(frozen=True)
class Cells:
    """Counts (n, genes), and the batch and the type of every cell."""

    counts: Array
    batch: Labels
    type: Labels


def made(seed: int) -> Cells:
    """Draw cells and batches, and take molecules away."""
    rng = np.random.default_rng(seed)
    bunch = bo.datasets.load_pbmc3k()
    chosen = np.sort(rng.permutation(len(bunch.target))[:N_CELLS])
    counts = bunch.data[chosen].toarray().astype(np.int64)
    kind = np.asarray(bunch.target[chosen])
    counts = counts[:, (counts > 0).mean(0) >= 0.05]
    means, variances = counts.mean(0), counts.var(0)
    varying = np.argsort(variances / means)[-N_GENES:]
    return _in_batches(counts[:, np.sort(varying)], kind, rng)


def drawn(seed: int) -> Cells:
    """Draw cells of known types."""
    rng = np.random.default_rng([seed, 7])
    kind, _, counts = cells_of_types(rng)
    return _in_batches(counts, kind, rng)


def cells_of_types(rng: np.random.Generator) -> tuple[Labels, Array, Labels]:
    """Draw types, and means and counts of cells without batches."""
    kind = rng.choice(N_TYPES, N_CELLS, p=rng.dirichlet([4.0] * N_TYPES))
    profiles = np.zeros((N_TYPES, N_GENES))
    for profile in profiles:
        profile[rng.permutation(N_GENES)[:20]] = 1.2 * rng.standard_normal(20)
    programs = 0.4 * rng.standard_normal((3, N_GENES))
    log_rate = rng.normal(0.0, 1.0, N_GENES) + profiles[kind]
    log_rate = log_rate + np.sin(rng.standard_normal((N_CELLS, 3))) @ programs
    rate = np.exp(log_rate + 0.4 * rng.standard_normal((N_CELLS, 1)))
    counts = rng.poisson(rate * rng.gamma(DISPERSION, 1.0 / DISPERSION, rate.shape))
    return kind, rate, counts


def _in_batches(counts: Labels, kind: Labels, rng: np.random.Generator) -> Cells:
    """Give cells batches, and take molecules away."""
    shares = rng.dirichlet([3.0] * N_BATCHES, kind.max() + 1)
    batch = np.array([rng.choice(N_BATCHES, p=shares[type_of_cell]) for type_of_cell in kind])
    chance = 1.0 / (1.0 + np.exp(-1.0 - 1.5 * rng.standard_normal((N_BATCHES, N_GENES))))
    thinned = rng.binomial(counts, chance[batch])
    observed = thinned.sum(0) > 0
    return Cells(thinned[:, observed].astype(np.float64), batch, kind)


def ours(given: bool, cells: Cells, seed: int) -> Array:
    model = bo.NGMVLVM(
        N_LATENTS,
        likelihood="negative_binomial",
        n_mixtures=1,
        init="pca",
        max_iter=100,
        random_state=seed,
    )
    covariates = {"batch": cells.batch.astype(str)} if given else None
    sizes = cells.counts.sum(1) + 1.0
    return np.asarray(
        model.fit(cells.counts, covariates=covariates, size_factors=sizes).embedding_
    )


def pca(corrected: bool, cells: Cells, seed: int) -> Array:
    totals = cells.counts.sum(1, keepdims=True) + 1.0
    values = np.log1p(cells.counts / totals * np.median(totals))
    if corrected:
        for one in range(N_BATCHES):
            values[cells.batch == one] -= values[cells.batch == one].mean(0)
    return np.asarray(PCA(N_LATENTS, random_state=seed).fit_transform(values))


def scvi(cells: Cells, seed: int) -> Array:
    package, anndata = importlib.import_module("scvi"), importlib.import_module("anndata")
    package.settings.seed = seed
    annotated = anndata.AnnData(cells.counts, obs={"batch": cells.batch.astype(str)})
    package.model.SCVI.setup_anndata(annotated, batch_key="batch")
    model = package.model.SCVI(annotated, n_latent=N_LATENTS)
    model.train(accelerator="cpu", enable_progress_bar=False)
    return np.asarray(model.get_latent_representation())


METHODS: dict[str, Callable[[Cells, int], Array]] = {
    "NG-MVLVM, batch as covariate": partial(ours, True),
    "NG-MVLVM without": partial(ours, False),
    "linear correction, then PCA": partial(pca, True),
    "PCA": partial(pca, False),
}


def mixed(Z: Array, cells: Cells) -> tuple[float, float]:
    """Return how batches mix within types, and the share of accepted neighbourhoods."""
    mixing, accepted = [], []
    for one in np.unique(cells.type):
        members = cells.type == one
        share = np.bincount(cells.batch[members], minlength=N_BATCHES) / members.sum()
        if members.sum() < 2 * NEIGHBOURS or share.max() > 0.9:
            continue
        near = (
            NearestNeighbors(n_neighbors=NEIGHBOURS)
            .fit(Z[members])
            .kneighbors(return_distance=False)
        )
        result = np.eye(N_BATCHES)[cells.batch[members]][near].mean(1)
        index, whole = 1.0 / np.square(result).sum(1), 1.0 / np.square(share).sum()
        mixing.append((index - 1.0) / (whole - 1.0))
        there = share > 0
        distance = NEIGHBOURS * (np.square(result - share)[:, there] / share[there]).sum(1)
        accepted.append(distance < chi2.ppf(0.95, there.sum() - 1))
    return float(np.concatenate(mixing).mean()), float(np.concatenate(accepted).mean())


def scib(Z: Array, cells: Cells) -> dict[str, Value]:
    """Return the scores of scib-metrics, where that is installed."""
    if importlib.util.find_spec("scib_metrics") is None:
        return {}
    package = importlib.import_module("scib_metrics")
    neighbours = importlib.import_module("scib_metrics.nearest_neighbors").NeighborsResults
    distances, indices = NearestNeighbors(n_neighbors=N_SCIB).fit(Z).kneighbors(Z)
    near = neighbours(indices=indices, distances=distances)
    return {
        "ilisi": float(package.ilisi_knn(near, cells.batch)),
        "clisi": float(package.clisi_knn(near, cells.type)),
        "kbet": float(package.kbet_per_label(near, cells.batch, cells.type)),
    }


DATA: dict[str, Callable[[int], Cells]] = {
    "pbmc3k, made batches": made,
    "drawn cells": drawn,
}


def measure(data: str, method: Callable[[Cells, int], Array], seed: int) -> dict[str, Value]:
    """Measure one method on one draw."""
    cells = DATA[data](seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.process_time()
        Z = method(cells, seed)
        seconds = time.process_time() - begin
        standard = (Z - Z.mean(0)) / Z.std(0)
        types = cross_val_score(KNeighborsClassifier(10), standard, cells.type, cv=5).mean()
    mixing, accepted = mixed(standard, cells)
    return {
        "mixing": mixing,
        "accepted": accepted,
        "types": float(types),
        **scib(standard, cells),
        "seconds": seconds,
    }


def jobs(seeds: range) -> Iterator[Job]:
    """Yield all methods, seed by seed."""
    methods = dict(METHODS)
    if importlib.util.find_spec("scvi") is not None:
        methods["scVI"] = scvi
    for seed in seeds:
        for data in DATA:
            for label, method in methods.items():
                yield Job(data, label, seed, partial(measure, data, method, seed))


def main() -> None:
    options = arguments(__doc__)
    store = Store("cells", SCORES, options.quick)
    store.collect(jobs(options.seeds))
    print(table(store.rows(), SCORES))
    if importlib.util.find_spec("scvi") is None:
        print("scVI: scvi-tools is not installed here")
    if importlib.util.find_spec("scib_metrics") is None:
        print("ilisi, clisi, kbet: scib-metrics is not installed here")


if __name__ == "__main__":
    main()
