"""Are the holes of mixed tables filled well? ``python benchmarks/mixed.py``.

Ten tables with numbers and categories, at most 200 rows (a subset per seed), 20 % of the entries
hidden at random: four that scikit-learn ships, penguins of the package palmerpenguins, three
surveys of the package statsmodels, and two of BOCHNER_DATA with categories made of their labels and
columns. Beside column means and modes, nearest neighbours, iterative regressions (both on indicator
columns) and miceforest (the mean, or the mode, of five completed tables). Root mean square error of
numbers over the column's standard deviation and share of categories restored, means over columns;
share of hidden numbers between the 5 and 95 % quantiles of 100 draws (those that hold 90 % of
further draws: the method "weibull" of numpy); processor seconds. Settings were chosen on seeds from
100.
"""

from __future__ import annotations

import functools
import importlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import Job, Store, Value, arguments, table
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - makes the next import possible
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

import bochner as bo

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SCORES = {"error": ".3f", "accuracy": ".3f", "coverage": ".3f", "seconds": ".1f"}
ROWS, HIDDEN, DRAWS, COMPLETED = 200, 0.2, 100, 5
OURS: dict[str, Any] = {"init": "pca", "n_init": 1, "max_iter": 100, "n_mixtures": 1}
DIMENSIONS = 4


# -- tables


def _bundled(name: str, columns: int | None = None) -> pd.DataFrame:
    """Return a table of scikit-learn with its classes as a category."""
    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    labels = [str(label) for label in bunch.target_names]
    frame: pd.DataFrame = bunch.data.iloc[:, :columns].copy()
    frame["class"] = pd.Categorical.from_codes(bunch.target, categories=pd.Index(labels))
    return frame


def _diabetes() -> pd.DataFrame:
    frame: pd.DataFrame = datasets.load_diabetes(as_frame=True, scaled=False).frame
    sex = frame["sex"].map({1.0: "first", 2.0: "second"})
    return frame.assign(sex=sex.astype("category"))


def _penguins() -> pd.DataFrame:
    frame = importlib.import_module("palmerpenguins").load_penguins()
    whole = frame.drop(columns="year").dropna().reset_index(drop=True)
    return whole.astype(dict.fromkeys(("species", "island", "sex"), "category"))


def _survey(name: str, categories: tuple[str, ...], grades: tuple[str, ...]) -> pd.DataFrame:
    """Return a survey of statsmodels: codes are categories, scales are ordered ones."""
    frame = importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
    kinds: dict[str, Any] = dict.fromkeys(categories, "category")
    kinds |= {
        column: pd.CategoricalDtype(sorted(set(frame[column])), ordered=True)
        for column in grades
    }
    return frame.astype(kinds)


def _oil() -> pd.DataFrame:
    data = bo.datasets.load_oil()
    frame = pd.DataFrame(data.data[:, 1:], columns=[f"x{j}" for j in range(1, 12)])
    frame["regime"] = pd.Categorical(np.asarray(data.target).astype(int))
    frame["grade"] = pd.qcut(data.data[:, 0], 4, labels=["a", "b", "c", "d"])
    return frame


def _spambase() -> pd.DataFrame:
    with np.load(Path(os.environ["BOCHNER_DATA"]) / "spambase.npz") as arrays:
        X, y = (arrays[name] for name in _names(arrays.files))
    values = np.log1p(X[:, -3:])
    frame = pd.DataFrame(values, columns=["average", "longest", "total"])
    for j in (4, 6, 15, 18, 20, 22, 24, 52):
        frame[f"word {j}"] = X[:, j] > 0
    frame["spam"] = pd.Categorical(np.where(y == 1, "yes", "no"))
    return frame


def _names(files: list[str]) -> tuple[str, str]:
    return ("X", "y") if "X" in files else ("data", "target")


ANES = ("TVnews", "selfLR", "ClinLR", "DoleLR", "PID", "educ")
FAIR = ("rate_marriage", "religious", "educ")
TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "iris": partial(_bundled, "iris"),
    "wine": partial(_bundled, "wine"),
    "breast cancer": partial(_bundled, "breast_cancer", 10),
    "diabetes": _diabetes,
    "penguins": _penguins,
    "election": partial(_survey, "anes96", ("vote",), ANES),
    "marriages": partial(_survey, "fair", ("occupation",), FAIR),
    "visits": partial(_survey, "randhie", ("idp", "hlthg", "hlthf", "hlthp"), ()),
    "oil": _oil,
    "spam": _spambase,
}


@functools.cache
def truth(name: str, seed: int) -> pd.DataFrame:
    """Return a complete table: rows drawn, categories that none of them has left out."""
    frame = TABLES[name]()
    rows = np.random.default_rng(seed).permutation(len(frame))[:ROWS]
    frame = frame.iloc[np.sort(rows)].reset_index(drop=True)
    for column in frame.columns[frame.dtypes == "category"]:
        if not frame[column].cat.ordered:
            frame[column] = frame[column].cat.remove_unused_categories()
    return frame


def hide(frame: pd.DataFrame, seed: int) -> Mask:
    """Return what is hidden; every row keeps an entry, every category a row."""
    hidden = np.random.default_rng([seed, 1]).random(frame.shape) < HIDDEN
    hidden[hidden.all(axis=1), 0] = False
    for j, name in enumerate(frame.columns):
        if not _is_number(frame[name]):
            first = frame[name].drop_duplicates().index
            hidden[first, j] = False
    return hidden


def _is_number(column: pd.Series) -> bool:
    return column.dtype.kind in "if" and not isinstance(column.dtype, pd.CategoricalDtype)


# -- methods


def ours(shown: pd.DataFrame, seed: int, dim: int = DIMENSIONS) -> list[pd.DataFrame]:
    """Return the completed table and draws of it."""
    model = bo.NGMVLVM(dim, likelihood="auto", random_state=seed, **OURS).fit(shown)
    return [model.impute(shown), *model.impute(shown, n_draws=DRAWS)]


def by_indicators(
    imputer: Any, drop: bool, shown: pd.DataFrame, seed: int
) -> list[pd.DataFrame]:
    """Complete standardised numbers beside an indicator per category, of which one may be left
    out.
    """
    if hasattr(imputer, "random_state"):
        imputer.set_params(random_state=seed)
    parts: list[NDArray[np.float64]] = []
    back: list[tuple[float, float] | list[Any]] = []
    for name in shown:
        values = shown[name]
        if _is_number(values):
            numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)[:, None]
            centre, scale = np.nanmean(numbers), np.nanstd(numbers) or 1.0
            parts.append((numbers - centre) / scale)
            back.append((centre, scale))
        else:
            labels = sorted(values.dropna().unique())
            indicators = np.stack(
                [(values == label).to_numpy(bool) for label in labels], axis=1
            )
            one_hot = np.where(values.isna().to_numpy()[:, None], np.nan, indicators)
            parts.append(one_hot[:, 1:] if drop else one_hot)
            back.append(labels)
    full = imputer.fit_transform(np.hstack(parts))
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    columns = {}
    for name, part, how in zip(shown, np.split(full, ends, axis=1), back, strict=True):
        if isinstance(how, tuple):
            columns[name] = part[:, 0] * how[1] + how[0]
        else:
            shares = np.column_stack([1.0 - part.sum(axis=1), part]) if drop else part
            columns[name] = np.array(how, dtype=object)[shares.argmax(axis=1)]
    return [pd.DataFrame(columns)]


def by_miceforest(shown: pd.DataFrame, seed: int) -> list[pd.DataFrame]:
    """Return the mean, or the mode, of five completed tables."""
    safe = shown.rename(columns={column: f"c{j}" for j, column in enumerate(shown)})
    labels = {}
    for column in safe:
        if not _is_number(safe[column]):
            labels[column] = sorted(safe[column].dropna().unique())
            codes = safe[column].map(
                {label: f"k{k}" for k, label in enumerate(labels[column])}
            )
            safe[column] = codes.astype(object).astype("category")
    # matching of categories fails where a predicted probability is 0
    match = {column: "fast" if column in labels else "normal" for column in safe}
    kernel = importlib.import_module("miceforest").ImputationKernel(
        safe, num_datasets=COMPLETED, mean_match_strategy=match, random_state=seed
    )
    kernel.mice(5, verbose=False, num_threads=1)
    drawn = [kernel.complete_data(i) for i in range(COMPLETED)]
    columns = {}
    for name, column in zip(shown, safe, strict=True):
        together = pd.concat([one[column] for one in drawn], axis=1)
        if _is_number(safe[column]):
            columns[name] = together.mean(axis=1)
        else:
            codes = together.astype(object).mode(axis=1)[0]
            columns[name] = codes.map(
                {f"k{k}": label for k, label in enumerate(labels[column])}
            )
    return [pd.DataFrame(columns)]


METHODS: dict[str, Callable[[pd.DataFrame, int], list[pd.DataFrame]]] = {
    "mean and mode": partial(by_indicators, SimpleImputer(), False),
    "10-NN": partial(by_indicators, KNNImputer(n_neighbors=10, weights="distance"), False),
    "iterative": partial(by_indicators, IterativeImputer(), True),
    "miceforest": by_miceforest,
    f"NG-MVLVM, D = {DIMENSIONS}": ours,
}


def measure(
    name: str, method: Callable[[pd.DataFrame, int], list[pd.DataFrame]], seed: int
) -> dict[str, Value]:
    """Measure one method on one table."""
    frame = truth(name, seed)
    hidden = hide(frame, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.process_time()
        full, *draws = method(frame.mask(hidden), seed)
        seconds = time.process_time() - begin
    errors, shares, inside = [], [], []
    for j, column in enumerate(frame):
        rows = np.flatnonzero(hidden[:, j])
        true, restored = frame[column].iloc[rows], full[column].iloc[rows]
        if not _is_number(frame[column]):
            shares.append(np.mean(true.astype(object).to_numpy() == restored.astype(object)))
            continue
        values = true.to_numpy(dtype=np.float64)
        away = restored.to_numpy(dtype=np.float64) - values
        errors.append(np.sqrt(np.mean(np.square(away))) / frame[column].std())
        if draws:
            drawn = np.stack(
                [one[column].iloc[rows].to_numpy(dtype=np.float64) for one in draws]
            )
            low, high = np.quantile(drawn, [0.05, 0.95], axis=0, method="weibull")
            inside.append((low <= values) & (values <= high))
    scores: dict[str, Value] = {
        "error": float(np.mean(errors)),
        "accuracy": float(np.mean(shares)),
        "seconds": seconds,
    }
    if draws:
        scores["coverage"] = float(np.mean(np.concatenate(inside)))
    return scores


def jobs(names: list[str], seeds: range) -> Iterator[Job]:
    """Yield all methods on all tables, seed by seed."""
    for seed in seeds:
        for name in names:
            for label, method in METHODS.items():
                yield Job(name, label, seed, partial(measure, name, method, seed))


def main() -> None:
    options = arguments(__doc__)
    store = Store("mixed", SCORES, options.quick)
    store.collect(jobs(["iris"] if options.quick else list(TABLES), options.seeds))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
