"""The evidence lower bound of a latent variable model, a pure function of model, data and draws."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from bochner import random
from bochner._typing import Sampling
from bochner.data.stored import StoredMatrix
from bochner.kernels.base import Frequencies
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.memory import Scratch
from bochner.models.dirichlet_posterior import kernel_kl
from bochner.models.lvm import LatentVariableModel, NoSites, View
from bochner.models.sites import Sites, SiteUpdate
from bochner.processes import ALONE, Processes
from bochner.random import RowNoise
from bochner.regression.batched_evidence import MOST_NUMBERS, evidence_of_views
from bochner.regression.evidence import CHUNK_ROWS, SUMS, view_evidence
from bochner.regression.incomplete import N_DETERMINANTS, Sample
from bochner.regression.nonconjugate import nonconjugate_evidence
from bochner.regression.observations import (
    AllRows,
    Block,
    CompleteBlock,
    Data,
    blocks_with_holes,
    complete_blocks,
    encoded_block,
)
from bochner.regression.site_entries import RowSample
from bochner.regression.streamed import evidence_with_holes


@dataclass(frozen=True)
class Draws:
    """Base noise of one evaluation.

    Attributes
    ----------
    latents : Tensor of shape (N, D)
    spectra : tuple of Tensor of shape (Q, H, columns)
        One per view.
    columns : tuple of Tensor of shape (m,), int64, or None
        The mini-batch of columns of each view; None means all.
    starts : tuple of float or None
        Uniform in [0, 1), one per view: of Gaussian views with scattered holes, where the sample of
        columns begins whose determinants are exact; of non-conjugate views, where the sample of
        rows begins for the parameters of their likelihoods. None: all columns and rows.
    """

    latents: Tensor
    spectra: tuple[Tensor, ...]
    columns: tuple[Tensor | None, ...] | None = None
    starts: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Bound:
    """A stochastic value of the bound.

    Attributes
    ----------
    total : Tensor, scalar float64
        sum(weight * view) - kl, in nats, for scaled data: what training maximises.
    views : tuple of Tensor
        log p(Y_v | X, W_v).
    kl : Tensor
        KL(q(X) || p(X)), and of the kernels' own posteriors where they have one.
    updates : tuple of SiteUpdate or None
        What non-conjugate views ask of their sites.
    gaps : tuple of Tensor or float
        The variational gap of each view: its value plus the gap is a bound as well, and the one
        that measures progress and compares starts.
    weights : tuple of float
        Of the views, in the total.
    control : Tensor or float
        The control variate of drawn columns, 0 on average over draws and 0 where all count: it
        makes the bounds of different draws comparable.
    """

    total: Tensor
    views: tuple[Tensor, ...]
    kl: Tensor
    updates: tuple[SiteUpdate | None, ...] = ()
    gaps: tuple[Tensor | float, ...] = ()
    weights: tuple[float, ...] = ()
    control: Tensor | float = 0.0

    @property
    def with_gap(self) -> Tensor:
        """The total with its gaps, and the gradient of the total."""
        return self.total + sum(
            w * gap for w, gap in zip(self.weights, self.gaps, strict=True)
        )

    @property
    def comparable(self) -> Tensor:
        """The total with its gaps and its control variate: what steps of training compare."""
        return self.with_gap + self.control

    @property
    def unweighted(self) -> Tensor:
        """The bound on log p(Y) with its gaps, whatever the views' weights in training."""
        return torch.stack(self.views).sum() - self.kl + sum(self.gaps)


def draw(
    model: LatentVariableModel,
    n_frequencies: int,
    sampling: Sampling,
    seed: int,
    purpose: str,
    step: int,
    budget: float | None = None,
    start: int = 0,
    latents: bool = True,
) -> Draws:
    """Draw the base noise keyed by (seed, purpose, step).

    The latents and each view have keys of their own, so that the order of the views does not
    matter. With a budget, multiplications of one product of features and columns, views that are
    not Gaussian draw columns as well. ``start`` is the global number of the model's first row.
    Without ``latents`` theirs is left out: no rows.
    """
    mean = model.latents.mean
    of_rows = (
        latent_noise(model, seed, purpose, step, start) if latents else mean.new_empty(0, 0)
    )
    spectra = tuple(
        view.kernel.noise(
            n_frequencies,
            len(view.latent_dims(model.n_components)),
            random.generator(
                seed, f"{purpose}/spectrum/{view.name}", step, device=mean.device
            ),
            sampling,
        )
        for view in model.views
    )
    columns = (
        None
        if budget is None
        else tuple(
            _columns(view, spectrum, budget, seed, purpose, step)
            for view, spectrum in zip(model.views, spectra, strict=True)
        )
    )
    sources = (
        random.generator(seed, f"{purpose}/start/{view.name}", step) for view in model.views
    )
    starts = tuple(
        float(torch.rand((), generator=source, dtype=torch.float32)) for source in sources
    )
    return Draws(of_rows, spectra, columns, starts)


def latent_noise(
    model: LatentVariableModel, seed: int, purpose: str, step: int, start: int = 0
) -> Tensor:
    """Return the base noise of the latents at a key, (N, D)."""
    n_rows = model.latents.mean.shape[0]
    return row_noise(model, seed, purpose, step, start)[0:n_rows]


def row_noise(
    model: LatentVariableModel, seed: int, purpose: str, step: int, start: int = 0
) -> RowNoise:
    """Return what makes the base noise of the latents at a key, row part by row part."""
    return model.latents.noise(seed, f"{purpose}/latents", step, start)


def _columns(
    view: View, spectrum: Tensor, budget: float, seed: int, purpose: str, step: int
) -> Tensor | None:
    n_features = 2 * spectrum.shape[0] * spectrum.shape[1]
    purpose = f"{purpose}/columns/{view.name}"

    def source(device: torch.device) -> torch.Generator:
        return random.generator(seed, purpose, step, device=device)

    return view.sites.drawn_columns(n_features, budget, source)


@dataclass(frozen=True)
class Evaluation:
    """How the bound is evaluated.

    Attributes
    ----------
    chunk_rows : int
        Rows of Gaussian views that are summed at once; see ``view_evidence``.
    processes : Processes
        Among which the rows of Gaussian views are divided.
    n_sweeps : int
        As in ``nonconjugate_evidence``, of the others: views that draw columns take one, and steep
        likelihoods one more.
    scratch : Scratch, optional
        Memory for the features of Gaussian views, which the next evaluation may use again.
    sums : int
        Numbers of the sums of several draws that are held, at the most.
    determinants : float
        Columns of a Gaussian block with scattered holes whose determinants are exact, at the least;
        of less than one, how often there is one.
    """

    chunk_rows: int = CHUNK_ROWS
    processes: Processes = ALONE
    n_sweeps: int = 1
    scratch: Scratch | None = None
    sums: int = SUMS
    determinants: float = N_DETERMINANTS


PLAIN = Evaluation()


@dataclass(frozen=True)
class _Settings:
    """How a view's term is evaluated; see ``Draws`` and ``Evaluation``."""

    columns: Tensor | None
    start: float | None
    how: Evaluation


@dataclass(frozen=True)
class _Term:
    """What a view adds to the bound; see ``Bound``."""

    value: Tensor
    update: SiteUpdate | None = None
    gap: Tensor | float = 0.0
    control: Tensor | float = 0.0


@functools.singledispatch
def _term(
    sites: Sites | NoSites,  # noqa: ARG001 - says of what kind the view is
    view: View,
    x: Tensor,
    f: Frequencies,
    blocks: tuple[Block, ...],
    settings: _Settings,
) -> _Term:
    """Return what a view adds to the bound at latents as it sees them."""
    value = gaussian_evidence(
        x,
        f,
        view.noise_variance,
        blocks,
        start=settings.start,
        determinants=settings.how.determinants,
        chunk_rows=settings.how.chunk_rows,
        processes=settings.how.processes,
        scratch=settings.how.scratch,
    )
    return _Term(value)


@_term.register
def _(
    sites: Sites,
    view: View,
    x: Tensor,
    f: Frequencies,
    blocks: tuple[Block, ...],
    settings: _Settings,
) -> _Term:
    likelihood = cast(NonConjugateLikelihood, view.likelihood)
    columns = settings.columns
    start = settings.start
    local = nonconjugate_evidence(
        x,
        f,
        likelihood,
        sites,
        encoded_block(blocks),
        columns=columns,
        n_sweeps=(settings.how.n_sweeps if columns is None else 1) + likelihood.extra_sweeps,
        sample=None if start is None else RowSample(start),
    )
    control = sites.control_variate(local.update.columns)
    return _Term(local.value, local.update, local.gap, control)


def elbo(
    model: LatentVariableModel,
    data: Data,
    draws: Draws,
    how: Evaluation = PLAIN,
) -> Bound:
    """Evaluate sum_v log p(Y^v | X, W_v) - KL(q(X) || p(X)) at one draw of (X, W).

    Its expectation over draws is a lower bound of log p(Y) (Yang et al. 2025, Eq. 15; docs/math.md,
    section 2). Where views have weights, ``total`` has each view's term times its weight.

    Parameters
    ----------
    model : LatentVariableModel
    data : tuple over views of tuples of Block
    draws : Draws
    how : Evaluation

    Returns
    -------
    Bound
        Differentiable in the model's parameters.
    """
    x, kl = model.latents.sample_with_kl(draws.latents)
    return elbo_at(model, x, kl, data, draws, how)


def elbo_at(
    model: LatentVariableModel,
    x: Tensor,
    kl: Tensor,
    data: Data,
    draws: Draws,
    how: Evaluation = PLAIN,
) -> Bound:
    """Evaluate the bound at latents that were drawn before.

    Parameters
    ----------
    model, data, how
        As in ``elbo``.
    x : Tensor of shape (N, D + L)
        A draw from q(X), the covariates beside.
    kl : Tensor, scalar float64
        KL(q(X) || p(X)) of the rows here.
    draws : Draws
        Of the spectra; the latents' noise is not looked at.

    Returns
    -------
    Bound
        Differentiable in x, kl and the parameters of the views.
    """
    points = [
        view.frequencies(noise) for view, noise in zip(model.views, draws.spectra, strict=True)
    ]
    blocks = _joined(model.views, data, points) if how.processes.size == 1 else ()
    if blocks:
        s2 = torch.stack([view.noise_variance for view in model.views])
        values = evidence_of_views(x, Frequencies.stacked(points), s2, blocks)
        terms = [_Term(value) for value in values.unbind()]
    else:
        chosen = draws.columns or (None,) * len(model.views)
        starts = draws.starts or (None,) * len(model.views)
        terms = []
        parts = zip(model.views, points, data, chosen, starts, strict=True)
        for view, f, of_view, columns, start in parts:
            settings = _Settings(columns, start, how)
            terms.append(_term(view.sites, view, view.see(x), f, of_view, settings))
    kl = kl_of_all(model, kl, how.processes)
    weighted = -kl
    control: Tensor | float = 0.0
    for view, term in zip(model.views, terms, strict=True):
        weighted = torch.add(weighted, term.value, alpha=view.weight)
        control = control + view.weight * term.control
    return Bound(
        weighted,
        tuple(term.value for term in terms),
        kl,
        tuple(term.update for term in terms),
        tuple(term.gap for term in terms),
        tuple(view.weight for view in model.views),
        control,
    )


def elbos(
    model: LatentVariableModel,
    noises: Sequence[RowNoise],
    data: Data,
    draws: Callable[[int], Draws],
    how: Evaluation = PLAIN,
) -> Iterator[Bound]:
    """Evaluate the bound at several draws, within ``torch.no_grad``; ``elbos_of_stored`` reads rows
    that are not in memory once for all of them.

    Parameters
    ----------
    model : LatentVariableModel
    noises : sequence of RowNoise
        Of the latents, one per draw.
    data : tuple over views of tuples of Block
    draws : callable
        Number of the draw -> its spectra.
    how : Evaluation

    Yields
    ------
    Bound
        One per draw; what it takes of memory is gone with it.
    """
    kl = model.latents.kl()
    for i, noise in enumerate(noises):
        yield elbo_at(model, model.latents.drawn(noise), kl, data, draws(i), how)


def is_stored(data: Data) -> bool:
    """Return whether complete rows of a view are not in memory."""
    complete = (block for blocks in data for block in complete_blocks(blocks))
    return any(isinstance(block.Y, StoredMatrix) for block in complete)


def _joined(
    views: Sequence[View], data: Data, points: Sequence[Frequencies]
) -> list[CompleteBlock]:
    """Return the blocks of several views whose terms one batch gives: small Gaussian views of all
    rows and latents, with one noise variance each. Otherwise none, and none where no gradient is
    wanted: values are in double precision.
    """
    if len(views) == 1 or not torch.is_grad_enabled():
        return []
    plain = all(
        not view.sites.take_turns and view.likelihood.one_variance and view.dims is None
        for view in views
    )
    alike = all(points[0].alike(f) for f in points)
    blocks = [block for of_view in data for block in complete_blocks(of_view)]
    n_rows = blocks[0].n_rows if blocks else 0
    whole = all(len(of_view) == 1 for of_view in data) and len(blocks) == len(views)
    whole = whole and all(
        isinstance(block.rows, AllRows) and isinstance(block.Y, Tensor) for block in blocks
    )
    small = len(views) * points[0].n_features * n_rows <= MOST_NUMBERS
    return blocks if plain and alike and whole and small else []


def kl_of_all(model: LatentVariableModel, local: Tensor, processes: Processes) -> Tensor:
    """Return the divergence of all rows from that of the rows here, and those of kernels' own
    posteriors; its gradient in the latents is that of the rows here.
    """
    kl = local
    if processes.size > 1:
        kl = kl + (processes.sum(local.detach()) - local.detach())
    for view in model.views:
        if view.kernel.has_posterior:
            kl = kl + kernel_kl(view.kernel).to(local.device)
    return kl


def gaussian_evidence(
    x: Tensor,
    frequencies: Frequencies,
    noise_variance: Tensor,
    blocks: tuple[Block, ...],
    *,
    start: float | None = None,
    determinants: float = N_DETERMINANTS,
    chunk_rows: int = CHUNK_ROWS,
    processes: Processes = ALONE,
    scratch: Scratch | None = None,
) -> Tensor:
    """Return log p(Y | X, W) of a Gaussian view: its complete blocks and those with holes; see
    ``view_evidence`` and ``evidence_with_holes``.

    From ``start`` on, in [0, 1), some columns of every block with holes are drawn whose
    determinants are exact, at the least so many; None: all are.
    """
    given = (x, frequencies, noise_variance)
    parts = []
    for block in blocks_with_holes(blocks):
        sample = None if start is None else Sample.among(block.n_columns, determinants, start)
        value = evidence_with_holes(
            block, *given, sample=sample, chunk_rows=chunk_rows, processes=processes
        )
        parts.append(value)
    if (complete := complete_blocks(blocks)) or not parts:
        value = view_evidence(
            *given, complete, chunk_rows=chunk_rows, processes=processes, scratch=scratch
        )
        parts.append(value)
    return torch.stack(parts).sum() if len(parts) > 1 else parts[0]
