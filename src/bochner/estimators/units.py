"""Parameters of kernels in the units of the caller."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bochner.kernels.base import SpectralKernel


def natural(kernel: SpectralKernel, scale: float) -> dict[str, NDArray[np.float64]]:
    """Parameters of a kernel by name; variances and weights in original units squared."""
    values: Mapping[str, Tensor] = kernel.values()
    square = scale**2
    return {
        name: value.numpy() * (square if name.split(".")[-1] in ("weights", "variance") else 1.0)
        for name, value in values.items()
    }
