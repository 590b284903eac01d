"""Adam for the latents of very many rows: moments, and states to come back to, are in files where
rows are many, and every operation takes some rows at a time.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bochner.memory import chunks
from bochner.models.lvm import GaussianLatents
from bochner.random import RowNoise
from bochner.training.row_store import RowStore
from bochner.training.trainer import EPS, FIRST, SECOND, Adam, Moments

# Rows that are moved at once: some arrays of a few megabytes.
PART_ROWS = 2**16


class KeptLatents:
    """Latents as they are now, to come back to.

    Parameters
    ----------
    latents : GaussianLatents
    part_rows : int
        Rows that are copied at once.
    """

    def __init__(self, latents: GaussianLatents, part_rows: int = PART_ROWS) -> None:
        self._part_rows = part_rows
        n_rows, dim = latents.mean.shape
        self._store = RowStore(n_rows, 2 * dim, latents.mean.dtype)
        for part in chunks(n_rows, part_rows):
            values = latents.mean[part], latents.log_std[part]
            self._store.write(part, torch.cat(values, dim=1))

    @torch.no_grad()
    def restore(self, latents: GaussianLatents) -> None:
        """Put them back."""
        for part in chunks(len(latents.mean), self._part_rows):
            mean, log_std = self._store.read(part).chunk(2, dim=1)
            latents.mean[part] = mean.to(latents.mean)
            latents.log_std[part] = log_std.to(latents.mean)


class KeptRows:
    """Latents and moments of an optimiser as they are now, to come back to.

    Parameters
    ----------
    optimiser : RowAdam

    Attributes
    ----------
    count, n_rows : int
        Steps that the optimiser had taken, and its rows.
    """

    def __init__(self, optimiser: RowAdam) -> None:
        self.count = optimiser.count
        self.n_rows = optimiser.n_rows
        self._store = RowStore(optimiser.n_rows, optimiser.width, optimiser.dtype)
        for part in chunks(optimiser.n_rows, optimiser.part_rows):
            self._store.write(part, optimiser.read(part))

    def read(self, part: slice) -> Tensor:
        """Return latents and moments of some consecutive rows, as `RowAdam.read` does."""
        return self._store.read(part)


class RowAdam(Adam):
    """Moves latents along a gradient in draws of them, beside the parameters of a module.

    Parameters
    ----------
    module : nn.Module
        Without the latents.
    latents : GaussianLatents
    learning_rate : float
    n_entries : int
        What the objective, in nats, is divided by.
    part_rows : int
        Rows that are moved at once.

    Attributes
    ----------
    x : Tensor of shape (N, D + L)
        The last draw of the latents, a leaf.
    count : int
        Steps taken.
    """

    def __init__(
        self,
        module: nn.Module,
        latents: GaussianLatents,
        learning_rate: float,
        n_entries: int,
        part_rows: int = PART_ROWS,
    ) -> None:
        super().__init__(module, learning_rate)
        self.part_rows = part_rows
        self.x = latents.mean.new_empty(0)
        self._noise: RowNoise | None = None
        self._latents = latents
        self._n_entries = n_entries
        self.count = 0
        n_rows, dim = latents.mean.shape
        self._moments = RowStore(n_rows, 4 * dim, latents.mean.dtype)

    @property
    def n_rows(self) -> int:
        """Rows that are moved."""
        return len(self._latents.mean)

    @property
    def width(self) -> int:
        """Numbers of a row: latents, logarithms of their standard deviations, moments; 6 D."""
        return 6 * self._latents.mean.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of those numbers."""
        return self._latents.mean.dtype

    @torch.no_grad()
    def read(self, part: slice) -> Tensor:
        """Return latents and moments of some consecutive rows, (n, 6 D), on the processor."""
        latents = self._latents.mean[part], self._latents.log_std[part]
        return torch.cat([*(values.cpu() for values in latents), self._moments.read(part)], 1)

    @torch.no_grad()
    def write(self, part: slice, values: Tensor) -> None:
        """Put latents and moments of some consecutive rows in place, as `read` returns them."""
        dim = self._latents.mean.shape[1]
        mean, log_std, moments = torch.split(values, [dim, dim, 4 * dim], dim=1)
        self._latents.mean[part] = mean.to(self._latents.mean)
        self._latents.log_std[part] = log_std.to(self._latents.mean)
        self._moments.write(part, moments)

    def draw(self, noise: RowNoise) -> Tensor:
        """Return latents drawn with this noise, along whose gradient the next step goes."""
        self.x = self._latents.drawn(noise).requires_grad_()
        self._noise = noise
        return self.x

    def zero_grad(self) -> None:
        """Forget the gradients, and the draw."""
        super().zero_grad()
        self.x = self._latents.mean.new_empty(0)

    def not_finite(self) -> str | None:
        """Return the name of what has a gradient that is not finite, if there is anything."""
        slope = self.x.grad
        if slope is not None and not math.isfinite(float(torch.linalg.vector_norm(slope))):
            return "latents"
        return super().not_finite()

    @torch.no_grad()
    def step(self) -> None:
        """Move the module's parameters and all rows."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(-1.0 / self._n_entries)
        super().step()
        self.count += 1
        for part in chunks(len(self._latents.mean), self.part_rows):
            self._move(part)
        self.zero_grad()

    def _move(self, part: slice) -> None:
        """Move some rows."""
        mean = self._latents.mean[part]
        log_std = self._latents.log_std[part]
        first, second = self._moments.read(part).to(mean).chunk(2, dim=1)
        slope = self._slope(part, mean, log_std)
        first = first.lerp(slope, 1.0 - FIRST)
        second = (second * SECOND).addcmul_(slope, slope, value=1.0 - SECOND)
        self._moments.write(part, torch.cat([first, second], dim=1))
        scale = (second / (1.0 - SECOND**self.count)).sqrt_().add_(EPS)
        rate = -self.learning_rate / (1.0 - FIRST**self.count)
        move = (first / scale).mul_(rate)
        dim = mean.shape[1]
        mean += move[:, :dim]
        log_std += move[:, dim:]

    def _slope(self, part: slice, mean: Tensor, log_std: Tensor) -> Tensor:
        """Return the gradient of what is minimised in mean and logarithm of the standard deviation,
        (n, 2 D).
        """
        assert self.x.grad is not None
        assert self._noise is not None
        on_x = self.x.grad[part, : mean.shape[1]]
        std = log_std.exp()
        on_std = on_x * std * self._noise[part] - std.square().sub_(1.0)
        return torch.cat([on_x - mean, on_std], dim=1).mul_(-1.0 / self._n_entries)

    def moments(self) -> Moments:
        """Return the moments of the module's parameters."""
        return super().state_dict()["state"]

    def load_moments(self, moments: Moments, count: int) -> None:
        """Come back to moments of the module's parameters after so many steps."""
        super().load_state_dict({"state": moments})
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` comes back to: of the rows a store of their own."""
        return {**super().state_dict(), "rows": KeptRows(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Come back to a state."""
        kept: KeptRows = state["rows"]
        self.load_moments(state["state"], kept.count)
        for part in chunks(self.n_rows, self.part_rows):
            self.write(part, kept.read(part))
