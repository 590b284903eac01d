"""Dot-product and indefinite kernels with their published parameters (Liu et al. 2020, Table II;
docs/math.md, section 5).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from bochner.errors import InputError, message
from bochner.kernels.base import SpectralKernel
from bochner.kernels.domains import TOLERANCE, Domain, IndefiniteKernel, pair_of_points
from bochner.kernels.function import FunctionKernel
from bochner.kernels.parameters import number

# 2^degree, the kernel of a row and itself, is finite in double precision
_MOST_DEGREES = 1023


class DotProduct(IndefiniteKernel):
    """A function of the inner product t of two rows of the unit sphere.

    Attributes
    ----------
    defined_everywhere : bool
        For every t in [-1, 1], not only for t >= 0.
    """

    domain: Domain = "sphere"
    radial: ClassVar[bool] = True
    defined_everywhere: ClassVar[bool] = True

    @abstractmethod
    def of_product(self, t: Tensor, n_features: int) -> Tensor:
        """Return k as a function of t = <x, y> in [-1, 1], elementwise.

        Parameters
        ----------
        t : Tensor
            Products of rows on the sphere.
        n_features : int
            Columns of the rows.

        Returns
        -------
        Tensor, as t
        """

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return k(x_i, y_j) for rows on the sphere: (n, d), (m, d) -> (n, m)."""
        left, right = pair_of_points(x, y)
        return self.of_product((left @ right.T).clamp(-1.0, 1.0), left.shape[1])


class Polynomial(DotProduct):
    r"""The polynomial kernel on the unit sphere, :math:`(1 + x^\top y)^p` of degree p: positive
    definite, but its plane-wave spectrum is signed.

    Parameters
    ----------
    degree : int, default=10
        p, from 1 to 1,023; Liu et al. (2020) takes 10.

    Raises
    ------
    InputError
        ``degree`` is not an integer from 1 to 1,023: k(x, x) = 2^p overflows beyond.
    """

    def __init__(self, degree: int = 10) -> None:
        if not 1 <= number(degree) <= _MOST_DEGREES or int(degree) != degree:
            expected = f"degree as a positive integer up to {_MOST_DEGREES}"
            raise InputError(message(expected, repr(degree), "choose degree=10, say"))
        self.degree = degree

    def of_product(self, t: Tensor, n_features: int) -> Tensor:  # noqa: ARG002 - one signature for all
        """Return (1 + t)^degree."""
        return (1.0 + t) ** int(self.degree)

    def maclaurin(self) -> list[float]:
        """Return the coefficients of t^0, t^1, ...

        Returns
        -------
        list of float
        """
        return [float(math.comb(int(self.degree), n)) for n in range(int(self.degree) + 1)]


class DotProductSeries(DotProduct):
    r"""A power series of the inner product on the unit sphere, :math:`\sum_n a_n (x^\top y)^n`.

    Parameters
    ----------
    coefficients : sequence of float
        a_0, a_1, ...; positive definite in every dimension if and only if none is negative
        (Schoenberg).

    Raises
    ------
    InputError
        There is no coefficient or one is not finite.
    """

    def __init__(self, coefficients: Sequence[float]) -> None:
        given = coefficients if hasattr(coefficients, "__len__") else []
        if not len(given) or not all(math.isfinite(number(a)) for a in given):
            raise InputError(
                message(
                    "at least one finite coefficient", repr(coefficients), "give a_0, a_1, ..."
                )
            )
        self.coefficients = coefficients

    def of_product(self, t: Tensor, n_features: int) -> Tensor:  # noqa: ARG002 - one signature for all
        """Return the series by Horner's rule."""
        total = torch.zeros_like(t)
        for a in reversed(self.maclaurin()):
            total = total * t + a
        return total

    def maclaurin(self) -> list[float]:
        """Return the coefficients of t^0, t^1, ...

        Returns
        -------
        list of float
        """
        return [float(a) for a in self.coefficients]


class Hellinger(DotProduct):
    r"""The root of the inner product on the unit sphere, :math:`\sqrt{x^\top y}`; no product may be
    negative.

    Raises
    ------
    InputError
        When called: a product is negative; its two rows are named.
    """

    defined_everywhere: ClassVar[bool] = False

    def of_product(self, t: Tensor, n_features: int) -> Tensor:  # noqa: ARG002 - one signature for all
        """Return sqrt(t)."""
        negative = (t < -TOLERANCE).nonzero()
        if len(negative):
            where = negative[0].tolist()
            entry = ", ".join(map(str, where))
            got = f"{float(t[tuple(where)]):.4g} (entry {entry} of the products)"
            raise InputError(
                message(
                    "non-negative products <x, y> for Hellinger",
                    got,
                    "scale the columns to [0, 1]",
                )
            )
        return t.clamp(min=0.0).sqrt()


class Tanh(DotProduct):
    r"""The hyperbolic tangent kernel on the unit sphere, :math:`\tanh(b + s\, x^\top y)` with
    offset b and scale s: indefinite.

    Parameters
    ----------
    scale : float or None, default=None
        Positive; None is 1 / number of columns (Liu et al. 2020).
    offset : float, default=1.0

    Raises
    ------
    InputError
        ``scale`` is not positive or ``offset`` is not finite.
    """

    def __init__(self, scale: float | None = None, offset: float = 1.0) -> None:
        if scale is not None and not 0 < number(scale) < math.inf:
            raise InputError(
                message(
                    "scale as a positive number or None",
                    repr(scale),
                    "choose scale=None for 1/d",
                )
            )
        if not math.isfinite(number(offset)):
            raise InputError(
                message("offset as a finite number", repr(offset), "choose offset=1.0")
            )
        self.scale = scale
        self.offset = offset

    def of_product(self, t: Tensor, n_features: int) -> Tensor:
        """Return tanh(offset + scale t)."""
        return torch.tanh(
            self.offset + (1.0 / n_features if self.scale is None else self.scale) * t
        )


class GeodesicGaussian(DotProduct):
    r"""The Gaussian of the distance along the sphere, :math:`\exp(-\gamma \arccos^2(x^\top y))`:
    indefinite.

    Parameters
    ----------
    gamma : float, default=1.0
        Positive, per squared radian.

    Raises
    ------
    InputError
        ``gamma`` is not positive and finite.

    Notes
    -----
    Feragen, Lauze and Hauberg 2015: it is not positive definite for every gamma.
    """

    def __init__(self, gamma: float = 1.0) -> None:
        if not 0 < number(gamma) < math.inf:
            raise InputError(
                message("gamma as a positive number", repr(gamma), "choose gamma=1.0, say")
            )
        self.gamma = gamma

    def of_product(self, t: Tensor, n_features: int) -> Tensor:  # noqa: ARG002 - one signature for all
        """Return exp(-gamma arccos(t)^2)."""
        return (-self.gamma * torch.acos(t).square()).exp()


class TL1(IndefiniteKernel):
    r"""The truncated distance in the unit cube, :math:`\max(\tau - \|x - y\|_1, 0)`: indefinite
    where it is cut.

    Parameters
    ----------
    tau : float or None, default=None
        Positive; None is 0.7 times the number of columns (Huang et al. 2018, Liu et al. 2020).

    Raises
    ------
    InputError
        ``tau`` is not positive and finite.
    """

    domain: Domain = "cube"

    def __init__(self, tau: float | None = None) -> None:
        if tau is not None and not 0 < number(tau) < math.inf:
            raise InputError(
                message(
                    "tau as a positive number or None", repr(tau), "choose tau=None for 0.7 d"
                )
            )
        self.tau = tau

    def tau_for(self, n_features: int) -> float:
        """Return tau for rows of so many columns.

        Parameters
        ----------
        n_features : int

        Returns
        -------
        float
        """
        return 0.7 * n_features if self.tau is None else float(self.tau)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return k(x_i, y_j): (n, d), (m, d) -> (n, m)."""
        left, right = pair_of_points(x, y)
        return (self.tau_for(left.shape[1]) - torch.cdist(left, right, p=1.0)).clamp(min=0.0)


NAMED: dict[str, type[IndefiniteKernel]] = {
    "polynomial": Polynomial,
    "hellinger": Hellinger,
    "tl1": TL1,
    "tanh": Tanh,
    "geodesic_gaussian": GeodesicGaussian,
}


def resolve(kernel: Any) -> IndefiniteKernel:
    """Return the kernel that a name, an instance or a function stands for.

    Raises
    ------
    InputError
        It has a spectral density, from which features are drawn without a fit, or is a class.
    """
    if isinstance(kernel, type):
        got = f"the class {kernel.__name__}"
        do = f"call it, with its parameters: {kernel.__name__}()"
        raise InputError(message("a kernel", got, do))
    if isinstance(kernel, SpectralKernel):
        name = type(kernel).__name__
        got = f"{name}, which has a spectral density"
        do = f"type bochner.FourierFeatures(bochner.kernels.{name}(...))"
        raise InputError(message("an indefinite or dot-product kernel", got, do))
    if isinstance(kernel, IndefiniteKernel):
        return type(kernel)(**kernel.get_params())
    if isinstance(kernel, str):
        return NAMED[kernel]()
    return FunctionKernel(kernel)
