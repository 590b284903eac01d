"""Formulas written out, batched over draws."""

import torch
from torch import Tensor


def features_of_draws(x: Tensor, w1: Tensor, w2: Tensor | None, amplitude: Tensor) -> Tensor:
    """(S, N, D), (S, P, D) -> (S, N, 2P)."""
    waves = [torch.einsum("snd,spd->snp", x, w) for w in (w1, w2) if w is not None]
    cosines, sines = sum(w.cos() for w in waves), sum(w.sin() for w in waves)
    return torch.cat([amplitude * cosines, amplitude * sines], dim=2)  # type: ignore[operator]
