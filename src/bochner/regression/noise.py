"""log p(Y | X, W) with the weights integrated out and its gradient in closed form, for one noise
variance or one per column, from the additive statistics of a Gaussian view.

It knows the data only through G = Phi Phi^T, C = Phi Y, ||Y||^2 and the number of rows: sums over
rows, so chunks, processes and machines add them (docs/math.md, section 2.2).

One noise variance: with L L^T = B = G + sigma^2 I and m = B^-1 C (docs/math.md, section 2),

log p = -(NM/2) log 2 pi - (M(N-K)/2) log sigma^2 - M sum_k log L_kk - (||Y||^2 - <C, m>) / (2
sigma^2).

One per column: B_m = G + sigma_m^2 I for every column m. One eigendecomposition G = V diag(lambda)
V^T serves all columns, B_m^-1 = V diag(1 / (lambda + sigma_m^2)) V^T, so that a step costs one of
them instead of one factorisation per column.
"""

from __future__ import annotations

import functools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.errors import NumericalError
from bochner.linalg import Cholesky, cholesky, plus_diagonal, symmetric_product
from bochner.processes import Processes
from bochner.regression.observations import CompleteBlock

# Rounding of a Gram matrix's diagonal over the noise variance, beyond which products are in
# float64. On 178 rows of wine, whose noise is 1/65,000 of the signal's variance, 6e-4 cost the
# gradient 0.3 % and the bound 0.02 nats, 2e-3 in the N x N form 10 % and 7 nats.
ROUNDING = 3e-4
# Diagonal over noise variance from which rounding in float64 shows in the bound as well.
ILL_CONDITIONED = 1e6
_LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Statistics:
    """What one block says about the weights.

    Attributes
    ----------
    gram : Tensor of shape (K, K), float64
    cross : Tensor of shape (K, m), float64
    square : float, or Tensor of shape (m,)
        ||Y||^2, or that of every column where each has a noise variance of its own.
    n_rows, n_columns : int
    """

    gram: Tensor
    cross: Tensor
    square: float | Tensor
    n_rows: int
    n_columns: int

    def __add__(self, other: Statistics) -> Statistics:
        """Add the statistics of other rows of the same columns."""
        return Statistics(
            self.gram + other.gram,
            self.cross + other.cross,
            self.square + other.square,
            self.n_rows + other.n_rows,
            self.n_columns,
        )

    def over(self, processes: Processes) -> Statistics:
        """Add the statistics of other processes."""
        if processes.size == 1:
            return self
        square = torch.as_tensor(self.square, dtype=torch.float64, device=self.gram.device)
        count = self.gram.new_tensor(float(self.n_rows))
        gram, cross, square, count = processes.sums([self.gram, self.cross, square, count])
        return Statistics(
            gram,
            cross,
            square if isinstance(self.square, Tensor) else float(square),
            int(count),
            self.n_columns,
        )


def statistics(
    features: Tensor,
    Y: Tensor,
    square: float | Tensor | None = None,
    n_columns: int | None = None,
    products: torch.dtype | None = None,
) -> Statistics:
    """Return the statistics of some rows, kept in float64.

    Parameters
    ----------
    features : Tensor of shape (K, n)
    Y : Tensor of shape (n, m)
    square : float or Tensor of shape (m,), optional
        ||Y||^2 when it is known, or that of every column.
    n_columns : int, optional
        M, when Y was rotated to fewer columns.
    products : torch.dtype, optional
        Precision of the products; None: the features'.
    """
    features = features.to(products or features.dtype)
    Y = Y.to(products or Y.dtype)
    n_columns = Y.shape[1] if n_columns is None else n_columns
    square = float(Y.double().square().sum()) if square is None else square
    return Statistics(
        symmetric_product(features, features).double(),
        (features @ Y).double(),
        square,
        Y.shape[0],
        n_columns,
    )


def total(parts: Iterable[Statistics]) -> Statistics:
    """Add statistics up as they come: only two are ever held."""
    return functools.reduce(operator.add, parts)


# Forms the statistics anew in float64, where rounding made their Gram matrix indefinite.
Exact = Callable[[], Statistics]


@dataclass(frozen=True)
class Evidence:
    """A value and its gradients.

    Attributes
    ----------
    value : Tensor, scalar float64
        log p(Y | X, W) in nats.
    d_gram, d_cross : Tensor of shape (K, K) and (K, m)
        In the precision of the factor.
    d_noise : Tensor, scalar or of shape (m,), float64
        Gradient in sigma^2.
    """

    value: Tensor
    d_gram: Tensor
    d_cross: Tensor
    d_noise: Tensor


@dataclass(frozen=True)
class DenseEvidence:
    """A value and its gradients, of the N x N form.

    Attributes
    ----------
    value : Tensor, scalar float64
        log p(Y | X, W) in nats.
    twice_d_gram : Tensor of shape (n, n)
        Twice the gradient in Phi^T Phi: the features times this is the gradient in the features.
    d_noise : Tensor, scalar or of shape (m,), float64
        Gradient in sigma^2.
    """

    value: Tensor
    twice_d_gram: Tensor
    d_noise: Tensor


@dataclass(frozen=True)
class Noise(ABC):
    """The noise of Gaussian columns.

    Attributes
    ----------
    variance : Tensor, scalar, or of shape (m,) for one per column
        sigma^2 > 0.
    """

    variance: Tensor

    @staticmethod
    def of(variance: Tensor) -> Noise:
        """Wrap one noise variance, or one per column."""
        return NoisePerColumn(variance) if variance.ndim else SharedNoise(variance)

    @abstractmethod
    def of_block(self, block: CompleteBlock) -> Noise:
        """Return the noise of a block's columns, of that of a view's."""

    @abstractmethod
    def square(self, block: CompleteBlock) -> float | Tensor:
        """Return ||Y||^2 of a block, or that of every column, as the statistics need it."""

    @abstractmethod
    def of_columns(self, columns: Tensor) -> Tensor:
        """Return the variance of each of some columns of the view, (b,)."""

    @abstractmethod
    def add_to(self, total: Tensor, d_noise: Tensor, columns: Tensor) -> None:
        """Add the gradient in the noise of some columns, a scalar or (b,), to that of the view's,
        in place.
        """

    @abstractmethod
    def evidence(
        self,
        stats: Statistics,
        exact: Exact | None = None,
        precision: torch.dtype = torch.float64,
    ) -> Evidence:
        """Evaluate log p(Y | X, W) and its gradients from additive statistics.

        Parameters
        ----------
        stats : Statistics
        exact : callable, optional
            Forms the statistics anew in float64, where rounding made their Gram matrix indefinite.
        precision : torch.dtype
            In which the statistics were formed: factors need be no more precise than that.
        """

    @abstractmethod
    def value(self, stats: Statistics, exact: Exact | None = None) -> Tensor:
        """Return the value of ``evidence`` alone, scalar float64."""

    @abstractmethod
    def dense_evidence(self, features: Tensor, block: CompleteBlock) -> DenseEvidence:
        """Evaluate log p(Y | X, W) in its N x N form, cheaper when K > N.

        Parameters
        ----------
        features : Tensor of shape (K, n)
        block : CompleteBlock
        """

    @abstractmethod
    def dense_value(self, features: Tensor, block: CompleteBlock) -> Tensor:
        """Return the value of ``dense_evidence`` alone, scalar float64."""


@dataclass(frozen=True)
class SharedNoise(Noise):
    """One noise variance of all columns."""

    def of_block(self, block: CompleteBlock) -> SharedNoise:  # noqa: ARG002 - all have the same
        """Return this."""
        return self

    def square(self, block: CompleteBlock) -> float:
        """Return that of all columns."""
        return block.square

    def of_columns(self, columns: Tensor) -> Tensor:
        """Return it again and again."""
        return self.variance.expand(len(columns))

    def add_to(self, total: Tensor, d_noise: Tensor, columns: Tensor) -> None:  # noqa: ARG002
        """Add their sum."""
        total += d_noise.sum()

    def evidence(
        self,
        stats: Statistics,
        exact: Exact | None = None,
        precision: torch.dtype = torch.float64,
    ) -> Evidence:
        """Factor B once."""
        s2 = self._number()
        again = None if exact is None else lambda: plus_diagonal(exact().gram, s2)
        factor = cholesky(plus_diagonal(stats.gram, s2), again, precision)
        return self.evidence_of_factor(stats, factor, factor.inverse())

    def evidence_of_factor(
        self, stats: Statistics, factor: Cholesky, inverse: Tensor
    ) -> Evidence:
        """Return ``evidence`` from the factor of B and its inverse, (K, K)."""
        n = stats.n_rows
        m_cols = stats.n_columns
        k = stats.gram.shape[0]
        s2 = self._number()
        # products with an inverse lose what solves with its factor keep
        single = inverse.dtype != torch.float64
        ill = single or float(stats.gram.diagonal().max()) > ILL_CONDITIONED * s2
        m = factor.solve(stats.cross) if ill else inverse @ stats.cross
        residual = float(stats.square) - _dot(stats.cross, m)
        value = (
            -0.5 * n * m_cols * _LOG_2PI
            - 0.5 * m_cols * ((n - k) * math.log(s2) + float(factor.logdet()))
            - 0.5 * residual / s2
        )
        d_noise = (
            -0.5 * m_cols * ((n - k) / s2 + float(inverse.trace()))
            + 0.5 * residual / (s2 * s2)
            - 0.5 * _dot(m, m) / s2
        )
        d_cross = m / s2
        # -(M/2) B^-1 - m m^T / (2 sigma^2)
        d_gram = torch.addmm(inverse, d_cross, m.T, beta=-0.5 * m_cols, alpha=-0.5)
        number = stats.gram.new_tensor
        return Evidence(number(value), d_gram, d_cross, number(d_noise))

    def value(self, stats: Statistics, exact: Exact | None = None) -> Tensor:
        """Factor B, without its inverse: a third of the cost."""
        n = stats.n_rows
        m_cols = stats.n_columns
        k = stats.gram.shape[0]
        s2 = self._number()
        again = None if exact is None else lambda: plus_diagonal(exact().gram, s2)
        factor = cholesky(plus_diagonal(stats.gram, s2), again)
        residual = float(stats.square) - float(explained(factor.factor, stats.cross))
        logdet = float(factor.logdet())
        determinant = 0.5 * m_cols * ((n - k) * math.log(s2) + logdet)
        value = -0.5 * n * m_cols * _LOG_2PI - determinant - 0.5 * residual / s2
        return stats.gram.new_tensor(value)

    def dense_evidence(self, features: Tensor, block: CompleteBlock) -> DenseEvidence:
        """Factor Phi^T Phi + sigma^2 I."""
        gram = self._between_rows(features)
        # float64 only where the products needed it
        factor = cholesky(plus_diagonal(gram, self._number()), precision=gram.dtype)
        return self.dense_evidence_of_factor(block, factor, factor.inverse())

    def dense_evidence_of_factor(
        self, block: CompleteBlock, factor: Cholesky, inverse: Tensor
    ) -> DenseEvidence:
        """Return ``dense_evidence`` from the factor of Phi^T Phi + sigma^2 I and its inverse, (n,
        n).
        """
        n = block.Y.shape[0]
        m_cols = block.n_columns
        s2 = self._number()
        Y = block.values().to(inverse.dtype)
        solved = inverse @ Y
        dropped = _dropped(block)
        quadratic = _dot(Y, solved) + dropped / s2
        logdet = float(factor.logdet())
        value = -0.5 * (n * m_cols * _LOG_2PI + m_cols * logdet + quadratic)
        twice_d_gram = torch.addmm(inverse, solved, solved.T, beta=-float(m_cols))
        d_noise = 0.5 * float(twice_d_gram.trace()) + 0.5 * dropped / (s2 * s2)
        number = self.variance.new_tensor
        return DenseEvidence(number(value), twice_d_gram, number(d_noise))

    def dense_value(self, features: Tensor, block: CompleteBlock) -> Tensor:
        """Factor without the inverse."""
        s2 = self._number()
        n = block.Y.shape[0]
        m_cols = block.n_columns
        gram = self._between_rows(features)
        factor = cholesky(plus_diagonal(gram, s2))
        quadratic = float(explained(factor.factor, block.Y.double())) + _dropped(block) / s2
        logdet = float(factor.logdet())
        value = -0.5 * (n * m_cols * _LOG_2PI + m_cols * logdet + quadratic)
        return self.variance.new_tensor(value)

    def _between_rows(self, features: Tensor) -> Tensor:
        return between_rows(features, self.variance)

    def _number(self) -> float:
        """Return the variance as a number: formulas of single numbers are Python's, whose
        operations cost a tenth of torch's.
        """
        s2 = float(self.variance)
        if not 0.0 < s2 * s2 < math.inf:
            raise NumericalError(f"The noise variance was {s2}. Check the scale of the data.")
        return s2


@dataclass(frozen=True)
class NoisePerColumn(Noise):
    """A noise variance of every column."""

    def of_block(self, block: CompleteBlock) -> Noise:
        """Return those of the block's columns; a single one needs no eigendecomposition."""
        variance = self.of_columns(block.columns)
        return SharedNoise(variance[0]) if variance.numel() == 1 else NoisePerColumn(variance)

    def square(self, block: CompleteBlock) -> Tensor:
        """Return that of every column."""
        return block.squares

    def of_columns(self, columns: Tensor) -> Tensor:
        """Return theirs."""
        return self.variance[columns.to(self.variance.device)]

    def add_to(self, total: Tensor, d_noise: Tensor, columns: Tensor) -> None:
        """Add at the columns."""
        total[columns.to(total.device)] += d_noise

    def evidence(
        self,
        stats: Statistics,
        exact: Exact | None = None,  # noqa: ARG002
        precision: torch.dtype = torch.float64,  # noqa: ARG002
    ) -> Evidence:
        """Take the eigenvectors of G: negative eigenvalues are rounding, and set to 0."""
        noise = self._variances()
        n = stats.n_rows
        k = stats.gram.shape[0]
        values, vectors = spectrum(stats.gram)
        cross = vectors.T @ stats.cross
        inverse = 1.0 / (values[:, None] + noise)
        m = cross * inverse  # V^T B_m^-1 c_m
        residual = stats.square - (cross * m).sum(0)
        value = -0.5 * (
            n * noise.shape[0] * _LOG_2PI
            + (n - k) * noise.log().sum()
            - inverse.log().sum()
            + (residual / noise).sum()
        )
        by_residual = residual / noise.square()
        by_weights = m.square().sum(0) / noise
        d_noise = -0.5 * ((n - k) / noise + inverse.sum(0) - by_residual + by_weights)
        # -(1/2) sum_m [B_m^-1 + m_m m_m^T / sigma_m^2]
        inner = torch.addmm(torch.diag(inverse.sum(1)), m / noise, m.T)
        d_gram = -0.5 * (vectors @ inner @ vectors.T)
        return Evidence(value, d_gram, vectors @ (m / noise), d_noise)

    def value(self, stats: Statistics, exact: Exact | None = None) -> Tensor:
        """Take the eigenvectors of G: the gradients are cheap beside them."""
        return self.evidence(stats, exact).value

    def dense_evidence(self, features: Tensor, block: CompleteBlock) -> DenseEvidence:
        """Take the eigenvectors of Phi^T Phi."""
        noise = self._variances()
        values, vectors = spectrum(between_rows(features, self.variance))
        turned = vectors.T @ block.Y.double()
        inverse = 1.0 / (values[:, None] + noise)
        solved = turned * inverse
        quadratic = (turned * solved).sum()
        value = -0.5 * (turned.numel() * _LOG_2PI - inverse.log().sum() + quadratic)
        inner = torch.addmm(torch.diag(inverse.sum(1)), solved, solved.T, beta=-1.0)
        twice_d_gram = vectors @ inner @ vectors.T
        d_noise = 0.5 * (solved.square().sum(0) - inverse.sum(0))
        return DenseEvidence(value, twice_d_gram, d_noise)

    def dense_value(self, features: Tensor, block: CompleteBlock) -> Tensor:
        """Take the eigenvectors of Phi^T Phi."""
        return self.dense_evidence(features, block).value

    def _variances(self) -> Tensor:
        return self.variance.detach().double()


def spectrum(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues (K,), none below 0, and eigenvectors (K, K) of a Gram matrix, float64."""
    values, vectors = torch.linalg.eigh(gram.double())
    return values.clamp(
        min=0.0
        # products in single precision leave small negative ones
    ), vectors


def explained(factor: Tensor, cross: Tensor) -> Tensor:
    """Return <C, B^-1 C> from the factor of B, (..., K, K) and (..., K, m) -> (...)."""
    half: Tensor = torch.linalg.solve_triangular(factor, cross, upper=False)
    return half.square().sum((-2, -1))


def products_in(
    dtype: torch.dtype, diagonal: float, noise_variance: Tensor, limit: float = ROUNDING
) -> torch.dtype:
    """Return the precision that products for a Gram matrix ask for: the features', or float64 where
    the noise variance is not far above their rounding.

    Parameters
    ----------
    dtype : torch.dtype
        Of the features.
    diagonal : float
        How large the matrix's diagonal is.
    noise_variance : Tensor, scalar or of shape (m,)
    limit : float
        The largest share of the noise variance that rounding may have.
    """
    rounding = 0.5 * torch.finfo(dtype).eps * diagonal
    exact = rounding <= limit * float(noise_variance.detach().min())
    return dtype if exact else torch.float64


def between_rows(features: Tensor, noise_variance: Tensor) -> Tensor:
    """Return Phi^T Phi, (n, n), in the precision that the noise variance asks for."""
    variances = features.detach().square().sum(0)
    exact = features.to(products_in(features.dtype, float(variances.max()), noise_variance))
    return symmetric_product(exact.T, exact.T)


def _dot(a: Tensor, b: Tensor) -> float:
    """Return the sum of products of all elements, added up in float64."""
    return float(torch.dot(a.reshape(-1).double(), b.reshape(-1).double()))


def _dropped(block: CompleteBlock) -> float:
    """Return the squares that a rotation to fewer columns left out."""
    if block.Y.shape[1] == block.n_columns:
        return 0.0
    return max(0.0, block.square - float(block.Y.double().square().sum()))
