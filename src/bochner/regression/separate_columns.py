"""log p(Y | X, W) and its gradient for columns of one view that each lack a few rows of their own.

One after the other, every column has features, a Gram matrix and a gradient to carry back. Here the
features are computed once, a column's matrix is that of all rows less the rows it lacks, the
factors of several columns are taken in one call, and one gradient is carried back. With h rows
missing, a column of the K x K form costs 2 h K^2 operations beside its factor, and one of the N x N
form no product at all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.errors import NumericalError
from bochner.linalg import Cholesky, cholesky, symmetric_product
from bochner.regression.noise import between_rows, products_in
from bochner.regression.observations import CompleteBlock

# Numbers of the matrices that are factored in one call, and of the features of rows that their
# columns lack: 16 MB in double precision.
_AT_ONCE = 2**21


@dataclass(frozen=True)
class SeparateColumns:
    """Columns with the rows that each of them observes.

    Attributes
    ----------
    columns : Tensor of shape (b,), int64
        Positions within the view.
    observed : Tensor of shape (b, N), float64
        1 where a column is observed, 0 where not.
    Y : Tensor of shape (b, N)
        0 where a column is not observed.
    """

    columns: Tensor
    observed: Tensor
    Y: Tensor

    @classmethod
    def of(cls, blocks: Sequence[CompleteBlock], n_rows: int) -> SeparateColumns:
        """Stack blocks of one column each, of a data set of so many rows."""
        like = blocks[0].Y
        assert isinstance(like, Tensor)
        every = torch.arange(n_rows, device=like.device)
        places = [block.rows.take(every) for block in blocks]
        counts = torch.tensor([len(place) for place in places], device=like.device)
        numbers = torch.arange(len(blocks), device=like.device)
        owner = torch.repeat_interleave(numbers, counts)
        at = (owner, torch.cat(places))
        observed = every.new_zeros(len(blocks), n_rows, dtype=torch.float64)
        observed[at] = 1.0
        Y = like.new_zeros(len(blocks), n_rows)
        Y[at] = torch.cat([block.values().reshape(-1) for block in blocks])
        columns = torch.cat([block.columns for block in blocks])
        return cls(columns, observed, Y)

    def part(self, some: Tensor) -> SeparateColumns:
        """Return some of the columns, (l,), int64."""
        columns = self.columns[some.to(self.columns.device)]
        return SeparateColumns(columns, self.observed[some], self.Y[some])


@dataclass(frozen=True)
class SeparateEvidence:
    """A value and its gradients.

    Attributes
    ----------
    value : Tensor, scalar float64
        The sum over columns of log p(y_m | X, W), in nats.
    d_features : Tensor of shape (K, N)
        In the features' precision.
    d_noise : Tensor of shape (b,), float64
        In every column's noise variance.
    """

    value: Tensor
    d_features: Tensor
    d_noise: Tensor


def separate_columns_evidence(
    features: Tensor,
    data: SeparateColumns,
    noise_variance: Tensor,
    diagonal: float,
    wanted: bool,
) -> SeparateEvidence:
    """Evaluate the sum over columns of log N(y_O; 0, Phi_O^T Phi_O + sigma_m^2 I).

    Parameters
    ----------
    features : Tensor of shape (K, N)
        Of all rows.
    data : SeparateColumns
    noise_variance : Tensor of shape (b,), float64
        sigma_m^2.
    diagonal : float
        How large the diagonal of Phi Phi^T is at the most.
    wanted : bool
        Whether gradients are: they are zeros otherwise.
    """
    s2 = noise_variance.detach()
    if not bool(((s2 > 0.0) & s2.square().isfinite()).all()):
        raise NumericalError(
            f"The noise variances were {s2.tolist()}. Check the scale of the data."
        )
    k, n = features.shape
    dense = k > n
    form = _Dense(features, s2, wanted) if dense else _Factored(features, s2, diagonal, wanted)
    value = s2.new_zeros(())
    d_noise = torch.zeros_like(s2)
    missing = n - data.observed.sum(1)
    for alike in form.groups(missing):
        longest = float(missing[alike].max())
        most = max(1, _AT_ONCE // form.numbers(longest))
        for some in torch.split(alike, most):
            of_some, d_noise[some] = form.add(data.part(some), s2[some])
            value += of_some
    return SeparateEvidence(value, form.d_features(), d_noise)


class _Form(ABC):
    """Where the gradients in the features add up.

    Parameters
    ----------
    features : Tensor of shape (K, N)
    wanted : bool
        Whether there are to be gradients.
    """

    def __init__(self, features: Tensor, wanted: bool) -> None:
        self.features = features
        self.wanted = wanted

    @abstractmethod
    def groups(self, missing: Tensor) -> list[Tensor]:
        """Return positions of columns to be taken together, by how many rows they lack, (b,)."""

    @abstractmethod
    def numbers(self, missing: float) -> int:
        """Return how many a column takes that lacks so many rows."""

    @abstractmethod
    def add(self, data: SeparateColumns, s2: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value of some columns and their gradients in sigma^2, and add the others."""

    @abstractmethod
    def d_features(self) -> Tensor:
        """Return the gradient in the features, (K, N)."""


class _Dense(_Form):
    """C_m = Phi_O^T Phi_O + sigma_m^2 I, (N, N), with the identity where a column is missing."""

    def __init__(self, features: Tensor, s2: Tensor, wanted: bool) -> None:
        super().__init__(features, wanted)
        self.gram = between_rows(features, s2.min())
        self.twice_d_gram = torch.zeros_like(self.gram)

    def groups(self, missing: Tensor) -> list[Tensor]:
        """Return all: missing rows cost what others do."""
        return [torch.arange(len(missing), device=missing.device)]

    def numbers(self, missing: float) -> int:  # noqa: ARG002 - matrices are of all rows
        """Return those of its matrix."""
        return self.gram.numel()

    def add(self, data: SeparateColumns, s2: Tensor) -> tuple[Tensor, Tensor]:
        """Factor the matrices of some columns."""
        gram = self.gram
        observed = data.observed.to(gram.dtype)
        matrices = gram * observed[:, :, None] * observed[:, None, :]
        diagonal = torch.where(data.observed > 0.0, s2[:, None], 1.0)
        matrices.diagonal(dim1=-2, dim2=-1).add_(diagonal.to(gram.dtype))
        precision = gram.dtype if self.wanted else torch.float64
        factor = cholesky(matrices, precision=precision)
        Y = data.Y.to(factor.factor.dtype)
        solved = factor.solve(Y[..., None])[..., 0]
        quadratic = (Y * solved).sum(dtype=torch.float64)
        constant = data.observed.sum() * math.log(2.0 * math.pi)
        value = -0.5 * (constant + factor.logdet().sum() + quadratic)
        if not self.wanted:
            return value, torch.zeros_like(s2)
        inverse = factor.inverse()
        missing = 1.0 - data.observed
        traces = inverse.diagonal(dim1=-2, dim2=-1).sum(-1) - missing.sum(1)
        d_noise = 0.5 * (solved.double().square().sum(1) - traces)
        lost = missing.sum(0).to(gram.dtype)
        of_factors = torch.diag(lost) - inverse.sum(0)
        self.twice_d_gram += torch.addmm(of_factors, solved.T, solved)
        return value, d_noise

    def d_features(self) -> Tensor:
        """Multiply the features by the gradient in the matrix."""
        if not self.wanted:
            return torch.zeros_like(self.features)
        return self.features @ self.twice_d_gram.to(self.features.dtype)


class _Factored(_Form):
    """B_m = Phi_O Phi_O^T + sigma_m^2 I, (K, K): all rows less the missing ones."""

    def __init__(self, features: Tensor, s2: Tensor, diagonal: float, wanted: bool) -> None:
        super().__init__(features, wanted)
        self.precision = products_in(features.dtype, diagonal, s2.min())
        self.by_row = features.T.to(self.precision).contiguous()
        self.gram = symmetric_product(self.by_row.T, self.by_row.T)
        self.upstream = torch.zeros_like(self.by_row)

    def groups(self, missing: Tensor) -> list[Tensor]:
        """Return those that lack about as many rows: they are padded to one length."""
        size = (missing + 1.0).log2().floor()
        return [(size == one).nonzero()[:, 0] for one in sorted(set(size.tolist()))]

    def numbers(self, missing: float) -> int:
        """Return those of its matrix, and of the features of the missing rows."""
        k = self.by_row.shape[1]
        return k * (k + int(missing))

    def add(self, data: SeparateColumns, s2: Tensor) -> tuple[Tensor, Tensor]:
        """Factor the matrices of some columns."""
        by_row = self.by_row
        k = by_row.shape[1]
        rows, real = missing_rows(data.observed)
        # (b, h, K)
        lost = by_row[rows] * real[..., None].to(by_row.dtype)
        factor = self._factor(lost, s2)
        Y = data.Y.to(self.precision)
        cross = (Y @ by_row).to(factor.factor.dtype)
        mean = factor.solve(cross[..., None])[..., 0]
        counts = data.observed.sum(1)
        wide = mean.double()
        explained = (cross.double() * wide).sum(1)
        residual = data.Y.double().square().sum(1) - explained
        constant = counts * math.log(2.0 * math.pi)
        determinants = (counts - k) * s2.log() + factor.logdet()
        value = -0.5 * (constant + determinants + residual / s2).sum()
        if not self.wanted:
            return value, torch.zeros_like(s2)
        inverse = factor.inverse()
        traces = inverse.diagonal(dim1=-2, dim2=-1).sum(-1).double()
        d_noise = -0.5 * ((counts - k) / s2 + traces - residual / s2.square())
        d_noise -= 0.5 * wide.square().sum(1) / s2
        # twice the gradient in B_m: -B_m^-1 - m m^T / sigma^2
        by_noise = (wide / s2[:, None]).to(mean.dtype)
        d_gram = torch.baddbmm(inverse, by_noise[..., None], mean[:, None], beta=-1, alpha=-1)
        d_gram = d_gram.to(self.precision)
        self.upstream.addmm_(by_row, d_gram.sum(0))
        self.upstream.addmm_(Y.T, by_noise.to(self.precision))
        if rows.shape[1]:
            of_lost = (lost @ d_gram).flatten(0, 1)
            self.upstream.index_add_(0, rows.reshape(-1), of_lost, alpha=-1)
        return value, d_noise

    def _factor(self, lost: Tensor, s2: Tensor) -> Cholesky:
        def shifted(gram: Tensor, rows: Tensor) -> Tensor:
            out = torch.baddbmm(gram.expand(len(s2), *gram.shape), rows.mT, rows, alpha=-1)
            out.diagonal(dim1=-2, dim2=-1).add_(s2[:, None].to(out.dtype))
            return out

        def exact() -> Tensor:
            wide = self.by_row.double()
            return shifted(symmetric_product(wide.T, wide.T), lost.double())

        precision = self.precision if self.wanted else torch.float64
        return cholesky(shifted(self.gram, lost), exact, precision)

    def d_features(self) -> Tensor:
        """Return what was carried back to the rows."""
        return self.upstream.T.to(self.features.dtype)


def missing_rows(observed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows that every column lacks, padded to one length, and which are no padding.

    Parameters
    ----------
    observed : Tensor of shape (b, N)
        0 where a column is missing.

    Returns
    -------
    Tensor of shape (b, h), int64, and Tensor of shape (b, h), bool
    """
    column, row = (observed == 0.0).nonzero(as_tuple=True)
    counts = torch.bincount(column, minlength=len(observed))
    longest = int(counts.max()) if len(counts) else 0
    firsts = counts.cumsum(0) - counts
    within = torch.arange(len(column), device=row.device) - firsts[column]
    rows = row.new_zeros(len(observed), longest)
    rows[column, within] = row
    real = torch.arange(longest, device=row.device) < counts[:, None]
    return rows, real
