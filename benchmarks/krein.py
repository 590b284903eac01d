"""How well do features approximate indefinite kernels, and what are they worth: ``python
benchmarks/krein.py``.

EEG (without its four spiked rows), spambase and skin, half of the rows for training, columns scaled
to [0, 1] by these (what test rows have beyond is cut off); the polynomial, Hellinger, TL1 and tanh
kernels with the parameters of Liu et al. (2020); M = 2d, 8d, 16d and 32d output columns. Every row
holds the relative error of the kernel over pairs of 1,000 test rows, the accuracy of a linear SVM
on the features, its C and the cost of the fit. Settings are chosen by cross-validation within the
training rows, anew for every seed. MNIST is table V of the paper: M = 2d, 50,000 images for
training and the 10,000 of its test set, grey levels divided by 255; seeds draw features alone.
`KreinFeatures` keeps the closer of two maps by default: on the TL1 kernel often the spectral one,
and there frequencies found by optimisation, as the paper has them, get rows of their own.
``--part taylor`` shows the published inference, ``--part negative`` what the negative part is
worth, ``--part cost`` what it costs to fit and to transform, ``--part large`` five million rows, or
as many as ``--rows``, in bounded memory, ``--part picture`` draws true against approximated values.
BOCHNER_DATA names the folder with the files.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Job, Protocol, Store, Value, aligned, arguments, commits, table, timed
from linear_svm import accuracy, some_rows, validated
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import check_random_state

import bochner as bo
from bochner.errors import DataWarning
from bochner.features.spherical import directions
from bochner.kernels.indefinite import NAMED
from bochner.krein.positive_spectrum import positive_spectrum

Array = NDArray[np.float64]
KERNELS = ("polynomial", "hellinger", "tl1", "tanh")
WIDTHS = (2, 8, 16, 32)
# The paper's M = 2d frequencies make 4d columns, cosines and sines, of each part (its equation 3).
DOUBLED = (("skin", "tl1", 4),)
COLUMNS = {"error": ".4f", "centred": ".4f", "accuracy": ".4f", "fit_seconds": ".1f"}
MAPS = (
    "KreinFeatures",
    "KreinFeatures gradient",
    "KreinFeatures spectral",
    "RandomMaclaurin",
    "RandomMaclaurin H0/1",
    "SphericalFeatures",
)
PEERS = ("Nystroem", "PolynomialCountSketch")
CLASSIFIED = (
    "KreinFeatures",
    "KreinFeatures gradient",
    "RandomMaclaurin",
    "SphericalFeatures",
    "Nystroem",
)
TAYLOR = {"error": ".4f", "typical_w": ".3f"}
NEGATIVE = {"error": ".4f", "centred": ".4f", "ratio": ".4f"}
LEARNERS = ("linear SVM alone", "RBF features, tuned")
# Table V of the paper has these kernels, at 2d columns, on 50,000 images.
OF_DIGITS = ("polynomial", "tl1")
# Lengthscales that are tried, times the typical distance of two rows, and rows that choose
FACTORS = (0.03, 0.1, 0.2, 0.5, 1.0, 2.0)
TUNING_ROWS = 2500


@functools.cache
def data_of(name: str) -> tuple[Array, NDArray[Any]]:
    """Return rows and labels."""
    if name == "bundled":
        from sklearn.datasets import load_breast_cancer

        X, y = load_breast_cancer(return_X_y=True)
        return X, y
    bunch = getattr(bo.datasets, f"load_{name}")()
    X, y = np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target)
    kept = np.ones(len(X), dtype=bool)
    if name == "eeg":
        kept[bunch.outlier_rows] = False
    return X[kept], y[kept]


def halves(name: str, seed: int) -> tuple[Array, NDArray[Any], Array, NDArray[Any]]:
    """Return training rows and labels, test rows and labels; columns are scaled to [0, 1] by the
    training rows.
    """
    if name == "mnist":
        return digits()
    X, y = data_of(name)
    order = np.random.default_rng(seed).permutation(len(X))
    first, second = order[: len(X) // 2], order[len(X) // 2 :]
    scaler = MinMaxScaler(clip=True).fit(X[first])
    return scaler.transform(X[first]), y[first], scaler.transform(X[second]), y[second]


@functools.cache
def digits() -> tuple[Array, NDArray[Any], Array, NDArray[Any]]:
    """Return MNIST's first 50,000 images and its test set."""
    bunch = bo.datasets.load_mnist()
    X, y = np.asarray(bunch.data, dtype=np.float32) / 255, np.asarray(bunch.target)
    return X[:50_000], y[:50_000], X[60_000:], y[60_000:]


class PositiveOnly(bo.KreinFeatures):
    """KreinFeatures that does not look at negative eigenvalues: to see what the negative part is
    worth.
    """

    def _infer(self, sketch: Any, source: torch.Generator) -> Any:
        return super()._infer(
            replace(sketch, eigenvalues=sketch.eigenvalues.clamp(min=0.0)), source
        )


class SignedNystroem(TransformerMixin, BaseEstimator):
    """scikit-learn's Nystroem, same landmarks, with the signs of the eigenvalues kept: it drops
    them.
    """

    def __init__(self, kernel: str, n_components: int, random_state: int) -> None:
        self.kernel, self.n_components, self.random_state = kernel, n_components, random_state

    def fit(self, X: Array, y: Any = None) -> SignedNystroem:  # noqa: ARG002 - scikit-learn's signature
        self.landmarks_ = X[
            check_random_state(self.random_state).permutation(len(X))[: self.n_components]
        ]
        values, vectors = np.linalg.eigh(pairs(self.kernel, self.landmarks_))
        kept = np.abs(values) > 1e-10 * np.abs(values).max()
        self.signs_ = np.sign(values[kept])
        self.normalization_ = vectors[:, kept] / np.sqrt(np.abs(values[kept]))
        return self

    def transform(self, X: Array) -> Array:
        return np.asarray(pairs(self.kernel, X, self.landmarks_) @ self.normalization_)


class RadialFeatures(TransformerMixin, BaseEstimator):
    """Spherical features of the TL1 kernel, which is no function of the distance on the sphere: of
    what it is on average at a Euclidean distance of two training rows, by the ratio of the two
    distances of pairs.
    """

    def __init__(self, n_components: int, random_state: int) -> None:
        self.n_components, self.random_state = n_components, random_state

    def fit(self, X: Array, y: Any = None) -> RadialFeatures:  # noqa: ARG002 - scikit-learn's signature
        source = torch.Generator().manual_seed(self.random_state)
        some = X[torch.randperm(len(X), generator=source)[:1000].numpy()].astype(np.float64)
        differences = some[: len(some) // 2] - some[-(len(some) // 2) :]
        lengths = np.linalg.norm(differences, axis=1)
        ratios = torch.from_numpy((np.abs(differences).sum(1) / lengths)[lengths > 0])
        dim, widest = X.shape[1], float(lengths.max())
        # the fit of Pennington et al. (2015) is of distances from 0 to 2
        grid = torch.linspace(0.0, 2.0, 81, dtype=torch.float64)
        reach = grid[:, None] * (widest / 2) * ratios
        values = (0.7 * dim - reach).clamp(min=0).mean(1)
        radii, mass = positive_spectrum(values, grid, dim)
        uniform = torch.rand(self.n_components, generator=source, dtype=torch.float64)
        level = (mass.cumsum(0) / mass.sum()).contiguous()
        radius = radii[torch.searchsorted(level, uniform).clamp(max=len(radii) - 1)]
        self.frequencies_ = (
            radius[:, None] * (2 / widest) * directions(self.n_components, dim, source)
        )
        self.phases_ = 2 * torch.pi * torch.rand(self.n_components, generator=source)
        self.amplitude_ = float((2 * mass.sum() / self.n_components).sqrt())
        return self

    def transform(self, X: Array) -> Array:
        rows = torch.from_numpy(X)
        phase = torch.addmm(self.phases_.to(rows), rows, self.frequencies_.to(rows).T)
        return np.asarray((self.amplitude_ * phase.cos()).numpy())


def pairs(kernel: str, X: Array, Y: Array | None = None) -> Array:
    """Return the exact kernel matrix; rows of norm zero have the value 0 on the sphere."""
    k = NAMED[kernel]()
    a = k.normalise(torch.from_numpy(np.ascontiguousarray(X)))
    b = a if Y is None else k.normalise(torch.from_numpy(np.ascontiguousarray(Y)))
    alive = (
        (a != 0).any(1)[:, None] & (b != 0).any(1)[None]
        if k.domain == "sphere"
        else torch.tensor(True)
    )
    return np.asarray((k(a, b) * alive).numpy())


def build(method: str, kernel: str, columns: int, seed: int) -> Any:
    """Build a feature map."""
    common: dict[str, Any] = {"n_components": columns, "random_state": seed}
    if method.startswith("KreinFeatures"):
        return bo.KreinFeatures(kernel, inference=method.partition(" ")[2] or "best", **common)
    if method.startswith("RandomMaclaurin"):
        return bo.RandomMaclaurin(kernel, exact_low_degrees=method.endswith("1"), **common)
    if method == "SphericalFeatures" and kernel == "tl1":
        return RadialFeatures(columns, seed)
    if method == "SphericalFeatures":
        return bo.SphericalFeatures(kernel, **common)
    if method == "PolynomialCountSketch":
        return PolynomialCountSketch(degree=10, coef0=1, gamma=1.0, **common)
    return SignedNystroem(kernel, columns, seed)


def applies(method: str, kernel: str) -> bool:
    """Say whether a method is meant for a kernel."""
    if method.startswith("RandomMaclaurin") or method == "PolynomialCountSketch":
        return kernel == "polynomial"
    # of the other kernels it is what the default takes, or all but as close
    return method != "KreinFeatures gradient" or kernel == "tl1"


def on_domain(method: str, X: Array) -> Array:
    """Divide rows by their norms for scikit-learn's sketch, which does not do it itself."""
    if method != "PolynomialCountSketch":
        return X
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1)


def errors(model: Any, method: str, kernel: str, X: Array) -> dict[str, Value]:
    """Return the error over pairs of rows, relative to the kernel's root mean square and to its
    standard deviation.
    """
    F = model.transform(on_domain(method, X))
    signs = np.asarray(getattr(model, "signs_", np.ones(F.shape[1])))
    truth, off = pairs(kernel, X), ~np.eye(len(X), dtype=bool)
    rmse = np.sqrt(np.mean(((F * signs) @ F.T - truth)[off] ** 2))
    return {
        "error": rmse / np.sqrt(np.mean(truth[off] ** 2)),
        "centred": rmse / truth[off].std(),
    }


def measure(
    name: str, kernel: str, width: int, method: str, seed: int, classify: bool
) -> dict[str, Value]:
    """Measure one map."""
    X, y, X_test, y_test = halves(name, seed)
    model = build(method, kernel, width * X.shape[1], seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model, seconds = timed(lambda: model.fit(on_domain(method, X)))
        result: dict[str, Value] = {
            **errors(model, method, kernel, X_test[:1000].astype(np.float64)),
            "fit_seconds": seconds,
        }
        if classify:
            maps = (model.transform(on_domain(method, rows)) for rows in (X, X_test))
            train, test = next(maps), next(maps)
            result |= accuracy((train, y), (test, y_test), seed)
    if hasattr(model, "eigenvalue_ratio_"):
        result |= {"ratio": model.eigenvalue_ratio_, "negative": int((model.signs_ < 0).sum())}
    return result


def measure_learner(name: str, width: int, method: str, seed: int) -> dict[str, Value]:
    """Measure a linear SVM on the columns, or on RBF features whose width is tuned by
    cross-validation.
    """
    X, y, X_test, y_test = halves(name, seed)
    if method == "linear SVM alone":
        return accuracy((X, y), (X_test, y_test), seed)
    best = _best_lengthscale(name, width, seed)
    model = bo.FourierFeatures(
        bo.kernels.RBF(best), width * X.shape[1], sampling="orthogonal", random_state=seed
    )
    train, test = model.fit_transform(X), model.transform(X_test)
    return {
        **accuracy((train, y), (test, y_test), seed),
        "lengthscale": best,
    }


def _best_lengthscale(name: str, width: int, seed: int) -> float:
    """Choose the RBF's lengthscale by cross-validation within the training rows."""
    X, y, *_ = halves(name, seed)
    some = some_rows(len(X), seed, TUNING_ROWS)
    typical = float(np.median(np.linalg.norm(np.diff(X[some], axis=0), axis=1)))
    scores = {}
    for factor in FACTORS:
        model = bo.FourierFeatures(
            bo.kernels.RBF(factor * typical),
            width * X.shape[1],
            sampling="orthogonal",
            random_state=seed,
        )
        F = model.fit_transform(X[some])
        scores[factor * typical] = max(validated(F, y[some], (1e-2, 1.0)).values())
    return max(scores, key=lambda scale: scores[scale])


def jobs(
    names: tuple[str, ...], widths: tuple[int, ...], seeds: range, methods: tuple[str, ...]
) -> Iterator[Job]:
    """Yield three seeds of everything, then the others from narrow to wide: an interrupted run has
    whole tables.
    """
    for seed in seeds[:3]:
        for width in widths:
            yield from _jobs(names, width, seed, methods)
    for width in widths:
        for seed in seeds[3:]:
            yield from _jobs(names, width, seed, methods)
    fitted = [method for method in MAPS[:2] if method in methods]
    for (name, kernel, width), method in itertools.product(DOUBLED, fitted):
        for seed in seeds if name in names else ():
            run = partial(measure, name, kernel, width, method, seed, True)
            yield Job(f"{name} {kernel} {width}d", method, seed, run)


def _jobs(
    names: tuple[str, ...], width: int, seed: int, methods: tuple[str, ...]
) -> Iterator[Job]:
    for name in names:
        if name == "mnist":
            yield from _digit_jobs(width, seed, methods)
            continue
        for method in LEARNERS:
            # the columns alone are the same at every width
            if "RBF" in method or width == WIDTHS[0]:
                label = f"{name} {width}d" if "RBF" in method else name
                yield Job(
                    label, method, seed, partial(measure_learner, name, width, method, seed)
                )
        for kernel, method in itertools.product(KERNELS, methods):
            if applies(method, kernel):
                classify = method in CLASSIFIED
                measured = partial(measure, name, kernel, width, method, seed, classify)
                yield Job(f"{name} {kernel} {width}d", method, seed, measured)


def _digit_jobs(width: int, seed: int, methods: tuple[str, ...]) -> Iterator[Job]:
    kernels = OF_DIGITS if width == WIDTHS[0] else ()
    for kernel, method in itertools.product(kernels, methods):
        if method in CLASSIFIED and applies(method, kernel):
            measured = partial(measure, "mnist", kernel, width, method, seed, True)
            yield Job(f"mnist {kernel} {width}d", method, seed, measured)


def taylor_on_line(inference: str, seed: int) -> dict[str, Value]:
    """Measure one inference on a one-dimensional RBF kernel."""
    x = np.random.default_rng(seed).uniform(-3, 3, (400, 1))
    kernel = bo.kernels.FunctionKernel(one_dimensional)
    model = bo.KreinFeatures(kernel, 40, inference=inference, random_state=seed).fit(x[:300])
    typical = float(model.frequencies_.abs().median())
    return {"error": model.approximation_error(x[300:]), "typical_w": typical}


def taylor_at_2d(name: str, kernel: str, size: int | str, seed: int) -> dict[str, Value]:
    """Measure the published inference at 2d columns."""
    X, _, test, _ = halves(name, seed)
    options: dict[str, Any] = {
        "inference": "taylor",
        "sketch_size": size,
        "random_state": seed,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = bo.KreinFeatures(kernel, 2 * X.shape[1], **options).fit(X)
        return {"error": model.approximation_error(test[:1000], relative=True)}


def taylor_jobs(quick: bool, seeds: range) -> Iterator[Job]:
    """Yield the published inference beside ours."""
    for seed in seeds:
        for inference in ("gradient", "taylor"):
            yield Job("RBF, d = 1", inference, seed, partial(taylor_on_line, inference, seed))
        for name in () if quick else ("eeg", "spambase"):
            for kernel, size in itertools.product(KERNELS, ("auto", 5)):
                run = partial(taylor_at_2d, name, kernel, size, seed)
                yield Job(f"{name} {kernel} 2d", f"taylor, sketch {size}", seed, run)


def negative_part(kind: type[bo.KreinFeatures], width: int, seed: int) -> dict[str, Value]:
    """Measure spambase's Hellinger kernel with a negative part or, all columns positive,
    without.
    """
    X, _, test, _ = halves("spambase", seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        # the spectral inference knows no eigenvalues
        model = kind("hellinger", width * X.shape[1], inference="gradient", random_state=seed)
        model.fit(X)
        result = errors(model, kind.__name__, "hellinger", test[:1000])
    return {**result, "ratio": model.eigenvalue_ratio_}


def negative_jobs(seeds: range) -> Iterator[Job]:
    """Yield both at 2d and 8d columns."""
    kinds = {"both parts": bo.KreinFeatures, "positive part alone": PositiveOnly}
    for seed in seeds:
        for width, (method, kind) in itertools.product((2, 8), kinds.items()):
            run = partial(negative_part, kind, width, seed)
            yield Job(f"spambase hellinger {width}d", method, seed, run)


def measure_part(name: str, form: dict[str, str], jobs: Iterator[Job], quick: bool) -> None:
    """Measure one of the smaller tables and print it."""
    store = Store(f"krein_{name}", tuple(form), quick)
    store.collect(jobs)
    print(table(store.rows(), form))


def one_dimensional(A: Array, B: Array) -> Array:
    return np.asarray(np.exp(-0.5 * (A - B.T) ** 2))


def cost() -> None:
    """Print how fit and transform grow with the rows, and the transform beside its bare products
    and waves.
    """
    source, d, columns = np.random.default_rng(0), 20, 200
    print("rows      fit s   transform s   million rows/s   bare million rows/s")
    for n in (5_000, 50_000, 500_000):
        X = source.uniform(size=(n, d)).astype(np.float32)
        model, fit_seconds = timed(
            lambda X=X: bo.KreinFeatures("tl1", columns, random_state=0).fit(X)
        )
        model.transform(X[:5000])
        seconds = min(
            timed(lambda X=X, m=model: list(m.iter_transform(X)))[1] for _ in range(3)
        )
        bare_seconds = min(
            timed(lambda X=X, m=model: bare(X, m.frequencies_))[1] for _ in range(3)
        )
        print(
            f"{n:8d}  {fit_seconds:5.1f}  {seconds:10.3f}  {n / seconds / 1e6:14.3f}  "
            f"{n / bare_seconds / 1e6:18.3f}"
        )


def bare(X: Array, frequencies: torch.Tensor) -> None:
    """Products, cosines and sines alone, in the same chunks."""
    w = frequencies.float()
    for start in range(0, len(X), 4096):
        phase = w @ torch.from_numpy(X[start : start + 4096]).T
        phase.cos()
        phase.sin()


def large(n_rows: int, d: int = 20) -> None:
    """Push many rows through iter_transform from a memory map and print the growth of the
    resident memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        mapped = np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float32, shape=(n_rows, d)
        )
        source = np.random.default_rng(0)
        for start in range(0, n_rows, 100_000):
            mapped[start : start + 100_000] = source.uniform(size=(100_000, d))
        mapped.flush()
        rows = np.load(path, mmap_mode="r")
        model = bo.KreinFeatures("tl1", 100, random_state=0).fit(np.asarray(rows[:20_000]))
        for _ in model.iter_transform(rows[:40_000], 4096):
            pass
        before, begin, total = _resident(), time.perf_counter(), 0.0
        for block in model.iter_transform(rows, 4096):
            total += float(block[0, 0])
        seconds = time.perf_counter() - begin
        print(
            f"{n_rows} rows x {d} to 100 columns: {seconds:.1f} s, {n_rows / seconds / 1e6:.3f} "
            "million rows/s"
        )
        growth = _resident() - before
        print(
            f"anonymous memory grew by {growth:.0f} MB; peak of the process {_peak():.0f} MB, "
            f"checksum {total:.3f}"
        )
        print(f"the output itself would be {n_rows * 100 * 4 / 1e6:.0f} MB")


def _resident() -> float:
    """Anonymous resident memory in MB: pages of the memory map, which the system may drop, do not
    count.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def picture(path: Path) -> None:
    """Draw approximated against true kernel values of pairs of test rows, at M = 8d."""
    from matplotlib.figure import Figure

    names = ("eeg", "spambase")
    figure = Figure(figsize=(13, 6.2), layout="constrained")
    axes = figure.subplots(2, 4)
    for i, name in enumerate(names):
        X, _, test, _ = halves(name, 0)
        for j, kernel in enumerate(KERNELS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                model = bo.KreinFeatures(kernel, 8 * X.shape[1], random_state=0).fit(X)
                F = model.transform(test[:300])
            truth, first = pairs(kernel, test[:300]), np.triu_indices(300, 1)
            guess = (F * model.signs_.numpy()) @ F.T
            _panel(axes[i, j], truth[first], guess[first], f"{name}, {kernel}")
    figure.supxlabel("true kernel value")
    figure.supylabel("features' kernel value, M = 8d columns")
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


def _panel(axis: Any, truth: Array, guess: Array, title: str) -> None:
    """One cloud of pairs with the diagonal."""
    error = float(np.sqrt(np.mean((guess - truth) ** 2) / np.mean(truth**2)))
    low, high = truth.min(), truth.max()
    axis.plot([low, high], [low, high], color="0.6", linewidth=1, zorder=1)
    axis.scatter(
        truth,
        guess,
        s=1.5,
        alpha=0.25,
        color="#1f77b4",
        linewidths=0,
        rasterized=True,
        zorder=2,
    )
    axis.set_title(f"{title}\nrelative error {error:.2g}", fontsize=10)
    axis.locator_params(nbins=5)
    axis.tick_params(labelsize=8)


def pivot(rows: list[dict[str, str]], column: str, form: str) -> str:
    """Print the mean over seeds of one column, a line per data and kernel, a column per method."""
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row[column]:
            cells.setdefault((row["data"], row["method"]), []).append(float(row[column]))
    methods = [m for m in (*LEARNERS, *MAPS, *PEERS) if any(key[1] == m for key in cells)]
    lines = [["data", "n", *methods]]
    for name in dict.fromkeys(key[0] for key in cells):
        result = [cells.get((name, m), []) for m in methods]
        seeds = max(len(values) for values in result)
        lines.append(
            [
                name,
                str(seeds),
                *(format(float(np.mean(v)), form) if v else "-" for v in result),
            ]
        )
    return f"{aligned(lines)}\n{commits(rows)}"


NAMES = ("eeg", "spambase", "skin", "mnist")
PROTOCOL = Protocol(
    "krein",
    (*COLUMNS, "C", "ratio", "negative", "lengthscale"),
    lambda seeds, quick: jobs(
        NAMES[:-1] if quick else NAMES,
        WIDTHS[:1] if quick else WIDTHS,
        seeds,
        (*MAPS, *PEERS),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--part",
        default="tables",
        choices=["tables", "taylor", "negative", "cost", "large", "picture"],
    )
    parser.add_argument("--data", nargs="*", default=list(NAMES))
    parser.add_argument("--rows", type=int, default=5_000_000, help="of --part large")
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))
    parser.add_argument("--methods", nargs="*", default=[*MAPS, *PEERS])
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "docs" / "images" / "krein.png"
    )
    chosen, sys.argv[1:] = parser.parse_known_args()
    options = arguments(__doc__, seeds=10)
    if chosen.part != "tables":
        parts = {
            "taylor": lambda: measure_part(
                "taylor", TAYLOR, taylor_jobs(options.quick, options.seeds), options.quick
            ),
            "negative": lambda: measure_part(
                "negative", NEGATIVE, negative_jobs(options.seeds), options.quick
            ),
            "cost": cost,
            "large": lambda: large(chosen.rows),
            "picture": lambda: picture(chosen.out),
        }
        parts[chosen.part]()
        return
    store = PROTOCOL.store(options.quick)
    names, widths = (
        (("bundled",), (2,)) if options.quick else (tuple(chosen.data), tuple(chosen.widths))
    )
    store.collect(jobs(names, widths, options.seeds, tuple(chosen.methods)))
    print(table(store.rows(), COLUMNS))
    for column, form in (("error", ".2g"), ("centred", ".2g"), ("accuracy", ".3f")):
        print(f"{column}, mean over n seeds\n{pivot(store.rows(), column, form)}")


if __name__ == "__main__":
    main()
