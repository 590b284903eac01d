"""Any function of two rows, or of two sets of rows, as a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bochner.errors import InputError, message, shown
from bochner.kernels.base import as_tensor
from bochner.kernels.domains import Domain, IndefiniteKernel, pair_of_points


class FunctionKernel(IndefiniteKernel):
    """A kernel given as a function.

    Parameters
    ----------
    function : callable
        Of two float64 arrays (n, d), (m, d), returning (n, m); or of two rows, returning a number.
    pairwise : bool, default=False
        The function is one of two rows.
    domain : {"any", "sphere", "cube"}, default="any"
        What happens to the rows before the function sees them.

    Raises
    ------
    InputError
        ``function`` cannot be called or ``domain`` is unknown; when called: its result is complex,
        has a wrong shape or is not finite.
    """

    def __init__(
        self, function: Callable[..., Any], pairwise: bool = False, domain: Domain = "any"
    ) -> None:
        if not callable(function):
            raise InputError(
                message(
                    "function as a callable", type(function).__name__, "give k(A, B) -> (n, m)"
                )
            )
        if domain not in ("any", "sphere", "cube"):
            raise InputError(
                message("domain as 'any', 'sphere' or 'cube'", repr(domain), "choose one")
            )
        self.function = function
        self.pairwise = pairwise
        self.domain = domain

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return k(x_i, y_j), computed by the function in float64: (n, d), (m, d) -> (n, m)."""
        left, right = pair_of_points(x, y)
        a = left.detach().double().cpu().numpy()
        b = right.detach().double().cpu().numpy()
        values = (
            [[_number(self.function(p, q)) for q in b] for p in a]
            if self.pairwise
            else _real(self.function(a, b))
        )
        result = as_tensor(values)
        if tuple(result.shape) != (len(a), len(b)):
            do = (
                "return one value per pair of rows, or give "
                "FunctionKernel(function, pairwise=True)"
            )
            raise InputError(
                message(
                    f"a kernel matrix of shape {(len(a), len(b))}",
                    str(tuple(result.shape)),
                    do,
                )
            )
        if not bool(torch.isfinite(result).all()):
            raise InputError(
                message(
                    "finite kernel values",
                    "NaN or infinity",
                    "check the function on these rows",
                )
            )
        return result.to(device=left.device, dtype=left.dtype)


def _number(value: Any) -> float:
    """Return what a function of two rows returned, which must be one number."""
    real = _real(value)
    try:
        return float(real)
    except (TypeError, ValueError) as error:
        do = "return a number, or give FunctionKernel(function) where it is one of two arrays"
        raise InputError(message("one number for two rows", shown(value), do)) from error


def _real(values: Any) -> Any:
    """Return what a function returned, unless it is complex: a cast would drop the imaginary
    part.
    """
    kind = getattr(values, "dtype", type(values).__name__)
    if "complex" in str(kind):
        do = "return real numbers, for example np.real(k(A, B)) where the kernel is real"
        raise InputError(message("real kernel values", "complex ones", do))
    return values
