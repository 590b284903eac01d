"""Steps on batches of rows, or on all of them? ``python benchmarks/minibatch.py --threads 1``:
NG-MVLVM on 100,000 made rows of 50 columns (as in scale.py) and on the 70,000 digits of MNIST.
Landmarks are trained and the other rows placed; then come the library's 20 steps over all rows, or
batches for the processor seconds that those took, or for four times as many.

Batches (stochastic variational inference): q(A) is explicit, and its natural-gradient step is a
moving average of the statistics G and C of 4,096 rows; a draw of the base noise is kept for a pass
over the rows, after which G and C are made anew under the next; the latents of a batch take one of
Newton's steps of placement under q(A), or a tenth of it ("short steps": under the next draw of the
noise places are others), and their standard deviations are those of the curvature there; kernels
and noise take a step of Adam on the bound of the batch. ``placed`` and ``after`` are the library's
bound of all rows before and after, over the same draws, in scaled units; ``knn10``: digits told
right by 10 neighbours in the other folds, or R2 of made latents predicted by 10 neighbours (20,000
rows). ``share`` is how many passes over the rows batches came to. Rates were chosen on seed 100.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from harness import Job, Store, Value, arguments, table, timed
from large import correct, data_of
from numpy.typing import NDArray
from scale import surface
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor, nn

import bochner as bo
from bochner.features.fourier import fourier_features
from bochner.fitting import landmarks, row_selection
from bochner.fitting.plan import Plan
from bochner.latent_inference.row_bound import target_for
from bochner.likelihoods.likelihood import Gaussian
from bochner.linalg import cholesky, newton_step
from bochner.memory import chunks
from bochner.models.lvm import LatentVariableModel
from bochner.regression.observations import CompleteBlock, Data
from bochner.training.trainer import Adam
from bochner.weight_posterior.conditioning import SharedDraw
from bochner.weight_posterior.posterior import ViewPosterior

SCORES = {
    "placed": ".0f",
    "after": ".0f",
    "knn10": ".3f",
    "steps_s": ".1f",
    "share": ".2f",
    "seconds": ".0f",
}
# Of the time of the steps over all rows, and of Newton's step.
METHODS = {
    "all rows": (0.0, 0.0),
    "batches": (1.0, 1.0),
    "batches, 4 x the time": (4.0, 1.0),
    "short steps": (1.0, 0.1),
    "short steps, 4 x the time": (4.0, 0.1),
}
_ROWS, _LOOKED_AT = 100_000, 20_000
_BATCH = 4096
# Of the moving average: the first, and the power with which it falls.
_RATE, _POWER = 0.5, 0.6
# Of Adam, over the library's for its steps on all rows; how far a latent may move.
_ADAM, _RADIUS = 1.0, 0.3


class Batches:
    """Stochastic variational inference of one complete Gaussian view.

    Parameters
    ----------
    model : LatentVariableModel
        Changed in place.
    data : tuple over views of tuples of Block
    plan : Plan
    damped : float
        How much of Newton's step a latent takes.
    """

    def __init__(
        self, model: LatentVariableModel, data: Data, plan: Plan, damped: float
    ) -> None:
        ((block,),) = data
        (self.view,) = model.views
        assert isinstance(block, CompleteBlock)
        assert isinstance(block.Y, Tensor)
        assert isinstance(self.view.likelihood, Gaussian)
        self.likelihood = self.view.likelihood
        self.model = model
        self.plan = plan
        self.damped = damped
        self.block = block
        self.Y = block.Y
        self.rest = block.square - float(block.Y.double().square().sum())
        self.n_rows, self.n_leading = block.Y.shape
        self.source = torch.Generator().manual_seed(plan.seed)
        rate = _ADAM * landmarks._JOINT_RATE * plan.training.learning_rate
        self.optimiser = Adam(nn.ModuleList([self.view]), rate)
        self.n_seen = 0
        self.step = 0

    def run(self, seconds: float) -> None:
        """Take steps for so many processor seconds."""
        end = time.process_time() + seconds
        phase = 0
        while time.process_time() < end:
            self._begin(phase)
            phase += 1
            order = torch.randperm(self.n_rows, generator=self.source)
            for rows in torch.split(order, _BATCH):
                if time.process_time() >= end:
                    return
                self._take(rows)

    def _begin(self, phase: int) -> None:
        """Draw base noise, and make the statistics of all rows under it."""
        (self.noise,) = self.plan.early.spectra(self.model, "batches", phase).spectra
        with torch.no_grad():
            f = self.view.frequencies(self.noise)
            parts = [self._statistics(part, f)[:2] for part in chunks(self.n_rows, _BATCH)]
        self.gram = functools.reduce(torch.add, [gram for gram, _ in parts])
        self.cross = functools.reduce(torch.add, [cross for _, cross in parts])

    def _statistics(self, rows: Any, f: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return sums of features' products, with the data too, at a draw of rows' latents."""
        latents = self.model.latents
        mean, std = latents.mean[rows].detach(), latents.log_std[rows].detach().exp()
        x = mean + std * torch.randn(mean.shape, generator=self.source, dtype=mean.dtype)
        phi = fourier_features(x, f)
        with torch.no_grad():
            return (phi @ phi.T).double(), (phi @ self.Y[rows]).double(), phi

    def _weights(self) -> tuple[float, Tensor, Tensor]:
        """Return the noise variance, and q(A)'s means and covariance."""
        s2 = float(self.likelihood.noise_variance)
        inverse = cholesky(
            torch.eye(len(self.gram), dtype=torch.float64) + self.gram / s2
        ).inverse()
        return s2, inverse @ self.cross / s2, inverse

    @torch.no_grad()
    def _place(self, rows: Tensor) -> None:
        """Take a step of the rows' latents under q(A)."""
        s2, mean, inverse = self._weights()
        f = self.view.frequencies(self.noise).detach()
        # every column counts, leading or not
        spread = inverse[None] * (self.block.n_columns / self.n_leading)
        draw = SharedDraw(f, mean, spread)
        groups = torch.zeros(self.n_leading, dtype=torch.int64)
        noise = Gaussian(s2).requires_grad_(False)
        known = ViewPosterior.of(self.view.name, (draw,), groups, noise)
        latents = self.model.latents
        for part in torch.split(rows, 1024):
            x = latents.mean[part]
            target = target_for([known], [self.Y[part].double()], x.shape[1], True)
            of_part = target.to(torch.float32).evaluate(x, torch.arange(len(part)))
            _, gradient, hessian = of_part
            step, _ = newton_step(gradient, hessian, torch.full((len(x),), _RADIUS))
            latents.mean[part] = x + self.damped * step
            precision = -hessian.diagonal(dim1=1, dim2=2)
            latents.log_std[part] = -0.5 * precision.clamp(min=1.0, max=1e6).log()

    def _take(self, rows: Tensor) -> None:
        """Take a step."""
        self._place(rows)
        share = self.n_rows / len(rows)
        self.optimiser.zero_grad()
        f = self.view.frequencies(self.noise)
        gram, cross, phi = self._statistics(rows, f)
        rate = _RATE * (1 + self.step) ** -_POWER
        self.gram.lerp_(share * gram, rate)
        self.cross.lerp_(share * cross, rate)
        _, mean, inverse = self._weights()
        away = self.Y[rows] - phi.T @ mean.to(phi)
        spread = ((inverse.to(phi) @ phi) * phi).sum()
        n_columns = self.block.n_columns
        error = share * (away.square().sum() + n_columns * spread) + self.rest
        variance = self.likelihood.noise_variance
        n_entries = self.n_rows * n_columns
        loss = 0.5 * (error / variance / n_entries + torch.log(2.0 * math.pi * variance))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.model.project()
        self.step += 1
        self.n_seen += len(rows)


@functools.cache
def made(seed: int, n_rows: int) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return made rows and their latents, as `surface` draws them."""
    X = np.concatenate([block for _, block in surface(n_rows, 50, seed)])
    sources = [np.random.default_rng([100 + seed, start]) for start in range(0, n_rows, 5000)]
    return X, np.concatenate([rng.normal(size=(5000, 2)) for rng in sources])[:n_rows]


def measure(
    name: str, n_rows: int, seed: int, times: float, damped: float
) -> dict[str, Value]:
    """Fit, with batches in place of the steps over all rows where times is not 0."""
    X, known = made(seed, n_rows) if name == "made" else data_of(name, n_rows, seed)
    allowed = times * _seconds(name, n_rows, seed) if times else 0.0
    bounds: list[float] = []
    took: list[float] = []
    share = [0.0]
    evaluate, jointly = row_selection.evaluate, landmarks.train_jointly

    def watched(*given: Any, **more: Any) -> tuple[float, float]:
        bound = evaluate(*given, **more)
        bounds.append(bound[0])
        return bound

    def steps(model: LatentVariableModel, data: Data, plan: Plan, passes: Any) -> None:
        if not times:
            took.append(timed(lambda: jointly(model, data, plan, passes))[1])
            return
        batches = Batches(model, data, plan, damped)
        took.append(timed(lambda: batches.run(allowed))[1])
        share[0] = batches.n_seen / n_rows

    with (
        warnings.catch_warnings(),
        mock.patch.object(row_selection, "evaluate", watched),
        mock.patch.object(landmarks, "train_jointly", steps),
    ):
        warnings.simplefilter("ignore")
        model, seconds = timed(lambda: bo.NGMVLVM(random_state=seed, landmarks=2000).fit(X))
    if not times:
        _SECONDS[name, n_rows, seed] = took[0]
    return {
        "placed": bounds[0],
        "after": bounds[1],
        "knn10": neighbours(name, model.embedding_, known),
        "steps_s": took[0],
        "share": share[0],
        "seconds": seconds,
    }


_SECONDS: dict[tuple[str, int, int], float] = {}


def _seconds(name: str, n_rows: int, seed: int) -> float:
    """Return what the steps over all rows took in this run."""
    if (name, n_rows, seed) not in _SECONDS:
        measure(name, n_rows, seed, 0.0, 0.0)
    return _SECONDS[name, n_rows, seed]


def neighbours(name: str, Z: NDArray[Any], known: NDArray[Any]) -> float:
    """Return how well ten neighbours tell what is known."""
    if name != "made":
        return float(correct(Z, known, 10).mean())
    some = np.random.default_rng(0).permutation(len(Z))[:_LOOKED_AT]
    folds = KFold(5, shuffle=True, random_state=0)
    scores = cross_val_score(KNeighborsRegressor(10), Z[some], known[some], cv=folds)
    return float(np.mean(scores))


def jobs(seeds: range, sizes: dict[str, int]) -> Iterator[Job]:
    """Yield the fits."""
    for name, n_rows in sizes.items():
        for seed in seeds:
            for method, how in METHODS.items():
                work: Callable[[], dict[str, Value]] = partial(
                    measure, name, n_rows, seed, *how
                )
                yield Job(f"{name} {n_rows:,}", method, seed, work)


def main() -> None:
    options = arguments(__doc__, seeds=2)
    store = Store("minibatch", [*SCORES], options.quick)
    sizes = {"made": 7000} if options.quick else {"made": _ROWS, "MNIST": 70_000}
    store.collect(jobs(options.seeds, sizes))
    print(table(store.rows(), SCORES))


if __name__ == "__main__":
    main()
