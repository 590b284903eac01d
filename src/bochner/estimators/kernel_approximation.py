"""Random Fourier features as a scikit-learn transformer."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, _safe_indexing, check_random_state, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data
from torch import Tensor

from bochner import random
from bochner.errors import InputError
from bochner.features.fourier import fourier_features
from bochner.kernels.base import Kernel, SpectralKernel
from bochner.kernels.stationary import RBF

# Entries of the largest array of differences that the exact kernel may build at once.
_EXACT_ENTRIES = 2**24


class FourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Map rows to random features whose inner products approximate a kernel.

    Parameters
    ----------
    kernel : "rbf" or SpectralKernel, default="rbf"
        "rbf" means ``RBF()``, lengthscale 1. A kernel instance must have values for all its parameters.
    n_components : int, default=100
        Output columns, K = 2 Q H: a multiple of twice the kernel's number of mixture components Q. Where Q = 1 it
        may be odd: the last pair is then one cosine with a random phase, unbiased too, of higher variance.
    sampling : {"iid", "orthogonal", "sobol"}, default="iid"
        How the spectral points are drawn; the expectation is the kernel in all three.
    random_state : int, RandomState instance or None, default=None
        An int gives the same features every time.
    device : str, default="auto"
        Where arrays are computed: a torch device, or "auto" for CUDA where there is one. Tensors stay on theirs.

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
    Rahimi and Recht 2007; Yu et al. 2016 (orthogonal); paper 000, Prop. 1 (non-stationary pairs).
    `bochner.features.frequencies_needed` says how many spectral points guarantee an error; ``approximation_error``
    measures it.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.estimators.kernel_approximation import FourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> FourierFeatures(n_components=64, random_state=0).fit_transform(X).shape
    (50, 64)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [StrOptions({"rbf"}), Kernel],
        "n_components": [Interval(Integral, 1, None, closed="left")],
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
        random_state: Any = None,
        device: str = "auto",
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.sampling = sampling
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Draw the spectral points for as many dimensions as X has columns.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            Only its shape matters.
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
        self._validate(X, reset=True)
        self._resolve_device()
        kernel = _checked(RBF() if isinstance(self.kernel, str) else self.kernel)
        n_frequencies = self._n_frequencies(kernel)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        source = random.generator(seed, "fourier features")
        noise = kernel.noise(n_frequencies, self.n_features_in_, source, self.sampling)  # type: ignore[arg-type]
        self.kernel_ = kernel
        self.phase_ = 2 * math.pi * float(torch.rand((), generator=source)) if self.n_components % 2 else None
        self.frequencies_ = kernel.frequencies(noise).detach()
        self._n_features_out = self.n_components
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of the rows of X.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)

        Returns
        -------
        ndarray or Tensor of shape (n_samples, n_components)
            In X's precision. A tensor gives a tensor on the same device, differentiable once in X.

        Raises
        ------
        NotFittedError
            ``fit`` was not called.
        ValueError
            X is not finite or has another number of columns.
        """
        check_is_fitted(self)
        rows = self._validate(X, reset=False)
        features = self._features(rows)
        return features if isinstance(X, Tensor) else features.cpu().numpy()

    def iter_transform(self, X: Any, chunk: int = 4096) -> Iterator[Any]:
        """Yield the features of X in chunks of rows, so that memory does not grow with their number.

        Parameters
        ----------
        X : array-like, memory map or Tensor of shape (n_samples, n_features)
        chunk : int, default=4096
            Rows per chunk.

        Returns
        -------
        iterator of (at most chunk, n_components)

        Raises
        ------
        NotFittedError, ValueError
            As ``transform``, the second at the chunk it concerns; ``chunk`` is not a positive integer.
        """
        check_is_fitted(self)
        if chunk < 1 or int(chunk) != chunk:
            raise InputError(f"chunk must be a positive number of rows, got {chunk!r}.")
        slices = gen_batches(_num_samples(X), chunk)
        return (self.transform(X[rows] if isinstance(X, Tensor) else _safe_indexing(X, rows)) for rows in slices)

    @torch.no_grad()
    def approximation_error(self, X: Any, relative: bool = False) -> float:
        """Return the root mean squared error of the kernel matrix over all pairs of different rows.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_samples, n_features)
            At least two rows.
        relative : bool, default=False
            Divide by the root mean square of the exact kernel over the same pairs.

        Returns
        -------
        float

        Raises
        ------
        NotFittedError, ValueError
            As ``transform``; X has fewer than two rows.
        """
        check_is_fitted(self)
        rows = self._validate(X, reset=False, min_samples=2).double()
        kernel, features = copy.deepcopy(self.kernel_).to(rows.device), self._features(rows)
        n_rows = rows.shape[0]
        error = exact_square = rows.new_zeros(())
        for block in gen_batches(n_rows, max(1, _EXACT_ENTRIES // rows.numel())):
            exact = kernel(rows[block], rows)
            pairs = torch.ones_like(exact, dtype=torch.bool)
            pairs[:, block].fill_diagonal_(False)
            error = error + (features[block] @ features.T - exact)[pairs].square().sum()
            exact_square = exact_square + exact[pairs].square().sum()
        scale = exact_square if relative else n_rows * (n_rows - 1)
        return float((error / scale).sqrt())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _features(self, rows: Tensor) -> Tensor:
        """Return (n, K) features of checked rows, on their device."""
        drawn = self.frequencies_
        placed = replace(
            drawn,
            first=drawn.first.to(rows.device),
            second=None if drawn.second is None else drawn.second.to(rows.device),
            amplitude=drawn.amplitude.to(rows.device),
        )
        features = fourier_features(rows, placed)
        if self.phase_ is not None:
            cosines, sines = features.chunk(2)
            # sqrt(2) cos(w x + b): its square averages to the pair's over a uniform phase b
            last = math.sqrt(2.0) * (math.cos(self.phase_) * cosines[-1:] - math.sin(self.phase_) * sines[-1:])
            features = torch.cat([cosines[:-1], sines[:-1], last])
        return features.T.contiguous()

    def _n_frequencies(self, kernel: SpectralKernel) -> int:
        unit = 2 * kernel.n_mixtures
        if kernel.n_mixtures == 1:
            return -(-self.n_components // 2)
        if self.n_components % unit:
            raise InputError(
                f"n_components must be a multiple of {unit} (a cosine and a sine for each of the kernel's "
                f"{kernel.n_mixtures} mixture components), got {self.n_components}. "
                f"Type n_components={unit * (self.n_components // unit + 1)}."
            )
        return self.n_components // unit

    def _resolve_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return torch.empty(0, device=self.device).device
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"device {self.device!r} cannot be used here. Type device='auto' or 'cpu'.") from error

    def _validate(self, X: Any, *, reset: bool, min_samples: int = 1) -> Tensor:
        """Check X with scikit-learn's rules and messages; return its rows as a float32 or float64 tensor."""
        options = {"dtype": [np.float64, np.float32], "ensure_min_samples": min_samples, "reset": reset}
        if not isinstance(X, Tensor):
            array = np.ascontiguousarray(validate_data(self, X, **options))
            # torch warns about memory it may not write; nothing here writes, but the warning would reach the user
            return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self._resolve_device())
        rows = X if X.dtype in (torch.float32, torch.float64) or X.is_complex() else X.double()
        # Shape, names and number of columns show in the first rows: a tensor on a device is not copied for them.
        validate_data(self, rows[: max(1, min_samples)].detach().cpu().numpy(), **options)
        if not bool(torch.isfinite(rows).all()):
            raise InputError("Input X contains NaN or infinity.")
        return rows


def _checked(kernel: Any) -> SpectralKernel:
    """Return a copy of the kernel, which must have a spectral density and values for all its parameters."""
    if not isinstance(kernel, SpectralKernel):
        raise InputError(
            f"kernel must have a spectral density, got {type(kernel).__name__}, which has only a closed form. "
            "Use RBF, Matern, Periodic, SpectralMixture, NextGenSpectralMixture or SpectralSum."
        )
    for part in kernel.modules():
        missing = [n for n, v in part.get_params().items() if v is None] if isinstance(part, Kernel) else []
        if missing:
            raise InputError(
                f"{type(part).__name__} has no values for {', '.join(missing)}. "
                f"Give them, e.g. {type(part).__name__}({missing[0]}=...): nothing is learned here."
            )
    # Not sklearn's clone, which would return a learned kernel to the arguments it was built with.
    return copy.deepcopy(kernel)
