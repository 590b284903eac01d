"""Rows that no gradient brings to where they belong are put there.

A row that a start laid on the wrong side of the map stays: between the two sides its bound is lower
than on either. Under the posterior of the weights a row's expected log density is known at the
places of all rows, from one product. Rows that another row's place explains better move there; the
steps that follow do the rest.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import cast

import torch
from torch import Tensor

from bochner.data.sparse import SparseMatrix
from bochner.errors import NumericalError
from bochner.features.fourier import evaluate
from bochner.fitting import plan as plans
from bochner.fitting.plan import LATENT_DRAWS, Plan
from bochner.linalg import cholesky, plus_diagonal
from bochner.memory import chunks
from bochner.models.lvm import LatentVariableModel, View
from bochner.objectives.elbo import Draws
from bochner.regression.noise import Statistics, products_in, statistics, total
from bochner.regression.observations import CompleteBlock, Data, complete_blocks
from bochner.training.trainer import State, Trainer

# Steps of the decay after which rows move: when all features come in, and while they settle.
# Newsgroups gain 1,400 nats by two moves and 1,900 by four.
STEPS = (1, 41, 81, 121)
# Nats by which another place has to be better: 5 move half as many rows, and gain less (seeds 100
# and 101 of MNIST and oil).
_LEAST = 2.0
# Nats of the bound that a moved row may cost, which the steps that follow bring back: where moves
# are right they raise it by a nat a row, or leave it.
_LOST = 1.0
# Moves of all rows, of halves of them where the bound fell, and so on, before no more are tried.
_TRIES = 8
# Of the bound before and after, which share them.
_BOUND_DRAWS = 2
_PLACE = ("latents.mean", "latents.log_std")
# Rows whose scores at each other's places are held at once.
MOST_ROWS = 6000
# Rows of a sparse view that are written out together.
_TOGETHER = 1000


def movable(model: LatentVariableModel, data: Data, plan: Plan) -> bool:
    """Return whether rows of a model can be scored at each other's places: complete Gaussian views
    in memory, of one noise variance each, without covariates.
    """
    n_rows = model.latents.mean.shape[0]
    plain = all(view.likelihood.one_variance for view in model.views) and not model.has_sites
    alone = plan.processes.size == 1 and not model.latents.covariates.shape[1]
    complete = all(
        isinstance(block, CompleteBlock) and isinstance(block.Y, Tensor | SparseMatrix)
        for blocks in data
        for block in blocks
    )
    return n_rows <= MOST_ROWS and plain and alone and complete and not plan.spec.has_sweeps


@torch.no_grad()
def scores(model: LatentVariableModel, data: Data, draws: Sequence[Draws]) -> Tensor:
    """Return E log p(y_n | x, A) + log p(x) of every row n at the mean of every row c, up to a
    constant of the row.

    Parameters
    ----------
    model : LatentVariableModel
        Movable.
    data : tuple over views of tuples of CompleteBlock
    draws : sequence of Draws
        Statistics of the weights are means over their latents; spectra are those of the first.

    Returns
    -------
    Tensor of shape (N, N)
        In nats, each view's share times its weight.
    """
    mean = model.latents.mean
    samples = [model.latents.sample(one.latents) for one in draws]
    out = (-0.5 * mean.square().sum(1)).repeat(mean.shape[0], 1)
    for view, noise, blocks in zip(model.views, draws[0].spectra, data, strict=True):
        for block in complete_blocks(blocks):
            block.rows.add_to(out, view.weight * _of_block(view, noise, block, mean, samples))
    return out


def _of_block(
    view: View,
    noise: Tensor,
    block: CompleteBlock,
    mean: Tensor,
    samples: Sequence[Tensor],
) -> Tensor:
    """Return E log p(y_n | x_c, A) of a block's rows at all means, up to a constant, (n, N).

    With q(A_m) = N(B^-1 C_m, sigma^2 B^-1) this is y_n^T F_c / sigma^2 - |F_c|^2 / (2 sigma^2) -
    M phi_c^T B^-1 phi_c / 2, F = (B^-1 C)^T Phi.
    """
    f = view.frequencies(noise).to(mean.dtype)
    s2 = float(view.noise_variance)
    each = [
        _statistics(evaluate(block.rows.take(view.see(x)), f).features, block) for x in samples
    ]
    gram = torch.stack([one.gram for one in each]).mean(0)
    cross = torch.stack([one.cross for one in each]).mean(0)
    factor = cholesky(plus_diagonal(gram, s2))
    # differences of a nat are lost in single precision where the noise is small
    dtype = products_in(mean.dtype, 1.0, view.noise_variance)
    features = evaluate(view.see(mean), f).features.to(dtype)
    predicted = factor.solve(cross).to(dtype).T @ features
    spread = (features * (factor.inverse().to(dtype) @ features)).sum(0)
    common = predicted.square().sum(0) / (2.0 * s2) + 0.5 * block.n_columns * spread
    products = torch.cat([_dense(block, part).to(dtype) @ predicted for part in _parts(block)])
    return products.div_(s2).sub_(common).to(mean.dtype)


def _parts(block: CompleteBlock) -> Iterator[slice]:
    """Yield rows that are dense together: the same ones of dense and of sparse data, whose sums
    then agree.
    """
    return chunks(block.Y.shape[0], _TOGETHER)


def _dense(block: CompleteBlock, part: slice) -> Tensor:
    return cast(Tensor | SparseMatrix, block.Y)[part]


def _statistics(features: Tensor, block: CompleteBlock) -> Statistics:
    return total(
        statistics(features[:, part], _dense(block, part), 0.0, block.n_columns, torch.float64)
        for part in _parts(block)
    )


class RowMoves:
    """Moves rows at given steps of the decay; to be called after every step.

    Parameters
    ----------
    trainer : Trainer
    data : tuple over views of tuples of Block
    plan : Plan
    """

    def __init__(self, trainer: Trainer[LatentVariableModel], data: Data, plan: Plan) -> None:
        self.trainer = trainer
        self.data = data
        self.plan = plan.early

    def __call__(self, state: State) -> None:
        """Move rows if it is time; without a factor they stay where they are."""
        if state.decay_from is not None and state.step - state.decay_from in STEPS:
            with suppress(NumericalError):
                self.move(state.step)

    def move(self, step: int) -> Tensor:
        """Put rows where they score better by some nats, with the spread and without the momentum
        of the row that is there; return their numbers.
        """
        model = self.trainer.module
        draws = [self.plan.draws(model, f"move/{step}", i) for i in range(LATENT_DRAWS)]
        values = scores(model, self.data, draws)
        best, places = values.max(1)
        gains = best - values.diagonal()
        rows = (gains > _LEAST).nonzero()[:, 0]
        order = gains[rows].argsort(descending=True, stable=True)
        return self._moved(rows[order], places, step)

    def _moved(self, rows: Tensor, places: Tensor, step: int) -> Tensor:
        """Put rows at the places of others, both halves of them each alone where the bound falls;
        return those that moved.

        Gains are those of each row alone, under weights that know where it was. Where a function
        is steep, as that of one row far from all others is, a row at a new place changes it for
        all. Such rows are few and have the largest gains, so that halves by gain part them from
        those which may move.
        """
        if not len(rows):
            return rows
        before = self._bound(step)
        waiting = deque([rows])
        moved = [rows[:0]]
        for _ in range(_TRIES):
            if not waiting:
                break
            some = waiting.popleft()
            there = [self._parameter(name)[some].clone() for name in _PLACE]
            for name in _PLACE:
                self._parameter(name)[some] = self._parameter(name)[places[some]]
            bound = self._bound(step)
            if bound >= before - len(some) * _LOST:
                before = bound
                moved.append(some)
                continue
            for name, value in zip(_PLACE, there, strict=True):
                self._parameter(name)[some] = value
            if len(some) > 1:
                waiting.extend(some.tensor_split(2))
        out = torch.cat(moved).sort().values
        for name in _PLACE:
            self.trainer.optimiser.stop(name, out)
        return out

    def _parameter(self, name: str) -> Tensor:
        return self.trainer.module.get_parameter(name).data

    def _bound(self, step: int) -> float:
        """Return the bound at draws of a step; -inf where a matrix has no factor."""
        try:
            purpose = f"moved/{step}"
            value, _ = plans.evaluate(
                self.trainer.module, self.data, self.plan, purpose, n_draws=_BOUND_DRAWS
            )
        except NumericalError:
            return -math.inf
        return value
