"""Predictive densities of entries, and the modes of rows under every draw."""

import math
from dataclasses import replace

import pytest
import torch

from bochner.features.fourier import fourier_features
from bochner.kernels.spectral_mixture import NextGenSpectralMixture
from bochner.latent_inference.entry_terms import (
    GaussianEntries,
    LaplaceEntries,
    QuadraticEntries,
)
from bochner.latent_inference.infer import place
from bochner.latent_inference.mixtures import Modes, joined
from bochner.latent_inference.modes import Limits, climb
from bochner.latent_inference.predictive_modes import (
    climbed,
    laplace_modes,
    predictive_target,
)
from bochner.latent_inference.row_misfit import combinations
from bochner.likelihoods.binomial import Binomial
from bochner.likelihoods.likelihood import Gaussian
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.likelihoods.poisson import Poisson
from bochner.random import generator
from bochner.weight_posterior.conditioning import SharedDraw, SpectralDraw
from bochner.weight_posterior.posterior import ViewPosterior


def _central(f, at, step=1e-5):
    return (f(at + step) - f(at - step)) / (2 * step)


ENTRIES = {
    "gaussian": GaussianEntries(torch.tensor(0.2, dtype=torch.float64)),
    "poisson": LaplaceEntries(Poisson()),
    "binomial": LaplaceEntries(Binomial(20)),
    "negative_binomial": LaplaceEntries(NegativeBinomial(3.0)),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_slopes_are_those_of_the_value(name):
    entries, source = ENTRIES[name], generator(0, "entries")
    y = torch.randint(0, 20, (6, 5), generator=source).double()
    mean = torch.randn(6, 5, generator=source, dtype=torch.float64)
    variance = torch.rand(6, 5, generator=source, dtype=torch.float64) + 0.1
    slopes = entries.slopes(y, mean, variance)
    # the mode of the integrand is good to a thousandth of its standard deviation
    on_mean = _central(lambda m: entries.slopes(y, m, variance).value, mean)
    torch.testing.assert_close(slopes.d_mean, on_mean, rtol=2e-3, atol=2e-3)
    on_variance = _central(lambda v: entries.slopes(y, mean, v).value, variance)
    torch.testing.assert_close(slopes.d_variance, on_variance, rtol=2e-3, atol=2e-3)


def test_curvatures_of_normal_entries_are_second_derivatives():
    entries, source = ENTRIES["gaussian"], generator(1, "entries")
    y, mean = torch.randn(2, 4, 3, generator=source, dtype=torch.float64)
    variance = torch.rand(4, 3, generator=source, dtype=torch.float64)
    result = entries.curvatures(y, mean, variance)
    of_mean = _central(lambda m: entries.slopes(y, m, variance).d_mean, mean)
    mixed = _central(lambda v: entries.slopes(y, mean, v).d_mean, variance)
    of_variance = _central(lambda v: entries.slopes(y, mean, v).d_variance, variance)
    torch.testing.assert_close(result.mean, of_mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(result.mixed, mixed, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(result.variance, of_variance, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["poisson", "binomial", "negative_binomial"])
def test_expansions_are_laplaces_where_little_is_uncertain(name):
    exact, source = ENTRIES[name], generator(7, "entries")
    entries = QuadraticEntries(exact.likelihood)
    y = torch.randint(0, 20, (6, 5), generator=source).double()
    mean = torch.randn(6, 5, generator=source, dtype=torch.float64)
    variance = torch.full_like(mean, 1e-6)
    for result, expected in (
        (entries.slopes(y, mean, variance), exact.slopes(y, mean, variance)),
        (entries.curvatures(y, mean, variance), exact.curvatures(y, mean, variance)),
    ):
        for one, other in zip(vars(result).values(), vars(expected).values(), strict=True):
            # third derivatives, left out, move slopes in the variance by half of them
            torch.testing.assert_close(one, other, rtol=2e-2, atol=1e-3)


def _view(per_column=False, dim=2, m=9, n=80):
    source = generator(2, "modes")
    kernel = NextGenSpectralMixture().initial(2, dim, source)
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    noise = torch.full((m,), 0.1, dtype=torch.float64)
    if per_column:
        noise = torch.linspace(0.05, 0.5, m, dtype=torch.float64)
    draws, Y = [], None
    for _ in range(2):
        f = kernel.frequencies(kernel.noise(10, dim, source, "iid")).detach()
        phi = fourier_features(x, f)
        if Y is None:
            weights = torch.randn(phi.shape[0], m, generator=source, dtype=torch.float64)
            Y = phi.T @ weights
            Y += noise.sqrt() * torch.randn(n, m, generator=source, dtype=torch.float64)
        values, vectors = torch.linalg.eigh(phi @ phi.T)
        scales = 1.0 / (values + noise[:, None])
        mean = vectors @ (vectors.T @ phi @ Y * scales.T)
        if per_column:
            draws.append(SpectralDraw(f, mean, vectors[None], scales))
        else:
            draws.append(SharedDraw(f, mean, ((vectors * scales[0]) @ vectors.T)[None]))
    likelihood = Gaussian(noise.tolist() if per_column else 0.1).requires_grad_(False)
    return (
        ViewPosterior.of("a", tuple(draws), torch.zeros(m, dtype=torch.int64), likelihood),
        x,
        Y,
    )


def _by_draw(*views):
    return [[replace(view, draws=(draw,)) for draw in view.draws] for view in views]


def test_the_target_is_the_log_predictive_density_with_its_derivatives():
    view, _, Y = _view()
    (single, _) = combinations(_by_draw(view))
    y = Y[:5].clone()
    y[2, 3:] = torch.nan
    target, rows = predictive_target(single, [y], 2, [None]), torch.arange(5)
    x = torch.randn(5, 2, generator=generator(3, "x"), dtype=torch.float64)
    value, gradient, hessian = target.evaluate(x, rows)
    draw = view.draws[0]
    mean, variance = view.psi(draw, draw.features(x))
    entries = view.likelihood.log_predictive(torch.nan_to_num(y), mean, variance) * ~y.isnan()
    prior = -0.5 * (x.square().sum(1) + 2 * math.log(2 * math.pi))
    torch.testing.assert_close(value, entries.sum(1) + prior)
    for d in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[d] = 1e-5
        up, down = target.evaluate(x + step, rows), target.evaluate(x - step, rows)
        torch.testing.assert_close(
            (up[0] - down[0]) / 2e-5, gradient[:, d], rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(
            (up[1] - down[1]) / 2e-5, hessian[:, d], rtol=1e-5, atol=1e-4
        )


def test_climbs_end_at_modes_of_every_draw():
    view, x, Y = _view()
    for single in combinations(_by_draw(view)):
        start = place(single, x, [Y[:20]], polish=False)
        modes = climbed(single, start, [Y[:20]], [None])
        target = predictive_target(single, [Y[:20]], 2, [None])
        _, gradient, hessian = target.evaluate(modes.means[:, 0], torch.arange(20))
        step = torch.linalg.solve(-hessian, gradient[..., None])[..., 0]
        assert float(step.norm(dim=1).max()) < 1e-3


def test_columns_with_noise_of_their_own_have_covariances_by_group():
    view, _, Y = _view(per_column=True)
    (single, _) = combinations(_by_draw(view))
    target = predictive_target(single, [Y[:6]], 2, [None])
    x = torch.randn(6, 2, generator=generator(4, "x"), dtype=torch.float64)
    value, _, _ = target.evaluate(x, torch.arange(6))
    draw = view.draws[0]
    mean, variance = view.psi(draw, draw.features(x))
    prior = -0.5 * (x.square().sum(1) + 2 * math.log(2 * math.pi))
    exact = view.likelihood.log_predictive(Y[:6], mean, variance).sum(1) + prior
    assert float((value - exact).abs().median()) < 0.3  # variances of a group are averaged


def test_views_are_combined_draw_by_draw_and_paired_where_that_is_too_many():
    view, _, _ = _view()
    assert len(combinations(_by_draw(view, view))) == 4
    many = ViewPosterior.of("b", view.draws * 3, view.group_of, view.likelihood)
    paired = combinations(_by_draw(many, many, view))
    assert len(paired) == 6
    assert all(len(v.draws) == 1 for views in paired for v in views)


def test_normal_intervals_hold_half_of_a_mixture_with_a_mode_far_away():
    """The 50 % interval of its root mean square held 0.89 of it."""
    source = generator(0, "mixture")
    means = torch.tensor([[[0.0], [8.0]], [[0.3], [0.3]]], dtype=torch.float64)
    modes = Modes(
        means,
        torch.tensor([1.0, 0.25], dtype=torch.float64)[:, None, None].expand(2, 2, 1, 1),
        torch.tensor([[0.9, 0.1], [1.0, 0.0]], dtype=torch.float64).log(),
    )
    centre = torch.tensor([[0.1], [0.3]], dtype=torch.float64)
    drawn = torch.randn(200_000, generator=source, dtype=torch.float64)
    drawn[:20_000] = 8.0 + drawn[:20_000]
    away = (drawn - 0.1).abs()
    widths = [
        float(away.quantile(level)) / z for level, z in ((0.5, 0.67449), (0.95, 1.95996))
    ]
    std, plain = modes.normal_std_about(centre), modes.std_about(centre)
    expected = math.sqrt(float(plain[0]) * math.sqrt(widths[0] * widths[1]))
    assert std[0].item() == pytest.approx(expected, rel=0.02)
    assert std[1].item() == pytest.approx(1.0)


def test_the_spread_of_a_mixture_is_about_the_centre():
    means = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    covariances = torch.full((1, 2, 1, 1), 0.25, dtype=torch.float64)
    modes = Modes(means, covariances, torch.zeros(1, 2, dtype=torch.float64))
    centre = torch.ones(1, 1, dtype=torch.float64)
    assert float(modes.std_about(centre)) == pytest.approx(math.sqrt(0.25 + 0.5 * 4.0))
    both = joined([modes, modes])
    assert both.means.shape == (1, 4, 1)
    assert float(both.log_weights.logsumexp(1)) == pytest.approx(math.log(2.0))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_an_approximation_is_the_normal_density_times_its_evidence(dim):
    source = generator(0, "log density", dim)
    root = torch.randn(5, 1, dim, dim, generator=source, dtype=torch.float64)
    covariance = root @ root.mT + torch.eye(dim, dtype=torch.float64)
    means = torch.randn(5, 1, dim, generator=source, dtype=torch.float64)
    evidence = torch.randn(5, 1, generator=source, dtype=torch.float64)
    points = 2.0 * torch.randn(7, dim, generator=source, dtype=torch.float64)
    normal = torch.distributions.MultivariateNormal(means, covariance)
    expected = normal.log_prob(points.expand(5, 7, dim)) + evidence
    modes = Modes(means, covariance, evidence)
    torch.testing.assert_close(modes.log_density(points), expected)


def test_a_step_that_is_near_is_taken_with_the_rise_it_promises():
    """Of a quadratic: one step ends where a climb ends, and its promise is the value there."""
    source = generator(0, "near steps")
    top = torch.randn(6, 2, generator=source, dtype=torch.float64)
    bend = torch.tensor([[4.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    evaluations = []

    class Quadratic:
        def evaluate(self, x, rows):
            evaluations.append(len(x))
            away = x - top[rows]
            pushed = away @ bend
            hessian = (-bend).expand(len(x), -1, -1).clone()
            return 5.0 - 0.5 * (away * pushed).sum(1), -pushed, hessian

    starts, rows = top + 0.05, torch.arange(6)
    x, value = climb(Quadratic(), starts, rows, Limits(1e-9, near=0.3))[:2]
    assert evaluations == [6]
    torch.testing.assert_close(x, top)
    torch.testing.assert_close(value, torch.full((6,), 5.0, dtype=torch.float64))
    climb(Quadratic(), starts, rows, Limits(1e-9))
    assert len(evaluations) > 2


def test_a_step_that_the_radius_cuts_ends_no_climb_however_it_is_rounded():
    angle = torch.linspace(0.0, 6.0, 200)
    tops = 0.77 * torch.stack([angle.cos(), angle.sin()], dim=1)

    class Flat:
        def evaluate(self, x, rows):
            away = x - tops[rows]
            bends = -0.09 * torch.eye(2).expand(len(x), -1, -1)
            return -0.045 * away.square().sum(1), -0.09 * away, bends

    # 0.77 away, the promise is that of a step which ends a climb; the radius is 0.5
    ends = climb(Flat(), torch.zeros(200, 2), torch.arange(200), Limits(1e-2, near=0.3))
    torch.testing.assert_close(ends.x, tops, atol=1e-5, rtol=0.0)
    torch.testing.assert_close(ends.value, torch.zeros(200), atol=1e-5, rtol=0.0)


@pytest.mark.parametrize("steepness", [1e6, 1e9, 1e12])
def test_a_climb_along_a_curved_ridge_arrives_at_its_top(steepness):
    """Steps back to the crest are short; those along it must not be as short for that."""

    class Ridge:
        def evaluate(self, x, rows):
            def value(place):
                away = place[1] - torch.sin(3.0 * place[0])
                return -steepness * away.square() - 0.5 * place[0].square()

            parts = (value, torch.func.grad(value), torch.func.hessian(value))
            return tuple(torch.vmap(part)(x) for part in parts)

    starts = torch.tensor([[2.0, math.sin(6.0)], [-1.7, 0.3]], dtype=torch.float64)
    ends = climb(Ridge(), starts, torch.arange(2), Limits(1e-5, 200), rounding=torch.zeros(2))
    # in units of the standard deviation along the ridge
    torch.testing.assert_close(ends.x, torch.zeros_like(starts), atol=1e-4, rtol=0.0)


def test_a_climb_ends_where_the_value_is_rounded_and_the_slope_is_not():
    """Counts of 10^12 leave values that are good to 0.01 nats: steps that promise less must not be
    taken back for that.
    """
    evaluations = []
    width = 0.01

    class Rounded:
        def evaluate(self, x, rows):
            evaluations.append(len(x))
            value = -0.5 * x.square().sum(1) - 0.1 * x.pow(4).sum(1)
            slope = -x - 0.4 * x.pow(3)
            noise = width * torch.sin(1e9 * x.sum(1))
            bend = torch.diag_embed(-1.0 - 1.2 * x.square())
            return value + noise, slope, bend

    starts = torch.tensor([[0.9, -0.3], [0.01, 0.02], [-1.4, 2.0]], dtype=torch.float64)
    error = torch.full((3,), width, dtype=torch.float64)
    ends = climb(Rounded(), starts, torch.arange(3), Limits(1e-5, 2000), rounding=error)
    torch.testing.assert_close(ends.x, torch.zeros_like(starts), atol=1e-8, rtol=0.0)
    assert len(evaluations) < 30


def test_a_climb_does_not_go_to_and_fro_between_a_slope_and_a_valley():
    """A step that falls and its correction, no longer than it, may undo each other for ever."""
    evaluations = []

    class Valley:
        def evaluate(self, x, rows):
            evaluations.append(len(x))

            # convex left of 0.5, with a step from 1.3 that leads there
            def value(place):
                return -0.5 * place[0].square() + 1.8 * torch.cos(2.2 * place[0] - 4.4)

            parts = (value, torch.func.grad(value), torch.func.hessian(value))
            return tuple(torch.vmap(part)(x) for part in parts)

    starts = torch.linspace(-3.0, 4.0, 141, dtype=torch.float64)[:, None]
    ends = climb(
        Valley(), starts, torch.arange(141), Limits(1e-6, 300), rounding=torch.zeros(141)
    )
    _, slope, bend = Valley().evaluate(ends.x, torch.arange(141))
    assert len(evaluations) < 100
    assert float(slope.abs().max()) < 1e-4
    assert bool((bend < 0.0).all())


class _TwoNarrowModes:
    """Two normal densities of the same evidence, 0.001 wide."""

    def evaluate(self, x, rows):
        away = x - x.sign()
        hessian = torch.full((len(rows), 1, 1), -1e6, dtype=x.dtype)
        return -0.5e6 * away.square().sum(1), -1e6 * away, hessian


def test_narrow_modes_weigh_what_they_hold_however_near_a_climb_begins():
    """A short step ended the climb at the value before it, 3 nats below that of the mode."""
    starts = torch.tensor([[[-1.0], [1.0025]]]).double()
    every = torch.ones(1, 2, dtype=torch.bool)
    modes = laplace_modes(_TwoNarrowModes(), starts, every, 3e-3, 100)
    torch.testing.assert_close(modes.log_weights[:, 0], modes.log_weights[:, 1])
