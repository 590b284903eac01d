"""The race: every start is trained for a while, the one with the best bound goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bochner import random
from bochner.dirichlet_process.spectrum_matching import match_spectrum
from bochner.dirichlet_process.sweeps import sweeps
from bochner.fitting.plan import SWEEPS, Plan, Start, evaluate
from bochner.fitting.warm_start import STEPS as WARM_STEPS
from bochner.fitting.warm_start import warm
from bochner.initialization.build import FloatArray, components, folded, model_from, start
from bochner.initialization.folding import STEPS as FOLD_STEPS
from bochner.initialization.folding import fold
from bochner.initialization.shared_private import kept, split_start, wide_start
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.models.lvm import LatentVariableModel
from bochner.objectives.elbo import Data, absorb, draw, elbo, levelled, regroup
from bochner.training.checkpoint import restore
from bochner.training.progress import progress_bar
from bochner.training.trainer import Trainer

# A start's share of the race: long enough to leave the start's own shape behind.
RACE_STEPS = 80
# A start that was warmed has left it before: a shorter race tells.
LOCAL_RACE_STEPS = 30
# Steps without a gradient, in which the sites of views that are not Gaussian find their place.
SETTLE_STEPS = 5
REGROUP_STEPS = 50
# Below so many steps no race of kernels tells anything.
_LEAST_MATCH = 30
# Dimensions that a folding start begins with beyond D, at the most.
_EXTRA = 3
# And of those with private latents, the first, second, ... one.
_EXTRA_PRIVATE = (2, 1, 3)


class Race:
    """Trains every start for a while and keeps the best by its bound on shared fresh draws."""

    def __init__(
        self, data: Data, filled: Callable[[], FloatArray], plan: Plan, stand_in: Data | None = None
    ) -> None:
        self.data, self.filled, self.plan, self.stand_in = data, filled, plan, stand_in
        self.results: list[dict[str, Any]] = []
        self.decided = False
        self._best: Trainer[LatentVariableModel] | None = None

    def trainer(self, index: int, latents: FloatArray) -> Trainer[LatentVariableModel]:
        """Build a trainer at given latents; restarts of one name differ by the draw of the kernels'
        start.
        """
        plan, seed = self.plan, self.plan.seed + index
        kernels = [kernel.prepared(plan.n_frequencies) for kernel in plan.kernels]
        model = model_from(
            latents,
            plan.names,
            kernels,
            plan.n_mixtures,
            seed,
            plan.dtype,
            plan.device,
            plan.likelihoods,
            self.data,
            plan.layout,
            plan.weights,
        )
        n_entries = sum(block.n_entries for blocks in self.data for block in blocks)

        def objective(step: int) -> Tensor:
            few = trainer.state.decay_from is None
            n_frequencies = plan.early_frequencies if few else plan.n_frequencies
            draws = draw(
                model, n_frequencies, plan.sampling, seed, "train", step, plan.column_budget
            )
            bound = elbo(model, self.data, draws, n_sweeps=SWEEPS)
            value = bound.with_gap + levelled(model, bound)
            absorb(model, bound)
            if step % REGROUP_STEPS == 0:
                regroup(model)
            return value

        between = sweeps(
            model, self.data, plan.n_frequencies, plan.sampling, seed, plan.column_budget
        )
        trainer = Trainer(model, objective, n_entries, plan.training, between=between)
        return trainer  # the objective asks it whether the decay has begun

    def _with_matched_spectra(
        self, trainer: Trainer[LatentVariableModel], index: int, length: int
    ) -> Trainer[LatentVariableModel]:
        """Let Dirichlet process kernels at the spectrum that the winner's latents ask for race
        those it has.

        Not before: at latents that are far from good such kernels fit what is wrong with them.
        """
        free = [
            isinstance(kernel, DirichletProcessMixture)
            and kernel.get_params()["proportions"] is None
            for kernel in self.plan.kernels
        ]
        if not any(free) or length < _LEAST_MATCH:
            return trainer
        trainer.run(until=length)
        model = trainer.module
        x = model.latents.mean.detach()
        rival = self.trainer(index, x.double().cpu().numpy())
        rival.module.load_state_dict(model.state_dict())
        for own, view, blocks in zip(
            free, rival.module.views, self.stand_in or self.data, strict=True
        ):
            if own:
                source = random.generator(self.plan.seed + index, f"spectrum/{view.name}")
                match_spectrum(
                    cast(DirichletProcessMixture, view.kernel), view.see(x), blocks, source
                )
        rival.restart()
        with progress_bar("spectrum", length, self.plan.shown) as bar:
            rival.run(until=length, on_step=bar)
        trainer.run(until=trainer.state.step + length)
        return rival if self._bound(rival)[0] > self._bound(trainer)[0] else trainer

    def _warm(
        self, trainer: Trainer[LatentVariableModel], index: int
    ) -> Trainer[LatentVariableModel]:
        """Train on the stand-ins, if there are any, and settle the sites there."""
        if self.stand_in is None:
            return trainer
        plan, model = self.plan, trainer.module
        warm(
            model,
            self.stand_in,
            n_frequencies=plan.n_frequencies,
            sampling=plan.sampling,
            seed=plan.seed + index,
            n_steps=min(WARM_STEPS, plan.training.max_iter),
        )
        has_sites = any(view.sites is not None for view in model.views)
        for step in range(SETTLE_STEPS if has_sites else 0):
            with torch.no_grad():
                draws = draw(
                    model, plan.n_frequencies, plan.sampling, plan.seed + index, "settle", step
                )
                absorb(model, elbo(model, self.data, draws))
            regroup(model)
        trainer.restart()
        return trainer

    def run(self) -> Trainer[LatentVariableModel]:
        """Race all starts; a single one needs no race."""
        plan, best = self.plan, -torch.inf
        steps = RACE_STEPS if self.stand_in is None else LOCAL_RACE_STEPS
        length = min(steps, plan.training.max_iter // 4)
        for index, origin in enumerate(plan.starts):
            name, latents = self._latents(index, origin)
            trainer = self._warm(self.trainer(index, latents), index)
            if self._best is None:
                self._best = trainer
            result: dict[str, Any] = {"init": name, "index": index, "steps": 0}
            result["elbo"], result["elbo_se"] = self._bound(trainer)
            result["elbo_start"] = result["elbo"]
            if len(plan.starts) > 1:
                with progress_bar(f"start {name}", length, plan.shown) as bar:
                    trainer.run(until=length, on_step=bar, settle=True)
                result["steps"] = trainer.state.step
                result["elbo"], result["elbo_se"] = self._bound(trainer)
            self.results.append(result)
            if result["elbo"] > best:
                self._best, best = trainer, result["elbo"]
        self.decided = True
        index = int(max(self.results, key=lambda result: float(result["elbo"]))["index"])
        self._best = self._with_matched_spectra(self.best(), index, length)
        return self.best()

    def _bound(self, trainer: Trainer[LatentVariableModel]) -> tuple[float, float]:
        """Return the bound of a start, with as many features as the race has, and its standard
        error.
        """
        plan = replace(self.plan, n_frequencies=self.plan.early_frequencies)
        return evaluate(trainer.module, self.data, plan, "race", plan.column_budget)

    def best(self) -> Trainer[LatentVariableModel]:
        """Return the best trainer so far; at least one start must exist."""
        if self._best is None:
            raise KeyboardInterrupt
        return self._best

    def resume(
        self, tensors: dict[str, Tensor], header: dict[str, Any]
    ) -> Trainer[LatentVariableModel]:
        """Rebuild the trainer of a checkpoint: no race is run again."""
        results = header["extra"]["starts"]
        winner = max(results, key=lambda result: float(result["elbo"]))
        shape = tensors["module.latents.mean"].shape
        trainer = self.trainer(
            int(winner["index"]), torch.zeros(shape, dtype=torch.float64).numpy()
        )
        restore(trainer, tensors, header)
        # last, so that an interrupt before here leaves the file alone
        self.results, self._best, self.decided = results, trainer, True
        return trainer

    def _latents(self, index: int, origin: Start) -> tuple[str, FloatArray]:
        plan, seed = self.plan, self.plan.seed + index
        if not isinstance(origin, str):
            return "array", origin
        if origin != "fold" and plan.layout is not None:
            return origin, split_start(origin, self._by_view(), plan.layout, seed)
        if origin != "fold":
            return origin, start(origin, self.filled(), plan.n_components, seed)
        stays: int | list[int] = plan.n_components
        if plan.layout is None:
            first, layout = components(self.filled(), plan.n_components + _EXTRA, seed), None
        else:
            repeat = plan.starts[:index].count("fold")
            extra = _EXTRA_PRIVATE[repeat] if repeat < len(_EXTRA_PRIVATE) else repeat + 1
            first, layout = wide_start(self._by_view(), plan.layout, extra, seed)
            stays = kept(layout, plan.layout)
        wide = torch.tensor(first, dtype=plan.dtype, device=plan.device)
        n_steps = min(FOLD_STEPS, plan.training.max_iter)
        narrow = fold(wide, stays, self.stand_in or self.data, seed, n_steps, layout, plan.weights)
        return origin, folded(narrow.double().cpu().numpy(), seed)

    def _by_view(self) -> list[FloatArray]:
        """Return what starts are made of, view by view."""
        widths = [sum(block.n_columns for block in blocks) for blocks in self.stand_in or self.data]
        return np.split(self.filled(), np.cumsum(widths)[:-1], axis=1)
