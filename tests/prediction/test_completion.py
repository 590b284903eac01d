"""Completion of whole views: the mixture's moments, its draws, and the choice between it and the
row's modes.
"""

import math
import warnings

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.kernels.spectral_mixture import SpectralMixture
from bochner.latent_inference.infer import place
from bochner.likelihoods.likelihood import Gaussian
from bochner.prediction import tempering
from bochner.prediction.completion import (
    Mixture,
    _paired,
    complete,
    draw_latents,
    draw_rows,
    mixed_moments,
)
from bochner.prediction.decoding import complete as complete_by_modes
from bochner.prediction.decoding import decode
from bochner.prediction.row_posterior import predictive_placement
from bochner.prediction.tempering import (
    TEMPERATURES,
    Choice,
    HiddenViews,
    density,
    hidden,
    learn,
)
from bochner.random import generator
from bochner.weight_posterior.conditioning import SharedDraw
from bochner.weight_posterior.posterior import ViewPosterior

NAN = float("nan")


def _views(dim: int, s2: float, n: int = 120, m: int = 6):
    """Two views of the same latents, their weights conditioned on data drawn from the model, and
    those data.
    """
    source = generator(3, "completion", dim)
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    views, data = [], []
    for name in ("a", "b"):
        kernel = SpectralMixture().initial(2, dim, source)
        f = kernel.frequencies(kernel.noise(8, dim, source, "iid")).detach()
        draw = SharedDraw(f, torch.zeros(f.n_features, m, dtype=torch.float64), torch.zeros(1))
        phi = draw.features(x)
        weights = torch.randn(f.n_features, m, generator=source, dtype=torch.float64)
        Y = phi @ weights + math.sqrt(s2) * torch.randn(
            n, m, generator=source, dtype=torch.float64
        )
        inverse = torch.linalg.inv(
            phi.T @ phi + s2 * torch.eye(f.n_features, dtype=torch.float64)
        )
        draw = SharedDraw(f, inverse @ phi.T @ Y, inverse[None])
        views.append(
            ViewPosterior.of(name, (draw,), torch.zeros(m, dtype=torch.int64), Gaussian(s2))
        )
        data.append(Y)
    return views, x, data


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_hidden_view_is_the_tempered_mixture_over_the_candidates(dim):
    views, x, (a, _) = _views(dim, 0.1)
    rows = [a[:4], torch.full((4, 6), NAN, dtype=torch.float64)]
    mean, variance = complete(views, Mixture(x, {"a": 1.0, "b": 0.25}), rows)
    # by hand: w_j ~ exp(tau E log p(y_a | x_j, A)), then the law of total variance
    made, (decoded, noise) = views[0].draws[0], decode(views[1:], x)
    phi = made.features(x)
    expected = -0.5 * (
        torch.cdist(a[:4], phi @ made.mean).square() / 0.1
        + 6 * made.spread(phi, views[0].group_of)[:, 0]
    )
    weights = (0.25 * expected).softmax(1)
    torch.testing.assert_close(mean[:, 6:], weights @ decoded)
    second = torch.einsum("nj,njm->nm", weights, (decoded[None] - mean[:, None, 6:]).square())
    torch.testing.assert_close(variance[:, 6:], weights @ noise + second)
    torch.testing.assert_close(mean[:, :6], a[:4])  # what was observed stays


def test_holes_within_a_view_come_from_the_modes_and_so_do_rows_without_a_temperature():
    views, x, (a, b) = _views(2, 0.1)
    a, b = a[:5].clone(), b[:5].clone()
    a[0, 2] = NAN  # a hole only
    a[1, 3], b[1] = NAN, NAN  # a hole and a missing view
    b[2] = NAN  # a missing view
    b[3], a[3] = NAN, NAN  # nothing observed
    found = predictive_placement(views, x, place(views, x, [a, b]), [a, b], [None, None])
    placed = complete_by_modes(views, found)
    mixed = complete(views, Mixture(x, {"a": 0.5, "b": 0.5}), [a, b])
    # climbs are in single precision, and batches differ
    near = {"rtol": 1e-5, "atol": 1e-5}
    for got, modes in zip(mixed, placed, strict=True):
        torch.testing.assert_close(got[0, 2], modes[0, 2], **near)
        torch.testing.assert_close(got[1, 3], modes[1, 3], **near)
        torch.testing.assert_close(got[3], modes[3], **near)
        assert not torch.allclose(got[1:3, 6:], modes[1:3, 6:])
    none = complete(views, Mixture(x, {"a": None, "b": None}), [a, b])
    # what a row shows stays
    shown = torch.cat([a, b], dim=1)
    for got, modes, otherwise in zip(
        none, placed, (shown, 0.0 * shown.nan_to_num()), strict=True
    ):
        torch.testing.assert_close(got, torch.where(shown.isnan(), modes, otherwise), **near)
    assert bool((none[1][4] == 0).all())  # nothing was asked of a row without holes


def test_draws_have_the_moments_of_the_mixture_and_share_one_latent():
    views, x, (a, b) = _views(2, 0.1)
    rows = [a[:3], torch.full_like(b[:3], NAN)]
    mixture, n = Mixture(x, {"a": 0.3, "b": 0.3}), 4000
    mean, variance = complete(views, mixture, rows)
    draws = draw_rows(views, mixture, rows, n, seed=0)
    assert bool((draws[:, :, :6] == a[:3]).all())
    z = (draws.mean(0) - mean)[:, 6:] / (variance[:, 6:] / n).sqrt()
    assert float(z.abs().max()) < 5
    torch.testing.assert_close(
        draws.var(0)[:, 6:], variance[:, 6:], rtol=5 * (2 / n) ** 0.5, atol=0.0
    )
    assert torch.equal(
        draw_rows(views, mixture, rows, 2, seed=1), draw_rows(views, mixture, rows, 2, seed=1)
    )


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("n_draws", [1, 200])
def test_a_draw_of_a_row_is_of_one_place_where_it_lacks_a_view_and_parts_of_another(
    dim, n_draws
):
    """Both distributions stay what they are, and their draws are paired."""
    views, x, (a, _) = _views(dim, 0.3)
    n = 200 // n_draws
    some = a[:1].repeat(n, 1)
    some[:, 2:] = NAN
    mixture = Mixture(x, {"a": 1.0, "b": 1.0})
    rows = [some, torch.full((n, 6), NAN, dtype=torch.float64)]
    by_mode, mixed = (
        part.reshape(-1, dim) for part in draw_latents(views, mixture, rows, n_draws, seed=0)
    )
    assert len(by_mode) == len(mixed) == 200
    paired = (by_mode - mixed).square().sum(1).mean()
    apart = torch.cdist(by_mode, mixed).square().mean()
    assert float(paired) < 0.4 * float(apart)
    mean, _ = complete(views, mixture, rows)
    draws = draw_rows(views, mixture, rows, n_draws, seed=0).reshape(-1, 12)
    z = (draws.mean(0) - mean[0])[2:] / (draws.std(0)[2:] / math.sqrt(200))
    assert float(z.abs().max()) < 5


def test_draws_at_one_place_are_paired_as_they_are():
    one = torch.full((2, 64, 1), 1.3, dtype=torch.float64)
    assert torch.equal(_paired(one, one), one)


@pytest.mark.filterwarnings("error")
def test_nothing_is_paired_where_no_row_has_both_kinds_of_holes():
    views, x, (a, b) = _views(2, 0.3)
    lacks = [a[:3], torch.full_like(b[:3], NAN)]
    draw_rows(views, Mixture(x, {"a": 1.0, "b": 1.0}), lacks, 2, seed=0)


def test_exact_data_choose_the_modes_and_views_that_agree_less_than_the_model_thinks_a_low_temperature():  # noqa: E501
    views, x, data = _views(1, 1e-4)
    # rows lie between the candidates: Newton's steps find them
    assert learn(views, x, x[None], data, seed=0)["b"].exponent is None
    views, x, (a, b) = _views(2, 0.01, n=300)
    # what the views share is seen through something of view a's own that its noise does not account
    # for
    private = 0.5 * torch.randn(300, 1, generator=generator(7, "own"), dtype=torch.float64)
    low = learn(views, x, x[None], [a + private, b], seed=0)["b"].exponent
    assert low in [value for value in TEMPERATURES if value <= 0.25]
    assert learn(views, x, x[None], [a, b], seed=0)["b"].exponent in (None, *TEMPERATURES[:5])


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_views_are_hidden_all_at_once_as_one_by_one(dim, monkeypatch):
    views, x, (a, b) = _views(dim, 0.1)
    third = ViewPosterior.of("c", views[0].draws, views[0].group_of, Gaussian(0.2))
    views, rows = [*views, third], [a[:40].clone(), b[:40].clone(), b[:40].flip(0)]
    rows[0][::3, :2], rows[1][5:9], rows[2][2] = NAN, NAN, NAN
    known = HiddenViews(views, x[40:], rows, [None] * 3)
    asked = {v: known.informative(v) for v in (0, 1, 2)}
    assert [len(index) for index in asked.values()] == [40, 36, 39]
    together = known.by_modes(asked)
    monkeypatch.setattr(tempering, "_NUMBERS", 18 * 7)  # seven rows at a time
    in_parts = known.by_modes(asked)
    for v, index in asked.items():
        shown = hidden([y[index] for y in rows], v)
        columns = slice(6 * v, 6 * v + 6)
        for exponent, got in (
            (None, together[v]),
            (None, in_parts[v]),
            (0.5, known.by_mixture(v, index, [0.5])[0]),
        ):
            mixture = Mixture(x[40:], dict.fromkeys("abc", exponent))
            mean, variance = complete(views, mixture, shown)
            alone = density(rows[v][index], mean[:, columns], variance[:, columns])
            # climbs are in single precision, and batches differ
            torch.testing.assert_close(got, alone, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_few_rows_say_nothing_of_degrees_of_freedom(n):
    """torch warned of a standard deviation of one row."""
    X = np.random.default_rng(100).normal(size=(n, 5))
    views = {"a": slice(0, 2), "b": slice(2, 5)}
    model = bo.NGMVLVM(1, views=views, max_iter=20, random_state=0, init="pca").fit(X)
    X[0, :2] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(model.impute(X)).all()


def test_rows_are_placed_until_it_is_clear_whether_modes_are_better(monkeypatch):
    views, x, data = _views(1, 1e-4, n=200)
    placed = []
    by_modes = HiddenViews.by_modes

    def recorded(self, asked):
        placed.append({v: len(index) for v, index in asked.items()})
        return by_modes(self, asked)

    monkeypatch.setattr(HiddenViews, "by_modes", recorded)
    early = learn(views, x, x[None], data, seed=0)
    assert placed[0] == {0: 40, 1: 40}
    assert placed[-1] == {}
    placed.clear()
    monkeypatch.setattr(tempering, "_CLEAR", math.inf)
    assert learn(views, x, x[None], data, seed=0) == early
    assert placed == 5 * [{0: 40, 1: 40}]


def test_variances_of_mixtures_survive_means_that_are_large_beside_them():
    mean = 1e9 + torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    variance = torch.full_like(mean, 1e-4)
    weights = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    m, v = mixed_moments(weights, mean, variance)
    torch.testing.assert_close(m[:, 0] - 1e9, torch.tensor([0.5, 0.0], dtype=torch.float64))
    torch.testing.assert_close(
        v[:, 0], torch.tensor([0.2501, 0.0001], dtype=torch.float64), rtol=1e-6, atol=0.0
    )


def test_one_view_has_nothing_to_choose_and_views_never_seen_together_get_one():
    views, x, (a, b) = _views(2, 0.1)
    assert learn(views[:1], x, x[None], [a], seed=0) == {}
    a, b = a.clone(), b.clone()
    a[:60], b[60:] = NAN, NAN
    assert learn(views, x, x[None], [a, b], seed=0) == {"a": Choice(1.0), "b": Choice(1.0)}


def test_places_that_are_known_need_not_be_found_again():
    views, x, (a, b) = _views(2, 0.1)
    a, b = a[:4].clone(), b[:4].clone()
    a[0, 2], b[2, 1], a[3], b[3] = NAN, NAN, NAN, NAN
    mixture, rows = Mixture(x, {"a": 0.5, "b": 0.5}), [a, b]
    known = complete(views, mixture, rows, placed=place(views, x, rows))
    for one, other in zip(known, complete(views, mixture, rows), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_a_row_with_nothing_observed_has_the_moments_of_draws(likelihood):
    """Over all latent space functions are far from linear: slopes at its middle do not tell."""
    rng = np.random.default_rng(5)
    t = rng.normal(size=120)
    clean = np.c_[np.sin(1.5 * t), t, np.cos(t), 0.5 * t**2]
    Y = clean + 0.15 * rng.normal(size=clean.shape)
    Y = rng.poisson(np.exp(clean)).astype(float) if likelihood == "poisson" else Y
    model = bo.NGMVLVM(
        1, likelihood=likelihood, init="pca", n_frequencies=16, max_iter=60, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(Y)
    empty = np.full((2, 4), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, std = model.impute(empty, return_std=True)
        draws = model.impute(empty, n_draws=4000)
    np.testing.assert_array_equal(mean[0], mean[1])
    error = draws.std(axis=0) / np.sqrt(4000)
    assert (np.abs(mean - draws.mean(axis=0)) < 4.0 * error + 0.02).all()
    np.testing.assert_allclose(std, draws.std(axis=0), rtol=0.12)
