"""How far q(A) goes towards what sites ask for, and when that is far enough.

Sites say what entries ask for near where they are laid. Under a fresh spectrum the log means of
counts may be dozens of nats off, and those of other entries are where whole steps end: without an
end to it, bounds of tables with long tails went from -1,300 nats to -1e18, and back, and on. Of the
way the columns of a group go as far as their bound does not fall, which the first part of it always
raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import torch
from torch import Tensor

from bochner.likelihoods.likelihood import Slopes

Taken = TypeVar("Taken")
# y, mean and variance of psi, (n, m), and the slopes there, to the precisions and slopes of sites,
# (n, m).
SiteRule: TypeAlias = Callable[[Tensor, Tensor, Tensor, Slopes], tuple[Tensor, Tensor]]

# Nats an entry that a step gains where there is next to nothing left to gain. Of weights near their
# place, as those mostly are that landmarks give all rows, the first step gains 0.006 (pbmc3k) to
# 0.017 (newsgroups).
_SETTLED = 0.02
# Nats an entry that a step may lose: by rounding, means that are not solved to their end, and
# covariances that columns share.
SLACK = 1e-3
# Steps at the most: with counts up to 1e5 and four numbers a row, 10 were left.
MOST_STEPS = 30
# Nats an entry below which sites may have led astray: a count of 1e7 has 9 at its mean.
_POOR = -10.0
# By how many times a bound must be the lower one for sites to be given up: of 1e4 a few steps are
# left, which end higher than those from log means without latents.
_ASTRAY = 1e6
# Shares of the way that are tried, and those where each costs a step of training.
SHARES = (*(0.5**k for k in range(10)), 0.0)
FEW_SHARES = (1.0, 0.25, 0.0)


@dataclass(frozen=True)
class Step(Generic[Taken]):
    """A step of the columns of every group.

    Attributes
    ----------
    end
        Where it ends.
    bound, gain, share : Tensor of shape (G,), float64
        The bound there, by how much it is larger than before, and the share of the way.
    """

    end: Taken
    bound: Tensor
    gain: Tensor
    share: Tensor

    @property
    def stands(self) -> bool:
        """Whether some group goes nowhere: sites that do not touch, as those of entries far above
        their counts, need not say where its bound rises.
        """
        return bool((self.share == 0.0).any())

    def settles(self, n_entries: int) -> bool:
        """Return whether there is next to nothing left to gain: what a whole step would have, had
        the bound gone on to rise as it did.
        """
        whole = torch.where(self.share > 0.0, self.gain / self.share, 0.0)
        return bool(whole.sum() <= _SETTLED * n_entries)


def poor(bound: Tensor, n_rows: int, sizes: tuple[int, ...]) -> bool:
    """Return whether some group of columns, (G,), is so far from its entries, or not a number, that
    it is worth a pass to see how they fare without latents.
    """
    return not bool((bound >= _POOR * n_rows * bound.new_tensor(sizes)).all())


def astray(bound: Tensor, without: Tensor) -> Tensor:
    """Return which groups are so much further from their entries than without latents, (G,), that
    steps do not come back, 1 or 0.
    """
    # of what is not a number nothing is kept
    return (~(bound >= _ASTRAY * without)).double()


def furthest(
    at: Callable[[Tensor], tuple[Taken, Tensor]],
    bound: Tensor,
    slack: Tensor,
    shares: tuple[float, ...],
) -> Step[Taken]:
    """Go as far as the bound of a group does not fall.

    Parameters
    ----------
    at : callable
        Share of the way by group, (G,) -> what is there, and the bounds, (G,).
    bound, slack : Tensor of shape (G,), float64
        Before the step, and how much of it rounding may take.
    shares : tuple of float
        To try, from the whole way down.
    """
    share = torch.ones_like(bound)
    risen = torch.zeros_like(bound, dtype=torch.bool)
    for length in shares:
        share = torch.where(risen, share, length)
        end, after = at(share)
        # of what is not a number nothing is taken
        risen = after >= bound - slack
        if bool(risen.all()):
            break
    return Step(end, after, after - bound, share)


def touching(
    _y: Tensor, _mean: Tensor, _variance: Tensor, slopes: Slopes
) -> tuple[Tensor, Tensor]:
    """Give the sites with which the bound touches everywhere: a ``SiteRule``."""
    return slopes.touching()


def settled(
    step_from: Callable[[Taken, SiteRule], Step[Taken]],
    begin: Taken,
    rule: SiteRule,
    n_entries: int,
    least: int,
) -> Step[Taken]:
    """Take steps until one gains next to nothing; return the last one.

    Parameters
    ----------
    step_from : callable
        Where a step begins, and the rule of its sites -> the step.
    begin
        Where the first one begins.
    rule : SiteRule
        Of the likelihood. Once it leads some group nowhere sites touch instead.
    n_entries : int
        Observed or not.
    least : int
        Steps to take at the least, as long as they do not lower the bound.
    """
    for number in range(1, MOST_STEPS + 1):
        step = step_from(begin, rule)
        begin = step.end
        if step.stands and rule is not touching:
            rule = touching
        elif number >= least and step.settles(n_entries):
            break
    return step
