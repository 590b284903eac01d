"""What the Dirichlet process prior of a kernel says: its share of the bound, and the closed-form
updates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bochner.kernels.base import SpectralKernel
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.models.sticks import StickBreaking

# Spectral points that a component is expected to hold, at the least, to count as used.
_HELD = 0.5
# What every point gives to each component that was moved: little, but enough to grow from where
# they fit.
_GIVEN = 2e-4


def sticks_of(kernel: DirichletProcessMixture) -> StickBreaking:
    """Return q(v) q(alpha) of a kernel, its components in ``kernel.order``."""
    shape, rate = kernel.get_buffer("concentration")
    prior_shape, prior_rate = kernel.prior
    return StickBreaking(
        kernel.get_buffer("stick_a"),
        kernel.get_buffer("stick_b"),
        shape,
        rate,
        prior_shape,
        prior_rate,
    )


def expected_log_weights(kernel: DirichletProcessMixture) -> Tensor:
    """Return E[log pi_k] of the components as the kernel numbers them, shape (T,)."""
    out = torch.empty(kernel.truncation, dtype=torch.float64, device=kernel.means.device)
    out[kernel.get_buffer("order")] = sticks_of(kernel).expected_log_weights()
    return out


def kernel_kl(kernel: SpectralKernel) -> Tensor:
    """Return KL(q(z) q(v) q(alpha) || p) in nats, scalar float64; 0 for a kernel without such a
    posterior.

    q(W | z) = p(W | z): the frequencies cost nothing.
    """
    if not isinstance(kernel, DirichletProcessMixture):
        return torch.zeros((), dtype=torch.float64)
    sticks = sticks_of(kernel)
    return sticks.kl() - sticks.assignment_bound(kernel.phi[:, kernel.get_buffer("order")])


@torch.no_grad()
def update_sticks(kernel: DirichletProcessMixture) -> None:
    """Set q(v) to its optimum, with the components ordered by size where that is the better order.

    Never decreases the bound: the new order is kept only when the bound is higher with it.
    """
    counts = kernel.phi.sum(0)
    candidates = (kernel.get_buffer("order"), counts.argsort(descending=True, stable=True))
    best = torch.inf
    for order in candidates:
        sticks = sticks_of(kernel).update_sticks(counts[order])
        cost = float(sticks.kl() - sticks.assignment_bound(kernel.phi[:, order]))
        if cost < best:
            best = cost
            chosen = order
            fitted = sticks
    kernel.get_buffer("order").copy_(chosen.clone())
    kernel.get_buffer("stick_a").copy_(fitted.a)
    kernel.get_buffer("stick_b").copy_(fitted.b)


@torch.no_grad()
def update_concentration(kernel: DirichletProcessMixture) -> None:
    """Set q(alpha) to its optimum; never decreases the bound."""
    sticks = sticks_of(kernel).update_concentration()
    kernel.get_buffer("concentration").copy_(torch.stack([sticks.shape, sticks.rate]))


@torch.no_grad()
def set_assignments(kernel: DirichletProcessMixture, log_phi: Tensor) -> None:
    """Set q(z) from logits of shape (R, T)."""
    kernel.get_buffer("log_phi").copy_(log_phi.log_softmax(1).clamp(min=-745.0))


@torch.no_grad()
def merge_alike(kernel: DirichletProcessMixture, attempt: int = 0) -> bool:
    """Make one component of two that are alike, moments matched, and update sticks and
    concentration.

    Parameters
    ----------
    kernel : DirichletProcessMixture
        Changed in place.
    attempt : int
        Each component has a nearest other; attempts go round these pairs, the most alike first.

    Returns
    -------
    bool
        False when fewer than two components take part; nothing is then changed.

    Notes
    -----
    A component and its mirror image (-mu) are the same kernel: the nearer of the two is merged.
    """
    phi = kernel.phi
    means = kernel.means
    counts = phi.sum(0)
    used = (counts >= _HELD).nonzero()[:, 0]
    if len(used) < 2:
        return False
    j, k, sign = _pair(means[used], kernel.log_scales[used], attempt)
    j, k = int(used[j]), int(used[k])
    share = counts[k] / (counts[j] + counts[k])
    mean = (1.0 - share) * means[j] + share * sign * means[k]
    squares = (2.0 * kernel.log_scales).exp()
    spread = (1.0 - share) * (squares[j] + (means[j] - mean).square())
    spread = spread + share * (squares[k] + (sign * means[k] - mean).square())
    means[j], kernel.log_scales[j] = mean, 0.5 * spread.log()
    phi[:, j] += phi[:, k]
    phi[:, k] = 0.0
    set_assignments(kernel, phi.log().clamp(min=-745.0))
    update_sticks(kernel)
    update_concentration(kernel)
    return True


@torch.no_grad()
def rebirth(kernel: DirichletProcessMixture, source: torch.Generator) -> None:
    """Move the components that nobody uses to new places of the spectrum, changed in place.

    Parameters
    ----------
    kernel : DirichletProcessMixture
    source : torch.Generator

    Notes
    -----
    Half of the places are normal with twice the width of the whole spectrum, at least 2 radians per
    unit in every dimension, and the components there a quarter as wide as that; the other half are
    drawn from the spectrum itself, and a tenth as wide: a wide component that covers two narrow
    peaks is no optimum once one of them has its own.
    """
    phi = kernel.phi
    means = kernel.means
    idle = (phi.sum(0) < _HELD).nonzero()[:, 0]
    if not len(idle):
        return
    stds = kernel.log_scales.exp()
    width = (2.0 * (kernel.proportions @ (means.square() + stds.square())).sqrt()).clamp(
        min=2.0
    )
    noise = torch.randn(len(idle), means.shape[1], generator=source, dtype=torch.float64).to(
        means.device
    )
    parents = torch.multinomial(
        kernel.proportions.cpu(), len(idle), replacement=True, generator=source
    ).to(means.device)
    inside = (torch.arange(len(idle), device=means.device) % 2 == 0)[:, None]
    places = torch.where(inside, means[parents] + stds[parents] * noise, width * noise)
    means[idle] = places
    kernel.log_scales[idle] = (torch.where(inside, 0.1, 0.25) * width).log()
    phi[:, idle] = _GIVEN
    set_assignments(kernel, phi.log().clamp(min=-745.0))


def _pair(means: Tensor, log_scales: Tensor, attempt: int) -> tuple[int, int, float]:
    """Choose two components and the sign that brings the second to the first."""
    # squared distance of the means in units of the joint variance, plus that of the logarithms of
    # the scales
    joint = (2.0 * log_scales)[:, None].exp() + (2.0 * log_scales)[None].exp()
    away = torch.stack(
        [(means[:, None] - s * means[None]).square() / joint for s in (1.0, -1.0)]
    ).sum(-1)
    unlike = away.min(0).values + (log_scales[:, None] - log_scales[None]).square().sum(-1)
    nearest = unlike.fill_diagonal_(torch.inf).min(1)
    j = int(nearest.values.argsort(stable=True)[attempt % len(means)])
    k = int(nearest.indices[j])
    return j, k, 1.0 if away[0, j, k] <= away[1, j, k] else -1.0
