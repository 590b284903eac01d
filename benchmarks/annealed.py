"""Integrals over latents by annealed particles: what densities of rows are compared with in more
dimensions than a grid can fill.

Particles of the prior are carried to the posterior of every row in small steps of the exponent of
its likelihood, resampled and moved at each (Del Moral, Doucet and Jasra 2006): nothing climbs, so
that modes which climbs miss are found. A mixture of Student's t distributions is fitted to them,
then to samples of itself with their weights, round by round (Cappe et al. 2008), and the integral
is the mean weight of the last round: unbiased, however chance moved the particles. Where the latent
of a row is known it is a draw of the posterior, and the first mixture has a part about the mode
near it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_t
from sklearn.mixture import GaussianMixture

Array = NDArray[np.float64]
# Log likelihoods of the rows with these numbers, (g,), at places (g, T, D), (g, T)
LogLikelihood = Callable[[NDArray[np.int64], Array], Array]

# Particles, the share of them that a step of the exponent leaves, as an effective number, and how
# often they are moved after it.
PARTICLES, LEFT, MOVES = 768, 0.7, 2
# Parts of a mixture, their degrees of freedom, by how much they are wider than what was fitted, and
# the share of the prior beside them.
PARTS, FREEDOM, WIDER, PRIOR_SHARE = 12, 8.0, 1.2, 0.02
# Share of a part near a known latent, and the steps by which its curvature is taken; the least
# variance of a part, as a share of all.
KNOWN_SHARE, STEP, LEAST = 0.2, 1e-4, 1e-5
# Samples of each round, and the standard error that ends them: the last tells the integral.
SAMPLES, SURE, MOST_ROUNDS = 2000, 0.03, 8


@dataclass(frozen=True)
class Integrals:
    """Logarithms of integrals, one a row.

    Attributes
    ----------
    value, error : ndarray of shape (n,)
        By the last round, with standard errors.
    """

    value: Array
    error: Array


def integrals(
    log_likelihood: LogLikelihood, n_rows: int, dim: int, seed: int, known: Array | None = None
) -> Integrals:
    """Integrate the likelihood of every row over a standard normal prior of its latent.

    Parameters
    ----------
    log_likelihood : callable
    n_rows, dim, seed : int
    known : ndarray of shape (n, D), optional
        Latents that the rows were drawn at.
    """
    rng = np.random.default_rng(seed)
    particles = _annealed(log_likelihood, n_rows, dim, rng)
    out = []
    for i, about in enumerate(particles):
        log_joint = functools.partial(_log_joint, log_likelihood, i)
        near = None if known is None else _mode_near(log_joint, known[i])
        out.append(_by_samples(log_joint, Mixture.about(about, rng, near), rng))
    value, error = np.array(out).T
    return Integrals(value, error)


def _log_joint(log_likelihood: LogLikelihood, row: int, x: Array) -> Array:
    out: Array = log_likelihood(np.array([row]), x[None])[0] + log_prior(x)
    return out


def _by_samples(
    log_joint: Callable[[Array], Array], mixture: Mixture, rng: Generator
) -> tuple[float, float]:
    """Return the log integral of a row with its standard error."""
    mixtures, places, joints = [mixture], [], []
    for _ in range(MOST_ROUNDS):
        x = mixtures[-1].draw(SAMPLES, rng)
        joint = log_joint(x)
        log_weights = joint - mixtures[-1].log_density(x)
        total = float(logsumexp(log_weights))
        error = math.sqrt(np.exp(2.0 * (log_weights - total)).sum() - 1.0 / SAMPLES)
        if error < SURE and len(mixtures) > 1:
            break
        places.append(x)
        joints.append(joint)
        every = np.concatenate(places)
        # all samples count against the mixture of all mixtures (Cornuet et al. 2012)
        proposed = logsumexp([one.log_density(every) for one in mixtures], axis=0)
        share = softmax(np.concatenate(joints) - proposed)
        kept = every[rng.choice(len(every), PARTICLES, p=share)]
        mixtures.append(Mixture.about(kept, rng))
    return total - math.log(SAMPLES), error


def _mode_near(log_joint: Callable[[Array], Array], place: Array) -> tuple[Array, Array]:
    """Return where a climb from a place (D,) ends, and a covariance that has the curvature
    there.
    """
    dim = len(place)
    away = STEP * np.eye(dim)

    def less(x: Array) -> tuple[float, Array]:
        values = log_joint(np.concatenate([x[None], x + away, x - away]))
        return -float(values[0]), (values[1 + dim :] - values[1 : 1 + dim]) / (2.0 * STEP)

    mode = minimize(less, place, jac=True, method="BFGS", options={"gtol": 0.1}).x
    pairs = np.array(
        [a + s * b for i, a in enumerate(away) for b in away[: i + 1] for s in (1, -1)]
    )
    around = log_joint(np.concatenate([mode + pairs, mode - pairs]))
    # f(x + u) + f(x - u) of sums less that of differences is 4 times the mixed derivative
    second = around.reshape(2, -1, 2).sum(axis=0)
    curvature = np.zeros((dim, dim))
    curvature[np.tril_indices(dim)] = (second[:, 0] - second[:, 1]) / (4.0 * STEP**2)
    values, vectors = np.linalg.eigh(curvature + np.tril(curvature, -1).T)
    return mode, vectors / np.maximum(np.abs(values), 1.0) @ vectors.T


def log_prior(x: Array) -> Array:
    """Return the log density of a standard normal distribution, (..., D) -> (...)."""
    out: Array = -0.5 * (np.square(x).sum(-1) + x.shape[-1] * math.log(2.0 * math.pi))
    return out


def _annealed(log_likelihood: LogLikelihood, n_rows: int, dim: int, rng: Generator) -> Array:
    """Return particles of every row's posterior, (n, P, D)."""
    going = np.arange(n_rows)
    x = rng.standard_normal((n_rows, PARTICLES, dim))
    value, exponent = log_likelihood(going, x), np.zeros(n_rows)
    while len(going):
        step = _steps(value[going], 1.0 - exponent[going])
        exponent[going] += step
        kept = _resampled(step[:, None] * value[going], rng)
        some, values = x[going[:, None], kept], value[going[:, None], kept]
        for _ in range(MOVES):
            some, values = _moved(log_likelihood, going, some, values, exponent[going], rng)
        x[going], value[going] = some, values
        going = going[exponent[going] < 1.0]
    return x


def _steps(value: Array, most: Array) -> Array:
    """Return by how much exponents grow, (g,): so that the effective number of particles falls to
    its share.
    """
    low, high = np.zeros_like(most), most.copy()
    for _ in range(40):
        middle = 0.5 * (low + high)
        weights = middle[:, None] * value
        effective = 2.0 * logsumexp(weights, axis=1) - logsumexp(2.0 * weights, axis=1)
        enough = effective > math.log(LEFT * value.shape[1])
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    # what is as good as all that is left is all
    return np.where(high >= most * (1.0 - 1e-9), most, low)


def _resampled(log_weights: Array, rng: Generator) -> NDArray[np.int64]:
    """Return which particles go on, (g, P), systematically."""
    groups, count = log_weights.shape
    shares = np.exp(log_weights - logsumexp(log_weights, axis=1, keepdims=True)).cumsum(axis=1)
    levels = (np.arange(count) + rng.random((groups, 1))) / count
    index = [np.searchsorted(s, u) for s, u in zip(shares, levels, strict=True)]
    return np.minimum(np.stack(index), count - 1)


def _moved(
    log_likelihood: LogLikelihood,
    rows: NDArray[np.int64],
    x: Array,
    value: Array,
    exponent: Array,
    rng: Generator,
) -> tuple[Array, Array]:
    """Move particles by differences of pairs of the other half (ter Braak 2006): as long as what
    is left of the posterior is wide in that direction, and from mode to mode.
    """
    groups, count, dim = x.shape
    x, value = x.copy(), value.copy()
    order = rng.permutation(count)
    for mine, others in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        shape = (groups, len(mine))
        first, second = (others[rng.integers(len(others), size=shape)] for _ in range(2))
        group = np.arange(groups)[:, None]
        # a whole difference leads from one mode to another
        scale = 2.38 / math.sqrt(2.0 * dim) * np.exp(rng.uniform(-4.0, 0.3, size=shape))
        scale = np.where(rng.random(shape) < 0.1, 1.0, scale)
        shaken = 1e-4 * rng.standard_normal((*shape, dim))
        proposed = (
            x[:, mine] + scale[..., None] * (x[group, first] - x[group, second]) + shaken
        )
        at = log_likelihood(rows, proposed)
        gain = exponent[:, None] * (at - value[:, mine])
        gain += log_prior(proposed) - log_prior(x[:, mine])
        taken = np.log(rng.random(shape)) < gain
        x[:, mine] = np.where(taken[..., None], proposed, x[:, mine])
        value[:, mine] = np.where(taken, at, value[:, mine])
    return x, value


@dataclass(frozen=True)
class Mixture:
    """Student's t distributions and the prior.

    Attributes
    ----------
    shares : ndarray of shape (C + 1,)
        The prior's last.
    means : ndarray of shape (C, D)
    covariances : ndarray of shape (C, D, D)
    """

    shares: Array
    means: Array
    covariances: Array

    @classmethod
    def about(
        cls, particles: Array, rng: Generator, known: tuple[Array, Array] | None = None
    ) -> Mixture:
        """Return one about particles (P, D), with a part of known mean and covariance."""
        number = int(rng.integers(2**31 - 1))
        least = LEAST * particles.var(axis=0).mean() + 1e-12
        fit = GaussianMixture(PARTS, reg_covar=least, random_state=number).fit(particles)
        shares, means, covariances = fit.weights_, fit.means_, fit.covariances_
        if known is not None:
            shares = np.append((1.0 - KNOWN_SHARE) * shares, KNOWN_SHARE)
            means = np.concatenate([means, known[0][None]])
            covariances = np.concatenate([covariances, known[1][None]])
        shares = np.append((1.0 - PRIOR_SHARE) * shares, PRIOR_SHARE)
        return cls(shares, means, WIDER**2 * covariances)

    def draw(self, count: int, rng: Generator) -> Array:
        """Return samples, (count, D)."""
        dim = self.means.shape[1]
        which = rng.choice(len(self.shares), count, p=self.shares / self.shares.sum())
        x = rng.standard_normal((count, dim))
        stretch = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, count))
        for part, (mean, covariance) in enumerate(
            zip(self.means, self.covariances, strict=True)
        ):
            mine = which == part
            root = np.linalg.cholesky(covariance)
            x[mine] = mean + stretch[mine, None] * (x[mine] @ root.T)
        return x

    def log_density(self, x: Array) -> Array:
        """Return the log density of places, (T, D) -> (T,)."""
        parts = [
            # stubs of scipy ask for whole degrees of freedom
            multivariate_t(mean, covariance, df=FREEDOM).logpdf(x)  # type: ignore[arg-type]
            for mean, covariance in zip(self.means, self.covariances, strict=True)
        ]
        terms = np.stack([*parts, log_prior(x)]) + np.log(self.shares)[:, None]
        out: Array = logsumexp(terms, axis=0)
        return out
