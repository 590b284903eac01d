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
        # each wave is its own second derivative times -w w^T
        return -torch.stack(
            [torch.einsum("np,pd,pe->nde", on_cos * c + on_sin * s, w, w) for w, c, s in self._parts]
        ).sum(0)


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
    parts = []
    for w in (frequencies.first, frequencies.second):
        if w is not None:
            phase = x @ w.T
            parts.append((w, frequencies.amplitude * phase.cos(), frequencies.amplitude * phase.sin()))
    value = torch.stack([torch.cat([c, s], dim=1) for _, c, s in parts]).sum(0)
    jacobian = torch.stack([torch.cat([-s[:, None, :] * w.T, c[:, None, :] * w.T], dim=2) for w, c, s in parts]).sum(0)
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
