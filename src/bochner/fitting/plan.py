"""What a fit is asked to do, the models that it begins with, and what it found."""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from bochner import random
from bochner.data.arrays import Float64Array
from bochner.data.views import fingerprint
from bochner.errors import InputError
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.likelihood import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.linalg import laid_out
from bochner.memory import Memory
from bochner.models.lvm import (
    Covariates,
    GaussianLatents,
    LatentVariableModel,
    ModelSpec,
    View,
    ViewSpec,
)
from bochner.models.sites import Sites
from bochner.objectives.elbo import (
    Draws,
    Evaluation,
    draw,
    elbos,
    is_stored,
    latent_noise,
    row_noise,
)
from bochner.objectives.stored_draws import elbos_of_stored
from bochner.objectives.subset_sites import Anchors
from bochner.processes import ALONE, Processes
from bochner.progress import say
from bochner.random import RowNoise
from bochner.regression.observations import (
    Block,
    Data,
    EncodedBlock,
    encoded_block,
    has_holes,
)
from bochner.training.trainer import Options
from bochner.weight_posterior.posterior import ViewPosterior, weights_posterior

# Draws of a bound that is compared or returned: shared by all candidates, whose differences they
# tell apart better than their values.
EVALUATION_DRAWS = 32
# An evaluation of non-conjugate views, or have scattered holes, costs as much as a step,
# and candidates share their draws.
LOCAL_EVALUATION_DRAWS = 8
# Bounds of draws of so few frequencies are skewed; a draw of them costs little.
_FEW_FREQUENCIES = 4
# Of the variance of a mean over its standard error, by the squared skewness over the number.
_OF_SKEWNESS = 1.75
# A variance of draws that are equal: it divides zero.
_TINY = 1e-200
# Bounds what a step of wide non-conjugate views costs: of their columns some are drawn.
COLUMN_BUDGET = 3e7
# Times that the sites of a view follow each draw of latents and spectra, where a step takes all of
# its columns: with one, tables of some thousand entries ended up to a twentieth of their bound
# lower.
SWEEPS = 2
# Square matrices of the features that training of a view holds at its peak, with sites of each
# column more. By hand, of 500 to 3,000 features, 1 to 40 columns, one view or two: 6 to 10, and 12
# to 21. What they add up to is refused where no memory holds it.
_MATRICES = 10
_LOCAL_MATRICES = 20
# Spectra under which weights are conditioned: placing a row, and files, cost as many times as much.
POSTERIOR_DRAWS = 2
# Draws of X over which statistics are averaged: their noise falls as that of as many rows more.
LATENT_DRAWS = 4
# Beyond so many rows the noise of one draw of the latents averages out over rows.
MANY_ROWS = 10_000
# Standard deviations of latents and noise where training begins, of standardised views.
_INITIAL_STD = 0.1
_INITIAL_NOISE = 0.3
Start = str | Float64Array
# Name and bound of a start, before and after its race.
StartResult = dict[str, Any]
Stopped = Literal["plateau", "max_iter", "interrupted", "failed"]


@dataclass(frozen=True)
class Plan:
    """Everything a fit needs besides the data.

    Attributes
    ----------
    spec : ModelSpec
    starts : tuple of (name or array of shape (N, D))
    margin : float
        Starts race whose bound under the simplest kernels is, per observed entry, at most so many
        nats below the best.
    training : Options
    seed : int
    dtype : torch.dtype
    device : torch.device
    truncation : float
        Share of a complete view's squares that training may leave out.
    landmarks : int or None
        Rows to train on before the others are placed; None trains on all.
    shown : bool
        Whether a progress bar is wanted.
    checkpoint : Path or None
    column_budget : float
        Multiplications of one product of features and columns in a step, for non-conjugate views.
    origin : str
        Digest of what the data do not show here: their units, the names of columns, the caller's
        parameters.
    processes : Processes
        Among which the rows are divided.
    """

    spec: ModelSpec
    starts: tuple[Start, ...]
    margin: float
    training: Options
    seed: int
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    truncation: float = 0.0
    landmarks: int | None = None
    shown: bool = False
    checkpoint: Path | None = None
    column_budget: float = COLUMN_BUDGET
    origin: str = ""
    processes: Processes = ALONE

    @property
    def early(self) -> Plan:
        """The plan of the race and of training up to the decay: with fewer frequencies."""
        return replace(self, spec=self.spec.early)

    def draws(
        self,
        model: LatentVariableModel,
        purpose: str,
        step: int,
        budget: float | None = None,
    ) -> Draws:
        """Return the base noise of one evaluation of the bound, keyed by purpose and step."""
        return self._drawn(model, purpose, step, budget, latents=True)

    def spectra(
        self,
        model: LatentVariableModel,
        purpose: str,
        step: int,
        budget: float | None = None,
    ) -> Draws:
        """Return the base noise of one evaluation of the bound without that of the latents."""
        return self._drawn(model, purpose, step, budget, latents=False)

    def _drawn(
        self,
        model: LatentVariableModel,
        purpose: str,
        step: int,
        budget: float | None,
        latents: bool,
    ) -> Draws:
        spec = self.spec
        key = (spec.n_frequencies, spec.sampling, self.seed, purpose, step, budget)
        return draw(model, *key, self.processes.start, latents)

    def row_noise(self, model: LatentVariableModel, purpose: str, step: int) -> RowNoise:
        """Return the latents' base noise of one evaluation, to be made row part by row part."""
        return row_noise(model, self.seed, purpose, step, self.processes.start)

    def step_draws(
        self, model: LatentVariableModel, step: int, budget: float | None = None
    ) -> Draws:
        """Return the base noise of a step of training.

        Latents of odd steps are those of the step before on the other side of their means: over the
        steps that Adam averages, what is linear in the noise cancels (antithetic variates,
        Hammersley and Morton 1956).
        """
        if step % 2 == 0:
            return self.draws(model, "train", step, budget)
        draws = self.spectra(model, "train", step, budget)
        before = latent_noise(model, self.seed, "train", step - 1, self.processes.start)
        return replace(draws, latents=-before)

    def digest(self, data: Data, *beside: Tensor, checksum: int | None = None) -> str:
        """Return the fingerprint of this fit, of data and what stands beside them; with a checksum
        of the rows, however they are divided.
        """
        spec = self.spec
        settings = {
            **vars(self),
            "starts": [s if isinstance(s, str) else "array" for s in self.starts],
        }
        for transient in ("shown", "checkpoint", "device", "spec", "processes"):
            settings.pop(transient)
        settings["groups"] = spec.groups
        settings["spec"] = [spec.layout, spec.n_mixtures, spec.n_frequencies, spec.sampling]
        settings["views"] = [
            (view.name, view.weight, _described(view.likelihood), _described(view.kernel))
            for view in spec
        ]
        arrays = [s for s in self.starts if not isinstance(s, str)]
        # which entries are observed is part of the data: the same values in other rows are another
        # fit
        parts = [part for blocks in data for block in blocks for part in block.tensors()]
        if checksum is not None:
            settings["rows"] = checksum
            parts = []
        return fingerprint([*arrays, *parts, *beside], settings)


def _described(part: Likelihood | SpectralKernel) -> list[object]:
    """Return the class, by module and name, and the arguments of a likelihood or a kernel."""
    cls = type(part)
    params = {
        name: [_described(one) if isinstance(one, SpectralKernel) else one for one in value]
        if isinstance(value, list | tuple)
        else value
        for name, value in part.get_params().items()
    }
    return [f"{cls.__module__}.{cls.__qualname__}", params]


@dataclass(frozen=True)
class Fit:
    """What a fit found, for scaled data, in nats.

    Attributes
    ----------
    posterior : tuple of ViewPosterior
    latents : Tensor of shape (N, D), float64
        Means of q(X): the candidates from which rows are placed.
    kernels : tuple of SpectralKernel
        Learned.
    elbo, elbo_se : float
        Mean over fresh draws, and its standard error.
    history : list of float
    stopped : {"plateau", "max_iter", "interrupted", "failed"}
    starts : list of dict
        Name and bound of every start, before and after its race.
    blocks : list of (step, name, bound)
        The bound after every block of every sweep, for kernels whose posterior has blocks of its
        own.
    landmarks : dict or None
        Their number, and the bound of all rows (as trained on) when the others were placed and
        after the joint passes.
    dropped : list of float
        Share of every view's squares that training left out.
    withheld : list of int
        Entries of every view that training went without, to see what noise predictions need.
    latent_draws : Tensor of shape (S, N, D), float64, or None
        The draws of X over which the posterior's statistics are means, while somebody may leave
        rows out of it: where there are several views.
    latent_excess : float or None
        By how much variances of latents are too small or large, on rows drawn from the model;
        None where nobody has asked for it yet.
    latent_shares : list of float
        Shares of the mixture of modes that hold 0.01 to 0.99 of the latents of those rows; empty
        until then.
    """

    posterior: tuple[ViewPosterior, ...]
    latents: Tensor
    kernels: tuple[SpectralKernel, ...]
    elbo: float
    elbo_se: float
    history: list[float]
    stopped: Stopped
    starts: list[StartResult]
    blocks: list[tuple[int, str, float]] = field(default_factory=list)
    landmarks: dict[str, float] | None = None
    dropped: list[float] = field(default_factory=list)
    withheld: list[int] = field(default_factory=list)
    latent_draws: Tensor | None = None
    latent_excess: float | None = None
    latent_shares: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Lay the latents out as those of a file."""
        object.__setattr__(self, "latents", laid_out(self.latents))


def evaluate(
    model: LatentVariableModel,
    data: Data,
    plan: Plan,
    purpose: str,
    budget: float | None = None,
    n_draws: int | None = None,
    weighted: bool = True,
    said: str | None = None,
) -> tuple[float, float]:
    """Return the bound over fresh draws that all candidates of a purpose share: mean and standard
    error.

    With a budget, non-conjugate views draw columns as in training; without, every column
    counts. Sites follow each draw: two sweeps of all columns, one of some of them. What training
    maximised decides between starts; the bound that is stated is not ``weighted``. The phase that
    is ``said`` is followed by how many draws are done.
    """
    if n_draws is None:
        expensive = model.has_sites or has_holes(data)
        expensive = expensive and plan.spec.n_frequencies > _FEW_FREQUENCIES
        n_draws = LOCAL_EVALUATION_DRAWS if expensive else EVALUATION_DRAWS
    noises = [plan.row_noise(model, purpose, i) for i in range(n_draws)]

    def spectra(i: int) -> Draws:
        return plan.spectra(model, purpose, i, budget)

    how = Evaluation(processes=plan.processes, n_sweeps=SWEEPS)

    evaluated = elbos_of_stored if is_stored(data) and not model.has_sites else elbos
    with torch.no_grad():
        values = []
        for bound in evaluated(model, noises, data, spectra, how):
            values.append(bound.with_gap if weighted else bound.unweighted)
            if said is not None:
                say(f"{said}, {len(values)} of {n_draws} draws")
    mean, error = mean_of_draws(torch.stack(values))
    return float(mean), float(error)


def mean_of_draws(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over draws and its standard error, (n, ...) -> (...), (...), n > 3.

    A deviation of few draws is an estimate, and one of skewed draws is too small where their mean
    is far off: means are further away in such units than 1, as root mean square. The error has
    that factor in it: (n - 1) / (n - 3) of normal draws, and 7/4 of the squared skewness over n
    beside.
    """
    n = len(values)
    mean = values.mean(0)
    away = values.double() - mean.double()
    variance = away.square().mean(0)
    # equal draws have none
    skewness = away.pow(3).mean(0) / variance.clamp(min=_TINY).pow(1.5)
    skewness = skewness * (n * (n - 1.0)) ** 0.5 / (n - 2.0)
    factor = (n - 1.0) / (n - 3.0) + _OF_SKEWNESS * skewness.square() / n
    return mean, (factor * variance / (n - 1.0)).sqrt()


def condition(
    model: LatentVariableModel,
    data: Data,
    plan: Plan,
    anchors: Anchors | None = None,
    n_draws: int = POSTERIOR_DRAWS,
) -> tuple[ViewPosterior, ...]:
    """Return the posterior of every view's weights given the latents and the data."""
    return weights_posterior(
        model,
        data,
        n_frequencies=plan.spec.n_frequencies,
        n_draws=n_draws,
        n_latent_draws=n_latent_draws(model, plan),
        sampling=plan.spec.sampling,
        seed=plan.seed,
        anchors=anchors,
        processes=plan.processes,
    )


def n_latent_draws(model: LatentVariableModel, plan: Plan) -> int:
    """Return over how many draws of the latents statistics are averaged."""
    n_rows = plan.processes.total(model.latents.mean.shape[0])
    return 1 if n_rows > MANY_ROWS else LATENT_DRAWS


def model_from(
    latents: Float64Array,
    spec: ModelSpec,
    data: Data,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    covariates: Covariates,
) -> LatentVariableModel:
    """Build a model at a start.

    Parameters
    ----------
    latents : ndarray of shape (N, D)
    spec : ModelSpec
    data : tuple over views of tuples of Block
        Non-conjugate views keep sites for them.
    seed : int
    dtype : torch.dtype
        Of the latents and so of every product over rows.
    device : torch.device
    covariates : Covariates
        Of the rows.

    Returns
    -------
    LatentVariableModel
    """
    mean = torch.tensor(latents, dtype=dtype)
    beside = covariates.values.to("cpu", dtype)
    posterior = GaussianLatents(mean, torch.full_like(mean, math.log(_INITIAL_STD)), beside)
    views = []
    for v, (view, blocks) in enumerate(zip(spec, data, strict=True)):
        dims = spec.layout.dims(v)
        n_dims = mean.shape[1] if dims is None else len(dims)
        kernel = _kernel(spec, view, n_dims, seed)
        likelihood, sites = _start(view.likelihood, blocks, device)
        settings = (likelihood, sites, dims, view.weight, covariates.groups)
        views.append(View(view.name, kernel, *settings))
    return LatentVariableModel(posterior, views).to(device)


def n_features_of(spec: ModelSpec) -> list[int]:
    """Return K of every view, and refuse features whose square matrices no memory holds, before it
    is asked for.

    Raises
    ------
    InputError
        Naming the size of all that training holds at once, or a kernel is for another number of
        dimensions than its view sees.
    """
    counts = []
    size = 0
    for v, view in enumerate(spec):
        dims = spec.layout.dims(v)
        kernel = _kernel(spec, view, spec.n_components if dims is None else len(dims), 0)
        counts.append(2 * kernel.n_mixtures * spec.n_frequencies)
        size += 8 * counts[-1] ** 2 * (_MATRICES if view.conjugate else _LOCAL_MATRICES)
    what = f"the matrices of {max(counts):,} features by as many"
    Memory().check(size, what, "lower n_frequencies or n_mixtures")
    return counts


def _kernel(spec: ModelSpec, view: ViewSpec, n_dims: int, seed: int) -> SpectralKernel:
    """Return the kernel of a view to train.

    Raises
    ------
    InputError
        It is for another number of dimensions than the view sees.
    """
    source = random.generator(seed, f"kernel/{view.name}")
    try:
        kernel = view.kernel.prepared(spec.n_frequencies).initial(
            spec.n_mixtures, n_dims, source
        )
        # kernels say so when they draw, and do not know of views
        kernel.noise(1, n_dims, source, "iid")
    except InputError as error:
        raise InputError(f"In view {view.name!r}, {error}") from error
    return kernel


@functools.singledispatch
def _start(
    likelihood: Likelihood,
    blocks: tuple[Block, ...],
    device: torch.device,
) -> tuple[Likelihood, Sites | None]:
    """Return the likelihood to train and, of a non-conjugate view, its sites."""
    raise NotImplementedError(type(likelihood))


@_start.register
def _(
    likelihood: NonConjugateLikelihood,
    blocks: tuple[Block, ...],
    device: torch.device,
) -> tuple[Likelihood, Sites | None]:
    learned = copy.deepcopy(likelihood).to(device)
    return learned, _sites(learned, encoded_block(blocks))


@_start.register
def _(
    likelihood: Gaussian,
    blocks: tuple[Block, ...],  # noqa: ARG001 - it starts alike for all data
    device: torch.device,  # noqa: ARG001
) -> tuple[Likelihood, Sites | None]:
    if likelihood.one_variance and likelihood.learned:
        return Gaussian(_INITIAL_NOISE), None
    return copy.deepcopy(likelihood), None


def _sites(likelihood: NonConjugateLikelihood, block: EncodedBlock) -> Sites:
    n_groups = likelihood.covariance_groups(block.n_rows, block.n_columns)
    return Sites(likelihood, block.Y, block.mask, block.offset, n_groups)
