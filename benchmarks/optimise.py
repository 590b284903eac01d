"""Which way of training reaches which bound in what time: ``python benchmarks/optimise.py``.

Every variant trains the default kernel (Q = 2) from the same latents, and is scored by the bound with H = 100 on the
same fresh draws: 1,000 MNIST digits and the S-curve (RBF + Gibbs) from their t-SNE, bridges from its principal
components. A variant is a list of phases, steps at so many frequencies per component; the last one ends with a decay
of the learning rate. Seconds are processor time of the training alone. No label takes part.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from harness import Job, Store, Value, arguments, table
from numpy.typing import NDArray

import bochner as bo
from bochner._typing import Sampling
from bochner.data.views import Views
from bochner.estimators import plans
from bochner.inference.initialise import model_from, start
from bochner.inference.plan import Plan, evaluate
from bochner.inference.rotation import rotate
from bochner.inference.train import Options, Trainer
from bochner.models.lvm import LatentVariableModel
from bochner.objectives.elbo import Data, draw, elbo

H = 100
SCORES = {"elbo": ".0f", "elbo_se": ".0f", "seconds": ".1f", "knn1": ".3f", "r2": ".3f"}


@dataclass(frozen=True)
class Variant:
    """Phases of (H, steps), and how noise is drawn: ``frozen`` keeps a draw for so many steps."""

    phases: tuple[tuple[int, int], ...]
    learning_rate: float = 0.03
    sampling: Sampling = "sobol"
    frozen: int = 1
    n_draws_late: int = 1


VARIANTS = {
    "H=100, 600 steps": Variant(((100, 600),)),
    "H=50, 600 steps": Variant(((50, 600),)),
    "H=25, 600 steps": Variant(((25, 600),)),
    "H=25, 400, then H=100, 200": Variant(((25, 400), (100, 200))),
    "H=25, 200, then H=100, 100": Variant(((25, 200), (100, 100))),
    "the same, rate 0.015": Variant(((25, 200), (100, 100)), learning_rate=0.015),
    "the same, rate 0.06": Variant(((25, 200), (100, 100)), learning_rate=0.06),
    "the same, iid frequencies": Variant(((25, 200), (100, 100)), sampling="iid"),
    "the same, noise kept for 10 steps": Variant(((25, 200), (100, 100)), frozen=10),
    "the same, 3 draws late": Variant(((25, 200), (100, 100)), n_draws_late=3),
}


@functools.cache
def problem(name: str, seed: int) -> tuple[Data, Plan, NDArray[np.float64], NDArray[np.float64]]:
    """Return rotated data, a plan, the start and what the latents are scored with."""
    views = None
    if name == "MNIST":
        bunch = bo.datasets.load_mnist(scale=False)
        rows = np.random.default_rng(seed).choice(70000, 1000, replace=False)
        X, truth = bunch.data[rows] / 255.0, bunch.target[rows]
    elif name == "bridges":
        bunch = bo.datasets.load_bridges()
        X, truth = bunch.data.astype(np.float64), bunch.target
    else:
        bunch = bo.datasets.make_s_curve(500, 100, ("rbf", "gibbs"), 0.5, seed)
        X, truth, views = bunch.data, bunch.latent, bunch.views
    estimator = bo.NGMVLVM(random_state=seed, views=views, n_frequencies=H)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant columns
        data = Views.fit(X, views)
    plan = plans.make(estimator, data, seed, {view: estimator._kernel_for(view) for view in data.names})
    scaled = {view: data.scaled(view) for view in data.names}
    rotated, _ = rotate(plans.blocks(data, scaled, plan), plan.truncation, seed)
    filled = plans.filled(scaled, slice(None))
    return rotated, plan, start("pca" if name == "bridges" else "tsne", filled, 2, seed), truth


def train(model: LatentVariableModel, data: Data, plan: Plan, variant: Variant) -> None:
    """Go through the phases; all but the last one keep the learning rate."""
    n_entries = sum(block.n_entries for blocks in data for block in blocks)
    for number, (n_frequencies, steps) in enumerate(variant.phases):
        last = number + 1 == len(variant.phases)

        def objective(
            step: int, n_frequencies: int = n_frequencies, phase: str = f"phase {number}", last: bool = last
        ) -> torch.Tensor:
            count = variant.n_draws_late if last else 1
            noise = [count * (step // variant.frozen) + i for i in range(count)]
            draws = [draw(model, n_frequencies, variant.sampling, plan.seed, phase, i) for i in noise]
            return torch.stack([elbo(model, data, own).total for own in draws]).mean()

        options = Options(steps, variant.learning_rate, tol=-math.inf, decay=0.5 if last else 0.0)
        Trainer(model, objective, n_entries, options).run(until=steps)


def measure(name: str, method: str, seed: int) -> dict[str, Value]:
    """Train one variant and score it."""
    data, plan, latents, truth = problem(name, seed)
    model = model_from(latents, plan.names, plan.kernels, 2, seed, plan.dtype, plan.device)
    begin = time.process_time()
    train(model, data, plan, VARIANTS[method])
    seconds = time.process_time() - begin
    bound, error = evaluate(model, data, replace(plan, n_frequencies=H), "score")
    Z = model.latents.mean.detach().double().numpy()
    own: dict[str, Value] = {"elbo": bound, "elbo_se": error, "seconds": seconds}
    if truth.ndim == 2:
        return {**own, "r2": bo.metrics.mean_aligned_r2(truth, Z)}
    return {**own, "knn1": bo.metrics.knn_accuracy(Z, truth, 1)}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield every variant on all data."""
    for name in ("bridges",) if quick else ("MNIST", "S-curve", "bridges"):
        for method in list(VARIANTS)[-2:] if quick else VARIANTS:
            yield from (Job(name, method, seed, partial(measure, name, method, seed)) for seed in seeds)


def main() -> None:
    options = arguments(__doc__, seeds=1)
    store = Store("optimise", tuple(SCORES), options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
