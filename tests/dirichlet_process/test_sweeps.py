"""Dirichlet process kernels in training: prior, blocks, mergers, and what a short fit finds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import bochner as bo
from bochner import random
from bochner.dirichlet_process import sweeps
from bochner.dirichlet_process.sweeps import MixtureSweep, bounded_step
from bochner.errors import InputError
from bochner.features.fourier import fourier_features
from bochner.kernels import RBF, DirichletProcessMixture, SpectralMixture
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.dirichlet_posterior import (
    expected_log_weights,
    kernel_kl,
    merge_alike,
    rebirth,
    set_assignments,
    sticks_of,
    update_concentration,
    update_sticks,
)
from bochner.models.lvm import GaussianLatents, LatentVariableModel, View
from bochner.objectives.elbo import draw, elbo
from bochner.regression.observations import CompleteBlock
from bochner.training.trainer import Options, Trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]

H, T = 12, 5


def kernel_of(seed: int = 0, rows: int = H) -> DirichletProcessMixture:
    return DirichletProcessMixture(n_points=rows).initial(T, 2, random.generator(seed, "k"))


def uneven(kernel: DirichletProcessMixture) -> DirichletProcessMixture:
    """With components of very different sizes, the largest neither first nor last."""
    logits = torch.tensor([0.0, 1.0, 3.0, -2.0, 2.0], dtype=torch.float64).expand(
        len(kernel.phi), -1
    )
    set_assignments(kernel, logits + 0.1 * kernel.get_buffer("log_phi"))
    return kernel


def toy(seed: int = 0):
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 2, generator=source)
    truth = SpectralMixture([0.6, 0.4], [[0.0, 0.0], [2.5, 0.0]], [[0.4, 0.4], [0.2, 0.2]])
    K = truth(x.double()).detach() + 1e-8 * torch.eye(40, dtype=torch.float64)
    Y = torch.linalg.cholesky(K) @ torch.randn(40, 8, generator=source, dtype=torch.float64)
    Y = Y + 0.3 * torch.randn(40, 8, generator=source, dtype=torch.float64)
    latents = GaussianLatents(x, torch.full_like(x, math.log(0.05)))
    model = LatentVariableModel(latents, [View("x", kernel_of(seed), Gaussian(0.2))])
    return model, ((CompleteBlock.of(Y.float()),),)


# The kernel


def test_it_is_a_spectral_mixture_with_the_mean_of_q():
    kernel, x = (
        uneven(kernel_of()),
        torch.randn(6, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    )
    same = SpectralMixture(
        kernel.phi.mean(0), kernel.means.detach(), kernel.log_scales.exp().detach()
    )
    torch.testing.assert_close(kernel(x), same(x))


@pytest.mark.parametrize("sampling", ["iid", "orthogonal", "sobol"])
def test_points_choose_their_own_components(sampling):
    phi = torch.zeros(4, 3, dtype=torch.float64)
    phi[0, 2] = phi[1, 0] = phi[2, 1] = 1.0
    phi[3] = torch.tensor([0.25, 0.25, 0.5])
    kernel = DirichletProcessMixture(phi, [[-9.0], [0.0], [9.0]], [[0.1], [0.1], [0.1]])
    z = torch.stack(
        [
            kernel.assign(kernel.noise(4, 1, random.generator(s, "z"), sampling))
            for s in range(600)
        ]
    )
    assert (z[:, 0] == 2).all()
    assert (z[:, 1] == 0).all()
    assert (z[:, 2] == 1).all()
    share = torch.stack([(z[:, 3] == k).double().mean() for k in range(3)])
    assert (share - phi[3]).abs().max() < 5 * math.sqrt(0.25 / 600)
    noise = kernel.noise(8, 1, random.generator(0, "z"), sampling)
    f = kernel.frequencies(noise).detach()  # two points for each row of phi
    assert (f.first[:2] - 9).abs().max() < 1
    assert f.amplitude.square().sum() == pytest.approx(1.0)


def test_features_with_points_of_their_own_are_unbiased():
    kernel, x = (
        uneven(kernel_of(rows=4)),
        torch.randn(5, 2, generator=torch.Generator().manual_seed(1)).double(),
    )
    with torch.no_grad():
        kernel.get_buffer("log_phi")[0] = torch.tensor([0.9, 0.025, 0.025, 0.025, 0.025]).log()
        draws = [
            fourier_features(
                x, kernel.frequencies(kernel.noise(16, 2, random.generator(s, "f"), "iid"))
            )
            for s in range(300)
        ]
        grams = torch.stack([f.T @ f for f in draws])
        error = (grams.mean(0) - kernel(x)).abs() / (grams.std(0) / 300**0.5 + 1e-12)
    assert error.fill_diagonal_(0.0).max() < 5


def test_a_number_of_points_that_does_not_fit_is_refused():
    with pytest.raises(
        InputError,
        match=r"Expected a multiple of 12 spectral points.*got 10. Type n_frequencies=12",
    ):
        kernel_of().frequencies(kernel_of().noise(10, 2, random.generator(0, "n"), "iid"))


def test_values_are_readable_and_sorted():
    values = uneven(kernel_of()).values()
    assert set(values) == {"proportions", "means", "scales", "variance", "concentration"}
    assert (values["proportions"].diff() <= 0).all()
    assert float(values["proportions"].sum()) == pytest.approx(1.0)
    largest = uneven(kernel_of())
    torch.testing.assert_close(values["means"][0], largest.means[2].detach())


# Prior and closed-form blocks


def test_other_kernels_cost_nothing():
    assert float(kernel_kl(RBF())) == 0.0


def test_closed_form_blocks_never_raise_the_divergence():
    for seed in range(5):
        kernel = uneven(kernel_of(seed))
        with torch.no_grad():  # q(v) and q(alpha) anywhere
            kernel.get_buffer("stick_a").copy_(
                torch.rand(T - 1, generator=torch.Generator().manual_seed(seed)) * 9 + 0.1
            )
            kernel.get_buffer("concentration").copy_(torch.tensor([7.0, 0.5 + seed]))
        cost = float(kernel_kl(kernel))
        for step in range(12):
            (update_sticks if step % 2 == 0 else update_concentration)(kernel)
            now = float(kernel_kl(kernel))
            assert now <= cost + 1e-10
            cost = now
        shape, rate = kernel.get_buffer("concentration")
        assert float(shape) == pytest.approx(1.0 + T - 1)
        assert float(shape / rate) != pytest.approx(1.0, abs=0.05), (
            "the concentration left its prior's mean"
        )


def test_sticks_take_the_better_order():
    kernel = uneven(kernel_of())
    update_sticks(kernel)
    counts = kernel.phi.sum(0)
    assert kernel.get_buffer("order").tolist() == counts.argsort(descending=True).tolist()
    weights = expected_log_weights(kernel)
    assert weights.argmax() == counts.argmax() == 2
    torch.testing.assert_close(
        weights[kernel.get_buffer("order")], sticks_of(kernel).expected_log_weights()
    )


def test_the_elbo_counts_the_posterior_of_the_process():
    model, data = toy()
    draws = draw(model, H, "sobol", 0, "t", 0)
    with torch.no_grad():
        bound = elbo(model, data, draws)
        cost = kernel_kl(model.views[0].kernel)
    assert float(cost) > 0.1
    torch.testing.assert_close(bound.kl, model.latents.kl() + cost)
    torch.testing.assert_close(bound.total, bound.views[0] - bound.kl)


# {z} and mergers


def test_a_bounded_step_stays_within_its_radius_and_reaches_an_optimum_that_is_near():
    log_phi = torch.zeros(4, 3, dtype=torch.float64).log_softmax(1)
    far = torch.tensor([[500.0, 0.0, -300.0]], dtype=torch.float64).expand(4, -1)
    moved = bounded_step(log_phi, far, 1.0, 0.05)
    divergence = (moved.exp() * (moved - log_phi)).sum(1).mean()
    assert 0.01 < divergence <= 0.05
    assert (moved.argmax(1) == 0).all()
    torch.testing.assert_close(moved.exp().sum(1), torch.ones(4, dtype=torch.float64))
    near = torch.tensor([[0.1, 0.0, -0.1]], dtype=torch.float64).expand(4, -1)
    torch.testing.assert_close(bounded_step(log_phi, near, 1.0, 0.05), near.log_softmax(1))


def test_assignments_whose_gains_are_not_finite_stay():
    log_phi = torch.randn(
        4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).log_softmax(1)
    target = torch.zeros_like(log_phi)
    target[0, 1], target[2, 0] = torch.nan, -torch.inf
    moved = bounded_step(log_phi, target, 0.5, 1.0)
    torch.testing.assert_close(moved[[0, 2]], log_phi[[0, 2]])
    assert not torch.allclose(moved[[1, 3]], log_phi[[1, 3]])


def test_merging_twins_changes_no_kernel_and_costs_less():
    phi = torch.zeros(H, 15, dtype=torch.float64)
    phi[:, :3] = torch.tensor([0.5, 0.2, 0.3])
    for sign in (1.0, -1.0):  # a mirror image is a twin too
        means = [[1.0, 2.0], [0.0, -4.0], [sign, 2.0 * sign], *[[0.0, 0.0]] * 12]
        kernel = DirichletProcessMixture(phi, means, [[0.5, 0.3]] * 15)
        for _ in range(50):
            update_sticks(kernel)
            update_concentration(kernel)
        x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        before, cost = kernel(x).detach(), float(kernel_kl(kernel))
        assert merge_alike(kernel)
        torch.testing.assert_close(kernel(x).detach(), before)
        assert sorted(kernel.proportions.tolist())[-3:] == pytest.approx([0.0, 0.2, 0.8])
        assert float(kernel_kl(kernel)) < cost - 0.5


def test_mergers_match_moments_and_need_two():
    phi = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    kernel = DirichletProcessMixture(phi.expand(H, -1), [[0.0], [4.0]], [[1.0], [2.0]])
    assert merge_alike(kernel)
    used = int(kernel.proportions.argmax())
    assert float(kernel.means[used].detach()) == pytest.approx(3.0)
    assert float((2 * kernel.log_scales[used].detach()).exp()) == pytest.approx(
        0.25 * (1 + 9) + 0.75 * (4 + 1)
    )
    assert not merge_alike(kernel), "one is left"


def test_unused_components_are_born_elsewhere_and_change_next_to_nothing():
    phi = torch.zeros(H, 4, dtype=torch.float64)
    phi[:, :2] = torch.tensor([0.7, 0.3])
    kernel = DirichletProcessMixture(phi, [[1.0], [0.0], [5.0], [6.0]], [[0.5]] * 4)
    x = torch.randn(6, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before = kernel(x).detach()
    rebirth(kernel, random.generator(0, "b"))
    assert (kernel(x).detach() - before).abs().max() < 2e-3
    assert kernel.means[:2].tolist() == [[1.0], [0.0]]
    assert (kernel.means[2:] - torch.tensor([[5.0], [6.0]])).abs().min() > 1e-3
    assert (kernel.phi[:, 2:] > 1e-4).all(), "they can grow from there"
    full = uneven(kernel_of(rows=200))  # all are in use
    kept = full.means.detach().clone()
    rebirth(full, random.generator(0, "b"))
    assert torch.equal(full.means, kept)


def test_a_peak_that_no_component_begins_near_is_found():
    """The truth has a peak at 5 radians per unit, the start has all components near 0."""
    source = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, generator=source)
    truth = SpectralMixture([0.5, 0.5], [[0.0], [5.0]], [[0.4], [0.3]])
    K = truth(x.double()).detach() + 1e-8 * torch.eye(60, dtype=torch.float64)
    Y = torch.linalg.cholesky(K) @ torch.randn(60, 20, generator=source, dtype=torch.float64)
    data = ((CompleteBlock.of((Y + 0.2 * torch.randn(60, 20, generator=source)).float()),),)
    phi = torch.full((20, 20), 0.2 / 19, dtype=torch.float64)
    phi[:, 0] = 0.8
    kernel = DirichletProcessMixture(phi, 0.02 * torch.arange(20.0)[:, None], [[0.3]] * 20)
    latents = GaussianLatents(x, torch.full_like(x, -9.0))
    model = LatentVariableModel(latents, [View("x", kernel, Gaussian(0.1))])
    trainer = Trainer(
        torch.nn.ModuleList(model.views),
        lambda s: elbo(model, data, draw(model, 20, "sobol", 0, "t", s)).total,
        1200,
        Options(300, 0.03, -math.inf),
        between=sweeps.sweeps(model, data, 20, "sobol", 0),
    )
    trainer.run()
    values = kernel.values()
    there = (values["means"][:, 0].abs() - 5.0).abs() < 0.5
    assert 0.25 < float(values["proportions"][there].sum()) < 0.75


def test_sweeps_record_every_block_and_their_draws_are_shared():
    model, data = toy()
    sweep = MixtureSweep(model, data, H, "sobol", 0)
    for number in range(0, 60, 10):
        records = sweep.sweep(number)
        assert [name for _, name, _ in records] == [
            "gradient",
            "z",
            "merge",
            "birth",
            "v",
            "alpha",
        ]
        bounds = {name: bound for _, name, bound in records}
        assert bounds["v"] >= bounds["birth"] - 1e-9
        assert bounds["alpha"] >= bounds["v"] - 1e-9
        with torch.no_grad():
            same = float(elbo(model, data, draw(model, H, "sobol", 0, "blocks", number)).total)
        assert same == pytest.approx(bounds["alpha"], abs=1e-6)


def test_where_sites_stand_for_entries_q_of_z_has_to_keep_its_promise():
    source = np.random.default_rng(0)
    x = source.normal(size=(60, 2))
    counts = source.negative_binomial(
        0.3, 0.3 / (0.3 + np.exp(4.0 + np.sin(x @ source.normal(size=(2, 25)))))
    )
    settings = {
        "n_frequencies": 20,
        "n_mixtures": 4,
        "max_iter": 200,
        "init": "pca",
        "random_state": 0,
    }
    model = bo.SRFLVM(2, likelihood="negative_binomial", **settings).fit(counts.astype(float))
    rise = model.block_history_["z"] - model.block_history_["gradient"]
    assert (rise >= 0.0).all()
    assert (rise > 0.0).any()


def test_q_of_z_climbs_while_the_rest_stays():
    model, data = toy()
    sweep = MixtureSweep(model, data, H, "sobol", 0)

    def value() -> float:
        with torch.no_grad():
            return float(
                torch.stack(
                    [
                        elbo(model, data, draw(model, H, "sobol", 1, "e", i)).total
                        for i in range(48)
                    ]
                ).mean()
            )

    before = value()
    for number in range(0, 400, 10):
        sweep.sweep(number)
    assert value() > before + 3.0


def test_training_goes_through_the_blocks_and_rewinds_with_them():
    model, data = toy()
    between = sweeps.sweeps(model, data, H, "sobol", 0)
    trainer = Trainer(
        model,
        lambda s: elbo(model, data, draw(model, H, "sobol", 0, "t", s)).total,
        320,
        Options(30, 0.02, 0.0),
        between=between,
    )
    trainer.run(until=20)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    assert [step for step, name, _ in trainer.state.blocks if name == "z"] == [10, 20]
    trainer.run(until=30)
    assert len(trainer.state.blocks) == 18
    assert not torch.equal(
        model.state_dict()["_views.0.kernel.log_phi"], kept["_views.0.kernel.log_phi"]
    )
    again, data = toy()
    repeat = Trainer(
        again,
        lambda s: elbo(again, data, draw(again, H, "sobol", 0, "t", s)).total,
        320,
        Options(30, 0.02, 0.0),
        between=sweeps.sweeps(again, data, H, "sobol", 0),
    )
    repeat.run(until=20)
    assert all(torch.equal(value, kept[name]) for name, value in again.state_dict().items())
    assert repeat.state.blocks == trainer.state.blocks[:12]


def test_models_without_such_kernels_have_no_sweeps():
    latents = GaussianLatents(torch.zeros(3, 1), torch.zeros(3, 1))
    assert (
        sweeps.sweeps(
            LatentVariableModel(latents, [View("x", RBF(), Gaussian())]), (), 4, "iid", 0
        )
        is None
    )


# The estimator


def _data(n: int = 50):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 2))
    return np.sin(x @ rng.normal(size=(2, 8))) + 0.1 * rng.normal(size=(n, 8))


@pytest.fixture(scope="module")
def fitted():
    views = {"a": slice(0, 4), "b": slice(4, 8)}
    settings = {
        "n_frequencies": 12,
        "n_mixtures": 4,
        "max_iter": 60,
        "init": "pca",
        "random_state": 0,
    }
    return bo.SRFLVM(2, views=views, **settings).fit(_data())


def test_what_srflvm_learned_is_readable(fitted):
    for view in ("a", "b"):
        learned = fitted.kernels_[view]
        assert learned["proportions"].shape == (4,)
        assert learned["means"].shape == learned["scales"].shape == (4, 2)
        assert fitted.n_active_mixtures_[view] == int((learned["proportions"] >= 1 / 12).sum())
        assert fitted.concentration_[view] == float(learned["concentration"])
    assert fitted.n_mixtures_ == 4
    history = fitted.block_history_
    assert list(history) == ["step", "gradient", "z", "merge", "birth", "v", "alpha"]
    np.testing.assert_array_equal(history["step"], np.arange(10, 61, 10))
    assert (history["v"] >= history["birth"] - 1e-6).all()
    assert (history["alpha"] >= history["v"] - 1e-6).all()
    # in the units of elbo_history_
    assert abs(np.median(history["gradient"][3:]) - np.median(fitted.elbo_history_[30:])) < 200


def test_the_defaults_of_srflvm():
    model = bo.SRFLVM(max_iter=1, init="pca", random_state=0).fit(_data(20))
    assert (model.n_mixtures_, model.n_frequencies_) == (20, 100)
    assert bo.NGMVLVM(max_iter=1, init="pca", random_state=0).fit(_data(20)).n_mixtures_ == 2


def test_kernel_objects_bring_their_prior():
    kernel = DirichletProcessMixture(prior=(1.0, 0.1))
    settings = {
        "n_frequencies": 8,
        "n_mixtures": 3,
        "max_iter": 12,
        "init": "pca",
        "random_state": 0,
    }
    model = bo.RandomFeatureLVM(1, kernel=kernel, **settings).fit(_data(20))
    assert model._fit.kernels[0].prior == (1.0, 0.1)
    assert model._fit.kernels[0].phi.shape == (8, 3)


@pytest.mark.parametrize("likelihood", ["bernoulli", "negative_binomial", "poisson"])
def test_srflvm_takes_any_likelihood(likelihood):
    rng = np.random.default_rng(0)
    rate = np.exp(0.5 + np.sin(rng.normal(size=(40, 1)) @ rng.normal(size=(1, 6))))
    X = (
        rng.poisson(rate).astype(float)
        if likelihood != "bernoulli"
        else (rate > 1.6).astype(float)
    )
    settings = {
        "n_frequencies": 8,
        "n_mixtures": 3,
        "max_iter": 20,
        "init": "pca",
        "random_state": 0,
    }
    model = bo.SRFLVM(1, likelihood=likelihood, **settings).fit(X)
    assert np.isfinite(model.elbo_)
    assert model.embedding_.shape == (40, 1)
    phi = model._fit.kernels[0].phi
    assert (phi - phi[:, :1]).abs().max() > 0.02, "the components were weighed"
    history = model.block_history_
    assert len(history["step"]) == 2
    assert (history["v"] >= history["birth"] - 1e-6).all()
