"""The scikit-learn face of every latent variable model: validation, units, attributes. No
mathematics.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bochner.data.accepted import check
from bochner.data.arrays import Float64Array, FloatArray
from bochner.data.likelihood_names import LIKELIHOODS, unknown_likelihood
from bochner.data.views import Views
from bochner.errors import (
    CollapseWarning,
    DataWarning,
    ModelFileError,
    NumericalError,
    message,
    warn_user,
)
from bochner.estimators import saving, shards, tensors
from bochner.estimators.methods import rows
from bochner.estimators.methods.prediction import PredictionMixin
from bochner.estimators.methods.training_latents import TrainingRows, of_arrays, training_rows
from bochner.estimators.settings import constraints, likelihoods, plans
from bochner.fitting.completion_choice import Question
from bochner.fitting.data import Candidates, FitData
from bochner.fitting.fit import fit as fit_model
from bochner.fitting.placed_rows import NotKept, Places, kept_places
from bochner.fitting.plan import Fit, Plan
from bochner.io.outputs import exists
from bochner.kernels.base import SpectralKernel
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.prediction import diagnostics
from bochner.processes import Processes, current
from bochner.processes.isolation import isolated, transactional
from bochner.progress import overall
from bochner.training.checkpoint import LastingPath, discard

# Rows are placed from at most this many training latents: scoring is one product of rows and
# candidates.
CANDIDATES = 5000


E = TypeVar("E", bound="LatentVariableEstimator")
P = ParamSpec("P")


def continued(fit: Callable[Concatenate[E, P], E]) -> Callable[Concatenate[E, P], E]:
    """Name the checkpoint where a fit that continues from it fails: its checksum is right, its
    numbers are not those of a fit.

    Raises
    ------
    ModelFileError
        In place of the NumericalError.
    """

    @functools.wraps(fit)
    def named(self: E, /, *args: P.args, **kwargs: P.kwargs) -> E:
        path = None if self.checkpoint is None else Path(self.checkpoint)
        there = path is not None and exists(path)
        try:
            return fit(self, *args, **kwargs)
        except NumericalError as error:
            if path is None or not there:
                raise
            got = f"{path.name}, from which the fit fails ({str(error).rstrip('.')})"
            do = "delete it and fit anew"
            raise ModelFileError(
                message("a checkpoint that can be continued", got, do)
            ) from error

    return named


class AttributesMixin(PredictionMixin):
    """Fitted attributes."""

    def _training_result(self) -> str:
        """Say how training ended."""
        state = "converged" if self.converged_ else "not converged"
        return f"{state} after {self.n_iter_:,} steps"

    def _set_attributes(self, counts: Float64Array, plan: Plan) -> None:
        """Set what a fit found; counts are of the observed entries of every column, (M,)."""
        fit = self._fit
        jacobian = float(self._scaling.log_jacobian(counts))
        self.elbo_ = fit.elbo + jacobian
        self.elbo_se_ = fit.elbo_se
        self.elbo_history_ = np.asarray(fit.history) + jacobian
        self.starts_ = [
            {
                **start,
                "elbo": start["elbo"] + jacobian,
                "elbo_start": start["elbo_start"] + jacobian,
            }
            for start in fit.starts
        ]
        self.n_iter_ = len(fit.history)
        self.converged_ = fit.stopped == "plateau"
        self.interrupted_ = fit.stopped == "interrupted"
        self.n_mixtures_ = plan.spec.n_mixtures
        self.n_frequencies_ = plan.spec.n_frequencies
        self.seed_ = plan.seed
        self.landmarks_ = fit.landmarks and {
            name: value + (jacobian if name.startswith("elbo") else 0)
            for name, value in fit.landmarks.items()
        }
        self.dropped_ = dict(zip(plan.spec.names, fit.dropped, strict=True))
        self.withheld_ = dict(zip(plan.spec.names, fit.withheld, strict=True))
        scales = self._scales
        self.likelihood_ = {view.name: view.likelihood.name for view in fit.posterior}
        gaussian = self._gaussian_views()
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
                "Raise max_iter or tol.",
                ConvergenceWarning,
            )

    def _set_embedding(
        self,
        training: TrainingRows,
        offsets: list[Tensor | None],
        some: Candidates,
        covariates: Tensor,
        kept: Places,
    ) -> None:
        self._keep_patterns(some.values, some.index, some.covariates)
        self._prepare_placing(some)
        self._embedded, known = training.placed(self, offsets, some, covariates, kept)
        posterior = self._fit.posterior
        placement = known.placement
        width = known.values.shape[1]
        count = tensors.fitting(CANDIDATES, width)
        few = tensors.subset(len(known.index), count, self.seed_)
        index = known.index[torch.from_numpy(few)]
        shown, offsets, chosen = self._some_known(known, index)
        known_of = posterior, chosen.mean, shown, chosen.covariates
        self.relevance_, self.variance_explained_ = current().of_first(
            lambda: (
                diagnostics.relevance(posterior, placement.mean),
                diagnostics.variance_explained(*known_of),
            )
        )
        noise = diagnostics.noise_shares(posterior, shown)
        self.collapse_ = diagnostics.collapse(placement.mean.numpy(), known.std, noise)
        moments = diagnostics.count_moments(posterior, chosen, shown, offsets)
        self.dispersion_moment_: dict[str, object] = {
            view: dispersions.tolist() for view, dispersions in moments.dispersions.items()
        }
        for advice in moments.advice() if self.converged_ else []:
            warn_user(advice, DataWarning)
        likelihoods.warn_of_caps(self.dispersion_)
        if self.collapse_.collapsed:
            warn_user(self.collapse_.advice(), CollapseWarning)

    def _some_known(
        self, known: rows.KnownRows, index: Tensor
    ) -> tuple[list[Tensor], list[Tensor | None], Placement]:
        """Return some known rows, scaled, with their offsets and places."""
        shown, offsets = self._some(known.values, known.offsets, index)
        return shown, offsets, known.placement.of(index)


class LatentVariableEstimator(AttributesMixin, ClassNamePrefixFeaturesOutMixin, BaseEstimator):
    """Base of the estimators; see `NGMVLVM` for parameters and attributes."""

    _parameter_constraints: ClassVar[dict[str, list[object]]] = constraints.COMMON
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
        views: object = None,
        likelihood: object = "gaussian",
        n_mixtures: int | str = "auto",
        n_frequencies: int | str = "auto",
        sampling: str = "auto",
        init: object = "auto",
        n_init: int | str = "auto",
        max_iter: int | str = "auto",
        tol: float | str = "auto",
        learning_rate: float | str = "auto",
        landmarks: int | str | None = "auto",
        truncation: float | str = "auto",
        latent: object = "shared",
        view_weight: object = None,
        noise: str = "view",
        noise_variance: object = None,
        device: str = "auto",
        dtype: str = "float32",
        checkpoint: str | PathLike[str] | None = None,
        random_state: object = None,
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
        self.noise_variance = noise_variance
        self.device = device
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _validate_params(self) -> None:
        """Refuse parameters of other types; True and False are no numbers."""
        given = self.get_params(deep=False)
        likelihood = given["likelihood"]
        if isinstance(likelihood, str) and likelihood not in LIKELIHOODS:
            raise unknown_likelihood(likelihood)
        check(self._parameter_constraints, given, type(self).__name__)

    def _check_size(self, shape: tuple[int, ...]) -> None:
        """Refuse settings for which no memory is large enough."""
        plans.check_size(shape, self)

    def _kernel_for(self, view: str) -> SpectralKernel:  # noqa: ARG002 - every view has the same kind
        """Return what the kernel of a view is like."""
        return self._kernel()

    # -- fitting
    # ---------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    @transactional
    @continued
    @isolated
    def fit(
        self,
        X: object,
        y: object = None,  # noqa: ARG002 - scikit-learn's
        *,
        size_factors: object = None,
        covariates: object = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, scipy sparse matrix or row source of shape (N, M)
            NaN = missing: single entries, or all entries of a view in a row. Zeros that a sparse X
            does not store are observed values; it holds no NaN and is never made dense as a whole.
            Memory maps and arrays of zarr and HDF5 are read block by block where their views are
            Gaussian and rows so many that there are landmarks.
        y : ignored
        size_factors : array-like of shape (N,), or dict of view to one, optional
            For views of counts: a row's mean is proportional to its factor.
        covariates : DataFrame, Series, dict of name to values, or array, optional
            What is known of every row (batch, donor, time): its linear effect on the columns is
            separated from the latents. Numbers are continuous; categories, texts and booleans are
            labels.

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
        processes = current()
        values = shards.validated(self, X)
        if processes.size > 1:
            processes = shards.joined(self, values, covariates, size_factors)
        training = training_rows(values)
        beside = self._fit_covariates(covariates, X, values.shape[0], size_factors)
        seed = processes.first(int(check_random_state(self.random_state).randint(2**31 - 1)))
        shape = (processes.total(values.shape[0]), values.shape[1])
        self._check_size(shape)
        views = self._coding.views(self.views)
        names = getattr(self, "feature_names_in_", None)
        data = self._coding.scaled(Views.fit(values, views, names, processes))
        self.views_ = data.columns
        self._scaling = data.scaling
        kernels = {view: self._kernel_for(view) for view in data.names}
        given = values, data, size_factors, kernels, processes
        data, chosen, offsets = self._set_likelihoods(*given)
        plan = plans.make(self, data, seed, kernels, chosen, beside.groups, processes)
        if processes.size > 1:
            shards.check_plan(plan)
        fit_data = tensors.fit_data(data, plan, offsets, beside, size_factors)
        # those of an earlier fit
        self._placed = self._placer = None
        self._fit = self._infer(fit_data, plan)
        self._set_attributes(data.counts, plan)
        logs = list(offsets.values())
        some = self._set_candidates(values, logs, beside.values, fit_data, plan)
        kept: Places = NotKept()
        if isinstance(self.checkpoint, LastingPath) and not self.interrupted_:
            facts = {"rows": fit_data.checksum, "origin": plan.origin, "elbo": self._fit.elbo}
            kept = kept_places(self.checkpoint, self._candidates, processes.start, facts)
        with overall("placing rows", plan.shown):
            self._set_embedding(training, logs, some, beside.values, kept)
        if self.checkpoint is not None and not self.interrupted_ and processes.rank == 0:
            # only now: a crash before here must not cost the run
            discard(self.checkpoint)
        return self

    def _set_candidates(
        self,
        values: Any,
        offsets: list[Tensor | None],
        covariates: Tensor,
        data: FitData,
        plan: Plan,
    ) -> Candidates:
        """Keep the rows of training from which others are placed, and how they are completed."""
        n_rows = plan.processes.total(values.shape[0])
        kept = torch.from_numpy(tensors.subset(n_rows, CANDIDATES, self.seed_))
        some = Candidates.of(self._fit, values, offsets, covariates, data, kept, plan)
        self._candidates = some.latents
        self._completion = {}
        # fits of one view need no choice, and with covariates it is modes: a mixture's places know
        # the covariates of other rows
        if (draws := some.fit.latent_draws) is not None:
            rows = functools.partial(self._some, some.values, some.offsets)
            given = some.fit, draws, some.index, some.data, some.plan, rows
            self._completion = Question.of(*given)
        self._fit = replace(self._fit, latent_draws=None)
        return some

    def _infer(self, data: FitData, plan: Plan) -> Fit:
        """Return the posterior of the model that the plan describes."""
        return fit_model(data, plan)

    def _extra_state(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Return tensors and JSON that files of this model hold beside what all models have."""
        return {}, {}

    def _restore_extra(self, tensors: dict[str, Tensor], header: dict[str, object]) -> None:
        """Take back what `_extra_state` returned."""

    def _set_likelihoods(
        self,
        values: Any,
        data: Views,
        given: object,
        kernels: Mapping[str, SpectralKernel],
        processes: Processes,
    ) -> tuple[Views, dict[str, Likelihood], dict[str, Tensor | None]]:
        """Choose and check the likelihoods, leave data that do not scale in the caller's units and
        find the size factors.
        """
        asked = self._coding.likelihood(self.likelihood, data)
        likelihoods.announce(self._coding.reasons(), bool(self.verbose))
        chosen = likelihoods.choose(asked, data, bool(self.verbose))
        if self._coding.noise(self.noise, plans.takes_column_noise(kernels)) == "column":
            chosen = likelihoods.per_column(chosen, data, bool(self.verbose), processes)
        names = getattr(self, "feature_names_in_", None)
        processes.together(lambda: likelihoods.check(values, chosen, data.columns, names))
        if processes.rank == 0:
            likelihoods.check_units(values, chosen, data, names)
        data = data.unscaled(
            [view for view, likelihood in chosen.items() if not likelihood.scales_with_data]
        )
        self._scaling = data.scaling
        rows = values, given, chosen, data.columns
        self._size_factors = likelihoods.SizeFactors.fit(*rows, processes)
        offsets = self._size_factors.offsets(*rows)
        for view, likelihood in chosen.items():
            if isinstance(likelihood, NonConjugateLikelihood):
                known = tensors.informative_data(
                    data, view, likelihood, offsets[view], processes
                )
                chosen[view] = likelihood.initial(*known)
        return data, chosen, offsets

    def fit_transform(
        self, X: ArrayLike, y: object = None, **fit_params: object
    ) -> FloatArray:
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
        embedding: FloatArray = self.fit(X, y, **fit_params).embedding_
        return embedding

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
        constraints.check_types("save", path=path)
        processes = current()
        if processes.size == 1:
            saving.save(self, path)
            return
        whole = self._of_all(processes)
        processes.together(lambda: saving.save(whole, path) if processes.rank == 0 else None)

    def _of_all(self, processes: Processes) -> Self:
        """Return the model with the latents of the rows of all processes."""
        whole = copy.copy(self)
        known = self._in_files()
        arrays = (known.mean, known.std, self._fit.latents.numpy())
        mean, std, latents = shards.whole(processes, arrays)
        whole._embedded = of_arrays(mean, std, len(latents))
        whole._fit = replace(self._fit, latents=torch.from_numpy(latents))
        return whole

    @property
    def latent_dims_(self) -> dict[str, tuple[int, ...]]:
        """Latent dimensions that each view sees: the shared ones first, then its own."""
        every = tuple(range(self._n_latents))
        return {view.name: view.dims or every for view in self._fit.posterior}

    @property
    def _n_features_out(self) -> int:
        return self._n_latents

    def __sklearn_tags__(self) -> Tags:
        """NaN is missing data, zeros of a sparse X are data, and float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
