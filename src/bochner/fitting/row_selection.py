"""Landmarks first: a model is trained on some rows, then the others join."""

from __future__ import annotations

import copy
from dataclasses import replace

from torch import Tensor

from bochner.data.stored import copied
from bochner.data.views import fingerprint
from bochner.errors import warn_user
from bochner.fitting import landmarks
from bochner.fitting.data import Finished, FitData, RowSelection, TrainingData, final_bound
from bochner.fitting.placed_rows import NotKept, PlacedRows, Places
from bochner.fitting.plan import Plan, condition, evaluate
from bochner.fitting.row_passes import KeptPasses, NoPasses, Passes
from bochner.models.lvm import LatentVariableModel
from bochner.objectives.subset_sites import Anchors
from bochner.processes import ALONE
from bochner.progress import say
from bochner.regression.observations import Block, Data
from bochner.training.row_adam import KeptLatents
from bochner.training.row_shards import RowShards
from bochner.weight_posterior.posterior import ViewPosterior

# Draws of the bound of all rows: its standard error falls with the rows, too.
_JOINT_DRAWS = 4


def select(data: FitData, plan: Plan, n_landmarks: int) -> RowSelection:
    """Return the landmarks to train on."""
    kind = ConjugateLandmarks if data.surrogates is None else SiteLandmarks
    n_rows = plan.processes.total(data.n_rows)
    chosen = landmarks.choose(data.blocks, n_rows, n_landmarks, plan.seed, plan.processes)
    return kind(data, plan, chosen)


class _Landmarks:
    """Training sees some rows."""

    def __init__(self, data: FitData, plan: Plan, index: Tensor) -> None:
        self.data = data
        self.index = index
        # the same rows in every process: all know what the model was trained on
        self.rows = data.take(index, plan.processes)
        some = index.numpy()
        starts = tuple(s if isinstance(s, str) else s[some] for s in plan.starts)
        self.plan = replace(plan, starts=starts, processes=ALONE)
        self.every = plan

    def _spread(
        self,
        model: LatentVariableModel,
        posterior: tuple[ViewPosterior, ...],
        every: Data,
    ) -> LatentVariableModel:
        """Return the model of the rows here."""
        among = self.every.processes
        n_rows = self.data.n_rows
        local = (among.local(self.index, n_rows), n_rows, self.data.covariates)
        here = among.here(self.index, n_rows)
        places = self._places(model)
        return landmarks.spread(model, posterior, every, *local, here, places, among)

    def _digest(self, model: LatentVariableModel) -> str:
        """Return what tells what follows from the landmarks' model and the rows of all processes,
        however they are divided.
        """
        settings = {"rows": self.data.checksum, "origin": self.every.origin}
        return fingerprint(model.state_dict().values(), settings)

    def _places(self, model: LatentVariableModel) -> Places:
        """Return the places that an earlier run kept."""
        path = self.every.checkpoint
        if path is None or self.data.checksum is None:
            return NotKept()
        start = self.every.processes.start
        return PlacedRows(RowShards(path, "placed", self._digest(model), start))

    def _passes(self, model: LatentVariableModel) -> Passes:
        """Return the passes over all rows that an earlier run kept."""
        path = self.every.checkpoint
        if path is None or self.data.checksum is None:
            return NoPasses()
        given = (self.data.n_rows, self.every.processes)
        return KeptPasses(path, self._digest(model), *given)


class ConjugateLandmarks(_Landmarks):
    """The other rows are placed, then all rows take a few steps together."""

    def finish(
        self, model: LatentVariableModel, training: TrainingData, *, interrupted: bool
    ) -> Finished:
        """Return the better of the models before and after the joint steps, by its bound."""
        rotation = self.every.processes.first(training.rotation)
        every = rotation.apply(self.data.blocks)
        # a model that was not trained to its end is none to go on from
        passes = NoPasses() if interrupted else self._passes(model)
        if not passes.knows("joint"):
            every = _for_many_passes(every, self.every)
        placed = self._placed(model, every, training.blocks)

        def bound() -> tuple[float, float]:
            say("bound of all rows")
            return evaluate(placed, every, self.every, "joint", n_draws=_JOINT_DRAWS)

        before, _ = passes.numbers("placed", bound)
        report = {"n": self.index.shape[0], "elbo_placed": before, "elbo_joint": before}
        cut = False
        if not interrupted:
            kept = _Kept(placed)
            cut = self._train_jointly(placed, every, passes)
            passes = NoPasses() if cut else passes
            after, _ = passes.numbers("joint", bound)
            report["elbo_joint"] = max(before, after)
            if not after > before:
                kept.restore(placed)
            del kept
        final = passes.numbers("final", lambda: final_bound(placed, self.data, self.every))
        return Finished(placed, *final, report, interrupted=cut)

    def _placed(
        self, model: LatentVariableModel, every: Data, chosen: Data
    ) -> LatentVariableModel:
        """Return the model of all rows; the columns are the rotated ones of training."""
        posterior = condition(model, landmarks.narrow(chosen), self.plan)
        whole = landmarks.as_if_whole(posterior, chosen)
        return self._spread(model, whole, landmarks.narrow(every))

    def _train_jointly(self, placed: LatentVariableModel, every: Data, passes: Passes) -> bool:
        """Take the joint steps, and return whether they were interrupted."""
        try:
            landmarks.train_jointly(placed, every, self.every, passes)
        except KeyboardInterrupt:
            if self.every.processes.size > 1:
                raise  # the others wait for this process
            warn_user("Interrupted: the steps over all rows were cut short.", UserWarning)
            return True
        return False


def _for_many_passes(data: Data, plan: Plan) -> Data:
    """Return blocks of which rows that are expensive to read stand in temporary files, beside the
    checkpoint where there is one.
    """
    folder = None if plan.checkpoint is None else plan.checkpoint.parent

    def held(block: Block) -> Block:
        return replace(block, Y=copied(block.Y, folder))

    return tuple(tuple(held(block) for block in blocks) for blocks in data)


class _Kept:
    """A model as it is now, to come back to."""

    def __init__(self, model: LatentVariableModel) -> None:
        self._views = [copy.deepcopy(view.state_dict()) for view in model.views]
        self._latents = KeptLatents(model.latents)

    def restore(self, model: LatentVariableModel) -> None:
        """Put it back."""
        for view, state in zip(model.views, self._views, strict=True):
            view.load_state_dict(state)
        self._latents.restore(model.latents)


class SiteLandmarks(_Landmarks):
    """Sites of non-conjugate views belong to the landmarks; other rows are placed under them."""

    def finish(
        self,
        model: LatentVariableModel,
        training: TrainingData,  # noqa: ARG002 - conjugate views need it
        *,
        interrupted: bool,
    ) -> Finished:
        """Return the model of all rows."""
        passes = NoPasses() if interrupted else self._passes(model)
        anchors = Anchors(self.index.to(self.plan.device), self.rows.blocks)
        posterior = condition(model, self.rows.blocks, self.plan)
        blocks = self.data.blocks
        placed = self._spread(model, posterior, blocks)
        given = (placed, blocks, anchors, self.every)
        value, error = passes.numbers("final", lambda: landmarks.evaluate_anchored(*given))
        report = {"n": self.index.shape[0], "elbo_placed": value, "elbo_joint": value}
        return Finished(placed, value, error, report, anchors)
