"""Landmarks: a model trained on some rows, the others placed under it, then a few passes over all
rows together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from bochner import random
from bochner.fitting.placed_rows import NotKept, Places, say_placed
from bochner.fitting.plan import Plan, mean_of_draws
from bochner.fitting.row_passes import NoPasses, Passes
from bochner.latent_inference.infer import Placer
from bochner.latent_inference.modes import Placement
from bochner.linalg import cholesky
from bochner.memory import chunks
from bochner.models.lvm import Covariates, GaussianLatents, LatentVariableModel
from bochner.objectives.elbo import Evaluation, elbo_at
from bochner.objectives.subset_sites import Anchors, anchored_elbo
from bochner.processes import ALONE, Processes
from bochner.progress import progress_bar, say
from bochner.regression.incomplete import N_DETERMINANTS_A_STEP
from bochner.regression.observations import Block, Data
from bochner.training.row_adam import RowAdam
from bochner.training.trainer import State, Trainer
from bochner.weight_posterior.posterior import ViewPosterior

# Passes over all rows after training on landmarks, each a step of kernels and noise.
JOINT_STEPS = 20
# Of the plan's learning rate, and of all parameters alike: everything is near its place.
_JOINT_RATE = 0.02
_CHUNK = 8192
_LEAST_STD = 1e-3
# Numbers of the rows that are dense at once.
_NUMBERS = 2**24
_DRAWS = 8


def choose(
    data: Data, n_rows: int, n_landmarks: int, seed: int, processes: Processes = ALONE
) -> Tensor:
    """Draw landmarks, and add a row for every column that none of them observes.

    Parameters
    ----------
    data : tuple over views of tuples of Block
        The rows of this process.
    n_rows : int
        Of all processes.
    n_landmarks, seed : int
    processes : Processes

    Returns
    -------
    Tensor of shape (L,), int64
        Ascending, L at least ``n_landmarks``.
    """
    source = random.generator(seed, "landmarks")
    index = random.sample(n_rows, n_landmarks, source).sort().values
    first = processes.start
    last = processes.start + processes.local_rows(n_rows)
    for blocks in data:
        for block in blocks:
            chosen = torch.zeros(last - first, dtype=torch.bool)
            chosen[processes.local(index, last - first)] = True
            observed = processes.largest(block.observes(chosen).double())
            lacking = (observed == 0.0).nonzero()[:, 0]
            if len(lacking):
                earliest_here = block.first_rows(lacking, last - first)
                earliest_here = torch.where(
                    earliest_here < last - first, earliest_here + first, n_rows
                ).double()
                earliest = -processes.largest(-earliest_here)
                more = earliest[earliest < n_rows].long()
                index = torch.unique(torch.cat([index, more]))
    return index


def take(data: Data, index: Tensor) -> Data:
    """Return the data of some rows, (l,), int64, ascending, renumbered."""
    return tuple(tuple(block.subset(index) for block in blocks) for blocks in data)


def rows_of(data: Data, index: Tensor) -> list[Tensor]:
    """Return rows as placement takes them: per view (n, M_v), encoded, float64, NaN where
    missing.
    """
    return [_entries(blocks, index.shape[0]) for blocks in take(data, index)]


def _entries(blocks: Sequence[Block], n_rows: int) -> Tensor:
    """Return the entries of all rows of a view, (n, M_v)."""
    width = sum(block.n_columns for block in blocks)
    y = torch.full((n_rows, width), torch.nan, dtype=torch.float64)
    for block in blocks:
        rows = block.rows.numbers(n_rows)
        y[rows[:, None], block.columns[None]] = block.values().double().cpu()
    return y


def narrow(data: Data) -> Data:
    """Return rotated views as views of so few columns: for placement, which asks for rows only."""
    return tuple(
        tuple(
            block
            if block.Y.shape[1] == block.n_columns
            else replace(block, columns=torch.arange(block.Y.shape[1]))
            for block in blocks
        )
        for blocks in data
    )


def as_if_whole(posterior: tuple[ViewPosterior, ...], data: Data) -> tuple[ViewPosterior, ...]:
    """Let the uncertainty of the weights, which every column adds, weigh as that of all columns of
    rotated data.
    """
    out = []
    for view, blocks in zip(posterior, data, strict=True):
        ratio = blocks[0].n_columns / blocks[0].Y.shape[1]
        draws = tuple(replace(draw, covariance=ratio * draw.covariance) for draw in view.draws)
        out.append(view if ratio == 1.0 else replace(view, draws=draws))
    return tuple(out)


def spread(
    model: LatentVariableModel,
    posterior: tuple[ViewPosterior, ...],
    data: Data,
    index: Tensor,
    n_rows: int,
    covariates: Covariates,
    kept: Tensor | None = None,
    places: Places | None = None,
    processes: Processes = ALONE,
) -> LatentVariableModel:
    """Return the model of all rows: landmarks keep their latents, the others are placed under their
    posterior.

    Parameters
    ----------
    model : LatentVariableModel
        Of the landmarks.
    posterior : tuple of ViewPosterior
        Of its weights.
    data : tuple over views of tuples of Block
        All rows, every column.
    index : Tensor of shape (l,), int64
        The landmarks among these rows.
    n_rows : int
    covariates : Covariates
        Of all rows.
    kept : Tensor of shape (L,), bool, optional
        Which landmarks of the model those are; None: all.
    places : Places, optional
        Knows where an earlier run placed rows, and keeps where this one does.
    processes : Processes
        That place rows of their own.
    """
    places = places or NotKept()
    here: Tensor | slice = slice(None) if kept is None else kept
    beside = covariates.values.to(model.latents.mean)
    mean = model.latents.mean.new_zeros(n_rows, model.n_components)
    log_std = torch.zeros_like(mean)
    mean[index] = model.latents.mean.detach()[here]
    log_std[index] = model.latents.log_std.detach()[here]
    candidates = model.latents.mean.detach().double().cpu()
    width = sum(block.n_columns for blocks in data for block in blocks)
    n_others = n_rows - index.shape[0]
    placer = Placer(posterior, candidates)
    if processes.total(_are_complete(data, n_rows)) == processes.size:
        placer.prepare(processes)
    known_rows = places.restore(mean, log_std)
    for part in chunks(n_others, max(1, min(_CHUNK, _NUMBERS // width))):
        rows = others(index, part)
        rows = rows[~known_rows[rows]]
        if not len(rows):
            continue
        say_placed(part.start, n_others)
        some = take(data, rows)
        entries = [_entries(blocks, rows.shape[0]) for blocks in some]
        # 0 where a row has no data in the view
        offsets = [blocks[0].offsets(rows.shape[0]) for blocks in some]
        known = beside[rows].double().cpu()
        placed = placer.place(
            entries, offsets, 1, polish=False, encoded=True, covariates=known
        )
        mean[rows] = placed.mean.to(mean)
        log_std[rows] = _log_std(placed).to(mean)
        places.add(rows, mean[rows], log_std[rows])
    places.finish()
    return LatentVariableModel(GaussianLatents(mean, log_std, beside), list(model.views))


def _are_complete(data: Data, n_rows: int) -> bool:
    return all(b.n_rows == n_rows and not b.has_holes for blocks in data for b in blocks)


def others(index: Tensor, part: slice) -> Tensor:
    """Return the row numbers of some consecutive ones of the rows that are no landmarks.

    Parameters
    ----------
    index : Tensor of shape (L,), int64
        The landmarks, ascending.
    part : slice
        Positions among the other rows.

    Returns
    -------
    Tensor of shape (n,), int64
    """
    position = torch.arange(part.start, part.stop)
    # so many other rows come before each landmark
    before = index - torch.arange(index.shape[0])
    return position + torch.searchsorted(before, position, right=True)


def evaluate_anchored(
    model: LatentVariableModel, data: Data, anchors: Anchors, plan: Plan
) -> tuple[float, float]:
    """Return the bound of all rows where sites belong to some: mean over fresh draws, and its
    standard error.
    """
    with torch.no_grad():
        among = plan.processes
        values = []
        for i in range(_DRAWS):
            say(f"final bound, draw {i + 1} of {_DRAWS}")
            x = model.latents.drawn(plan.row_noise(model, "final", i))
            draws = plan.spectra(model, "final", i)
            values.append(anchored_elbo(model, x, data, anchors, draws, among))
    mean, error = mean_of_draws(torch.stack(values))
    return float(mean), float(error)


def _log_std(placed: Placement) -> Tensor:
    """Of independent dimensions that match the Laplace approximation best: the precisions are those
    of its inverse.
    """
    precision: Tensor = cholesky(placed.covariances[:, 0]).inverse().diagonal(dim1=-2, dim2=-1)
    return -0.5 * precision.clamp(min=1.0, max=_LEAST_STD**-2).log()


class _JointTrainer(Trainer[nn.Module]):
    """Trains what views have; the latents are moved by the optimiser, row part by row part."""

    def _differentiate(self, bound: Tensor) -> None:
        # the gradient of all rows is not copied to be scaled: the optimiser does it as it goes
        bound.backward()  # type: ignore[no-untyped-call]


def train_jointly(
    model: LatentVariableModel, data: Data, plan: Plan, passes: Passes | None = None
) -> None:
    """Take a few steps over all rows; an interrupt keeps the best state.

    Parameters
    ----------
    model : LatentVariableModel
    data : tuple over views of tuples of Block
    plan : Plan
    passes : Passes, optional
        Knows where an earlier run was, and keeps where this one is.
    """
    passes = passes or NoPasses()
    among = plan.processes
    n_entries = among.total(sum(block.n_entries for blocks in data for block in blocks))
    rate = _JOINT_RATE * plan.training.learning_rate
    options = replace(
        plan.training, max_iter=JOINT_STEPS, learning_rate=rate, tol=-math.inf, factors={}
    )
    early = plan.early
    views = nn.ModuleList(model.views)
    optimiser = RowAdam(views, model.latents, rate, n_entries)

    def objective(step: int) -> Tensor:
        x = optimiser.draw(early.row_noise(model, "joint", step))
        with torch.no_grad():
            kl = model.latents.kl()
        draws = early.spectra(model, "joint", step)
        how = Evaluation(processes=among, determinants=N_DETERMINANTS_A_STEP)
        return elbo_at(model, x, kl, data, draws, how).total

    def accept(step: int) -> None:  # noqa: ARG001
        model.project()

    given = (views, objective, n_entries, options)
    trainer = _JointTrainer(*given, accept=accept, agree=among.agreed, optimiser=optimiser)
    passes.restore(trainer, optimiser)

    with progress_bar("all rows", JOINT_STEPS, plan.shown) as bar:

        def on_step(state: State) -> None:
            bar(state)
            passes.after_step(trainer, optimiser)

        try:
            trainer.run(on_step=on_step)
        except KeyboardInterrupt:
            trainer.restore_best()
            raise
