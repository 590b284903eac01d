"""First and second derivatives of the Fourier features in the latents, for placement of rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bochner.kernels.base import Frequencies


@dataclass(frozen=True)
class Jet:
    """Features of rows and what their derivatives are made of.

    Attributes
    ----------
    value : Tensor of shape (n, K)
    waves : tuple of (Tensor of shape (P, D), Tensor of shape (n, P), Tensor of shape (n, P))
        Spectral points, amplitude times cosine and times sine of their phases: the features are
        sums of these.
    """

    value: Tensor
    waves: tuple[tuple[Tensor, Tensor, Tensor], ...]

    @cached_property
    def stack(self) -> Tensor:
        """Features and their Jacobian in one array, (n, 1 + D, K)."""
        (n, k), dim = self.value.shape, self.waves[0][0].shape[1]
        out = self.value.new_empty(n, 1 + dim, k)
        out[:, 0] = self.value
        for index, (w, c, s) in enumerate(self.waves):
            for d in range(dim):
                on_cos, on_sin = out[:, 1 + d, : k // 2], out[:, 1 + d, k // 2 :]
                if index == 0:
                    torch.mul(s, -w[:, d], out=on_cos)
                    torch.mul(c, w[:, d], out=on_sin)
                else:
                    on_cos.addcmul_(s, w[:, d], value=-1.0)
                    on_sin.addcmul_(c, w[:, d])
        return out

    @property
    def jacobian(self) -> Tensor:
        """d phi_k / d x_d, (n, D, K)."""
        return self.stack[:, 1:]

    def slope(self, weights: Tensor) -> Tensor:
        """Return sum_k weights_k d phi_k / dx, (n, K) -> (n, D), without the Jacobian."""
        on_cos, on_sin = weights.chunk(2, dim=1)
        parts = [(on_sin * c).addcmul_(on_cos, s, value=-1.0) @ w for w, c, s in self.waves]
        return functools.reduce(torch.add, parts)

    def curvature(self, weights: Tensor) -> Tensor:
        """Return sum_k weights_k d^2 phi_k / dx dx^T, (n, K) -> (n, D, D)."""
        on_cos, on_sin = weights.chunk(2, dim=1)
        # each wave is its own second derivative times -w w^T
        parts = [
            (on_cos * c).addcmul_(on_sin, s) @ (w[:, :, None] * w[:, None, :]).flatten(1)
            for w, c, s in self.waves
        ]
        dim = self.waves[0][0].shape[1]
        return functools.reduce(torch.add, parts).neg_().reshape(-1, dim, dim)


def jet(x: Tensor, frequencies: Frequencies) -> Jet:
    """Evaluate features and what their derivatives are made of.

    Parameters
    ----------
    x : Tensor of shape (n, D)
    frequencies : Frequencies
        In x's precision.

    Returns
    -------
    Jet
    """
    waves = []
    for w in (frequencies.first, frequencies.second):
        if w is not None:
            phase = x @ w.T
            waves.append(
                (
                    w,
                    phase.cos().mul_(frequencies.amplitude),
                    phase.sin_().mul_(frequencies.amplitude),
                )
            )
    value = torch.cat(
        [functools.reduce(torch.add, [wave[part] for wave in waves]) for part in (1, 2)], dim=1
    )
    return Jet(value, tuple(waves))


def expected_features(mean: Tensor, covariance: Tensor, frequencies: Frequencies) -> Tensor:
    """Return E phi(x) for x ~ N(mean, covariance), exactly: each wave shrinks by exp(-w^T cov w /
    2).

    Parameters
    ----------
    mean : Tensor of shape (n, D)
    covariance : Tensor of shape (n, D, D)
    frequencies : Frequencies

    Returns
    -------
    Tensor of shape (n, K)
    """
    total = mean.new_zeros(mean.shape[0], frequencies.n_features)
    for w in (frequencies.first, frequencies.second):
        if w is not None:
            phase = mean @ w.T
            envelope = (
                frequencies.amplitude
                * (-0.5 * torch.einsum("nde,pd,pe->np", covariance, w, w)).exp()
            )
            total = total + torch.cat([envelope * phase.cos(), envelope * phase.sin()], dim=1)
    return total
