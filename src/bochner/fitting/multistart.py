"""Starts and their race: embeddings and folds are trained together under the simplest kernels,
every promising one is trained for a while, the one with the best bound goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from bochner import random
from bochner.data.arrays import Float64Array
from bochner.dirichlet_process.spectrum_matching import match_spectrum
from bochner.dirichlet_process.sweeps import sweeps
from bochner.fitting.data import TrainingData
from bochner.fitting.plan import SWEEPS, Plan, Start, StartResult, evaluate, model_from
from bochner.fitting.row_moves import RowMoves, movable
from bochner.fitting.stacked import StackedRun, stackable
from bochner.fitting.svd_compression import narrowed
from bochner.fitting.warm_start import warm, warm_together, warms_together
from bochner.initialization.embeddings import (
    N_NARROW,
    NARROW_STARTS,
    components,
    folded,
    start,
)
from bochner.initialization.shared_private import split_start, wide_start
from bochner.initialization.simple_models import STEPS, settle
from bochner.io.schema import Tensors, parse, whole
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.memory import Scratch
from bochner.models.limits import finest
from bochner.models.lvm import LatentVariableModel, Layout
from bochner.models.sites import SiteUpdate
from bochner.objectives.elbo import Draws, Evaluation, elbo
from bochner.progress import expect, progress_bar
from bochner.regression.incomplete import N_DETERMINANTS_A_STEP
from bochner.training.checkpoint import AnyCheckpoint, Header, restore
from bochner.training.trainer import Trainer

# Dimensions that a fold begins with beyond D; with two or three it had the best bound of all starts
# in none of 39 batches.
_EXTRA = 1
# With private dimensions: so many shared ones beyond, and so many of every view that has private
# ones.
_EXTRA_PRIVATE = 2
# Leading columns of a complete view tell layouts apart as well as all of them do: on MNIST the
# order of four starts is the same with 48 as with 132.
_COLUMNS = 48


@dataclass(frozen=True)
class Candidate:
    """Where a start begins.

    Attributes
    ----------
    index : int
        Among the plan's starts.
    name : str
    latents : ndarray of shape (N, D)
    bound : float
        Under the simplest kernels, in nats; 0 where there is nothing to compare with.
    settled : bool
        Whether the latents are those after training under the simplest kernels.
    handicap : float
        Nats by which its bound has to lead those of the others after the race.
    """

    index: int
    name: str
    latents: Float64Array
    bound: float = 0.0
    settled: bool = False
    handicap: float = 0.0


def candidates(data: TrainingData, plan: Plan) -> list[Candidate]:
    """Compute every start of a plan, in their order.

    Several starts, and folds, are trained together under the simplest kernels first, which tells
    which are good. Folds go on from there. Embeddings that "auto" tries go on from there and from
    where they were: the simplest kernels smooth away what t-SNE knows of clusters (1,000 digits of
    MNIST end 5,500 nats lower from there) and mend what it tears (oil ends 400 nats higher).
    """
    names = [origin if isinstance(origin, str) else "array" for origin in plan.starts]
    if names != ["fold"] and len(names) == 1:
        return [Candidate(0, names[0], _embedded(data, plan, 0, plan.starts[0]))]
    wide, layouts, begins = _batch(data, plan, names)
    done = settle(
        layouts,
        begins,
        plan.spec.layout,
        wide,
        narrowed(data.start_blocks, _COLUMNS),
        plan.seed,
        min(STEPS, plan.training.max_iter),
        plan.spec.weights,
        plan.spec.names,
    )
    kept = wide.narrowed(plan.spec.layout)
    out = []
    for index, (name, origin) in enumerate(zip(names, plan.starts, strict=True)):
        bound = float(done.bounds[index])
        settled = folded(done.latents[index].double().cpu().numpy(), plan.seed + index)
        as_it_was = layouts[index][:, kept].double().cpu().numpy()
        if name in NARROW_STARTS:
            settled[:, N_NARROW:] = as_it_was[:, N_NARROW:]
        if name != "fold":
            given = as_it_was if isinstance(origin, str) else origin
            out.append(Candidate(index, name, given, bound))
        if name == "fold" or plan.margin < math.inf:
            out.append(Candidate(index, name, settled, bound, settled=True))
    return out


def _batch(
    data: TrainingData, plan: Plan, names: Sequence[str]
) -> tuple[Layout, Tensor, Tensor]:
    """Return what views see of E dimensions, the layouts of all S starts among these, (S, N, E),
    and with which dimensions they begin, (S, E): 1 for those, 0 for others.
    """
    layout = plan.spec.layout
    first, wide = _wide(data, plan) if "fold" in names else (None, layout)
    kept = wide.narrowed(layout)
    size = (len(names), data.n_rows, wide.n_components)
    layouts = torch.zeros(size, dtype=plan.dtype, device=plan.device)
    begins = torch.zeros_like(layouts[:, 0])
    for index, (name, origin) in enumerate(zip(names, plan.starts, strict=True)):
        if name == "fold":
            layouts[index] = torch.as_tensor(first)
            begins[index] = 1.0
        else:
            layouts[index, :, kept] = torch.as_tensor(_embedded(data, plan, index, origin)).to(
                layouts
            )
            begins[index, kept[:N_NARROW] if name in NARROW_STARTS else kept] = 1.0
    return wide, layouts, begins


def _wide(data: TrainingData, plan: Plan) -> tuple[Float64Array, Layout]:
    """Return what folds begin with: more dimensions than stay."""
    layout = plan.spec.layout
    if layout.has_private:
        return wide_start(data.by_view, layout, _EXTRA_PRIVATE, plan.seed)
    wide = replace(layout, shared=layout.shared + _EXTRA)
    return components(data.filled, wide.n_components, plan.seed), wide


def _embedded(data: TrainingData, plan: Plan, index: int, origin: Start) -> Float64Array:
    """Return the latents of a start that does not fold."""
    if not isinstance(origin, str):
        return origin
    seed = plan.seed + index
    layout = plan.spec.layout
    if layout.has_private:
        return split_start(origin, data.by_view, layout, seed)
    return start(origin, data.filled, layout.n_components, seed)


# A start's share of the race: long enough to leave the start's own shape behind.
RACE_STEPS = 60
# A start that was warmed has left it before: a shorter race tells.
LOCAL_RACE_STEPS = 30
# Steps without a gradient, in which the sites of non-conjugate views find their place.
SETTLE_STEPS = 5
REGROUP_STEPS = 50
# Below so many steps no race of kernels tells anything.
_LEAST_MATCH = 30
# Of the bounds that are compared, which share their draws; and of those before the race.
_RACE_DRAWS = 16
_START_DRAWS = 4


@dataclass(frozen=True)
class Progress:
    """What a checkpoint says about the race: the starts so far, and whether it is decided."""

    starts: list[StartResult]
    decided: bool


class Race:
    """Trains every start for a while and keeps the best by its bound on shared fresh draws."""

    def __init__(self, data: TrainingData, plan: Plan) -> None:
        self.data = data
        self.plan = plan
        self.results: list[StartResult] = []
        self.decided = False
        self._best: Trainer[LatentVariableModel] | None = None

    def trainer(self, index: int, latents: Float64Array) -> Trainer[LatentVariableModel]:
        """Build a trainer at given latents; restarts of one name differ by the draw of the kernels'
        start.
        """
        plan = replace(self.plan, seed=self.plan.seed + index)
        of_rows = (self.data.blocks, plan.seed, plan.dtype, plan.device, self.data.covariates)
        model = model_from(latents, plan.spec, *of_rows)

        updates: tuple[SiteUpdate | None, ...] = ()
        scratch = Scratch(model.latents.mean)
        how = Evaluation(n_sweeps=SWEEPS, scratch=scratch, determinants=N_DETERMINANTS_A_STEP)

        def objective(step: int) -> Tensor:
            nonlocal updates
            stage = plan.early if trainer.state.decay_from is None else plan
            draws = stage.step_draws(model, step, plan.column_budget)
            bound = elbo(model, self.data.drawn, draws, how)
            updates = bound.updates
            return bound.comparable

        def accept(step: int) -> None:
            model.update_sites(updates)
            model.project(finest(model.latents.log_std))
            if step % REGROUP_STEPS == 0:
                model.regroup()

        between = None
        if plan.spec.has_sweeps:
            settings = (plan.spec.n_frequencies, plan.spec.sampling, plan.seed)
            between = sweeps(model, self.data.blocks, *settings, plan.column_budget)
        trainer = Trainer(
            model,
            objective,
            self.data.n_entries,
            plan.training,
            between=between,
            accept=accept,
        )
        if movable(model, self.data.blocks, plan):
            trainer.between = RowMoves(trainer, self.data.blocks, plan)
        # the objective asks it whether the decay has begun
        return trainer

    def _with_matched_spectra(
        self, trainer: Trainer[LatentVariableModel], index: int, length: int
    ) -> Trainer[LatentVariableModel]:
        """Let Dirichlet process kernels at the spectrum that the winner's latents ask for race
        those it has.

        Not before: at latents that are far from good such kernels fit what is wrong with them.
        """
        free = [view.kernel.has_free_components for view in self.plan.spec]
        if not any(free) or length < _LEAST_MATCH:
            return trainer
        trainer.run(until=length)
        model = trainer.module
        x = model.latents.mean.detach()
        rival = self.trainer(index, x.double().cpu().numpy())
        rival.module.load_state_dict(model.state_dict())
        for is_free, view, blocks in zip(
            free, rival.module.views, self.data.start_blocks, strict=True
        ):
            if is_free:
                source = random.generator(self.plan.seed + index, f"spectrum/{view.name}")
                latents = x[:, view.latent_dims(x.shape[1])]
                match_spectrum(
                    cast(DirichletProcessMixture, view.kernel), latents, blocks, source
                )
        rival.restart()
        with progress_bar("spectrum", length, self.plan.shown) as bar:
            rival.run(until=length, on_step=bar)
        trainer.run(until=trainer.state.step + length)
        # the trainer where they are equal
        return max(trainer, rival, key=lambda one: self._bound(one, _RACE_DRAWS)[0])

    def _warmed(
        self, raced: list[Candidate], first: int
    ) -> Iterator[Trainer[LatentVariableModel]]:
        """Yield trainers of the starts from the first one on that were trained on the surrogates,
        if there are any: small models side by side, all of them, so that a resumed race is the same
        to the last bit.
        """
        early = self.plan.early
        plans = [replace(early, seed=early.seed + one.index) for one in raced]
        surrogates = self.data.surrogates
        together: list[Trainer[LatentVariableModel]] = []
        if (
            surrogates is not None
            and first < len(raced)
            and warms_together(early.spec, surrogates, self.data.n_rows, len(raced))
        ):
            together = [self.trainer(one.index, one.latents) for one in raced]
            models = [trainer.module for trainer in together]
            together = together if warm_together(models, surrogates, plans) else []
        for i in range(first, len(raced)):
            trainer = (
                together[i] if together else self.trainer(raced[i].index, raced[i].latents)
            )
            if surrogates is not None and not together:
                warm(trainer.module, surrogates, plans[i])
            yield trainer if surrogates is None else self._settled(trainer, plans[i])

    def _settled(
        self, trainer: Trainer[LatentVariableModel], plan: Plan
    ) -> Trainer[LatentVariableModel]:
        """Settle the sites where the surrogates put the latents."""
        model = trainer.module
        has_sites = model.has_sites
        for step in range(SETTLE_STEPS if has_sites else 0):
            with torch.no_grad():
                draws = plan.draws(model, "settle", step)
                bound = elbo(model, self.data.blocks, draws)
            if bool(bound.total.isfinite()):
                model.update_sites(bound.updates)
            model.regroup()
        trainer.restart()
        return trainer

    def run(self, checkpoint: AnyCheckpoint) -> Trainer[LatentVariableModel]:
        """Race all starts that were not yet; a single one needs no race.

        What the checkpoint holds after each start is enough to go on with the next.
        """
        best = max(map(_standing, self.results), default=-torch.inf)
        steps = RACE_STEPS if self.data.surrogates is None else LOCAL_RACE_STEPS
        length = min(steps, self.plan.training.max_iter // 4)
        margin = self.plan.margin * self.data.n_entries
        raced = _promising(candidates(self.data, self.plan), margin, self.plan.spec.conjugate)
        if length and not self.results and self._race_together(raced, length):
            best = max(map(_standing, self.results))
            checkpoint.write(self.best(), self.progress())
        expect(length * (len(raced) - len(self.results)) if len(raced) > 1 else 0)
        first = len(self.results)
        warmed = self._warmed(raced, first)
        for candidate, trainer in zip(raced[first:], warmed, strict=True):
            if self._best is None:
                self._best = trainer
            result = self._raced(candidate, trainer, length if len(raced) > 1 else 0)
            self.results.append(result)
            if _standing(result) > best:
                self._best = trainer
                best = _standing(result)
            checkpoint.write(self.best(), self.progress())
        self._best = self._with_matched_spectra(self.best(), self._winner(), length)
        self.decided = True
        return self.best()

    def _race_together(self, raced: list[Candidate], length: int) -> bool:
        """Race starts side by side, if they can be; return whether they were."""
        plan = self.plan.early
        blocks = self.data.blocks
        spec = plan.spec
        if self.data.surrogates is not None or spec.groups:
            return False
        if not stackable(spec.views, blocks, self.data.n_rows, len(raced), spec.n_features):
            return False
        trainers = [self.trainer(one.index, one.latents) for one in raced]
        models = [trainer.module for trainer in trainers]
        plans = [replace(plan, seed=plan.seed + one.index) for one in raced]

        def draws(i: int, step: int) -> Draws:
            return plans[i].step_draws(models[i], step)

        together = StackedRun(trainers, draws, blocks)
        shared = [plan.draws(models[0], "race", i) for i in range(_RACE_DRAWS)]
        before, _ = together.evaluate(shared[:_START_DRAWS])
        self._best = trainers[0]
        with progress_bar("starts", length, self.plan.shown) as bar:
            done = together.run(length, bar)
        bounds, errors = together.evaluate(shared)
        if not done or not bool((before + bounds).isfinite().all()):
            return False
        for i, one in enumerate(raced):
            values = {"elbo_start": float(before[i]), "steps": length}
            values |= {"elbo": float(bounds[i]), "elbo_se": float(errors[i])}
            self.results.append({**_named(one), **values})
        self._best = trainers[max(range(len(raced)), key=lambda i: _standing(self.results[i]))]
        return True

    def _raced(
        self, candidate: Candidate, trainer: Trainer[LatentVariableModel], length: int
    ) -> StartResult:
        """Train a start for so many steps; return what it is worth before and after."""
        value, error = self._bound(trainer, _START_DRAWS)
        result: StartResult = {**_named(candidate), "elbo_start": value}
        if length:
            with progress_bar(f"start {candidate.name}", length, self.plan.shown) as bar:
                trainer.run(until=length, on_step=bar, settle=True)
            value, error = self._bound(trainer, _RACE_DRAWS)
        return {**result, "steps": trainer.state.step, "elbo": value, "elbo_se": error}

    def progress(self) -> dict[str, object]:
        """Return what a checkpoint says about the race."""
        return {"starts": self.results, "decided": self.decided}

    def _winner(self) -> int:
        return int(max(self.results, key=_standing)["index"])

    def _bound(
        self, trainer: Trainer[LatentVariableModel], n_draws: int
    ) -> tuple[float, float]:
        """Return the bound of a start, with as many features as the race has, and its standard
        error.
        """
        plan = self.plan.early
        budget = plan.column_budget
        return evaluate(trainer.module, self.data.drawn, plan, "race", budget, n_draws)

    def model_of(self, parameters: Mapping[str, Tensor]) -> LatentVariableModel:
        """Return a model with the parameters of one that another process trained."""
        shape = (self.data.n_rows, self.plan.spec.n_components)
        start = torch.zeros(shape, dtype=torch.float64).numpy()
        model = self.trainer(0, start).module
        model.load_state_dict(parameters)
        return model

    def best(self) -> Trainer[LatentVariableModel]:
        """Return the best trainer so far; at least one start must exist."""
        if self._best is None:
            raise KeyboardInterrupt
        return self._best

    def resume(
        self, tensors: Tensors, header: Header, checkpoint: AnyCheckpoint
    ) -> Trainer[LatentVariableModel]:
        """Continue from a checkpoint: no start that was raced is raced again.

        Raises
        ------
        ModelFileError
            Its parts do not fit together.
        """
        if header.state is None:  # nothing was done yet
            return self.run(checkpoint)
        with whole("the one given", "checkpoint"):
            extra = parse(Progress, header.extra, "extra")
            self.results = extra.starts
            shape = (self.data.n_rows, self.plan.spec.n_components)
            start = torch.zeros(shape, dtype=torch.float64).numpy()
            trainer = self.trainer(self._winner(), start)
            restore(trainer, tensors, header.state)
        # last, so that an interrupt before here leaves the file alone
        self._best = trainer
        self.decided = extra.decided
        return trainer if self.decided else self.run(checkpoint)


def _named(candidate: Candidate) -> StartResult:
    """Return what a result says of the start it is of."""
    return {
        "init": candidate.name,
        "index": candidate.index,
        "settled": candidate.settled,
        "handicap": candidate.handicap,
    }


def _standing(result: StartResult) -> float:
    """Return the bound of a start less its handicap."""
    return float(result["elbo"]) - float(result["handicap"])


def _promising(every: list[Candidate], margin: float, conjugate: bool) -> list[Candidate]:
    """Return the starts whose bound under the simplest kernels is close to the best, in the order
    of those bounds.

    With a margin they race as they settled, and the best one as it was, too, unless views are not
    conjugate: there it lost all but a few races, which cost a sixth of a fit.

    Where all of them have two wide dimensions, the best of the others races with a handicap of two
    margins: the simplest kernels, and a race, think too well of two dimensions in some tables
    (citeseer in ten dimensions ended 21,500 nats lower) and a race too badly in others (3sources).
    """
    if margin == math.inf:
        return every
    ordered = sorted(every, key=lambda candidate: -candidate.bound)
    close = [one for one in ordered if one.bound >= ordered[0].bound - margin]
    settled = [one for one in close if one.settled]
    if not conjugate:
        return settled or close[:1]
    as_they_were = [one for one in close if not one.settled]
    raced = as_they_were[:1] + settled
    if any(one.name not in NARROW_STARTS for one in close):
        return raced
    others = [one for one in ordered if one.settled and one.name not in NARROW_STARTS]
    return raced + [replace(one, handicap=2 * margin) for one in others[:1]]
