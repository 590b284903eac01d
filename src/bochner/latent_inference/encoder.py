"""An amortised q(x | y): a small network that guesses where a row lies, so that placement need not
search for it.

It sees the observed values and the mask, and was trained on the latents of the training rows with
entries hidden at random and whole views dropped. A guess is where a row's climb begins, beside the
best of a few training latents: what is accurate about a placement is the climb, and a bad guess
costs time, not accuracy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner import random

_HIDDEN = 256
_BATCH = 256
_STEPS = 1000
_LEARNING_RATE = 2e-3
# Deviations of a column beyond which a value says no more than that it is large.
_FAR = 10.0
# Shares of a batch that are shown whole, with scattered holes, and (of several views) with whole
# views missing.
_WHOLE, _HOLES = 0.4, 0.4
_LARGEST_RATE = 0.9


@dataclass(frozen=True)
class Encoder:
    """Two hidden layers from standardised values and mask to latents, float32.

    Attributes
    ----------
    centre, scale : Tensor of shape (M,)
        Of the columns, over observed entries.
    weights, biases : tuple of Tensor
        Of the layers, (in, out) and (out,).
    """

    centre: Tensor
    scale: Tensor
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    def inputs(self, rows: Tensor) -> Tensor:
        """Return standardised values, 0 where missing, beside the mask, (n, M) -> (n, 2 M)."""
        seen = ~rows.isnan()
        values = ((rows - self.centre) / self.scale).clamp(-_FAR, _FAR)
        return torch.cat([torch.nan_to_num(values), seen], dim=1)

    def guess(self, rows: Sequence[Tensor]) -> Tensor:
        """Guess latents.

        Parameters
        ----------
        rows : sequence over views of Tensor of shape (n, M_v), float64
            Scaled data, as their likelihoods encode them; NaN where missing.

        Returns
        -------
        Tensor of shape (n, D), float64
        """
        return _forward(
            self.inputs(torch.cat(list(rows), dim=1).float()), self.weights, self.biases
        ).double()

    def to_tensors(self) -> dict[str, Tensor]:
        """Return what a file keeps."""
        layers = {f"weight.{i}": w for i, w in enumerate(self.weights)} | {
            f"bias.{i}": b for i, b in enumerate(self.biases)
        }
        return {"centre": self.centre, "scale": self.scale, **layers}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Encoder | None:
        """Rebuild an encoder; None if there was none."""
        if not tensors:
            return None
        layers = range(sum(name.startswith("weight.") for name in tensors))
        weights, biases = (
            tuple(tensors[f"{part}.{i}"] for i in layers) for part in ("weight", "bias")
        )
        return cls(tensors["centre"], tensors["scale"], weights, biases)


def _forward(values: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        values = torch.addmm(b, values, w)
        if i < len(weights) - 1:
            values = torch.nn.functional.silu(values)
    return values


def learn(rows: Sequence[Tensor], latents: Tensor, seed: int, n_steps: int = _STEPS) -> Encoder:
    """Train an encoder on rows and their latents.

    Parameters
    ----------
    rows : sequence over views of Tensor of shape (N, M_v), float64
        Scaled data, as their likelihoods encode them; NaN where missing.
    latents : Tensor of shape (N, D)
        Means of q(X).
    seed : int
        Of the start, the batches and the masks.
    n_steps : int
        Of Adam, with a learning rate that falls to 0.

    Returns
    -------
    Encoder
    """
    values, goal = torch.cat(list(rows), dim=1).float(), latents.float()
    centre = torch.nan_to_num(values.nanmean(0))
    scale = torch.nan_to_num((values - centre).square().nanmean(0)).sqrt()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    sizes = (2 * values.shape[1], _HIDDEN, _HIDDEN, goal.shape[1])
    source = random.generator(seed, "encoder/start")
    weights = [
        (torch.randn(a, b, generator=source) / a**0.5).requires_grad_()
        for a, b in itertools.pairwise(sizes)
    ]
    biases = [torch.zeros(b).requires_grad_() for b in sizes[1:]]
    encoder = Encoder(centre, scale, tuple(weights), tuple(biases))
    optimiser = torch.optim.Adam([*weights, *biases], lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 1e-3, n_steps)
    widths = [part.shape[1] for part in rows]
    for step in range(n_steps):
        source = random.generator(seed, "encoder/batch", step)
        index = torch.randint(values.shape[0], (_BATCH,), generator=source)
        hidden = _hidden(_BATCH, widths, source)
        found = _forward(
            encoder.inputs(values[index].masked_fill(hidden, torch.nan)), weights, biases
        )
        optimiser.zero_grad()
        # far misses are other modes: they should not pull on all the rest
        torch.nn.functional.smooth_l1_loss(found, goal[index], beta=0.5).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return Encoder(
        centre, scale, tuple(w.detach() for w in weights), tuple(b.detach() for b in biases)
    )


def _hidden(n_rows: int, widths: Sequence[int], source: torch.Generator) -> Tensor:
    """Return which entries a batch hides, (n, M): none, scattered ones at a rate of the row's own,
    or whole views.
    """
    kind = torch.rand(n_rows, 1, generator=source)
    rate = _LARGEST_RATE * torch.rand(n_rows, 1, generator=source)
    holes = torch.rand(n_rows, sum(widths), generator=source) < rate
    left = torch.randint(len(widths), (n_rows, 1), generator=source)  # one view is always shown
    views = (torch.rand(n_rows, len(widths), generator=source) < 0.5) & (
        torch.arange(len(widths)) != left
    )
    dropped = views.repeat_interleave(torch.tensor(widths), dim=1)
    hidden: Tensor = torch.where(
        kind < _WHOLE, torch.zeros_like(holes), holes & (kind < _WHOLE + _HOLES)
    )
    return hidden | (dropped & (kind >= _WHOLE + _HOLES))
