"""Counts with more variance than mean."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from bochner.errors import InputError, message
from bochner.kernels.base import as_tensor, positive
from bochner.likelihoods import polya_gamma, tilted
from bochner.likelihoods.counts import (
    LARGEST_LOG_RATE,
    REACH,
    Counts,
    SizeFactors,
    log_gamma_ratio,
    log_rate,
    moment_dispersion,
    rate_moments,
    tabulated,
)
from bochner.likelihoods.densities import LogisticDensity, log_odds_density, softplus
from bochner.likelihoods.likelihood import Curvatures, Slopes, shifted
from bochner.quadrature import normal_nodes

# Beyond the largest the data are as good as Poisson, unless counts are in the thousands.
LARGEST = 1e3
SMALLEST = 0.02
# The Polya-gamma bound loosens as r grows (docs/math.md, section 3).
LARGEST_POLYA_GAMMA = 100.0
_NODES = 9
# Numbers of all nodes up to which they are one array: the time of many operations is then that
# which they take to begin.
_FEW = 2**15

BoundName = Literal["auto", "polya-gamma", "tilted"]
# Mean count over r from which on "auto" is the tilted bound.
_MANY_TIMES = 10.0


def _expected_softplus(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return E log(1 + e^z) and its slope in the mean, E logistic(z), z ~ N(mean, variance)."""
    std = variance.sqrt()
    if _NODES * mean.numel() <= _FEW:
        nodes, weights = normal_nodes(_NODES)
        z = mean + std * nodes.to(mean).view(-1, *[1] * mean.ndim)
        weights = weights.to(mean)
        value = torch.tensordot(weights, softplus(z), 1)
        return value, torch.tensordot(weights, z.sigmoid_(), 1)
    value = torch.zeros_like(mean)
    slope = torch.zeros_like(mean)
    for node, weight in zip(*(part.tolist() for part in normal_nodes(_NODES)), strict=True):
        z = torch.add(mean, std, alpha=node)
        value.add_(softplus(z), alpha=weight)
        slope.add_(z.sigmoid_(), alpha=weight)
    return value, slope


def _log_c_of(y: Tensor, r: Tensor) -> Tensor:
    return log_gamma_ratio(y, r) - r.lgamma()


class NegativeBinomial(Counts):
    """Counts of mean e^psi and variance mean + mean^2 / r.

    Psi is the log mean, so that intercept and dispersion do not fight for the same thing; the logit
    of the usual form is psi - log r.

    Parameters
    ----------
    dispersion : {"shared", "column"} or float or array-like of shape (M,), default="shared"
        r, learned: one for the view or one per column. Numbers are where training starts.
    size_factors : {None, "total"}, default=None
        "total": a row's mean is proportional to its total count in the view. Factors of your own go
        to ``fit``.
    bound : {"auto", "polya-gamma", "tilted"}, default="auto"
        Of E log(1 + e^z). "polya-gamma" never decreases as its blocks take turns, but where counts
        are many times r it takes an entry for more than it says; r is at most 100. "tilted" is
        tight there and far better; a step asks for at most a factor e^2 in a mean, but may lower
        the bound: compare ``score``. "auto": "tilted" where the mean count is more than ten times
        the dispersion that moments give.

    Raises
    ------
    InputError
        A dispersion is not positive, or a name is unknown.

    Notes
    -----
    Bounds: docs/math.md, section 3, and the module ``likelihoods.tilted``. Of either, r follows the
    gradient of E log p(y | psi, r) itself: the Polya-gamma bound would bias it downwards.
    """

    name: ClassVar[str] = "negative_binomial"

    def __init__(
        self,
        dispersion: Literal["shared", "column"] | float | object = "shared",
        size_factors: SizeFactors = None,
        bound: BoundName = "auto",
    ) -> None:
        super().__init__(dispersion=dispersion, size_factors=size_factors, bound=bound)
        if not isinstance(bound, str) or bound not in ("auto", "polya-gamma", "tilted"):
            raise InputError(
                message(
                    "bound 'auto', 'polya-gamma' or 'tilted'",
                    repr(bound),
                    "choose one of them",
                )
            )
        self.bound = "polya-gamma" if bound == "auto" else bound
        if isinstance(dispersion, str) and dispersion not in ("shared", "column"):
            raise InputError(
                message(
                    "dispersion 'shared', 'column' or numbers", repr(dispersion), "choose one"
                )
            )
        start = as_tensor(1.0 if isinstance(dispersion, str) else dispersion)
        self.log_dispersion = nn.Parameter(positive("dispersion", start))

    @property
    def dispersion(self) -> Tensor:
        """r, scalar or of shape (M,), float64, capped."""
        largest = LARGEST if self.bound == "tilted" else LARGEST_POLYA_GAMMA
        return self.log_dispersion.clamp(math.log(SMALLEST), math.log(largest)).exp()

    def _r(self, like: Tensor, columns: Tensor | None = None) -> Tensor:
        r = self.dispersion.to(like.dtype)
        return r if columns is None or r.ndim == 0 else r[columns]

    def initial(self, Y: Tensor, offset: Tensor | None = None) -> Self:
        """Start from moments about the columns' means."""
        kind = self._params["dispersion"]
        logs = log_rate(Y, offset).expand(Y.shape[0], -1)
        mean = shifted(logs, offset).exp()
        r = moment_dispersion(Y, mean, shared=kind != "column", smallest=0.1, largest=10.0)
        made = type(self)(**{**self._params, "bound": self._bound_for(mean, r)})
        if isinstance(kind, str):
            made.log_dispersion = nn.Parameter(r.log())
        elif made.log_dispersion.ndim and made.log_dispersion.shape[0] != Y.shape[1]:
            got = f"{made.log_dispersion.shape[0]} numbers for {Y.shape[1]} columns"
            raise InputError(
                message(
                    "one dispersion per column", got, "give one number per column of the view"
                )
            )
        return made

    def _bound_for(self, mean: Tensor, r: Tensor) -> BoundName:
        """Resolve "auto" by means and the dispersions that moments give."""
        asked: BoundName = self._params["bound"]
        if asked != "auto":
            return asked
        return "tilted" if float((mean / r).mean()) > _MANY_TIMES else "polya-gamma"

    @staticmethod
    def _log_c(y: Tensor, r: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return log of Gamma(y + r) / (y! Gamma(r)): looked up where few counts occur many
        times.
        """
        r64 = r.double()
        index = tabulated(y) if r.ndim == 0 else None
        if index is not None:
            counts = torch.arange(int(index.max()) + 1, dtype=torch.float64, device=y.device)
            table = _log_c_of(counts, r64).to(dtype)
            return table.index_select(0, index.flatten()).view(y.shape)
        return _log_c_of(y.double(), r64).to(dtype)

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return the log probability of counts given their log mean."""
        r = self._r(psi)
        return self._log_c(y, r, psi.dtype) + log_odds_density(y, r, psi - r.log())

    def density(self, y: Tensor) -> LogisticDensity:
        """Return log p(y | psi) with derivatives in closed form."""
        r = self._r(y).detach()
        shift = r.log().expand(y.shape)
        return LogisticDensity(y, r.expand(y.shape), shift, self._log_c(y, r, y.dtype))

    def variance(self, psi: Tensor) -> Tensor:
        """Return e^psi + e^(2 psi) / r."""
        mean = psi.exp()
        return mean + mean.square() / self._r(psi).detach()

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        """Draw counts: a Poisson of a gamma rate."""
        r = self._r(psi).detach().expand(psi.shape).contiguous()
        mean = psi.clamp(max=LARGEST_LOG_RATE).exp()
        rate = torch._standard_gamma(r, generator=source) / r * mean
        rate = rate.clamp(max=math.exp(LARGEST_LOG_RATE))
        return torch.poisson(rate, generator=source)

    def predict_below(
        self, mean: Tensor, variance: Tensor, most: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return them for e^min(psi, most)."""
        first, spread = rate_moments(mean, variance, most)
        excess = (first.square() + spread) / self._r(mean).detach()
        return first, first + spread + excess

    def site(
        self, y: Tensor, mean: Tensor, variance: Tensor, slopes: Slopes
    ) -> tuple[Tensor, Tensor]:
        """Return sites that ask for no more than a factor of e^2 in the mean, under the tilted
        bound.
        """
        if self.bound != "tilted":
            return super().site(y, mean, variance, slopes)
        # an entry that is far below its data has no curvature to say how far to go
        return torch.maximum(
            -2.0 * slopes.d_variance, slopes.d_mean.abs() / REACH
        ), slopes.d_mean

    def first(self, y: Tensor, mean: Tensor) -> Tensor:
        """Return log(y + 1/2) for the tilted bound: its steps from there do not overshoot."""
        return (y + 0.5).log() if self.bound == "tilted" else mean

    def slopes(
        self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None
    ) -> Slopes:
        """Return the bound and its slopes."""
        r = self._r(mean, columns)
        with torch.no_grad():
            constant = self._log_c(y, r, mean.dtype)
        if self.bound == "tilted":
            return tilted.slopes(y, y + r, constant, mean - r.log(), variance)
        return polya_gamma.slopes(y, y + r, constant, mean - r.log(), variance)

    def parameter_value(
        self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None
    ) -> Tensor:
        """Return E log p(y | psi, r), elementwise: what r maximises."""
        log_r = self._r(mean.double(), columns).log()
        held = log_r.detach()
        r = log_r.exp()
        with torch.no_grad():
            logit = mean - held.to(mean.dtype)
            expected, slope = _expected_softplus(-logit.abs(), variance)
        # as `log_odds_density`; the slope of log(1 + e^z) is in the mean that of the logistic
        # function, and z is psi - log r or its negative
        above = logit > 0.0
        slope = torch.where(above, -slope, slope)
        moving = expected.double() - slope.double() * (log_r - held)
        linear = torch.where(above, -r, y.double()) * (mean.double() - log_r)
        return self._log_c(y, r) + linear - (y + r) * moving

    def gap(
        self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None
    ) -> Tensor | None:
        """Return by how much E log p lies above the Polya-gamma bound: more the larger r is; the
        other is tight.
        """
        return self.gap_beside(y, mean, variance, columns, None)

    def gap_beside(
        self,
        y: Tensor,
        mean: Tensor,
        variance: Tensor,
        columns: Tensor | None,
        expected: Tensor | None,
    ) -> Tensor | None:
        """Return the gap, by what its quadrature gave where that is known."""
        if self.bound == "tilted":
            return None
        if expected is None:
            expected = self.parameter_value(y, mean, variance, columns).detach()
        bound = self.slopes(y, mean, variance, columns).value.double()
        return expected - bound

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:
        """Return the second derivatives of the bound."""
        r = self._r(mean).detach()
        if self.bound == "tilted":
            return tilted.curvatures(y + r, mean - r.log(), variance)
        return polya_gamma.curvatures(y + r, mean - r.log(), variance)

    def expansion(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Slopes, Curvatures]:
        """Return the bound with its slopes and second derivatives."""
        r = self._r(mean).detach()
        constant = self._log_c(y, r, mean.dtype)
        logit = mean - r.log()
        if self.bound == "tilted":
            return tilted.expansion(y, r, constant, logit, variance)
        return polya_gamma.expansion(y, y + r, constant, logit, variance)

    def products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return (y, logit) and (y + r, minus the bound of log(1 + e^z)); Polya-gamma: ((y - r)/2,
        logit), ...
        """
        r = self._r(mean).detach()
        logit = mean - r.log()
        if self.bound == "tilted":
            return (y, logit), (
                y + r,
                -tilted.log1p_exp(tilted.tilt(logit, variance), logit, variance),
            )
        c = (logit.square() + variance).sqrt()
        return (0.5 * (y - r), logit), (y + r, -polya_gamma.log_2cosh_half(c))
