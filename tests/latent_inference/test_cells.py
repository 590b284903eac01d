"""Polynomials on cells: bounds, derivatives and places are those of the exact evaluation."""

import threading

import pytest
import torch

from bochner.features.fourier import fourier_features
from bochner.kernels.stationary import RBF
from bochner.latent_inference.cells import Cells, CellTarget
from bochner.latent_inference.infer import Placer, place
from bochner.latent_inference.linear_bound import LinearBound
from bochner.latent_inference.row_bound import target_for
from bochner.likelihoods.binomial import Bernoulli, Binomial
from bochner.likelihoods.categorical import Categorical
from bochner.likelihoods.likelihood import Gaussian
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.likelihoods.poisson import Poisson
from bochner.linalg import cholesky
from bochner.random import generator
from bochner.weight_posterior.conditioning import SharedDraw, SpectralDraw
from bochner.weight_posterior.posterior import ViewPosterior
from helpers.pairs import together
from helpers.posteriors import conditioned_view

LIKELIHOODS = {
    "poisson": Poisson(),
    "negative binomial": NegativeBinomial(2.0),
    "tilted": NegativeBinomial(2.0, bound="tilted"),
    "bernoulli": Bernoulli(),
    "binomial": Binomial(5),
    "categorical": Categorical([[0.0, 1.0, 2.0]] * 45),
}


OTHER = {"bohning": Bernoulli("bohning")}


def _counts(name, dim=2, m=90, n=2000):
    """A view of counts under two draws of its spectrum, places, and rows drawn there."""
    source = generator(0, "cells", dim)
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    slopes = torch.randn(m, dim, generator=source, dtype=torch.float64)
    psi = 0.7 * torch.sin(1.3 * x @ slopes.T + 1.0)
    draws = []
    for _ in range(2):
        kernel = RBF(1.2)
        f = kernel.frequencies(kernel.noise(16, dim, source, "iid")).detach()
        phi = fourier_features(x, f)
        inverse = cholesky(phi @ phi.T + torch.eye(len(phi), dtype=phi.dtype)).inverse()
        draws.append(SharedDraw(f, inverse @ phi @ psi, inverse[None]))
    intercept = torch.randn(m, generator=source, dtype=torch.float64) - 1.0
    groups = torch.zeros(m, dtype=torch.int64)
    likelihood = {**LIKELIHOODS, **OTHER}[name]
    view = ViewPosterior.of("a", tuple(draws), groups, likelihood, intercept, weight=0.7)
    Y = likelihood.draw(view.psi(draws[0], draws[0].features(x))[0], source).double()
    return view, x, Y


def _any(name, dim):
    return conditioned_view(dim, 6) if name == "gaussian" else _counts(name, dim)


def _noise_of_columns(dim, m=8):
    """A view whose columns have a noise variance each, places, and data."""
    view, x, Y = conditioned_view(dim, m, s2=0.02)
    noise = torch.linspace(0.01, 0.2, m, dtype=torch.float64)
    draws = []
    for draw in view.draws:
        phi = draw.features(x)
        sizes, vectors = torch.linalg.eigh(phi.T @ phi)
        scales = 1.0 / (sizes.clamp(min=0.0) + noise[:, None])
        mean = vectors @ (scales.T * (vectors.T @ (phi.T @ Y)))
        draws.append(SpectralDraw(draw.frequencies, mean, vectors[None], scales))
    likelihood = Gaussian(noise.tolist())
    return ViewPosterior.of("b", tuple(draws), view.group_of, likelihood), x, Y


def _with_holes(Y, share, seed=0):
    """Rows with entries missing anywhere; some have all, one has nothing."""
    Y = Y.clone()
    missing = torch.rand(Y.shape, generator=generator(seed, "holes")) < share
    missing[:3] = False
    missing[5] = True
    Y[missing] = torch.nan
    return Y


@pytest.mark.parametrize("name", ["gaussian", *LIKELIHOODS])
@pytest.mark.parametrize("dim", [1, 2])
def test_polynomials_are_the_bound_with_its_derivatives(name, dim):
    view, x, Y = _any(name, dim)
    rows = view.encode(Y[:40])
    if name != "gaussian":
        rows[3:9, 4:20] = torch.nan  # entries are treated one by one
    target = target_for([view], [rows], dim, True)
    cells = Cells.of(LinearBound.of([view], dim, target), x)
    assert cells is not None
    at, every = x[:40] + 0.3, torch.arange(40)
    value, gradient, hessian = target.evaluate(at, every)
    ours = CellTarget(cells, cells.rows([rows])).evaluate(at, every)
    apart = ours[0] - value
    moved, _, _ = target.evaluate(at.flip(0), every)
    there = CellTarget(cells, cells.rows([rows])).evaluate(at.flip(0), every)[0]
    torch.testing.assert_close(
        there - moved, apart, rtol=0, atol=1e-4
    )  # a constant of the row
    torch.testing.assert_close(ours[1], gradient, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(ours[2], hessian, rtol=1e-3, atol=0.1)


@pytest.mark.parametrize("share", [0.1, 0.7])
@pytest.mark.parametrize("of_view", [conditioned_view, _noise_of_columns])
@pytest.mark.parametrize("dim", [1, 2])
def test_polynomials_of_rows_with_holes_are_their_bound_with_its_derivatives(
    dim, of_view, share
):
    view, x, Y = of_view(dim, 8)
    rows = _with_holes(Y[:40], share)
    target = target_for([view], [rows], dim, False)
    cells = Cells.of(LinearBound.of([view], dim), x)
    assert cells is not None
    at, every = x[:40] + 0.3, torch.arange(40)
    value, gradient, hessian = target.evaluate(at, every)
    of_cells = CellTarget(cells, cells.rows([rows]))
    ours = of_cells.evaluate(at, every)
    moved, there = (t.evaluate(at.flip(0), every)[0] for t in (target, of_cells))
    torch.testing.assert_close(there - moved, ours[0] - value, rtol=0, atol=1e-4)
    torch.testing.assert_close(ours[1], gradient, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(ours[2], hessian, rtol=1e-3, atol=0.1)


@pytest.mark.parametrize("of_view", [conditioned_view, _noise_of_columns])
@pytest.mark.parametrize("dim", [1, 2])
def test_rows_with_holes_lie_where_exact_climbs_put_them(dim, of_view):
    view, x, Y = of_view(dim, 8)
    rows = _with_holes(Y[:150], 0.3)
    rows[20:30, 2] = torch.nan  # as do all rows of a file without the column
    placer = Placer([view], x)
    placed = placer.place([rows])
    assert list(map(bool, placer.many.cells.values())) == [True, True]
    climbed = place([view], x, [rows])
    target, every = target_for([view], [rows], dim, False), torch.arange(150)
    lost = target.evaluate(climbed.mean, every)[0] - target.evaluate(placed.mean, every)[0]
    assert int((lost > 1e-6).sum()) <= 2
    same = lost.abs() < 1e-6
    assert int(same.sum()) >= 145
    apart = ((placed.mean - climbed.mean) / climbed.std)[same].abs()
    assert float(apart.max()) < 1e-4
    assert float((placed.std / climbed.std - 1.0)[same].abs().median()) < 1e-5
    assert float(placed.mean[5].abs().max()) == 0.0  # nothing is known of it


def test_rows_with_holes_do_not_depend_on_their_batch():
    view, x, Y = conditioned_view(2, 8)
    rows = _with_holes(Y[:60], 0.3)
    every = Placer([view], x).place([rows])
    for i in (4, 17, 59):
        alone = Placer([view], x).place([rows[i : i + 1]])
        apart = (alone.mean[0] - every.mean[i]) / every.std[i]
        assert float(apart.abs().max()) < 1e-7


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("dim", [1, 2])
def test_rows_of_counts_lie_where_exact_climbs_put_them(name, dim):
    view, x, Y = _counts(name, dim)
    rows = Y[:60].clone()
    rows[7, 5:40] = torch.nan
    placer = Placer([view], x)
    placed = placer.place([rows])
    assert all(known is not None for known in placer.many.cells.values())
    climbed = place([view], x, [rows])
    target, every = target_for([view], [view.encode(rows)], dim, True), torch.arange(60)
    lost = target.evaluate(climbed.mean, every)[0] - target.evaluate(placed.mean, every)[0]
    assert int((lost > 1e-6).sum()) <= 2
    apart = ((placed.mean - climbed.mean) / climbed.std)[lost.abs() < 1e-6].abs()
    assert float(apart.max()) < 1e-4
    assert float((placed.std / climbed.std - 1.0).abs().median()) < 1e-4


def test_rows_do_not_depend_on_their_batch():
    view, x, Y = _counts("negative binomial")
    placer = Placer([view], x)
    together = placer.place([Y[:50]])
    again = Placer([view], x).place([Y[:50]])
    assert torch.equal(together.modes, again.modes)
    for i in (0, 17, 49):
        alone = Placer([view], x).place([Y[i : i + 1]])
        apart = (alone.mean[0] - together.mean[i]) / together.std[i]
        assert float(apart.abs().max()) < 1e-7


def test_rows_with_size_factors_are_placed_without_cells():
    view, x, Y = _counts("poisson", m=20)
    offset = torch.zeros(30, dtype=torch.float64)
    offset[10:] = 0.3
    placed = Placer([view], x).place([Y[:30]], [offset])
    exact = place([view], x, [Y[10:30]], [offset[10:]])
    torch.testing.assert_close(placed.modes[10:], exact.modes, atol=1e-8, rtol=0)
    plain = Placer([view], x).place([Y[:10]])
    torch.testing.assert_close(placed.mean[:10], plain.mean, atol=1e-7, rtol=0)


def test_views_of_two_kinds_share_their_cells_and_rows_may_lack_one():
    first, x, Y = conditioned_view(2, 6)
    second, _, Z = _counts("poisson", m=30)
    rows = [Y[:40].clone(), Z[:40].clone()]
    rows[0][30:] = torch.nan
    rows[1][:5] = torch.nan
    rows[0][20:25, 2] = torch.nan
    placer = Placer([first, second], x)
    placed = placer.place(rows)
    kinds = {(True, True), (True, False), (False, True), None}
    assert set(placer.many.cells) == kinds
    climbed = place([first, second], x, rows)
    apart = ((placed.mean - climbed.mean) / climbed.std).abs().amax(1)
    assert int((apart > 1e-4).sum()) <= 2
    assert float(apart.median()) < 1e-5


def test_wide_rows_with_holes_lie_where_exact_climbs_put_them():
    view, x, Y = conditioned_view(2, 300)
    rows = _with_holes(Y[:40], 0.3)
    placer = Placer([view], x)
    placed = placer.place([rows])
    climbed = place([view], x, [rows])
    apart = ((placed.mean - climbed.mean) / climbed.std).abs().amax(1)
    assert int((apart > 1e-4).sum()) <= 1


def test_waves_too_short_for_cells_are_placed_without_them():
    view, x, Y = conditioned_view(2, 6)
    short = tuple(
        SharedDraw(
            type(draw.frequencies)(
                40.0 * draw.frequencies.first,
                None if draw.frequencies.second is None else 40.0 * draw.frequencies.second,
                draw.frequencies.amplitude,
                draw.frequencies.linear,
            ),
            draw.mean,
            draw.covariance,
        )
        for draw in view.draws
    )
    other = ViewPosterior.of("a", short, view.group_of, view.likelihood, weight=view.weight)
    placer = Placer([other], x)
    placed = placer.place([Y[:10]])
    assert list(placer.many.cells.values()) == [None]
    assert bool(placed.mean.isfinite().all())


def test_a_bound_that_is_not_what_its_products_say_is_climbed_without_cells():
    view, x, Y = _counts("bohning", m=20)
    placer = Placer([view], x)
    placed = placer.place([Y[:20]])
    assert list(placer.many.cells.values()) == [None]
    torch.testing.assert_close(
        placed.modes, place([view], x, [Y[:20]]).modes, atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_processes_divide_what_placing_begins_with(name, monkeypatch):
    view, x, Y = _any(name, 2)
    # tables are for so many
    x = x[:2000] if len(x) >= 2000 else x.repeat(-(-2000 // len(x)), 1)
    evaluated = {}
    of_points = LinearBound.of_points

    def counted(self, points, *given):
        who = threading.get_ident()
        evaluated[who] = evaluated.get(who, 0) + len(points)
        return of_points(self, points, *given)

    alone = Placer([view], x).place([Y[:50]])
    monkeypatch.setattr(LinearBound, "of_points", counted)

    def begun(processes):
        placer = Placer([view], x)
        placer.many.prepare(processes)
        return placer

    (found,) = together(begun, 1)
    (whole,) = evaluated.values()
    evaluated.clear()
    for placer in together(begun):
        known, expected = (p.many.cells[(True,)] for p in (placer, found))
        assert list(known.cells._held) == list(expected.cells._held)
        held = zip(known.cells._held.values(), expected.cells._held.values(), strict=True)
        for ours, theirs in held:
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
        if name == "gaussian":
            torch.testing.assert_close(known.table.parts[0], expected.table.parts[0])
            torch.testing.assert_close(known.table.common, expected.table.common)
        places = placer.place([Y[:50]])
        torch.testing.assert_close(places.modes, alone.modes, rtol=0, atol=1e-9)
    assert max(evaluated.values()) < 0.8 * whole
