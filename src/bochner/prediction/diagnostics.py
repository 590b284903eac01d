"""What drives a latent dimension: the columns' variance that it explains, and their slopes. Did the
model collapse? A report after any fit, and the exact answer for the linear kernel (docs/math.md,
section 6).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bochner import markup
from bochner.data.arrays import Float64Array
from bochner.features.fourier import columns_beside, expected_features, jet, with_covariates
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.categorical import Categorical
from bochner.likelihoods.counts import moment_dispersion
from bochner.likelihoods.likelihood import shifted
from bochner.likelihoods.negative_binomial import LARGEST, SMALLEST, NegativeBinomial
from bochner.likelihoods.poisson import Poisson
from bochner.memory import chunks
from bochner.weight_posterior.posterior import GaussianPosterior, ViewPosterior

# Counts of a Poisson view that vary so many times as much as Poisson counts are warned of.
_OVERDISPERSED = 1.5
# Share of the rows, those furthest from their means, that this leaves out.
_FURTHEST = 0.01
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
        variance of f_j over rows plus the noise variance of the column. Where the
        view is not Gaussian f is the linear predictor, and its mean variance under the weights'
        posterior takes the place of the noise; of categories its sticks are summed. 0 where a
        view does not see the dimension.
    """
    return torch.cat([_of_view(view, x) for view in views])


def _of_view(view: ViewPosterior, x: Tensor) -> Tensor:
    fitted = predicted(view, x)
    lost = torch.zeros(fitted.shape[1], x.shape[1], dtype=torch.float64)
    for d in view.dims or range(x.shape[1]):
        lost[:, d] = (fitted - predicted(view, x, d)).square().mean(0)
    total = fitted.var(0, unbiased=False) + view.residual_variance(x)
    by_data_column = view.likelihood.by_data_column
    return by_data_column(lost.T).T / by_data_column(total[None]).T.clamp(min=1e-300)


def predicted(view: ViewPosterior, x: Tensor, without: int | None = None) -> Tensor:
    """Return the mean of psi without intercept, (n, D) or (n, D + L) -> (n, columns of psi), one
    dimension integrated out under its prior if asked.
    """
    n_dims = view.draws[0].frequencies.first.shape[1]
    covariance = torch.zeros(1, n_dims, n_dims, dtype=x.dtype)
    if without is not None:
        covariance[0, without, without] = 1.0
        x = x.index_fill(1, torch.tensor([without]), 0.0)
    means = [
        expected_features(x, covariance, draw.frequencies) @ draw.mean for draw in view.draws
    ]
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


# A dimension is dead whose means have less variance than this and whose posterior has more than
# this share of the prior's; a view is noise alone from this share on.
_DEAD_SIGNAL = 0.05
_DEAD_RATIO = 0.8
_ALL_NOISE = 0.98
_ALIVE = (
    "No collapse: every dimension and every view carries signal. Dimensions that the data do not "
    "need may do so too: bo.select_n_components asks held-out entries."
)
_ALL_DEAD = (
    "No latent dimension carries anything: one mean per column explains the rows as well. Check "
    "the columns, or try another init."
)
# Rows whose derivatives are held at once, and how many tell what those of all are, to a hundredth.
_CHUNK = 1024
_RELEVANT = 8192


@dataclass(frozen=True)
class CollapseReport:
    """What each latent dimension carries.

    Attributes
    ----------
    dead : tuple of int
        Dimensions whose means hardly vary and whose posterior is about the prior.
    variance_ratio : ndarray of shape (D,)
        Mean posterior variance over prior variance: near 0 the data decide, near 1 nothing was
        learned.
    effective_dimensions : float
        Participation ratio of the covariance of the latent means, in [1, D]: how evenly places
        spread over the dimensions, not how many of them the data need; 0 when all means coincide.
    noise_share : dict of str to float
        Learned noise variance of each view over its total variance, both over observed entries.
    """

    dead: tuple[int, ...]
    variance_ratio: Float64Array
    effective_dimensions: float
    noise_share: dict[str, float]

    @property
    def collapsed(self) -> bool:
        """Whether a dimension is dead or a view is explained as noise alone."""
        return bool(self.dead) or any(
            share > _ALL_NOISE for share in self.noise_share.values()
        )

    def advice(self) -> str:
        """Say what to change, or that nothing needs to be."""
        lines = []
        keep = len(self.variance_ratio) - len(self.dead)
        if not keep:
            # neither fewer dimensions nor more of them would help
            return _ALL_DEAD
        if self.dead:
            lines.append(
                f"Latent dimensions {list(self.dead)} carry nothing: fit with "
                f"n_components={keep}, or try another init."
            )
        lines += [
            f"View {name!r} is explained as noise alone: check its columns, or raise n_components "
            "or max_iter."
            for name, share in self.noise_share.items()
            if share > _ALL_NOISE
        ]
        return " ".join(lines) or _ALIVE

    def _repr_html_(self) -> str:
        """Return the report as a table, for notebooks."""
        rows: list[tuple[str, str, str]] = [
            (f"dimension {d}", f"{ratio:.3f}", "dead" if d in self.dead else "carries signal")
            for d, ratio in enumerate(self.variance_ratio)
        ]
        noise = [f"noise share of view {v!r}: {s:.3f}" for v, s in self.noise_share.items()]
        count = f"{self.effective_dimensions:.2f} of {len(self.variance_ratio)}"
        heads = ("", "posterior/prior variance", "")
        below = [f"participation ratio of the places: {count}", *noise, self.advice()]
        return markup.table("What latent dimensions carry", heads, rows, below)

    def __str__(self) -> str:
        """Return the report as a few lines of text."""
        ratios = ", ".join(f"{r:.3f}" for r in self.variance_ratio)
        noise = ", ".join(f"{name}: {share:.3f}" for name, share in self.noise_share.items())
        return (
            f"posterior/prior variance per dimension: {ratios}\n"
            f"participation ratio of the places: {self.effective_dimensions:.2f} of "
            f"{len(self.variance_ratio)}\n"
            f"noise share per view: {noise}\n{self.advice()}"
        )


def collapse(
    mean: Float64Array, std: Float64Array, noise_share: Mapping[str, float]
) -> CollapseReport:
    """Diagnose collapse from the posterior of the latents.

    Parameters
    ----------
    mean, std : ndarray of shape (N, D)
        Of q(x_n) under the prior N(0, I).
    noise_share : mapping of str to float
        Learned noise variance over total variance, per view.

    Returns
    -------
    CollapseReport
    """
    ratio: Float64Array = np.mean(std**2, axis=0)
    signal = mean.var(axis=0)
    dead = tuple(
        int(d) for d in np.flatnonzero((signal < _DEAD_SIGNAL) & (ratio > _DEAD_RATIO))
    )
    values = np.linalg.eigvalsh(np.atleast_2d(np.cov(mean, rowvar=False)))
    total = float(values.sum())
    effective = total**2 / float(np.square(values).sum()) if total > 0 else 0.0
    return CollapseReport(dead, ratio, effective, dict(noise_share))


def noise_shares(views: Sequence[ViewPosterior], rows: Sequence[Tensor]) -> dict[str, float]:
    """Return the learned noise variance of every Gaussian view over its total variance.

    Parameters
    ----------
    views : sequence of ViewPosterior
    rows : sequence over views of Tensor of shape (n, M_v)
        Scaled data, whose observed entries have variance 1 over a view; NaN = missing.

    Returns
    -------
    dict of str to float
        Every observed entry counts alike, as in the variance of the view: columns that hardly a
        row has learn any noise of their own, also more than the variance.
    """
    shares = {}
    for view, y in zip(views, rows, strict=True):
        if isinstance(view, GaussianPosterior):
            counts = (~y.isnan()).sum(0).double()
            noise = torch.as_tensor(view.noise_variance, dtype=torch.float64).expand_as(counts)
            shares[view.name] = float(noise @ counts / counts.sum().clamp(min=1.0))
    return shares


@dataclass(frozen=True)
class CountMoments:
    """How far counts lie from their fitted means.

    Attributes
    ----------
    dispersions : dict of str to ndarray
        Of negative binomial views, by moments: a check on the learned ones, as many numbers as
        were learned; a little too large, since the fitted means have seen the counts.
    overdispersion : dict of str to float
        Of Poisson views, Pearson's squared distances from the means over the means, per degree of
        freedom that latents leave, without one row of a hundred: 1 where counts are Poisson's.
    """

    dispersions: dict[str, Float64Array]
    overdispersion: dict[str, float]

    def advice(self) -> list[str]:
        """Say of every view whose counts are no Poisson counts what to fit instead."""
        return [
            f"The counts of view {name!r} vary {_times(ratio)} as much about their fitted means as "
            "Poisson counts do: bounds and standard deviations take noise for structure. Fit with "
            f"likelihood={{{name!r}: 'negative_binomial'}}, or with more dimensions."
            for name, ratio in self.overdispersion.items()
            if ratio > _OVERDISPERSED
        ]


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if ratio < 1000 else "more than a thousand times"


def _pearson(y: Tensor, mean: Tensor) -> float:
    """Return squared distances from the means over the means, all (N, M), without those rows of a
    hundred that are furthest off: one whose place lies beside the others' says nothing of counts.
    """
    squares = (y - mean).square_().nan_to_num_(0.0, math.inf).sum(1)
    means = mean.masked_fill(y.isnan(), 0.0).sum(1)
    kept = squares.argsort()[: len(y) - math.ceil(_FURTHEST * len(y))]
    return float(squares[kept].sum() / means[kept].sum())


def _freedom(placement: Placement, rows: Sequence[Tensor]) -> float:
    """Return the share of the entries' degrees of freedom that places leave: each takes as many as
    its data narrow the prior.
    """
    dim = placement.modes.shape[2]
    taken = dim - placement.covariances[:, 0].diagonal(dim1=1, dim2=2).sum(1).clamp(0, dim)
    entries = sum(int(y.isfinite().sum()) for y in rows)
    return max(1 - float(taken.sum()) / max(entries, 1), 0.5)


def count_moments(
    views: Sequence[ViewPosterior],
    placement: Placement,
    rows: Sequence[Tensor],
    offsets: Sequence[Tensor | None],
) -> CountMoments:
    """Compare counts with their fitted means.

    Parameters
    ----------
    views : sequence of ViewPosterior
    placement : Placement
        Of N training rows.
    rows : sequence over views of Tensor of shape (N, M_v)
        NaN = missing.
    offsets : sequence over views of Tensor of shape (N,), or None

    Returns
    -------
    CountMoments
        Other views are left out.
    """
    moments = CountMoments({}, {})
    x = placement.inputs(placement.mean)
    for view, y, offset in zip(views, rows, offsets, strict=True):
        likelihood = view.likelihood
        if not isinstance(likelihood, NegativeBinomial | Poisson):
            continue
        draw = view.draws[0]
        mean = shifted(view.with_intercept(draw.features(x) @ draw.mean), offset).exp_()
        if isinstance(likelihood, NegativeBinomial):
            shared = likelihood.dispersion.ndim == 0
            moment = moment_dispersion(
                y, mean, shared=shared, smallest=SMALLEST, largest=LARGEST
            )
            moments.dispersions[view.name] = moment.numpy()
        else:
            moments.overdispersion[view.name] = _pearson(y, mean) / _freedom(placement, rows)
    return moments


def relevance(views: Sequence[ViewPosterior], x: Tensor) -> Float64Array:
    """How much of each view varies along each latent dimension.

    Parameters
    ----------
    views : sequence of ViewPosterior
    x : Tensor of shape (N, D), float64
        Latents of the training rows.

    Returns
    -------
    ndarray of shape (V, D)
        E ||df_v/dx_d||^2 Var x_d over draws and rows, of many rows some; rows sum to 1.
    """
    some = x[:: -(-len(x) // _RELEVANT)]
    out = []
    for view in views:
        total = torch.zeros(x.shape[1], dtype=torch.float64)
        for draw in view.draws:
            k, m = draw.mean.shape
            quadratic = None if m < k else draw.mean @ draw.mean.T
            for part in torch.split(some, _CHUNK):
                jacobian = jet(part, draw.frequencies).jacobian
                if quadratic is None:
                    total += (jacobian @ draw.mean).square_().sum((0, 2))
                else:
                    total += ((jacobian @ quadratic) * jacobian).sum((0, 2))
        total *= x.var(0, unbiased=False)
        out.append((total / total.sum().clamp(min=1e-300)).numpy())
    return np.array(out)


def variance_explained(
    views: Sequence[ViewPosterior],
    x: Tensor,
    rows: Sequence[Tensor],
    covariates: Tensor | None = None,
) -> Float64Array:
    """How much of each view's variance is lost when a latent dimension is not known.

    Parameters
    ----------
    views : sequence of ViewPosterior
    x : Tensor of shape (N, D), float64
        Latents of rows.
    rows : sequence over views of Tensor of shape (N, M_v), float64
        Scaled data of those rows, NaN = missing.
    covariates : Tensor of shape (N, L), float64, optional
        Of those rows: what they explain counts for no dimension.

    Returns
    -------
    ndarray of shape (V, D)
        (||Y - Y_d||^2 - ||Y - Y_all||^2) / ||Y - mean||^2 over observed entries, where Y_all is the
        prediction at x and Y_d that with dimension d integrated out under its prior N(0, 1), in
        closed form. 0 where a view does not see the dimension, or has no variance. Of non-conjugate
        views psi takes the place of the data. Rows need not sum to R^2: what dimensions do together
        counts for each of them.
    """
    n_dims = x.shape[1]
    x = with_covariates(x, columns_beside(covariates, len(x)))
    out = torch.zeros(len(views), n_dims, dtype=torch.float64)
    for v, (view, y) in enumerate(zip(views, rows, strict=True)):
        parts = torch.split(x, _CHUNK)
        fitted = torch.cat([predicted(view, part) for part in parts])
        truth = view.explained(y, fitted)
        centre = torch.nan_to_num(truth.nanmean(0))
        chunks = list(
            zip(parts, torch.split(truth, _CHUNK), torch.split(fitted, _CHUNK), strict=True)
        )
        total = _summed((known - centre).square() for _, known, _ in chunks)
        for d in view.dims or range(n_dims):
            out[v, d] = _summed(
                (known - predicted(view, part, d)).square() - (known - best).square()
                for part, known, best in chunks
            )
        # rows that are alike, to rounding, have no variance to explain
        rounding = 64.0 * torch.finfo(y.dtype).eps * (1.0 + float(centre.abs().max()))
        out[v] = out[v] / total if float(total) > y.numel() * rounding**2 else 0.0
    shares: Float64Array = out.numpy()
    return shares


def _summed(parts: Iterable[Tensor]) -> Tensor:
    """Return the sum of all entries but NaN; one part is held at a time."""
    return torch.stack([part.nansum() for part in parts]).sum()
