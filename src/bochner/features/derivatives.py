"""First and second derivatives of the Fourier features in the latents, for placement of rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.kernels.base import Frequencies


@dataclass(frozen=True)
class Jet:
    """Features of rows with their derivatives.

    Attributes
    ----------
    value : Tensor of shape (n, K)
    jacobian : Tensor of shape (n, D, K)
        d phi_k / d x_d.
    """

    value: Tensor
    jacobian: Tensor
    _parts: tuple[tuple[Tensor, Tensor, Tensor], ...]

    def curvature(self, weights: Tensor) -> Tensor:
        """Return sum_k weights_k d^2 phi_k / dx dx^T.

        Parameters
        ----------
        weights : Tensor of shape (n, K)

        Returns
        -------
        Tensor of shape (n, D, D)
        """
        on_cos, on_sin = weights.chunk(2, dim=1)
        total = weights.new_zeros(weights.shape[0], self.jacobian.shape[1] ** 2)
        for w, c, s in self._parts:
            # each wave is its own second derivative times -w w^T
            outer = (w[:, :, None] * w[:, None, :]).flatten(1)
            total -= torch.addcmul(on_cos * c, on_sin, s) @ outer
        dim = self.jacobian.shape[1]
        return total.reshape(-1, dim, dim)


def jet(x: Tensor, frequencies: Frequencies) -> Jet:
    """Evaluate features and their Jacobian.

    Parameters
    ----------
    x : Tensor of shape (n, D)
    frequencies : Frequencies
        In x's precision.

    Returns
    -------
    Jet
    """
    n, n_pairs = x.shape[0], frequencies.first.shape[0]
    value = x.new_zeros(n, 2 * n_pairs)
    jacobian = x.new_zeros(n, x.shape[1], 2 * n_pairs)
    parts = []
    for w in (frequencies.first, frequencies.second):
        if w is not None:
            phase = x @ w.T
            c, s = phase.cos().mul_(frequencies.amplitude), phase.sin().mul_(frequencies.amplitude)
            value[:, :n_pairs] += c
            value[:, n_pairs:] += s
            jacobian[:, :, :n_pairs].addcmul_(s[:, None, :], w.T, value=-1.0)
            jacobian[:, :, n_pairs:].addcmul_(c[:, None, :], w.T)
            parts.append((w, c, s))
    return Jet(value, jacobian, tuple(parts))


def expected_features(mean: Tensor, covariance: Tensor, frequencies: Frequencies) -> Tensor:
    """Return E phi(x) for x ~ N(mean, covariance), exactly: each wave shrinks by exp(-w^T cov w / 2).

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
            envelope = frequencies.amplitude * (-0.5 * torch.einsum("nde,pd,pe->np", covariance, w, w)).exp()
            total = total + torch.cat([envelope * phase.cos(), envelope * phase.sin()], dim=1)
    return total
