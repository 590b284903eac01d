"""The spectrum of a Dirichlet process kernel that given latents and the data ask for, without a
gradient.

At given latents the rows' covariance is linear in the spectrum: Y Y^T / M is, in the mean, sum_c
p_c cos(w_c^T delta) plus s^2 I. Least squares with p_c >= 0 over a cloud of frequencies therefore
needs no gradient and has no local optimum (one Gram matrix of the cloud's features, a tenth of a
second); what carries weight becomes the components. Gradients and sweeps from random components
seldom find narrow peaks far from zero, such as those of a periodic kernel.
"""

from __future__ import annotations

import torch
from scipy.optimize import nnls
from torch import Tensor

from bochner import random
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.memory import chunks
from bochner.models.dirichlet_posterior import set_assignments
from bochner.regression.observations import Block, complete_blocks

# Frequencies of the cloud, and its standard deviations in radians per unit of latents of standard
# deviation 1 (for one dimension or two; more dimensions share what two have).
_CANDIDATES = 512
_WIDTHS = (0.5, 1.0, 2.0, 4.0)
_ROWS = 1024
_RIDGE = 1e-3
# Share of the spectrum below which a frequency is not worth a component.
_LEAST = 1e-4
# Least standard deviation of a component: latents some four standard deviations wide tell
# frequencies apart no better.
_RESOLUTION = 0.15
# What every spectral point leaves to other components than its own.
_UNDECIDED = 0.05
_LEAST_VARIANCE = 0.1


@torch.no_grad()
def match_spectrum(
    kernel: DirichletProcessMixture,
    x: Tensor,
    blocks: tuple[Block, ...],
    source: torch.Generator,
) -> None:
    """Put a kernel's components where the covariance of the rows has its weight, changed in place.

    Parameters
    ----------
    kernel : DirichletProcessMixture
        With a q(z) for each of its R spectral points. Components that are not needed stay where
        they are.
    x : Tensor of shape (N, D)
        The latents that the kernel sees.
    blocks : tuple of Block
        Gaussian, complete within their rows.
    source : torch.Generator
    """
    x = x.double()
    n_dims = x.shape[1]
    widths = torch.tensor(_WIDTHS, dtype=torch.float64).repeat(_CANDIDATES // len(_WIDTHS))
    w = random.normal(_CANDIDATES, n_dims, source, "sobol").double().cpu()
    w = w * widths[:, None] * min(1.0, (2.0 / n_dims) ** 0.5)
    power = _least_squares(*_normal_equations(x, w.to(x.device), blocks))
    kept = power > _LEAST * power.sum()
    if not bool(kept.any()):
        return
    share, means, squares = _merged(
        w[kept], power[kept] / power[kept].sum(), kernel.truncation
    )
    used = len(share)
    kernel.means[:used] = means.to(kernel.means)
    kernel.log_scales[:used] = 0.5 * squares.log().to(kernel.log_scales)
    kernel.log_variance.fill_(float(power.sum().clamp(min=_LEAST_VARIANCE).log()))
    set_assignments(kernel, _assigned(share, *kernel.phi.shape).log().to(kernel.means.device))


def _normal_equations(
    x: Tensor, w: Tensor, blocks: tuple[Block, ...]
) -> tuple[Tensor, Tensor]:
    """Return A, (C + 1, C + 1), and b, (C + 1,), of the powers of the cloud and, last, of the
    noise.
    """
    n_points = w.shape[0]
    a, b = (
        torch.zeros(n_points + 1, *rest, dtype=torch.float64, device=x.device)
        for rest in ((n_points + 1,), ())
    )
    for block in complete_blocks(blocks):
        latents = block.rows.take(x)
        gram = latents.new_zeros(())
        cross = latents.new_zeros(())
        for rows in chunks(latents.shape[0], _ROWS):
            angle = latents[rows] @ w.T
            phi = torch.cat([angle.cos(), angle.sin()], dim=1)
            gram = gram + phi.T @ phi
            cross = cross + phi.T @ block.Y[rows].double()
        of_pairs = gram.square().reshape(2, n_points, 2, n_points).sum((0, 2))
        a[:-1, :-1] += block.n_columns * of_pairs
        a[-1] += block.n_columns * latents.shape[0]
        b[:-1] += cross.square().sum(1).reshape(2, n_points).sum(0)
        b[-1] += block.square
    a[:-1, -1] = a[-1, :-1]
    return a.cpu(), b.cpu()


def _least_squares(a: Tensor, b: Tensor) -> Tensor:
    """Return the nonnegative powers of the cloud, (C,): a little ridge relative to the diagonal,
    the noise left out.
    """
    scale = a.diagonal().clamp(min=1e-300).rsqrt()
    scaled = a * scale[:, None] * scale
    scaled.diagonal().add_(_RIDGE)
    factor = torch.linalg.cholesky(scaled)
    goal = torch.linalg.solve_triangular(factor, (b * scale)[:, None], upper=False)[:, 0]
    solution, _ = nnls(factor.T.numpy(), goal.numpy(), maxiter=20 * len(b))
    return (torch.from_numpy(solution) * scale)[:-1]


def _merged(w: Tensor, share: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return shares, means and variances of at most so many components, the nearest merged first (w
    and -w are one).
    """
    means = w.clone()
    squares = torch.full_like(w, _RESOLUTION**2)
    while len(share) > most:
        apart = torch.stack(
            [(means[:, None] - sign * means[None]).square().sum(-1) for sign in (1.0, -1.0)]
        )
        # what the spread within components grows by
        cost = apart * share[:, None] * share / (share[:, None] + share)
        cost.diagonal(dim1=1, dim2=2).fill_(torch.inf)
        place = int(cost.argmin())
        sign = 1.0 if place < cost[0].numel() else -1.0
        i, j = divmod(place % cost[0].numel(), len(share))
        part = share[j] / (share[i] + share[j])
        mean = (1.0 - part) * means[i] + part * sign * means[j]
        spread = (1.0 - part) * (squares[i] + (means[i] - mean).square())
        squares[i] = spread + part * (squares[j] + (sign * means[j] - mean).square())
        means[i] = mean
        share[i] += share[j]
        rest = torch.arange(len(share)) != j
        share = share[rest]
        means = means[rest]
        squares = squares[rest]
    return share, means, squares


def _assigned(share: Tensor, n_points: int, n_components: int) -> Tensor:
    """Return q(z), (R, T): points in proportion to the shares, each nearly sure of its
    component.
    """
    exact = share * n_points
    counts = exact.floor()
    missing = n_points - int(counts.sum())
    counts[(exact - counts).argsort(descending=True, stable=True)[:missing]] += 1
    chosen = torch.repeat_interleave(torch.arange(len(share)), counts.long())
    phi = torch.full((n_points, n_components), _UNDECIDED / n_components, dtype=torch.float64)
    phi[torch.arange(n_points), chosen] += 1.0 - _UNDECIDED
    return phi
