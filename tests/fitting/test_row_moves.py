"""Rows at places that other places explain better are put there, by scores that are those of the
posterior of the weights, written out.
"""

import math

import pytest
import torch

from bochner.features.fourier import evaluate
from bochner.fitting.plan import Plan
from bochner.fitting.row_moves import STEPS, RowMoves, movable, scores
from bochner.kernels import RBF
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.lvm import (
    GaussianLatents,
    LatentVariableModel,
    Layout,
    ModelSpec,
    View,
    ViewSpec,
)
from bochner.objectives.elbo import elbo
from bochner.regression.observations import CompleteBlock, IncompleteBlock
from bochner.training.trainer import Options, State, Trainer

N, D, H, S2 = 40, 2, 24, 0.05


def _plan() -> Plan:
    views = tuple(ViewSpec(name, RBF(), Gaussian(S2), 1.0) for name in "ab")
    spec = ModelSpec(views, Layout(D, (0, 0)), 1, H, "sobol", H)
    return Plan(spec, ("pca",), math.inf, Options(), 0)


def _model(dims=None) -> LatentVariableModel:
    """A model of two views at latents that data come from."""
    source = torch.Generator().manual_seed(0)
    mean = torch.randn(N, D, generator=source)
    views = [
        View("a", RBF().initial(1, D, source), Gaussian(S2)),
        View("b", RBF().initial(1, len(dims or (0, 1)), source), Gaussian(2 * S2), dims=dims),
    ]
    views[1].weight = 0.5
    return LatentVariableModel(GaussianLatents(mean, torch.full_like(mean, -4.0)), views)


def _data(model: LatentVariableModel, absent: bool = False):
    """Smooth functions of the latents; a view may lack rows."""
    source = torch.Generator().manual_seed(1)
    x = model.latents.mean.detach()
    out = []
    for m in (6, 4):
        Y = torch.sin(
            x @ torch.randn(D, m, generator=source) + torch.rand(m, generator=source)
        )
        Y = Y + 0.05 * torch.randn(N, m, generator=source)
        present = torch.ones(N, dtype=torch.bool)
        if absent and m == 4:
            present[[3, 17, 18]] = False
        out.append((CompleteBlock.present(Y, present),))
    return tuple(out)


def _trainer(model, data) -> Trainer[LatentVariableModel]:
    plan = _plan()

    def objective(step: int):
        return elbo(model, data, plan.step_draws(model, step)).total

    return Trainer(model, objective, N * 10, Options(learning_rate=0.05))


@torch.no_grad()
@pytest.mark.parametrize("dims", [None, (1,)])
@pytest.mark.parametrize("absent", [False, True])
def test_scores_are_expected_log_densities_under_the_posterior_of_the_weights(dims, absent):
    model = _model(dims)
    data = _data(model, absent)
    plan = _plan()
    draws = [plan.draws(model, "test", i) for i in range(2)]
    found = scores(model, data, draws).double()
    mean = model.latents.mean.detach()
    slow = -0.5 * mean.double().square().sum(1).repeat(N, 1)
    for v, (view, (block,)) in enumerate(zip(model.views, data, strict=True)):
        f, s2 = (
            view.frequencies(draws[0].spectra[v]).to(mean.dtype),
            float(view.noise_variance),
        )
        rows = block.rows.numbers(N)
        b, c = 0.0, 0.0
        for one in draws:
            x = model.latents.sample(one.latents).detach()
            phi = evaluate(view.see(x)[rows], f).features.double()
            b, c = b + phi @ phi.T / 2, c + phi @ block.Y.double() / 2
        inverse = torch.linalg.inv(b + s2 * torch.eye(len(b), dtype=torch.float64))
        weights = inverse @ c
        at = evaluate(view.see(mean), f).features.double()
        for i, n in enumerate(rows.tolist()):
            for place in range(N):
                left = block.Y[i].double() - weights.T @ at[:, place]
                variance = s2 * float(at[:, place] @ inverse @ at[:, place])
                squares = float(left.square().sum()) + block.Y.shape[1] * variance
                slow[n, place] -= view.weight * squares / (2.0 * s2)
    # up to a constant of the row
    shift = (found - slow).mean(1, keepdim=True)
    torch.testing.assert_close(found, slow + shift, rtol=1e-3, atol=2e-2)


def test_rows_that_were_laid_elsewhere_come_back_and_the_bound_rises():
    model = _model()
    data = _data(model)
    plan = _plan()
    trainer = _trainer(model, data)
    trainer.run(until=2)
    truth = model.latents.mean.detach().clone()
    wrong = torch.tensor([0, 7, 21, 33])
    with torch.no_grad():
        model.latents.mean[wrong] = -2.0 * truth[wrong].sign() - truth[wrong]
    draws = [plan.draws(model, "shared", i) for i in range(4)]

    def bound() -> float:
        return sum(float(elbo(model, data, one).total.detach()) for one in draws)

    before = bound()
    moved = RowMoves(trainer, data, plan).move(0)
    assert set(wrong.tolist()) <= set(moved.tolist())
    assert bound() > before
    away = (model.latents.mean.detach() - truth)[wrong].norm(dim=1)
    assert float(away.max()) < 1.5
    state = trainer.optimiser.state_dict()["state"]
    index = trainer.optimiser.names.index("latents.mean")
    assert float(state[index]["exp_avg"][moved].abs().max()) == 0.0
    stay = torch.ones(N, dtype=torch.bool)
    stay[moved] = False
    assert torch.equal(model.latents.mean.detach()[stay], truth[stay])


@pytest.mark.parametrize(
    ("bounds", "n_moved"),
    [
        ([0.0, *[-1e3] * 7], 0),
        ([0.0, -1e3, 1.0, 2.0], 4),
        # the rows with the largest gains lower the bound, the others raise it
        ([0.0, -1e3, -1e3, 1.0, -1e3, -1e3], 2),
        ([0.0, -3.0], 4),
    ],
)
def test_moves_that_lower_the_bound_are_undone(monkeypatch, bounds, n_moved):
    model = _model()
    data = _data(model)
    trainer = _trainer(model, data)
    trainer.run(until=2)
    wrong = torch.tensor([0, 7, 21, 33])
    with torch.no_grad():
        model.latents.mean[wrong] = -2.0 * model.latents.mean[wrong].sign()
    before = model.latents.mean.detach().clone()
    moves, given = RowMoves(trainer, data, _plan()), iter(bounds)
    asked = []
    monkeypatch.setattr(moves, "_bound", lambda step: asked.append(step) or next(given))
    moved = moves.move(3)
    assert len(moved) == n_moved
    assert asked == [3] * len(bounds)
    stay = torch.ones(N, dtype=torch.bool)
    stay[moved] = False
    assert torch.equal(model.latents.mean.detach()[stay], before[stay])


def test_rows_move_at_given_steps_of_the_decay_alone(monkeypatch):
    model = _model()
    moves, taken = RowMoves(_trainer(model, _data(model)), _data(model), _plan()), []
    monkeypatch.setattr(moves, "move", taken.append)
    for step in range(40):
        moves(State(step=step))
    for step in range(100, 320):
        moves(State(step=step, decay_from=100))
    assert taken == [100 + step for step in STEPS]


def test_rows_move_where_views_are_complete_and_gaussian_and_rows_not_too_many():
    model = _model()
    data, plan = _data(model), _plan()
    assert movable(model, data, plan)
    assert movable(model, _data(model, absent=True), plan)
    many = GaussianLatents(torch.zeros(7000, D), torch.zeros(7000, D))
    assert not movable(LatentVariableModel(many, list(model.views)), data, plan)
    Y = data[0][0].Y.clone()
    Y[3, 2] = torch.nan
    holes = IncompleteBlock.of(Y, None, torch.arange(Y.shape[1]), (Y.shape[1],))
    assert not movable(model, (data[0], (holes,)), plan)
