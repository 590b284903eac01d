"""log p(y | psi) of entries as functions of psi, with derivatives, for quadrature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.quadrature import LogDensity, normal_nodes

# Exponents of rates beyond this count as if they were this: their squares are finite.
_MOST = 300.0
# torch takes log(1 + e^z) as z beyond this: no digit is lost from here on, where torch's default of
# 20 loses 2e-9, which counts of a million multiply.
_LINEAR = 40.0
# Nodes of quadratures of probabilities, and where psi has a variance beyond this; what is below
# that is not theirs.
_NODES = 12
_WIDE_NODES = 48
_WIDE = 1.0
_SMALL = 1e-200


def softplus(z: Tensor) -> Tensor:
    """Return log(1 + e^z) to the last digit."""
    return torch.nn.functional.softplus(z, threshold=_LINEAR)


def log_odds_density(y: Tensor, failures: Tensor, z: Tensor) -> Tensor:
    """Return y z - (y + failures) log(1 + e^z), elementwise.

    Of z above 0 as the same with successes and failures exchanged: the large parts are not
    subtracted from each other.
    """
    above = z > 0.0
    # not by `abs`, whose slope at 0 is 0
    away = torch.where(above, -z, z)
    lost = torch.where(above, failures, y) * away
    return torch.addcmul(lost, y + failures, softplus(away), value=-1.0)


@dataclass(frozen=True)
class EntryDensity(LogDensity):
    """Any log p(y | psi), differentiated by torch.

    Attributes
    ----------
    y : Tensor of shape (n, m)
    log_prob : callable
        Of y and psi, both (n, m).
    index : Tensor of shape (k,), int64, optional
        Positions of the entries in the flattened y; None means all.
    """

    y: Tensor
    log_prob: Callable[[Tensor, Tensor], Tensor]
    index: Tensor | None = None

    def value(self, psi: Tensor) -> Tensor:
        """Return log p(y | psi)."""
        if self.index is None:
            return self.log_prob(self.y, psi)
        # log_prob may have parameters by column: it is called on the whole table
        spread = psi.mean() * torch.ones_like(self.y, dtype=psi.dtype).flatten()
        spread = spread.index_copy(0, self.index, psi)
        return self.log_prob(self.y, spread.view_as(self.y)).flatten()[self.index]

    def derivatives(self, psi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first three derivatives of log p."""
        out = []
        with torch.enable_grad():
            at = psi.detach().requires_grad_()
            last = self.value(at)
            for _ in range(3):
                (last,) = torch.autograd.grad(
                    last.sum() + 0.0 * at.sum(), at, create_graph=True
                )
                out.append(last.detach())
        return out[0], out[1], out[2]

    def normal(self, psi: Tensor) -> tuple[Tensor, Tensor]:
        """Return precision 0: nothing is known."""
        return torch.zeros_like(psi), torch.zeros_like(psi)

    def at(self, index: Tensor) -> EntryDensity:
        """Return some entries, of those that were chosen before."""
        chosen = index if self.index is None else self.index[index]
        return EntryDensity(self.y, self.log_prob, chosen)


@dataclass(frozen=True)
class PoissonDensity(LogDensity):
    """y psi - e^psi - log y!, about its mode: of large counts these agree in most of their digits.

    Attributes
    ----------
    y : Tensor of shape (n, m)
    peak : Tensor of shape (n, m)
        The value where psi is log y, of y = 0 where it is 0.
    """

    y: Tensor
    peak: Tensor

    @functools.cached_property
    def _size(self) -> Tensor:
        return self.y.clamp(min=1.0)

    @functools.cached_property
    def _log_size(self) -> Tensor:
        return self._size.log()

    def value(self, psi: Tensor) -> Tensor:
        """Return log p(y | psi)."""
        away = psi - self._log_size
        beside = torch.addcmul(self.peak, self.y, away)
        return torch.addcmul(beside, self._size, away.clamp(max=_MOST).expm1(), value=-1.0)

    def derivatives(self, psi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return y - e^psi, -e^psi and -e^psi."""
        less = -psi.clamp(max=_MOST).exp()
        return self.y + less, less, less

    def normal(self, psi: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Return the log of the count and the count, half a count added."""
        count = self.y + 0.5
        return count.log(), count

    def at(self, index: Tensor) -> PoissonDensity:
        """Return some entries."""
        return PoissonDensity(self.y.flatten()[index], self.peak.flatten()[index])


@dataclass(frozen=True)
class LogisticDensity(LogDensity):
    """y z - (y + failures) log(1 + e^z) + constant, z = psi - shift.

    Attributes
    ----------
    y, failures, shift, constant : Tensor of shape (n, m)
    """

    y: Tensor
    failures: Tensor
    shift: Tensor
    constant: Tensor

    def value(self, psi: Tensor) -> Tensor:
        """Return log p(y | psi)."""
        return self.constant + log_odds_density(self.y, self.failures, psi - self.shift)

    def derivatives(self, psi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return y - b p, -b p (1 - p) and -b p (1 - p) (1 - 2 p), b = y + failures, p =
        logistic(z).
        """
        z = psi - self.shift
        p, rest = z.sigmoid(), (-z).sigmoid()
        second = -(self.y + self.failures) * p * rest
        return self.y * rest - self.failures * p, second, second * (rest - p)

    def normal(self, psi: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Return the log odds and their precision, half a success and half a failure added."""
        successes = self.y + 0.5
        failures = self.failures + 0.5
        place = (successes / failures).log() + self.shift
        return place, successes * failures / (successes + failures)

    def at(self, index: Tensor) -> LogisticDensity:
        """Return some entries."""
        parts = (self.y, self.failures, self.shift, self.constant)
        return LogisticDensity(*(part.flatten()[index] for part in parts))


def products_of_successes(
    y: Tensor, mean: Tensor, variance: Tensor, b: Tensor
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return pairs (1 where y is v, log E e^(v psi) (1 + e^psi)^-b) for v = 0, ..., max b: their
    sum of products is the log predictive density of y successes in b trials, but for the constant.

    Parameters
    ----------
    y : Tensor of shape (n, m)
        0 to b.
    mean, variance : Tensor of shape (c, m)
        Of psi.
    b : Tensor of shape (m,) or ()
        Whole numbers.
    """
    wide = variance > _WIDE
    log_p = _log_successes(mean, variance, b, _NODES)
    if bool(wide.any()):
        of_wide = (mean[wide], variance[wide], b.expand_as(mean)[wide])
        for one, other in zip(log_p, _log_successes(*of_wide, _WIDE_NODES), strict=False):
            one[wide] = other
    return tuple(((y == v).to(mean.dtype), one) for v, one in enumerate(log_p))


def _log_successes(mean: Tensor, variance: Tensor, b: Tensor, n_nodes: int) -> list[Tensor]:
    """Return them for every v, elementwise; of more than b there is no sense, but a number."""
    std = variance.sqrt()
    totals = [torch.zeros_like(mean) for _ in range(int(b.max()) + 1)]
    for node, weight in zip(*(part.tolist() for part in normal_nodes(n_nodes)), strict=True):
        psi = mean + node * std
        less = b * softplus(psi)
        for v, total in enumerate(totals):
            total.add_((v * psi - less).clamp(max=0.0).exp_(), alpha=weight)
    # so far out log p is nearly linear in psi
    far = b * softplus(mean)
    return [
        torch.where(total > _SMALL, total.log(), v * mean - far)
        for v, total in enumerate(totals)
    ]
