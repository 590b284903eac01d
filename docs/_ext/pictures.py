"""Pictures of the guide that the build draws itself, from the package and from stored figures, so
that they cannot fall behind.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import bochner as bo

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def _digits(n_rows: int = 300, **settings: Any) -> tuple[Any, bo.NGMVLVM]:
    digits = bo.datasets.load_digits_halves()
    common = {"views": digits.views, "init": "pca", "max_iter": 80, "random_state": 0}
    return digits, bo.NGMVLVM(2, **(common | settings)).fit(digits.data[:n_rows])


def uncertainty() -> Any:
    """Intervals against what they hold, on rows that were not in training."""
    digits, model = _digits()
    report = bo.calibration(model, digits.data[1500:1600], n_draws=50, random_state=0)
    return bo.plots.calibration(report)[0].figure


def sampling() -> Any:
    """Places of some rows by a bound and by chains."""
    curve = bo.datasets.make_s_curve(60, 10, kernels=("rbf",), random_state=0)
    settings = {"n_frequencies": 16, "random_state": 0}
    bound = bo.SRFLVM(2, max_iter=60, n_init=1, **settings).fit(curve.data)
    chains = bo.RFLVM(2, n_chains=2, n_warmup=40, n_draws=40, max_iter=60, **settings)
    fitted = {"SRFLVM, a bound": bound, "RFLVM, two short chains": chains.fit(curve.data)}
    fig, axs = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for ax, (title, model) in zip(axs, fitted.items(), strict=True):
        bo.plots.latent_map(model, curve.target, ax=ax, n_ellipses=60, title=title)
    return fig


def saving() -> Any:
    """What a file remembers of its training."""
    _, model = _digits(200, max_iter=150)
    ax = bo.plots.bound_trace(model, title="elbo_history_")
    return ax.figure


def command_line() -> Any:
    """What ``bochner fit`` writes beside the model."""
    digits, model = _digits()
    fig, axs = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    bo.plots.latent_map(model, digits.target[:300], ax=axs[0], title="latent.png")
    bo.plots.bound_trace(model, ax=axs[1], title="bound.png")
    return fig


def faq() -> Any:
    """Six dimensions for data of two: what each carries."""
    curve = bo.datasets.make_s_curve(200, 20, kernels=("rbf",), random_state=0)
    model = bo.AdvisedRFLVM(6, n_frequencies=16, init="pca", max_iter=200, random_state=0)
    ax = bo.plots.relevance(model.fit(curve.data), title="What six dimensions carry")
    return ax.figure


def cost() -> Any:
    """Time of a training step against rows, as stored."""
    fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
    rows = _stored("step")
    for width in ("50", "784"):
        own = [(int(row["rows"]), float(row["ms"])) for row in rows if row["columns"] == width]
        ax.loglog(*zip(*sorted(own), strict=True), marker="o", label=f"{width} columns")
    ax.set(xlabel="rows", ylabel="ms", title="One training step, Gaussian view, two threads")
    ax.legend()
    return fig


def scale() -> Any:
    """Rates of fits and of placing, as stored."""
    rows = _stored("scale")[::-1]
    fig, ax = plt.subplots(figsize=(7, 0.5 + 0.3 * len(rows)), layout="constrained")
    ax.barh(
        [f"{row['data']} rows, {row['method']}" for row in rows],
        [float(row["rows_per_s"]) for row in rows],
    )
    ax.set(xlabel="rows per processor second", title="One thread")
    return fig


def _stored(name: str) -> list[dict[str, str]]:
    """Return the rows of a benchmark."""
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


PICTURES: dict[str, Callable[[], Any]] = {
    own.__name__: own
    for own in (command_line, cost, faq, sampling, saving, scale, uncertainty)
}


def write(folder: Path) -> None:
    """Draw every picture that is not there yet."""
    folder.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        path = folder / f"{name}.png"
        if not path.exists():
            fig = draw()
            fig.savefig(path, dpi=110)
            plt.close(fig)
