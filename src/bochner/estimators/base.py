"""The scikit-learn face of every latent variable model: validation, units, attributes. No
mathematics.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bochner.data.sparse import dense_rows
from bochner.data.views import Views
from bochner.errors import CollapseWarning, warn_user
from bochner.estimators import constraints, likelihoods, options, plans, rows, saving, training_data
from bochner.estimators.prediction import PredictionMixin
from bochner.fitting.completion_choice import Question
from bochner.fitting.data import FitData
from bochner.fitting.fit import fit as fit_model
from bochner.fitting.plan import Fit, Plan
from bochner.isolation import isolated, transactional
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.prediction import diagnostics
from bochner.training.checkpoint import discard

FloatArray = NDArray[np.floating[Any]]

# Rows are placed from at most this many training latents: scoring is one product of rows and
# candidates.
_CANDIDATES = 5000
# Rows from which dispersions are estimated by moments, beside the learned ones.
_MOMENT_ROWS = 10_000


class LatentVariableEstimator(PredictionMixin, ClassNamePrefixFeaturesOutMixin, BaseEstimator):
    """Base of the estimators; see `NGMVLVM` for parameters and attributes."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = constraints.COMMON
    _kernel: ClassVar[type[SpectralKernel]]
    # what "auto" becomes: Q and H
    _auto_mixtures: ClassVar[int] = 2
    _auto_frequencies: ClassVar[int] = 100
    _fewer_frequencies: ClassVar[int] = 50
    # several K x K matrices are factored a step: fewer features, of which Sobol likes a power of
    # two
    _local_frequencies: ClassVar[int] = 32

    def __init__(
        self,
        n_components: int = 2,
        *,
        views: Any = None,
        likelihood: Any = "gaussian",
        n_mixtures: int | str = "auto",
        n_frequencies: int | str = "auto",
        sampling: str = "auto",
        init: Any = "auto",
        n_init: int | str = "auto",
        max_iter: int | str = "auto",
        tol: float | str = "auto",
        learning_rate: float | str = "auto",
        landmarks: int | str | None = "auto",
        truncation: float | str = "auto",
        latent: Any = "shared",
        view_weight: Any = None,
        noise: str = "view",
        device: str = "auto",
        dtype: str = "float32",
        checkpoint: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.views = views
        self.likelihood = likelihood
        self.n_mixtures = n_mixtures
        self.n_frequencies = n_frequencies
        self.sampling = sampling
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.landmarks = landmarks
        self.truncation = truncation
        self.latent = latent
        self.view_weight = view_weight
        self.noise = noise
        self.device = device
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _kernel_for(self, view: str) -> SpectralKernel:  # noqa: ARG002 - every view has the same kind
        """Return what the kernel of a view is like."""
        return self._kernel()

    # -- fitting
    # ---------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    @transactional
    @isolated
    def fit(self, X: ArrayLike, y: object = None, *, size_factors: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's
        """Fit the model.

        Parameters
        ----------
        X : array-like or scipy sparse matrix of shape (N, M)
            NaN = missing: single entries, or all entries of a view in a row. Zeros that a sparse X
            does not store are observed values; it holds no NaN and is never made dense as a whole.
        y : ignored
        size_factors : array-like of shape (N,), or dict of view to one, optional
            For views of counts: a row's mean is proportional to its factor.

        Returns
        -------
        self

        Raises
        ------
        InputError
            The data cannot be fitted; the message names view, row, column and value.

        Warns
        -----
        ConvergenceWarning
            ``max_iter`` steps were not enough.
        CollapseWarning
            Latent dimensions carry nothing.
        """
        values = self._validate(X, reset=True)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        plans.check_size(values.shape, self.n_components)
        views, names = self._coding.views(self.views), getattr(self, "feature_names_in_", None)
        data = self._coding.scaled(Views.fit(values, views, names))
        self._columns, self._scaling = data.columns, data.scaling
        n_components = options.layout(self.latent, self.n_components, data.names).n_components
        options.of_rank(values.shape, n_components)
        kernels = {view: self._kernel_for(view) for view in data.names}
        data, chosen, offsets = self._set_likelihoods(values, data, size_factors, kernels)
        plan = plans.make(self, data, seed, kernels, chosen)
        options.of_starts(plan.starts)
        fit_data = training_data.fit_data(data, plan, offsets)
        self._placed = None  # that of an earlier fit
        self._fit = self._infer(fit_data, plan)
        self._set_attributes(values, plan)
        kept = torch.from_numpy(training_data.subset(values.shape[0], _CANDIDATES, self.seed_))
        self._candidates = self._fit.latents[kept]
        rows = functools.partial(self._some, values, list(offsets.values()))
        self._completion = Question.of(self._fit, kept, fit_data, plan, rows)
        self._fit = replace(self._fit, latent_draws=None)
        self._set_embedding(values, list(offsets.values()), kept)
        if plan.checkpoint is not None and not self.interrupted_:
            discard(self.checkpoint)  # only now: a crash before here must not cost the run
        return self

    def _infer(self, data: FitData, plan: Plan) -> Fit:
        """Return the posterior of the model that the plan describes."""
        return fit_model(data, plan)

    def _extra_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON that files of this model hold beside what all models have."""
        return {}, {}

    def _restore_extra(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        """Take back what `_extra_state` returned."""

    def _set_likelihoods(
        self, values: FloatArray, data: Views, given: Any, kernels: Mapping[str, SpectralKernel]
    ) -> tuple[Views, dict[str, Likelihood], dict[str, Tensor | None]]:
        """Choose and check the likelihoods, leave data that do not scale in the caller's units and
        find the size factors.
        """
        asked = self._coding.likelihood(self.likelihood, data)
        likelihoods.announce(self._coding.reasons(), bool(self.verbose))
        chosen = likelihoods.choose(asked, data, bool(self.verbose))
        if self._coding.noise(self.noise, plans.takes_column_noise(kernels)) == "column":
            chosen = likelihoods.per_column(chosen, data.columns, bool(self.verbose))
        likelihoods.check(values, chosen, data.columns, getattr(self, "feature_names_in_", None))
        data = data.unscaled([view for view, own in chosen.items() if not own.scales_with_data])
        self._scaling = data.scaling
        self._size_factors = likelihoods.SizeFactors.fit(values, given, chosen, data.columns)
        offsets = self._size_factors.offsets(values, given, chosen, data.columns)
        for view, own in chosen.items():
            if isinstance(own, NonConjugateLikelihood):
                rows = training_data.informative_rows(values, data.columns[view])
                some = dense_rows(values, rows)[:, data.columns[view]].astype(np.float64)
                part = torch.from_numpy(data.scaling_of(view).apply(some))
                offset = offsets[view]
                chosen[view] = own.initial(
                    part, offset if offset is None or rows is None else offset[rows]
                )
        return data, chosen, offsets

    def fit_transform(self, X: ArrayLike, y: object = None, **fit_params: Any) -> Any:
        """Fit and return ``embedding_``, which is ``transform(X)``.

        Parameters
        ----------
        X : array-like of shape (N, M)
        y : ignored
        **fit_params
            Of ``fit``.

        Returns
        -------
        ndarray of shape (N, D)
        """
        return self.fit(X, y, **fit_params).embedding_

    @isolated
    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file, whole or not at all: JSON and tensors, never
        rows, never code.

        Parameters
        ----------
        path : path
            `bochner.load` reads it.

        Raises
        ------
        InputError
            Not a place to write to, or a parameter that is code (a callable, a kernel of the
            caller's own).
        """
        check_is_fitted(self)
        saving.save(self, path)

    def _set_attributes(self, values: FloatArray, plan: Any) -> None:
        fit, jacobian = self._fit, self._total_log_jacobian(values)
        self.elbo_, self.elbo_se_ = fit.elbo + jacobian, fit.elbo_se
        self.elbo_history_ = np.asarray(fit.history) + jacobian
        self.starts_ = [
            {
                **start,
                "elbo": start["elbo"] + jacobian,
                "elbo_start": start["elbo_start"] + jacobian,
            }
            for start in fit.starts
        ]
        self.n_iter_, self.converged_ = len(fit.history), fit.stopped == "plateau"
        self.interrupted_ = fit.stopped == "interrupted"
        self.n_mixtures_ = plan.spec.n_mixtures
        self.n_frequencies_ = plan.spec.n_frequencies
        self.seed_ = plan.seed
        self.landmarks_ = fit.landmarks and {
            name: value + (jacobian if name.startswith("elbo") else 0)
            for name, value in fit.landmarks.items()
        }
        self.dropped_ = dict(zip(plan.spec.names, fit.dropped, strict=True))
        scales = self._scales
        self.likelihood_ = {view.name: view.likelihood.name for view in fit.posterior}
        gaussian = [view for view in fit.posterior if view.local is None]
        self.noise_variance_ = {
            v.name: self._noise_in_units(v.name, v.noise_variance) for v in gaussian
        }
        self.dispersion_ = {
            view.name: view.likelihood.dispersion.numpy()
            for view in fit.posterior
            if isinstance(view.likelihood, NegativeBinomial)
        }
        self.kernels_ = {
            view.name: rows.natural(kernel, scales[view.name])
            for view, kernel in zip(fit.posterior, fit.kernels, strict=True)
        }
        if fit.stopped in ("max_iter", "failed"):
            warn_user(
                f"Training stopped after {self.n_iter_} steps before the bound had converged. "
                "Raise "
                "max_iter or tol.",
                ConvergenceWarning,
            )

    def _set_embedding(
        self, values: FloatArray, offsets: list[Tensor | None], kept: Tensor
    ) -> None:
        placement = self._place(values, offsets)
        self._remember(values, placement)
        self.embedding_ = placement.mean.numpy().astype(values.dtype)
        self.embedding_std_ = placement.std.numpy().astype(values.dtype)
        self.relevance_ = diagnostics.relevance(self._fit.posterior, placement.mean)
        few = training_data.subset(
            len(kept), training_data.fitting(_CANDIDATES, values.shape[1]), self.seed_
        )
        index = kept[torch.from_numpy(few)]
        shown, latents_shown = self._some(values, offsets, index)[0], placement.mean[index]
        self.variance_explained_ = diagnostics.variance_explained(
            self._fit.posterior, latents_shown, shown
        )
        gaussian = [view for view in self._fit.posterior if view.local is None]
        noise = {
            view.name: float(np.mean(likelihoods.plain_noise(view.noise_variance)))
            for view in gaussian
        }
        self.collapse_ = diagnostics.collapse(placement.mean.numpy(), placement.std.numpy(), noise)
        self.dispersion_moment_: dict[str, Any] = {}
        if self.dispersion_:
            count = training_data.fitting(_MOMENT_ROWS, values.shape[1])
            index = torch.from_numpy(training_data.subset(values.shape[0], count, self.seed_))
            rows, of_some = self._some(values, offsets, index)
            moments = diagnostics.moment_dispersions(
                self._fit.posterior, placement.mean[index], rows, of_some
            )
            self.dispersion_moment_ = {view: found.tolist() for view, found in moments.items()}
        options.of_dispersion(self.dispersion_)
        if self.collapse_.collapsed:
            warn_user(self.collapse_.advice(), CollapseWarning)

    @property
    def latent_dims_(self) -> dict[str, tuple[int, ...]]:
        """Latent dimensions that each view sees: the shared ones first, then its own."""
        every = tuple(range(self.embedding_.shape[1]))
        return {view.name: view.dims or every for view in self._fit.posterior}

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Tags:
        """NaN is missing data, zeros of a sparse X are data, and float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
