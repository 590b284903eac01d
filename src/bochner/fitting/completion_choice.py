"""Modes or mixture, put to the test on rows that a short fit has never seen.

Leaving a row out of the weights does not leave it out of the other rows' latents: those were
trained beside it, and a model of many dimensions and few rows remembers it there. Placing such a
row by its own modes then looks far better than it is for new rows. Only a fit without the row
tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bochner.fitting.data import FitData
from bochner.fitting.fit import fit
from bochner.fitting.landmarks import choose
from bochner.fitting.plan import Fit, Plan
from bochner.latent_inference.placement import offsets_of
from bochner.prediction import tempering
from bochner.prediction.completion import Mixture, complete, view_columns
from bochner.weight_posterior.posterior import ViewPosterior

# The short fit, which has as few frequencies as training begins with: rows it may have, how many
# of them for each one held out, steps.
_ROWS, _PER_HELD, _STEPS = 800, 4, 120
# Fewer rows than these are too few to leave some of them out: what was found stays.
_LEAST_ROWS = 25

Rows = Callable[[Tensor], tuple[Sequence[Tensor], Sequence[Tensor | None]]]


def settle(
    found: Fit,
    kept: Tensor,
    data: FitData,
    plan: Plan,
    rows: Rows,
) -> dict[str, float | None]:
    """Choose how rows that lack a view are completed: by a mixture, or by modes that a trial
    confirms.

    Parameters
    ----------
    found : Fit
        With its draws of X, which fits of one view do not have.
    kept : Tensor of shape (C,), int64
        The rows whose latents are the mixture's places.
    data, plan, rows
        As for `modes_win`.

    Returns
    -------
    dict of view name to float or None
        The exponent; None where modes complete the view.
    """
    if found.latent_draws is None:
        return {}
    known, offsets = rows(kept)
    places = (found.latents[kept], found.latent_draws[:, kept])
    choices = tempering.learn(found.posterior, *places, known, plan.seed, offsets)
    doubted = {
        view: c.temperature for view, c in choices.items() if c.modes and c.temperature is not None
    }
    modes = modes_win(data, plan, doubted, rows) if doubted else {}
    return {
        view: replace(c, modes=modes.get(view, c.modes)).exponent for view, c in choices.items()
    }


def modes_win(
    data: FitData,
    plan: Plan,
    temperatures: Mapping[str, float],
    rows: Rows,
) -> dict[str, bool]:
    """Say for which views the modes of rows never seen complete better than the mixture.

    Parameters
    ----------
    data : FitData
    plan : Plan
        Of the fit in question.
    temperatures : mapping of view name to float
        Exponents of the mixture, of the views in question.
    rows : callable
        From indices (n,) to scaled data by view, (n, M_v), NaN where missing, and offsets by view.

    Returns
    -------
    dict of view name to bool
    """
    n_rows = data.n_rows
    if n_rows < _LEAST_ROWS:
        return dict.fromkeys(temperatures, True)
    n_trained = min(_ROWS, n_rows - n_rows // (_PER_HELD + 1))
    trained = choose(data.blocks, n_rows, n_trained, plan.seed)
    others = torch.ones(n_rows, dtype=torch.bool).index_fill_(0, trained, False).nonzero()[:, 0]
    held = others[: max(1, n_trained // _PER_HELD)]
    short = replace(
        plan.early,
        starts=("pca",),
        training=replace(plan.training, max_iter=min(_STEPS, plan.training.max_iter)),
        landmarks=None,
        checkpoint=None,
        shown=False,
    )
    found = fit(data.take(trained), short)
    unseen, offsets = rows(held)
    return {
        view: _gain(found.posterior, found.latents, v, temperatures[view], unseen, offsets) > 0.0
        for v, view in enumerate(plan.spec.names)
        if view in temperatures
    }


def _gain(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    v: int,
    temperature: float,
    rows: Sequence[Tensor],
    offsets: Sequence[Tensor | None],
) -> float:
    """Return by how much modes raise the log density of hidden entries of view v; NaN where no row
    tells.
    """
    index = tempering.informative(rows, v).nonzero()[:, 0]
    data, own = [y[index] for y in rows], offsets_of(offsets, index)
    truth, shown = data[v], tempering.hidden(data, v)
    columns, name = view_columns(views)[v], views[v].name
    values = []
    for exponent in (None, temperature):
        mean, variance = complete(views, Mixture(candidates, {name: exponent}), shown, own)
        values.append(tempering.density(truth, mean[:, columns], variance[:, columns]))
    return float((values[0] - values[1]).nanmean())
