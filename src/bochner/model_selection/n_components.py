"""How many latent dimensions? The number with which held-out entries are predicted best."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.parallel import Parallel, delayed

from bochner import metrics
from bochner.data.accepted import COUNT, as_rows, checked, in_order_of, index_of
from bochner.data.arrays import BoolArray, Float64Array
from bochner.data.columns import dense_rows
from bochner.data.covariates import CovariateCoding, of_rows
from bochner.data.kinds import Categories
from bochner.data.row_sources import JoinedSource, RowSource, read_by_parts, source_of
from bochner.data.validation import as_array
from bochner.data.views import Views
from bochner.errors import DataWarning, InputError, message
from bochner.estimators.base import LatentVariableEstimator
from bochner.estimators.tables import Mixed, as_frame, coding_of, of_views
from bochner.initialization import iterative_pca
from bochner.likelihoods import Binomial, Categorical
from bochner.model_selection.calibrate import compare
from bochner.model_selection.component_selection import ComponentSelection
from bochner.model_selection.hiding import hide_some
from bochner.prediction.entry_statistics import mean_of_fits, mean_of_rows
from bochner.processes import current
from bochner.processes.isolation import isolated
from bochner.weight_posterior.posterior import all_conjugate

# At least so many parts are made of the rows; one of them is held out at a time.
_FOLDS = 5
# Held-out entries lie in so many patterns of columns: rows that share one are placed together.
_PATTERNS = 4
_DRAWS = 100
# Without a linear path to go by.
_PLAIN = (1, 2, 3, 5, 8)
# The ranks of that path, and the most dimensions that are tried because of it.
_RANKS = (1, 2, 3, 5, 8, 12, 20, 30, 40, 60, 80, 120, 160)
_MOST = 160
# From this rank on two dimensions are out of the question, and more than the rank beyond the next.
_MANY = 20
_DEAR = 40
# Fits that only tell numbers apart are short.
_SHORT = {"init": "pca", "max_iter": 100}


@isolated
@checked(
    estimator=[HasMethods(["fit", "set_params", "impute"])],
    candidates=[str, Collection],
    hide=[str],
    fraction=[Real],
    rows=[str],
    n_repeats=[Integral],
    rule=[str],
    n_jobs=[
        COUNT,
        Interval(Integral, None, -1, closed="right"),
        None,
    ],
    random_state=["random_state"],
)
def select_n_components(
    estimator: LatentVariableEstimator,
    X: object,
    candidates: Sequence[int] | str = "auto",
    *,
    hide: str = "entries",
    fraction: float = 0.1,
    rows: str = "new",
    n_repeats: int = 3,
    rule: str = "one_se",
    size_factors: object = None,
    covariates: object = None,
    n_jobs: int | None = None,
    random_state: object = None,
) -> ComponentSelection:
    """Choose the number of latent dimensions by entries that training did not see.

    In every repeat a part of the rows, another one each time, is held out; the estimator is fitted
    to the others with every number of dimensions, and entries that are hidden in the held-out rows
    are predicted from their other entries. To restore the holes of a table, ask with
    ``rows="same"``: entries of all rows are hidden, and predicted by the very fit that saw the
    rows' other entries.

    Parameters
    ----------
    estimator : LatentVariableEstimator
        Its other parameters are kept; it is not fitted itself.
    X : array-like, scipy sparse matrix or row source of shape (N, M)
    candidates : sequence of int or "auto", default="auto"
        "auto" goes from coarse to fine: the best rank r of a linear completion, found in seconds,
        then r/2 and r, and 2 and 2r where they are below 20 and up to 40, by fits of 100 steps from
        principal components where ``init`` and ``max_iter`` are "auto" too. No more than 160, or
        than half of what the table could hold. 1, 2, 3, 5 and 8 where X is sparse or not in memory,
        where some view is not Gaussian or where views are hidden.
    hide : {"entries", "view"} or the name of a view, default="entries"
        As in `calibration`: "view" chooses the number with which views predict each other best.
    fraction : float, default=0.1
        Share of a held-out row's entries that is hidden; for "entries".
    rows : {"new", "same"}, default="new"
        "new": rows are held out, and what is hidden in them is predicted: for data to come. "same":
        the rows of X themselves, as ``fit(X).impute(X)`` completes them; for ``hide="entries"`` of
        a dense X.
    n_repeats : int, default=3
        Parts held out in turn, of 5 or, with more repeats, of as many; with ``rows="same"`` other
        entries each time.
    rule : {"one_se", "best"}, default="one_se"
        "one_se": the smallest number that lies no more than one standard error over rows behind
        the one with the highest log-likelihood; "best": that one.
    size_factors : array-like of shape (N,), or dict of view to one, optional
        As in ``fit``.
    covariates : DataFrame, Series, dict of name to values, or array, optional
        As in ``fit``.
    n_jobs : int, optional
        Fits at a time, as in joblib.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    ComponentSelection
        Prints itself.

    Raises
    ------
    InputError
        Candidates that are no positive numbers, too few rows, ``latent`` with "shared", which
        fixes what candidates change, or several processes.

    Examples
    --------
    >>> import bochner as bo
    >>> X = bo.datasets.load_digits_halves().data[:100]
    >>> model = bo.NGMVLVM(n_frequencies=10, n_init=1, max_iter=20, tol=1.0)
    >>> selected = bo.select_n_components(model, X, candidates=[1, 2], n_repeats=1, random_state=0)
    >>> selected.candidates
    (1, 2)
    """
    if (size := current().size) > 1:
        # fits that hold out rows of their own would wait for each other
        do = "call it outside of distributed(), with some of the rows"
        raise InputError(message("one process to select n_components", f"{size}", do))
    if isinstance(estimator, type):
        do = f"write {estimator.__name__}(), with its settings"
        raise InputError(message("an estimator", f"the class {estimator.__name__}", do))
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    X = source_of(X) or as_rows(X)
    X = X if hasattr(X, "shape") else as_array("X", X)
    if len(X.shape) != 2:
        raise InputError(
            message("X of shape (rows, columns)", f"shape {X.shape}", "reshape it")
        )
    # other formats have no rows to take
    X = X.tocsr() if hasattr(X, "tocsr") else X
    _check_rows(rows, hide, X)
    if rule not in ("one_se", "best"):
        raise InputError(message("rule= 'one_se' or 'best'", repr(rule), "correct it"))
    _check_latent(getattr(estimator, "latent", None))
    if isinstance(candidates, str):
        estimator, candidates = _coarse(estimator, X, candidates, hide, seed)
    numbers = _check(candidates, n_repeats, np.shape(X)[0])
    order = np.random.default_rng(seed).permutation(np.shape(X)[0])
    n_folds = max(_FOLDS, n_repeats)
    parts = (
        np.array_split(order, n_folds)[:n_repeats]
        if rows == "new"
        else [order[:0]] * n_repeats
    )
    index = index_of(X)
    beside = (("size_factors", size_factors), ("covariates", covariates))
    known = _Known(*(in_order_of(index, what, given) for what, given in beside))
    if covariates is not None:
        # what is wrong or constant is said once, of all rows
        CovariateCoding.fit(covariates, np.shape(X)[0], index)
    if index_of(frame := as_frame(X, estimator.likelihood)) is not None:
        if index is None:
            # rows of Polars and Arrow have no names
            frame, known = frame.reset_index(drop=True), known.unnamed()
        X = _with_categories(estimator, frame)
    jobs = list(itertools.product(range(n_repeats), numbers))
    done = Parallel(n_jobs=n_jobs)(
        delayed(_held_out if rows == "new" else _hidden)(
            clone(estimator).set_params(n_components=d, random_state=seed + r),
            X,
            parts[r],
            (hide, fraction, seed + r),
            known,
        )
        for r, d in jobs
    )
    parts_rows = [done[jobs.index((r, numbers[0]))][1] for r in range(n_repeats)]
    of_rows = np.concatenate(parts_rows)
    of_fits = np.repeat(np.arange(n_repeats), [len(part) for part in parts_rows])
    scores = {
        d: np.concatenate([done[jobs.index((r, d))][0] for r in range(n_repeats)])
        for d in numbers
    }
    embeddings = {d: [done[jobs.index((r, d))][2] for r in range(n_repeats)] for d in numbers}
    return _summary(numbers, scores, of_rows, of_fits, embeddings, rule)


def _check_latent(latent: object) -> None:
    """Refuse shared latents of a fixed number: they win over n_components, and every candidate
    would be the same model.
    """
    if isinstance(latent, Mapping) and "shared" in latent:
        want = "latent without 'shared': candidates change n_components"
        got = f"latent['shared']={latent['shared']!r}, which fixes it"
        raise InputError(message(want, got, "leave 'shared' out"))


def _check(candidates: Sequence[int], n_repeats: int, n_rows: int) -> tuple[int, ...]:
    whole = all(isinstance(d, Integral | float) and float(d).is_integer() for d in candidates)
    numbers = tuple(sorted({int(d) for d in candidates})) if whole else ()
    if not numbers or numbers[0] < 1:
        got = repr(list(candidates))
        raise InputError(
            message("candidates that are positive whole numbers", got, "correct them")
        )
    if n_repeats < 1:
        raise InputError(message("n_repeats of at least 1", str(n_repeats), "ask for 3"))
    if n_rows < 2 * max(_FOLDS, n_repeats):
        want = f"at least {2 * max(_FOLDS, n_repeats)} rows"
        raise InputError(
            message(want, str(n_rows), "pass more rows, or choose n_components yourself")
        )
    return numbers


def _fit(
    model: LatentVariableEstimator,
    X: object,
    known: _Known,
) -> None:
    """Fit to some rows, in which covariates may be constant."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore",
            "Constant covariates",
            DataWarning,
        )
        model.fit(X, **vars(known))


@functools.singledispatch
def _taken(X: object, rows: NDArray[np.intp]) -> object:
    """Return some rows, (n,)."""
    return _safe_indexing(X, rows)


@_taken.register
def _(X: RowSource, rows: NDArray[np.intp]) -> RowSource:
    return JoinedSource([X], X.columns, [rows])


def _held_out(
    model: LatentVariableEstimator,
    X: Any,
    test: NDArray[np.intp],
    what: tuple[str, float, int],
    known: _Known,
) -> tuple[Float64Array, NDArray[np.intp], Float64Array]:
    """Fit without some rows; return the log densities of what was hidden in them, its rows, and all
    rows' latents.
    """
    hide, fraction, seed = what
    train = np.setdiff1d(np.arange(np.shape(X)[0]), test)
    _fit(model, _taken(X, train), known.of(train))
    X = _without_unknown(model, of_views(X, model.views))
    coding = model._covariate_coding
    covariates = coding.without_unknown(known.covariates, np.shape(X)[0])
    known = replace(known, covariates=covariates)
    values = dense_rows(model._validate(_taken(X, test), reset=False), slice(None))
    source = np.random.default_rng(seed)
    hidden = hide_some(values, model.views_, hide, fraction, source, n_patterns=_PATTERNS)
    beside_test = known.of(test)
    beside = model._covariate_coding.encode(beside_test.covariates, len(values))
    _, density = compare(model, values, hidden, _DRAWS, beside_test.size_factors, seed, beside)
    embedding = np.asarray(model.transform(X, **vars(known)), dtype=np.float64)
    return density[hidden], test[np.nonzero(hidden)[0]], embedding


def _hidden(
    model: LatentVariableEstimator,
    X: object,
    _: NDArray[np.intp],
    what: tuple[str, float, int],
    known: _Known,
) -> tuple[Float64Array, NDArray[np.intp], Float64Array]:
    """Fit to all rows, some entries hidden; return the log densities of these, their rows, and the
    rows' latents.
    """
    hide, fraction, seed = what
    X = of_views(X, model.views)
    values, data = _table(model, X)
    hidden = hide_some(values, data.columns, hide, fraction, np.random.default_rng(seed))
    _show_needed(hidden, values, model._coding.labels())
    _fit(model, model._coding.hide(X, hidden, values), known)
    values = _encoded(model, _without_unknown(model, X))
    hidden &= ~np.isnan(values)
    if all_conjugate(model._fit.posterior):
        shown = np.where(hidden, np.nan, values)
        with warnings.catch_warnings():
            # the numbers of a table: as its types have them they are rounded
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            mean, std = model.impute(shown, return_std=True, covariates=known.covariates)
        away = (values - mean)[hidden] / std[hidden]
        density = -0.5 * np.square(away) - np.log(std[hidden]) - 0.5 * np.log(2.0 * np.pi)
    else:
        beside = model._covariate_coding.encode(known.covariates, len(values))
        given = (known.size_factors, seed, beside)
        density = compare(model, values, hidden, _DRAWS, *given)[1][hidden]
    return density, np.nonzero(hidden)[0], np.asarray(model.embedding_, dtype=np.float64)


def _show_needed(
    hidden: BoolArray, values: Float64Array, labels: Mapping[int, Sequence[str]]
) -> None:
    """Show what a fit needs an entry of: every column, and every label of a mixed table."""
    hidden[:, (hidden | np.isnan(values)).all(axis=0)] = False
    for j, known in labels.items():
        for code in range(len(known)):
            rows = np.flatnonzero(values[:, j] == code)
            if hidden[rows, j].all():
                hidden[rows, j] = False


def _with_categories(estimator: LatentVariableEstimator, X: Any) -> Any:
    """Return a DataFrame with texts as categories, which they are in all rows: in some of them
    they might differ as often as names of rows do.
    """
    chosen = of_views(X, estimator.views)
    coding = coding_of(chosen, estimator.likelihood, estimator._views_named)
    if not isinstance(coding, Mixed):
        return X
    named = zip(coding.names, coding.columns, strict=True)
    texts = [name for name, column in named if isinstance(column, Categories)]
    return X.astype(dict.fromkeys(texts, "category"))


def _without_unknown(model: LatentVariableEstimator, X: Any) -> Any:
    """Return rows without the labels, categories and numbers of trials that a fit to some of their
    entries does not know: these tell it nothing.
    """
    X = model._coding.without_unknown(X)
    if _kind_of_rows(X):
        return X
    values = _encoded(model, X)
    unknown = np.zeros(values.shape, dtype=bool)
    for view in model._fit.posterior:
        likelihood, columns = view.likelihood, model.views_[view.name]
        if isinstance(likelihood, Categorical):
            codes = likelihood.codes(torch.from_numpy(values[:, columns]))
            unknown[:, columns] = codes.numpy() < 0.0
        elif isinstance(likelihood, Binomial):
            unknown[:, columns] = values[:, columns] > likelihood.n_trials.numpy()
    return model._coding.hide(X, unknown, values) if unknown.any() else X


def _encoded(model: LatentVariableEstimator, X: object) -> Float64Array:
    """Return rows as the numbers of a fit."""
    encoded: Any = model._coding.encode(X)
    if hasattr(encoded, "iloc"):
        encoded = encoded.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(encoded, dtype=np.float64)


def _table(model: LatentVariableEstimator, X: object) -> tuple[Float64Array, Views]:
    """Return the checked values of X and its views, before there is a fit."""
    values = model._validate(X, reset=True).astype(np.float64)
    views = model._coding.views(model.views)
    names = getattr(model, "feature_names_in_", None)
    return values, Views.fit(values, views, names)


def _coarse(
    estimator: LatentVariableEstimator, X: object, asked: str, hide: str, seed: int
) -> tuple[LatentVariableEstimator, Sequence[int]]:
    """Return the estimator as short fits want it, and candidates about the best rank of a linear
    completion.
    """
    if asked != "auto":
        raise InputError(
            message("candidates='auto' or a list of numbers", repr(asked), "correct it")
        )
    brief = clone(estimator)
    brief.set_params(
        **{name: value for name, value in _SHORT.items() if getattr(estimator, name) == "auto"}
    )
    if _kind_of_rows(X) or hide != "entries" or estimator.likelihood != "gaussian":
        return brief, _PLAIN
    values, data = _table(brief, X)
    scaled = np.hstack([data.scaled(view) for view in data.names]).astype(np.float64)
    r = iterative_pca.chosen_rank(scaled, seed, _RANKS)
    most = max(2, min(_MOST, (min(values.shape) - 1) // 2))
    numbers = {r // 2, r, min(2 * r, max(r, _DEAR)), 2 if r < _MANY else r}
    return brief, sorted({min(d, most) for d in numbers if d > 1})


def _kind_of_rows(X: object) -> str:
    """Say what X is where it is no dense table in memory; nothing where it is one."""
    if sp.issparse(X):
        return "a sparse X"
    return "an X that is not in memory" if read_by_parts(X) else ""


def _check_rows(rows: str, hide: str, X: object) -> None:
    if rows not in ("new", "same"):
        raise InputError(message("rows= 'new' or 'same'", repr(rows), "correct it"))
    kind = _kind_of_rows(X)
    if rows == "same" and (hide != "entries" or kind):
        got = kind or f"hide={hide!r}"
        raise InputError(
            message("rows='same' with hide='entries' and a dense X", got, "leave rows='new'")
        )


@dataclass(frozen=True)
class _Known:
    """What is known of rows beside their data."""

    size_factors: object
    covariates: object

    def of(self, rows: NDArray[np.intp]) -> _Known:
        """Return that of some rows, (n,)."""
        return _Known(of_rows(self.size_factors, rows), of_rows(self.covariates, rows))

    def unnamed(self) -> _Known:
        """Return the same without names of rows."""
        return _Known(_unnamed(self.size_factors), _unnamed(self.covariates))


def _unnamed(given: Any) -> object:
    if isinstance(given, Mapping):
        return {name: _unnamed(value) for name, value in given.items()}
    return given if index_of(given) is None else given.reset_index(drop=True)


def _summary(
    numbers: tuple[int, ...],
    scores: dict[int, Float64Array],
    rows: NDArray[np.intp],
    fits: NDArray[np.intp],
    embeddings: dict[int, list[Float64Array]],
    rule: str,
) -> ComponentSelection:
    means = np.array([mean_of_fits(scores[d], rows, fits) for d in numbers])
    top = numbers[int(means[:, 0].argmax())]
    away = [scores[top] - scores[d] for d in numbers]
    behind = np.array([mean_of_fits(gap, rows, fits) for gap in away])
    over_rows = np.array([mean_of_rows(gap, rows) for gap in away])
    near = [d for d, (gap, error) in zip(numbers, over_rows, strict=True) if gap <= error]
    agreement = [_agreement(embeddings[d]) for d in numbers]
    best = min(near) if rule == "one_se" else top
    return ComponentSelection(
        numbers,
        means[:, 0],
        means[:, 1],
        behind[:, 0],
        behind[:, 1],
        over_rows[:, 1],
        np.array(agreement),
        best,
        int(fits.max()) + 1,
    )


def _agreement(embeddings: Sequence[ArrayLike]) -> float:
    pairs = [
        metrics.procrustes_agreement(a, b) for a, b in itertools.combinations(embeddings, 2)
    ]
    return float(np.mean(pairs)) if pairs else float("nan")
