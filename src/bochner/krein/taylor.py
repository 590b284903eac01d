"""The published inference of Liu et al. (2020) (section IV-B), kept to reproduce it; not the
default, and docs/math.md says why.

The cosine is expanded to second order at w = 0 and each frequency is treated as if it were alone,
so S = sum_k q(z = k) E[Lambda_k] + (1 / (2 sigma^2)) sum_{i != j} (1 - K_ij) delta delta^T and q(w)
= N(S^-1 sum_k q(z = k) E[Lambda_k] E[mu_k], S^-1): where the kernel is below 1 the frequency is
pulled to 0, though the squared error falls when it moves away.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bochner.krein.frequency_mixture import FrequencyMixture, Moments
from bochner.krein.signed_frequencies import GaussianFrequencies
from bochner.krein.sketch import Sketch, decompose

# of ||q(z) - q(z) of the sweep before||_F, the paper's stopping rule
_TOLERANCE = 1e-5
# sigma of the paper's likelihood, which it does not print
_NOISE = 0.1


def fit_taylor(
    sketch: Sketch,
    n_frequencies: int,
    n_mixtures: int,
    max_iter: int,
    source: torch.Generator,
) -> tuple[GaussianFrequencies, int]:
    """Fit both parts of the shifted decomposition by the published updates.

    Parameters
    ----------
    sketch : Sketch
    n_frequencies : int
        H of both parts together: halves, or all of it where there is no negative part.
    n_mixtures : int
        T.
    max_iter : int
        Sweeps of each part; the paper takes 50.
    source : torch.Generator

    Returns
    -------
    GaussianFrequencies
    int
        Sweeps made, the most of the parts.
    """
    split = decompose(sketch.target)
    parts = [(split.positive, 1.0)]
    if split.negative is not None and n_frequencies > 1:
        parts.append((split.negative, -1.0))
    counts = (
        [n_frequencies - n_frequencies // 2, n_frequencies // 2]
        if len(parts) > 1
        else [n_frequencies]
    )
    fits = []
    sweeps = 0
    for (matrix, sign), count in zip(parts, counts, strict=True):
        amplitude = float(torch.diagonal(matrix).mean().clamp(min=1e-300))
        moments, made = _part(sketch, matrix / amplitude, count, n_mixtures, max_iter, source)
        sweeps = max(sweeps, made)
        full = torch.full(
            (count,), amplitude / count, dtype=torch.float64, device=matrix.device
        )
        fits.append(
            (
                full,
                torch.full_like(full, sign),
                moments.mean,
                torch.linalg.cholesky(moments.variance),
            )
        )
    weight, sign_, mean, factor = (torch.cat(values) for values in zip(*fits, strict=True))
    return GaussianFrequencies(weight, sign_, mean, factor), sweeps


def scatter_matrix(x: Tensor, target: Tensor) -> Tensor:
    """Return sum_{i != j} (1 - K_ij) delta delta^T, (n, d), (n, n) -> (d, d), from sums over
    rows.
    """
    weight = 1.0 - target
    cross = x.T @ weight @ x
    return 2.0 * (x.T * weight.sum(1)) @ x - cross - cross.T


def _part(
    sketch: Sketch,
    target: Tensor,
    count: int,
    n_mixtures: int,
    max_iter: int,
    source: torch.Generator,
) -> tuple[Moments, int]:
    """Return q(w) and the sweeps of one part, whose matrix has mean diagonal 1."""
    x = sketch.x / sketch.unit
    unit = sketch.unit
    curvature = scatter_matrix(x, target) / (2.0 * _NOISE**2)
    mean = torch.randn(
        count, x.shape[1], generator=source, dtype=torch.float64, device=source.device
    ).to(x.device)
    moments = Moments(
        mean, torch.eye(x.shape[1], dtype=torch.float64, device=x.device).repeat(count, 1, 1)
    )
    mixture = FrequencyMixture.start(moments, n_mixtures, 1.0, source)
    made = 0
    for made in range(1, max_iter + 1):  # noqa: B007 - returned
        mixture = mixture.update_sticks().update_centres(moments).update_scales(moments)
        before = mixture.responsibilities
        mixture = mixture.update_assignments(moments)
        precision, towards = mixture.natural_parameters()
        covariance = _inverse(precision + curvature)
        moments = Moments(torch.einsum("hij,hj->hi", covariance, towards), covariance)
        if float((mixture.responsibilities - before).norm()) <= _TOLERANCE:
            break
    return Moments(moments.mean / unit, moments.variance / unit**2), made


def _inverse(precision: Tensor) -> Tensor:
    """Invert; where K exceeds 1 the published precision can be indefinite, then its negative
    directions are flat.
    """
    values, vectors = torch.linalg.eigh(0.5 * (precision + precision.mT))
    values = values.clamp(min=1e-3)
    inverse: Tensor = (vectors / values[..., None, :]) @ vectors.mT
    return inverse
