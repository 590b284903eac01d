"""Columns of a view by what they lack: blocks of equal patterns, and the rest in groups of similar
ones.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from bochner.data.arrays import BoolArray, IntArray
from bochner.data.views import Block, blocks

# Up to so many patterns each is a block of its own; beyond, those that so many columns share are.
_FEW = 4
_SHARED = 32
# Groups double as long as that takes a fifth of the spread of the patterns away.
_MOST_GROUPS = 8
_WORTHWHILE = 0.8
_ROWS, _COLUMNS = 1000, 2000


def split(observed: BoolArray) -> tuple[list[Block], list[IntArray]]:
    """Divide the columns of a view.

    Parameters
    ----------
    observed : ndarray of bool, shape (N, M_v)

    Returns
    -------
    whole : list of (rows, columns)
        As `blocks` returns them: few patterns, or patterns of many columns.
    groups : list of ndarray of int
        The other columns, those of similar patterns together; empty when there are none.
    """
    found = blocks(observed)
    if len(found) <= _FEW:
        return found, []
    large = sorted((own for own in found if len(own[1]) >= _SHARED), key=lambda own: -len(own[1]))[
        :_FEW
    ]
    kept = {id(own) for own in large}
    rest = np.sort(np.concatenate([own[1] for own in found if id(own) not in kept]))
    return large, [rest[own] for own in similar(observed[:, rest])]


def similar(observed: BoolArray) -> list[IntArray]:
    """Group columns by the rows that observe them, (N, M): one group unless more tell clearly
    different ones apart.
    """
    n, m = observed.shape
    some = np.linspace(0, n - 1, min(n, _ROWS)).astype(np.intp)
    patterns = observed[some].T.astype(np.float32)
    sample = patterns[np.linspace(0, m - 1, min(m, _COLUMNS)).astype(np.intp)]
    labels = np.zeros(m, dtype=np.intp)
    spread, k = float(np.square(sample - sample.mean(axis=0)).sum()) / max(len(sample) - 1, 1), 2
    while k <= _MOST_GROUPS and len(sample) >= 4 * k:
        means = KMeans(k, n_init=1, random_state=0).fit(sample)
        left = float(means.inertia_) / (len(sample) - k)
        if left > _WORTHWHILE * spread:
            break
        spread, labels, k = left, means.predict(patterns), 2 * k
    return [
        own
        for own in (np.flatnonzero(labels == g) for g in range(int(labels.max()) + 1))
        if own.size
    ]
