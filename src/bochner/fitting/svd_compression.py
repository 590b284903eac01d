"""Fewer columns for training: the collapsed bound knows complete data only through Y Y^T.

Y may be replaced by the r columns Y V_r of its singular value decomposition as long as the full
||Y||^2 and the original M stay in the bound (docs/math.md, section 2.3). That is exact when r is
the rank of Y; with fewer columns the value can only fall, by at most the squares dropped over 2
sigma^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from bochner.data.sparse import SparseMatrix
from bochner.data.stored import StoredMatrix
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.memory import chunks
from bochner.regression.observations import (
    Block,
    CompleteBlock,
    Data,
    Matrix,
    complete_blocks,
)

# Rows, or columns, of a product that are held at once in double precision.
_CHUNK = 8192
# Share of the squares below which a Gram matrix of float64 holds rounding alone.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Limits:
    """How far rotation goes.

    Attributes
    ----------
    narrow : int
        Views of so many columns or fewer are never truncated: there is little to gain.
    worthwhile : float
        Rotation pays when this share of the columns, or less, is left.
    exact : int
        Up to this size of the smaller side its Gram matrix is decomposed exactly; beyond, only
        leading directions are computed, by a randomised decomposition.
    directions : int
        Leading directions of that randomised decomposition. A view that needs more stays as it
        is: a decomposition with all directions takes the cube of the smaller side in time and a
        second copy of the data in memory.
    """

    narrow: int = 256
    worthwhile: float = 0.8
    exact: int = 2500
    directions: int = 1000


_DEFAULT = Limits()


@dataclass(frozen=True)
class Rotation:
    """What training on rotated columns leaves out.

    Attributes
    ----------
    ranks : tuple of int
        Columns of every view in training.
    dropped : tuple of float
        Share of every view's squares that training does not see.
    bases : tuple of Tensor of shape (M_v, r), or None where a view stays
    """

    ranks: tuple[int, ...]
    dropped: tuple[float, ...]
    bases: tuple[Tensor | None, ...]

    def apply(self, data: Data) -> Data:
        """Rotate other rows of the same views: whatever the basis, the bound can only fall by
        it.
        """
        return tuple(
            _turned(blocks, basis) for blocks, basis in zip(data, self.bases, strict=True)
        )


def rotate(
    data: Data,
    share: float,
    seed: int,
    likelihoods: Sequence[Likelihood] | None = None,
    limits: Limits = _DEFAULT,
) -> tuple[Data, Rotation]:
    """Rotate the complete views to their leading columns.

    Parameters
    ----------
    data : tuple over views of tuples of Block
    share : float
        Share of a view's squares that may be dropped, where it has more than `limits.narrow`
        columns; else, or with 0, rounding only. Views with missing entries stay.
    seed : int
    likelihoods : sequence over views of Likelihood, optional
        Non-conjugate views stay, and those whose columns have noise of their own; None: no
        view is either.
    limits : Limits

    Returns
    -------
    Data, Rotation
    """
    out = []
    ranks = []
    dropped = []
    bases = []
    for v, blocks in enumerate(data):
        one = likelihoods is None or likelihoods[v].one_variance
        complete = complete_blocks(blocks)
        whole = one and len(blocks) == len(complete) == 1
        basis = _basis(complete[0], share, seed, limits) if whole else None
        out.append(_turned(blocks, basis))
        ranks.append(sum(block.Y.shape[1] for block in out[-1]))
        dropped.append(0.0 if basis is None else _dropped(out[-1]))
        bases.append(basis)
    return tuple(out), Rotation(tuple(ranks), tuple(dropped), tuple(bases))


def _turned(blocks: tuple[Block, ...], basis: Tensor | None) -> tuple[Block, ...]:
    if basis is None:
        return blocks
    return tuple(replace(block, Y=_times(block.Y, basis)) for block in complete_blocks(blocks))


def _times(Y: Matrix, basis: Tensor) -> Matrix:
    """Return Y times a basis: of rows that are not in memory when they are read."""
    if isinstance(Y, StoredMatrix):
        return Y.rotated(basis)
    parts = [Y[rows] @ basis for rows in chunks(Y.shape[0], _CHUNK)]
    # of several processes one may have no row of a view
    return torch.cat([basis.new_empty(0, basis.shape[1]), *parts])


def _dropped(rotated: tuple[Block, ...]) -> float:
    """Return the share of a view's squares that its rotated block lacks."""
    (block,) = complete_blocks(rotated)
    kept = CompleteBlock.of(block.Y).square
    return max(0.0, 1.0 - kept / block.square)


def _basis(block: CompleteBlock, share: float, seed: int, limits: Limits) -> Tensor | None:
    """Return the leading right singular vectors, None if rotation gains nothing."""
    if block.square == 0.0:
        return None  # constant columns have no direction
    beyond = min(block.Y.shape) > limits.exact
    if not beyond:
        squares, basis = _spectrum(block.Y)
    elif not isinstance(block.Y, Tensor):
        # its products are cut from sparse rows: what rotation would save is small
        return None
    else:
        squares, basis = _leading(block.Y, limits.directions, seed)
    # the share lost with 1, 2, ... columns
    left = 1.0 - squares.cumsum(0) / block.square
    # what lies below the rounding of the data, or of the spectrum, is not signal
    rounding = max(10.0 * torch.finfo(block.Y.dtype).eps, _ROUNDING)
    allowed = max(share if block.n_columns > limits.narrow else 0.0, rounding)
    enough = (left <= allowed).nonzero()
    if enough.numel() == 0 and beyond:
        # a flat spectrum: the leading directions lose more than is allowed
        return None
    # all directions of an exact spectrum lose nothing but rounding
    rank = int(enough[0, 0]) + 1 if enough.numel() else squares.shape[0]
    if rank > limits.worthwhile * block.n_columns:
        return None
    return basis[:, :rank].to(block.Y.dtype)


def _leading(Y: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the leading squared singular values and right singular vectors (m, r), estimated.

    The values are those of a projection (Halko, Martinsson and Tropp, 2011): never too large.
    """
    _, values, right = randomized_svd(
        Y.cpu().numpy(), count, n_iter=2, random_state=seed % 2**32
    )
    vectors = torch.from_numpy(right.T.copy()).to(Y.device)
    return torch.from_numpy(values).double().square(), vectors


def _spectrum(Y: Matrix) -> tuple[Tensor, Tensor]:
    """Return squared singular values, descending, and right singular vectors (m, r) of Y (n, m),
    float64.
    """
    n, m = Y.shape
    if m <= n:
        gram = torch.zeros(m, m, dtype=torch.float64, device=Y.device)
        for rows in chunks(n, _CHUNK):
            part = Y[rows].double()
            gram += part.T @ part
        squares, vectors = torch.linalg.eigh(gram)
        return squares.flip(0).clamp(min=0.0), vectors.flip(1)
    cuts = [torch.arange(part.start, part.stop, device=Y.device) for part in chunks(m, _CHUNK)]
    gram = torch.zeros(n, n, dtype=torch.float64, device=Y.device)
    for columns in cuts:
        part = Y.index_select(1, columns).double()
        gram += part @ part.T
    squares, left = torch.linalg.eigh(gram)
    squares = squares.flip(0).clamp(min=0.0)
    left = left.flip(1)
    kept = squares > _ROUNDING * squares[0]
    right = torch.cat(
        [Y.index_select(1, columns).double().T @ left[:, kept] for columns in cuts]
    )
    return squares[kept], right / squares[kept].sqrt()


def narrowed(data: Data, n_columns: int) -> Data:
    """Return complete dense views on at most so many columns, their leading ones; others stay."""
    return tuple(_leading_columns(blocks, n_columns) for blocks in data)


def _leading_columns(blocks: tuple[Block, ...], n_columns: int) -> tuple[Block, ...]:
    complete = complete_blocks(blocks)
    if not len(blocks) == len(complete) == 1:
        return blocks
    Y = complete[0].Y
    if isinstance(Y, SparseMatrix) or Y.shape[1] <= n_columns:
        return blocks
    _, vectors = _spectrum(Y)
    return _turned(blocks, vectors[:, :n_columns].to(Y.dtype))
