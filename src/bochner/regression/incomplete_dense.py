"""log p(Y | X, W) of a Gaussian view with a few scattered holes in its N x N form: one inverse
serves all columns.

With C = Phi^T Phi + sigma^2 I over all rows, P = C^-1, O the rows that observe a column and H the
others, the column's density N(y_O; 0, C_OO) follows from P alone (the inverse of a block matrix):

log det C_OO = log det C + log det P_HH,    C_OO^-1 = P_OO - P_OH P_HH^-1 P_HO.

The second, written with all rows of P, is 0 in the rows and columns of H, so that values need no
selection: y is 0 there. A column costs h^3 + h N^2 operations for h holes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.linalg import Cholesky, cholesky, plus_diagonal
from bochner.regression.noise import between_rows
from bochner.regression.observations import IncompleteBlock
from bochner.regression.separate_columns import missing_rows

# Seconds of a product of conjugate gradients and of a shared K x K factor, in those of a product
# here.
_OF_GRADIENTS = 4.0
_OF_FACTORS = 2.0
# Numbers that the rows of P at the holes of some columns take at once.
_AT_ONCE = 2**22


def fits(block: IncompleteBlock, n_features: int) -> bool:
    """Tell whether this form is the cheaper one: fewer rows than features, and few holes.

    It is exact, where two columns in thousands estimate the determinants of the other one.
    """
    n, m = block.observed.shape
    holes = n * m - block.n_entries
    others = _OF_GRADIENTS * n_features * n * m + _OF_FACTORS * n_features**3
    return n <= n_features and holes * n**2 <= others


def masked_dense_evidence(
    features: Tensor,
    block: IncompleteBlock,
    noise_variance: Tensor,
    most: int = _AT_ONCE,
) -> tuple[Tensor, Tensor, Tensor]:
    """Evaluate the sum over columns of log N(y_O; 0, C_OO), exactly.

    Parameters
    ----------
    features : Tensor of shape (K, n)
        Of all rows of the block.
    block : IncompleteBlock
    noise_variance : Tensor, scalar
    most : int
        Numbers of columns with holes that are held at a time.

    Returns
    -------
    value : Tensor, scalar float64
        In nats.
    d_features : Tensor of shape (K, n), in the features' precision
    d_noise : Tensor, scalar float64
    """
    m = block.observed.shape[1]
    Y = block.Y.double()
    gram = between_rows(features, noise_variance)
    factor = cholesky(plus_diagonal(gram, float(noise_variance)))
    inverse = factor.inverse()
    solved = inverse @ Y
    logdet = m * factor.logdet()
    # twice the gradient in Phi^T Phi
    d_gram = -float(m) * inverse
    for holes in _holes(block, most):
        of_holes = solved[:, holes.columns]
        # P_H: by column, (b, h, n)
        at_holes = inverse.index_select(0, holes.rows.flatten()).view(*holes.rows.shape, -1)
        at_holes *= holes.real[..., None]
        within = at_holes.gather(2, holes.rows[:, None, :].expand(-1, holes.rows.shape[1], -1))
        within = within * holes.real[:, None, :] + torch.diag_embed(1.0 - holes.real)
        inner: Cholesky = cholesky(within)
        logdet = logdet + inner.logdet().sum()
        # from the right: twice as fast, and the result lies as `flat` needs it
        upper = inner.factor.mT
        whitened = torch.linalg.solve_triangular(upper, at_holes.mT, upper=True, left=False).mT
        # (b, h)
        there = of_holes.T.gather(1, holes.rows) * holes.real
        half = torch.linalg.solve_triangular(inner.factor, there[..., None], upper=False)
        solved[:, holes.columns] = of_holes - (whitened.transpose(1, 2) @ half)[..., 0].T
        flat = whitened.flatten(0, 1)
        d_gram.addmm_(flat.T, flat)
    value = -0.5 * (block.n_entries * math.log(2.0 * math.pi) + logdet + (Y * solved).sum())
    d_gram.addmm_(solved, solved.T)
    return value, features @ d_gram.to(features.dtype), 0.5 * d_gram.trace()


@dataclass(frozen=True)
class _Holes:
    """The holes of some columns, padded to one length.

    Attributes
    ----------
    columns : Tensor of shape (b,)
    rows : Tensor of shape (b, h)
    real : Tensor of shape (b, h), float64
        1 for a hole, 0 for padding.
    """

    columns: Tensor
    rows: Tensor
    real: Tensor


def _holes(block: IncompleteBlock, most: int) -> Iterator[_Holes]:
    """Yield columns with holes, those of about as many together."""
    counts = (block.observed == 0).sum(0)
    order = counts.argsort()
    order = order[counts[order] > 0]
    if not len(order):
        return
    width = max(1, most // (block.observed.shape[0] * int(counts.max())))
    for columns in torch.split(order, width):
        rows, real = missing_rows(block.observed[:, columns].T)
        yield _Holes(columns, rows, real.double())
