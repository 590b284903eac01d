"""Random Fourier features as a scikit-learn transformer."""

from __future__ import annotations

import copy
from typing import ClassVar, Self

from sklearn.utils._param_validation import StrOptions
from torch import Tensor

from bochner.data.accepted import COUNT
from bochner.errors import InputError, message
from bochner.feature_maps.base import DrawnMap
from bochner.features.fourier import feature_rows, last_phase, with_last_cosine
from bochner.kernels.base import Kernel, SpectralKernel
from bochner.kernels.domains import IndefiniteKernel
from bochner.kernels.stationary import RBF
from bochner.linalg import device_named
from bochner.processes.isolation import isolated, transactional


class FourierFeatures(DrawnMap):
    """Map rows to random features whose inner products approximate a kernel.

    Parameters
    ----------
    kernel : "rbf" or SpectralKernel, default="rbf"
        "rbf" means ``RBF()``, lengthscale 1. A kernel instance must have values for all its
        parameters.
    n_components : int, default=100
        Output columns, K = 2 Q H: a multiple of twice the kernel's number of mixture components Q.
        Where Q = 1 it may be odd: the last pair is then one cosine with a random phase, unbiased
        too, of higher variance.
    sampling : {"iid", "orthogonal", "sobol"}, default="iid"
        How the spectral points are drawn; the expectation is the kernel in all three.
    random_state : int, RandomState instance or None, default=None
        An int gives the same features every time.
    device : str, default="auto"
        Where arrays are computed: a torch device; "auto" is the processor. Tensors stay on theirs.

    Attributes
    ----------
    kernel_ : SpectralKernel
        A copy of the kernel that is approximated.
    frequencies_ : Frequencies
        Q H spectral points (pairs), float64, radians per unit of X, with their amplitudes.
    phase_ : float or None
        Phase of the last cosine, radians; None where ``n_components`` is even.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, where X has names.

    Notes
    -----
    Rahimi and Recht 2007; Yu et al. 2016 (orthogonal); Yang et al. (2025), Prop. 1 (non-stationary
    pairs). `bochner.features.frequencies_needed` says how many spectral points guarantee an error;
    ``approximation_error`` measures it.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.feature_maps.fourier import FourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> FourierFeatures(n_components=64, random_state=0).fit_transform(X).shape
    (50, 64)
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "kernel": [StrOptions({"rbf"}), Kernel, IndefiniteKernel, type],
        "n_components": [COUNT],
        "sampling": [StrOptions({"iid", "orthogonal", "sobol"})],
        "random_state": ["random_state"],
        "device": [str],
    }

    def __init__(
        self,
        kernel: str | SpectralKernel = "rbf",
        n_components: int = 100,
        *,
        sampling: str = "iid",
        random_state: object = None,
        device: str = "auto",
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.sampling = sampling
        self.random_state = random_state
        self.device = device

    @transactional
    @isolated
    def fit(self, X: object, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Draw the spectral points for as many dimensions as X has columns.

        Parameters
        ----------
        X : array-like, sparse matrix, Tensor or row source of shape (n_samples, n_features)
            Only its shape matters. Memory maps are read block by block, without a copy.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        InputError
            The kernel has no spectral density, lacks values or is for another number of dimensions;
            ``n_components`` does not divide among its mixture components; the device is unknown.
        ValueError
            Another parameter or X is not usable (scikit-learn's own messages).
        """
        self._validate_params()
        self._check(X, reset=True)
        device_named(self.device)
        kernel = _checked(RBF() if isinstance(self.kernel, str) else self.kernel)
        n_frequencies = self._n_frequencies(kernel)
        source = self._source("fourier features")
        noise = kernel.noise(n_frequencies, self.n_features_in_, source, self.sampling)  # type: ignore[arg-type]
        self.kernel_ = kernel
        self.phase_ = last_phase(self.n_components, source)
        self.frequencies_ = kernel.frequencies(noise).detach()
        self._n_features_out = self.n_components
        return self

    def _features(self, rows: Tensor) -> Tensor:
        """Return (n, K) features of checked rows, on their device."""
        drawn = self.frequencies_
        features = feature_rows(rows, drawn.each(lambda part: part.to(rows.device)))
        return features if self.phase_ is None else with_last_cosine(features, self.phase_)

    def _n_frequencies(self, kernel: SpectralKernel) -> int:
        unit = 2 * kernel.n_mixtures
        if kernel.n_mixtures == 1:
            return -(-self.n_components // 2)
        if self.n_components % unit:
            raise InputError(
                f"n_components must be a multiple of {unit} (a cosine and a sine for each of the "
                "kernel's "
                f"{kernel.n_mixtures} mixture components), got {self.n_components}. "
                f"Type n_components={unit * (self.n_components // unit + 1)}."
            )
        return self.n_components // unit

    def _exact(self, rows: Tensor, others: Tensor) -> Tensor:
        matrix: Tensor = copy.deepcopy(self.kernel_).to(rows.device)(rows, others)
        return matrix


def _checked(kernel: object) -> SpectralKernel:
    """Return a copy of the kernel, which must have a spectral density and values for all its
    parameters.
    """
    if isinstance(kernel, type):
        do = f"call it, with its parameters: {kernel.__name__}()"
        raise InputError(message("a kernel", f"the class {kernel.__name__}", do))
    if isinstance(kernel, IndefiniteKernel):
        do = f"type bochner.KreinFeatures({kernel!r})"
        raise InputError(
            message("a kernel with a spectral density", f"{type(kernel).__name__}", do)
        )
    if not isinstance(kernel, SpectralKernel):
        raise InputError(
            f"kernel must have a spectral density, got {type(kernel).__name__}, which has only a "
            "closed form. "
            "Use RBF, Matern, Periodic, SpectralMixture, NextGenSpectralMixture or SpectralSum."
        )
    for part in kernel.modules():
        missing = part.without_values if isinstance(part, Kernel) else []
        if missing:
            raise InputError(
                f"{type(part).__name__} has no values for {', '.join(missing)}. "
                f"Give them, e.g. {type(part).__name__}({missing[0]}=...): nothing is learned here."
            )
    # Not sklearn's clone, which would return a learned kernel to the arguments it was built with.
    return copy.deepcopy(kernel)
