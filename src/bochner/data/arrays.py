"""The arrays of numpy by what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Of either precision: a function that takes it keeps that of what it is given.
FloatArray = NDArray[np.floating[Any]]
Float64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]
