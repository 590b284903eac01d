"""What an indefinite kernel is: a symmetric function of two rows and the rows it is meant for
(docs/math.md, section 5).

Unlike :class:`~bochner.kernels.base.Kernel` it need not be positive definite, and it says on which
rows it is meant: on the unit sphere, on the unit cube, or anywhere.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bochner._typing import Numbers
from bochner.errors import InputError, message
from bochner.kernels.base import points
from bochner.kernels.parameters import HasParameters

Domain = Literal["sphere", "cube", "any"]
# Scaled data may leave [0, 1] by rounding.
TOLERANCE = 1e-6
# Kernel values of which fourth powers neither overflow nor vanish.
_IN_RANGE = 1e-35, 1e35


class IndefiniteKernel(HasParameters, ABC):
    """A symmetric function of two rows, with the normalisation its definition asks for.

    Attributes
    ----------
    domain : {"sphere", "cube", "any"}
        "sphere": rows are divided by their norms, rows of norm zero stay zero. "cube": entries must
        lie in [0, 1].
    radial : bool
        On its domain it depends on the distance of the two rows alone.
    """

    domain: Domain = "any"
    radial: ClassVar[bool] = False

    def _given(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items())
        return f"{type(self).__name__}({given})"

    def normalise(self, rows: Tensor) -> Tensor:
        """Return the rows on the kernel's domain.

        Parameters
        ----------
        rows : Tensor of shape (n, d)

        Returns
        -------
        Tensor of shape (n, d)

        Raises
        ------
        InputError
            The domain is the unit cube and an entry lies outside; row, column and value are named.
        """
        if self.domain == "sphere":
            rows = rows / _unit(rows)
            norms = rows.norm(dim=1, keepdim=True)
            return rows / torch.where(norms > 0, norms, torch.ones_like(norms))
        if self.domain == "cube":
            outside = ((rows < -TOLERANCE) | (rows > 1 + TOLERANCE)).nonzero()
            if len(outside):
                row, column = outside[0].tolist()
                got = f"{float(rows[row, column]):.4g} in row {row}, column {column}"
                do = "put MinMaxScaler(clip=True) before it in the pipeline"
                raise InputError(
                    message(f"entries between 0 and 1 for {type(self).__name__}", got, do)
                )
        return rows

    @abstractmethod
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return k(x_i, y_j) for rows on the domain: (n, d), (m, d) -> (n, m)."""


def pair_of_points(x: Numbers, y: Numbers) -> tuple[Tensor, Tensor]:
    """Return two sets of points as tensors of shapes (n, d) and (m, d), or refuse them."""
    left = points(x)
    return left, points(y, left)


def magnitude_of(largest: float) -> float:
    """Return what to divide kernel values by before they are squared: their largest where squares
    may overflow or vanish, 1 elsewhere.
    """
    least, most = _IN_RANGE
    return 1.0 if least < largest < most or largest == 0.0 else largest


def _unit(rows: Tensor) -> Tensor:
    """Return what brings rows into the range in which squares neither overflow nor vanish, (n, 1):
    1 for those that are in it.
    """
    largest = (
        rows.abs().amax(1, keepdim=True) if rows.shape[1] else rows.new_zeros(len(rows), 1)
    )
    limits = torch.finfo(rows.dtype)
    far = (largest > limits.max**0.25) | (largest < limits.tiny**0.25)
    return torch.where(far & (largest > 0.0), largest, torch.ones_like(largest))
