"""Random Fourier features of indefinite and dot-product kernels (RFF-DIGMM) as a scikit-learn
transformer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import ClassVar, Self

import torch
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bochner import random
from bochner.data.accepted import COUNT
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.feature_maps.base import IndefiniteMap
from bochner.feature_maps.sections import Survey
from bochner.features.fourier import feature_rows
from bochner.kernels.base import Frequencies
from bochner.kernels.domains import IndefiniteKernel
from bochner.kernels.indefinite import NAMED, TL1, resolve
from bochner.krein.radial import spectral
from bochner.krein.signed_frequencies import (
    GaussianFrequencies,
    SignedFrequencies,
    WithConstant,
)
from bochner.krein.sketch import Sketch
from bochner.krein.span import search
from bochner.krein.taylor import fit_taylor
from bochner.linalg import device_named
from bochner.memory import Memory
from bochner.processes.isolation import isolated, transactional

# Rows of an automatic sketch: enough to see the kernel's negative part, more where there is more to
# learn.
_LEAST = 1000
_MOST = 2000
_HELD_OUT = 0.2
# Columns, or rows where they are fewer, from which a search takes minutes.
_WIDE = 1000
# Matrices of a sketch, and copies of the covariances of a mixture or of all frequencies, that a fit
# holds at once.
_MATRICES = 5
_COPIES = 5
# What an inference sets.
_OF_INFERENCE = (
    "posterior_",
    "frequencies_",
    "signs_",
    "held_out_error_",
    "history_",
    "n_iter_",
)


class KreinFeatures(IndefiniteMap):
    """Map rows to [phi+, phi-] with <phi+(x), phi+(y)> - <phi-(x), phi-(y)> close to a kernel that
    may be indefinite.

    A linear learner on the features works with the kernel, on as many rows as there are: the fit
    looks at a sketch of the rows alone, its cost does not grow with their number.

    Parameters
    ----------
    kernel : str, IndefiniteKernel or callable, default="polynomial"
        "polynomial" (degree 10), "hellinger", "tl1", "tanh" or "geodesic_gaussian" with the
        published parameters, an instance such as ``bo.kernels.Polynomial(degree=3)``, or a function
        of two float64 arrays (n, d), (m, d) that returns (n, m). Kernels on the unit sphere divide
        rows by their norms; TL1 wants entries in [0, 1].
    n_components : int, default=100
        Output columns, both parts together: a cosine and a sine for every frequency. Where it is
        odd, with a warning, one column is a constant, the last of its part.
    n_mixtures : int, default=5
        T, components of the truncated Dirichlet process mixture of each part's frequencies.
    sketch_size : int or "auto", default="auto"
        Rows the fit sees, of those that have a place on the sphere. "auto": 4 n_components, at
        least 1,000 and at most 2,000, or 4/5 of the rows where there are fewer; the rest of a fifth
        as many again measures the error and chooses among rounds.
    inference : {"best", "gradient", "taylor", "spectral"}, default="best"
        "best": "gradient", and "spectral" where the kernel's spectrum is known; the one with the
        smaller error on the rows held out is kept. "gradient": Gaussian posteriors of the
        frequencies by closed-form expectations, in a time that grows with the cube of the columns,
        or of the rows that the fit sees where these are fewer.
        "spectral": the kernel's own signed spectrum by
        quadrature, for kernels of the distance on the sphere and for TL1. "taylor": the published
        updates, to reproduce them; they pull frequencies the wrong way.
    max_iter : int, default=100
        Most iterations of a search by gradient, which stops where rows held out from it no longer
        gain; most sweeps of the Taylor inference. Sketches of fewer than 500 rows have several
        searches: fits of few frequencies grow into fits of many.
    random_state : int, RandomState instance or None, default=None
        An int gives the same features every time.
    device : str, default="auto"
        Where arrays are computed: a torch device; "auto" is the processor. Tensors stay on theirs.

    Attributes
    ----------
    kernel_ : IndefiniteKernel
        The kernel that is approximated.
    signs_ : Tensor of shape (n_components,), float64
        +1 for the columns of the positive part, which come first, -1 for those of the negative
        part: the kernel is ``(transform(X) * signs_) @ transform(Y).T``.
    frequencies_ : Tensor of shape (ceil(n_components / 2), n_features_in_), float64
        The draw that the features use, radians per unit of the normalised rows; zero for a
        constant.
    posterior_ : SignedFrequencies
        What they were drawn from; its ``kernel`` is the fitted kernel, which the features estimate
        without bias.
    eigenvalue_ratio_ : float
        Smallest over largest eigenvalue of the sketch's kernel matrix; no negative part is fitted
        unless negative.
    held_out_error_ : float
        Relative root mean squared error of the features' kernel over pairs of rows that no fit saw;
        of the sketch where all rows are in it, or where the kernel is zero between all others.
    history_ : list of dict
        The start and the rounds of the gradient inference: ``elbo``, ``error``,
        ``held_out_error``; empty for the others.
    n_iter_ : int
        Iterations or sweeps that were allowed until the fit had converged; 1 for "spectral".
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Liu et al. (2020) (RFF-DIGMM) as corrected in the documentation: larger sketch, amplitudes, and
    another update of the frequencies. The diagonal k(x, x) is not fitted, only pairs of different
    rows.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.feature_maps.krein import KreinFeatures
    >>> X = np.random.default_rng(0).uniform(size=(200, 3))
    >>> model = KreinFeatures("tl1", n_components=20, random_state=0).fit(X)
    >>> model.transform(X).shape
    (200, 20)
    >>> model.held_out_error_ < 0.05
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "kernel": [StrOptions(set(NAMED)), IndefiniteKernel, callable],
        "n_components": [COUNT],
        "n_mixtures": [COUNT],
        "sketch_size": [
            Interval(Integral, None, None, closed="neither"),
            StrOptions({"auto"}),
        ],
        "inference": [StrOptions({"best", "gradient", "taylor", "spectral"})],
        "max_iter": [COUNT],
        "random_state": ["random_state"],
        "device": [str],
    }

    def __init__(
        self,
        kernel: str | IndefiniteKernel | Callable[..., object] = "polynomial",
        n_components: int = 100,
        *,
        n_mixtures: int = 5,
        sketch_size: int | str = "auto",
        inference: str = "best",
        max_iter: int = 100,
        random_state: object = None,
        device: str = "auto",
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.n_mixtures = n_mixtures
        self.sketch_size = sketch_size
        self.inference = inference
        self.max_iter = max_iter
        self.random_state = random_state
        self.device = device

    @transactional
    @isolated
    def fit(self, X: object, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn the frequencies from a sketch of the rows.

        Parameters
        ----------
        X : array-like, sparse matrix, Tensor or row source of shape (n_samples, n_features)
            At least two rows. Memory maps are read block by block, without a copy, and sparse
            matrices are dense only so; only the sketch is held.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        InputError
            ``sketch_size`` is below 2 or above the number of rows; fewer than two rows have
            a place on the sphere; an entry lies outside [0, 1] or a product is negative where the
            kernel needs otherwise; a callable is not symmetric, or returns a wrong shape or complex
            numbers; kernel values overflow, or are zero between all different rows; the kernel
            has no known spectrum for ``inference="spectral"``; the sketch or the mixtures are more
            than memory holds; the device is unknown.
        ValueError
            Another parameter or X is not usable (scikit-learn's own messages).

        Warns
        -----
        DataWarning
            ``n_components`` is odd, or the search takes minutes: beyond 1,000 columns, of as many
            rows.
        """
        self._validate_params()
        if self.n_components % 2:
            do = f"type n_components={self.n_components + 1}: one column is a constant"
            text = message(
                "an even n_components, a cosine and a sine each", str(self.n_components), do
            )
            warn_user(text, DataWarning)
        self.kernel_ = resolve(self.kernel)
        survey = self._survey(X)
        device_named(self.device)
        source = self._source("krein features")
        sketch = self._sketch(X, survey, source)
        self._n_features_out = self.n_components
        self._infer(sketch, source)
        self.eigenvalue_ratio_ = float(sketch.eigenvalues[0]) / (
            float(sketch.eigenvalues[-1]) or 1.0
        )
        return self

    def fitted_kernel(self, X: object, Y: object = None) -> object:
        """Return the closed form of the fitted kernel, the mean of the features' kernel over their
        draws.

        Parameters
        ----------
        X : array-like, sparse matrix or Tensor of shape (n, n_features)
        Y : array-like, sparse matrix or Tensor of shape (m, n_features), optional
            X where it is None.

        Returns
        -------
        ndarray or Tensor of shape (n, m)
        """
        check_is_fitted(self)
        left = self._prepared(self._validate(X, reset=False).double())
        right = left if Y is None else self._prepared(self._validate(Y, reset=False).double())
        matrix = self.posterior_.kernel(left, right) * self._have_places(left, right)
        return matrix if isinstance(X, Tensor) else matrix.cpu().numpy()

    def _infer(self, sketch: Sketch, source: torch.Generator) -> None:
        """Fit the frequencies and draw them; of two inferences, keep that of the smaller error."""
        self._warn_of_width(sketch)
        first, *others = self._inferences()
        self._infer_by(first, sketch, source)
        for other in others:
            before = {name: getattr(self, name) for name in _OF_INFERENCE}
            self._infer_by(other, sketch, source)
            if before["held_out_error_"] <= self.held_out_error_:
                for name, value in before.items():
                    setattr(self, name, value)

    def _inferences(self) -> list[str]:
        """Return the inferences of which the better one is kept."""
        if self.inference != "best":
            return [self.inference]
        return ["gradient", "spectral"] if self._has_spectrum else ["gradient"]

    @property
    def _has_spectrum(self) -> bool:
        return self.kernel_.radial or isinstance(self.kernel_, TL1)

    def _warn_of_width(self, sketch: Sketch) -> None:
        """Warn of a search that takes minutes before it begins."""
        n_columns = sketch.x.shape[1]
        n_rows = len(sketch.x) + len(sketch.held_out)
        # the published updates know no span
        by_columns = self.inference == "taylor"
        width = n_columns if by_columns else min(n_columns, n_rows)
        if width <= _WIDE or self.inference == "spectral":
            return
        faster = ["PCA before it"]
        if not by_columns:
            faster.insert(0, "a smaller sketch_size")
        if self._has_spectrum:
            faster.append("inference='spectral'")
        of = "of the columns" if by_columns else "of the fewer of both"
        warn_user(
            f"The search for frequencies of {n_rows:,} rows in {n_columns:,} columns takes "
            f"minutes: its time grows with the cube {of}. In seconds: {', or '.join(faster)}.",
            DataWarning,
        )

    def _infer_by(self, inference: str, sketch: Sketch, source: torch.Generator) -> None:
        """Fit the frequencies, draw those of the features and measure their error."""
        if inference == "spectral":
            # the same draw whatever was drawn before
            source = random.generator(source.initial_seed(), inference)
        posterior = self._posterior(inference, sketch, source)
        self.posterior_ = replace(posterior, weight=posterior.weight * sketch.magnitude)
        self.frequencies_ = posterior.draw(source)
        self.signs_ = self._part_signs()
        checked = sketch.held_out if len(sketch.held_out) > 1 else sketch.x
        self.held_out_error_ = self._relative_error(checked, sketch.magnitude)

    def _posterior(
        self, inference: str, sketch: Sketch, source: torch.Generator
    ) -> SignedFrequencies:
        """Fit as many frequencies as there are pairs of columns, and a constant for a last one."""
        self.history_: list[dict[str, float]] = []
        self.n_iter_ = 1
        n_frequencies, n_constants = divmod(self.n_components, 2)
        posterior: SignedFrequencies = GaussianFrequencies.none(
            sketch.x.shape[1], sketch.x.device
        )
        if n_frequencies:
            posterior = self._searched(inference, sketch, n_frequencies, source)
        if not n_constants:
            return posterior
        return WithConstant.of(posterior, sketch.mean_residual(posterior.kernel))

    def _searched(
        self, inference: str, sketch: Sketch, n_frequencies: int, source: torch.Generator
    ) -> SignedFrequencies:
        if inference == "spectral":
            return spectral(self.kernel_, sketch, n_frequencies)
        if inference == "taylor":
            published, self.n_iter_ = fit_taylor(
                sketch, n_frequencies, self.n_mixtures, self.max_iter, source
            )
            return published
        posterior, fit = search(sketch, n_frequencies, self.n_mixtures, self.max_iter, source)
        self.history_ = fit.history
        self.n_iter_ = fit.n_iter
        return posterior

    def _survey(self, X: object) -> Survey:
        """Check X and count its rows, section by section."""
        checked = self._checked_rows(X, reset=True, min_samples=2)
        return Survey.of((len(rows), int(self._has_place(rows).sum())) for rows in checked)

    def _sketch(self, X: object, survey: Survey, source: torch.Generator) -> Sketch:
        """Draw the rows of the sketch and of the check among those that have a place on the
        kernel's domain.
        """
        self._check_sketch_size(survey.n_rows)
        n_places = int(survey.counts.sum())
        if n_places < 2:
            raise InputError(
                message(
                    "at least 2 rows of a norm above zero", str(n_places), "check the data"
                )
            )
        size, held = self._sizes(n_places)
        self._check_fit(size, held)
        drawn = random.sample(n_places, size + held, source)
        prepared = self._prepared(survey.take(X, drawn, self._placed_rows).double())
        return Sketch.of(self.kernel_, prepared[:size], prepared[size:])

    def _largest_arrays(self) -> dict[str, int]:
        n_mixtures = self.n_mixtures * (self.n_features_in_ + 1)
        return super()._largest_arrays() | {"n_mixtures": n_mixtures}

    def _check_fit(self, size: int, held: int) -> None:
        """Refuse sketches and mixtures that the machine's memory does not hold."""
        memory = Memory.of_machine()
        what = f"the kernel matrices of {size:,} rows"
        memory.check(8 * _MATRICES * size**2, what, "lower sketch_size")
        n_columns = self.n_features_in_
        if self.inference == "spectral":
            return
        by_columns = self.inference == "taylor"
        # the published updates have a full covariance of every frequency, and know no span
        count = max(self.n_mixtures, self.n_components // 2) if by_columns else self.n_mixtures
        width = n_columns if by_columns else min(n_columns, size + held)
        what = f"{count:,} covariances of {width:,} columns"
        do = "put PCA before it, or lower " + (
            "n_components and n_mixtures" if by_columns else "n_mixtures"
        )
        memory.check(8 * _COPIES * count * width**2, what, do)

    def _placed_rows(self, section: object) -> Tensor:
        """Return the rows of a section that have a place on the kernel's domain."""
        rows = self._validate(section, reset=False).detach()
        return rows[self._has_place(rows)]

    def _check_sketch_size(self, n_rows: int) -> None:
        size = self.sketch_size
        if size != "auto" and not 2 <= int(size) <= n_rows:
            do = f"type sketch_size='auto' or a number up to {n_rows}"
            expected = f"sketch_size between 2 and the {n_rows} rows"
            raise InputError(message(expected, str(int(size)), do))

    def _sizes(self, n_places: int) -> tuple[int, int]:
        """Return rows of the sketch and rows held out, of those that have a place."""
        if self.sketch_size == "auto":
            size = min(max(_LEAST, 4 * self.n_components), _MOST)
            if n_places < (1 + _HELD_OUT) * size:
                size = n_places - int(_HELD_OUT * n_places)
        else:
            size = min(int(self.sketch_size), n_places)
        return size, min(n_places - size, max(2, int(_HELD_OUT * size)))

    def _check_domain(self, rows: Tensor) -> None:
        self.kernel_.normalise(rows)

    def _column_signs(self) -> Tensor:
        return self.signs_

    def _part_signs(self) -> Tensor:
        """Signs of the columns: cosines and sines of the positive part, then those of the negative
        part.
        """
        signs = torch.cat([part.repeat(2) for part in self._parts(self.posterior_.sign)])
        return self.posterior_.without_empty(signs).cpu()

    def _parts(self, values: Tensor) -> tuple[Tensor, Tensor]:
        positive = int((self.posterior_.sign > 0).sum())
        return values[:positive], values[positive:]

    def _features(self, rows: Tensor) -> Tensor:
        parts = zip(
            self._parts(self.frequencies_), self._parts(self.posterior_.weight), strict=True
        )
        blocks = [
            feature_rows(rows, Frequencies(w.to(rows.device), None, c.sqrt().to(rows.device)))
            for w, c in parts
            if len(w)
        ]
        features = torch.cat(blocks, 1) if len(blocks) > 1 else blocks[0]
        return self._with_zeros(self.posterior_.without_empty(features), rows)

    def _relative_error(self, rows: Tensor, magnitude: float) -> float:
        """Relative root mean squared error of the drawn features over pairs of prepared rows, the
        kernel's values divided by a magnitude.
        """
        features = self._features(rows) / math.sqrt(magnitude)
        exact = self._exact(rows, rows) / magnitude
        error = (features * self.signs_.to(features)) @ features.T - exact
        off = ~torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        return float((error[off].square().sum() / exact[off].square().sum()).sqrt())
