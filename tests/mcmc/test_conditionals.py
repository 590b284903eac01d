"""Pieces of the sampler against enumeration, dense algebra and known distributions."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import digamma, logsumexp

from bochner.features.fourier import fourier_features
from bochner.kernels.base import Frequencies
from bochner.mcmc.conditionals import latents, logistic, mixture
from bochner.mcmc.conditionals.frequencies import (
    GivenOtherWeights,
    WeightsIntegrated,
    elliptical_slice,
)
from bochner.mcmc.conditionals.gaussian import GaussianView
from bochner.mcmc.conditionals.logistic import (
    BinomialView,
    NegativeBinomialView,
    draw_polya_gamma,
    draw_tables,
)
from bochner.mcmc.conditionals.mixture import NormalInverseWishart, Scatter
from bochner.mcmc.conditionals.slices import elliptical, slice_sample
from bochner.mcmc.conditionals.views import ViewData
from bochner.mcmc.conditionals.weights import GaussianForm, pairs, weight_posterior
from bochner.mcmc.draws import inverse_wishart, source
from bochner.mcmc.features import features
from bochner.mcmc.model import BLOCKS, Model
from bochner.mcmc.priors import Priors

PRIOR = NormalInverseWishart(dim=1, kappa=0.5, degrees=3.0, scale=1.0)
PRIOR2 = NormalInverseWishart(dim=2, kappa=0.5, degrees=4.0, scale=2.0)


def data(n=7, m=3, seed=0, holes=True):
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((n, m))
    if holes:
        Y[0, 0] = Y[1, 2] = np.nan
    return Y


def partitions(n):
    """Labels of all partitions of n points: restricted growth strings."""
    for labels in product(range(n), repeat=n):
        if all(k <= max(labels[:i], default=-1) + 1 for i, k in enumerate(labels)):
            yield np.array(labels)


@pytest.mark.parametrize(("prior", "seed"), [(PRIOR, 0), (PRIOR2, 1)])
def test_assignments_have_the_law_that_enumeration_gives(prior, seed):
    points = 2.0 * np.random.default_rng(seed).standard_normal((4, prior.dim))
    points[:2] += 3.0
    every = list(partitions(4))
    logs = [
        mixture.log_partition(z, 0.8) + mixture.log_points(points, z, prior) for z in every
    ]
    exact = np.exp(np.array(logs) - logsumexp(logs))
    names = {tuple(mixture.by_size(z)): i for i, z in enumerate(every)}
    # several partitions can share labels by size only where ties break them: by first appearance
    assert len(names) == len(every)
    labels = np.zeros(4, dtype=np.int64)
    visits = np.zeros((3000, len(every)))
    for i in range(3000):
        rng = source(seed, "enumeration", i)
        labels = mixture.draw_assignments(points, labels, 0.8, prior, rng)
        visits[i, names[tuple(labels)]] = 1.0
    batches = visits.reshape(50, 60, -1).mean(1)
    error = batches.std(0, ddof=1) / np.sqrt(50)
    # states that are visited once have no error of their own to speak of
    error = np.maximum(error, np.sqrt(exact * (1.0 - exact) / 3000))
    assert (np.abs(visits.mean(0) - exact) / error).max() < 4.0


def test_the_chinese_restaurant_process_sums_to_one():
    total = sum(math.exp(mixture.log_partition(z, 1.3)) for z in partitions(5))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_the_marginal_of_a_component_is_a_student_t():
    """One point: t with nu0 - D + 1 degrees."""
    w = np.array([0.7, -1.2])
    value = mixture.log_points(w[None], np.zeros(1, dtype=np.int64), PRIOR2)
    degrees = PRIOR2.degrees - 1.0
    shape = PRIOR2.scale * (PRIOR2.kappa + 1.0) / (PRIOR2.kappa * degrees) * np.eye(2)
    assert value == pytest.approx(stats.multivariate_t(shape=shape, df=degrees).logpdf(w))


def test_inverse_wishart_has_the_mean_and_the_quantiles_of_scipy():
    scale = np.array([[2.0, 0.7], [0.7, 1.0]])
    rng = source(0, "inverse wishart")
    drawn = np.array([inverse_wishart(scale, 9.0, rng) for _ in range(4000)])
    error = drawn.std(0, ddof=1) / np.sqrt(4000)
    assert (np.abs(drawn.mean(0) - scale / 6.0) / error).max() < 4.0
    # a diagonal entry is inverse gamma with (nu - D + 1) / 2
    entry = stats.invgamma(4.0, scale=scale[0, 0] / 2.0)
    assert stats.kstest(drawn[:, 0, 0], entry.cdf).pvalue > 1e-4


def test_slice_sampling_draws_from_its_density():
    rng = source(1, "slice")
    x = np.zeros(200)
    kept = []
    for i in range(200):
        x = slice_sample(x, lambda v: 2.0 * v - np.exp(v), rng)
        if i % 20 == 19:
            kept.append(x)
    # log of a gamma variable of shape 2; a chain forgets its place within a few updates
    assert stats.kstest(np.exp(np.concatenate(kept)), stats.gamma(2.0).cdf).pvalue > 1e-4


def test_elliptical_slice_sampling_draws_from_a_normal_posterior():
    rng = source(2, "elliptical")
    x = np.zeros((300, 1))
    for _ in range(30):
        x, _ = elliptical(
            x, rng.standard_normal(x.shape), lambda v, _: -2.0 * (v[:, 0] - 1.0) ** 2, rng
        )
    # prior N(0, 1), likelihood N(1; x, 1/4): N(4/5, 1/5)
    assert stats.kstest(x[:, 0], stats.norm(0.8, 0.2**0.5).cdf).pvalue > 1e-4


@pytest.mark.parametrize("n_rows", [5, 400], ids=["few", "many"])
def test_features_are_those_of_the_library(n_rows):
    rng = np.random.default_rng(0)
    x, points, amplitude = (
        rng.standard_normal((n_rows, 2)),
        rng.standard_normal((3, 2)),
        rng.random(3),
    )
    frequencies = Frequencies(torch.tensor(points), None, torch.tensor(amplitude))
    theirs = fourier_features(torch.tensor(x), frequencies).T.numpy()
    np.testing.assert_allclose(features(x, points, amplitude), theirs, rtol=1e-12, atol=1e-14)


def test_a_pair_is_the_change_of_the_dense_marginal_likelihood():
    rng = np.random.default_rng(1)
    phi, score, precision = (
        rng.standard_normal((2, 6)),
        data(6, 3, holes=False),
        rng.random((6, 3)),
    )
    pair = pairs(phi[:, None], score, precision)[0]
    value = 0.0
    for s, w in zip(score.T, precision.T, strict=True):
        matrix = np.eye(2) + phi @ np.diag(w) @ phi.T
        b = phi @ s
        value += 0.5 * b @ np.linalg.solve(matrix, b) - 0.5 * np.linalg.slogdet(matrix)[1]
    assert pair.log_marginal == pytest.approx(value, rel=1e-12)


def test_a_pair_and_all_weights_are_drawn_from_their_posterior():
    rng = np.random.default_rng(2)
    phi, precision = rng.standard_normal((6, 2)), np.tile(rng.random((6, 1)), (1, 4000))
    linear = np.tile(rng.standard_normal((6, 1)), (1, 4000))
    matrix = np.eye(2) + phi.T @ (precision[:, :1] * phi)
    mean, covariance = np.linalg.solve(matrix, phi.T @ linear[:, 0]), np.linalg.inv(matrix)
    root = np.linalg.cholesky(matrix)
    pair = pairs(phi.T[:, None], linear, precision)[0].draw(rng)
    whole = weight_posterior(phi, GaussianForm(linear, precision))
    np.testing.assert_allclose(whole.mean[:, 0], mean, rtol=1e-10)
    np.testing.assert_allclose(whole.covariances()[0], covariance, rtol=1e-10, atol=1e-14)
    for drawn in (pair, whole.draw(rng)):
        standard = root.T @ (drawn - mean[:, None])
        assert stats.kstest(standard.ravel(), stats.norm.cdf).pvalue > 1e-4
        assert abs((standard[0] * standard[1]).mean()) < 4.0 / np.sqrt(4000)


def views():
    Y = data()
    counts = np.where(np.isnan(Y), np.nan, np.abs(np.round(3.0 * Y)))
    binary = np.where(np.isnan(Y), np.nan, Y > 0)
    offset = np.linspace(-0.5, 0.5, len(Y))
    return [
        GaussianView("a", ViewData.of(Y), (0, 1), 4, Priors()),
        BinomialView("b", ViewData.of(binary, offset), (1,), 4, Priors()),
        NegativeBinomialView("c", ViewData.of(counts, offset), (0, 1), 4, Priors(), True),
    ]


def model(**settings):
    return Model(tuple(views()), 2, **settings)


@pytest.mark.parametrize("view", views(), ids=lambda view: view.name)
def test_gradients_in_the_latents(view):
    state = view.prior_state(source(3, "state"), 3)
    rng = np.random.default_rng(3)
    x, direction = rng.standard_normal((7, 2)), rng.standard_normal((7, 2))
    _, slope = view.latent_objective(state, x)
    high, low = (view.latent_objective(state, x + e * direction)[0] for e in (1e-5, -1e-5))
    assert (high - low) / 2e-5 == pytest.approx((slope * direction).sum(), rel=1e-6)


def test_the_gaussian_objective_is_the_dense_marginal_likelihood():
    view = views()[0]
    state = view.prior_state(source(4, "state"), 3)
    x = np.random.default_rng(4).standard_normal((7, 2))
    phi, value = view.phi(state, x), 0.0
    for m in range(3):
        rows = view.data.observed[:, m]
        covariance = phi[rows] @ phi[rows].T + state.parameter[0] * np.eye(rows.sum())
        value += stats.multivariate_normal(cov=covariance).logpdf(view.data.values[rows, m])
    assert view.latent_objective(state, x)[0] == pytest.approx(value, rel=1e-10)


def test_weights_given_the_rest_are_those_of_dense_algebra():
    """Columns without an entry keep their prior."""
    Y = data()
    Y[:, 1] = np.nan
    view = GaussianView("a", ViewData.of(Y), (0, 1), 4, Priors())
    state = view.prior_state(source(5, "state"), 3)
    x = np.random.default_rng(5).standard_normal((7, 2))
    result = view.weight_moments(state, x, source(5, "moments"))
    form = view.form(view.psi(state, x), state.parameter, source(5, "form"))
    dense = weight_posterior(view.phi(state, x), form)
    np.testing.assert_allclose(result.mean, dense.mean, rtol=1e-8, atol=1e-12)
    covariances = result.covariances[result.group_of]
    np.testing.assert_allclose(covariances, dense.covariances(), rtol=1e-8, atol=1e-12)
    assert not result.mean[:, 1].any()


def test_tables_have_the_mean_of_the_chinese_restaurant_process():
    y, r = np.array([[3.0], [7.0], [0.0]]), np.array([1.7])
    drawn = [draw_tables(ViewData.of(y), r, source(6, "tables", i))[0] for i in range(2000)]
    mean = sum((r[0] / (r[0] + np.arange(n))).sum() for n in (3, 7))
    assert abs(np.mean(drawn) - mean) < 4.0 * np.std(drawn) / np.sqrt(2000)


def test_tables_of_large_counts_are_drawn_without_one_term_each():
    r = np.array([1.7])
    y = ViewData.of(np.array([[3e4], [1e15]]))
    drawn = [draw_tables(y, r, source(6, "tables", i))[0] for i in range(2000)]
    mean = sum(r[0] * (digamma(r[0] + n) - digamma(r[0])) for n in (3e4, 1e15))
    assert abs(np.mean(drawn) - mean) < 4.0 * np.std(drawn) / np.sqrt(2000)


@pytest.mark.parametrize("r", [1e-3, 0.5, 30.0, 1e6, 1e300])
def test_tables_have_the_law_of_their_terms_at_any_dispersion(r):
    counts = np.array([[0.0], [1.0], [7.0], [1001.0], [4e4]])
    rngs = (source(6, "tables", i) for i in range(1500))
    drawn = np.array([draw_tables(ViewData.of(counts), np.array([r]), rng)[0] for rng in rngs])
    chances = np.concatenate([r / (r + np.arange(y)) for (y,) in counts])
    variance = (chances * (1.0 - chances)).sum()
    error = np.sqrt(variance / len(drawn))
    assert abs(drawn.mean() - chances.sum()) < 4.0 * error + 1e-9 * chances.sum()
    assert drawn.var() < variance * (1.0 + 10.0 / np.sqrt(len(drawn))) + 1e-9


def test_terms_of_tables_are_drawn_by_parts():
    """Under a dispersion of 100 counts of a million were drawn by a million terms each."""
    for most in (1.0, 2.0, 1000.0, 1001.0, 1002.0, 54321.0, 1e8):
        edges = logistic._edges(most)
        assert edges[0] == 1.0
        assert edges[-1] == most
        width = np.diff(edges)
        assert (width >= 1.0).all()
        assert (width <= np.maximum(edges[:-1] / 999.0, 1.0) + 1.0).all()
        assert len(edges) < 1010 + 1001 * np.log(max(most, 1000.0) / 1000.0)
    counts = np.array([1.0, 7.0, 1500.0, 1501.0, 4e4])
    edges = logistic._edges(4e4)
    below = [np.minimum(counts, edge) for edge in edges]
    terms, places = logistic._below(counts, edges)
    np.testing.assert_array_equal(terms, [y.sum() for y in below])
    np.testing.assert_array_equal(places, [(0.5 * y * (y - 1.0)).sum() for y in below])


def test_polya_gamma_draws_hold_for_large_counts():
    y = np.array([[2e6, 3.0], [1e6, 0.0], [4e5, np.nan]])
    view = NegativeBinomialView("c", ViewData.of(y), (0,), 4, Priors())
    form = view.form(np.full((3, 2), 2.0), np.array([5.0]), source(7, "form"))
    mean = np.tanh(1.0) / 4.0
    # relative standard deviation of omega is of the order of the square root of 1 / b
    np.testing.assert_allclose(form.precision[:, 0], (y[:, 0] + 5.0) * mean, rtol=1e-2)
    assert form.precision[2, 1] == form.linear[2, 1] == 0.0


@pytest.mark.parametrize("tilt", [0.0, -4.0])
def test_polya_gamma_variables_of_small_shapes_add_up_to_those_of_large_ones(tilt):
    sums, parts = 200, 2000
    small = np.full(sums * parts, 1e-4)
    drawn = draw_polya_gamma(small, np.full(sums * parts, tilt), source(8, "small shapes"))
    whole = np.full(5000, parts * 1e-4)
    expected = draw_polya_gamma(whole, np.full(5000, tilt), source(8, "their sums"))
    of_sums = drawn.reshape(sums, parts).sum(1)
    assert stats.ks_2samp(of_sums, expected).pvalue > 1e-3


def test_counts_that_are_all_zero_have_as_small_a_dispersion_as_they_like():
    view = NegativeBinomialView("c", ViewData.of(np.zeros((3, 2))), (0,), 4, Priors())
    for r in (1e-4, 1e-6, 1e-300):
        form = view.form(np.array([[0.0, 9.0]] * 3), np.array([r]), source(9, "form"))
        assert (form.precision >= 0.0).all()


def test_a_sweep_depends_on_its_key_alone():
    m = model()
    state = m.prior_state(source(8, "state"))
    one, two, other = (m.sweep(state, 0, chain, 5) for chain in (0, 0, 1))
    np.testing.assert_array_equal(one.x, two.x)
    assert np.abs(one.x - other.x).max() > 1e-3


def test_the_joint_density_rises_to_the_mode_of_the_latents():
    m = model(latent_kernel="map")
    state = m.prior_state(source(9, "state"))

    def value(state):
        of_views = [
            v.latent_objective(s, state.x)[0]
            for v, s in zip(m.views, state.views, strict=True)
        ]
        return sum(of_views) - 0.5 * np.square(state.x).sum()

    moved = m.sweep(state, 0, 0, 0, ["latents"])
    moved = replace(moved, views=state.views)
    assert value(moved) > value(state) + 0.1


def test_rotations_change_no_joint_density():
    """What alignment relies on: prior and likelihood see latents and frequencies together only."""
    m = Model((views()[0], views()[2]), 2)
    state = m.sweep(m.prior_state(source(10, "state")), 0, 0, 0, BLOCKS)
    turn = np.linalg.qr(np.random.default_rng(10).standard_normal((2, 2)))[0]
    turned = [replace(s, points=s.points @ turn) for s in state.views]
    rotated = replace(state, x=state.x @ turn, views=tuple(turned))
    assert m.log_joint(rotated) == pytest.approx(m.log_joint(state), rel=1e-12)


def test_alignment_undoes_a_rotation_and_a_reflection():
    rng = np.random.default_rng(11)
    x = rng.standard_normal((9, 3))
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    for sign in (1.0, -1.0):
        turned = x @ turn * np.array([sign, 1.0, 1.0])
        np.testing.assert_allclose(turned @ latents.align(turned, x), x, atol=1e-12)


def test_moves_of_the_coordinates_change_no_psi():
    m = model()
    state = m.prior_state(source(12, "state"))
    moved = m.sweep(state, 0, 0, 0, ["coordinates"])
    assert np.abs(moved.x - state.x).max() > 1e-2
    for view, before, after in zip(m.views, state.views, moved.views, strict=True):
        assert np.abs(before.points - after.points).max() > 1e-3
        psi = view.psi(before, state.x)
        np.testing.assert_allclose(view.psi(after, moved.x), psi, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_sums_of_outer_products_hold_the_density_of_frequencies_under_linear_maps(dim):
    rng = np.random.default_rng(dim)
    prior = NormalInverseWishart(dim, 1.3, dim + 2.0, 0.7)
    points, labels = rng.normal(size=(8, dim)) + 1.0, np.array([0, 0, 1, 0, 2, 1, 1, 0])
    scatter = Scatter.of(points, labels, prior)
    maps = [np.eye(dim), np.eye(dim) + 0.3 * rng.normal(size=(dim, dim))]
    dense = [mixture.log_points(points @ linear.T, labels, prior) for linear in maps]
    sums = [scatter.log_density(linear) for linear in maps]
    assert sums[1] - sums[0] == pytest.approx(dense[1] - dense[0], rel=1e-10)


@pytest.mark.parametrize("kind", ["binomial", "counts"])
def test_terms_without_psi_change_no_difference(kind):
    given = ViewData.of(np.array([[0.0, 2.0], [1.0, np.nan], [3.0, 0.0]]), 0.2)
    common = ("a", given, (0,), 3, Priors())
    trials = np.array([3.0, 4.0])
    view = (
        BinomialView(*common, trials) if kind == "binomial" else NegativeBinomialView(*common)
    )
    parameter = np.array([1.7])
    psi = np.random.default_rng(0).normal(size=(2, 3, 2))
    whole = [view.log_prob(at, parameter, slice(None)) for at in psi]
    less = [view.log_prob_of_psi(at, parameter, slice(None)) for at in psi]
    np.testing.assert_allclose(whole[1] - whole[0], less[1] - less[0], atol=1e-12)
    assert whole[0][1, 1] == less[0][1, 1] == 0.0
    rows = np.array([2, 0])
    np.testing.assert_allclose(view.log_prob(psi[0][rows], parameter, rows), whole[0][rows])


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("n_points", [3, 9], ids=["fewer features", "more features than rows"])
def test_frequencies_are_worth_what_normal_densities_say_after_any_number_of_moves(
    dim, n_points
):
    rng = np.random.default_rng(dim)
    x, points = rng.normal(size=(11, dim)), rng.normal(size=(n_points, dim))
    amplitude, noise = np.full(n_points, 0.6), 0.05
    rows = [np.arange(11), np.array([0, 2, 3, 7, 10])]
    values = [rng.normal(size=(11, 4)), rng.normal(size=(5, 2))]
    patterns = list(zip(rows, values, strict=True))
    regression = WeightsIntegrated.of(x, points, amplitude, patterns, noise)

    def density(at):
        phi = features(x, at, amplitude)
        total = 0.0
        for present, Y in patterns:
            covariance = phi[present] @ phi[present].T + noise * np.eye(len(present))
            total += (
                stats.multivariate_normal(np.zeros(len(present)), covariance).logpdf(Y.T).sum()
            )
        return total

    for h in [*range(n_points), 1, 0]:
        proposal, moved = rng.normal(size=dim), points.copy()
        here, there = regression.without(h, points[h])(np.stack([points[h], proposal]))
        moved[h] = proposal
        expected = density(moved) - density(points)
        assert there.log_marginal - here.log_marginal == pytest.approx(
            expected, rel=1e-6, abs=1e-5
        )
        regression.put(h, there)
        points = moved


def _log_marginal(phi, Y, noise):
    """Return log p(Y) with the weights integrated out, up to what phi does not change, in 50
    digits.
    """
    with mpmath.workdps(50):
        features_, values = mpmath.matrix(phi.tolist()), mpmath.matrix(Y.tolist())
        gram = features_.T * features_ + noise * mpmath.eye(phi.shape[1])
        side = features_.T * values
        explained = side.T * mpmath.inverse(gram) * side
        square = sum(explained[m, m] for m in range(Y.shape[1])) / noise
        return (square - Y.shape[1] * mpmath.log(mpmath.det(gram / noise))) / 2


@pytest.mark.parametrize("noise", [1e-2, 1e-5, 1e-8, 1e-12])
@pytest.mark.parametrize("scale", [1.0, 0.01])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_proposals_are_right_however_small_the_noise(noise, scale):
    """One row far above the others makes variances large beside the noise: determinants of
    updated inverses were negative, and numpy warned of their logarithms.
    """
    rng = np.random.default_rng(0)
    x, Y = rng.standard_normal((12, 2)), rng.standard_normal((12, 2))
    points, amplitude = scale * rng.standard_normal((3, 2)), np.full(3, 0.4)
    parts = [(np.arange(12), Y)]
    regression = WeightsIntegrated.of(x, points, amplitude, parts, noise)
    phi = features(x, points, amplitude)
    for h in range(3):
        point = scale * rng.standard_normal((1, 2))
        proposed = regression.without(h, points[h])(point)[0]
        others = np.delete(phi, [h, 3 + h], axis=1)
        phi[:, [h, 3 + h]] = features(x, point, amplitude[:1])
        expected = _log_marginal(phi, Y, noise) - _log_marginal(others, Y, noise)
        assert proposed.log_marginal == pytest.approx(float(expected), rel=1e-6)
        regression.put(h, proposed)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_basis_stays_orthonormal_where_cosine_and_sine_leave_the_same(dim):
    """With a row fewer than features, cosine and sine leave one direction and their priors: a
    basis of what projections left of them was orthogonal to the other features to 11 digits.
    """
    rng = np.random.default_rng(dim)
    x, points, amplitude = rng.normal(size=(5, dim)), rng.normal(size=(3, dim)), np.ones(3)
    parts = [(np.arange(5), rng.normal(size=(5, 2)))]
    moved = WeightsIntegrated.of(x, points, amplitude, parts, 1e-14)
    for move in range(180):
        likelihoods = moved.without(move % 3, points[move % 3])
        moved.put(move % 3, likelihoods(rng.normal(size=(1, dim)))[0])
    basis = moved.parts[0][1].basis
    np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=6e-15)


@pytest.mark.parametrize("holes", [True, False])
def test_rows_of_a_gaussian_view_are_worth_what_their_densities_say(holes):
    view = GaussianView("a", ViewData.of(data(9, 3, holes=holes)), (0, 1), 4, Priors())
    state = view.prior_state(np.random.default_rng(3), 3)
    rows, x = np.array([7, 2, 5]), np.random.default_rng(4).normal(size=(2, 3, 2))
    whole = [
        view.log_prob(view.phi(state, at) @ state.weights, state.parameter, rows).sum(1)
        for at in x
    ]
    ours = [view.row_objective(state, at, rows) for at in x]
    np.testing.assert_allclose(ours[1] - ours[0], whole[1] - whole[0], rtol=1e-10)


def test_a_frequency_stays_where_no_angle_is_accepted():
    """An empty batch was looked at when the angles had come to an end."""
    rng = np.random.default_rng(0)
    x, Y = rng.standard_normal((5, 2)), rng.standard_normal((5, 3))
    form = GaussianForm(Y, np.ones_like(Y))
    points, amplitude = rng.standard_normal((3, 2)), np.full(3, 0.5)
    weights = np.zeros((6, 3))
    regression = GivenOtherWeights(x, amplitude, weights, np.zeros_like(Y), form, rng)
    likelihoods = regression.without(0, points[0])

    def unknown(proposed):
        return [replace(value, log_marginal=np.nan) for value in likelihoods(proposed)]

    point, value, _ = elliptical_slice(points[0], np.zeros(2), np.eye(2), unknown, rng)
    np.testing.assert_array_equal(point, points[0])
    assert np.isnan(value.log_marginal)
