"""What a fitted model says about data: reconstructions, completions, densities, samples; all scaled, all float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bochner import random
from bochner.data.batches import chunks
from bochner.features.derivatives import expected_features, jet
from bochner.inference.place import Placement
from bochner.inference.posterior import ViewPosterior

_CHUNK = 1024


def decode(views: Sequence[ViewPosterior], x: Tensor, covariance: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Predict the columns at latents, averaged over the posterior of the weights and the draws of the spectra.

    Parameters
    ----------
    views : sequence of ViewPosterior
    x : Tensor of shape (n, D), float64
    covariance : Tensor of shape (n, D, D), optional
        Uncertainty of x: the mean is then E m^T phi(x), exactly; the variance gains J cov J^T (delta method).

    Returns
    -------
    mean, variance : Tensor of shape (n, sum of M)
        Of new observations: noise included, by the law of total variance.
    """
    means, variances = [], []
    for part in chunks(x.shape[0], _CHUNK):
        spread = None if covariance is None else covariance[part]
        of_views = [_decode_view(view, x[part], spread) for view in views]
        means.append(torch.cat([mean for mean, _ in of_views], dim=1))
        variances.append(torch.cat([variance for _, variance in of_views], dim=1))
    return torch.cat(means), torch.cat(variances)


def _decode_view(view: ViewPosterior, x: Tensor, covariance: Tensor | None) -> tuple[Tensor, Tensor]:
    means, variance = [], torch.zeros(x.shape[0], view.n_columns, dtype=torch.float64)
    for draw in view.draws:
        phi = draw.features(x)
        variance += view.noise_variance * (1.0 + draw.spread(phi)[:, view.group_of])
        if covariance is not None:
            phi = expected_features(x, covariance, draw.frequencies)
            # x's uncertainty as the rows of a square root R: sum over d of (R^T J)^2 is diag(J^T cov J)
            root = torch.linalg.cholesky(covariance).transpose(1, 2)
            variance += ((root @ jet(x, draw.frequencies).jacobian) @ draw.mean).square().sum(1)
        means.append(phi @ draw.mean)
    stacked = torch.stack(means)
    return stacked.mean(0), variance / len(means) + stacked.var(0, unbiased=False)


def complete(views: Sequence[ViewPosterior], placement: Placement) -> tuple[Tensor, Tensor]:
    """Predict every column of placed rows: the mixture over their modes.

    Returns
    -------
    mean, variance : Tensor of shape (n, sum of M)
    """
    means, variances = [], []
    for part in chunks(placement.modes.shape[0], _CHUNK):
        mean, second = torch.zeros(()), torch.zeros(())
        for r in range(placement.modes.shape[1]):
            weight = placement.weights[part, r, None]
            m, v = decode(views, placement.modes[part, r], placement.covariances[part, r])
            mean, second = mean + weight * m, second + weight * (v + m.square())
        means.append(mean)
        variances.append((second - mean.square()).clamp(min=0.0))
    return torch.cat(means), torch.cat(variances)


def draw_rows(views: Sequence[ViewPosterior], placement: Placement, n_draws: int, seed: int) -> Tensor:
    """Draw completions: a mode, a latent around it, a spectrum, weights and noise.

    Returns
    -------
    Tensor of shape (n_draws, n, sum of M)
    """
    n, _, dim = placement.modes.shape
    source = random.generator(seed, "complete")
    index = torch.multinomial(placement.weights, n_draws, replacement=True, generator=source)
    rows = torch.arange(n)[:, None]
    factor = torch.linalg.cholesky(placement.covariances[rows, index])
    noise = torch.randn(n, n_draws, dim, 1, generator=source, dtype=torch.float64)
    x = placement.modes[rows, index] + (factor @ noise)[..., 0]
    return torch.stack([sample_at(views, x[:, i], source) for i in range(n_draws)])


def sample_at(views: Sequence[ViewPosterior], x: Tensor, source: torch.Generator) -> Tensor:
    """Draw new observations at latents, one draw of the spectrum per row and view, (n, D) -> (n, sum of M)."""
    out = []
    for view in views:
        which = torch.randint(len(view.draws), (x.shape[0],), generator=source)
        y = torch.empty(x.shape[0], view.n_columns, dtype=torch.float64)
        for s, draw in enumerate(view.draws):
            rows = (which == s).nonzero()[:, 0]
            phi = draw.features(x[rows])
            h = draw.spread(phi)[:, view.group_of]
            noise = torch.randn(rows.shape[0], view.n_columns, generator=source, dtype=torch.float64)
            y[rows] = phi @ draw.mean + (view.noise_variance * (1.0 + h)).sqrt() * noise
        out.append(y)
    return torch.cat(out, dim=1)


def log_density(
    views: Sequence[ViewPosterior], placement: Placement, rows: Sequence[Tensor], n_samples: int, seed: int
) -> Tensor:
    """Estimate log of the integral of p(y_observed | x) p(x) per row by importance sampling around its modes.

    Parameters
    ----------
    views : sequence of ViewPosterior
    placement : Placement
        Of these rows.
    rows : sequence over views of Tensor of shape (n, M_v), float64
    n_samples : int
    seed : int

    Returns
    -------
    Tensor of shape (n,)
        In nats, per row; 0 for a row without observed entries.
    """
    densities = []
    for part in chunks(rows[0].shape[0], _CHUNK):
        p = Placement(placement.modes[part], placement.covariances[part], placement.weights[part])
        x, log_ratio = _proposals(p, n_samples, seed)
        likelihood = torch.stack([_log_likelihood(views, x[:, i], [y[part] for y in rows]) for i in range(n_samples)])
        densities.append((likelihood.T + log_ratio).logsumexp(1) - math.log(n_samples))
    return torch.cat(densities)


def _proposals(placement: Placement, n_samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw from the modes' mixture, widened and with a tenth of the prior; return x and log p(x) - log q(x)."""
    n, n_modes, dim = placement.modes.shape
    source = random.generator(seed, "score")
    wide = 1.5**2 * placement.covariances
    prior = torch.eye(dim, dtype=torch.float64).expand(n, 1, -1, -1)
    means = torch.cat([placement.modes, torch.zeros(n, 1, dim, dtype=torch.float64)], dim=1)
    factors = torch.linalg.cholesky(torch.cat([wide, prior], dim=1))
    weights = torch.cat([0.9 * placement.weights, torch.full((n, 1), 0.1, dtype=torch.float64)], dim=1)
    # the same uniforms for every row: a row's score does not depend on its batch
    uniform = torch.rand(n_samples, generator=source, dtype=torch.float64).expand(n, -1).contiguous()
    index = torch.searchsorted(weights.cumsum(1), uniform).clamp(max=n_modes)
    noise = torch.randn(n_samples, dim, generator=source, dtype=torch.float64)
    rows = torch.arange(n)[:, None]
    x = means[rows, index] + (factors[rows, index] @ noise[None, :, :, None])[..., 0]
    away = torch.linalg.solve_triangular(factors[:, None], (x[:, :, None] - means[:, None])[..., None], upper=False)
    log_q = -0.5 * away[..., 0].square().sum(-1) - torch.diagonal(factors, dim1=-2, dim2=-1).log().sum(-1)[:, None]
    log_q = (log_q + weights.log()[:, None]).logsumexp(-1)
    return x, -0.5 * x.square().sum(-1) - log_q


def _log_likelihood(views: Sequence[ViewPosterior], x: Tensor, rows: Sequence[Tensor]) -> Tensor:
    """Return sum_v log mean_s p(y_v | x, W_s) over observed entries, (n,)."""
    total = torch.zeros(x.shape[0], dtype=torch.float64)
    for view, y in zip(views, rows, strict=True):
        seen = ~y.isnan()
        by_draw = []
        for draw in view.draws:
            phi = draw.features(x)
            h = draw.spread(phi)[:, view.group_of]
            v = view.noise_variance * (1.0 + h)
            entries = -0.5 * ((2.0 * math.pi * v).log() + (torch.nan_to_num(y) - phi @ draw.mean).square() / v)
            by_draw.append((entries * seen).sum(1))
        total += torch.stack(by_draw).logsumexp(0) - math.log(len(by_draw))
    return total


def kernel(view: ViewPosterior, x: Tensor) -> Tensor:
    """Return the mean over the stored draws of phi(x)^T phi(x'), shape (n, n)."""
    products = []
    for draw in view.draws:
        phi = draw.features(x)
        products.append(phi @ phi.T)
    return torch.stack(products).mean(0)
