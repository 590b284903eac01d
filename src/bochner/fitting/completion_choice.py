"""Modes or mixture, put to the test on rows that a short fit has never seen.

Leaving a row out of the weights does not leave it out of the other rows' latents: those were
trained beside it, and a model of many dimensions and few rows remembers it there. Placing such a
row by its own modes then looks far better than it is for new rows. Only a fit without the row
tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner import progress
from bochner.fitting.data import FitData
from bochner.fitting.fit import fit
from bochner.fitting.landmarks import choose
from bochner.fitting.plan import Fit, Plan
from bochner.prediction import tempering
from bochner.weight_posterior.posterior import ViewPosterior

# The short fit, which has as few frequencies as training begins with: rows it may have, how many
# of them for each one held out, steps.
_ROWS = 800
_PER_HELD = 4
_STEPS = 120
# Fewer rows than these are too few to leave some of them out: what was found stays.
_LEAST_ROWS = 25

Rows = Callable[[Tensor], tuple[Sequence[Tensor], Sequence[Tensor | None]]]


@dataclass(frozen=True)
class Question:
    """How rows that lack a view are completed, to be answered when somebody asks.

    The answer costs up to a third of a fit, and most fits never complete a view. Only the rows that
    it takes are held.

    Attributes
    ----------
    posterior : sequence of ViewPosterior
    places : Tensor of shape (C, D)
        Latents of the candidates, the mixture's places.
    draws : Tensor of shape (S, C, D)
        The draws of these latents that the weights were conditioned on.
    known, offsets
        Scaled data by view, (C, M_v), and offsets by view, of the candidates.
    trial : Trial or None
        None where there are too few rows to leave some of them out.
    seed : int
    """

    posterior: Sequence[ViewPosterior]
    places: Tensor
    draws: Tensor
    known: Sequence[Tensor]
    offsets: Sequence[Tensor | None]
    trial: Trial | None
    seed: int

    @classmethod
    def of(
        cls,
        fitted: Fit,
        draws: Tensor,
        kept: Tensor,
        data: FitData,
        plan: Plan,
        rows: Rows,
    ) -> Question:
        """Keep what the answer takes.

        Parameters
        ----------
        fitted : Fit
        draws : Tensor of shape (S, N, D)
            Its draws of X.
        kept : Tensor of shape (C,), int64
            The rows whose latents are the mixture's places.
        data : FitData
        plan : Plan
            Of the fit in question.
        rows : callable
            From indices (n,) to scaled data by view, (n, M_v), NaN where missing, and offsets by
            view.
        """
        known, offsets = rows(kept)
        return cls(
            fitted.posterior,
            fitted.latents[kept],
            draws[:, kept],
            known,
            offsets,
            Trial.of(data, plan, rows),
            plan.seed,
        )

    def answer(self) -> dict[str, float | None]:
        """Choose between a mixture, and modes that a trial confirms.

        Returns
        -------
        dict of view name to float or None
            The exponent; None where modes complete the view.
        """
        with progress.within("choosing how rows that lack a view are completed"):
            choices = tempering.learn(
                self.posterior, self.places, self.draws, self.known, self.seed, self.offsets
            )
            doubted = {
                view: c.temperature
                for view, c in choices.items()
                if c.modes and c.temperature is not None
            }
            modes = self.trial.modes_win(doubted) if self.trial and doubted else {}
        return {
            view: replace(c, modes=modes.get(view, c.modes)).exponent
            for view, c in choices.items()
        }


@dataclass(frozen=True)
class Trial:
    """A short fit to some rows, and rows that it does not have.

    Attributes
    ----------
    data : FitData
        What the short fit has.
    plan : Plan
        Of the short fit.
    held, offsets
        Scaled data and offsets by view of the rows that were left out.
    """

    data: FitData
    plan: Plan
    held: Sequence[Tensor]
    offsets: Sequence[Tensor | None]

    @classmethod
    def of(cls, data: FitData, plan: Plan, rows: Rows) -> Trial | None:
        """Part the rows; None where they are too few."""
        n_rows = data.n_rows
        if n_rows < _LEAST_ROWS:
            return None
        n_trained = min(_ROWS, n_rows - n_rows // (_PER_HELD + 1))
        trained = choose(data.blocks, n_rows, n_trained, plan.seed)
        others = (
            torch.ones(n_rows, dtype=torch.bool).index_fill_(0, trained, False).nonzero()[:, 0]
        )
        short = replace(
            plan.early,
            starts=("pca",),
            training=replace(plan.training, max_iter=min(_STEPS, plan.training.max_iter)),
            landmarks=None,
            checkpoint=None,
            shown=False,
        )
        return cls(data.take(trained), short, *rows(others[: max(1, n_trained // _PER_HELD)]))

    def modes_win(self, temperatures: Mapping[str, float]) -> dict[str, bool]:
        """Say for which views the modes of rows never seen complete better than the mixture.

        Parameters
        ----------
        temperatures : mapping of view name to float
            Exponents of the mixture, of the views in question.

        Returns
        -------
        dict of view name to bool
        """
        fitted = fit(self.data, self.plan)
        held = tempering.HiddenViews(fitted.posterior, fitted.latents, self.held, self.offsets)
        informed = {
            v: held.informative(v)
            for v, view in enumerate(self.plan.spec.names)
            if view in temperatures
        }
        by_modes = held.by_modes(informed)
        out = {}
        for v, index in informed.items():
            view = self.plan.spec.names[v]
            by_mixture = held.by_mixture(v, index, [temperatures[view]])[0]
            out[view] = bool((by_modes[v] - by_mixture).nanmean() > 0.0)
        return out
