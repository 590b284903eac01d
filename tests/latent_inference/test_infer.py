"""Placement: the target's derivatives, its value, and what the modes say, in D = 1, 2, 3."""

import math

import numpy as np
import pytest
import torch

from bochner.features.fourier import fourier_features
from bochner.kernels.base import Frequencies
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.latent_inference import infer
from bochner.latent_inference.infer import place
from bochner.latent_inference.modes import Placement, _weighed, solved
from bochner.latent_inference.row_bound import target_for
from bochner.likelihoods.likelihood import Gaussian
from bochner.linalg import newton_step, positive_definite, positive_inverse
from bochner.prediction.decoding import complete, decode, draw_latents, sample_at
from bochner.random import generator
from bochner.regression.evidence import view_evidence
from bochner.regression.observations import CompleteBlock
from bochner.weight_posterior.conditioning import SharedDraw
from bochner.weight_posterior.posterior import ViewPosterior


def _view(
    dim: int,
    m: int = 40,
    n: int = 200,
    paired: bool = True,
    seed: int = 0,
    s2: float = 0.05,
    n_draws: int = 2,
):
    """A view whose weights were conditioned on data drawn from the model, and those data."""
    source = generator(seed, "place", dim)
    kernel = (NextGenSpectralMixture if paired else SpectralMixture)().initial(2, dim, source)
    f = kernel.frequencies(kernel.noise(16, dim, source, "iid")).detach()
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    phi = fourier_features(x, f)
    Y = phi.T @ torch.randn(phi.shape[0], m, generator=source, dtype=torch.float64)
    Y += math.sqrt(s2) * torch.randn(n, m, generator=source, dtype=torch.float64)
    inverse = torch.linalg.inv(phi @ phi.T + s2 * torch.eye(phi.shape[0], dtype=phi.dtype))
    draw = SharedDraw(f, inverse @ phi @ Y, inverse[None])
    return (
        ViewPosterior.of(
            "a", (draw,) * n_draws, torch.zeros(m, dtype=torch.int64), Gaussian(s2)
        ),
        x,
        Y,
    )


def test_points_of_rows_with_holes_of_their_own_are_evaluated_together_and_apart_alike():
    view, _, Y = _view(2)
    y = Y[:4].clone()
    y[0, 3], y[1, 4:38], y[2, :20] = torch.nan, torch.nan, torch.nan  # few holes, many, half
    target = target_for([view], [y], 2, shared=False)
    rows = torch.tensor([0, 0, 1, 3, 3, 3, 2])
    x = torch.randn(len(rows), 2, generator=generator(6, "x"), dtype=torch.float64)
    together = target.evaluate(x, rows)
    for i, row in enumerate(rows.tolist()):
        alone = target_for([view], [y[[row]]], 2, shared=True).evaluate(
            x[[i]], torch.zeros(1, dtype=torch.int64)
        )
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[i], b[0], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_target_is_the_rows_bound_and_its_derivatives_are_right(dim, paired, shared):
    view, _, Y = _view(dim, paired=paired)
    y = Y[:4].clone()
    y[:, 3] = torch.nan
    if not shared:
        y[1, 5:9] = torch.nan
    target, rows = target_for([view], [y], dim, shared), torch.arange(4)
    x = torch.randn(4, dim, generator=generator(5, "x"), dtype=torch.float64)
    phi, s2 = view.draws[0].features(x), view.noise_variance
    mean, spread = (
        phi @ view.draws[0].mean,
        torch.einsum("nk,kl,nl->n", phi, view.draws[0].covariance[0], phi),
    )
    # E log N(y; phi^T a, s2) over a ~ N(m, s2 B^-1)
    entries = -0.5 * (
        math.log(2 * math.pi * s2)
        + (torch.nan_to_num(y) - mean).square() / s2
        + spread[:, None]
    )
    prior = -0.5 * (x.square().sum(1) + dim * math.log(2 * math.pi))
    value, gradient, hessian = target.evaluate(x, rows)
    if shared:
        torch.testing.assert_close(target.table(x).diagonal(), value)
        torch.testing.assert_close(
            target.table(x)[1], target.evaluate(x, torch.ones(4, dtype=torch.int64))[0]
        )
    torch.testing.assert_close(value, (entries * ~y.isnan()).sum(1) + prior)
    step = 1e-5
    for d in range(dim):
        shift = torch.zeros(dim, dtype=torch.float64)
        shift[d] = step
        up, down = target.evaluate(x + shift, rows), target.evaluate(x - shift, rows)
        torch.testing.assert_close(
            (up[0] - down[0]) / (2 * step), gradient[:, d], rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(
            (up[1] - down[1]) / (2 * step), hessian[:, d], rtol=1e-5, atol=1e-4
        )


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_rows_drawn_from_the_model_return_to_their_latents(dim):
    view, x, Y = _view(dim)
    placed = place([view], x, [Y])
    error = (placed.mean - x) / placed.std
    assert float(error.abs().median()) < 1.5  # in posterior standard deviations
    assert 0.5 < float(error.square().mean().sqrt()) < 2.0


def test_placing_a_training_row_does_not_move_it():
    """The envelope theorem: in a training latent the collapsed bound has the gradient of the row's
    own bound.
    """
    view, x, Y = _view(2, n=60)
    f, s2 = view.draws[0].frequencies, torch.tensor(view.noise_variance, dtype=torch.float64)
    x.requires_grad_()
    collapsed = view_evidence(x, f, s2, (CompleteBlock.of(Y),)) - 0.5 * x.square().sum()
    (expected,) = torch.autograd.grad(collapsed, x)
    _, gradient, _ = target_for([view], [Y], 2, True).evaluate(
        x.detach(), torch.arange(len(x))
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_row_does_not_depend_on_its_batch(dim, share):
    view, x, Y = _view(dim)
    Y = Y[:70].clone()
    Y[torch.rand(Y.shape, generator=generator(3, "holes")) < share] = torch.nan
    together = place([view], x, [Y])
    for i in (0, 17, 69):
        alone = place([view], x, [Y[i : i + 1]])
        # rounding of double precision, times the condition of the row's Hessian
        rounding = 1e-14 * float(torch.linalg.cond(together.covariances[i, 0]))
        apart = (alone.mean[0] - together.mean[i]) / together.std[i]
        assert float(apart.abs().max()) < 10.0 * rounding + 1e-12
        np.testing.assert_allclose(alone.std[0], together.std[i], rtol=10.0 * rounding + 1e-11)


def test_fewer_observed_entries_mean_wider_posteriors_and_none_means_the_prior():
    view, x, Y = _view(2)
    full, half, none = (
        Y[:50],
        Y[:50].clone(),
        torch.full((1, Y.shape[1]), torch.nan, dtype=torch.float64),
    )
    half[:, 4:] = torch.nan
    assert float(place([view], x, [half]).std.mean()) > 1.5 * float(
        place([view], x, [full]).std.mean()
    )
    prior = place([view], x, [none])
    assert prior.mean.abs().max() == 0
    torch.testing.assert_close(prior.std, torch.ones(1, 2, dtype=torch.float64))


def test_a_row_with_two_plausible_places_says_so():
    # One column that is an even function of x: +x and -x explain it equally well.
    f = (
        SpectralMixture([1.0], [[1.0]], [[1e-6]])
        .frequencies(torch.zeros(1, 1, 1, dtype=torch.float64))
        .detach()
    )
    mean = torch.tensor([[3.0], [0.0]], dtype=torch.float64)  # 3 cos(x)
    draw = SharedDraw(f, mean, 1e-4 * torch.eye(2, dtype=torch.float64)[None])
    view = ViewPosterior.of("a", (draw,), torch.zeros(1, dtype=torch.int64), Gaussian(1e-3))
    grid = torch.linspace(-2, 2, 41, dtype=torch.float64)[:, None]
    placed = place([view], grid, [torch.tensor([[3.0 * math.cos(1.0)]], dtype=torch.float64)])
    assert abs(float(placed.mean)) == pytest.approx(1.0, abs=0.02)
    assert float(placed.weights.sort(descending=True).values[0, 1]) == pytest.approx(
        0.5, abs=0.01
    )
    # half the weight lies 2 away
    assert float(placed.std) == pytest.approx(math.sqrt(2.0), rel=0.005)


def test_completion_and_draws_agree_and_cover():
    view, x, Y = _view(2, n=400)
    observed = Y[:300].clone()
    observed[:, 20:] = torch.nan
    placed = place([view], x, [observed])
    mean, variance = complete([view], placed)
    hidden = Y[:300, 20:]
    inside = ((hidden - mean[:, 20:]).abs() < 1.645 * variance[:, 20:].sqrt()).double().mean()
    assert 0.85 < float(inside) < 0.95
    places, source = draw_latents(placed, 400, seed=0), generator(0, "draws")
    draws = torch.stack([sample_at([view], places[:, i], source) for i in range(400)])
    z = (draws.mean(0) - mean) / (variance / 400).sqrt()
    assert float(z.square().mean()) == pytest.approx(1.0, abs=0.05)


def test_modes_without_weight_take_no_part_in_a_completion():
    view, _, _ = _view(2)
    source = generator(8, "modes")
    modes = torch.randn(5, 3, 2, generator=source, dtype=torch.float64)
    weights = torch.tensor(
        [[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]
    )
    covariances = 0.01 * torch.eye(2, dtype=torch.float64).expand(5, 3, 2, 2)
    mean, variance = complete(
        [view], Placement(modes, covariances, weights.double(), torch.zeros(5, 0))
    )
    each = [decode([view], modes[:, r], covariances[:, r]) for r in range(3)]
    share = weights.double().T[..., None]
    expected = sum(w * m for w, (m, _) in zip(share, each, strict=True))
    torch.testing.assert_close(mean, expected)
    spread = sum(
        w * (v + (m - expected).square()) for w, (m, v) in zip(share, each, strict=True)
    )
    torch.testing.assert_close(variance, spread)


def test_in_many_dimensions_rows_climb_from_their_best_start_to_a_maximum():
    view, x, Y = _view(16, m=120, n=300, s2=0.01)
    placed = place([view], x, [Y[:6]])
    assert placed.modes.shape == (6, 1, 16)
    target = target_for([view], [Y[:6]], 16, shared=True)
    _, gradient, hessian = target.evaluate(placed.mean, torch.arange(6))
    step = torch.linalg.solve(-hessian, gradient[..., None])[..., 0]
    assert float(step.norm(dim=1).max()) < 2e-3  # of single precision
    assert float(torch.linalg.eigvalsh(hessian).max()) < 0


def test_newton_steps_and_inverses_by_factors_are_those_by_eigenvectors():
    source = generator(9, "newton")
    roots = torch.randn(6, 3, 3, generator=source, dtype=torch.float64)
    precision = roots @ roots.mT
    precision[:3] += 2.0 * torch.eye(3, dtype=torch.float64)
    precision[3] -= 4.0 * torch.eye(3, dtype=torch.float64)  # no maximum
    gradient, radius = (
        torch.randn(6, 3, generator=source, dtype=torch.float64),
        torch.full((6,), 0.4).double(),
    )
    values, vectors = torch.linalg.eigh(precision)
    along = (vectors.mT @ gradient[..., None])[..., 0]
    full = (vectors @ (along / values.abs())[..., None])[..., 0]
    step, gain = newton_step(gradient, -precision, radius)
    torch.testing.assert_close(
        step, full * (radius / full.norm(dim=1)).clamp(max=1.0)[:, None]
    )
    torch.testing.assert_close(gain, 0.5 * (along.square() / values.abs()).sum(1))
    inverse = vectors @ torch.diag_embed(1.0 / values.clamp(min=1.0)) @ vectors.mT
    result, log_volume = positive_inverse(precision)
    torch.testing.assert_close(result, inverse)
    torch.testing.assert_close(log_volume, torch.logdet(inverse))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_modes_are_stationary_and_their_covariances_those_of_a_fresh_hessian(dim):
    view, x, Y = _view(dim)
    placed = place([view], x, [Y])
    best, index = placed.modes[:, 0], torch.arange(len(Y))
    _, gradient, hessian = target_for([view], [Y], dim, shared=True).evaluate(best, index)
    step = torch.linalg.solve(-hessian, gradient[..., None])[..., 0]
    assert float(step.norm(dim=1).max()) < 1e-8
    precision = torch.linalg.inv(placed.covariances[:, 0])
    torch.testing.assert_close(precision, -hessian, rtol=1e-7, atol=1e-5)


class _Far:
    """A bound of size 1e20, of which 25 nats are rounding."""

    covariates = torch.zeros(4, 0)
    settles_climbs = False

    def to(self, dtype):
        return self

    def rounding(self, dtype):
        return torch.zeros(4, dtype=torch.float64)

    def value(self, x):
        return -1e20 - 0.5 * x.square().sum(1)

    def evaluate(self, x, rows):
        value = self.value(x)
        return value, -x, -torch.eye(x.shape[1], dtype=x.dtype).expand(len(x), -1, -1).clone()


class _Overflowing(_Far):
    """A bound that single precision has no number for."""

    def value(self, x):
        value = -0.5 * x.square().sum(1)
        return value if x.dtype == torch.float64 else value + torch.nan


@pytest.mark.parametrize("target", [_Far(), _Overflowing()])
def test_the_best_mode_is_kept_where_rounding_hides_what_a_mode_weighs(target):
    # no climb was kept, and the last steps had no rows
    starts = torch.tensor([[[0.3, -0.2], [1.0, 0.5]]], dtype=torch.float64).expand(4, -1, -1)
    result = solved(target, starts, True).placement
    np.testing.assert_allclose(result.mean.numpy(), 0.0, atol=1e-6)


def _wavy(n: int):
    """A view of waves 0.014 long in five dimensions: Newton's steps are chaotic, with a thousand
    modes in a standard deviation.
    """
    source = generator(3, "wavy")
    normal = {"generator": source, "dtype": torch.float64}
    points = torch.randn(3, 5, **normal) * torch.tensor([[200.0], [30.0], [2.0]])
    amplitude = torch.full((3,), 3.0**-0.5, dtype=torch.float64)
    covariance = 0.01 * torch.eye(6, dtype=torch.float64)[None]
    draw = SharedDraw(
        Frequencies(points, None, amplitude), 0.5 * torch.randn(6, 4, **normal), covariance
    )
    view = ViewPosterior.of("a", (draw,), torch.zeros(4, dtype=torch.int64), Gaussian(0.3))
    return view, torch.randn(500, 5, **normal), torch.randn(n, 4, **normal)


@pytest.mark.parametrize("holes", [False, True])
def test_rows_lie_where_they_lie_alone_though_a_rounding_decides_where_climbs_end(holes):
    view, candidates, Y = _wavy(300)
    if holes:
        Y[::2, 1] = torch.nan
    together = place([view], candidates, [Y]).mean
    backwards = place([view], candidates, [Y.flip(0)]).mean.flip(0)
    torch.testing.assert_close(backwards, together, rtol=0, atol=1e-3)
    alone = torch.cat([place([view], candidates, [y[None]]).mean for y in Y[:60]])
    torch.testing.assert_close(alone, together[:60], rtol=0, atol=1e-3)


@pytest.mark.parametrize("dim", [2, 5])
def test_few_rows_of_ordinary_data_climb_again(dim, monkeypatch):
    view, x, Y = _view(dim)
    exact = []
    at_first = infer.solved_exactly

    def counted(target, starts, sides):
        exact.append(len(starts))
        return at_first(target, starts, sides)

    monkeypatch.setattr(infer, "solved_exactly", counted)
    place([view], x, [Y])
    assert sum(exact) <= 6


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_saddle_is_no_mode_where_there_are_others(dim):
    """Its Laplace evidence would be the larger one: that of a curvature that is not there."""
    eye = torch.eye(dim, dtype=torch.float64)
    saddle = torch.diag(torch.tensor([50.0, *[-30.0] * (dim - 1)], dtype=torch.float64))
    x = torch.arange(6 * dim, dtype=torch.float64).reshape(6, dim)
    value = torch.tensor([-3.0, -3.5, -torch.inf, -3.0, -torch.inf, -3.5], dtype=torch.float64)
    hessian = torch.stack([saddle, -500.0 * eye, -eye, saddle, -eye, saddle])
    placed = _weighed(x, value, hessian, x.new_zeros(2, 0))
    assert placed.weights[0].tolist() == [1.0, 0.0, 0.0]
    torch.testing.assert_close(placed.mean[0], x[1])
    # of saddles alone the better one is all there is
    torch.testing.assert_close(placed.mean[1], x[3])
    rounded = -500.0 * eye.clone()
    rounded[0, 0] = 1e-7
    assert positive_definite(torch.stack([-saddle, 500.0 * eye, -rounded])).tolist() == [
        False,
        True,
        dim > 1,
    ]
