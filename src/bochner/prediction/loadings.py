"""What drives a latent dimension: the columns' variance that it explains, and their slopes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bochner.features.fourier import expected_features, jet
from bochner.likelihoods.categorical import Categorical
from bochner.memory import chunks
from bochner.weight_posterior.posterior import ViewPosterior

# Numbers of features' derivatives that are held at once.
_NUMBERS = 2**23


def explained(views: Sequence[ViewPosterior], x: Tensor) -> Tensor:
    """Return the share of each column's variance that is lost when a dimension is not known.

    Parameters
    ----------
    views : sequence of ViewPosterior
    x : Tensor of shape (n, D), float64
        Latents of rows; covariates are at their average.

    Returns
    -------
    Tensor of shape (sum of data columns, D)
        Mean over rows of (f_j(x) - E f_j(x with x_d ~ N(0, 1)))^2, in closed form, over the
        variance of f_j over rows plus the noise variance of the column. Where the view is not
        Gaussian f is the linear predictor and there is no noise; of categories its sticks are
        summed. 0 where a view does not see the dimension.
    """
    return torch.cat([_of_view(view, x) for view in views])


def _of_view(view: ViewPosterior, x: Tensor) -> Tensor:
    fitted = predicted(view, x)
    lost = torch.zeros(fitted.shape[1], x.shape[1], dtype=torch.float64)
    for d in view.dims or range(x.shape[1]):
        lost[:, d] = (fitted - predicted(view, x, d)).square().mean(0)
    total = fitted.var(0, unbiased=False)
    if view.local is None:
        noise = torch.as_tensor(view.noise_variance, dtype=torch.float64)
        total = total + noise.expand(total.shape)
    lost, total = _data_columns(view, lost), _data_columns(view, total[:, None])
    return lost / total.clamp(min=1e-300)


def predicted(view: ViewPosterior, x: Tensor, without: int | None = None) -> Tensor:
    """Return the mean of psi without intercept, (n, D) or (n, D + L) -> (n, columns of psi), one
    dimension integrated out under its prior if asked.
    """
    n_dims = view.draws[0].frequencies.first.shape[1]
    covariance = torch.zeros(1, n_dims, n_dims, dtype=x.dtype)
    if without is not None:
        covariance[0, without, without] = 1.0
        x = x.index_fill(1, torch.tensor([without]), 0.0)
    means = [expected_features(x, covariance, draw.frequencies) @ draw.mean for draw in view.draws]
    return torch.stack(means).mean(0)


def slopes(views: Sequence[ViewPosterior], x: Tensor) -> Tensor:
    """Return the derivatives of every column's linear predictor along the latent dimensions.

    Parameters
    ----------
    views : sequence of ViewPosterior
    x : Tensor of shape (n, D), float64

    Returns
    -------
    Tensor of shape (n, sum of data columns, D)
        Scaled units; NaN for categories, whose sticks have a slope each.
    """
    return torch.cat([_slopes_of_view(view, x) for view in views], dim=1)


def _slopes_of_view(view: ViewPosterior, x: Tensor) -> Tensor:
    if isinstance(view.likelihood, Categorical):
        shape = (x.shape[0], view.n_data_columns, x.shape[1])
        return torch.full(shape, torch.nan, dtype=torch.float64)
    size = x.shape[1] * view.draws[0].frequencies.n_features
    out = []
    for part in chunks(x.shape[0], max(1, _NUMBERS // size)):
        of_draws = [jet(x[part], draw.frequencies).jacobian @ draw.mean for draw in view.draws]
        out.append(torch.stack(of_draws).mean(0).transpose(1, 2))
    return torch.cat(out)


def _data_columns(view: ViewPosterior, values: Tensor) -> Tensor:
    """Sum over the columns of psi that belong to one data column."""
    if not isinstance(view.likelihood, Categorical):
        return values
    parts = torch.split(values, list(view.likelihood.group_sizes))
    return torch.stack([part.sum(0) for part in parts])
