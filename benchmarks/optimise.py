"""Which way of training reaches which bound in what time: ``python benchmarks/optimise.py``.

Every variant trains the default kernel (Q = 2) for 300 steps from the same latents, and is scored
by the bound with H = 100 on the same fresh draws: 1,000 MNIST digits and the S-curve (RBF + Gibbs)
from their t-SNE, bridges from its principal components. Steps take ``early`` frequencies a
component until the learning rate decays, ``late`` ones then. Seconds are processor time of the
training alone. No label takes part. BOCHNER_DATA names the folder with the files.
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
from bochner.estimators import tensors
from bochner.estimators.settings import plans
from bochner.fitting.data import TrainingData
from bochner.fitting.plan import Plan, evaluate, model_from
from bochner.initialization.embeddings import start
from bochner.models.lvm import Covariates, LatentVariableModel
from bochner.objectives.elbo import draw, elbo
from bochner.regression.observations import Data
from bochner.training.trainer import Options, Trainer

H, STEPS = 100, 300
SCORES = {
    "elbo": ".0f",
    "elbo_se": ".0f",
    "seconds": ".1f",
    "knn1": ".3f",
    "knn10": ".3f",
    "r2": ".3f",
}


@dataclass(frozen=True)
class Variant:
    """Frequencies before the decay and in it, and how noise is drawn.

    Attributes
    ----------
    early, late : int
    decay : float
        Length of the decay as a share of the steps before it.
    full_from : float
        Share of the decay that still has ``early`` frequencies.
    learning_rate : float
    means : float
        Factor of the learning rate of the latents' means.
    sampling : {"iid", "orthogonal", "sobol"}
    frozen : int
        Steps that one draw of the noise is kept for.
    n_draws_late : int
        Draws a step of the decay averages.
    """

    early: int
    late: int
    decay: float = 1.0
    full_from: float = 0.0
    learning_rate: float = 0.2
    means: float = 0.25
    sampling: Sampling = "sobol"
    frozen: int = 1
    n_draws_late: int = 1


FEW = Variant(25, 100)
VARIANTS = {
    "H=100": Variant(100, 100),
    "H=50": Variant(50, 50),
    "H=25": Variant(25, 25),
    "H=25, then 100": FEW,
    "H=50, then 100 (default)": replace(FEW, early=50),
    "H=12, then 100": replace(FEW, early=12),
    "decay 0.5": replace(FEW, decay=0.5),
    "decay 2": replace(FEW, decay=2.0),
    "decay 3": replace(FEW, decay=3.0),
    "decay 1, all features in its second half": replace(FEW, full_from=0.5),
    "rate 0.03 of all": replace(FEW, learning_rate=0.03, means=1.0),
    "rate 0.1 of all": replace(FEW, learning_rate=0.1, means=1.0),
    "rate 0.2 of all": replace(FEW, means=1.0),
    "rate 0.2, means a half": replace(FEW, means=0.5),
    "rate 0.2, means an eighth": replace(FEW, means=0.125),
    "rate 0.1, means a quarter": replace(FEW, learning_rate=0.1),
    "rate 0.4, means an eighth": replace(FEW, learning_rate=0.4, means=0.125),
    "iid": replace(FEW, sampling="iid"),
    "noise kept for 10 steps": replace(FEW, frozen=10),
    "3 draws late": replace(FEW, n_draws_late=3),
}


@functools.cache
def problem(
    name: str, seed: int
) -> tuple[Data, Plan, NDArray[np.float64], NDArray[np.float64]]:
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
    plan = plans.make(
        estimator, data, seed, {view: estimator._kernel_for(view) for view in data.names}
    )
    training = TrainingData(tensors.fit_data(data, plan, {}, Covariates.none(len(X))), plan)
    latents = start("pca" if name == "bridges" else "tsne", training.filled, 2, seed)
    return training.blocks, plan, latents, truth


def train(
    model: LatentVariableModel, data: Data, plan: Plan, variant: Variant, n_steps: int
) -> None:
    """Train as a variant says."""
    n_entries = sum(block.n_entries for blocks in data for block in blocks)
    begin = math.ceil(n_steps / (1.0 + variant.decay))
    full = begin + variant.full_from * (n_steps - begin)

    def objective(step: int) -> torch.Tensor:
        n_frequencies = variant.late if step >= full else variant.early
        count = variant.n_draws_late if step >= begin else 1
        noise = [count * (step // variant.frozen) + i for i in range(count)]
        draws = [
            draw(model, n_frequencies, variant.sampling, plan.seed, "train", i) for i in noise
        ]
        return torch.stack([elbo(model, data, drawn).total for drawn in draws]).mean()

    factors = {"latents.mean": variant.means}
    options = Options(
        n_steps, variant.learning_rate, -math.inf, decay=variant.decay, factors=factors
    )
    Trainer(model, objective, n_entries, options).run()


def score(
    model: LatentVariableModel, data: Data, plan: Plan, truth: NDArray[np.float64]
) -> dict[str, Value]:
    """Return the bound with H = 100, and R² of true latents or the accuracy of neighbours."""
    wide = replace(plan, spec=replace(plan.spec, n_frequencies=H))
    bound, error = evaluate(model, data, wide, "score")
    Z, bounds = model.latents.mean.detach().double().numpy(), {"elbo": bound, "elbo_se": error}
    if truth.ndim == 2:
        return {**bounds, "r2": bo.metrics.mean_aligned_r2(truth, Z)}
    return {**bounds, **{f"knn{k}": bo.metrics.knn_accuracy(Z, truth, k) for k in (1, 10)}}


def measure(name: str, method: str, seed: int, n_steps: int) -> dict[str, Value]:
    """Train one variant and score it."""
    data, plan, latents, truth = problem(name, seed)
    model = model_from(
        latents, plan.spec, data, seed, plan.dtype, plan.device, Covariates.none(len(latents))
    )
    begin = time.process_time()
    train(model, data, plan, VARIANTS[method], n_steps)
    seconds = time.process_time() - begin
    return {**score(model, data, plan, truth), "seconds": seconds}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield every variant on all data, seed by seed."""
    for seed in seeds:
        for name in ("bridges",) if quick else ("MNIST", "S-curve", "bridges"):
            for method in list(VARIANTS)[-2:] if quick else VARIANTS:
                yield Job(
                    name,
                    method,
                    seed,
                    partial(measure, name, method, seed, 60 if quick else STEPS),
                )


def main() -> None:
    options = arguments(__doc__, seeds=3)
    store = Store("optimise", tuple(SCORES), options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
