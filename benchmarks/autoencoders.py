"""What variational autoencoders make of the papers' data: ``python benchmarks/autoencoders.py``.

The neural peers of the papers' tables, in plain torch (``vae.py``), with two latent dimensions: a
VAE of one view with Gaussian noise (one variance, learned), Bernoulli (grey levels in [0, 1] as
shares of ones) or negative binomial likelihood (counts as tables_srflvm.py makes them, a dispersion
per column), and of several views MVAE (a product of experts, trained on all views, every view alone
and one more subset) and MMVAE (a mixture of experts, the bound of one draw from each). Latents are
the encoder's means: of the product, and the mean of the mixture. "NAME + labels" as in latents.py:
labels as a second view, categories here; where they were input both views count the same, where
those of the test fold are unknown rows are encoded from what is known of them. Text as in
multiview.py; "handwritten": six views of 1,400 rows trained, k-NN of 600 others, ``one_knn1`` and
``one_knn10`` from one view alone, the mean of six. Training stops when the bound of a held-out
tenth of the rows rises no more. ``--choice`` tries widths and dropout of the inputs on seeds 100
up, by the Gaussian VAE or the MVAE; ``SETTINGS`` has those with the best mean of the held-out bound
(nats a row), which sees no labels. ``--data NAME ...`` measures some sets alone. BOCHNER_DATA names
the folder with the files.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Job, Protocol, Store, Value, arguments, table, timed
from latents import FOLDS
from latents import data_of as labelled
from maps import data_of as shuffled
from multiview import LOADERS as TEXTS
from multiview import TRAINED, placed_accuracy, words
from numpy.typing import NDArray
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from tables_srflvm import as_asked
from vae import MMVAE, MVAE, VAE, Autoencoder, Settings, View

import bochner as bo

Array = NDArray[np.float64]

COLUMNS = {
    "knn1": ".3f",
    "knn10": ".3f",
    "svm": ".3f",
    "one_knn1": ".3f",
    "one_knn10": ".3f",
    "held_out": ".1f",
    "steps": ".0f",
    "seconds": ".1f",
}
CHOICE = {"held_out": ".2f", "knn1": ".3f", "steps": ".0f", "seconds": ".1f"}
LIKELIHOODS: dict[str, Callable[[Array], View]] = {
    "VAE, Gaussian": View.gaussian,
    "VAE, Bernoulli": View.bernoulli,
    "VAE, negative binomial": View.counts,
}
# Bernoulli views take grey levels; counts of bicycles or words are none.
SINGLE = {
    "bridges": ("VAE, Gaussian", "VAE, negative binomial"),
    "newsgroups": ("VAE, Gaussian", "VAE, negative binomial"),
    "MNIST": tuple(LIKELIHOODS),
    "CIFAR": tuple(LIKELIHOODS),
}
IMAGES = ("MNIST", "CIFAR")
EXPERTS: dict[str, type[Autoencoder]] = {"MVAE": MVAE, "MMVAE": MMVAE}
INPUT, UNKNOWN = ", labels were input", ", labels of the test fold unknown"
LABELLED = ("bridges", "MNIST", "CIFAR", "newsgroups")
NARROW = Settings((128,), 1e-3)
WIDE, DROPPED = (Settings((256, 256), 1e-3, dropout) for dropout in (0.2, 0.5))
CANDIDATES = (NARROW, WIDE, DROPPED)
# What held-out bounds of seeds 100 up have chosen
SETTINGS = {
    "bridges": NARROW,
    "newsgroups": WIDE,
    "MNIST": DROPPED,
    "CIFAR": WIDE,
    "movies617": NARROW,
    "3sources": NARROW,
    "citeseer": WIDE,
    "handwritten": DROPPED,
}
QUICK = 20  # steps


def classified(Z: Array, labels: NDArray[Any]) -> dict[str, Value]:
    """Return accuracies of all rows in five folds."""
    svm = make_pipeline(StandardScaler(), SVC())
    return {
        **{f"knn{k}": bo.metrics.knn_accuracy(Z, labels, k) for k in (1, 10)},
        "svm": float(cross_val_score(svm, Z, labels, cv=FOLDS).mean()),
    }


# -- one view
# ---------------------------------------------------------------------------


def rows_of(name: str, seed: int) -> tuple[Array, NDArray[Any]]:
    """Return rows and labels; documents are shuffled, as half of them have a twin."""
    if name == "newsgroups":
        bunch = shuffled(name)
        return bunch.data, bunch.target
    X, labels, _ = labelled(name, seed)
    assert labels is not None
    return X, labels


def single(name: str, method: str, X: Array) -> View:
    """Return the view of a table: columns of unlike units are standardised one by one, pixels have
    one scale.
    """
    if method == "VAE, Gaussian":
        return View.gaussian(X if name in IMAGES else StandardScaler().fit_transform(X))
    return LIKELIHOODS[method](as_asked(X, "N-" if method.endswith("binomial") else "G-"))


def measure_single(name: str, method: str, seed: int, settings: Settings) -> dict[str, Value]:
    """Fit a VAE."""
    X, labels = rows_of(name, seed)
    model = VAE([single(name, method, X)], 2, settings, seed)
    about, seconds = timed(model.fit)
    return {**classified(model.means(), labels), **about, "seconds": seconds}


# -- labels as a second view
# ---------------------------------------------------------------------------


def beside_labels(
    name: str, X: Array, labels: NDArray[Any], known: NDArray[np.bool_], balanced: bool
) -> list[View]:
    """Return rows and their labels, of which some are unknown, as two views."""
    data = single(name, "VAE, Gaussian", X)
    of_labels = View.categories(np.unique(labels, return_inverse=True)[1], known)
    return [data, of_labels.weighed(float(X.shape[1])) if balanced else of_labels]


def measure_labels(name: str, method: str, seed: int, settings: Settings) -> dict[str, Value]:
    """Fit data with their labels as a second view."""
    X, labels, _ = labelled(name, seed)
    assert labels is not None
    kind = EXPERTS[method.partition(",")[0]]
    known = np.ones(len(X), dtype=bool)
    if method.endswith(INPUT):
        model = kind(beside_labels(name, X, labels, known, True), 2, settings, seed)
        about, seconds = timed(model.fit)
        return {**classified(model.means(), labels), **about, "seconds": seconds}
    folds, total = [], 0.0
    for train, test in FOLDS.split(X):
        hidden = known.copy()
        hidden[test] = False
        model = kind(beside_labels(name, X, labels, hidden, False), 2, settings, seed)
        about, seconds = timed(model.fit)
        total += seconds
        Z = model.means()
        svm = make_pipeline(StandardScaler(), SVC()).fit(Z[train], labels[train])
        scores = {"svm": float(svm.score(Z[test], labels[test])), **about}
        for k in (1, 10):
            neighbours = KNeighborsClassifier(k).fit(Z[train], labels[train])
            scores[f"knn{k}"] = float(neighbours.score(Z[test], labels[test]))
        folds.append(scores)
    means = {key: float(np.mean([fold[key] for fold in folds])) for key in folds[0]}
    return {**means, "seconds": total}


# -- several views
# ---------------------------------------------------------------------------


def parted(X: Array, views: dict[str, slice]) -> list[View]:
    """Return Gaussian views of some columns each."""
    return [View.gaussian(X[:, columns]) for columns in views.values()]


def measure_text(name: str, method: str, seed: int, settings: Settings) -> dict[str, Value]:
    """Embed films, papers or news stories."""
    X, views, labels = words(name)
    model = EXPERTS[method.partition(",")[0]](parted(X, views), 2, settings, seed)
    about, seconds = timed(model.fit)
    return {**classified(model.means(), labels), **about, "seconds": seconds}


def measure_handwritten(
    name: str, method: str, seed: int, settings: Settings
) -> dict[str, Value]:
    """Place 600 digits from six views, and from every one of them."""
    bunch = getattr(bo.datasets, f"load_{name}")()
    order = np.random.default_rng(seed).permutation(2000)
    train, test = order[:TRAINED], order[TRAINED:]
    X = StandardScaler().fit(bunch.data[train]).transform(bunch.data).astype(np.float64)
    views = parted(X, bunch.views)
    of_train = [view.rows(train) for view in views]
    model = EXPERTS[method.partition(",")[0]](of_train, 2, settings, seed)
    about, seconds = timed(model.fit)
    labels, truth = bunch.target[train], bunch.target[test]
    new, Z = [view.rows(test) for view in views], model.means()
    alone = [
        placed_accuracy(Z, labels, model.means([v.shown(v is view) for v in new]), truth)
        for view in new
    ]
    return {
        **placed_accuracy(Z, labels, model.means(new), truth),
        **{
            f"one_{key}": float(np.mean([float(one[key]) for one in alone]))
            for key in alone[0]
        },
        **about,
        "seconds": seconds,
    }


# -- tables
# ---------------------------------------------------------------------------


Measure = Callable[[str, str, int, Settings], dict[str, Value]]


def cells() -> Iterator[tuple[str, str, Measure]]:
    """Yield data, method and what measures them."""
    for name, methods in SINGLE.items():
        yield from ((name, method, measure_single) for method in methods)
    for name, kind, labels in itertools.product(LABELLED, EXPERTS, (INPUT, UNKNOWN)):
        yield f"{name} + labels", f"{kind}{labels}", measure_labels
    for name, kind in itertools.product(TEXTS, EXPERTS):
        yield name, f"{kind}, D = 2", measure_text
    for kind in EXPERTS:
        yield "handwritten", f"{kind}, D = 2", measure_handwritten


def run(
    measure: Measure, name: str, method: str, seed: int, settings: Settings
) -> dict[str, Value]:
    """Measure one row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant columns
        return measure(name.removesuffix(" + labels"), method, seed, settings)


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all data and methods, seed by seed."""
    for seed, (name, method, measure) in itertools.product(seeds, list(cells())):
        settings = SETTINGS[name.removesuffix(" + labels")]
        if quick:
            settings = settings.at_most(QUICK)
        yield Job(name, method, seed, partial(run, measure, name, method, seed, settings))


def choice_jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield every setting for the first method of all data."""
    first = {name: (method, measure) for name, method, measure in reversed(list(cells()))}
    for seed, (name, (method, measure)) in itertools.product(seeds, reversed(first.items())):
        if name.endswith("labels"):
            continue
        for settings in CANDIDATES:
            few = settings.at_most(QUICK) if quick else settings
            work = partial(run, measure, name, method, seed, few)
            yield Job(name, f"{method}, {settings}", seed, work)


PROTOCOL = Protocol("autoencoders", tuple(COLUMNS), jobs)


def main() -> None:
    parts = argparse.ArgumentParser(add_help=False)
    parts.add_argument("--choice", action="store_true")
    parts.add_argument("--data", nargs="+", help="data sets (default all)")
    chosen, sys.argv[1:] = parts.parse_known_args()
    options = arguments(__doc__)
    store, seeds = PROTOCOL.store(options.quick), options.seeds
    if chosen.choice:
        store = Store("autoencoders_choice", tuple(COLUMNS), options.quick)
        seeds = range(100 + seeds.start, 100 + seeds.stop)
    every = (choice_jobs if chosen.choice else jobs)(seeds, options.quick)
    store.collect(job for job in every if chosen.data is None or job.data in chosen.data)
    print(table(store.rows(), CHOICE if chosen.choice else COLUMNS))


if __name__ == "__main__":
    main()
