"""The feature maps that KreinFeatures is compared with, with the same face."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from sklearn.utils._param_validation import StrOptions
from torch import Tensor

from bochner.data.accepted import COUNT
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.feature_maps.base import DrawnMap, IndefiniteMap
from bochner.features.maclaurin import check_coefficients, draw, maclaurin_features
from bochner.features.spherical import directions
from bochner.kernels.domains import IndefiniteKernel
from bochner.kernels.indefinite import DotProduct, resolve
from bochner.krein.positive_spectrum import n_radii, positive_spectrum
from bochner.linalg import device_named
from bochner.processes.isolation import isolated, transactional


class RandomMaclaurin(IndefiniteMap, DrawnMap):
    """Random Maclaurin features of dot-product kernels with non-negative coefficients (Kar and
    Karnick 2012).

    Parameters
    ----------
    kernel : "polynomial" or IndefiniteKernel, default="polynomial"
        "polynomial" is degree 10 on the unit sphere; ``Polynomial(degree)`` and
        ``DotProductSeries(coefficients)`` work as well.
    n_components : int, default=100
        Output columns.
    exact_low_degrees : bool, default=False
        The paper's H0/1 heuristic: degrees 0 and 1 by 1 + n_features exact columns, random ones for
        the rest, at least one; zeros where the kernel has no other degrees.
    random_state : int, RandomState instance or None, default=None
    device : str, default="auto"
        Where arrays are computed, as in `FourierFeatures`.

    Attributes
    ----------
    kernel_ : IndefiniteKernel
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.feature_maps.comparators import RandomMaclaurin
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> RandomMaclaurin(n_components=64, random_state=0).fit_transform(X).shape
    (50, 64)
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "kernel": [StrOptions({"polynomial"}), IndefiniteKernel],
        "n_components": [COUNT],
        "exact_low_degrees": ["boolean"],
        "random_state": ["random_state"],
        "device": [str],
    }

    def __init__(
        self,
        kernel: str | IndefiniteKernel = "polynomial",
        n_components: int = 100,
        *,
        exact_low_degrees: bool = False,
        random_state: object = None,
        device: str = "auto",
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.exact_low_degrees = exact_low_degrees
        self.random_state = random_state
        self.device = device

    @transactional
    @isolated
    def fit(self, X: object, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Draw the random signs for as many dimensions as X has columns.

        Parameters
        ----------
        X : array-like, sparse matrix or Tensor of shape (n_samples, n_features)
            Only its shape matters.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        InputError
            The kernel has no Maclaurin coefficients or a negative one, or is zero; too few columns
            for the exact low degrees.
        """
        self._validate_params()
        self._check(X, reset=True)
        device_named(self.device)
        self.kernel_ = resolve(self.kernel)
        coefficients = self._coefficients()
        n_random = self.n_components
        if self.exact_low_degrees:
            n_low = 1 + self.n_features_in_
            least = n_low + any(coefficients[2:])
            if self.n_components < least:
                do = f"type n_components={least} or more, or exact_low_degrees=False"
                expected = "enough columns for the exact low degrees and the rest"
                raise InputError(message(expected, str(self.n_components), do))
            n_random -= n_low
            self._low = (
                float(coefficients[0]),
                float(coefficients[1]) if len(coefficients) > 1 else 0.0,
            )
            coefficients = [0.0, 0.0, *coefficients[2:]]
        self.points_ = draw(
            coefficients, n_random, self.n_features_in_, self._source("maclaurin features")
        )
        self._n_features_out = self.n_components
        return self

    def _coefficients(self) -> Sequence[float]:
        known = getattr(self.kernel_, "maclaurin", None)
        if known is None:
            do = "use Polynomial or DotProductSeries, or KreinFeatures for this kernel"
            raise InputError(
                message(
                    "a kernel with Maclaurin coefficients", type(self.kernel_).__name__, do
                )
            )
        coefficients: Sequence[float] = known()
        check_coefficients(coefficients)
        return coefficients

    def _features(self, rows: Tensor) -> Tensor:
        features = maclaurin_features(rows, self.points_)
        if self.exact_low_degrees:
            constant, linear = (value**0.5 for value in self._low)
            features = torch.cat(
                [torch.full_like(rows[:, :1], constant), linear * rows, features], 1
            )
        return self._with_zeros(features, rows)


class SphericalFeatures(IndefiniteMap, DrawnMap):
    """Random Fourier features of the positive definite kernel nearest to a kernel of the distance
    on the sphere.

    Parameters
    ----------
    kernel : str or IndefiniteKernel, default="polynomial"
        "polynomial", "hellinger", "tanh", "geodesic_gaussian" or an instance that depends on the
        distance alone.
    n_components : int, default=100
        Output columns, cosines with random phases.
    n_gaussians : int, default=10
        Gaussians in the fit of the kernel; 10 in the paper.
    random_state : int, RandomState instance or None, default=None
    device : str, default="auto"
        Where arrays are computed, as in `FourierFeatures`.

    Attributes
    ----------
    kernel_ : IndefiniteKernel
    frequencies_ : Tensor of shape (n_components, n_features_in_), float64
        Radians per unit of the normalised rows.
    amplitude_ : float
        Of every cosine.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Pennington, Yu and Kumar 2015. A signed spectrum is cut at zero, so the error does not vanish
    with more columns.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.feature_maps.comparators import SphericalFeatures
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> SphericalFeatures(n_components=64, random_state=0).fit_transform(X).shape
    (50, 64)
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "kernel": [
            StrOptions({"polynomial", "hellinger", "tanh", "geodesic_gaussian"}),
            IndefiniteKernel,
        ],
        "n_components": [COUNT],
        "n_gaussians": [COUNT],
        "random_state": ["random_state"],
        "device": [str],
    }

    def __init__(
        self,
        kernel: str | IndefiniteKernel = "polynomial",
        n_components: int = 100,
        *,
        n_gaussians: int = 10,
        random_state: object = None,
        device: str = "auto",
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.n_gaussians = n_gaussians
        self.random_state = random_state
        self.device = device

    @transactional
    @isolated
    def fit(self, X: object, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Fit the spectrum and draw the frequencies for as many dimensions as X has columns.

        Parameters
        ----------
        X : array-like, sparse matrix or Tensor of shape (n_samples, n_features)
            Only its shape matters.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        InputError
            The kernel is no function of the distance on the sphere.
        """
        self._validate_params()
        self._check(X, reset=True)
        device_named(self.device)
        self.kernel_ = resolve(self.kernel)
        if not isinstance(self.kernel_, DotProduct):
            do = "use KreinFeatures for this kernel"
            raise InputError(
                message(
                    "a kernel of the distance on the sphere", type(self.kernel_).__name__, do
                )
            )
        dim = self.n_features_in_
        source = self._source("spherical features")
        # Hellinger is not defined for negative products: its rows are at most sqrt(2) apart
        widest = 2.0 if self.kernel_.defined_everywhere else 2.0**0.5
        distances = torch.linspace(0.0, widest, 81, dtype=torch.float64)
        values = self.kernel_.of_product(1.0 - 0.5 * distances.square(), dim)
        radii, mass = positive_spectrum(values, distances, dim, self.n_gaussians)
        uniform = torch.rand(self.n_components, generator=source, dtype=torch.float64)
        level = (mass.cumsum(0) / mass.sum().clamp(min=1e-300)).contiguous()
        radius = radii[torch.searchsorted(level, uniform).clamp(max=len(radii) - 1)]
        self.frequencies_ = radius[:, None] * directions(self.n_components, dim, source)
        self.phases_ = (
            2 * torch.pi * torch.rand(self.n_components, generator=source, dtype=torch.float64)
        )
        self.amplitude_ = float((2.0 * mass.sum() / self.n_components).sqrt())
        if self.amplitude_ == 0.0:
            warn_user(
                "All features are 0: the kernel has no positive spectrum. KreinFeatures takes such "
                "kernels.",
                DataWarning,
            )
        self._n_features_out = self.n_components
        return self

    def _largest_arrays(self) -> dict[str, int]:
        return super()._largest_arrays() | {
            "n_gaussians": n_radii(self.n_features_in_) * self.n_gaussians
        }

    def _features(self, rows: Tensor) -> Tensor:
        phase = torch.addmm(self.phases_.to(rows), rows, self.frequencies_.to(rows).T)
        # in place: the features are all that is held
        return self._with_zeros(phase.cos_().mul_(self.amplitude_), rows)
