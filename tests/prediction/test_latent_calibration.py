"""Standard deviations of latents are those of the posterior, in D = 1, 2, 3."""

import pytest
import torch

from bochner.latent_inference.grid import OnGrid, grid_points, resolved
from bochner.latent_inference.infer import place
from bochner.latent_inference.mixtures import Modes, reaching
from bochner.latent_inference.modes import Placement
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.likelihoods.poisson import Poisson
from bochner.prediction import latent_calibration
from bochner.prediction.latent_calibration import LEVELS, Check, check, widened
from bochner.prediction.row_batch import by_draw, log_likelihood
from bochner.prediction.row_posterior import (
    latent_limits,
    latent_std,
    predictive_placement,
)
from helpers.posteriors import (
    count_view,
    drawn_rows,
    gaussian_view,
    half_seen_view,
    log_joint_of,
    nodes_that_count,
)


def _exact(view, y, centre, n_nodes):
    """Geometric mean of the posterior's root mean square distance from a place and of the widths of
    its 50 and 95 % intervals about it, by the trapezoidal rule.
    """
    dim = centre.shape[1]
    side = torch.linspace(-6, 6, n_nodes, dtype=torch.float64)
    out = []
    for row, z in zip(view.encode(y), centre, strict=True):
        grid, joint = nodes_that_count(log_joint_of(view, row), side, dim)
        share = joint.softmax(0)
        away, order = (grid - z).abs().sort(0)
        held = share[order].cumsum(0)
        root = (share[:, None] * (grid - z).square()).sum(0).sqrt()
        for level, reach in ((0.5, 0.6745), (0.95, 1.96)):
            width = away.gather(0, (held < level).sum(0, keepdim=True))[0] / reach
            root = root * width.sqrt()
        out.append(root.sqrt())
    return torch.stack(out)


# What rows may be off on average, in logarithms; 0.011, 0.22 and 0.003 were measured.
@pytest.mark.parametrize(
    ("kind", "n_nodes", "off"), [(1, 4001, 0.02), (2, 241, 0.25), ("counts", 4001, 0.01)]
)
def test_standard_deviations_are_those_of_the_posterior(kind, n_nodes, off):
    dim = 1 if kind == "counts" else kind
    view, x = gaussian_view(dim, key="std")
    if kind == "counts":
        view, x = count_view(Poisson(), 10, 1.0, 1.0, key="std counts")
    _, y = drawn_rows(view, dim, 40)
    y[::4, :6] = torch.nan
    placement = place([view], x, [y])
    exact = _exact(view, y, placement.mean, n_nodes)
    ratio = latent_std([view], x, placement, [y], [None]) / exact
    assert 0.93 < float(ratio.median()) < 1.07
    assert float(ratio.log().abs().mean()) < off
    before = placement.std / exact
    assert float(ratio.log().abs().mean()) < float(before.log().abs().mean())


@pytest.mark.parametrize(("dim", "n_nodes"), [(1, 801), (2, 101)])
def test_modes_where_weights_are_uncertain_are_not_missed(dim, n_nodes):
    """E log p is hundreds of nats below log E p there: deviations were up to 16 times too small,
    2.6 and 2.2 on average.
    """
    view, x = half_seen_view(Poisson(), dim)
    _, y = drawn_rows(view, dim, 60 // dim)
    placement = place([view], x, [y])
    std = latent_std([view], x, placement, [y], [None])
    side = torch.linspace(-5, 5, n_nodes, dtype=torch.float64)
    exact = []
    for row, z in zip(view.encode(y), placement.mean, strict=True):
        grid, joint = nodes_that_count(log_joint_of(view, row), side, dim)
        share = joint.softmax(0)
        exact.append((share[:, None] * (grid - z).square()).sum(0).sqrt())
    ratio = torch.stack(exact) / std
    assert float(ratio.square().mean().sqrt()) < 1.4
    assert float(ratio.max()) < 6.0


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_latents_of_drawn_rows_lie_within_their_intervals(dim):
    view, candidates = gaussian_view(dim, key="std")
    x, y = drawn_rows(view, dim, 600)
    placement = place([view], candidates, [y])
    observed = [torch.ones(4, 12, dtype=torch.bool)]
    widening = check([view], candidates, observed, seed=5).excess
    std = widened(latent_std([view], candidates, placement, [y], [None]), widening)
    away = (x - placement.mean) / std
    assert 0.93 < float((away.abs() < 1.96).double().mean()) < 0.97
    assert 0.4 < float((away.abs() < 0.6745).double().mean()) < 0.56
    assert 0.85 < float(away.square().mean().sqrt()) < 1.15


@pytest.mark.parametrize("kind", [1, 2, 3, "counts"])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_hold_what_they_say_at_both_levels(kind, level):
    dim = 1 if kind == "counts" else kind
    view, candidates = gaussian_view(dim, key="std")
    if kind == "counts":
        view, candidates = count_view(Poisson(), 10, 1.0, 1.0, key="std counts")
    x, y = drawn_rows(view, dim, 1200 // dim)
    placement = place([view], candidates, [y])
    observed = [torch.ones(4, y.shape[1], dtype=torch.bool)]
    share = check([view], candidates, observed, seed=5).share(level)
    low, high = latent_limits([view], candidates, placement, [y], [None], level, share)[1:]
    assert bool((low < high).all())
    held = float(((low < x) & (x < high)).double().mean())
    assert abs(held - level) < (0.05 if level == 0.5 else 0.025)


def test_limits_of_one_latent_are_quantiles_where_rows_say_little():
    """The mode is where a row fits best, and a tail reaches as far as the prior lets it:
    limits about modes alone were up to 0.22 off.
    """
    view, x = count_view(NegativeBinomial(1.0), 4, 0.5, 2.0, key="std skewed")
    _, y = drawn_rows(view, 1, 40)
    placement = place([view], x, [y])
    grid = torch.linspace(-6, 6, 1201, dtype=torch.float64)[:, None]
    limits = latent_limits([view], x, placement, [y], [None], 0.8, 0.8)[1:]
    n_inside = 0
    for i, row in enumerate(view.encode(y)):
        joint = log_likelihood(by_draw([view], [row.expand(len(grid), -1)]), grid, [None])
        share = (joint - 0.5 * grid.square().sum(1)).softmax(0)
        # the others' limits reach their places
        if not 0.16 < float(share[grid[:, 0] < placement.mean[i]].sum()) < 0.84:
            continue
        n_inside += 1
        for limit, wanted in zip(limits, (0.1, 0.9), strict=True):
            assert abs(float(share[grid[:, 0] < limit[i]].sum()) - wanted) < 0.02
    assert n_inside > 20


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_limits_reach_places_that_the_predictive_density_rules_out(dim, level):
    """Of one latent 11 of 40 places lay outside of their 80 % limits."""
    view, x = half_seen_view(Poisson(), dim)
    if dim == 1:
        view, x = count_view(NegativeBinomial(1.0), 4, 0.5, 2.0, key="std skewed")
    _, y = drawn_rows(view, dim, 40)
    placement = place([view], x, [y])
    low, high = latent_limits([view], x, placement, [y], [None], level, level)[1:]
    assert bool(((low < placement.mean) & (placement.mean < high)).all())


def _at(centre, variance):
    """A place of one row, in one dimension."""
    where = torch.full((1, 1, 1), centre, dtype=torch.float64)
    covariance = torch.full((1, 1, 1, 1), variance, dtype=torch.float64)
    return Placement(where, covariance, torch.ones(1, 1).double(), torch.zeros(1, 0))


@pytest.mark.parametrize("on_grid", [False, True])
def test_a_place_that_is_ruled_out_counts_for_half(on_grid):
    if on_grid:
        points = grid_points()[:, 0]
        posterior = OnGrid.of((-0.5 * ((points - 1.0) / 0.2).square()).softmax(0)[None])
    else:
        mode = (torch.ones(1, 1, 1), torch.full((1, 1, 1, 1), 0.04), torch.zeros(1, 1))
        posterior = Modes(*(part.double() for part in mode))
    both = reaching(posterior, _at(-2.0, 0.09))
    for x, wanted in ((-2.0, 0.25), (-2.3, 0.5 * 0.158655), (0.0, 0.5), (1.2, 0.920672)):
        below = both.distribution(torch.full((1, 1), x, dtype=torch.float64))
        assert float(below) == pytest.approx(wanted, abs=5e-3)
    # 15 % beyond it are enough, and less changes little by little
    assert reaching(posterior, _at(0.8, 0.09)) is posterior
    nearly = reaching(posterior, _at(0.79, 0.09)).distribution(torch.zeros(1, 1).double())
    assert float(nearly) == pytest.approx(0.0, abs=5e-3)


@pytest.mark.parametrize("noise", [1e-2, 1e-3])
def test_narrow_posteriors_of_one_latent_are_not_put_on_a_grid(noise):
    view, candidates = gaussian_view(1, s2=noise**2, key="std narrow")
    x, y = drawn_rows(view, 1, 200)
    placement = place([view], candidates, [y])
    std = latent_std([view], candidates, placement, [y], [None])
    assert float(std.median()) < noise
    low, high = latent_limits([view], candidates, placement, [y], [None], 0.95, 0.95)[1:]
    assert float((high - low).median()) < 4.0 * noise
    away = (x - placement.mean).abs() / std
    assert 0.4 < float((away < 0.6745).double().mean()) < 0.6


def test_a_grid_resolves_what_is_wide_and_inside():
    points = grid_points()[:, 0]
    centre = torch.tensor([0.0, 1.0, 0.0, 4.99, -2.0]).double()
    width = torch.tensor([1.0, 0.06, 0.03, 0.5, 0.3]).double()
    shares = (-0.5 * ((points - centre[:, None]) / width[:, None]).square()).softmax(1)
    weights = torch.tensor([[1.0], [1.0], [1.0], [1.0], [1.0]]).double()
    covariances = width.square()[:, None, None, None].clone()
    covariances[4] = 0.01**2  # a mode between the points
    placement = Placement(centre[:, None, None], covariances, weights, torch.zeros(5, 0))
    assert resolved(shares, placement).tolist() == [True, True, False, False, False]
    posterior = OnGrid.of(shares[:1])
    nothing = torch.zeros(1, 1).double()
    torch.testing.assert_close(
        posterior.normal_std_about(nothing), nothing + 1.0, rtol=2e-3, atol=0
    )
    for share in (0.025, 0.5, 0.9):
        expected = torch.special.ndtri(nothing + share)
        torch.testing.assert_close(posterior.quantile(share), expected, rtol=0, atol=2e-3)
        back = posterior.distribution(posterior.quantile(share))
        torch.testing.assert_close(back, nothing + share)


def test_the_first_place_of_a_posterior_on_a_grid_is_its_middle():
    """Categories are completed from it: from the lowest quantile, every other was wrong."""
    points = grid_points()[:, 0]
    shares = (-0.5 * ((points - 1.0) / 0.4).square()).softmax(0)[None]
    places, covariances, weights = OnGrid.of(shares).places()
    assert abs(float(places[0, 0, 0]) - 1.0) < 0.05
    assert float(places.std()) > 0.3
    variance = weights * ((places[..., 0] - 1.0).square() + covariances[..., 0, 0])
    assert float(variance.sum()) == pytest.approx(0.16, rel=0.02)
    assert float((weights * places[..., 0]).sum()) == pytest.approx(1.0)


def test_a_far_mode_of_small_probability_leaves_the_others_as_narrow_as_they_are():
    """All places had the variance that it brings: entries were predicted 1.6 nats too well."""
    points = grid_points()[:, 0]
    near, far = (
        (-0.5 * ((points - centre) / 0.15).square()).softmax(0) for centre in (0.5, -3.0)
    )
    shares = (0.97 * near + 0.03 * far)[None]
    places, covariances, weights = (part.flatten() for part in OnGrid.of(shares).places())
    about = (points - 0.5).abs() < 1.0
    held = weights * (places - 0.5).abs().lt(1.0)
    assert float(held.sum()) == pytest.approx(float(shares[0, about].sum()), abs=1e-3)
    variance = held @ (covariances + (places - 0.5).square()) / held.sum()
    assert float(variance) == pytest.approx(0.15**2, rel=0.02)


def test_counts_are_completed_from_places_as_uncertain_as_they_are():
    """The bound's modes take weights for known better than they are."""
    view, candidates = count_view(Poisson(), 10, 1.0, 1.0, key="std counts")
    x, y = drawn_rows(view, 1, 400)
    bound = place([view], candidates, [y])
    off = []
    for placed in (bound, predictive_placement([view], candidates, bound, [y], [None])):
        weights = placed.weights[..., None]
        centre = (weights * placed.modes).sum(1)
        spread = torch.diagonal(placed.covariances, dim1=-2, dim2=-1)
        variance = (weights * (spread + (placed.modes - centre[:, None]).square())).sum(1)
        off.append(float(((x - centre).square() / variance).mean().sqrt()))
    assert 0.85 < off[1] < 1.15
    assert off[0] > off[1]


def test_intervals_of_two_far_modes_leave_out_what_lies_between():
    means = torch.tensor([[[-2.0], [2.0]]]).double()
    modes = Modes(means, torch.full((1, 2, 1, 1), 0.01).double(), torch.zeros(1, 2).double())
    torch.testing.assert_close(modes.quantile(0.25), torch.tensor([[-2.0]]).double())
    torch.testing.assert_close(modes.quantile(0.75), torch.tensor([[2.0]]).double())
    for share in (0.01, 0.3, 0.9):
        back = modes.distribution(modes.quantile(share))
        torch.testing.assert_close(back, torch.full((1, 1), share).double())


def test_distribution_functions_end_at_one():
    """Weights add up to it but for rounding, by which a file of shares was none."""
    source = torch.Generator().manual_seed(0)
    weights = torch.randn(200, 40, generator=source, dtype=torch.float64)
    means, covariances = torch.zeros(200, 40, 1), torch.ones(200, 40, 1, 1)
    modes = Modes(means.double(), covariances.double(), weights)
    assert float(weights.softmax(1).sum(1).max()) > 1.0
    points = torch.randn(200, len(grid_points()), generator=source, dtype=torch.float64)
    for posterior in (modes, OnGrid.of(points.softmax(1))):
        for x in (6.0, 60.0):
            below = posterior.distribution(torch.full((200, 1), x).double())
            assert bool((below <= 1.0).all())
            assert bool((below > 0.99).all())


def test_what_nothing_tells_of_has_the_intervals_of_the_prior():
    view, candidates = gaussian_view(2, key="std")
    y = torch.full((2, 12), torch.nan, dtype=torch.float64)
    y[1] = drawn_rows(view, 2, 1)[1]
    placement = place([view], candidates, [y])
    low, high = latent_limits([view], candidates, placement, [y], [None], 0.95, 0.999)[1:]
    expected = torch.full((2,), 1.959964, dtype=torch.float64)
    torch.testing.assert_close((-low[0], high[0]), (expected, expected), atol=1e-6, rtol=0)
    assert float((high - low)[1].max()) < 2 * 1.959964


def test_levels_between_those_that_were_measured_are_interpolated():
    kept = Check(0.0, tuple(level**2 for level in LEVELS))
    assert kept.share(0.5) == pytest.approx(0.25)
    assert kept.share(0.505) == pytest.approx(0.5 * (0.25 + 0.51**2))
    assert kept.share(0.995) == pytest.approx(0.5 * (0.99**2 + 1.0))


def test_quantiles_of_exact_posteriors_are_not_corrected():
    """What some hundred drawn rows say of them is chance: levels were off by a fiftieth."""
    view, candidates = count_view(NegativeBinomial(1.0), 4, 0.5, 2.0, key="std skewed")
    _, y = drawn_rows(view, 1, 40)
    placement = place([view], candidates, [y])
    limits = [
        latent_limits([view], candidates, placement, [y], [None], 0.8, share)[1:]
        for share in (0.8, 0.7)
    ]
    same = (limits[0][0] == limits[1][0])[:, 0]
    assert float(same.double().mean()) > 0.8
    # narrow ones are mixtures of modes
    view, candidates = gaussian_view(1, s2=1e-4, key="std narrow")
    _, y = drawn_rows(view, 1, 40)
    placement = place([view], candidates, [y])
    low, high = latent_limits([view], candidates, placement, [y], [None], 0.8, 0.8)[1:]
    less, more = latent_limits([view], candidates, placement, [y], [None], 0.8, 0.7)[1:]
    assert float((more - less < high - low).double().mean()) > 0.9


def test_fewer_rows_of_very_many_columns_are_drawn(monkeypatch):
    """480 rows of 20,000 counts took two minutes."""
    drawn = []

    def counted(views, candidates, rows, **how):
        drawn.append(len(rows[0]))
        return place(views, candidates, rows, **how)

    monkeypatch.setattr(latent_calibration, "place", counted)
    for m in (12, 20_000):
        view, candidates = gaussian_view(2, m=m, n=30)
        checked = check([view], candidates, [torch.ones(1, m, dtype=torch.bool)], 0)
        assert -0.7 <= checked.excess < 8.0
    assert drawn[0] == 480
    assert 100 < drawn[1] < 240


def test_excess_widens_where_the_data_decide():
    view, candidates = gaussian_view(2, key="std")
    _, y = drawn_rows(view, 2, 50)
    placement = place([view], candidates, [y])
    plain = latent_std([view], candidates, placement, [y], [None])
    wider = widened(plain, 0.5)
    expected = plain.square() * (1.0 + 0.5 * (1.0 - plain.square()).clamp(min=0.0))
    torch.testing.assert_close(wider.square(), expected)


def test_a_row_without_entries_has_the_prior_whatever_lacks_elsewhere():
    view, candidates = gaussian_view(2, key="std")
    y = torch.full((2, 12), torch.nan, dtype=torch.float64)
    y[1] = drawn_rows(view, 2, 1)[1]
    placement = place([view], candidates, [y])
    std = widened(latent_std([view], candidates, placement, [y], [None]), 3.0)
    assert std[0].tolist() == [1.0, 1.0]
    assert float(std[1].max()) < 1.0


def test_rows_do_not_depend_on_their_batch_to_three_digits():
    view, candidates = gaussian_view(2, key="std")
    _, y = drawn_rows(view, 2, 60)
    y[::3, :5] = torch.nan
    placement = place([view], candidates, [y])
    together = latent_std([view], candidates, placement, [y], [None])
    alone = [
        latent_std([view], candidates, placement.of(torch.tensor([i])), [y[i : i + 1]], [None])
        for i in range(60)
    ]
    torch.testing.assert_close(torch.cat(alone), together, rtol=1e-3, atol=0)


def test_in_many_dimensions_the_curvature_at_the_place_counts():
    view, candidates = gaussian_view(16, m=60, n=200, key="std")
    x, y = drawn_rows(view, 16, 60)
    placement = place([view], candidates, [y])
    std = latent_std([view], candidates, placement, [y], [None])
    near = (x - placement.mean).abs().amax(1) < 1.0  # rows that were not lost
    away, before = (
        (x - placement.mean)[near] / deviation[near] for deviation in (std, placement.std)
    )
    assert (
        0.7 < float(away.square().mean().sqrt()) < 0.9 * float(before.square().mean().sqrt())
    )
