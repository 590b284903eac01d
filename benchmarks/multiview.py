"""What several views know of each other: ``python benchmarks/multiview.py [--part
breast|handwritten|text]``.

breast: proteins of held-out tumours from mRNA and miRNA, beside ridge regression, partial least
squares, MOFA (mofapy2) and multiset canonical correlation (cca-zoo's MCCA), settings of all by
cross-validation within the rows trained on (100 of 150, the seed draws them); subtypes of 70
further rows that have no protein view. handwritten: rows of which some of six views are shown,
k-NN from every one of the 63 subsets (1,400 rows trained, 600 placed). text: k-NN of films, papers
and news stories from two or three sparse views, each as its leading 200 singular vectors after
tf-idf, for all methods alike. MCCA's shrinkage there and of digits is the one with the highest
correlation of rows left out.
Columns of breast and handwritten are standardised by the training rows. Labels are used for the
accuracies printed and for no choice. BOCHNER_DATA names the folder with the files.
"""

from __future__ import annotations

import functools
import itertools
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Protocol, Value, arguments, table, timed
from numpy.typing import NDArray
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA, FactorAnalysis, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from view_peers import SHRINKAGES, Canonical, Mofa, best_completion

import bochner as bo

Array = NDArray[np.float64]

PROTEIN = {"r2": ".3f", "coverage90": ".3f", "components": ".1f", "seconds": ".0f"}
SHOWN = {"knn1": ".3f", "knn10": ".3f"}
COLUMNS = ("r2", "coverage90", "knn1", "knn10", "components", "seconds", "views_shown")
LOADERS = {
    "movies617": bo.datasets.load_movies617,
    "3sources": bo.datasets.load_three_sources,
    "citeseer": bo.datasets.load_citeseer,
}
OURS, DEFAULTS = "NG-MVLVM from PCA", "NG-MVLVM, defaults"
# One start and at most so many steps: a race of starts costs four times as much.
SETTINGS: dict[str, Any] = {"init": "pca", "n_frequencies": 50, "max_iter": 600}
BREAST = (
    *(f"{OURS}, D = {d}" for d in (2, 5)),
    f"{OURS}, D chosen",
    *(f"{DEFAULTS}, D = {d}" for d in (2, 5)),
)
OF_VIEWS = ("MOFA", "MCCA")
TEXT = ("PCA", "CCA", "factor analysis", *OF_VIEWS, OURS, DEFAULTS)
CANDIDATES = (1, 2, 3, 5, 8)
MOFA_CANDIDATES = (*CANDIDATES, 12)
TRAINED, OF_PROTEINS = 1400, 100
# Columns of handwritten's narrowest view
NARROWEST = 6
SUBSETS = [
    shown
    for n in range(1, 7)
    for shown in itertools.combinations(("fac", "fou", "kar", "mor", "pix", "zer"), n)
]
LEADING, WHITENED = 200, 50
PEER_DIMENSIONS = 10


def model_of(method: str, views: dict[str, slice], seed: int, quick: bool) -> Any:
    """Build our model."""
    settings = {} if method.startswith(DEFAULTS) else SETTINGS
    return bo.NGMVLVM(
        views=views, random_state=seed, **{**settings, **({"max_iter": 60} if quick else {})}
    )


def fit(
    method: str, X: Array, views: dict[str, slice], n_components: int, seed: int, quick: bool
) -> Any:
    """Fit our model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            model_of(method, views, seed, quick).set_params(n_components=n_components).fit(X)
        )


# -- breast
# ---------------------------------------------------------------------------


def breast(method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Predict the proteins of 50 tumours."""
    bunch = bo.datasets.load_breast_tcga()
    proteins = bunch.views["protein"]
    order = np.random.default_rng(seed).permutation(150)
    X = (
        StandardScaler()
        .fit(bunch.data[order[:OF_PROTEINS]])
        .transform(bunch.data)
        .astype(np.float64)
    )
    train, test = X[order[:OF_PROTEINS]], X[order[OF_PROTEINS:]]
    if method in OF_VIEWS:
        result, seconds = timed(
            lambda: proteins_of_views(method, train, test, bunch.views, seed)
        )
    elif method in ("ridge", "PLS"):
        result, seconds = timed(lambda: peer_proteins(method, train, test, proteins))
    else:
        result, seconds = timed(lambda: our_proteins(method, train, test, bunch, seed, quick))
    return {**result, "seconds": seconds}


def peer_proteins(method: str, train: Array, test: Array, proteins: slice) -> dict[str, Value]:
    """Regress the proteins on the other views; strength or components by cross-validation on the
    training rows.
    """
    if method == "ridge":
        model: Any = RidgeCV(np.logspace(0, 5, 21))
    else:
        model = GridSearchCV(PLSRegression(), {"n_components": [1, 2, 3, 5, 8]}, scoring="r2")
    inputs = slice(0, proteins.start)
    predicted = model.fit(train[:, inputs], train[:, proteins]).predict(test[:, inputs])
    return {"r2": r2(test[:, proteins], predicted, train[:, proteins])}


def proteins_of_views(
    method: str, train: Array, test: Array, views: dict[str, slice], seed: int
) -> dict[str, Value]:
    """Complete the protein view by a peer, its settings by completing it of training rows."""
    makers: list[Any] = (
        [partial(Mofa, d, seed) for d in MOFA_CANDIDATES]
        if method == "MOFA"
        else [partial(Canonical, d, c) for d in CANDIDATES for c in SHRINKAGES]
    )
    model = best_completion(makers, train, views, "protein")().fit(train, views)
    hidden, proteins = test.copy(), views["protein"]
    hidden[:, proteins] = np.nan
    guess = model.complete(hidden)[:, proteins]
    return {
        "r2": r2(test[:, proteins], guess, train[:, proteins]),
        "components": model.n_components,
    }


def our_proteins(
    method: str, train: Array, test: Array, bunch: Any, seed: int, quick: bool
) -> dict[str, Value]:
    """Impute the protein view; coverage of the 90 % intervals beside it."""
    proteins, views = bunch.views["protein"], bunch.views
    n_components = (
        chosen(train, views, seed, quick)
        if method.endswith("chosen")
        else int(method.rsplit(maxsplit=1)[1])
    )
    model = fit(method, train, views, n_components, seed, quick)
    hidden = test.copy()
    hidden[:, proteins] = np.nan
    mean, std = model.impute(hidden, return_std=True)
    true = test[:, proteins]
    return {
        "r2": r2(true, mean[:, proteins], train[:, proteins]),
        "coverage90": bo.metrics.coverage(true, mean[:, proteins], std[:, proteins]),
        "components": n_components,
    }


def chosen(train: Array, views: dict[str, slice], seed: int, quick: bool) -> int:
    """Choose D by completing protein views of held-out training rows."""
    model = model_of(OURS, views, seed, quick)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = bo.select_n_components(
            model,
            train,
            candidates=CANDIDATES[:2] if quick else CANDIDATES,
            hide="view",
            n_repeats=3,
            random_state=seed,
        )
    return int(report.best)


def r2(true: Array, predicted: Array, train: Array) -> float:
    """R² per protein against the training mean, their mean."""
    residual, total = (
        ((true - predicted) ** 2).sum(axis=0),
        ((true - train.mean(axis=0)) ** 2).sum(axis=0),
    )
    return float(np.mean(1 - residual / total))


def subtypes(method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Fit all 150 rows, place the 70 that have no proteins, and classify them by their
    neighbours.
    """
    bunch, n_components = bo.datasets.load_breast_tcga(), int(method.rsplit(maxsplit=1)[1])
    scaler = StandardScaler().fit(bunch.data)
    X, absent = (
        scaler.transform(bunch.data).astype(np.float64),
        np.full((len(bunch.y_test), 142), np.nan),
    )
    rows = scaler.transform(np.hstack([bunch.mrna_test, bunch.mirna_test, absent])).astype(
        np.float64
    )
    if method.startswith("PCA"):
        observed = slice(0, bunch.views["protein"].start)
        model: Any = PCA(n_components).fit(X[:, observed])
        Z, new, seconds = (
            model.transform(X[:, observed]),
            model.transform(rows[:, observed]),
            0.0,
        )
    else:
        peer = peer_of_views(method, n_components, seed)
        model, seconds = timed(
            lambda: (
                peer.fit(X, bunch.views)
                if peer
                else fit(method, X, bunch.views, n_components, seed, quick)
            )
        )
        Z, new = model.embedding_, model.transform(rows)
    return {
        **placed_accuracy(Z, bunch.target, new, bunch.y_test),
        "components": n_components,
        "seconds": seconds,
    }


def peer_of_views(method: str, n_components: int, seed: int) -> Mofa | Canonical | None:
    """Return MOFA or MCCA, or None of other methods."""
    if method.startswith("MOFA"):
        return Mofa(n_components, seed)
    return Canonical(n_components) if method.startswith("MCCA") else None


def placed_accuracy(
    Z: Array, labels: NDArray[Any], new: Array, truth: NDArray[Any]
) -> dict[str, Value]:
    """Classify placed rows by trained ones."""
    return {
        f"knn{k}": float(KNeighborsClassifier(k).fit(Z, labels).score(new, truth))
        for k in (1, 10)
    }


# -- handwritten
# ---------------------------------------------------------------------------


@functools.cache
def digits(method: str, n_components: int, seed: int, quick: bool) -> tuple[Any, ...]:
    """Fit 1,400 rows; return the model, their labels, the other rows and labels, and the
    seconds.
    """
    bunch = bo.datasets.load_handwritten()
    order = np.random.default_rng(seed).permutation(2000)
    train, test = (
        (order[:200], order[200:300]) if quick else (order[:TRAINED], order[TRAINED:])
    )
    scaler = StandardScaler().fit(bunch.data[train])
    X = scaler.transform(bunch.data).astype(np.float64)
    peer = peer_of_views(method, n_components, seed)
    model, seconds = timed(
        lambda: (
            peer.fit(X[train], bunch.views)
            if peer
            else fit(OURS, X[train], bunch.views, n_components, seed, quick)
        )
    )
    return model, bunch.views, bunch.target[train], X[test], bunch.target[test], seconds


def shown_views(
    method: str, n_components: int, shown: tuple[str, ...], seed: int, quick: bool
) -> dict[str, Value]:
    """Place rows of which only some views are shown."""
    model, views, labels, X, truth, seconds = digits(method, n_components, seed, quick)
    rows = np.full_like(X, np.nan)
    for view in shown:
        rows[:, views[view]] = X[:, views[view]]
    result = placed_accuracy(model.embedding_, labels, model.transform(rows), truth)
    return {
        **result,
        "views_shown": len(shown),
        "components": n_components,
        "seconds": seconds,
    }


# -- text
# ---------------------------------------------------------------------------


@functools.cache
def words(name: str) -> tuple[Array, dict[str, slice], NDArray[Any]]:
    """Return leading singular vectors of every view, each view scaled to unit mean square row, and
    labels.
    """
    bunch, parts = LOADERS[name](), {}
    for view, columns in bunch.views.items():
        weighed = TfidfTransformer().fit_transform(bunch.data[:, columns].astype(np.float64))
        leading = TruncatedSVD(
            min(LEADING, min(weighed.shape) - 1), random_state=0
        ).fit_transform(weighed)
        parts[view] = leading / np.sqrt((leading**2).sum(axis=1).mean())
    stops = np.cumsum([part.shape[1] for part in parts.values()]).tolist()
    views = {
        v: slice(stop - part.shape[1], stop)
        for (v, part), stop in zip(parts.items(), stops, strict=True)
    }
    return np.hstack(list(parts.values())), views, bunch.target


def text(
    name: str, method: str, n_components: int, seed: int, quick: bool
) -> dict[str, Value]:
    """Embed all rows and classify them by cross-validated neighbours."""
    X, views, labels = words(name)
    if method in (OURS, DEFAULTS):
        model, seconds = timed(lambda: fit(method, X, views, n_components, seed, quick))
        Z = model.embedding_
    else:
        Z, seconds = timed(lambda: peer_embedding(method, X, views, n_components, seed))
    accuracies = {f"knn{k}": bo.metrics.knn_accuracy(Z, labels, k) for k in (1, 10)}
    return {**accuracies, "components": n_components, "seconds": seconds}


def peer_embedding(
    method: str, X: Array, views: dict[str, slice], n_components: int, seed: int
) -> Array:
    """Embed by a linear method; CCA of several views is the one of maximal variance, whitened
    components first.
    """
    if peer := peer_of_views(method, n_components, seed):
        return np.asarray(peer.fit(X, views).embedding_)
    if method == "CCA":
        whitened = [
            PCA(WHITENED, whiten=True, random_state=0).fit_transform(X[:, columns])
            for columns in views.values()
        ]
        X = np.hstack(whitened)
    model = (
        FactorAnalysis(n_components, random_state=0)
        if method == "factor analysis"
        else PCA(n_components)
    )
    return np.asarray(model.fit_transform(X))


# -- tables
# ---------------------------------------------------------------------------


def jobs(part: str | None, seeds: range, quick: bool) -> Iterator[Job]:
    """Yield what is to be measured, what is quick before what is slow."""
    for method, seed in (
        itertools.product(("ridge", "PLS", *OF_VIEWS, *BREAST), seeds)
        if part in (None, "breast")
        else ()
    ):
        yield Job("breast proteins", method, seed, partial(breast, method, seed, quick))
        if " = " in method:
            yield Job("breast subtypes", method, seed, partial(subtypes, method, seed, quick))
    for d in (2, PEER_DIMENSIONS) if part in (None, "breast") else ():
        for method in ("PCA", "MCCA"):  # nothing is random in them
            name = f"{method}, D = {d}"
            yield Job("breast subtypes", name, 0, partial(subtypes, name, 0, quick))
    for seed, d in itertools.product(seeds if part in (None, "breast") else (), (2, 5)):
        name = f"MOFA, D = {d}"
        yield Job("breast subtypes", name, seed, partial(subtypes, name, seed, quick))
    for seed in seeds:
        for name, method in (
            itertools.product(LOADERS, TEXT) if part in (None, "text") and not quick else ()
        ):
            if method not in ("MOFA", OURS, DEFAULTS) and seed:
                continue  # nothing is random in them
            for d in (2, PEER_DIMENSIONS):
                yield Job(
                    name,
                    f"{method}, D = {d}",
                    seed,
                    partial(text, name, method, d, seed, quick),
                )
        for method, d in itertools.product(
            ("NG-MVLVM", *OF_VIEWS) if part in (None, "handwritten") else (), (2, 5, 10)
        ):
            if method == "MCCA" and d > NARROWEST:
                continue  # it has at most as many components as the narrowest view has columns
            data = f"handwritten, D = {d}" + (f", {method}" if method in OF_VIEWS else "")
            for shown in SUBSETS[:1] if quick else SUBSETS:
                job = partial(shown_views, method, d, shown, seed, quick)
                yield Job(data, "+".join(shown), seed, job)


PROTOCOL = Protocol("multiview", tuple(COLUMNS), partial(jobs, None))


def main() -> None:
    part = None
    if "--part" in sys.argv:
        at = sys.argv.index("--part")
        part = sys.argv[at + 1]
        del sys.argv[at : at + 2]
        if part not in ("breast", "handwritten", "text"):
            raise SystemExit(f"--part breast, handwritten or text, not {part}")
    options = arguments(__doc__)
    store = PROTOCOL.store(options.quick)
    store.collect(jobs(part, options.seeds, options.quick))
    rows = store.rows()
    print(table([row for row in rows if row["data"] == "breast proteins"], PROTEIN))
    print(
        table(
            [row for row in rows if row["data"] == "breast subtypes"],
            {**SHOWN, "seconds": ".0f"},
        )
    )
    print(table([row for row in rows if row["data"] in LOADERS], {**SHOWN, "seconds": ".0f"}))
    written = [row for row in rows if row["views_shown"]]
    print("handwritten: mean over all subsets of so many views, then every subset")
    print(table(written, SHOWN, heads=("data", "views_shown")))
    print(table(written, SHOWN))


if __name__ == "__main__":
    main()
