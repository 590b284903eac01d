"""log p(Y | X, W) with the weights integrated out and its gradient, of several models or views at
once.

A step of one small model is mostly the time that its many small operations take to begin, so that
several in one batch cost little more than one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.features.fourier import evaluate, pull_back
from bochner.kernels.base import Frequencies
from bochner.linalg import Cholesky, cholesky, closed_form
from bochner.memory import chunks
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.noise import (
    ROUNDING,
    DenseEvidence,
    Evidence,
    SharedNoise,
    Statistics,
    explained,
    products_in,
)
from bochner.regression.observations import CompleteBlock


@dataclass(frozen=True)
class BatchedEvidence:
    """Values of S models and their gradients.

    Attributes
    ----------
    value : Tensor of shape (S,), float64
        log p(Y | X_s, W_s) in nats; -inf where rounding or infinities left no factor.
    d_features : Tensor of shape (S, K, n)
        In the features before they were multiplied by the amplitude; 0 where there is no factor.
    d_log_amplitude, d_noise : Tensor of shape (S,), float64
    """

    value: Tensor
    d_features: Tensor
    d_log_amplitude: Tensor
    d_noise: Tensor


def batched_evidence(
    features: Tensor,
    amplitude: Tensor,
    noise: Tensor,
    block: CompleteBlock,
    rounding: float = ROUNDING,
) -> BatchedEvidence:
    """Evaluate log p(Y | X_s, W_s) and its gradients.

    Parameters
    ----------
    features : Tensor of shape (S, K, n)
        Of the block's rows; K is meant to be small.
    amplitude : Tensor of shape (S,), float64
        Features count times this.
    noise : Tensor of shape (S,), float64
        sigma^2.
    block : CompleteBlock
    rounding : float
        The largest share of the noise variance that rounding of the products may have.

    Returns
    -------
    BatchedEvidence
    """
    k, n = features.shape[1:]
    m_cols = block.n_columns
    a = amplitude[:, None, None]
    gram, cross, factor, usable = _factored(features, amplitude, noise, block, rounding)
    inverse = torch.cholesky_inverse(factor)
    m = inverse @ cross
    residual = block.square - (cross * m).sum((1, 2))
    value = _batched_value(factor, residual, noise, block)
    usable &= value.isfinite()
    traces = inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
    d_noise = -0.5 * m_cols * ((n - k) / noise + traces)
    d_noise += 0.5 * residual / noise.square() - 0.5 * m.square().sum((1, 2)) / noise
    d_gram = -0.5 * m_cols * inverse - 0.5 * (m @ m.mT) / noise[:, None, None]
    d_cross = m / noise[:, None, None]
    d_log_amplitude = 2.0 * (d_gram * gram).sum((1, 2)) + (d_cross * cross).sum((1, 2))
    on = usable[:, None, None]
    d_features = _carried(
        torch.where(on, 2.0 * a.square() * d_gram, 0.0),
        torch.where(on, a * d_cross, 0.0),
        features,
        block,
    )
    return BatchedEvidence(
        torch.where(usable, value, -math.inf),
        d_features,
        torch.where(usable, d_log_amplitude, 0.0),
        torch.where(usable, d_noise, 0.0),
    )


# Features of all starts or views of a batch, numbers: beyond, they no longer stay in a core's
# cache, and one after the other is as fast.
MOST_NUMBERS = 500_000


def evidence_of_views(
    x: Tensor,
    frequencies: Frequencies,
    noise_variances: Tensor,
    blocks: Sequence[CompleteBlock],
) -> Tensor:
    """Return log p(Y_v | X, W_v) of V views of the same rows, as ``view_evidence`` does of one.

    Parameters
    ----------
    x : Tensor of shape (N, D)
    frequencies : Frequencies
        With a leading axis of V, without covariates.
    noise_variances : Tensor of shape (V,), float64
    blocks : sequence of V CompleteBlock
        Of all rows, which are few.

    Returns
    -------
    Tensor of shape (V,), float64
        In nats. Differentiable once.
    """
    f = frequencies.to(x.dtype)
    each = x.expand(len(blocks), *x.shape)

    def compute(wanted: bool) -> tuple[Tensor, Sequence[Tensor | None]]:
        trace = evaluate(each, f)
        noises = [SharedNoise(s2) for s2 in noise_variances.detach()]
        form = _DenseViews if trace.features.shape[1] > x.shape[0] else _FactoredViews
        result = form(trace.features, f, noises, blocks).gradients()
        if not wanted:
            return result.value, ()
        return result.value, (*pull_back(trace, f, result.d_features)[:4], result.d_noise)

    return closed_form(compute, each, f.first, f.second, f.amplitude, noise_variances)


@dataclass(frozen=True)
class _OfViews:
    """Values of V views and their gradients.

    Attributes
    ----------
    value : Tensor of shape (V,), float64
    d_features : Tensor of shape (V, K, n)
    d_noise : Tensor of shape (V,), float64
    """

    value: Tensor
    d_features: Tensor
    d_noise: Tensor

    @classmethod
    def of(
        cls, results: Sequence[Evidence] | Sequence[DenseEvidence], d_features: Tensor
    ) -> _OfViews:
        """Stack the values and the noise's gradients of the views."""
        value = torch.stack([one.value for one in results])
        return cls(value, d_features, torch.stack([one.d_noise for one in results]))


class _Views(ABC):
    """The matrices of several views, factored at once.

    Parameters
    ----------
    features : Tensor of shape (V, K, n)
    f : Frequencies
        They are of.
    noises : sequence of V SharedNoise
    blocks : sequence of V CompleteBlock
    """

    def __init__(
        self,
        features: Tensor,
        f: Frequencies,
        noises: Sequence[SharedNoise],
        blocks: Sequence[CompleteBlock],
    ) -> None:
        self.features = features
        self.f = f
        self.noises = noises
        self.blocks = blocks
        s2 = torch.stack([one.variance for one in noises])
        largest = float((self.largest() / s2).max())
        self.precision = products_in(features.dtype, largest, s2.new_ones(()))
        self.gram = self.products(self.precision)

        def shifted(gram: Tensor) -> Tensor:
            out = gram.clone()
            out.diagonal(dim1=-2, dim2=-1).add_(s2[:, None])
            return out

        def exact() -> Tensor:
            return shifted(self.products(torch.float64))

        every = cholesky(shifted(self.gram), exact, self.precision)
        self.inverses = every.inverse()
        self.factors = [Cholesky(one, every.jitter) for one in every.factor]

    @abstractmethod
    def largest(self) -> Tensor:
        """Return how large the diagonal of each matrix is at the most, (V,)."""

    @abstractmethod
    def products(self, precision: torch.dtype) -> Tensor:
        """Return the products of the features with themselves, formed in some precision."""

    @abstractmethod
    def gradients(self) -> _OfViews:
        """Return the values and their gradients."""


class _FactoredViews(_Views):
    """Phi Phi^T + sigma^2 I, (K, K)."""

    def largest(self) -> Tensor:
        """Sum over the rows."""
        squares = self.f.pair_squares.amax(-1)
        return self.features.shape[-1] * squares

    def products(self, precision: torch.dtype) -> Tensor:
        """Return Phi Phi^T, (V, K, K)."""
        features = self.features.to(precision)
        return features @ features.mT

    def gradients(self) -> _OfViews:
        """Carry the gradients of the statistics back."""
        parts = zip(self.noises, self._statistics(), self.factors, self.inverses, strict=True)
        results = [noise.evidence_of_factor(*given) for noise, *given in parts]
        dtype = self.features.dtype
        d_gram = torch.stack([one.d_gram for one in results]).to(dtype)
        d_features = (2.0 * d_gram) @ self.features
        for out, one, block in zip(d_features, results, self.blocks, strict=True):
            out.addmm_(one.d_cross.to(dtype), block.values().to(dtype).T)
        return _OfViews.of(results, d_features)

    def _statistics(self) -> Iterator[Statistics]:
        of_features = self.features.to(self.precision)
        for features, gram, block in zip(of_features, self.gram, self.blocks, strict=True):
            cross = (features @ block.values().to(self.precision)).double()
            counts = (block.square, block.n_rows, block.n_columns)
            yield Statistics(gram.double(), cross, *counts)


class _DenseViews(_Views):
    """Phi^T Phi + sigma^2 I, (n, n): smaller where features are more than rows."""

    def largest(self) -> Tensor:
        """Sum over the features."""
        return self.f.pair_squares.sum(-1)

    def products(self, precision: torch.dtype) -> Tensor:
        """Return Phi^T Phi, (V, n, n)."""
        features = self.features.to(precision)
        return features.mT @ features

    def gradients(self) -> _OfViews:
        """Multiply the features by the gradient in the matrices."""
        parts = zip(self.noises, self.blocks, self.factors, self.inverses, strict=True)
        results = [noise.dense_evidence_of_factor(*given) for noise, *given in parts]
        twice_d_gram = torch.stack([one.twice_d_gram for one in results])
        return _OfViews.of(results, self.features @ twice_d_gram.to(self.features.dtype))


def batched_evidence_value(
    features: Tensor,
    amplitude: Tensor,
    noise: Tensor,
    block: CompleteBlock,
    rounding: float = ROUNDING,
) -> Tensor:
    """Return the values of ``batched_evidence`` alone, (S,), float64."""
    _, cross, factor, usable = _factored(features, amplitude, noise, block, rounding)
    residual = block.square - explained(factor, cross)
    value = _batched_value(factor, residual, noise, block)
    return torch.where(usable & value.isfinite(), value, -math.inf)


def _factored(
    features: Tensor,
    amplitude: Tensor,
    noise: Tensor,
    block: CompleteBlock,
    rounding: float = ROUNDING,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the Gram matrices, the products with Y, the factors of Gram plus noise, and whether
    there are any, in float64.
    """
    a = amplitude[:, None, None]
    squares = torch.linalg.vector_norm(features, dim=-1).amax(-1).double().square()
    largest = float((amplitude.square() * squares / noise).max())
    exact = products_in(features.dtype, largest, noise.new_ones(()), rounding)
    gram, cross = _products(features.to(exact), block)
    gram = gram * a.square()
    cross = cross * a
    shifted = gram.clone()
    shifted.diagonal(dim1=-2, dim2=-1).add_(noise[:, None])
    factor, info = torch.linalg.cholesky_ex(shifted)
    return gram, cross, factor, info == 0


def _batched_value(
    factor: Tensor, residual: Tensor, noise: Tensor, block: CompleteBlock
) -> Tensor:
    """Return log p(Y | X_s, W_s) where the columns leave so much unexplained, (S,)."""
    n = block.n_rows
    m_cols = block.n_columns
    k = factor.shape[-1]
    logdet = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    determinant = (n - k) * noise.log() + logdet
    return -0.5 * (
        n * m_cols * math.log(2.0 * math.pi) + m_cols * determinant + residual / noise
    )


def _products(features: Tensor, block: CompleteBlock) -> tuple[Tensor, Tensor]:
    """Return the Gram matrices and the products with Y, (S, K, K) and (S, K, m), in float64."""
    return (features @ features.mT).double(), _cross(features, block).double()


def _cross(features: Tensor, block: CompleteBlock) -> Tensor:
    """Return features times Y, (S, K, m); of a sparse Y only some rows are ever dense."""
    s, k, n = features.shape
    total = features.new_zeros(s * k, block.Y.shape[1])
    for cut in chunks(n, CHUNK_ROWS):
        total.addmm_(features[:, :, cut].reshape(s * k, -1), block.Y[cut].to(features.dtype))
    return total.reshape(s, k, -1)


def _carried(
    d_gram: Tensor, d_cross: Tensor, features: Tensor, block: CompleteBlock
) -> Tensor:
    """Carry the gradients of the statistics back to the features, (S, K, n)."""
    s, k, n = features.shape
    small = d_cross.to(features.dtype).reshape(s * k, -1)
    if n <= CHUNK_ROWS:
        out = (small @ block.Y[slice(0, n)].T).view(s, k, n)
        return out.baddbmm_(d_gram.to(features.dtype), features)
    out = features.new_empty(s, k, n)
    for cut in chunks(n, CHUNK_ROWS):
        out[:, :, cut] = (small @ block.Y[cut].T).reshape(s, k, -1)
    return out.baddbmm_(d_gram.to(features.dtype), features)
