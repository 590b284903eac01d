"""What a fitted model says about data: reconstructions, completions, densities, samples; all
scaled, all float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bochner import random
from bochner.features.fourier import expected_features, jet
from bochner.latent_inference.infer import MANY_DIMENSIONS, Offsets
from bochner.latent_inference.placement import Placement
from bochner.likelihoods.categorical import Categorical
from bochner.memory import chunks
from bochner.weight_posterior.posterior import ViewPosterior

_CHUNK = 1024
# Numbers of the slopes of columns along latents that are held at once.
_SLOPES = 2**24
# Weight below which a mode's part of a completion is beyond its last digit.
_NO_WEIGHT = 1e-12
# Numbers of which quantiles are taken at once.
_QUANTILE_NUMBERS = 2**23
# Numbers of which densities are taken at once: about what stays in a processor's cache.
_SCORE_NUMBERS = 2**18


def decode(
    views: Sequence[ViewPosterior],
    x: Tensor,
    covariance: Tensor | None = None,
    offsets: Offsets | None = None,
) -> tuple[Tensor, Tensor]:
    """Predict the columns at latents, averaged over the posterior of the weights and the draws of
    the spectra.

    Parameters
    ----------
    views : sequence of ViewPosterior
    x : Tensor of shape (n, D), float64
    covariance : Tensor of shape (n, D, D), optional
        Uncertainty of x: the mean is then E m^T phi(x), exactly; the variance gains J cov J^T
        (delta method).
    offsets : sequence over views of Tensor of shape (n,), or None, optional
        Logarithms of size factors; left out, rows are of typical size.

    Returns
    -------
    mean, variance : Tensor of shape (n, sum of M)
        Of new observations: noise included, by the law of total variance.
    """
    means, variances = [], []
    for part in chunks(x.shape[0], _CHUNK):
        spread = None if covariance is None else covariance[part]
        own = [
            None if offset is None else offset[part] for offset in offsets or [None] * len(views)
        ]
        of_views = [
            _decode_view(view, x[part], spread, o) for view, o in zip(views, own, strict=True)
        ]
        means.append(torch.cat([mean for mean, _ in of_views], dim=1))
        variances.append(torch.cat([variance for _, variance in of_views], dim=1))
    return torch.cat(means), torch.cat(variances)


def _decode_view(
    view: ViewPosterior, x: Tensor, covariance: Tensor | None, offset: Tensor | None
) -> tuple[Tensor, Tensor]:
    means, variances = [], []
    for draw in view.draws:
        phi = draw.features(x)
        psi, variance = view.psi(draw, phi, offset)
        if covariance is not None:
            psi = psi + (expected_features(x, covariance, draw.frequencies) - phi) @ draw.mean
            # x's uncertainty as the rows of a square root R: sum over d of (R^T J)^2 is diag(J^T
            # cov J)
            dtype = (
                x.dtype if x.shape[1] <= MANY_DIMENSIONS else torch.float32
            )  # as rows are placed
            root = torch.linalg.cholesky(covariance).transpose(1, 2).to(dtype)
            slopes = (root @ jet(x.to(dtype), draw.frequencies.to(dtype)).jacobian) @ draw.mean.to(
                dtype
            )
            variance = variance + slopes.square().sum(1).to(x.dtype)
        m, v = view.predictive.predict(psi, variance)
        means.append(m)
        variances.append(v)
    if isinstance(view.likelihood, Categorical):
        return means[0], variances[0]  # categories have no average
    stacked = torch.stack(means)
    return stacked.mean(0), torch.stack(variances).mean(0) + stacked.var(0, unbiased=False)


def complete(
    views: Sequence[ViewPosterior], placement: Placement, offsets: Offsets | None = None
) -> tuple[Tensor, Tensor]:
    """Predict every column of placed rows: the mixture over their modes; of categories that of the
    best mode.

    Returns
    -------
    mean, variance : Tensor of shape (n, sum of M)
    """
    means, variances = [], []
    slopes = placement.modes.shape[2] * sum(
        view.n_columns + view.draws[0].frequencies.n_features for view in views
    )
    for part in chunks(placement.modes.shape[0], max(1, min(_CHUNK, _SLOPES // slopes))):
        own = [
            None if offset is None else offset[part] for offset in offsets or [None] * len(views)
        ]
        modes = [
            _decode_mode(views, placement, part, r, own) for r in range(placement.modes.shape[1])
        ]
        weights = placement.weights[part, :, None].unbind(1)
        mean = torch.stack([w * m for w, (m, _) in zip(weights, modes, strict=True)]).sum(0)
        # spread about the mean first: squares of large means would cancel
        spread = [w * (v + (m - mean).square()) for w, (m, v) in zip(weights, modes, strict=True)]
        variance = torch.stack(spread).sum(0)
        kept = _categories(views, mean.shape[1])
        means.append(torch.where(kept, modes[0][0], mean))
        variances.append(torch.where(kept, modes[0][1], variance))
    return torch.cat(means), torch.cat(variances)


def _decode_mode(
    views: Sequence[ViewPosterior], placement: Placement, part: slice, r: int, offsets: Offsets
) -> tuple[Tensor, Tensor]:
    """Predict the columns at the r-th mode of some rows: those for which it weighs anything, the
    others are 0.
    """
    index = (
        (placement.weights[part, r] > _NO_WEIGHT).nonzero()[:, 0]
        if r
        else torch.arange(part.stop - part.start)
    )
    if not index.numel():
        nothing = torch.zeros(
            part.stop - part.start, sum(v.n_data_columns for v in views), dtype=torch.float64
        )
        return nothing, nothing
    x, covariance = placement.modes[part, r][index], placement.covariances[part, r][index]
    found = decode(
        views, x, covariance, [None if offset is None else offset[index] for offset in offsets]
    )
    mean, variance = (
        own.new_zeros(part.stop - part.start, own.shape[1]).index_copy(0, index, own)
        for own in found
    )
    return mean, variance


def _categories(views: Sequence[ViewPosterior], n_columns: int) -> Tensor:
    """Mark the data columns that hold categories, (sum of M,)."""
    marks = [
        torch.full((view.n_data_columns,), isinstance(view.likelihood, Categorical))
        for view in views
    ]
    return torch.cat(marks).expand(n_columns)


def draw_latents(placement: Placement, n_draws: int, seed: int) -> Tensor:
    """Draw where placed rows lie: a mode by its weight, then a place around it.

    Returns
    -------
    Tensor of shape (n, n_draws, D)
    """
    n, _, dim = placement.modes.shape
    source = random.generator(seed, "complete")
    index = torch.multinomial(placement.weights, n_draws, replacement=True, generator=source)
    rows = torch.arange(n)[:, None]
    factor = torch.linalg.cholesky(placement.covariances[rows, index])
    noise = torch.randn(n, n_draws, dim, 1, generator=source, dtype=torch.float64)
    places: Tensor = placement.modes[rows, index] + (factor @ noise)[..., 0]
    return places


def sample_at(
    views: Sequence[ViewPosterior],
    x: Tensor,
    source: torch.Generator,
    offsets: Offsets | None = None,
) -> Tensor:
    """Draw new observations at latents, one draw of the spectrum per row and view, (n, D) -> (n,
    sum of M).
    """
    out = []
    for view, offset in zip(views, offsets or [None] * len(views), strict=True):
        which = torch.randint(len(view.draws), (x.shape[0],), generator=source)
        y = torch.empty(x.shape[0], view.n_data_columns, dtype=torch.float64)
        for s, draw in enumerate(view.draws):
            rows = (which == s).nonzero()[:, 0]
            if not rows.numel():
                continue
            mean, variance = view.psi(
                draw, draw.features(x[rows]), None if offset is None else offset[rows]
            )
            psi = mean + variance.sqrt() * torch.randn(
                mean.shape, generator=source, dtype=torch.float64
            )
            y[rows] = view.predictive.draw(psi, source)
        out.append(y)
    return torch.cat(out, dim=1)


def intervals(
    views: Sequence[ViewPosterior], x: Tensor, level: float, seed: int, n_draws: int = 400
) -> tuple[Tensor, Tensor]:
    """Return central intervals of new observations at latents, by draws: values that the data could
    have.

    Parameters
    ----------
    views : sequence of ViewPosterior
    x : Tensor of shape (n, D), float64
    level : float
        Probability inside, in (0, 1).
    seed, n_draws : int

    Returns
    -------
    low, high : Tensor of shape (n, sum of M)
    """
    n_columns = sum(view.n_data_columns for view in views)
    levels = torch.tensor([0.5 - 0.5 * level, 0.5 + 0.5 * level], dtype=torch.float64)
    bounds = []
    for part in chunks(x.shape[0], max(1, _QUANTILE_NUMBERS // (n_draws * n_columns))):
        source = random.generator(seed, "intervals", part.start)
        drawn = torch.stack([sample_at(views, x[part], source) for _ in range(n_draws)])
        bounds.append(torch.quantile(drawn, levels, dim=0, interpolation="nearest"))
    low, high = torch.cat(bounds, dim=1)
    return low, high


def log_density(
    views: Sequence[ViewPosterior],
    placement: Placement,
    rows: Sequence[Tensor],
    n_samples: int,
    seed: int,
    offsets: Offsets | None = None,
) -> Tensor:
    """Estimate log of the integral of p(y_observed | x) p(x) per row by importance sampling around
    its modes.

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
    encoded = [view.encode(y) for view, y in zip(views, rows, strict=True)]
    width = n_samples * max(view.n_columns for view in views)
    for part in chunks(rows[0].shape[0], min(_CHUNK, max(1, _SCORE_NUMBERS // width))):
        p = Placement(placement.modes[part], placement.covariances[part], placement.weights[part])
        x, log_ratio = _proposals(p, n_samples, seed)
        own = [y[part].repeat_interleave(n_samples, dim=0) for y in encoded]
        sizes = [
            None if o is None else o[part].repeat_interleave(n_samples)
            for o in offsets or [None] * len(views)
        ]
        likelihood = _log_likelihood(views, x.flatten(0, 1), own, sizes).reshape(-1, n_samples)
        densities.append((likelihood + log_ratio).logsumexp(1) - math.log(n_samples))
    return torch.cat(densities)


def _proposals(placement: Placement, n_samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw from the modes' mixture, widened and with a tenth of the prior; return x and log p(x) -
    log q(x).
    """
    n, n_modes, dim = placement.modes.shape
    source = random.generator(seed, "score")
    wide = 1.5**2 * placement.covariances
    prior = torch.eye(dim, dtype=torch.float64).expand(n, 1, -1, -1)
    means = torch.cat([placement.modes, torch.zeros(n, 1, dim, dtype=torch.float64)], dim=1)
    factors = torch.linalg.cholesky(torch.cat([wide, prior], dim=1))
    weights = torch.cat(
        [0.9 * placement.weights, torch.full((n, 1), 0.1, dtype=torch.float64)], dim=1
    )
    # the same uniforms for every row: a row's score does not depend on its batch
    uniform = (
        torch.rand(n_samples, generator=source, dtype=torch.float64).expand(n, -1).contiguous()
    )
    index = torch.searchsorted(weights.cumsum(1), uniform).clamp(max=n_modes)
    noise = torch.randn(n_samples, dim, generator=source, dtype=torch.float64)
    rows = torch.arange(n)[:, None]
    x = means[rows, index] + (factors[rows, index] @ noise[None, :, :, None])[..., 0]
    away = torch.linalg.solve_triangular(
        factors[:, None], (x[:, :, None] - means[:, None])[..., None], upper=False
    )
    log_q = (
        -0.5 * away[..., 0].square().sum(-1)
        - torch.diagonal(factors, dim1=-2, dim2=-1).log().sum(-1)[:, None]
    )
    log_q = (log_q + weights.log()[:, None]).logsumexp(-1)
    return x, -0.5 * x.square().sum(-1) - log_q


def _log_likelihood(
    views: Sequence[ViewPosterior], x: Tensor, rows: Sequence[Tensor], offsets: Offsets
) -> Tensor:
    """Return sum_v log mean_s p(y_v | x, W_s) over observed entries, (n,)."""
    total = torch.zeros(x.shape[0], dtype=torch.float64)
    for view, y, offset in zip(views, rows, offsets, strict=True):
        seen, filled = ~y.isnan(), torch.nan_to_num(y)
        by_draw = []
        for draw in view.draws:
            entries = view.predictive.log_predictive(
                filled, *view.psi(draw, draw.features(x), offset)
            )
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
