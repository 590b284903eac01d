"""How good and how expensive is a start by t-SNE: ``python benchmarks/starts.py --threads 1``.

Our exact gradients beside scikit-learn's trees (400 steps, what starts took before), from the same
principal components: processor seconds, and the divergence of both embeddings from the same
affinities, in nats.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from harness import Job, Protocol, Store, Value, arguments, table
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from times import beside, data_of, processor_seconds

from bochner.initialization.embeddings import affinities, embed, noise, pca

Array = NDArray[np.float64]

NAMES = ("iris", "made", "oil", "MNIST 1,000", "digits", "newsgroups")
COLUMNS = {"cpu": ".2f", "divergence": ".3f"}
STEPS = 400
_PERPLEXITY = 30.0


def divergence(y: Array, values: Array) -> float:
    """Return KL(P || Q) of an embedding, in float64."""
    p = affinities(values, _PERPLEXITY).tocoo()
    points = torch.tensor(y, dtype=torch.float64)
    kernel = 1.0 / (1.0 + torch.cdist(points, points).square())
    q = (kernel / (kernel.sum() - len(points)))[p.row, p.col].numpy()
    some = p.data > 0.0
    return float((p.data[some] * np.log(p.data[some] / q[some])).sum())


def measure(name: str, method: str, seed: int) -> dict[str, Value]:
    """Embed one data set."""
    values = beside(data_of(name, seed))
    values = (values - values.mean(0)) / values.std()
    if values.shape[1] > 50:
        values = pca(values, 50, seed)
    first = pca(values, 2, seed)
    first = 1e-4 * (first / first.std() + 1e-2 * noise(len(values), 2, seed))
    trees = TSNE(init=first, max_iter=STEPS, random_state=seed)
    run = (
        partial(embed, values, first, _PERPLEXITY)
        if method == "exact gradients"
        else partial(trees.fit_transform, values)
    )
    y, seconds = processor_seconds(run)
    return {"cpu": seconds, "divergence": divergence(np.asarray(y, float), values)}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all data, both ways."""
    for seed in seeds:
        for name in NAMES[:1] if quick else NAMES:
            for method in ("exact gradients", "trees"):
                yield Job(name, method, seed, partial(measure, name, method, seed))


PROTOCOL = Protocol("starts", tuple(COLUMNS), jobs)


def main() -> None:
    options = arguments(__doc__, seeds=2)
    store: Store = PROTOCOL.store(options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
