"""Starts that are trained side by side take the very steps of starts that are trained alone."""

import copy

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import bochner as bo
from bochner import NGMVLVM
from bochner.fitting import multistart
from bochner.fitting.stacked import StackedModels, StackedRun, stackable
from bochner.kernels import RBF, NextGenSpectralMixture, SpectralMixture
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.lvm import GaussianLatents, LatentVariableModel, View
from bochner.objectives.elbo import draw, elbo
from bochner.regression.observations import CompleteBlock
from bochner.training.trainer import Options, Trainer

N = 40


def models_of(kernel, dim, count=3, dims=None):
    """Models of two views that differ in every parameter, and data."""
    source = torch.Generator().manual_seed(dim)
    models = []
    for s in range(count):
        mean, log_std = torch.randn(2, N, dim, generator=source).unbind()
        views = []
        for v in range(2):
            of_view = None if dims is None or v == 0 else dims
            observed = dim if of_view is None else len(of_view)
            likelihood = Gaussian(0.1 + 0.2 * s + 0.3 * v)
            views.append(
                View(
                    f"view {v}",
                    kernel().initial(2, observed, source),
                    likelihood,
                    dims=of_view,
                    weight=1.0 + v,
                )
            )
        models.append(LatentVariableModel(GaussianLatents(mean, 0.1 * log_std - 1.0), views))
    data = tuple((CompleteBlock.of(torch.randn(N, m, generator=source)),) for m in (3, 5))
    return models, data


@pytest.mark.parametrize("kernel", [SpectralMixture, NextGenSpectralMixture])
@pytest.mark.parametrize(("dim", "dims"), [(1, None), (2, None), (3, (0, 2)), (9, None)])
def test_bounds_and_gradients_are_those_of_each_model(kernel, dim, dims):
    models, data = models_of(kernel, dim, dims=dims)
    draws = [draw(model, 4, "iid", s, "train", 0) for s, model in enumerate(models)]
    together = StackedModels(models)
    values = together.bounds(data, draws)
    values.sum().backward()
    stacked = dict(together.model.named_parameters())
    for s, model in enumerate(models):
        alone = elbo(model, data, draws[s]).total
        alone.backward()
        torch.testing.assert_close(values[s], alone, rtol=1e-6, atol=0)
        for name, parameter in model.named_parameters():
            gradient = stacked[name].grad[s]
            scale = float(parameter.grad.abs().max())
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-5 * scale)


def trainers_of(models, data):
    def trainer(s):
        def objective(step):
            return elbo(models[s], data, draw(models[s], 4, "iid", s, "train", step)).total

        return Trainer(models[s], objective, N * 8, Options(factors={"latents.mean": 0.25}))

    return [trainer(s) for s in range(len(models))]


def test_steps_are_those_of_each_trainer_and_go_on_from_there():
    models, data = models_of(NextGenSpectralMixture, 2)
    alone = trainers_of(copy.deepcopy(models), data)
    together = trainers_of(models, data)
    run = StackedRun(
        together, lambda s, step: draw(models[s], 4, "iid", s, "train", step), data
    )
    assert run.run(10, lambda state: None)
    for one, other in zip(together, alone, strict=True):
        other.run(until=10, settle=True)
        for trainer in (one, other):
            trainer.run(until=13)
        assert one.state.step == other.state.step == 13
        assert one.state.since == other.state.since == 10
        np.testing.assert_allclose(one.state.history, other.state.history, rtol=1e-4)
        for p, q in zip(one.module.parameters(), other.module.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-2, atol=2e-3)


def test_an_interrupt_leaves_whole_trainers():
    models, data = models_of(SpectralMixture, 2)
    trainers = trainers_of(models, data)
    run = StackedRun(
        trainers, lambda s, step: draw(models[s], 4, "iid", s, "train", step), data
    )

    def stop(state):
        if state.step == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(30, stop)
    assert [trainer.state.step for trainer in trainers] == [10, 10, 10]  # the last snapshot
    assert [len(trainer.state.history) for trainer in trainers] == [10, 10, 10]
    trainers[1].run(until=12)


def test_a_start_that_is_not_finite_is_found_out():
    models, data = models_of(SpectralMixture, 2)
    with torch.no_grad():
        models[1].latents.mean.fill_(torch.nan)
    run = StackedRun(
        trainers_of(models, data),
        lambda s, step: draw(models[s], 4, "iid", s, "train", step),
        data,
    )
    with pytest.warns(bo.errors.NumericalWarning):
        assert not run.run(5, lambda state: None)


class Derived(SpectralMixture):
    """A user's kernel."""


@pytest.mark.parametrize("kernel", [RBF, Derived])
def test_kernels_that_do_not_say_so_are_trained_alone(kernel):
    models, data = models_of(SpectralMixture, 2)
    assert stackable(models[0].views, data, N, 3, 16)
    assert not stackable(models[0].views, data, N, 1, 16)
    assert not stackable(models[0].views, data, N, 3, 10**9)
    models, data = models_of(kernel, 2)
    assert not stackable(models[0].views, data, N, 3, 16)


def test_noise_per_column_and_rows_that_lack_a_view_are_trained_alone():
    models, data = models_of(SpectralMixture, 2)
    few = CompleteBlock.of(data[0][0].Y[:30], torch.arange(30))
    assert not stackable(models[0].views, ((few,), data[1]), N, 3, 16)
    for model in models:
        model.views[0].likelihood = Gaussian([0.1, 0.2, 0.3])
    assert not stackable(models[0].views, data, N, 3, 16)


def test_races_side_by_side_are_those_one_after_the_other(monkeypatch):
    source = np.random.default_rng(0)
    X = np.sin(source.normal(size=(60, 1)) * np.arange(1, 6)) + 0.1 * source.normal(
        size=(60, 5)
    )

    def starts():
        with pytest.warns(ConvergenceWarning):
            return NGMVLVM(1, max_iter=60, random_state=100).fit(X).starts_

    together = starts()
    monkeypatch.setattr(multistart, "stackable", lambda *_: False)
    for one, other in zip(together, starts(), strict=True):
        assert one.keys() == other.keys()
        for key in ("init", "index", "settled", "steps"):
            assert one[key] == other[key]
        for key in ("elbo_start", "elbo", "elbo_se"):
            assert one[key] == pytest.approx(other[key], rel=1e-3)


def test_starts_warmed_side_by_side_are_those_warmed_one_after_the_other(monkeypatch):
    source = np.random.default_rng(0)
    X = np.sin(source.normal(size=(60, 1)) * np.arange(1, 6)) + 0.1 * source.normal(
        size=(60, 5)
    )
    X[source.random(X.shape) < 0.1] = np.nan
    warmed = []
    kept = multistart.warm_together

    def counted(models, surrogates, plans):
        warmed.append(len(models))
        return kept(models, surrogates, plans)

    monkeypatch.setattr(multistart, "warm_together", counted)

    def starts():
        with pytest.warns(ConvergenceWarning):
            return NGMVLVM(1, max_iter=60, random_state=100, dtype="float64").fit(X).starts_

    together = starts()
    assert warmed == [len(together)]
    assert len(together) > 1
    monkeypatch.setattr(multistart, "warms_together", lambda *_: False)
    for one, other in zip(together, starts(), strict=True):
        for key in ("init", "index", "settled", "steps"):
            assert one[key] == other[key]
        for key in ("elbo_start", "elbo"):
            assert one[key] == pytest.approx(other[key], rel=1e-3)
    assert warmed == [len(together)]
