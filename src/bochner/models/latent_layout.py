"""Which view sees which latent dimensions: some are shared by all, others are a view's own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Layout:
    """Shared dimensions come first, then every view's private ones, in the order of the views.

    Attributes
    ----------
    shared : int
        Dimensions that every view sees, at least 1.
    private : tuple of int
        Further dimensions of each view, which no other view sees.
    """

    shared: int
    private: tuple[int, ...]

    @property
    def n_components(self) -> int:
        """D, all dimensions together."""
        return self.shared + sum(self.private)

    @property
    def has_private(self) -> bool:
        """Whether any view has dimensions that no other view sees."""
        return any(self.private)

    def narrowed(self, narrow: Layout) -> list[int]:
        """Return which dimensions a layout of fewer keeps: the first shared ones, and the first of
        every view's private ones.
        """
        private = [self.own(v)[:n] for v, n in enumerate(narrow.private)]
        return [*range(narrow.shared), *(d for dims in private for d in dims)]

    def own(self, view: int) -> tuple[int, ...]:
        """Return the private dimensions of the view with this number."""
        starts = list(accumulate(self.private, initial=self.shared))
        return tuple(range(starts[view], starts[view + 1]))

    def dims(self, view: int) -> tuple[int, ...] | None:
        """Return the dimensions that a view sees, ascending; None when it sees all of them."""
        seen = (*range(self.shared), *self.own(view))
        return None if len(seen) == self.n_components else seen
