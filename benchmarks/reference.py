"""NG-MVLVM in plain torch autograd: the same bound written the obvious way, for comparisons of
speed.

Row-major features with four sines and cosines, Woodbury by ``torch.linalg.cholesky``, everything
differentiated by autograd; Adam at 0.01 with Q = 2 and H = 50 as in table 7 of Yang et al. (2025).
Products are in float32, the factorisation in float64. The starting values are those of ``bochner``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass
class Trace:
    """Seconds of training, steps, bound on fresh draws and latent means at the evaluations."""

    seconds: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    latents: list[NDArray[np.float32]] = field(default_factory=list)


class ViewKernel(nn.Module):
    """The NG-SM kernel and the noise of one view."""

    def __init__(self, n_mixtures: int, dim: int, source: torch.Generator) -> None:
        super().__init__()
        means = 0.1 * torch.randn(n_mixtures, dim, generator=source)
        log_scales = torch.linspace(0.0, 0.3, n_mixtures)[:, None].repeat(1, dim) * math.log(
            10.0
        )
        self.log_weights = nn.Parameter(torch.full((n_mixtures,), -math.log(n_mixtures)))
        self.mean1, self.mean2 = nn.Parameter(means.clone()), nn.Parameter(means.clone())
        self.log_scale1, self.log_scale2 = (
            nn.Parameter(log_scales.clone()),
            nn.Parameter(log_scales.clone()),
        )
        self.raw_rho = nn.Parameter(torch.full((n_mixtures,), math.atanh(0.9)))
        self.log_noise = nn.Parameter(torch.tensor(math.log(0.3)))

    def features(self, x: Tensor, n_frequencies: int, source: torch.Generator) -> Tensor:
        """Draw frequencies and return the features of the rows of x, (N, K)."""
        eps1, eps2 = torch.randn(
            2, len(self.log_weights), n_frequencies, x.shape[1], generator=source
        )
        rho = self.raw_rho.tanh()[:, None, None]
        # w1 = μ1 + σ1 ε1,  w2 = μ2 + σ2 (ρ ε1 + √(1−ρ²) ε2)
        w1 = self.mean1[:, None] + self.log_scale1.exp()[:, None] * eps1
        w2 = self.mean2[:, None] + self.log_scale2.exp()[:, None] * (
            rho * eps1 + (1 - rho**2).sqrt() * eps2
        )
        p1, p2 = x @ w1.flatten(0, 1).T, x @ w2.flatten(0, 1).T
        amplitude = (
            (self.log_weights.exp() / (4 * n_frequencies))
            .sqrt()
            .repeat_interleave(n_frequencies)
        )
        return torch.cat(
            [amplitude * (p1.cos() + p2.cos()), amplitude * (p1.sin() + p2.sin())], dim=1
        )


class Reference(nn.Module):
    """Latents q(X) = N(mean, std²) shared by the views."""

    def __init__(
        self,
        Z0: Tensor,
        n_views: int,
        n_mixtures: int,
        n_frequencies: int,
        source: torch.Generator,
    ) -> None:
        super().__init__()
        self.n_frequencies, self.source = n_frequencies, source
        self.mean, self.log_std = (
            nn.Parameter(Z0.clone()),
            nn.Parameter(torch.full_like(Z0, math.log(0.1))),
        )
        self.kernels = nn.ModuleList(
            ViewKernel(n_mixtures, Z0.shape[1], source) for _ in range(n_views)
        )

    def bound(self, Ys: Sequence[Tensor]) -> Tensor:
        """Return Σ_v log p(Y^v | X, W_v) − KL(q(X) || p(X)) at one draw of X and W."""
        std = self.log_std.exp()
        x = self.mean + std * torch.randn(std.shape, generator=self.source)
        value = -0.5 * (std**2 + self.mean**2 - 2 * self.log_std - 1).sum()
        for kernel, Y in zip(self.kernels, Ys, strict=True):
            phi = kernel.features(x, self.n_frequencies, self.source)  # type: ignore[operator]
            value = value + log_evidence(phi, Y, kernel.log_noise.double().exp())  # type: ignore[operator]
        return value


def log_evidence(phi: Tensor, Y: Tensor, s2: Tensor) -> Tensor:
    """Return log p(Y | X, W) by the Woodbury identity; phi (N, K), Y (N, M)."""
    (n, m), k = Y.shape, phi.shape[1]
    L = torch.linalg.cholesky((phi.T @ phi).double() + s2 * torch.eye(k, dtype=torch.float64))
    half = torch.linalg.solve_triangular(L, (phi.T @ Y).double(), upper=False)
    log_det = 0.5 * m * (n - k) * s2.log() + m * L.diagonal().log().sum()
    return (
        -0.5 * n * m * math.log(2 * math.pi)
        - log_det
        - 0.5 * (Y.square().sum() - half.square().sum()) / s2
    )


def fit(
    Ys: Sequence[NDArray[np.float64]],
    Z0: NDArray[np.float64],
    steps: int,
    seed: int,
    *,
    n_mixtures: int = 2,
    n_frequencies: int = 50,
    learning_rate: float = 0.01,
    every: int = 100,
    n_draws: int = 32,
    target: float = math.inf,
    budget: float = math.inf,
) -> Trace:
    """Train for some steps, until the bound on fresh draws reaches ``target``, or for ``budget``
    seconds.

    Evaluations, every ``every`` steps, are not on the clock.
    """
    source, trace, seconds = torch.Generator().manual_seed(seed), Trace(), 0.0
    data = [torch.as_tensor(Y, dtype=torch.float32) for Y in Ys]
    model = Reference(
        torch.as_tensor(Z0, dtype=torch.float32), len(data), n_mixtures, n_frequencies, source
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.9, 0.99))
    for step in range(steps + 1):
        if step % every == 0:
            with torch.no_grad():
                trace.bounds.append(
                    float(np.mean([model.bound(data).item() for _ in range(n_draws)]))
                )
            trace.seconds.append(seconds)
            trace.steps.append(step)
            trace.latents.append(model.mean.detach().numpy().copy())
            if trace.bounds[-1] >= target or seconds >= budget:
                break
        begin = time.perf_counter()
        optimiser.zero_grad()
        (-model.bound(data)).backward()
        optimiser.step()
        seconds += time.perf_counter() - begin
    return trace
