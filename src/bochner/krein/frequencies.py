"""Gaussian posteriors of the frequencies of an indefinite kernel, by gradient and in closed form.

Maximises E_q[log p(K, w, z, mu, Lambda, v, alpha)] + entropy over q(w_h) = N(m_h, diag V_h),
weights c_h and noise variance (docs/math.md, section 5, Liu et al. (2020) with its update of q(w)
replaced):

* m and c by L-BFGS on the error over all pairs of the sketch plus what the mixture says, at the
  mode of q, in coordinates in which the rows vary alike in every direction;
* V in closed form from the Gauss-Newton curvature over all pairs;
* the mixture's blocks z, v, alpha, mu, Lambda in closed form.

Rounds alternate them until the error on rows held out from the fit is level; the round where it is
smallest is kept, and its V is refined by gradient of the closed-form expectations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from bochner.krein.frequency_mixture import FrequencyMixture, Moments
from bochner.krein.objective import (
    curvature,
    expected_squared_error,
    gaussian_entropy,
    residuals,
    squared_error,
)
from bochner.krein.signed_frequencies import GaussianFrequencies, SignedFrequencies
from bochner.krein.sketch import Sketch

# What the pairs of a round count for: from 0, as many observations as rows, to 1, as many as pairs.
# Pairs share rows, the truth lies between: rows held out decide which round is kept. Every round
# has its share of the iterations.
_TRUST = (0.0, 0.25, 0.75, 1.0, 1.0)
# rounds that see half of the rows, and at least so many
_EARLY = 2
_LEAST = 500
# relative gain of the held-out error below which a round is level; rounds that may be
_LEVEL = 0.02
_PATIENCE = 2
# on which closed-form expectations are computed
_PAIRS = 4096
# of the mean variance of a direction, added to each before the directions are brought to one scale
_WHITE = 0.01
# and the least that is left: of rows that differ by rounding alone
_EQUAL = 1e-8
# iterations in the variances at the end
_REFINED = 8
# n^2 H from which the products of the search are in single precision
_SINGLE = 4e8
# of the kernel's variance over pairs, and of its mean square
_FIRST_NOISE = 1e-2, 1e-4
# of the noise variance, relative to the kernel's mean square
_FLOOR = 1e-12


@dataclass(frozen=True)
class KreinFit:
    """What the gradient inference returns.

    Attributes
    ----------
    frequencies : GaussianFrequencies
    mixtures : tuple of FrequencyMixture
        Of the positive part and, where there is one, of the negative part.
    noise_variance : float
        Squared units of the sketch's kernel values.
    history : list of dict
        Of the start and per round: ``elbo`` (nats; of the round that is kept, after its V was
        refined); ``error`` on the sketch and ``held_out_error``, relative root mean squares.
    n_iter : int
        L-BFGS iterations allowed in the rounds that were made.
    """

    frequencies: GaussianFrequencies
    mixtures: tuple[FrequencyMixture, ...]
    noise_variance: float
    history: list[dict[str, float]]
    n_iter: int


@dataclass(frozen=True)
class _State:
    """Means (H, d) in units of 1 / sketch.unit, log weights, variances, mixtures, noise, squared
    error at the mode.
    """

    mean: Tensor
    log_weight: Tensor
    variance: Tensor
    mixtures: tuple[FrequencyMixture, ...]
    noise: float
    error: float = math.inf


def fit_gradient(
    sketch: Sketch,
    start: SignedFrequencies,
    n_mixtures: int,
    max_iter: int,
    source: torch.Generator,
) -> KreinFit:
    """Fit the posterior of the frequencies to a sketch.

    Parameters
    ----------
    sketch : Sketch
    start : SignedFrequencies
        Signs and weights to start from, and a draw of it the means.
    n_mixtures : int
        T of each part.
    max_iter : int
        L-BFGS iterations, all rounds together.
    source : torch.Generator
    """
    problem = _Problem(sketch, start.sign, source)
    best = state = problem.begin(start.draw(source), start.weight, n_mixtures, source)
    history = [problem.record(state)]
    made = 0
    level = 0
    chosen = 0
    for i, trust in enumerate(_TRUST):
        steps = -(-max_iter // len(_TRUST))
        n = problem.n if i >= _EARLY else min(problem.n, max(_LEAST, -(-problem.n // 2)))
        state = problem.close(problem.search(state, steps, trust, n))
        made = made + steps
        before = min(h["held_out_error"] for h in history)
        history.append(problem.record(state))
        gain = before - history[-1]["held_out_error"]
        best, chosen = (state, i + 1) if gain >= 0 else (best, chosen)
        level = 0 if gain > _LEVEL * before else level + 1
        if level == _PATIENCE:
            break
    best = problem.refine(best)
    history[chosen] = problem.record(best)
    unit = problem.unit
    frequencies = GaussianFrequencies(
        best.log_weight.exp() * sketch.scale,
        start.sign,
        best.mean / unit,
        best.variance.sqrt() / unit,
    )
    return KreinFit(frequencies, best.mixtures, best.noise * sketch.scale**2, history, made)


class _Problem:
    """The sketch in units in which the kernel's root mean square is 1 and a typical coordinate
    difference is 1.

    The second makes the search well conditioned: phases react to a coordinate of a mean as the
    kernel does to a log weight.
    """

    def __init__(self, sketch: Sketch, sign: Tensor, source: torch.Generator) -> None:
        self.sign = sign
        self.n = len(sketch.x)
        self.unit = sketch.unit / math.sqrt(2.0 * sketch.x.shape[1])
        self.scale = sketch.scale
        self.x = sketch.x / self.unit
        self.target = sketch.target / self.scale
        self.held = (sketch.held_out / self.unit, sketch.held_target / self.scale)
        self.n_pairs = 0.5 * self.n * (self.n - 1)
        off = self.target.sum() - torch.diagonal(self.target).sum()
        # variance over pairs
        self.spread = max(1.0 - (float(off) / (2.0 * self.n_pairs)) ** 2, _FLOOR)
        single = self.n**2 * len(sign) > _SINGLE
        self.dtype = torch.float32 if single else torch.float64
        self.single = self.x.to(self.dtype), self.target.to(self.dtype)
        self.whiten = whitening(self.x)
        self.parts = [part for part in (sign > 0, sign < 0) if bool(part.any())]
        some = torch.randint(self.n, (_PAIRS, 2), generator=source, device=source.device).to(
            self.x.device
        )
        i, j = some[some[:, 0] != some[:, 1]].T
        self.delta = self.x[i] - self.x[j]
        self.pairs = self.target[i, j]

    def begin(
        self, draw: Tensor, weight: Tensor, n_mixtures: int, source: torch.Generator
    ) -> _State:
        """Return the first state: everything but means and weights in closed form."""
        mean = draw * self.unit
        log_weight = (weight / self.scale).log()
        width = float(mean.square().mean().sqrt()) or 1.0
        variance = torch.full_like(mean, (0.1 * width) ** 2)
        mixtures = tuple(
            FrequencyMixture.start(
                Moments(mean[part], variance[part]), n_mixtures, width, source
            )
            for part in self.parts
        )
        state = self.close(_State(mean, log_weight, variance, mixtures, 1.0))
        # the errors of a start are no noise: with them the mixture would pull the first search to
        # its own centre
        return replace(
            state,
            noise=max(
                min(state.noise, _FIRST_NOISE[0] * self.spread, _FIRST_NOISE[1]), _FLOOR
            ),
        )

    def factor(self, log_weight: Tensor) -> Tensor:
        return self.sign.to(log_weight.dtype) * log_weight.exp()

    def squared_error(self, state: _State) -> float:
        """Return the mean squared error over all pairs at the mode, floored."""
        error = (
            residuals(self.x, self.target, state.mean, self.factor(state.log_weight))
            .square()
            .sum()
        )
        return max(float(error) / (2 * self.n_pairs), _FLOOR)

    def prior_terms(self, mean: Tensor, state: _State) -> tuple[float, Tensor]:
        """Return the mixture's expected quadratic in the means, weights 1/2 included, and its
        gradient.
        """
        total = 0.0
        gradient = torch.zeros_like(mean)
        for part, mixture in zip(self.parts, state.mixtures, strict=True):
            slope = torch.zeros_like(mean[part])
            for phi, centre, precision in zip(
                mixture.responsibilities.T, mixture.centre, mixture.precision, strict=True
            ):
                gap = mean[part] - centre
                towards = phi[:, None] * (gap @ precision)
                total += 0.5 * float((towards * gap).sum())
                slope += towards
            gradient[part] = slope
        return total, gradient

    def search(self, state: _State, max_iter: int, trust: float, n: int) -> _State:
        """Climb in means and log weights over all pairs of n rows, which count as n to n (n - 1) /
        2 observations.
        """
        size = state.mean.numel()
        level = state.log_weight
        n_pairs = 0.5 * n * (n - 1)
        x = self.single[0][:n]
        target = self.single[1][:n, :n]
        observations = float(self.n) ** (1.0 - trust) * self.n_pairs**trust
        # the objective in units of a pair's squared error
        weight = 2.0 * state.noise / observations

        def objective(free: Tensor) -> tuple[float, Tensor]:
            mean = free[:size].view(state.mean.shape) @ self.whiten
            log_weight = free[size:]
            factor = self.factor(log_weight)
            error, by_mean, by_factor = squared_error(
                x, target, mean.to(self.dtype), factor.to(self.dtype)
            )
            prior, by_prior = self.prior_terms(mean, state)
            by_mean = (by_mean.double() / (2.0 * n_pairs) + weight * by_prior) @ self.whiten.T
            by_log_weight = by_factor.double() * factor / (2.0 * n_pairs)
            return error / (2.0 * n_pairs) + weight * prior, torch.cat(
                [by_mean.flatten(), by_log_weight]
            )

        # one matrix: LU factors are safe
        mean = torch.linalg.solve(self.whiten, state.mean, left=False)  # noqa: TID251
        free = torch.cat([mean.flatten(), level])
        optimum = _lbfgs(objective, free, max_iter)
        return replace(
            state,
            mean=optimum[:size].view(state.mean.shape) @ self.whiten,
            log_weight=optimum[size:],
        )

    def close(self, state: _State) -> _State:
        """Update the blocks that have a closed form: noise, V, and the mixtures'."""
        noise = self.squared_error(state)
        bend = curvature(self.x, state.mean) * self.factor(state.log_weight).square()[:, None]
        variance = torch.empty_like(state.mean)
        mixtures = []
        for part, mixture in zip(self.parts, state.mixtures, strict=True):
            prior = mixture.responsibilities @ torch.diagonal(
                mixture.precision, dim1=-2, dim2=-1
            )
            variance[part] = 1.0 / (prior + bend[part] / noise)
            mixtures.append(mixture.update(Moments(state.mean[part], variance[part])))
        return replace(
            state, variance=variance, mixtures=tuple(mixtures), noise=noise, error=noise
        )

    def refine(self, state: _State) -> _State:
        """Climb in log V by the closed-form expectations on the kept pairs, then update the noise
        in closed form.
        """
        prior = torch.empty_like(state.mean)
        for part, mixture in zip(self.parts, state.mixtures, strict=True):
            prior[part] = mixture.responsibilities @ torch.diagonal(
                mixture.precision, dim1=-2, dim2=-1
            )

        def objective(free: Tensor) -> Tensor:
            variance = free.view(state.mean.shape).exp()
            error = self.expected_error(state, variance) * self.n_pairs / (2.0 * state.noise)
            return (
                error + 0.5 * (prior * variance).sum() - gaussian_entropy(variance)
            ) / variance.numel()

        optimum = _lbfgs(_by_autograd(objective), state.variance.log().flatten(), _REFINED)
        variance = optimum.view(state.mean.shape).exp()
        return replace(
            state,
            variance=variance,
            noise=max(float(self.expected_error(state, variance)), _FLOOR),
        )

    def expected_error(self, state: _State, variance: Tensor) -> Tensor:
        """Return the mean over the kept pairs of the expected squared error."""
        factor = self.factor(state.log_weight)
        return expected_squared_error(
            state.mean, variance, factor, self.delta, self.pairs
        ).mean()

    def record(self, state: _State) -> dict[str, float]:
        """Return the bound and the errors of a state."""
        error = float(self.expected_error(state, state.variance))
        fit = -0.5 * self.n_pairs * (math.log(2 * math.pi * state.noise) + error / state.noise)
        prior = sum(
            float(mixture.bound(Moments(state.mean[part], state.variance[part])))
            for part, mixture in zip(self.parts, state.mixtures, strict=True)
        )
        train = math.sqrt(state.error)
        return {
            "elbo": fit + prior + float(gaussian_entropy(state.variance)),
            "error": train,
            "held_out_error": self.held_out_error(state) if len(self.held[0]) > 1 else train,
        }

    def held_out_error(self, state: _State) -> float:
        """Return the relative root mean squared error over pairs of held-out rows."""
        x, target = self.held
        error = residuals(x, target, state.mean, self.factor(state.log_weight)).square().sum()
        square = target.square().sum() - torch.diagonal(target).square().sum()
        return float((error / square).sqrt())


def whitening(x: Tensor) -> Tensor:
    """Return A with w = u A: a step in any coordinate of u changes the phases of the rows about
    equally, (d, d).
    """
    values, vectors = torch.linalg.eigh(torch.cov(x.T).reshape(x.shape[1], -1))
    scaled: Tensor = vectors / (values + _WHITE * values.mean()).clamp(min=_EQUAL).sqrt()
    return scaled.T


def _by_autograd(
    objective: Callable[[Tensor], Tensor],
) -> Callable[[Tensor], tuple[float, Tensor]]:
    """Return value and gradient of a function."""

    def evaluate(free: Tensor) -> tuple[float, Tensor]:
        value = objective(free.requires_grad_())
        return float(value.detach()), torch.autograd.grad(value, free)[0]

    return evaluate


def _lbfgs(
    objective: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, max_iter: int
) -> Tensor:
    """Minimise from ``start`` (float64) on its device, given value and gradient."""

    def evaluate(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = objective(torch.from_numpy(values).to(start.device))
        return value, gradient.cpu().numpy()

    options: Any = {
        "maxiter": max_iter,
        "maxfun": 2 * max_iter,
        "maxcor": 20,
        "ftol": 1e-12,
        "gtol": 1e-12,
    }
    search: Any = (
        # its stubs do not know that jac=True takes value and gradient from one call
        minimize
    )
    result = search(
        evaluate, start.cpu().numpy(), jac=True, method="L-BFGS-B", options=options
    )
    return torch.from_numpy(np.asarray(result.x)).to(start.device)
