"""How many latent dimensions? The number with which held-out entries are predicted best."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.parallel import Parallel, delayed

from bochner import metrics
from bochner.data.dense import dense
from bochner.errors import InputError, message
from bochner.estimators.base import LatentVariableEstimator
from bochner.estimators.calibrate import compare
from bochner.estimators.hide import hide_some
from bochner.inference.calibration import mean_of_rows

Array = NDArray[np.float64]

# At least so many parts are made of the rows; one of them is held out at a time.
_FOLDS = 5
# Held-out entries lie in so many patterns of columns: rows that share one are placed together.
_PATTERNS = 4
_DRAWS = 100


@dataclass(frozen=True)
class ComponentSelection:
    """How well held-out entries are predicted, by number of latent dimensions; prints itself.

    Attributes
    ----------
    candidates : tuple of int
        Ascending.
    log_likelihood, log_likelihood_se : ndarray of shape (candidates,)
        Mean log density of a hidden entry of a held-out row, nats, original units, and its standard error over rows.
    behind, behind_se : ndarray of shape (candidates,)
        By how much each lies behind the best, compared row by row, and the standard error of that; 0 for the best.
    agreement : ndarray of shape (candidates,)
        Mean agreement, after Procrustes, of all rows' embeddings between repeats, which differ in seed and rows; NaN
        with one repeat.
    best : int
        The number to use: that with the highest log-likelihood, or by the rule of one standard error.
    n_repeats : int
    """

    candidates: tuple[int, ...]
    log_likelihood: Array
    log_likelihood_se: Array
    behind: Array
    behind_se: Array
    agreement: Array
    best: int
    n_repeats: int

    def __str__(self) -> str:
        """Return a table, and the number to use."""
        lines = ["n_components  log-likelihood per held-out entry  behind the best  agreement between repeats"]
        columns = (self.log_likelihood, self.log_likelihood_se, self.behind, self.behind_se, self.agreement)
        for d, mean, error, behind, behind_error, agreement in zip(self.candidates, *columns, strict=True):
            own = f"{mean:.4f} ± {error:.4f}".ljust(33)
            lines.append(f"{d:<12}  {own}  {f'{behind:.4f} ± {behind_error:.4f}'.ljust(15)}  {agreement:.3f}")
        return "\n".join([*lines, f"Use n_components={self.best}."])


def select_n_components(
    estimator: LatentVariableEstimator,
    X: Any,
    candidates: Sequence[int] = (1, 2, 3, 5, 8),
    *,
    hide: str = "entries",
    fraction: float = 0.1,
    n_repeats: int = 3,
    one_standard_error: bool = False,
    size_factors: Any = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> ComponentSelection:
    """Choose the number of latent dimensions by entries of rows that training did not see.

    In every repeat a part of the rows, another one each time, is held out; the estimator is fitted to the others with
    every number of dimensions, and entries that are hidden in the held-out rows are predicted from their other entries.

    Parameters
    ----------
    estimator : LatentVariableEstimator
        Its other parameters are kept; it is not fitted itself.
    X : array-like of shape (N, M)
    candidates : sequence of int, default=(1, 2, 3, 5, 8)
    hide : {"entries", "view"} or the name of a view, default="entries"
        As in `calibration`: "view" chooses the number with which views predict each other best.
    fraction : float, default=0.1
        Share of a held-out row's entries that is hidden; for "entries".
    n_repeats : int, default=3
        Parts held out in turn, of 5 or, with more repeats, of as many.
    one_standard_error : bool, default=False
        Take the smallest number that lies no more than one standard error behind the best.
    size_factors : array-like of shape (N,), or dict of view to one, optional
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
        Candidates that are no positive numbers, or too few rows.

    Examples
    --------
    >>> import bochner as bo
    >>> X = bo.datasets.load_digits_halves().data[:100]
    >>> model = bo.NGMVLVM(n_frequencies=10, n_init=1, max_iter=20, tol=1.0)
    >>> found = bo.select_n_components(model, X, candidates=[1, 2], n_repeats=1, random_state=0)
    >>> found.candidates
    (1, 2)
    """
    numbers = _check(candidates, n_repeats, np.shape(X)[0])
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    order, n_folds = np.random.default_rng(seed).permutation(np.shape(X)[0]), max(_FOLDS, n_repeats)
    parts = np.array_split(order, n_folds)[:n_repeats]
    jobs = list(itertools.product(range(n_repeats), numbers))
    done = Parallel(n_jobs=n_jobs)(
        delayed(_held_out)(
            clone(estimator).set_params(n_components=d, random_state=seed + r),
            X,
            parts[r],
            (hide, fraction, seed + r),
            size_factors,
        )
        for r, d in jobs
    )
    rows = np.concatenate([done[jobs.index((r, numbers[0]))][1] for r in range(n_repeats)])
    scores = {d: np.concatenate([done[jobs.index((r, d))][0] for r in range(n_repeats)]) for d in numbers}
    embeddings = {d: [done[jobs.index((r, d))][2] for r in range(n_repeats)] for d in numbers}
    return _summary(numbers, scores, rows, embeddings, n_repeats, one_standard_error)


def _check(candidates: Sequence[int], n_repeats: int, n_rows: int) -> tuple[int, ...]:
    numbers = tuple(sorted({int(d) for d in candidates}))
    if not numbers or numbers[0] < 1 or any(int(d) != d for d in candidates):
        raise InputError(message("candidates that are positive whole numbers", repr(list(candidates)), "correct them"))
    if n_repeats < 1:
        raise InputError(message("n_repeats of at least 1", str(n_repeats), "ask for 3"))
    if n_rows < 2 * max(_FOLDS, n_repeats):
        want = f"at least {2 * max(_FOLDS, n_repeats)} rows"
        raise InputError(message(want, str(n_rows), "pass more rows, or choose n_components yourself"))
    return numbers


def _held_out(
    model: LatentVariableEstimator, X: Any, test: NDArray[np.intp], what: tuple[str, float, int], size_factors: Any
) -> tuple[Array, NDArray[np.intp], Array]:
    """Fit without some rows; return the log densities of what was hidden in them, its rows, and all rows' latents."""
    hide, fraction, seed = what
    train = np.setdiff1d(np.arange(np.shape(X)[0]), test)
    model.fit(_safe_indexing(X, train), size_factors=_of_rows(size_factors, train))
    values = dense(model._validate(_safe_indexing(X, test), reset=False), "X")
    source = np.random.default_rng(seed)
    hidden = hide_some(values, model._columns, hide, fraction, source, n_patterns=_PATTERNS)
    _, density = compare(model, values, hidden, _DRAWS, _of_rows(size_factors, test), seed)
    embedding = np.asarray(model.transform(X, size_factors=size_factors), dtype=np.float64)
    return density[hidden], test[np.nonzero(hidden)[0]], embedding


def _of_rows(size_factors: Any, rows: NDArray[np.intp]) -> Any:
    if isinstance(size_factors, Mapping):
        return {view: np.asarray(own)[rows] for view, own in size_factors.items()}
    return None if size_factors is None else np.asarray(size_factors)[rows]


def _summary(
    numbers: tuple[int, ...],
    scores: dict[int, Array],
    rows: NDArray[np.intp],
    embeddings: dict[int, list[Array]],
    n_repeats: int,
    one_standard_error: bool,
) -> ComponentSelection:
    means = np.array([mean_of_rows(scores[d], rows) for d in numbers])
    top = numbers[int(means[:, 0].argmax())]
    behind = np.array([mean_of_rows(scores[top] - scores[d], rows) for d in numbers])
    near = [d for d, (gap, error) in zip(numbers, behind, strict=True) if gap <= error]
    agreement = [_agreement(embeddings[d]) for d in numbers]
    best = min(near) if one_standard_error else top
    return ComponentSelection(
        numbers, means[:, 0], means[:, 1], behind[:, 0], behind[:, 1], np.array(agreement), best, n_repeats
    )


def _agreement(embeddings: Sequence[ArrayLike]) -> float:
    pairs = [metrics.procrustes_agreement(a, b) for a, b in itertools.combinations(embeddings, 2)]
    return float(np.mean(pairs)) if pairs else float("nan")
