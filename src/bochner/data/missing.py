"""Columns of a view by what they lack: blocks of equal patterns, and the rest in groups of similar
ones.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from bochner.data.arrays import BoolArray, IntArray
from bochner.data.columns import columns_of, dense_rows
from bochner.memory import passes
from bochner.processes import Processes

# Up to so many patterns each is a block of its own; beyond, those that so many columns share are.
_FEW = 4
_SHARED = 32
# Groups double as long as that takes a fifth of the spread of the patterns away.
_MOST_GROUPS = 8
_WORTHWHILE = 0.8
# Rows and columns of the sample that groups are found in.
_ROWS = 1000
_COLUMNS = 2000

Block = tuple[IntArray, IntArray]


def blocks(observed: BoolArray) -> list[Block]:
    """Group the columns of one view by identical missingness pattern.

    A complete view is one block, a view whose rows are absent as a whole is one block of the other
    rows, scattered holes make one block per distinct pattern. Within a block every entry is
    observed, so a bound is the sum over blocks of its complete form.

    Parameters
    ----------
    observed : ndarray of bool, shape (N, M_v)

    Returns
    -------
    list of (rows, columns)
        Two arrays of int each, ascending; columns count within the view. A column without any
        observed entry is in no block. Order of first appearance.
    """
    if observed.size and observed.all():
        return [(np.arange(observed.shape[0]), np.arange(observed.shape[1]))]
    # One bit per entry, one contiguous row of bytes per column: hashing is then a single pass over
    # N·M_v/8 bytes.
    packed = np.packbits(np.ascontiguousarray(observed.T), axis=1)
    groups: dict[bytes, list[int]] = {}
    for column, pattern in enumerate(packed):
        groups.setdefault(pattern.tobytes(), []).append(column)
    grouped = [
        (np.flatnonzero(observed[:, group[0]]), np.array(group, dtype=np.intp))
        for group in groups.values()
    ]
    return [(rows, members) for rows, members in grouped if rows.size]


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
    complete = blocks(observed)
    whole, rest = _divided([columns for _, columns in complete])
    rows = {int(columns[0]): index for index, columns in complete}
    if not rest.size:
        return [(rows[int(columns[0])], columns) for columns in whole], []
    some = _evenly(len(observed), _ROWS)
    groups = [rest[group] for group in similar(observed[some][:, rest])]
    return [(rows[int(columns[0])], columns) for columns in whole], groups


def split_rows(
    X: Any, columns: IntArray, processes: Processes
) -> tuple[list[Block], list[IntArray]]:
    """Divide the columns of a view as `split` does, of rows that are read block by block or divided
    among processes.

    Parameters
    ----------
    X : ndarray or RowSource of shape (N, M)
        NaN = missing; the rows of this process.
    columns : ndarray of int, shape (M_v,)
        Of the view.
    processes : Processes

    Returns
    -------
    whole : list of (rows, columns)
        Rows of this process, of which there may be none.
    groups : list of ndarray of int
    """
    digests = [blake2b(digest_size=16) for _ in columns]
    counts = np.zeros(len(columns), dtype=np.int64)
    for rows in passes(X.shape):
        observed = ~np.isnan(columns_of(X[rows], columns))
        counts += observed.sum(axis=0)
        for digest, packed in zip(digests, np.packbits(observed.T, axis=1), strict=True):
            digest.update(packed.tobytes())
    every = processes.gathered(([hashed.digest() for hashed in digests], counts))
    patterns: dict[tuple[bytes, ...], list[int]] = {}
    by_column = zip(*(of_process for of_process, _ in every), strict=True)
    for j, pattern in enumerate(by_column):
        if any(count[j] for _, count in every):
            patterns.setdefault(pattern, []).append(j)
    whole, rest = _divided([np.array(alike, dtype=np.intp) for alike in patterns.values()])
    rows_of = _rows_of(X, columns[[int(alike[0]) for alike in whole]])
    out = list(zip(rows_of, whole, strict=True))
    if not rest.size:
        return out, []
    n_rows = X.shape[0]
    some = torch.from_numpy(_evenly(processes.total(n_rows), _ROWS))
    local = processes.local(some, n_rows).numpy()
    values = dense_rows(X, local)[:, columns[rest]]
    shown = torch.from_numpy((~np.isnan(values)).astype(np.float32))
    sample = processes.joined(shown, some, n_rows).numpy() > 0
    return out, [rest[group] for group in similar(sample)]


def observed_in(X: Any, columns: IntArray) -> tuple[IntArray, int]:
    """Return the rows that observe any of some columns, and the number of entries that they do."""
    parts = [np.empty(0, dtype=np.intp)]
    count = 0
    for rows in passes(X.shape):
        observed = ~np.isnan(columns_of(X[rows], columns))
        count += int(observed.sum())
        parts.append(rows.start + np.flatnonzero(observed.any(axis=1)))
    return np.concatenate(parts), count


def _rows_of(X: Any, columns: IntArray) -> list[IntArray]:
    """Return the rows that observe each of some columns."""
    parts: list[list[IntArray]] = [[np.empty(0, dtype=np.intp)] for _ in columns]
    for rows in passes(X.shape) if len(columns) else ():
        observed = ~np.isnan(X[rows][:, columns])
        for j, index in enumerate(parts):
            index.append(rows.start + np.flatnonzero(observed[:, j]))
    return [np.concatenate(index) for index in parts]


def _divided(patterns: list[IntArray]) -> tuple[list[IntArray], IntArray]:
    """Return the patterns that are blocks of their own, and the columns of the others."""
    if len(patterns) <= _FEW:
        return patterns, np.empty(0, dtype=np.intp)
    many = (pattern for pattern in patterns if len(pattern) >= _SHARED)
    large = sorted(many, key=lambda pattern: -len(pattern))[:_FEW]
    kept = {id(pattern) for pattern in large}
    others = [pattern for pattern in patterns if id(pattern) not in kept]
    return large, np.sort(np.concatenate(others))


def _evenly(n_rows: int, most: int) -> IntArray:
    return np.linspace(0, n_rows - 1, min(n_rows, most)).astype(np.int64)


def similar(observed: BoolArray) -> list[IntArray]:
    """Group columns by the rows that observe them, (n, M) of up to a thousand rows: one group
    unless more tell clearly different ones apart.
    """
    # only tables with many holes come here
    from sklearn.cluster import KMeans

    m = observed.shape[1]
    patterns = observed.T.astype(np.float32)
    sample = patterns[np.linspace(0, m - 1, min(m, _COLUMNS)).astype(np.intp)]
    labels = np.zeros(m, dtype=np.intp)
    centred = sample - sample.mean(axis=0)
    spread = float(np.square(centred).sum()) / max(len(sample) - 1, 1)
    k = 2
    while k <= _MOST_GROUPS and len(sample) >= 4 * k:
        means = KMeans(k, n_init=1, random_state=0).fit(sample)
        left = float(means.inertia_) / (len(sample) - k)
        if left > _WORTHWHILE * spread:
            break
        spread = left
        labels = means.predict(patterns)
        k = 2 * k
    n_groups = int(labels.max()) + 1
    groups = (np.flatnonzero(labels == g) for g in range(n_groups))
    return [members for members in groups if members.size]
