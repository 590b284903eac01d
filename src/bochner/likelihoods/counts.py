"""What count likelihoods share: size factors, intercepts, moments."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.special import log_ndtr

from bochner.errors import InputError, message
from bochner.likelihoods.likelihood import of_each_row, per_size
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.memory import passes

# How far the site of an entry may ask its log mean to go: a factor of e^2.
REACH = 2.0
_LARGEST_TABLE = 2**16
_BISECTIONS = 30  # of a range of e^14 or less
_SMALLEST_MEAN = 1e-12

# A log mean that is so unsure is known to a factor of e, one standard deviation to either side.
LARGEST_VARIANCE = 1.0
# Counts of a log mean beyond this have no integer of 64 bits.
LARGEST_LOG_RATE = 43.0
# Counts above which series have more digits than differences of logarithms of gamma functions.
_MANY = 1e6
# Standard deviations from the largest log rate at which it plays no part.
_FAR = 9.0

# Shapes of gamma variables at which counts are tabulated: those of log rates with standard
# deviations of 0.003 to 4.
_SHAPES = torch.logspace(-1.0, 5.0, 25, dtype=torch.float64)

SizeFactors = Literal["total"] | None


class Counts(NonConjugateLikelihood):
    """Counts of mean e^psi, with size factors.

    Parameters
    ----------
    **params
        Of the likelihood: ``size_factors``, None or "total", and its own.

    Raises
    ------
    InputError
        Other size factors.
    """

    knows_by_rows: ClassVar[bool] = True
    support: ClassVar[str] = "counts"

    def __init__(self, *, size_factors: SizeFactors, **params: object) -> None:
        super().__init__(size_factors=size_factors, **params)
        named = isinstance(size_factors, str) and size_factors == "total"
        if size_factors is not None and not named:
            do = "pass factors of your own to fit(X, size_factors=...) and leave this at None"
            raise InputError(message("size_factors None or 'total'", repr(size_factors), do))
        self.size_factors = size_factors

    def mean(self, psi: Tensor) -> Tensor:
        """Return e^psi."""
        return psi.exp()

    def predict(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of counts whose log mean is normal, in closed form; see
        `rate_moments` for log means that are hardly known.
        """
        return self.predict_below(mean, variance, None)

    def largest_psi(self, y: Tensor, offset: Tensor | None) -> Tensor:
        """Return the log of e^2 times the largest count over size, by column."""
        return largest_log_rate(y, offset) + REACH

    def intercept(
        self,
        y: Tensor,
        offset: Tensor | None,
        columns: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return the log of mean count over mean size."""
        return log_rate(y, offset)

    def surrogate(self, Y: Tensor, offset: Tensor | None) -> Tensor:
        """Return log(1 + y / size)."""
        return log_normalised(Y, offset)


def rate_moments(
    mean: Tensor, variance: Tensor, most: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of a rate whose logarithm psi is normal, as far as data can say
    them.

    The mean of a log-normal variable is its median times e^(variance/2): where psi is all but
    unknown, rates that nobody has measured make up all of it, and it overflows. Variances above 1
    therefore count as 1: the mean is then sqrt(e) times the median. And rates beyond the largest
    count as the largest: the moments are those of e^min(psi, most).

    Parameters
    ----------
    mean, variance : Tensor of shape (n, M)
        Of psi.
    most : Tensor of shape (n, M), optional
        The largest psi; never more than integers of 64 bits hold.

    Returns
    -------
    mean, variance : Tensor of shape (n, M)
        Of the rate.
    """
    variance = variance.clamp(max=LARGEST_VARIANCE)
    limit = torch.full_like(mean, LARGEST_LOG_RATE)
    most = limit if most is None else most.clamp(max=LARGEST_LOG_RATE).expand_as(mean)
    std = variance.clamp(min=1e-24).sqrt()
    first, second = (
        _below(mean, variance, std, most, k) + (k * most + log_ndtr((mean - most) / std)).exp()
        for k in (1, 2)
    )
    known = (mean + 0.5 * variance).exp()
    far = most - mean > _FAR * std + 2.0 * variance
    # the difference of the moments loses what is small beside their square
    return torch.where(far, known, first), torch.where(
        far, known.square() * variance.expm1(), (second - first.square()).clamp(min=0.0)
    )


def _below(mean: Tensor, variance: Tensor, std: Tensor, most: Tensor, k: int) -> Tensor:
    """Return the part of E e^(k psi) that psi below the largest makes up."""
    share: Tensor = log_ndtr((most - mean - k * variance) / std)
    return (k * mean + 0.5 * k * k * variance + share).exp()


def largest_log_rate(y: Tensor, offset: Tensor | None) -> Tensor:
    """Return the log of the largest count over size, by column, half a count added; -inf where
    none is known.

    Parameters
    ----------
    y : Tensor of shape (n, M)
        NaN = missing.
    offset : Tensor of shape (n,), optional
        Logarithms of the size factors.
    """
    rates = per_size(y + 0.5, offset)
    return torch.nan_to_num(rates, nan=0.0).amax(0).log()


def tabulated(y: Tensor) -> Tensor | None:
    """Return counts as the index of a table of 0 to their largest, where that is shorter than they
    are many; else None.
    """
    if not y.numel():
        return None
    low, high = (float(end) for end in y.aminmax())
    if not (low >= 0.0 and high < min(_LARGEST_TABLE, y.numel())):
        return None
    index = y.int()
    return index if torch.equal(index.to(y.dtype), y) else None


def log_factorial(y: Tensor) -> Tensor:
    """Return log y! in the precision of y: looked up where few counts occur many times."""
    index = tabulated(y)
    if index is None:
        return (y.double() + 1.0).lgamma().to(y.dtype)
    counts = torch.arange(1.0, float(index.max()) + 2.0, dtype=torch.float64, device=y.device)
    # four times as fast as indexing
    return counts.lgamma().to(y.dtype).index_select(0, index.flatten()).view(y.shape)


def log_peak(y: Tensor) -> Tensor:
    """Return the log of the largest probability that a Poisson count can have, that of y where its
    mean is y, in the precision of y; of 0 that where the mean is 1.
    """
    exact = y.double()
    size = exact.clamp(min=1.0)
    small = exact * size.log() - size - log_factorial(exact)
    many = exact > _MANY
    if not bool(many.any()):
        return small.to(y.dtype)
    series = -0.5 * (2.0 * math.pi * size).log() - 1.0 / (12.0 * size)
    return torch.where(many, series, small).to(y.dtype)


def log_gamma_ratio(y: Tensor, r: Tensor) -> Tensor:
    """Return log of Gamma(y + r) / y!, float64: of many counts by a series, where the two
    logarithms would agree in most of their digits.

    Notes
    -----
    Tricomi and Erdélyi (1951), with y + r / 2 in place of y: right to 1e-7 up to r = 10,000.
    """
    exact = (y + r).lgamma() - (y + 1.0).lgamma()
    many = y > _MANY
    if not bool(many.any()):
        return exact
    about = y.clamp(min=_MANY) + 0.5 * r
    power = r - 1.0
    series = power * about.log() - power * (power.square() - 1.0) / (24.0 * about.square())
    return torch.where(many, series, exact)


def log_rate(y: Tensor, offset: Tensor | None) -> Tensor:
    """Return the logarithm of total count over total size, by column, half a count added.

    Parameters
    ----------
    y : Tensor of shape (N, M)
        NaN = missing.
    offset : Tensor of shape (N,), optional
        Logarithms of the size factors.
    """
    sizes = of_each_row(offset, y.shape[0], y).exp()
    return ((y.nansum(0) + 0.5) / (sizes @ (~y.isnan()).to(y.dtype) + 0.5)).log()


def log_normalised(Y: Tensor, offset: Tensor | None) -> Tensor:
    """Return log(1 + y / size), NaN = missing: counts as starts see them."""
    return per_size(Y, offset).log1p()


def moment_dispersion(
    Y: Tensor, mean: Tensor, *, shared: bool, smallest: float, largest: float
) -> Tensor:
    """Estimate r of variance = mean + mean^2 / r: Pearson's chi-square is to be the number of
    entries.

    Parameters
    ----------
    Y, mean : Tensor of shape (N, M)
        Y with NaN = missing.
    shared : bool
        One r for all columns.
    smallest, largest : float
        Limits of the estimate; columns without excess variance get the largest.

    Returns
    -------
    Tensor, scalar or of shape (M,)
    """
    dims = (0, 1) if shared else (0,)
    counts = (~Y.isnan()).sum(dims)
    square = torch.nan_to_num_((Y - mean.clamp(min=_SMALLEST_MEAN)).square_())
    low = torch.full_like(mean[:1].sum(dims), math.log(smallest))
    high = torch.full_like(low, math.log(largest))
    parts = list(passes((Y.shape[0], Y.shape[1])))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        chi = torch.zeros_like(low)
        for part in parts:
            some = mean[part].clamp(min=_SMALLEST_MEAN)
            variance = torch.addcmul(some, some.square(), (-middle).exp())
            chi += torch.div(square[part], variance, out=variance).sum(dims)
        excess = chi > counts
        low = torch.where(excess, low, middle)
        high = torch.where(excess, middle, high)
    return (0.5 * (low + high)).exp()


def gamma_products(
    y: Tensor, mean: Tensor, variance: Tensor
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return pairs whose products sum to log E Poisson(y | e^psi), up to a constant of y, for e^psi
    a gamma variable whose logarithm has this mean and about this variance.

    Only the normaliser of a negative binomial mixes y with its shape: densities at the two shapes
    beside the wanted one are averaged.

    Parameters
    ----------
    y : Tensor of shape (n, m)
    mean : Tensor of shape (c, m)
    variance : Tensor of shape (c, 1) or (c, m)

    Returns
    -------
    tuple of (Tensor of shape (n, m), Tensor of shape (c, m))
    """
    shapes = _SHAPES.to(mean)
    # trigamma(r) is about 1/r + 1/(2 r^2)
    v = variance.clamp(min=1e-9)
    shape = (1.0 + (1.0 + 2.0 * v).sqrt()) / (2.0 * v)
    last = len(shapes) - 1
    place = (shape / shapes[0]).log() / (shapes[1] / shapes[0]).log()
    place = place.clamp(0.0, last).expand_as(mean)
    pairs = []
    on_y = torch.zeros_like(mean)
    on_one = torch.zeros_like(mean)
    for k, r in enumerate(shapes):
        share = (1.0 - (place - k).abs()).clamp(min=0.0)
        if not bool(share.any()):
            continue
        log_odds = mean - r.digamma()  # of the mean rate over the shape
        on_y += share * (log_odds - softplus(log_odds))
        on_one -= share * r * softplus(log_odds)
        pairs.append(((y + r).lgamma() - r.lgamma(), share))
    return (y, on_y), (torch.ones_like(y), on_one), *pairs
