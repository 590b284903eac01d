"""What a fitted model says about data: reconstructions, completions, densities, samples; all
scaled, all float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bochner import random
from bochner.features.fourier import expected_features, jet, with_covariates
from bochner.latent_inference.candidates import MANY_DIMENSIONS
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.categorical import Categorical
from bochner.likelihoods.likelihood import Offsets, offsets_of, rows_of
from bochner.linalg import covariance_root
from bochner.memory import chunks
from bochner.weight_posterior.posterior import ViewPosterior

# Rows that are decoded at once.
_CHUNK = 1024
# Numbers of the slopes of columns along latents that are held at once.
_SLOPES = 2**24
# Points of latent space that stand for all of it.
_PRIOR_POINTS = 1024
# Weight below which a mode's part of a completion is beyond its last digit.
_NO_WEIGHT = 1e-12
# Draws of an observation, of which its interval is quantiles.
_QUANTILE_DRAWS = 400
# Numbers of which quantiles are taken at once.
_QUANTILE_NUMBERS = 2**23


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
    x : Tensor of shape (n, D), float64, or (n, D + L) with covariates, which are 0 where they are
        left out: their average
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
    means = []
    variances = []
    for part in chunks(x.shape[0], _CHUNK):
        spread = rows_of(covariance, part)
        row_offsets = offsets_of(offsets or [None] * len(views), part)
        of_views = [
            _decode_view(view, x[part], spread, o)
            for view, o in zip(views, row_offsets, strict=True)
        ]
        means.append(torch.cat([mean for mean, _ in of_views], dim=1))
        variances.append(torch.cat([variance for _, variance in of_views], dim=1))
    return torch.cat(means), torch.cat(variances)


def _decode_view(
    view: ViewPosterior, x: Tensor, covariance: Tensor | None, offset: Tensor | None
) -> tuple[Tensor, Tensor]:
    means = []
    variances = []
    for draw in view.draws:
        phi = draw.features(x)
        psi, variance = view.psi(draw, phi, offset)
        if covariance is not None:
            psi = psi + (expected_features(x, covariance, draw.frequencies) - phi) @ draw.mean
            # x's uncertainty as the rows of a square root R: sum over d of (R^T J)^2 is diag(J^T
            # cov J)
            # as rows are placed
            dtype = x.dtype if covariance.shape[1] <= MANY_DIMENSIONS else torch.float32
            root = covariance_root(covariance).transpose(1, 2).to(dtype)
            slopes = (
                root @ jet(x.to(dtype), draw.frequencies.to(dtype)).jacobian
            ) @ draw.mean.to(dtype)
            variance = variance + slopes.square().sum(1).to(x.dtype)
        m, v = view.predict(psi, variance, offset)
        means.append(m)
        variances.append(v)
    if isinstance(view.likelihood, Categorical):
        # categories have no average
        return means[0], variances[0]
    stacked = torch.stack(means)
    return stacked.mean(0), torch.stack(variances).mean(0) + stacked.var(0, unbiased=False)


def complete(
    views: Sequence[ViewPosterior],
    placement: Placement,
    offsets: Offsets | None = None,
) -> tuple[Tensor, Tensor]:
    """Predict every column of placed rows: the mixture over their modes; of categories that of the
    best mode.

    Returns
    -------
    mean, variance : Tensor of shape (n, sum of M)
    """
    means = []
    variances = []
    given = offsets or [None] * len(views)
    kept = _categories(views)
    slopes = placement.modes.shape[2] * sum(
        view.n_columns + view.draws[0].frequencies.n_features for view in views
    )
    for part in chunks(placement.modes.shape[0], max(1, min(_CHUNK, _SLOPES // slopes))):
        row_offsets = offsets_of(given, part)
        modes = [
            _decode_mode(views, placement, part, r, row_offsets)
            for r in range(placement.modes.shape[1])
        ]
        weights = placement.weights[part, :, None].unbind(1)
        mean = torch.stack([w * m for w, (m, _) in zip(weights, modes, strict=True)]).sum(0)
        # spread about the mean first: squares of large means would cancel
        spread = [
            w * (v + (m - mean).square()) for w, (m, v) in zip(weights, modes, strict=True)
        ]
        variance = torch.stack(spread).sum(0)
        means.append(torch.where(kept, modes[0][0], mean))
        variances.append(torch.where(kept, modes[0][1], variance))
    mean, variance = torch.cat(means), torch.cat(variances)
    unknown = _at_prior(placement).nonzero()[:, 0]
    if unknown.numel():
        at_prior = _under_the_prior(views, placement.of(unknown), offsets_of(given, unknown))
        mean[unknown] = torch.where(kept, mean[unknown], at_prior[0])
        variance[unknown] = torch.where(kept, variance[unknown], at_prior[1])
    return mean, variance


def _at_prior(placement: Placement) -> Tensor:
    """Mark the rows of which nothing is known, (n,): one mode, with the prior's covariance."""
    eye = torch.eye(placement.modes.shape[2], dtype=placement.modes.dtype)
    alone = placement.weights[:, 0] == 1.0
    return alone & (placement.covariances[:, 0] == eye).flatten(1).all(1)


def _under_the_prior(
    views: Sequence[ViewPosterior], placement: Placement, offsets: Offsets
) -> tuple[Tensor, Tensor]:
    """Predict rows of which nothing is known: over all latent space functions are far from linear,
    so that moments are means over its points. Rows with the same covariates and size factors have
    the same.
    """
    same = placement.covariates.new_zeros(len(placement.covariates), 1)
    given = [same, placement.covariates, *(o[:, None] for o in offsets if o is not None)]
    _, which = torch.unique(torch.cat(given, dim=1), dim=0, return_inverse=True)
    source = random.generator(0, "prior")
    points = random.normal(_PRIOR_POINTS, placement.modes.shape[2], source, "sobol")
    moments = []
    for kind in range(int(which.max()) + 1):
        row = (which == kind).nonzero()[:1, 0].expand(len(points))
        x = with_covariates(points, placement.covariates[row])
        mean, variance = decode(views, x, offsets=offsets_of(offsets, row))
        spread = mean.var(0, unbiased=False)
        moments.append(torch.stack([mean.mean(0), variance.mean(0) + spread]))
    of_rows = torch.stack(moments)[which]
    return of_rows[:, 0], of_rows[:, 1]


def _decode_mode(
    views: Sequence[ViewPosterior],
    placement: Placement,
    part: slice,
    r: int,
    offsets: Offsets,
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
    x = placement.modes[part, r][index]
    covariance = placement.covariances[part, r][index]
    decoded = decode(
        views,
        with_covariates(x, placement.covariates[part][index]),
        covariance,
        offsets_of(offsets, index),
    )
    mean, variance = (
        part_of_view.new_zeros(part.stop - part.start, part_of_view.shape[1]).index_copy(
            0, index, part_of_view
        )
        for part_of_view in decoded
    )
    return mean, variance


def _categories(views: Sequence[ViewPosterior]) -> Tensor:
    """Mark the data columns that hold categories, (sum of M,)."""
    marks = [
        torch.full((view.n_data_columns,), isinstance(view.likelihood, Categorical))
        for view in views
    ]
    return torch.cat(marks)


def draw_latents(placement: Placement, n_draws: int, seed: int) -> Tensor:
    """Draw where placed rows lie: a mode by its weight, then a place around it.

    Returns
    -------
    Tensor of shape (n, n_draws, D), or (n, n_draws, D + L) with the rows' covariates
    """
    n, _, dim = placement.modes.shape
    source = random.generator(seed, "complete")
    index = torch.multinomial(placement.weights, n_draws, replacement=True, generator=source)
    rows = torch.arange(n)[:, None]
    factor = covariance_root(placement.covariances[rows, index])
    noise = torch.randn(n, n_draws, dim, 1, generator=source, dtype=torch.float64)
    places: Tensor = placement.modes[rows, index] + (factor @ noise)[..., 0]
    return placement.inputs(places)


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
            of_rows = rows_of(offset, rows)
            mean, variance = view.psi(draw, draw.features(x[rows]), of_rows)
            psi = mean + variance.sqrt() * torch.randn(
                mean.shape, generator=source, dtype=torch.float64
            )
            y[rows] = view.drawn(psi, source, of_rows)
        out.append(y)
    return torch.cat(out, dim=1)


def intervals(
    views: Sequence[ViewPosterior],
    x: Tensor,
    level: float,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Return central intervals of new observations at latents, by draws: values that the data could
    have.

    Parameters
    ----------
    views : sequence of ViewPosterior
    x : Tensor of shape (n, D), float64
    level : float
        Probability inside, in (0, 1).
    seed : int

    Returns
    -------
    low, high : Tensor of shape (n, sum of M)
    """
    n_columns = sum(view.n_data_columns for view in views)
    levels = torch.tensor([0.5 - 0.5 * level, 0.5 + 0.5 * level], dtype=torch.float64)
    bounds = []
    for part in chunks(x.shape[0], max(1, _QUANTILE_NUMBERS // (_QUANTILE_DRAWS * n_columns))):
        source = random.generator(seed, "intervals", part.start)
        drawn = torch.stack(
            [sample_at(views, x[part], source) for _ in range(_QUANTILE_DRAWS)]
        )
        bounds.append(torch.quantile(drawn, levels, dim=0, interpolation="nearest"))
    low, high = torch.cat(bounds, dim=1)
    return low, high


def kernel(view: ViewPosterior, x: Tensor) -> Tensor:
    """Return the mean over the stored draws of phi(x)^T phi(x'), shape (n, n)."""
    products = []
    for draw in view.draws:
        phi = draw.features(x)
        products.append(phi @ phi.T)
    return torch.stack(products).mean(0)
