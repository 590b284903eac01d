"""Zeros and ones, and numbers of successes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from bochner._typing import Numbers
from bochner.errors import InputError, message
from bochner.kernels.base import as_tensor
from bochner.likelihoods import polya_gamma
from bochner.likelihoods.counts import log_factorial
from bochner.likelihoods.densities import (
    LogisticDensity,
    log_odds_density,
    products_of_successes,
)
from bochner.likelihoods.likelihood import Curvatures, Slopes
from bochner.likelihoods.nonconjugate import SeparableLikelihood

BoundName = Literal["polya-gamma", "bohning"]
# Where every number of successes is looked at by itself.
_FEW_TRIALS = 12


class _Trials(SeparableLikelihood):
    """y successes of n trials, each with probability logistic(psi): what `Bernoulli` and `Binomial`
    share.
    """

    n_trials: Tensor

    def __init__(self, n_trials: Numbers | str, bound: BoundName, /, **params: object) -> None:
        super().__init__(**params)
        trials = as_tensor(1 if isinstance(n_trials, str) and n_trials == "max" else n_trials)
        if trials.ndim > 1 or not bool(((trials >= 1) & (trials == trials.round())).all()):
            raise InputError(
                message(
                    "n_trials as whole numbers of at least 1",
                    repr(n_trials),
                    "count the trials",
                )
            )
        if not isinstance(bound, str) or bound not in ("polya-gamma", "bohning"):
            raise InputError(
                message("bound 'polya-gamma' or 'bohning'", repr(bound), "choose one of them")
            )
        self.bound = bound
        self.register_buffer("n_trials", trials, persistent=False)

    def covariance_groups(self, n_rows: int, n_columns: int) -> int:
        """Return one where every column has the same weights in its Gram whatever the data."""
        if self.bound == "bohning" and self.n_trials.ndim == 0:
            return 1
        return super().covariance_groups(n_rows, n_columns)

    def initial(self, Y: Tensor, offset: Tensor | None = None) -> Self:  # noqa: ARG002
        """Settle n: "max" is the largest count of the view."""
        params = self.get_params()
        given = params.get("n_trials")
        if isinstance(given, str) and given == "max":
            params["n_trials"] = max(int(Y[~Y.isnan()].max()), 1)
        made: Self = self._made(params)
        if made.n_trials.ndim and made.n_trials.shape[0] != Y.shape[1]:
            got = f"{made.n_trials.shape[0]} numbers for {Y.shape[1]} columns"
            raise InputError(
                message(
                    "n_trials for every column", got, "give one number per column of the view"
                )
            )
        return made

    @abstractmethod
    def _made(self, params: dict[str, object]) -> Self:
        """Return a likelihood of this kind."""

    def _b(self, like: Tensor, columns: Tensor | None = None) -> Tensor:
        n = (
            self.n_trials
            if columns is None or self.n_trials.ndim == 0
            else self.n_trials[columns]
        )
        return n.to(like.dtype)

    def _log_c(self, y: Tensor, b: Tensor) -> Tensor:
        if bool((b == 1).all()):
            return torch.zeros((), dtype=y.dtype)
        y64 = y.double()
        n = b.double()
        passed = log_factorial(y64) + log_factorial(n - y64)
        return ((n + 1.0).lgamma() - passed).to(y.dtype)

    def log_prob(self, y: Tensor, psi: Tensor) -> Tensor:
        """Return log C(n, y) + y psi - n log(1 + e^psi)."""
        b = self._b(psi)
        return self._log_c(y, b) + log_odds_density(y, b - y, psi)

    def density(self, y: Tensor) -> LogisticDensity:
        """Return log p(y | psi) with derivatives in closed form."""
        b = self._b(y)
        zero = torch.zeros_like(y)
        return LogisticDensity(y, b - y, zero, self._log_c(y, b).expand(y.shape))

    def mean(self, psi: Tensor) -> Tensor:
        """Return n logistic(psi)."""
        return self._b(psi) * torch.sigmoid(psi)

    def variance(self, psi: Tensor) -> Tensor:
        """Return n p (1 - p)."""
        p = torch.sigmoid(psi)
        return self._b(psi) * p * (1.0 - p)

    def predict(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of y: of no more than all trials, whatever rounding adds."""
        first, spread = super().predict(mean, variance)
        return torch.minimum(first, self._b(first)), spread

    def draw(self, psi: Tensor, source: torch.Generator) -> Tensor:
        """Draw numbers of successes."""
        n = self._b(psi).expand(psi.shape).contiguous()
        return torch.binomial(n, torch.sigmoid(psi), generator=source)

    def intercept(
        self,
        y: Tensor,
        offset: Tensor | None,  # noqa: ARG002
        columns: Tensor | None = None,
    ) -> Tensor:
        """Return the log odds of the columns, half a success and half a failure added; offsets are
        for counts.
        """
        b = self._b(y, columns).expand(y.shape[1])
        counts = (~y.isnan()).sum(0)
        return torch.logit((y.nansum(0) + 0.5) / (b * counts + 1.0))

    def surrogate(self, Y: Tensor, offset: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return the share of successes."""
        return Y / self._b(Y)

    def slopes(
        self, y: Tensor, mean: Tensor, variance: Tensor, columns: Tensor | None = None
    ) -> Slopes:
        """Return the bound and its slopes."""
        b = self._b(mean, columns)
        bound = (
            polya_gamma.slopes if self.bound == "polya-gamma" else polya_gamma.bohning_slopes
        )
        return bound(y, b, self._log_c(y, b), mean, variance)

    def curvatures(self, y: Tensor, mean: Tensor, variance: Tensor) -> Curvatures:  # noqa: ARG002
        """Return the second derivatives of the bound."""
        b = self._b(mean)
        if self.bound == "bohning":
            return polya_gamma.bohning_curvatures(b, mean)
        return polya_gamma.curvatures(b, mean, variance)

    def expansion(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Slopes, Curvatures]:
        """Return the bound with its slopes and second derivatives."""
        if self.bound == "bohning":
            return super().expansion(y, mean, variance)
        b = self._b(mean)
        return polya_gamma.expansion(y, b, self._log_c(y, b), mean, variance)

    def products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return (a - b/2, psi) and (b, -log 2 cosh(c/2))."""
        b = self._b(y).expand(y.shape)
        c = (mean.square() + variance).sqrt()
        return (y - 0.5 * b, mean), (b, -polya_gamma.log_2cosh_half(c))

    def predictive_products(
        self, y: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return those of every number of successes where trials are few."""
        if int(self.n_trials.max()) > _FEW_TRIALS:
            return super().predictive_products(y, mean, variance)
        return products_of_successes(y, mean, variance, self._b(mean))


class Binomial(_Trials):
    """y successes of n trials, each with probability logistic(psi).

    Parameters
    ----------
    n_trials : "max", int or array-like of shape (M,), default="max"
        n, for all columns or for each; "max" is the largest count of the view.
    bound : {"polya-gamma", "bohning"}, default="polya-gamma"
        Böhning's bound is looser and needs one Gram for all columns when n is the same for them.

    Raises
    ------
    InputError
        n is not a whole number of at least 1, or the bound is unknown.

    Notes
    -----
    docs/math.md, section 3; Polson, Scott and Windle (2013); Böhning (1992).
    """

    name: ClassVar[str] = "binomial"
    support: ClassVar[str] = "trials"

    def __init__(
        self, n_trials: Numbers | str = "max", bound: BoundName = "polya-gamma"
    ) -> None:
        super().__init__(n_trials, bound, n_trials=n_trials, bound=bound)

    def _made(self, params: dict[str, Any]) -> Self:
        return type(self)(**params)


class Bernoulli(_Trials):
    """y in {0, 1} with probability logistic(psi) of a one.

    Parameters
    ----------
    bound : {"polya-gamma", "bohning"}, default="polya-gamma"
        Böhning's bound is looser and needs one Gram for all columns.
    """

    name: ClassVar[str] = "bernoulli"
    knows_by_rows: ClassVar[bool] = True
    support: ClassVar[str] = "binary"

    def __init__(self, bound: BoundName = "polya-gamma") -> None:
        super().__init__(1, bound, bound=bound)

    def _made(self, params: dict[str, Any]) -> Self:
        return type(self)(**params)
