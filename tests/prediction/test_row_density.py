"""Densities of rows are the integrals over their latents, and standard errors say how nearly."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from bochner.likelihoods.binomial import Bernoulli, Binomial
from bochner.likelihoods.poisson import Poisson
from bochner.prediction.decoding import sample_at
from bochner.prediction.row_batch import Batch, by_draw, log_likelihood, row_keys
from bochner.prediction.row_density import log_density
from bochner.random import generator
from helpers.posteriors import (
    count_view,
    drawn_rows,
    gaussian_view,
    half_seen_view,
    log_joint_of,
    nodes_that_count,
)


def _integral(view, rows, dim, n_nodes, reach=9):
    """The density of every row by the trapezoidal rule: exact for smooth integrands that vanish."""
    side = torch.linspace(-reach, reach, n_nodes, dtype=torch.float64)
    factor = dim * (math.log(float(side[1] - side[0])) - 0.5 * math.log(2 * math.pi))
    out = []
    for y in view.encode(rows):
        _, joint = nodes_that_count(log_joint_of(view, y), side, dim)
        out.append(joint.logsumexp(0) + factor)
    return torch.stack(out)


def _rows(view, dim, n, seed=3):
    """Rows drawn from the model, the second without an entry."""
    _, y = drawn_rows(view, dim, n, seed)
    y[1, 1] = torch.nan
    return y


def _agree(result, expected):
    density, error = result
    away = (density - expected).abs()
    assert bool((away < 5.0 * error).all()), (away / error).max()
    assert float(away.max()) < 0.3
    assert float((away / error).square().mean().sqrt()) < 1.5


@pytest.mark.parametrize(
    ("dim", "n_nodes", "reach", "s2"),
    [(1, 20001, 9, 0.01), (1, 4001, 9, 0.3), (2, 131, 6, 0.3)],
)
def test_densities_are_the_integrals(dim, n_nodes, reach, s2):
    view, x = gaussian_view(dim, s2=s2)
    y = _rows(view, dim, 12)
    _agree(log_density([view], x, [y], seed=1), _integral(view, y, dim, n_nodes, reach))


def test_rows_unlike_all_training_rows_have_their_density():
    view, x = gaussian_view(1)
    y = 1.5 * torch.randn(8, 12, generator=generator(4, "strange"), dtype=torch.float64)
    density, _ = log_density([view], x, [y], seed=1)
    expected = _integral(view, y, 1, 4001)
    assert float((density - expected).abs().max()) < 0.5


def test_densities_of_rows_that_lie_far_out_are_the_integrals():
    """1.4 nats were missing of rows of one latent whose modes lay between far points."""
    view, x = gaussian_view(1, m=60)
    y = 2.0 * drawn_rows(view, 1, 30)[1]
    _agree(log_density([view], x, [y], seed=0), _integral(view, y, 1, 20001))


def _short(view, candidates, n, seed, hidden):
    """By how much densities of rows drawn from a view are below the evidence, by Laplace's method,
    of the modes near where they were drawn: a part of them.
    """
    x, y = drawn_rows(view, candidates.shape[1], n, seed)
    y[torch.rand(y.shape, generator=generator(seed, "holes")) < hidden] = torch.nan
    keys, beside = row_keys(["a"], [y]), torch.zeros(n, 0, dtype=torch.float64)
    batch = Batch([view], [y], by_draw([view], [y]), [None], keys, 0, beside)
    part = batch.modes_near(x).log_weights.logsumexp(1) - math.log(len(view.draws))
    density, _ = log_density([view], candidates, [y], seed=0)
    return float((part - density).max())


@pytest.mark.parametrize(
    ("dim", "seed", "hidden"),
    [
        (2, 0, 0.0),
        (3, 0, 0.3),
        (3, 3, 0.3),
        (5, 0, 0.0),
        (5, 1, 0.3),
        (5, 2, 0.3),
        (5, 3, 0.3),
    ],
)
def test_rows_of_little_noise_have_the_mode_where_they_were_drawn(dim, seed, hidden):
    """Of one row in sixty no climb had reached it, and thousands of nats were missing."""
    view, candidates = gaussian_view(dim, m=30, n=300, s2=1e-4, seed=seed)
    assert _short(view, candidates, 100, seed, hidden) < 1.0


@pytest.mark.parametrize(
    ("dim", "rate", "seed", "hidden"),
    [(3, 1e6, 0, 0.0), (3, 1e8, 3, 0.3), (4, 3e3, 0, 0.3), (4, 3e3, 2, 0.3), (5, 1e6, 3, 0.0)],
)
def test_rows_of_large_counts_have_the_mode_where_they_were_drawn(dim, rate, seed, hidden):
    """Hundreds to hundreds of thousands of nats were missing of one row in a hundred."""
    view, _ = count_view(Poisson(), 30, math.log(rate), 0.3, seed, dim=dim)
    certain = 1e-5 * torch.eye(view.draws[0].mean.shape[0], dtype=torch.float64)[None]
    view = replace(view, draws=tuple(replace(d, covariance=certain) for d in view.draws))
    candidates = torch.randn(300, dim, generator=generator(seed, "c"), dtype=torch.float64)
    assert _short(view, candidates, 100, seed, hidden) < 1.0


@pytest.mark.parametrize(("rate", "n_nodes"), [(1e3, 4001), (1e5, 20001)])
def test_densities_of_large_counts_are_the_integrals(rate, n_nodes):
    view, x = count_view(Poisson(), 8, math.log(rate), 0.5)
    y = _rows(view, 1, 10)
    _agree(log_density([view], x, [y], seed=1), _integral(view, y, 1, n_nodes))


def test_modes_of_counts_where_weights_are_uncertain_are_not_missed():
    """0.34 nats were missing of a row of forty, 0.6 in three dimensions."""
    view, x = half_seen_view(Poisson(), 2)
    _, y = drawn_rows(view, 2, 40)
    density, error = log_density([view], x, [y], seed=0)
    away = density - _integral(view, y, 2, 111, reach=5)
    assert float(away.abs().max()) < 0.25
    assert float(error.max()) < 0.06


def test_densities_of_all_outcomes_sum_to_one():
    view, x = count_view(Bernoulli(), 3, 0.0, 2.0)
    y = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=torch.float64)
    density, error = log_density([view], x, [y], seed=1)
    spread = float((density.exp() * error).square().sum().sqrt())
    assert abs(float(density.exp().sum()) - 1.0) < 4.0 * spread
    assert spread < 0.03


@pytest.mark.parametrize("dim", [4, 6])
def test_samples_that_told_where_a_proposal_goes_do_not_count_against_it(dim):
    """The densities of all outcomes summed to 0.96 and to 0.93."""
    view, x = count_view(Binomial(10), 2, 0.0, 3.0, dim=dim)
    outcomes = list(itertools.product(range(11), repeat=2))
    y = torch.tensor(outcomes, dtype=torch.float64)
    sums, squares = [], []
    for seed in range(3):
        density, error = log_density([view], x, [y], seed)
        sums.append(float(density.exp().sum()))
        squares.append(float((density.exp() * error).square().sum()))
    spread = math.sqrt(sum(squares)) / 3
    assert abs(sum(sums) / 3 - 1.0) < 3.0 * spread
    assert spread < 0.01


@pytest.mark.parametrize("seed", range(5))
def test_probabilities_of_rows_that_say_little_of_latents_are_sure_and_at_most_one(seed):
    """Noise of the prior's weights alone made log probabilities of -0.02 positive."""
    view, x = count_view(Bernoulli(), 4, -6.0, 0.2)
    y = torch.zeros(1, 4, dtype=torch.float64)
    density, error = log_density([view], x, [y], seed)
    expected = _integral(view, y, 1, 4001)
    assert float(density) < 0.0
    assert float(error) < 0.002
    assert float((density - expected).abs()) < 5.0 * float(error) + 1e-4


def test_standard_errors_are_those_over_seeds():
    view, x = gaussian_view(2, s2=0.3)
    y = _rows(view, 2, 6)
    expected = _integral(view, y, 2, 131, reach=6)
    result = [log_density([view], x, [y], seed) for seed in range(30)]
    z = torch.stack([(density - expected) / error for density, error in result])
    assert 0.5 < float(z.square().mean().sqrt()) < 1.2  # parts have their share of the samples
    assert (
        abs(float(torch.stack([density for density, _ in result]).mean(0)[0] - expected[0]))
        < 0.05
    )


def test_standard_errors_know_where_few_samples_carry_much():
    """One error of forty was more than four standard errors."""
    view, x = count_view(Poisson(), 8, 1.0, 1.0)
    y = _rows(view, 1, 60)
    expected = _integral(view, y, 1, 2001, reach=7)
    result = [log_density([view], x, [y], seed) for seed in range(4)]
    z = torch.stack([(density - expected) / error for density, error in result])
    assert float((z.abs() > 4.0).double().mean()) < 0.015
    assert float(z.square().mean().sqrt()) < 1.15


def test_rows_have_noise_of_their_own_whatever_rows_are_beside_them():
    view, x = gaussian_view(2)
    y = _rows(view, 2, 8)
    together, error = log_density([view], x, [y], seed=1)
    turned, _ = log_density([view], x, [y.flip(0)], seed=1)
    torch.testing.assert_close(turned.flip(0), together, rtol=0, atol=1e-9)
    alone, _ = log_density([view], x, [y[3:4]], seed=1)
    torch.testing.assert_close(alone, together[3:4], rtol=0, atol=1e-9)
    other, _ = log_density([view], x, [y], seed=2)
    moved = (other - together) / error
    assert float(moved.std()) > 0.2  # a common error would move all rows alike


def test_a_row_without_entries_has_density_one():
    view, x = gaussian_view(2)
    y = torch.full((2, 12), torch.nan, dtype=torch.float64)
    y[1] = 0.0
    density, error = log_density([view], x, [y], seed=1)
    assert float(density[0]) == 0.0
    assert float(error[0]) == 0.0
    assert float(error[1]) > 0.0


def test_views_that_share_a_latent_are_integrated_together():
    first, x = gaussian_view(1, m=3, s2=0.3)
    second, _ = gaussian_view(1, m=3, s2=0.3, seed=1)
    y, source = [], generator(5, "views")
    z = torch.randn(6, 1, generator=source, dtype=torch.float64)
    y = [sample_at([view], z, source) for view in (first, second)]
    side = torch.linspace(-9, 9, 4001, dtype=torch.float64)[:, None]
    expected = []
    for a, b in zip(*y, strict=True):
        rows = [a.expand(4001, -1), b.expand(4001, -1)]
        joint = log_likelihood(by_draw([first, second], rows), side, [None, None])
        joint = joint - 0.5 * (side[:, 0].square() + math.log(2 * math.pi))
        expected.append(joint.logsumexp(0) + math.log(18.0 / 4000))
    _agree(log_density([first, second], x, y, seed=1), torch.stack(expected))


def test_keys_depend_on_values_alone():
    y = torch.randn(5, 4, generator=generator(6, "keys"), dtype=torch.float64)
    y[0, 2] = torch.nan
    a, b = y[:, :2].contiguous(), y[:, 2:].contiguous()
    keys = row_keys(["a", "b"], [a, b])
    assert len(set(keys)) == 5
    assert row_keys(["b", "a"], [b, a]) == keys
    assert row_keys(["a", "b"], [a[3:], b[3:]]) == keys[3:]
    assert row_keys(["a", "b"], [a * (1.0 + 1e-15), b]) == keys
    assert row_keys(["a", "b"], [b, a]) != keys
