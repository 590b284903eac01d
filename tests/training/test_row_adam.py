"""Joint steps row part by row part are those of a trainer that holds everything."""

import copy
import functools
import math
from dataclasses import replace

import pytest
import torch

from bochner.errors import NumericalWarning
from bochner.fitting import landmarks
from bochner.fitting.plan import Plan
from bochner.kernels.stationary import RBF
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.lvm import (
    GaussianLatents,
    LatentVariableModel,
    Layout,
    ModelSpec,
    View,
    ViewSpec,
)
from bochner.objectives.elbo import elbo
from bochner.regression.observations import CompleteBlock
from bochner.training import row_adam, row_store
from bochner.training.trainer import Options, Trainer

N = 300


def _model() -> tuple[LatentVariableModel, tuple, Plan]:
    source = torch.Generator().manual_seed(0)
    z = torch.randn(N, 2, generator=source)
    Y = torch.sin(z @ torch.randn(2, 6, generator=source)) + 0.1 * torch.randn(
        N, 6, generator=source
    )
    data = ((CompleteBlock.of(Y[:, :4]),), (CompleteBlock.of(Y[:, 4:]),))
    specs = tuple(ViewSpec(name, RBF(), Gaussian(), w) for name, w in (("a", 1.0), ("b", 0.5)))
    spec = ModelSpec(specs, Layout(2, (0, 0)), 1, 8, "sobol", 8)
    views = [View(s.name, RBF(), Gaussian(), weight=s.weight) for s in specs]
    model = LatentVariableModel(GaussianLatents(z, torch.full_like(z, -1.0)), views)
    return model, data, Plan(spec, ("pca",), 0.1, Options(learning_rate=0.2), 0)


def _held(model: LatentVariableModel, data: tuple, plan: Plan) -> None:
    """Take the steps with all rows in memory, as any model is trained."""
    n_entries = sum(block.n_entries for blocks in data for block in blocks)
    options = replace(
        plan.training,
        max_iter=landmarks.JOINT_STEPS,
        learning_rate=landmarks._JOINT_RATE * 0.2,
        tol=-math.inf,
        factors={},
    )
    Trainer(
        model,
        lambda step: elbo(model, data, plan.early.draws(model, "joint", step)).total,
        n_entries,
        options,
    ).run()


@pytest.fixture(params=["memory", "files"])
def parts(request, monkeypatch):
    some = functools.partial(row_adam.RowAdam, part_rows=70)
    monkeypatch.setattr(landmarks, "RowAdam", some)
    if request.param == "files":
        plain = row_store.RowStore

        monkeypatch.setattr(row_adam, "RowStore", lambda *shape: plain(*shape, held=0))


@pytest.mark.usefixtures("parts")
def test_steps_are_those_of_a_trainer_that_holds_everything():
    model, data, plan = _model()
    other = copy.deepcopy(model)
    before = model.latents.mean.detach().clone()
    landmarks.train_jointly(model, data, plan)
    _held(other, data, plan)
    assert float((model.latents.mean.detach() - before).abs().max()) > 1e-3
    for (name, ours), (_, theirs) in zip(
        model.named_parameters(), other.named_parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.usefixtures("parts")
def test_a_step_that_is_not_finite_is_undone(monkeypatch):
    model, data, plan = _model()
    plain = landmarks.elbo_at
    steps = []

    def fails_once(*given, **options):
        bound = plain(*given, **options)
        steps.append(0)
        return replace(bound, total=bound.total * math.nan) if len(steps) == 13 else bound

    monkeypatch.setattr(landmarks, "elbo_at", fails_once)
    with pytest.warns(NumericalWarning, match=r"Step 12 was undone.*continuing from step 10"):
        landmarks.train_jointly(model, data, plan)
    assert len(steps) == landmarks.JOINT_STEPS + 3
    assert bool(model.latents.mean.isfinite().all())


@pytest.mark.usefixtures("parts")
def test_kept_latents_come_back():
    model, _, _ = _model()
    before = copy.deepcopy(model.latents.state_dict())
    kept = row_adam.KeptLatents(model.latents, 70)
    with torch.no_grad():
        model.latents.mean += 1.0
        model.latents.log_std -= 1.0
    kept.restore(model.latents)
    for name, value in model.latents.state_dict().items():
        assert torch.equal(value, before[name])
