"""Block coordinate ascent: named blocks of a model, each with its own update, and the bound after
every one.

The blocks of a variational posterior are seldom alike: some take gradient steps, some have a closed
form. Each is updated in turn while the others stay, and the bound is recorded after each, on draws
that the blocks of one sweep share, so that what a block did shows (Li et al. 2024b, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

# (sweep, block, bound after it)
Record = tuple[int, str, float]


@dataclass(frozen=True)
class Block:
    """A part of a posterior, or of a model, that is updated while the rest stays.

    Attributes
    ----------
    name : str
    update : callable
        Takes the number of the sweep, changes the model in place.
    exact : bool
        Whether the update is the closed-form optimum: the recorded bound then never falls.
    """

    name: str
    update: Callable[[int], None]
    exact: bool = False


class CoordinateAscent:
    """Updates blocks in turn and records the bound after every one.

    Parameters
    ----------
    blocks : iterable of Block
        In the order of their updates.
    bound : callable
        Number of the sweep -> bound in nats, on draws that depend on the sweep alone.
    """

    def __init__(self, blocks: Iterable[Block], bound: Callable[[int], float]) -> None:
        self.blocks = tuple(blocks)
        self.bound = bound

    def sweep(self, number: int) -> list[Record]:
        """Update every block once and return the bound after each."""
        records = []
        for block in self.blocks:
            block.update(number)
            records.append((number, block.name, self.bound(number)))
        return records

    def run(self, n_sweeps: int, tol: float = 0.0) -> list[Record]:
        """Sweep until the bound rises by no more than ``tol`` nats in a sweep, or ``n_sweeps``
        times.

        A tolerance makes sense for a bound that does not depend on draws; 0 never stops before the
        end unless a sweep changes nothing.
        """
        history: list[Record] = []
        for number in range(n_sweeps):
            before = history[-1][2] if history else -float("inf")
            history += self.sweep(number)
            if history[-1][2] - before <= tol:
                break
        return history
