"""How long does a default fit take, beside a t-SNE? ``python benchmarks/times.py``.

Processor seconds of one thread: NG-MVLVM with defaults and scikit-learn's t-SNE with defaults, one
after the other in the same process, each after a warm-up; UMAP too where it is installed, in a
process of its own. Beside them stand the bound and k-NN accuracy on the latents (five shuffled
folds). Small tables are those that scikit-learn ships and a made one; BOCHNER_DATA names the folder
with the others. Subsets of MNIST are drawn by the seed. Counts (negative binomial; of cells with
size factors) stand before the peers as logarithms, those of cells as their fifty principal
components. No label is used for any choice.
"""

from __future__ import annotations

import functools
import importlib.util
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
from digits import accuracies
from harness import Job, Store, Value, apart, arguments, table
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.utils import Bunch

import bochner as bo

Array = NDArray[np.float64]

NAMES = (
    "iris",
    "made",
    "breast",
    "bridges",
    "oil",
    "MNIST 1,000",
    "digits",
    "newsgroups",
    "handwritten",
    "pbmc3k",
)
COUNTS = ("bridges", "pbmc3k")
# Principal components that peers see of wide tables of counts.
WIDTH = 50
SMALL = ("iris", "made")
COLUMNS = {
    "cpu": ".1f",
    "tsne_cpu": ".1f",
    "ratio": ".2f",
    "umap_cpu": ".1f",
    "elbo": ".0f",
    "elbo_se": ".0f",
    "steps": ".0f",
    "knn1": ".3f",
    "knn10": ".3f",
    "tsne_knn1": ".3f",
    "tsne_knn10": ".3f",
}


@functools.cache
def data_of(name: str, seed: int) -> Bunch:
    """Load a data set, or draw a subset of it."""
    source = np.random.default_rng(seed)
    if name == "iris":
        return load_iris()
    if name == "digits":
        return load_digits()
    if name == "made":
        latent = source.normal(size=(300, 2))
        waves = np.cos(latent @ source.normal(size=(2, 50)) + source.uniform(0.0, 6.0, 50))
        noise = 0.1 * source.normal(size=(300, 20))
        data = waves @ source.normal(size=(50, 20)) / 5.0 + noise
        return Bunch(data=data, target=(latent[:, 0] > 0.0).astype(int))
    if name.startswith("MNIST"):
        every = bo.datasets.load_mnist()
        some = source.permutation(len(every.data))[: int(name.split()[1].replace(",", ""))]
        return Bunch(data=np.asarray(every.data, float)[some], target=every.target[some])
    loaders = {
        "breast": bo.datasets.load_breast_tcga,
        "oil": bo.datasets.load_oil,
        "newsgroups": bo.datasets.load_newsgroups,
        "handwritten": bo.datasets.load_handwritten,
        "bridges": bo.datasets.load_bridges,
        "pbmc3k": bo.datasets.load_pbmc3k,
    }
    bunch = loaders[name]()
    if name == "pbmc3k":
        bunch.data = bunch.data[:, bunch.hvg].toarray()
    # rows of a class stand together, and twins next to each other: their order tells
    order = source.permutation(bunch.data.shape[0])
    data = np.asarray(bunch.data, float)[order]
    about = {"views": bunch.get("views"), "counts": name in COUNTS}
    return Bunch(data=data, target=np.asarray(bunch.target)[order], **about)


def processor_seconds(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and the processor time it took."""
    begin = time.process_time()
    result = function()
    return result, time.process_time() - begin


def model_of(bunch: Bunch, seed: int, max_iter: int | str) -> Any:
    """Build ours: defaults, and of counts the likelihood."""
    options: dict[str, Any] = {"views": bunch.get("views")}
    if bunch.get("counts"):
        sizes: Literal["total"] | None = "total" if bunch.data.shape[1] > WIDTH else None
        options = {"likelihood": bo.likelihoods.NegativeBinomial(size_factors=sizes)}
    return bo.NGMVLVM(random_state=seed, max_iter=max_iter, **options)


def beside(bunch: Bunch) -> Array:
    """Return what peers see: views scaled and side by side, logarithms of counts."""
    views = bunch.get("views")
    if bunch.get("counts"):
        values = np.log1p(bunch.data)
        return PCA(WIDTH).fit_transform(values) if values.shape[1] > WIDTH else values
    if views is None:
        return np.asarray(bunch.data, float)
    parts = [bunch.data[:, columns] for columns in views.values()]
    return np.hstack([(part - part.mean(0)) / max(part.std(), 1e-12) for part in parts])


def measure(name: str, seed: int, max_iter: int | str) -> dict[str, Value]:
    """Fit ours and the peers, one after the other."""
    bunch = data_of(name, seed)
    peers = beside(bunch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        TSNE(random_state=seed, max_iter=250).fit_transform(peers[:150])
        map_, tsne = processor_seconds(lambda: TSNE(random_state=seed).fit_transform(peers))
        model_of(bunch, seed, 8).fit(bunch.data[:150])
        model = model_of(bunch, seed, max_iter)
        model, ours = processor_seconds(lambda: model.fit(bunch.data))
    theirs = {f"tsne_{key}": v for key, v in accuracies(map_, bunch.target).items()}
    row: dict[str, Value] = {
        **accuracies(model.embedding_, bunch.target),
        **theirs,
        "cpu": ours,
        "tsne_cpu": tsne,
        "ratio": ours / tsne,
        "elbo": float(model.elbo_),
        "elbo_se": float(model.elbo_se_),
        "steps": model.n_iter_,
    }
    if importlib.util.find_spec("umap") is not None:
        row["umap_cpu"] = apart(umap_seconds, peers, seed)
    return row


def umap_seconds(peers: Array, seed: int) -> float:
    """Return the processor seconds of a UMAP after its compilation; for a process of its own, since
    numba's threads made what came after them in the same one up to twenty times slower.
    """
    from umap import UMAP

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        UMAP(random_state=seed).fit_transform(peers[:150])
        fit = partial(UMAP(random_state=seed).fit_transform, peers)
        return processor_seconds(fit)[1]


def jobs(names: tuple[str, ...], seeds: range, max_iter: int | str) -> Iterator[Job]:
    """Yield all data, seed by seed."""
    for seed in seeds:
        for name in names:
            yield Job(name, "NG-MVLVM", seed, partial(measure, name, seed, max_iter))


def main() -> None:
    options = arguments(__doc__)
    store = Store("times", tuple(COLUMNS), options.quick)
    names = SMALL if options.quick else NAMES
    store.collect(jobs(names, options.seeds, 60 if options.quick else "auto"))
    rows = store.rows()
    print(table(rows, COLUMNS))
    ratios = [float(row["ratio"]) for row in rows]
    print(
        f"processor seconds over t-SNE's, geometric mean {statistics.geometric_mean(ratios):.2f}"
    )


if __name__ == "__main__":
    main()
