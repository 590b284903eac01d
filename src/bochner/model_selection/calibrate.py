"""Hide what was observed, predict it, compare: are a model's intervals right?"""

from __future__ import annotations

import itertools
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bochner import metrics
from bochner.data.accepted import checked
from bochner.data.arrays import Float64Array, FloatArray
from bochner.data.columns import dense_rows, evenly_spread
from bochner.data.covariates import of_rows, stacked
from bochner.data.row_sources import RowSource
from bochner.data.views import fingerprint
from bochner.errors import InputError, message
from bochner.estimators.base import LatentVariableEstimator
from bochner.estimators.shards import factors, same
from bochner.likelihoods.likelihood import Offsets, offsets_of, rows_of
from bochner.model_selection.hiding import hide_some
from bochner.prediction import completion
from bochner.prediction.calibration import CalibrationReport, assess, describe
from bochner.prediction.density import entry_log_density
from bochner.prediction.entry_statistics import beyond_draws, sums_of_rows
from bochner.processes import ALONE, Processes, current
from bochner.processes.isolation import isolated
from bochner.progress import say

# Draws of an entry.
_MOST_DRAWS = 100_000
# Numbers of draws held at once, and as how many a row's place counts: 256 rows are placed together,
# of which processes take turns.
_NUMBERS = 2**23
_PLACED = 2**15


@isolated
@checked(
    hide=[str],
    fraction=[Real],
    n_draws=[Integral],
    max_rows=[Integral],
    random_state=["random_state"],
)
def calibration(
    model: LatentVariableEstimator,
    X: ArrayLike | RowSource,
    *,
    hide: str = "entries",
    fraction: float = 0.1,
    n_draws: int = 200,
    max_rows: int = 2000,
    size_factors: object = None,
    covariates: object = None,
    random_state: object = None,
) -> CalibrationReport:
    """Say whether a model's uncertainty about entries it does not see is right.

    Entries of rows are hidden, predicted from what is left of the row, and compared with the truth
    by draws: coverage of central intervals, the probability integral transform (randomised for
    counts and categories), and the log density. Several processes (`distributed`) all call this,
    with rows of their own, and get the report of one process with all rows.

    Parameters
    ----------
    model : LatentVariableEstimator
        Fitted.
    X : array-like, scipy sparse matrix or row source of shape (n, M)
        Rows held out from the fit: of training rows the model knows the answers.
    hide : {"entries", "view"} or the name of a view, default="entries"
        Single entries; of every row one of its views at random; that view of every row.
    fraction : float, default=0.1
        Share of the observed entries that is hidden; for "entries".
    n_draws : int, default=200
        Draws of every hidden entry.
    max_rows : int, default=2000
        Of more rows, in memory or on disk, a sample of so many is compared, spread evenly over all;
        the report says so. Time and memory grow with them.
    size_factors : array-like of shape (n,), or dict of view to one, optional
        As in ``transform``.
    covariates : DataFrame, Series, dict of name to values, or array, optional
        As in ``transform``.
    random_state : int, RandomState instance or None, default=None
        Of what is hidden and of the ranks.

    Returns
    -------
    CalibrationReport
        Prints itself and says in plain words where the model is not calibrated.

    Raises
    ------
    InputError
        Nothing can be hidden, or the rows do not fit the model.

    Examples
    --------
    >>> import bochner as bo
    >>> X = bo.datasets.load_digits_halves().data
    >>> model = bo.NGMVLVM(max_iter=50, tol=1.0, random_state=0).fit(X[:100])
    >>> report = bo.calibration(model, X[100:200], random_state=0)
    >>> sorted(report.views["x"].coverage)
    [0.5, 0.8, 0.95]
    """
    check_is_fitted(model)
    if n_draws < 2:
        raise InputError(message("n_draws of at least 2", str(n_draws), "ask for 200"))
    if n_draws > _MOST_DRAWS:
        # of so many rows at once they are held together, and ranks say no more
        want = f"n_draws of at most {_MOST_DRAWS:,}"
        raise InputError(message(want, f"{n_draws:,}", "ask for 200"))
    if max_rows < 1:
        raise InputError(message("max_rows of at least 1", str(max_rows), "ask for 2000"))
    processes = current()
    asked = {"hide": hide, "fraction": fraction, "n_draws": n_draws, "max_rows": max_rows}
    same(processes, _facts(model, asked, size_factors, covariates))

    def read() -> tuple[Any, torch.Tensor]:
        every = model._validate(X, reset=False)
        return every, model._beside_all(X, every, covariates, size_factors)

    every, known = processes.together(read)
    processes = processes.sharing(int(every.shape[0]))
    values, beside, size_factors, n_rows = _sampled(
        every, known, size_factors, max_rows, processes
    )
    seed = processes.first(int(check_random_state(random_state).randint(2**31 - 1)))
    hidden = hide_some(values, model.views_, hide, fraction, np.random.default_rng(seed))
    given = (model, values, hidden, n_draws, size_factors, seed, beside)
    pit, density, sums = _compared(*given, processes)
    views, counts = {}, {}
    for v, (view, positions) in enumerate(model.views_.items()):
        rows, columns = np.nonzero(hidden[:, positions])
        if rows.size:
            entries = pit[:, positions][rows, columns], density[:, positions][rows, columns]
            joint = beyond_draws(sums[v], rows.size)
            views[view] = assess(view, *entries, rows, columns, joint, model.likelihood_[view])
            counts[view] = views[view].n_rows
    what = describe(hide, fraction, int(hidden.sum()), counts)
    if len(values) < n_rows:
        what = f"{what}, in a sample of {len(values):,} of {n_rows:,} rows"
    return CalibrationReport(views, what, n_draws)


def _facts(
    model: LatentVariableEstimator,
    asked: dict[str, object],
    size_factors: object,
    covariates: object,
) -> dict[str, str]:
    """Return what processes must have in common."""
    mark = fingerprint([model._candidates], {})[:8]
    return {
        "model": f"{type(model).__name__} {mark}",
        **{name: repr(value) for name, value in asked.items()},
        "size factors": factors(size_factors),
        "covariates": "none" if covariates is None else "given",
    }


def _sampled(
    every: Any, beside: torch.Tensor, size_factors: object, max_rows: int, processes: Processes
) -> tuple[FloatArray, torch.Tensor, object, int]:
    """Return some rows of all processes with what is known of them, in all of these, and how many
    rows there are.
    """
    n_here = int(every.shape[0])
    n_rows = processes.total(n_here)
    some = torch.from_numpy(evenly_spread(n_rows, max_rows))
    local = processes.local(some, n_here)
    here = torch.from_numpy(np.ascontiguousarray(dense_rows(every, local.numpy())))
    values = processes.joined(here, some, n_here).numpy()
    known = processes.joined(beside[local], some, n_here)
    factors = of_rows(size_factors, local.numpy())
    if processes.size > 1 and factors is not None:
        # in the order of the rows, which is that of the processes
        factors = stacked(processes.gathered(factors))
    return values, known, factors, n_rows


def compare(
    model: LatentVariableEstimator,
    values: FloatArray,
    hidden: NDArray[np.bool_],
    n_draws: int,
    size_factors: object,
    seed: int,
    covariates: torch.Tensor | None = None,
) -> tuple[Float64Array, Float64Array]:
    """Compare hidden entries with what the model says of them.

    Returns
    -------
    pit, log_density : ndarray of shape (n, M)
        NaN where nothing was hidden; nats, original units.
    """
    pit, density, _ = _compared(model, values, hidden, n_draws, size_factors, seed, covariates)
    return pit, density


def _compared(
    model: LatentVariableEstimator,
    values: FloatArray,
    hidden: NDArray[np.bool_],
    n_draws: int,
    size_factors: object,
    seed: int,
    covariates: torch.Tensor | None,
    processes: Processes = ALONE,
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return what `compare` does, and of every view `sums_of_rows`, (V, 4, n); processes that know
    the same rows take turns.
    """
    sums = np.zeros((len(model.views_), 4, len(values)))
    pit = np.full(values.shape, np.nan)
    density = np.full(values.shape, np.nan)
    shown = np.where(hidden, np.nan, values)
    truth = np.where(hidden, values, np.nan)
    offsets = model._offsets(shown, size_factors)
    views = model._fit.posterior
    n_dims = model._mixture.candidates.shape[1]
    here = []
    # rows are placed together: by themselves they take several times as long
    together = _split(np.flatnonzero(hidden.any(axis=1)), max(n_draws * n_dims, _PLACED))
    for index in together[processes.rank :: processes.size]:
        say(f"placing rows with hidden entries, row {index[0]:,} of {len(values):,}")
        rows = torch.from_numpy(index)
        latents = completion.draw_latents(
            views,
            model._mixture,
            model._split(shown[index]),
            n_draws,
            seed + int(index[0]),
            offsets_of(offsets, rows),
            rows_of(covariates, rows),
        )
        for part in _split(np.arange(len(index)), n_draws * values.shape[1]):
            some = index[part]
            say(f"predicting hidden entries, row {some[0]:,} of {len(values):,}")
            found = _compare_rows(
                model,
                [x[part] for x in latents],
                shown[some],
                truth[some],
                offsets_of(offsets, torch.from_numpy(some)),
                seed + int(some[0]),
            )
            here.append((some, found))
    for some, found in itertools.chain(*processes.gathered(here)):
        pit[some], density[some], sums[..., some] = found
    return pit, density - np.log(model._scaling.scale), sums


def _split(rows: NDArray[np.intp], numbers_of_row: int) -> list[NDArray[np.intp]]:
    """Return parts of rows that are held at once, as even as they can be."""
    size = max(1, _NUMBERS // numbers_of_row)
    return np.array_split(rows, -(-len(rows) // size))


def _compare_rows(
    model: LatentVariableEstimator,
    latents: list[torch.Tensor],
    shown: FloatArray,
    truth: FloatArray,
    offsets: Offsets,
    seed: int,
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Compare hidden entries of rows that are held at once, given draws of where they lie."""
    views = model._fit.posterior
    answers = model._split(truth)
    drawn = completion.draw_at(views, latents, model._split(shown), seed, offsets).numpy()
    scaled = torch.cat(answers, dim=1).numpy()
    known = ~np.isnan(scaled)
    pit = np.full(scaled.shape, np.nan)
    pit[known] = metrics.randomised_pit(scaled[known], drawn[:, known], seed)
    density = entry_log_density(views, latents, answers, offsets)
    sums = []
    start = 0
    for answer in answers:
        asked = np.zeros_like(known)
        asked[:, start : start + answer.shape[1]] = known[:, start : start + answer.shape[1]]
        start += answer.shape[1]
        sums.append(
            sums_of_rows(pit[asked], drawn[:, asked], np.nonzero(asked)[0], len(asked), seed)
        )
    pit, log_density = map(model._in_columns_of_X, (torch.from_numpy(pit), density))
    return pit, log_density, np.stack(sums)
