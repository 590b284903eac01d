"""Training rows that a fitted model knows beside their latents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.arrays import FloatArray
from bochner.latent_inference.modes import Placement


@dataclass(frozen=True)
class KnownRows:
    """Placed training rows that all processes know: what reports look at.

    Attributes
    ----------
    values : ndarray or sparse matrix
    offsets : list over views of Tensor of shape (n,), or None
        Logarithms of these rows' size factors.
    index : Tensor of shape (C,), int64
        Which of them the candidates are.
    placement : Placement
    std : ndarray of shape (n, D), float64
        Not yet checked.
    """

    values: FloatArray
    offsets: list[Tensor | None]
    index: Tensor
    placement: Placement
    std: NDArray[np.float64]


@dataclass(frozen=True)
class Patterns:
    """Some training rows as the check of standard deviations draws others like them.

    Attributes
    ----------
    shown : list over views of Tensor of shape (n, M_v), bool
        Which of their entries are observed.
    covariates : Tensor of shape (n, L)
    """

    shown: list[Tensor]
    covariates: Tensor
