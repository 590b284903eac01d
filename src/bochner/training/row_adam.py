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
from bochner.training.adam import EPS, FIRST, SECOND, Adam
from bochner.training.row_store import RowStore

# Rows that are moved at once.
_PART = 2**16


class KeptLatents:
    """Latents as they are now, to come back to.

    Parameters
    ----------
    latents : GaussianLatents
    """

    def __init__(self, latents: GaussianLatents) -> None:
        n_rows, dim = latents.mean.shape
        self._store = RowStore(n_rows, 2 * dim, latents.mean.dtype)
        for part in chunks(n_rows, _PART):
            values = latents.mean[part], latents.log_std[part]
            self._store.write(part, torch.cat(values, dim=1))

    @torch.no_grad()
    def restore(self, latents: GaussianLatents) -> None:
        """Put them back."""
        for part in chunks(len(latents.mean), _PART):
            mean, log_std = self._store.read(part).chunk(2, dim=1)
            latents.mean[part] = mean.to(latents.mean)
            latents.log_std[part] = log_std.to(latents.mean)


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

    Attributes
    ----------
    x : Tensor of shape (N, D + L)
        The last draw of the latents, a leaf.
    """

    def __init__(
        self, module: nn.Module, latents: GaussianLatents, learning_rate: float, n_entries: int
    ) -> None:
        super().__init__(module, learning_rate)
        self.x = latents.mean.new_empty(0)
        self._noise: RowNoise | None = None
        self._latents, self._n_entries, self._count = latents, n_entries, 0
        self._moments = self._store()

    def _store(self) -> RowStore:
        n_rows, dim = self._latents.mean.shape
        return RowStore(n_rows, 4 * dim, self._latents.mean.dtype)

    def draw(self, noise: RowNoise) -> Tensor:
        """Return latents drawn with this noise, along whose gradient the next step goes."""
        self.x, self._noise = self._latents.drawn(noise).requires_grad_(), noise
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
        self._count += 1
        for part in chunks(len(self._latents.mean), _PART):
            self._move(part)
        self.zero_grad()

    def _move(self, part: slice) -> None:
        """Move some rows."""
        mean, log_std = self._latents.mean[part], self._latents.log_std[part]
        first, second = self._moments.read(part).to(mean).chunk(2, dim=1)
        slope = self._slope(part, mean, log_std)
        first = first.lerp(slope, 1.0 - FIRST)
        second = (second * SECOND).addcmul_(slope, slope, value=1.0 - SECOND)
        self._moments.write(part, torch.cat([first, second], dim=1))
        scale = (second / (1.0 - SECOND**self._count)).sqrt_().add_(EPS)
        rate = -self.learning_rate / (1.0 - FIRST**self._count)
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

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` comes back to: of the rows a store of their own."""
        kept = self._store()
        for part in chunks(len(self._latents.mean), _PART):
            kept.write(part, self._moments.read(part))
        rows = (KeptLatents(self._latents), kept, self._count)
        return {**super().state_dict(), "rows": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Come back to a state."""
        super().load_state_dict({"state": state["state"]})
        latents, kept, self._count = state["rows"]
        latents.restore(self._latents)
        for part in chunks(len(self._latents.mean), _PART):
            self._moments.write(part, kept.read(part))
