"""From kept draws to what prediction, reports and files of the library take."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from bochner.data.arrays import Float64Array, IntArray
from bochner.fitting.data import FitData
from bochner.fitting.plan import Fit, Plan
from bochner.kernels.base import Frequencies
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.likelihoods.likelihood import Gaussian, Likelihood
from bochner.likelihoods.negative_binomial import LARGEST_POLYA_GAMMA, NegativeBinomial
from bochner.mcmc import build
from bochner.mcmc.alignment import aligned
from bochner.mcmc.chain import Chain, Schedule
from bochner.mcmc.conditionals.views import ViewModel, WeightMoments
from bochner.mcmc.diagnostics import Draws, stacked
from bochner.mcmc.draws import source
from bochner.mcmc.model import Model, State
from bochner.mcmc.moments import Moments
from bochner.mcmc.priors import Priors
from bochner.mcmc.run import ChainFiles, run
from bochner.regression.observations import Data
from bochner.weight_posterior.conditioning import Draw, SharedDraw
from bochner.weight_posterior.posterior import NonConjugatePosterior, ViewPosterior

# Numbers in the covariances of a view's columns, over all draws: beyond it, columns share the
# average of their covariances.
_COVARIANCES = 2**25


@dataclass(frozen=True)
class Options:
    """What is asked of the sampler.

    Attributes
    ----------
    schedule : Schedule
    n_chains : int
    n_jobs : int or None
    latents : {"sample", "map"}
    frequency_kernel : {"slice", "metropolis"}
    priors : Priors
    """

    schedule: Schedule
    n_chains: int
    n_jobs: int | None = None
    latents: Literal["sample", "map"] = "sample"
    frequency_kernel: Literal["slice", "metropolis"] = "slice"
    priors: Priors = field(default_factory=Priors)


@dataclass(frozen=True)
class Sampled:
    """What sampling found.

    Attributes
    ----------
    fit : Fit
    draws : dict of str to ndarray
        Of `diagnostics.stacked`.
    missing : dict of str to Moments
        By view, of psi of all missing entries over the draws of all chains.
    interrupted : bool
    """

    fit: Fit
    draws: Draws
    missing: dict[str, Moments]
    interrupted: bool


def model_of(data: FitData, plan: Plan, options: Options) -> Model:
    """Return what is sampled.

    Raises
    ------
    InputError
        Likelihoods, counts or weights of views that cannot be sampled.
    """
    settings = {"latent_kernel": options.latents, "frequency_kernel": options.frequency_kernel}
    return build.model_of(data, plan, options.priors, **settings)


def sample(model: Model, warm: Fit, data: FitData, plan: Plan, options: Options) -> Sampled:
    """Sample the posterior, starting from a variational fit.

    Parameters
    ----------
    model : Model
        Of the same data, plan and options.
    warm : Fit
        Of the same data and plan.
    data : FitData
    plan : Plan
    options : Options

    Returns
    -------
    Sampled

    Raises
    ------
    KeyboardInterrupt
        Before every chain had a draw.
    """
    begin = build.starts(model, warm, plan.seed, options.n_chains)
    files = None if plan.checkpoint is None else chain_files(data.blocks, plan, options)
    result = run(
        model,
        begin,
        options.schedule,
        plan.seed,
        n_jobs=options.n_jobs,
        shown=plan.shown,
        checkpoint=files,
    )
    if not all(chain.n_draws for chain in result.chains):
        raise KeyboardInterrupt
    chains = aligned(model, result.chains)
    fit = fit_of(model, chains, warm, plan)
    missing = {
        view.name: functools.reduce(Moments.merged, [chain.missing[v] for chain in chains])
        for v, view in enumerate(model.views)
    }
    return Sampled(fit, stacked(model, chains), missing, result.interrupted)


def chain_files(data: Data, plan: Plan, options: Options) -> ChainFiles:
    """Return the checkpoints of a run; its plan has one."""
    settings = {**vars(options), "n_jobs": None}
    return ChainFiles(Path(str(plan.checkpoint)), f"{plan.digest(data)} {settings}")


def fit_of(model: Model, chains: Sequence[Chain], warm: Fit, plan: Plan) -> Fit:
    """Return the posterior as the models that are fitted by a bound have it.

    Parameters
    ----------
    model : Model
    chains : sequence of Chain
        Aligned.
    warm : Fit
        Whose bound and starts are kept.
    plan : Plan

    Returns
    -------
    Fit
    """
    states = [state for chain in chains for _, state in _snapshots(chain)]
    latents = np.concatenate([chain.traces["latents"] for chain in chains])
    posterior = tuple(
        _view_posterior(model, v, states, chains, warm.posterior[v], plan.seed)
        for v in range(len(model.views))
    )
    best = max(states, key=model.log_joint)
    kernels = tuple(_kernel(model, v, best) for v in range(len(model.views)))
    return Fit(
        posterior=posterior,
        latents=torch.from_numpy(latents.mean(0)),
        kernels=kernels,
        elbo=warm.elbo,
        elbo_se=warm.elbo_se,
        history=warm.history,
        stopped="plateau",
        starts=warm.starts,
        dropped=warm.dropped,
        withheld=warm.withheld,
    )


def _snapshots(chain: Chain) -> Sequence[tuple[int, State]]:
    """Return the states kept; that of the last draw where a chain was interrupted before any."""
    return chain.snapshots or ((chain.n_draws - 1, chain.state),)


def _view_posterior(
    model: Model,
    v: int,
    states: Sequence[State],
    chains: Sequence[Chain],
    warm: ViewPosterior,
    seed: int,
) -> ViewPosterior:
    view = model.views[v]
    parameter = f"{view.name}.{view.parameter_name}"
    traces = np.concatenate([chain.traces[parameter] for chain in chains])
    likelihood = _likelihood(warm.likelihood, traces)
    unit = float(replace(warm, likelihood=likelihood).noise_variance)
    moments = [
        view.weight_moments(s.views[v], s.x, source(seed, "weights of a draw", i, v))
        for i, s in enumerate(states)
    ]
    group_of, moments = grouped(moments)
    draws = tuple(
        _draw(model, view, state, v, moment, unit)
        for state, moment in zip(states, moments, strict=True)
    )
    # intercepts are among the weights
    groups = torch.from_numpy(group_of)
    largest = warm.largest if isinstance(warm, NonConjugatePosterior) else None
    return ViewPosterior.of(
        view.name, draws, groups, likelihood, dims=warm.dims, largest=largest
    )


def _draw(
    model: Model,
    view: ViewModel,
    state: State,
    v: int,
    moments: WeightMoments,
    unit: float,
) -> Draw:
    points, amplitude = view.spectrum(state.views[v])
    first = np.zeros((len(points), model.n_components))
    first[:, list(view.dims)] = points
    mean = moments.mean.copy()
    if view.has_intercept and state.views[v].parameter.size:
        # psi of counts is a log mean in the library and a log odds in the sampler
        mean[view.n_points] += np.log(state.views[v].parameter) / view.priors.intercept
    frequencies = Frequencies(torch.from_numpy(first), None, torch.from_numpy(amplitude))
    covariance = torch.from_numpy(np.ascontiguousarray(moments.covariances / unit))
    return SharedDraw(frequencies, torch.from_numpy(mean), covariance)


def grouped(moments: list[WeightMoments]) -> tuple[IntArray, list[WeightMoments]]:
    """Let columns share covariances where those of all columns and draws would be large.

    Parameters
    ----------
    moments : list of WeightMoments
        Of all draws of a view, with the same groups.

    Returns
    -------
    group_of : ndarray of shape (M,)
    moments : list of WeightMoments
    """
    first = moments[0]
    size = first.covariances[0].size * len(moments)
    most = max(_COVARIANCES // size, 1)
    if len(first.covariances) <= most:
        return first.group_of, moments
    index = np.arange(len(first.covariances)) * most // len(first.covariances)
    group_of = index[first.group_of]
    out = []
    for of_draw in moments:
        means = [of_draw.covariances[index == g].mean(0) for g in range(most)]
        out.append(WeightMoments(of_draw.mean, np.stack(means), group_of))
    return group_of, out


def _likelihood(start: Likelihood, parameters: Float64Array) -> Likelihood:
    """Return the likelihood with the parameter that has the right mean of the variance."""
    return _with_parameter(copy.deepcopy(start).cpu(), parameters).requires_grad_(False)


@functools.singledispatch
def _with_parameter(likelihood: Likelihood, parameters: Float64Array) -> Likelihood:  # noqa: ARG001
    """Put the mean of sampled parameters in the place of a likelihood's own, if it has one."""
    return likelihood


@_with_parameter.register
def _(likelihood: Gaussian, parameters: Float64Array) -> Likelihood:  # noqa: ARG001
    return Gaussian(float(parameters.mean()))


@_with_parameter.register
def _(likelihood: NegativeBinomial, parameters: Float64Array) -> Likelihood:
    # variance = mean + mean^2 / r
    r = torch.from_numpy(1.0 / (1.0 / parameters).mean(0))
    if float(r.max()) > LARGEST_POLYA_GAMMA:
        likelihood.bound = "tilted"
    likelihood.log_dispersion = nn.Parameter(r.log() if len(r) > 1 else r.log()[0])
    return likelihood


def _kernel(model: Model, v: int, state: State) -> DirichletProcessMixture:
    """Return the mixture of one draw; of covariances the axes' standard deviations."""
    of_view = state.views[v]
    view = model.views[v]
    counts: Tensor = torch.bincount(torch.from_numpy(of_view.labels)).double()
    scales = np.sqrt(np.diagonal(of_view.components.covariances, axis1=1, axis2=2))
    kernel = DirichletProcessMixture(
        counts / counts.sum(),
        of_view.components.means,
        scales,
        of_view.variance,
        view.priors.concentration,
    )
    shape = 1.0 + len(counts)
    kernel.get_buffer("concentration").copy_(
        torch.tensor([shape, shape / of_view.concentration], dtype=torch.float64)
    )
    return kernel.requires_grad_(False)
