"""Memory that the chunks of one pass share: fresh memory costs more than what is computed in it."""

from __future__ import annotations

import torch
from torch import Tensor


class Scratch:
    """Named arrays that are handed out again and again, with whatever they held.

    Parameters
    ----------
    like : Tensor
        Whose precision and device they have.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like.new_empty(0)
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, n_rows: int, n_columns: int) -> Tensor:
        """Return a contiguous array (n_rows, n_columns): the memory of the last one of that
        name.
        """
        size = n_rows * n_columns
        held = self._held.get(name)
        if held is None or held.numel() < size:
            held = self._held[name] = torch.empty(
                size, dtype=self._like.dtype, device=self._like.device
            )
        return held[:size].view(n_rows, n_columns)
