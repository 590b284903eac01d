"""Placement under likelihoods that are not Gaussian: the target is the row's bound and does not
move training rows.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import bochner as bo
from bochner.kernels.base import Frequencies
from bochner.latent_inference import infer
from bochner.latent_inference.entry_terms import EntrywiseTerm
from bochner.latent_inference.fixed_order import FixedOrder, holds
from bochner.latent_inference.infer import place
from bochner.latent_inference.row_bound import Target, target_for
from bochner.likelihoods.poisson import Poisson
from bochner.linalg import newton_step
from bochner.random import generator
from bochner.regression.conjugate_gradients import weights_from
from bochner.regression.nonconjugate import nonconjugate_evidence
from bochner.weight_posterior.conditioning import SharedDraw
from bochner.weight_posterior.posterior import ViewPosterior
from campaign.cases import case_of
from helpers.nonconjugate import MAKERS, small_view

# Sweeps after which sites have converged, and after which they are like those that have: any will
# do where derivatives are compared.
SETTLED, NEARLY = 200, 20


@functools.cache
def _settled(name: str, dim: int, groups: int | None = None, n_sweeps: int = SETTLED):
    """A view whose sites have converged at known latents, as a posterior; not to be changed."""
    x, f, likelihood, block, sites = small_view(name, dim, n=12, missing=True, groups=groups)
    likelihood.requires_grad_(False)
    with torch.no_grad():
        for _ in range(n_sweeps):
            sites.absorb(
                nonconjugate_evidence(x, f, likelihood, sites, block, tol=1e-13).update
            )
        # weights in the order of the columns: one group, or a group each
        m = sites.n_columns
        sizes = (m,) if groups == 1 else (1,) * m
        order = sites.group_of.argsort(stable=True)
        phi = SharedDraw(f, torch.zeros(0), torch.zeros(0)).features(x).T.contiguous()
        result = weights_from(
            phi, sites.precision[:, order], sites.shift[:, order], sizes, 1e-13
        )
        mean = torch.empty_like(result.mean)
        mean[:, order] = result.mean
    draw = SharedDraw(f, mean, result.covariance)
    view = ViewPosterior.of("a", (draw,), sites.group_of, likelihood, sites.intercept)
    rows = block.values()
    return view, x, rows, block, sites


@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", list(MAKERS))
def test_derivatives_of_the_target_are_right(name, dim, groups):
    view, _, rows, block, _ = _settled(name, dim, groups, NEARLY)
    target = target_for([view], [rows], dim, True, [block.offset])
    assert isinstance(target.terms[0][0], EntrywiseTerm)
    index = torch.arange(12)
    x = torch.randn(12, dim, generator=generator(5, "x"), dtype=torch.float64)
    _, gradient, hessian = target.evaluate(x, index)
    torch.testing.assert_close(hessian, hessian.transpose(1, 2))
    step = 1e-5
    for d in range(dim):
        shift = torch.zeros(dim, dtype=torch.float64)
        shift[d] = step
        up, down = target.evaluate(x + shift, index), target.evaluate(x - shift, index)
        torch.testing.assert_close(
            (up[0] - down[0]) / (2 * step), gradient[:, d], rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(
            (up[1] - down[1]) / (2 * step), hessian[:, d], rtol=1e-4, atol=1e-4
        )


@pytest.mark.skipif(
    not holds(),
    reason="this machine's libraries sum products in another order beside other rows",
)
@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("name", list(MAKERS))
def test_in_a_fixed_order_a_row_has_its_own_bits(name, groups):
    view, _, rows, block, _ = _settled(name, 3, groups, NEARLY)
    x = torch.randn(12, 3, generator=generator(5, "x"), dtype=torch.float64)
    target = target_for([view], [rows], 3, True, [block.offset])
    usual = target.evaluate(x, torch.arange(12))
    with FixedOrder():
        together = target.evaluate(x, torch.arange(12))
        step = newton_step(together[1], together[2], torch.ones(12, dtype=torch.float64))
    for part, wanted in zip(together, usual, strict=True):
        torch.testing.assert_close(part, wanted, rtol=1e-9, atol=1e-9)
    for i in range(12):
        offset = None if block.offset is None else block.offset[[i]]
        with FixedOrder():
            target = target_for([view], [rows[[i]]], 3, True, [offset])
            alone = target.evaluate(x[[i]], torch.zeros(1, dtype=torch.int64))
            own = newton_step(alone[1], alone[2], torch.ones(1, dtype=torch.float64))
        for part, wanted in zip((*alone, *own), (*together, *step), strict=True):
            torch.testing.assert_close(part[0], wanted[i], rtol=0, atol=0)


@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("name", list(MAKERS))
def test_placing_a_training_row_does_not_move_it(name, groups):
    """Envelope theorem: in a training latent the view's bound has the gradient of the row's own
    bound.
    """
    view, x, rows, block, sites = _settled(name, 2, groups)
    x = x.clone().requires_grad_()
    f = view.draws[0].frequencies
    likelihood = view.likelihood
    bound = (
        nonconjugate_evidence(x, f, likelihood, sites, block, tol=1e-13).value
        - 0.5 * x.square().sum()
    )
    (expected,) = torch.autograd.grad(bound, x)
    _, gradient, _ = target_for([view], [rows], 2, True, [block.offset]).evaluate(
        x.detach(), torch.arange(12)
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_rows_end_in_a_maximum_whatever_their_company(name):
    view, x, rows, block, _ = _settled(name, 2)
    placed = place([view], x, [rows], [block.offset])
    target = target_for([view], [rows], 2, True, [block.offset])
    _, gradient, hessian = target.evaluate(placed.mean, torch.arange(12))
    assert float(gradient.abs().max()) < 1e-9
    assert bool((torch.linalg.eigvalsh(hessian) < 0).all())
    offset = block.offset
    alone = place([view], x, [rows[3:4]], [offset[3:4]])
    torch.testing.assert_close(alone.mean, placed.mean[3:4], rtol=0, atol=1e-11)
    empty = place([view], x, [torch.full_like(rows[:1], torch.nan)], [offset[:1]])
    torch.testing.assert_close(empty.mean, torch.zeros(1, 2, dtype=torch.float64))


@pytest.mark.parametrize("name", ["poisson", "categorical"])
def test_points_that_are_evaluated_in_parts_are_those_of_one(name):
    view, x, rows, block, _ = _settled(name, 2)
    target = target_for([view], [rows], 2, True, [block.offset])
    whole = target.evaluate(x, torch.arange(12))
    # more than are evaluated at once
    times = 2**18 // (12 * rows.shape[1])
    many = target.evaluate(x.repeat(times, 1), torch.arange(12).repeat(times))
    for part, wanted in zip(many, whole, strict=True):
        torch.testing.assert_close(part, wanted.repeat(times, *[1] * (wanted.ndim - 1)))


def _ridge(n: int):
    """Rows with a count of 1e11, which leaves a curved ridge, 1e-6 wide, of the five dimensions."""
    source = generator(1, "ridge")
    normal = {"generator": source, "dtype": torch.float64}
    points = torch.randn(4, 5, **normal)
    amplitude = torch.full((4,), 0.5, dtype=torch.float64)
    mean = torch.randn(8, 5, **normal)
    covariance = 1e-12 * torch.eye(8, dtype=torch.float64)[None]
    draw = SharedDraw(Frequencies(points, None, amplitude), mean, covariance)
    group_of = torch.zeros(5, dtype=torch.int64)
    intercept = torch.tensor([4.0, 4.0, 3.0, 25.5, 4.0], dtype=torch.float64)
    view = ViewPosterior.of("a", (draw,), group_of, Poisson(), intercept)
    candidates = torch.randn(40, 5, **normal)
    psi = view.psi(draw, draw.features(candidates[:n]))[0]
    return view, candidates, view.likelihood.draw(psi, source)


def test_climbs_along_the_ridge_of_a_huge_count_reach_its_top():
    view, candidates, Y = _ridge(3)
    together = place([view], candidates, [Y])
    target = target_for([view], [Y], 5, True)
    _, gradient, hessian = target.evaluate(together.mean, torch.arange(3))
    _, rise = newton_step(gradient, hessian, torch.ones(3, dtype=torch.float64))
    assert float(rise.max()) < 1e-9
    backwards = place([view], candidates, [Y.flip(0)]).mean.flip(0)
    torch.testing.assert_close(backwards, together.mean, rtol=0, atol=1e-3)
    alone = place([view], candidates, [Y[1:2]]).mean
    torch.testing.assert_close(alone, together.mean[1:2], rtol=0, atol=1e-3)


@pytest.mark.skipif(
    not holds(),
    reason="this machine's libraries sum products in another order beside other rows",
)
def test_rows_of_huge_counts_are_placed_in_one_call_and_have_their_own_bits(monkeypatch):
    view, candidates, Y = _ridge(12)
    n_rows = []
    at_first = infer.solved_exactly

    def counted(target, starts, *how, **more):
        n_rows.append(len(starts))
        return at_first(target, starts, *how, **more)

    monkeypatch.setattr(infer, "solved_exactly", counted)
    together = place([view], candidates, [Y])
    assert n_rows == [12]
    for some in (torch.tensor([7]), torch.tensor([11, 0, 4])):
        placed = place([view], candidates, [Y[some]])
        torch.testing.assert_close(placed.modes, together.modes[some], rtol=0, atol=0)
        torch.testing.assert_close(placed.std, together.std[some], rtol=0, atol=0)


def test_rows_are_placed_one_by_one_where_no_order_can_be_fixed(monkeypatch):
    view, candidates, Y = _ridge(6)
    together = place([view], candidates, [Y])
    monkeypatch.setattr(infer, "holds", lambda: False)
    one_by_one = place([view], candidates, [Y])
    torch.testing.assert_close(one_by_one.modes, together.modes, rtol=0, atol=1e-3)
    alone = place([view], candidates, [Y[2:3]])
    torch.testing.assert_close(alone.modes, one_by_one.modes[2:3], rtol=0, atol=0)


def test_rows_that_lack_a_view_are_placed_with_those_that_do_not():
    view, candidates, Y = _ridge(6)
    some = Y.clone()
    some[:3] = torch.nan
    views, rows = [view, view], [Y, some]
    together = place(views, candidates, rows)
    for i in range(6):
        alone = place(views, candidates, [part[[i]] for part in rows])
        torch.testing.assert_close(alone.modes, together.modes[[i]], rtol=0, atol=0)
    # nothing is added by what is not there
    without = place([view], candidates, [Y[:3]])
    torch.testing.assert_close(without.modes, together.modes[:3], rtol=0, atol=0)


def test_rows_under_a_wavy_kernel_do_not_depend_on_their_order():
    """Climbs of nine to twelve steps ended where rounding sent them (Matern with nu = 1/2, whose
    few frequencies are far apart).
    """
    case = case_of(51644)
    X = case.values[:700, :10]
    model = case.estimator().set_params(
        views={"a": slice(0, 5), "b": slice(5, 10)},
        likelihood={"a": "gaussian", "b": "poisson"},
        learning_rate=0.06,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    placed = model.transform(X)
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_allclose(model.transform(X[order]), placed[order], atol=1e-4)


def test_climbs_of_huge_counts_end_where_rounding_leaves_no_step(monkeypatch):
    """Slopes of counts of 2^50 promised more than a climb ends with, for all of its 2,000 steps."""
    source = np.random.default_rng(0)
    x = source.normal(size=(40, 1))
    waves = np.cos(x @ source.normal(size=(1, 20)) + source.uniform(0.0, 6.0, 20))
    p = 1.0 / (1.0 + np.exp(-0.3 * waves @ source.normal(size=(20, 4))))
    Y = source.binomial(2**50, p).astype(float)
    settings = {"max_iter": 10, "n_init": 1, "init": "pca", "n_frequencies": 8}
    model = bo.NGMVLVM(
        1, likelihood=bo.likelihoods.Binomial(2**50), random_state=0, **settings
    )
    evaluate = Target.evaluate
    count = 0

    def counted(*given):
        nonlocal count
        count += 1
        return evaluate(*given)

    monkeypatch.setattr(Target, "evaluate", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(Y)
    assert np.isfinite(model.embedding_).all()
    assert count < 1000
