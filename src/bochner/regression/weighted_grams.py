"""Weighted Grams, one per column: the statistic under every bound whose entries differ in
precision.

G_m = sum_n w_nm phi_n phi_n^T for columns m: pieces of rows add, any subset of columns may be asked
for (a mini-batch of columns gives an unbiased estimate of sums over columns), and nothing of size
columns x rows x features is built. Augmented likelihoods need it with w = E omega, scattered
missing entries with w = observed / sigma^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.linalg import symmetric_product
from bochner.memory import Scratch, chunks

# Numbers in a temporary: on a processor what stays in the cache of a core, else what keeps the
# device busy.
_CACHED = 2**17
_BUSY = 2**21
_ROWS = 1024
# Trace of a Gram from which single precision leaves eigenvalues that are wrong by several
# hundredths.
_HEAVY = 3e5


class _Parts:
    """Rows and matrices that are worked on at once, and memory for the features of one part,
    scaled.
    """

    def __init__(self, features: Tensor, n_matrices: int) -> None:
        k, n = features.shape
        self.features = features
        self.n_matrices = n_matrices
        self.rows = min(n, _ROWS)
        budget = _CACHED if features.device.type == "cpu" else _BUSY
        self.some = max(1, budget // max(k * self.rows, 1))
        self.scratch = Scratch(features)

    def __iter__(self) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
        """Yield (rows, matrices, features (K, r), memory of shape (s, K, r))."""
        for part in chunks(self.features.shape[1], self.rows):
            phi = self.features[:, part]
            for some in chunks(self.n_matrices, self.some):
                shape = (some.stop - some.start, *phi.shape)
                yield (
                    part,
                    some,
                    phi,
                    self.scratch.take("part", shape[0] * shape[1], shape[2]).view(shape),
                )


def weighted_grams(features: Tensor, weights: Tensor) -> Tensor:
    """Return sum_n w_nm phi_n phi_n^T for every column.

    Parameters
    ----------
    features : Tensor of shape (K, n)
    weights : Tensor of shape (n, m)
        Nonnegative; a missing entry has weight 0.

    Returns
    -------
    Tensor of shape (m, K, K), float64
        Products in the features' precision over at most 1,024 rows, sums in float64; products as
        well where rounding would outweigh the identity that the Gram is going to be added to
        (counts in the thousands).
    """
    if not weights.shape[1]:
        return features.new_zeros(0, len(features), len(features), dtype=torch.float64)
    if float(weights.sum(0).amax() * features.square().sum(0).amax()) > _HEAVY:
        features = features.double()
        weights = weights.double()
    k, n = features.shape
    by_matrix = weights.T.contiguous()
    parts = _Parts(features, weights.shape[1])
    if 1 < len(by_matrix) <= parts.some and n == parts.rows:
        return (torch.mul(features, by_matrix[:, None]) @ features.T).double()
    out = features.new_zeros(weights.shape[1], k, k, dtype=torch.float64)
    for part, some, phi, memory in parts:
        scaled = torch.mul(phi, by_matrix[some, None, part], out=memory)
        if len(scaled) == 1:
            out[some.start] += symmetric_product(scaled[0], phi)
        else:
            out[some] += (scaled @ phi.T).double()
    return out


# Numbers S_m phi_n up to which they are held.
_HELD = 2**25


@dataclass(frozen=True)
class QuadraticForms:
    """phi_n^T S_m phi_n, and its gradient in the features.

    Attributes
    ----------
    features : Tensor of shape (K, n)
    matrices : Tensor of shape (m, K, K)
        Symmetric.
    values : Tensor of shape (n, m)
    products : Tensor of shape (m, K, n), or None where they are too many to be held
        S_m phi_n.
    """

    features: Tensor
    matrices: Tensor
    values: Tensor
    products: Tensor | None

    @classmethod
    def of(cls, features: Tensor, matrices: Tensor, most: int = _HELD) -> QuadraticForms:
        """Multiply, and hold what the gradient asks for, unless it is more than so many numbers."""
        m = matrices.shape[0]
        if m * features.numel() > most:
            return cls(features, matrices, quadratic_forms(features, matrices), None)
        products = features.new_empty(m, *features.shape)
        values = features.new_empty(m, features.shape[1])
        for part, some, phi, memory in _Parts(features, m):
            for number in range(some.start, some.stop):
                held = torch.mm(matrices[number], phi, out=products[number, :, part])
                form = torch.mul(held, phi, out=memory[number - some.start])
                torch.sum(form, dim=0, out=values[number, part])
        return cls(features, matrices, values.T.contiguous(), products)

    def gradient(self, weights: Tensor) -> Tensor:
        """Return sum_m w_nm S_m phi_n, half of the gradient of sum_nm w_nm phi_n^T S_m phi_n; (n,
        m) -> (K, n).
        """
        if self.products is None:
            return weighted_products(self.features, self.matrices, weights)
        by_matrix = weights.T.contiguous()
        out = self.products[0] * by_matrix[0]
        for product, weight in zip(self.products[1:], by_matrix[1:], strict=True):
            out.addcmul_(product, weight)
        return out


def quadratic_forms(features: Tensor, matrices: Tensor) -> Tensor:
    """Return phi_n^T S_m phi_n, (K, n) and (m, K, K) -> (n, m)."""
    out = features.new_empty(matrices.shape[0], features.shape[1])
    for part, some, phi, memory in _Parts(features, matrices.shape[0]):
        torch.sum(
            torch.matmul(matrices[some], phi, out=memory).mul_(phi), dim=1, out=out[some, part]
        )
    return out.T.contiguous()


def weighted_products(features: Tensor, matrices: Tensor, weights: Tensor) -> Tensor:
    """Return sum_m w_nm S_m phi_n, the gradient of sum_nm w_nm phi_n^T S_m phi_n / 2.

    Parameters
    ----------
    features : Tensor of shape (K, n)
    matrices : Tensor of shape (m, K, K)
        Symmetric.
    weights : Tensor of shape (n, m)

    Returns
    -------
    Tensor of shape (K, n)
    """
    by_matrix = weights.T.contiguous()
    out = torch.zeros_like(features)
    for part, some, phi, memory in _Parts(features, matrices.shape[0]):
        scaled = torch.mul(phi, by_matrix[some, None, part], out=memory)
        out[:, part].addmm_(matrices[some].transpose(0, 1).flatten(1), scaled.flatten(0, 1))
    return out
