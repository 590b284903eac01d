"""From the data and the plan of a fit to the model that is sampled, and to where chains start."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bochner.data.arrays import Float64Array
from bochner.errors import InputError, message
from bochner.fitting.data import FitData
from bochner.fitting.plan import Fit, Plan
from bochner.kernels.base import SpectralKernel
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.likelihoods.binomial import Bernoulli, Binomial
from bochner.likelihoods.categorical import Categorical
from bochner.likelihoods.likelihood import Gaussian, Likelihood
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.mcmc.conditionals.gaussian import GaussianView
from bochner.mcmc.conditionals.logistic import BinomialView, NegativeBinomialView
from bochner.mcmc.conditionals.mixture import Components, draw_assignments, draw_components
from bochner.mcmc.conditionals.views import ViewData, ViewModel, ViewState
from bochner.mcmc.draws import source
from bochner.mcmc.model import Model, State
from bochner.mcmc.priors import Priors
from bochner.regression.observations import Block
from bochner.weight_posterior.posterior import NonConjugatePosterior, ViewPosterior

Common = tuple[str, ViewData, tuple[int, ...], int, Priors]

# Standard deviation of what chains add to the latents they start from, so that they do not start
# at one place.
_SPREAD = 0.1
# Precisions of entries are about as large as half of the counts, and that of a weight's prior is 1:
# float64 holds both beside each other up to here, with some digits to spare.
_LARGEST_COUNT = 1e12
# Times that the weights are drawn before the first sweep: those of the variational fit belong to
# other frequencies.
_FIRST_WEIGHTS = 3


def model_of(data: FitData, plan: Plan, priors: Priors, **settings: Any) -> Model:
    """Build the model that is sampled.

    Parameters
    ----------
    data : FitData
        Scaled; counts and categories as their likelihoods encode them.
    plan : Plan
    priors : Priors
    **settings
        Of `Model`.

    Returns
    -------
    Model

    Raises
    ------
    InputError
        A likelihood that has no sampler.
    """
    numbers = range(len(data.blocks))
    views = tuple(view_of(v, data, plan, priors) for v in numbers)
    return Model(views, plan.spec.n_components, **settings)


def view_of(v: int, data: FitData, plan: Plan, priors: Priors) -> ViewModel:
    """Build the model of one view."""
    spec = plan.spec
    name = spec.names[v]
    likelihood = spec.likelihoods[v]
    dims = spec.layout.dims(v)
    dims_of_view = tuple(range(spec.n_components)) if dims is None else dims
    values = dense(data.blocks[v], data.n_rows)
    if not isinstance(likelihood, Gaussian):
        _check_counts(name, values.values)
    common = (name, values, dims_of_view, spec.n_frequencies, priors)
    for kind, make in _MAKERS.items():
        if isinstance(likelihood, kind):
            return make(likelihood, common)
    samplers = "gaussian, bernoulli, binomial, categorical, negative_binomial"
    wanted = f"a likelihood with Polya-gamma augmentation ({samplers})"
    got = f"{likelihood.name!r} in view {name!r}"
    do = "use 'negative_binomial', or fit SRFLVM"
    raise InputError(message(wanted, got, do))


def _check_counts(name: str, values: Float64Array) -> None:
    """Refuse counts that are too large for Polya-gamma variables."""
    row, column = np.unravel_index(values.argmax(), values.shape)
    largest = values[row, column]
    if largest > _LARGEST_COUNT:
        got = f"{largest:g} in view {name!r}, row {row}, column {column}"
        do = "change the unit, write NaN if it is missing, or fit SRFLVM"
        wanted = (
            f"counts of at most {_LARGEST_COUNT:g}, whose Polya-gamma variables leave the "
        )
        raise InputError(message(f"{wanted}weights a posterior in float64", got, do))


def _gaussian(likelihood: Likelihood, common: Common) -> ViewModel:  # noqa: ARG001
    return GaussianView(*common)


def _binomial(likelihood: Likelihood, common: Common) -> ViewModel:
    n = cast(Binomial, likelihood).n_trials.double().numpy()
    trials = np.broadcast_to(n, common[1].values.shape[1:]).copy()
    return BinomialView(*common, trials=trials)


def _categorical(likelihood: Likelihood, common: Common) -> ViewModel:  # noqa: ARG001
    return BinomialView(*common)


def _negative_binomial(likelihood: Likelihood, common: Common) -> ViewModel:
    r = cast(NegativeBinomial, likelihood).log_dispersion
    return NegativeBinomialView(*common, per_column=r.ndim > 0)


_MAKERS: dict[type[Likelihood], Callable[[Likelihood, Common], ViewModel]] = {
    Gaussian: _gaussian,
    Bernoulli: _binomial,
    Binomial: _binomial,
    Categorical: _categorical,
    NegativeBinomial: _negative_binomial,
}


def dense(blocks: Sequence[Block], n_rows: int) -> ViewData:
    """Put the blocks of a view into one table with NaN where nothing was observed."""
    n_columns = sum(block.n_columns for block in blocks)
    Y = torch.full((n_rows, n_columns), torch.nan, dtype=torch.float64)
    offset = torch.zeros(n_rows, dtype=torch.float64)
    for block in blocks:
        rows = block.rows.numbers(n_rows)
        columns = block.columns.cpu()
        Y[rows[:, None], columns] = block.values().double().cpu()
        offset += block.offsets(n_rows)
    return ViewData.of(Y.numpy(), offset.numpy())


def starts(model: Model, warm: Fit, seed: int, n_chains: int) -> list[State]:
    """Return where chains start: near the variational fit, each with frequencies and noise of its
    own.

    Parameters
    ----------
    model : Model
    warm : Fit
        Of the same data with Dirichlet process kernels.
    seed : int
    n_chains : int

    Returns
    -------
    list of State

    Raises
    ------
    InputError
        The fit has other latents.
    """
    latents = warm.latents.double().numpy()
    wanted = (model.n_rows, model.n_components)
    if latents.shape != wanted:
        got = str(latents.shape)
        do = "fit it to the same rows with the same n_components"
        raise InputError(message(f"a warm start of shape {wanted}", got, do))
    return [_start(model, warm, latents, seed, c) for c in range(n_chains)]


def _start(model: Model, warm: Fit, latents: Float64Array, seed: int, chain: int) -> State:
    rng = source(seed, "start", chain)
    x = latents + _SPREAD * rng.standard_normal(latents.shape)
    views = []
    for v, view in enumerate(model.views):
        posterior = warm.posterior[v]
        kernel = warm.kernels[v]
        random_start = source(seed, "start of a view", chain, v)
        state = _view_start(view, posterior, kernel, chain, random_start)
        for _ in range(_FIRST_WEIGHTS):
            state = view.update_weights(state, x, random_start)
        views.append(state)
    return State(x, tuple(views))


def _view_start(
    view: ViewModel,
    posterior: ViewPosterior,
    kernel: SpectralKernel,
    chain: int,
    rng: np.random.Generator,
) -> ViewState:
    draw = posterior.draws[chain % len(posterior.draws)]
    frequencies = draw.frequencies.first.double().numpy()
    of_view = frequencies[:, list(view.dims)]
    points = of_view[np.arange(view.n_points) % len(of_view)]
    prior = view.component_prior
    labels = np.zeros(view.n_points, dtype=np.int64)
    labels = draw_assignments(points, labels, 1.0, prior, rng)
    components: Components = draw_components(points, labels, prior, rng)
    n_columns = view.data.values.shape[1]
    n_weights = 2 * (view.n_points + view.has_intercept)
    weights = np.zeros((n_weights, n_columns))
    parameter = _parameter(posterior)
    if isinstance(posterior, NonConjugatePosterior):
        # psi is a log odds here; that of counts is a log mean in the other models
        shift = np.log(parameter) if parameter.size else 0.0
        start = posterior.intercept.double().numpy() - shift
        weights[view.n_points] = start / view.priors.intercept
    mixture = cast(DirichletProcessMixture, kernel)
    variance = float(mixture.log_variance.detach().exp())
    return ViewState(points, labels, components, 1.0, variance, weights, parameter)


def _parameter(posterior: ViewPosterior) -> Float64Array:
    value = _value(posterior.likelihood)
    return np.atleast_1d(value.detach().double().numpy())


@functools.singledispatch
def _value(likelihood: Likelihood) -> Tensor:  # noqa: ARG001 - most have no parameter
    return torch.zeros(0, dtype=torch.float64)


@_value.register
def _(likelihood: Gaussian) -> Tensor:
    return likelihood.noise_variance


@_value.register
def _(likelihood: NegativeBinomial) -> Tensor:
    return likelihood.dispersion
