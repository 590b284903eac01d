"""Which count models say best what a second look at the same cells would show: ``python
benchmarks/thinning.py --choice --seeds 1``, then ``python benchmarks/thinning.py``.

Molecular cross-validation (Batson, Royer and Webber, 2019). Every count is split by binomial
thinning: X_train ~ Binomial(X, 0.9), X_test = X - X_train. Models are fitted to X_train and judged
by ``log_density``, the mean log density of an entry of X_test in nats; ``gain`` is how much more
that is than with rates of row times column totals, of the same split; processor seconds of the fit
and of its predictions. Ours are predictive: the log of the mean density over 100 draws of latents
and, given them, of log rates; ``point`` is the density with the mean of these rates instead. Peers
have point predictions.

**Poisson.** Where X ~ Poisson(l), X_train ~ Poisson(0.9 l) and X_test ~ Poisson(0.1 l) are
independent given l. A model of X_train of mean m = 0.9 l says X_test ~ Poisson(m / 9).

**Negative binomial.** X ~ Poisson(l g), g ~ Gamma(shape r, rate r), is thinned given g: with odds
o = 1/9, X_train ~ Poisson(m g), which is negative binomial with the same r, and X_test ~
Poisson(o m g), independent given g alone. What X_train = x says of g is Gamma(r + x, r + m), and so
p(X_test = y | x, m, r) is the integral of Poisson(y | o m g) over it: negative binomial of size
r + x, mean (r + x) o m / (r + m) and probability of success (r + m) / (r + m + o m). Averaged over
what X_train says of m, that is exact; a product of two negative binomials would not be. Large r
gives Poisson(o m). ``tests/docs/test_thinning.py`` compares it with sums and draws.

**Rates of 0.** All rates but the true ones, draws or not, are mixed with those of row times column
totals, half a molecule added to each: a share of 0.01, 0.1 or 0.3 of them, chosen as all settings
are. No rate is 0 then.

**Settings** are chosen on seed 100, anew for every method and set of data, by thinning X_train of
this seed once more and scoring what was taken from it (``--choice``): ranks, shares of
totals and numbers of latents; but for bridges these are chosen for the negative binomial model and
hold for all of ours. 100 steps from principal components and one component of the kernel, as in
cells.py; size factors are totals, of bridges a choice.

pbmc3k: 200 blood cells and the 500 genes that vary most of those that a twentieth of the cells
has; newsgroups: 250 messages and the 150 words that occur most, messages with at least ten of
them; bridges: 214 days of four bridges; drawn cells: those of cells.py before they get batches, 250
of 100 genes, negative binomial with dispersion 3, of which the true rates are known. Rows are
drawn and counts thinned anew for every seed.

Peers: Poisson counts with column means; with row times column totals; negative binomial counts with
these and a dispersion per column; scikit-learn's NMF with the Kullback-Leibler loss (at most 1,000
steps, bridges 20,000) and LatentDirichletAllocation times row totals (50 passes, bridges 100);
hierarchical Poisson factorisation (Gopalan, Hofman and Blei, 2015) where hpfrec is installed (at
most 150 steps, bridges 1,000).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from cells import DISPERSION, cells_of_types
from harness import Job, Store, Value, arguments, table, timed
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from sklearn.decomposition import NMF, LatentDirichletAllocation

import bochner as bo

Array = NDArray[np.float64]

TRAINED = 0.9
ODDS = (1.0 - TRAINED) / TRAINED
DRAWS = 100
TRAINING: dict[str, Any] = {"init": "pca", "max_iter": 100}
# whose number of latents the others of ours have, too
TRIED = "NG-MVLVM, negative binomial"
SHARES = (0.01, 0.1, 0.3)
COLUMNS = {
    "log_density": ".4f",
    "gain": ".4f",
    "point": ".4f",
    "seconds": ".1f",
}
CHOICE = {f"share_{share}": ".4f" for share in SHARES} | {"seconds": ".1f"}
FIRST_CHOICE = 100
N_CELLS, N_GENES, N_MESSAGES, N_WORDS, N_DRAWN = 200, 500, 250, 150, 250
# Molecules of a row or a column that is kept: thinned ones have some left.
FEWEST = 10


@dataclass(frozen=True)
class Counts:
    """Counts (n, M), and their true means where they are known."""

    X: Array
    truth: Array | None = None


@dataclass(frozen=True)
class Split:
    """Counts that models see and the rest of the same entries, (n, M), and the true means of the
    former where they are known.
    """

    train: Array
    test: Array
    truth: Array | None = None


@dataclass(frozen=True)
class Rates:
    """Means of the training counts, (S, n, M) or, of a point, (1, n, M); the dispersion of negative
    binomial ones, a number or (M,), None: Poisson.
    """

    mean: NDArray[np.floating[Any]]
    dispersion: float | Array | None = None


def thin(X: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Split counts into those of training and the rest."""
    train = rng.binomial(X.astype(np.int64), TRAINED).astype(np.float64)
    return train, X - train


def split(data: str, seed: int, inner: bool = False) -> Split:
    """Draw data and thin them; ``inner``: split the training counts of that instead, for a choice
    that sees nothing of the rest.
    """
    counts = DATA[data](seed)
    rng = np.random.default_rng([seed, 26])
    train, test = thin(counts.X, rng)
    truth = None if counts.truth is None else TRAINED * counts.truth
    if inner:
        train, test = thin(train, rng)
        truth = None if truth is None else TRAINED * truth
    return Split(train, test, truth)


# -- densities


def log_density(
    mean: Array, dispersion: float | Array | None, held: Split, constant: Array | None = None
) -> Array:
    """Return the log density of every held-out entry, (n, M), given these means of the training
    counts and the training count; ``constant``: what does not depend on means, where it is known.
    """
    x, y = held.train, held.test
    constant = combinations(dispersion, held) if constant is None else constant
    if dispersion is None:
        rate = ODDS * mean
        return np.asarray(y * np.log(rate) - rate + constant)
    # of a gamma variable that has seen x: log of the probabilities of success and of failure
    whole = np.log(dispersion + mean + ODDS * mean)
    success, failure = np.log(dispersion + mean) - whole, np.log(ODDS * mean) - whole
    return np.asarray(constant + (dispersion + x) * success + y * failure)


def combinations(dispersion: float | Array | None, held: Split) -> Array:
    """Return the part of the log density that does not depend on means, (n, M)."""
    if dispersion is None:
        return np.asarray(-gammaln(held.test + 1.0))
    size = dispersion + held.train
    return np.asarray(gammaln(size + held.test) - gammaln(size) - gammaln(held.test + 1.0))


def score(rates: Rates, share: float, held: Split) -> float:
    """Return the mean over entries of the log of the mean density over draws."""
    about, constant = share * totals(held.train), combinations(rates.dispersion, held)
    result: Array | None = None
    for drawn in rates.mean:
        of_draw = log_density((1.0 - share) * drawn + about, rates.dispersion, held, constant)
        result = of_draw if result is None else np.logaddexp(result, of_draw)
    assert result is not None
    return float(result.mean() - np.log(len(rates.mean)))


def totals(X: Array) -> Array:
    """Return the rates of independent rows and columns, half a molecule added to each."""
    rows, columns = X.sum(1, keepdims=True) + 0.5, X.sum(0, keepdims=True) + 0.5
    return np.asarray(rows * columns / (X.sum() + 0.5))


# -- data


def pbmc3k(seed: int) -> Counts:
    bunch = bo.datasets.load_pbmc3k()
    rows = np.random.default_rng(seed).permutation(bunch.data.shape[0])[:N_CELLS]
    X = bunch.data[np.sort(rows)].toarray().astype(np.float64)
    X = X[:, (X > 0).mean(0) >= 0.05]
    varying = np.argsort(X.var(0) / X.mean(0))[-N_GENES:]
    return Counts(X[:, np.sort(varying)])


def newsgroups(seed: int) -> Counts:
    bunch = bo.datasets.load_newsgroups("large")
    X = bunch.data.toarray().astype(np.float64)
    X = X[:, np.sort(np.argsort(X.sum(0))[-N_WORDS:])]
    X = X[X.sum(1) >= FEWEST]
    X = X[np.sort(np.random.default_rng(seed).permutation(len(X))[:N_MESSAGES])]
    return Counts(X[:, X.sum(0) >= FEWEST])


def bridges(seed: int) -> Counts:  # noqa: ARG001 - one data set for all seeds
    return Counts(np.asarray(bo.datasets.load_bridges().data, dtype=np.float64))


def drawn_cells(seed: int) -> Counts:
    _, rate, counts = cells_of_types(np.random.default_rng([seed, 7]))
    rate, counts = rate[:N_DRAWN], counts[:N_DRAWN]
    kept = counts.sum(0) >= FEWEST
    return Counts(counts[:, kept].astype(np.float64), rate[:, kept])


DATA: dict[str, Callable[[int], Counts]] = {
    "pbmc3k": pbmc3k,
    "newsgroups": newsgroups,
    "bridges": bridges,
    "drawn cells": drawn_cells,
}


# -- ours


def ours(
    model: Callable[..., Any],
    likelihood: str,
    held: Split,
    seed: int,
    *,
    dim: int,
    sizes: bool,
) -> Rates:
    """Fit, and draw rates: latents about those of the rows, log rates given spectra."""
    kinds = {"poisson": bo.likelihoods.Poisson, "nb": bo.likelihoods.NegativeBinomial}
    kind = kinds[likelihood](size_factors="total" if sizes else None)
    fitted = model(dim, likelihood=kind, random_state=seed, **TRAINING).fit(held.train)
    (view,) = fitted._fit.posterior
    (offset,) = fitted._offsets(fitted._validate(held.train, reset=False), None)
    rng = np.random.default_rng([seed, 27])
    means = []
    for s in range(DRAWS):
        noise = rng.standard_normal(fitted.embedding_.shape)
        x = torch.from_numpy(fitted.embedding_ + fitted.embedding_std_ * noise)
        spectrum = view.draws[s % len(view.draws)]
        mean, variance = view.psi(spectrum, spectrum.features(x), offset)
        psi = mean + variance.sqrt() * torch.from_numpy(rng.standard_normal(mean.shape))
        most = view.largest_at(psi, offset)
        means.append((psi if most is None else psi.minimum(most)).exp().numpy())
    r = fitted.dispersion_["x"] if likelihood == "nb" else None
    return Rates(np.stack(means).astype(np.float32), r)


# -- peers


def true_rates(held: Split, seed: int) -> Rates:  # noqa: ARG001
    assert held.truth is not None
    return Rates(held.truth[None], DISPERSION)


def column_means(held: Split, seed: int) -> Rates:  # noqa: ARG001
    X = held.train
    return Rates(np.broadcast_to((X.sum(0) + 0.5) / (len(X) + 0.5), X.shape)[None])


def row_times_column(held: Split, seed: int) -> Rates:  # noqa: ARG001
    return Rates(totals(held.train)[None])


def with_dispersion(held: Split, seed: int) -> Rates:  # noqa: ARG001
    """Return the same rates with the dispersion of every column that its counts are likeliest
    with.
    """
    X, mean = held.train, totals(held.train)

    def loss(log_r: float, x: Array, m: Array) -> float:
        r = np.exp(log_r)
        value = gammaln(x + r) - gammaln(r) + r * np.log(r) + x * np.log(m)
        return float(((x + r) * np.log(r + m) - value).sum())

    logs = [
        minimize_scalar(loss, bounds=(-4.0, 7.0), args=pair, method="bounded").x
        for pair in zip(X.T, mean.T, strict=True)
    ]
    return Rates(mean[None], np.exp(np.array(logs)))


def few(held: Split) -> bool:
    """Whether steps cost next to nothing."""
    return held.train.shape[1] < FEWEST


def nmf(held: Split, seed: int, *, rank: int) -> Rates:
    model = NMF(
        rank,
        init="nndsvda",
        solver="mu",
        beta_loss="kullback-leibler",
        # its own tolerance stops at once where 4 columns leave little to explain
        tol=1e-9 if few(held) else 1e-6,
        max_iter=20_000 if few(held) else 1000,
        random_state=seed,
    )
    weights = model.fit_transform(held.train)
    return Rates((weights @ model.components_)[None])


def topics(held: Split, seed: int, *, rank: int) -> Rates:
    model = LatentDirichletAllocation(
        rank, max_iter=100 if few(held) else 50, random_state=seed
    )
    weights = model.fit_transform(held.train)
    words = model.components_ / model.components_.sum(1, keepdims=True)
    return Rates((held.train.sum(1, keepdims=True) * (weights @ words))[None])


def hpf(held: Split, seed: int, *, rank: int) -> Rates:
    """Factorise what is not 0, without empty rows and columns: their rates stay 0."""
    package, pandas = importlib.import_module("hpfrec"), importlib.import_module("pandas")
    X = held.train
    rows, columns = np.flatnonzero(X.any(1)), np.flatnonzero(X.any(0))
    seen = X[np.ix_(rows, columns)]
    i, j = np.nonzero(seen)
    entries = pandas.DataFrame({"UserId": i, "ItemId": j, "Count": seen[i, j]})
    model = package.HPF(
        k=rank,
        reindex=False,
        random_seed=seed,
        ncores=1,
        verbose=False,
        maxiter=1000 if few(held) else 150,
    )
    model.fit(entries)
    mean = np.zeros(X.shape)
    mean[np.ix_(rows, columns)] = model.Theta @ model.Beta.T
    return Rates(mean[None])


Method = Callable[[Split, int], Rates]
PEERS: dict[str, Method] = {
    "column means": column_means,
    "row times column totals": row_times_column,
    "row times column totals, negative binomial": with_dispersion,
}
OURS: dict[str, Callable[..., Rates]] = {
    "NG-MVLVM, Poisson": partial(ours, partial(bo.NGMVLVM, n_mixtures=1), "poisson"),
    TRIED: partial(ours, partial(bo.NGMVLVM, n_mixtures=1), "nb"),
    "SRFLVM, Poisson": partial(ours, bo.SRFLVM, "poisson"),
}
FACTORS: dict[str, Callable[..., Rates]] = {"NMF": nmf, "LDA": topics}
if importlib.util.find_spec("hpfrec") is not None:
    FACTORS["HPF"] = hpf


def settings(data: str, method: str) -> dict[str, Method]:
    """Return what is to be chosen from, by name."""
    small = data == "bridges"
    if method in FACTORS:
        ranks = (1, 2, 3) if small else (5, 10, 20, 40) if method == "NMF" else (5, 10, 20)
        return {f"rank {rank}": partial(FACTORS[method], rank=rank) for rank in ranks}
    if method in OURS:
        asked = (
            ((2, False), (2, True), (3, True)) if small else ((2, True), (5, True), (10, True))
        )
        return {
            f"D = {dim}{', sizes' if sizes else ''}": partial(
                OURS[method], dim=dim, sizes=sizes
            )
            for dim, sizes in asked
        }
    return {"": true_rates if method == "true rates" else PEERS[method]}


def methods(data: str) -> list[str]:
    """Name the methods."""
    true = ["true rates"] if data.startswith("drawn") else []
    return [*PEERS, *FACTORS, *OURS, *true]


# -- measuring


def quiet(method: Method, held: Split, seed: int) -> tuple[Rates, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return timed(lambda: method(held, seed))


def try_setting(data: str, method: Method, seed: int) -> dict[str, Value]:
    """Score one setting on what was taken from the training counts."""
    held = split(data, seed, inner=True)
    rates, seconds = quiet(method, held, seed)
    of_shares = {f"share_{share}": score(rates, share, held) for share in SHARES}
    return {**of_shares, "seconds": seconds}


def _tried(data: str, method: str) -> bool:
    """Whether settings of one of ours are tried on these data, not taken from another."""
    return method == TRIED or data == "bridges"


def chosen(data: str, method: str, rows: list[dict[str, str]]) -> tuple[str, float]:
    """Return the setting and the share of totals that did best on average; the first ones where
    nothing was tried.
    """
    if method in OURS and not _tried(data, method):
        method = TRIED
    scores = {
        (setting, share): statistics.fmean(values)
        for setting in settings(data, method)
        for share in SHARES
        if (
            values := [
                float(row[f"share_{share}"])
                for row in rows
                if (row["data"], row["method"]) == (data, named(method, setting))
            ]
        )
    }
    if not scores:
        return next(iter(settings(data, method))), SHARES[0]
    return max(scores, key=lambda key: scores[key])


def named(method: str, setting: str) -> str:
    return f"{method}, {setting}" if setting else method


def measure(
    data: str, name: str, setting: str, share: float, seed: int
) -> Mapping[str, Value]:
    """Fit to the training counts and score the others."""
    held = split(data, seed)
    rates, seconds = quiet(settings(data, name)[setting], held, seed)
    density = score(rates, share, held)
    base = score(row_times_column(held, seed), SHARES[0], held)
    row: dict[str, Value] = {
        "setting": setting or "-",
        "share": share,
        "log_density": density,
        "gain": density - base,
        "seconds": seconds,
    }
    if len(rates.mean) > 1:
        at_mean = Rates(rates.mean.mean(0, keepdims=True, dtype=np.float64), rates.dispersion)
        row["point"] = score(at_mean, share, held)
    return row


def choice_jobs(seeds: range, names: Iterable[str]) -> Iterator[Job]:
    """Yield all settings, where there is a choice."""
    for seed in seeds:
        for data in names:
            for name in methods(data):
                if name == "true rates" or (name in OURS and not _tried(data, name)):
                    continue
                for setting, method in settings(data, name).items():
                    run = partial(try_setting, data, method, seed)
                    yield Job(data, named(name, setting), seed, run)


def jobs(seeds: range, names: Iterable[str], rows: list[dict[str, str]]) -> Iterator[Job]:
    """Yield all methods, seed by seed."""
    for seed in seeds:
        for data in names:
            for name in methods(data):
                setting, share = chosen(data, name, rows)
                if name == "true rates":
                    share = 0.0
                yield Job(data, name, seed, partial(measure, data, name, setting, share, seed))


def main() -> None:
    parts = argparse.ArgumentParser(add_help=False)
    parts.add_argument("--choice", action="store_true")
    asked, sys.argv[1:] = parts.parse_known_args()
    options = arguments(__doc__)
    names = ("bridges",) if options.quick else tuple(DATA)
    choice = Store("thinning_choice", tuple(CHOICE), options.quick)
    if asked.choice:
        first = FIRST_CHOICE + options.seeds.start
        choice.collect(choice_jobs(range(first, first + len(options.seeds)), names))
        print(table(choice.rows(), CHOICE))
        return
    store = Store("thinning", ("setting", "share", *COLUMNS), options.quick)
    store.collect(jobs(options.seeds, names, choice.rows()))
    print(table(store.rows(), COLUMNS, ("data", "method", "setting", "share")))
    if "HPF" not in FACTORS:
        print("HPF: hpfrec is not installed here")


if __name__ == "__main__":
    main()
