"""Several simple models in one batch against one at a time, and the folding start they are for."""

import math

import numpy as np
import pytest
import torch

from bochner.datasets import make_s_curve
from bochner.initialization.simple_models import SimpleModels, settle
from bochner.metrics import mean_aligned_r2
from bochner.models.lvm import Layout
from bochner.regression.batched_evidence import batched_evidence, batched_evidence_value
from bochner.regression.observations import AllRows, CompleteBlock


def normal(*shape, seed=0):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


@pytest.fixture
def blocks():
    rows = torch.tensor([0, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 15])
    return CompleteBlock.of(normal(16, 3)), CompleteBlock.of(
        normal(12, 2, seed=1), rows, torch.tensor([3, 4])
    )


def evidence_of(features, noise, block):
    """Plain torch, log N(Y | 0, Phi^T Phi + noise I), differentiable."""
    n, m_cols = block.Y.shape
    covariance = features.T @ features + noise * torch.eye(n, dtype=torch.float64)
    law = torch.distributions.MultivariateNormal(
        torch.zeros(n, dtype=torch.float64), covariance
    )
    observed = law.log_prob(block.Y.T).sum()
    unseen = block.square - block.Y.square().sum()
    missing = block.n_columns - m_cols
    rest = law.log_prob(torch.zeros(n, dtype=torch.float64)) * missing
    return observed + rest - 0.5 * unseen / noise


@pytest.mark.parametrize("n_features", [6, 20])  # more features than rows, too
@pytest.mark.parametrize("rotated", [False, True])
def test_a_batch_has_the_evidence_of_each_model_and_its_gradients(n_features, rotated):
    block = CompleteBlock.of(normal(16, 3))
    if rotated:
        block = CompleteBlock(block.Y, AllRows(), torch.arange(5), block.square + 2.0)
    features = normal(3, n_features, 16, seed=2)
    amplitude = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    noise = torch.tensor([0.2, 0.5, 1.3], dtype=torch.float64)
    result = batched_evidence(features, amplitude, noise, block)
    alone = batched_evidence_value(features, amplitude, noise, block)
    inputs = [one.clone().requires_grad_() for one in (features, amplitude.log(), noise)]
    for s in range(3):
        value = evidence_of(inputs[1][s].exp() * inputs[0][s], inputs[2][s], block)
        assert float(result.value[s]) == pytest.approx(float(value.detach()), rel=1e-10)
        assert float(alone[s]) == pytest.approx(float(value.detach()), rel=1e-10)
        value.backward()
    torch.testing.assert_close(result.d_features, inputs[0].grad, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(result.d_log_amplitude, inputs[1].grad, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(result.d_noise, inputs[2].grad, rtol=1e-8, atol=1e-9)


def test_a_model_without_a_factor_has_no_bound_and_moves_nothing(blocks):
    features, ones = normal(2, 6, 16), torch.ones(2, dtype=torch.float64)
    features[1, 0, 0] = math.nan
    result = batched_evidence(features, ones, ones, blocks[0])
    alone = batched_evidence(features[:1], ones[:1], ones[:1], blocks[0])
    assert float(result.value[0]) == pytest.approx(float(alone.value[0]), rel=1e-12)
    assert float(result.value[1]) == -math.inf
    values = batched_evidence_value(features, ones, ones, blocks[0])
    torch.testing.assert_close(values, result.value, rtol=1e-12, atol=0.0)
    assert float(result.d_noise[1]) == float(result.d_log_amplitude[1]) == 0.0


def test_values_alone_are_those_that_come_with_gradients(blocks):
    models = SimpleModels(
        normal(3, 16, 2, seed=1), tuple((b,) for b in blocks), weights=(1.0, 0.5)
    )
    models.scales += 0.3 * normal(*models.scales.shape, seed=2)
    key = (torch.ones(3, 2, dtype=torch.float64), 4, "any", 1, 8)
    torch.testing.assert_close(
        models.values(*key), models.gradient(*key).value, rtol=1e-10, atol=0
    )


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_gradients_of_simple_models_are_those_of_differences(blocks, dim):
    """Of latents, standard deviations, lengthscale, variance and noise, with rows that lack a view
    and a dimension that another view does not see.
    """
    data = ((blocks[0],), (blocks[1],))
    layout = Layout(dim, (0, 1))
    models = SimpleModels(normal(2, 16, dim + 1, seed=3), data, layout, (1.0, 2.0))
    factors = torch.full((2, dim + 1), 0.7, dtype=torch.float64)
    key = (factors, 0, "test", 0, 4)
    exact = models.gradient(*key)
    source = torch.Generator().manual_seed(1)
    for values, gradient in ((models.latents, exact.latents), (models.scales, exact.scales)):
        for number in torch.randperm(values.numel(), generator=source)[:40].tolist():
            kept = float(values.view(-1)[number])
            ends = []
            for step in (1e-5, -1e-5):
                values.view(-1)[number] = kept + step
                ends.append(float(models.gradient(*key).value.sum()))
            values.view(-1)[number] = kept
            slope = (ends[0] - ends[1]) / 2e-5
            assert float(gradient.view(-1)[number]) == pytest.approx(slope, rel=1e-5, abs=1e-5)


def test_models_of_a_batch_do_not_know_of_each_other():
    data, latents = (
        ((CompleteBlock.of(normal(20, 4)),), (CompleteBlock.of(normal(20, 3, seed=1)),)),
        normal(2, 20, 2, seed=2),
    )
    ends, ones = [], torch.ones(2, 2, dtype=torch.float64)
    for others in (latents, torch.stack([latents[0], 3.0 * latents[1]])):
        models = SimpleModels(others, data, Layout(1, (1, 0)), (1.0, 2.0))
        models.settle(5, 0, lambda _: ones)
        ends.append((models.mean.clone(), models.bounds(ones, 0)))
    torch.testing.assert_close(ends[0][0][0], ends[1][0][0], rtol=1e-9, atol=1e-12)
    assert float(ends[0][1][0]) == pytest.approx(float(ends[1][1][0]), rel=1e-9)
    assert float((ends[0][0][1] - ends[1][0][1]).abs().max()) > 0.1


def test_equal_models_have_equal_bounds_but_frequencies_of_their_own():
    data, latents = (
        ((CompleteBlock.of(normal(20, 4)),),),
        normal(1, 20, 2, seed=2).expand(2, -1, -1),
    )
    models, ones = SimpleModels(latents, data), torch.ones(2, 2, dtype=torch.float64)
    bounds = models.bounds(ones, 0)
    assert float(bounds[0]) == float(bounds[1])
    apart = models.gradient(ones, 0, "test", 0, 8, shared=False).value
    assert abs(float(apart[0] - apart[1])) > 0.1


def test_a_view_does_not_see_what_its_layout_hides():
    data, latents = (
        ((CompleteBlock.of(normal(20, 4)),), (CompleteBlock.of(normal(20, 3, seed=1)),)),
        normal(1, 20, 2, seed=2),
    )
    models, ones = (
        SimpleModels(latents, data, Layout(1, (1, 0))),
        torch.ones(1, 2, dtype=torch.float64),
    )
    assert models.gradient(ones, 0, "test", 0, 8).latents[0, ..., 1].abs().max() > 0
    hidden = SimpleModels(latents, (data[0],), Layout(1, (0, 1)))
    gradient = hidden.gradient(ones, 0, "test", 0, 8)
    assert float(gradient.latents[:, ..., 1].abs().max()) == 0.0


def test_the_bound_of_a_folded_model_leaves_the_other_dimensions_out():
    data, latents = ((CompleteBlock.of(normal(20, 4)),),), normal(1, 20, 3, seed=2)
    flat = torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64)
    moved = latents.clone()
    moved[..., 2] += 7.0
    bounds = [float(SimpleModels(starts, data).bounds(flat, 0)) for starts in (latents, moved)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


def fold(wide, layout, of_all, data, n_steps):
    """Settle one layout, which begins with all of its dimensions."""
    begins = torch.ones_like(wide[:1])
    return settle(wide[None], begins, layout, of_all, data, 0, n_steps).latents[0]


def test_folding_straightens_what_principal_components_leave_crossed():
    data = make_s_curve(150, 40, ("rbf", "rbf"), 0.3, 1)
    Y = (data.data - data.data.mean(0)) / data.data.std()
    left, values, _ = np.linalg.svd(Y, full_matrices=False)
    wide = torch.tensor(
        left[:, :3] * values[:3] / (left[:, 0] * values[0]).std(), dtype=torch.float32
    )
    halves = tuple(
        (CompleteBlock.of(torch.tensor(part, dtype=torch.float32)),)
        for part in np.hsplit(Y, 2)
    )
    folded = fold(wide, Layout(2, (0, 0)), Layout(3, (0, 0)), halves, 400).double().numpy()
    assert folded.shape == (150, 2)
    assert mean_aligned_r2(data.latent, folded) > max(
        0.9, mean_aligned_r2(data.latent, wide[:, :2].numpy())
    )


def test_data_without_noise_can_be_folded():
    latent = normal(300, 1)
    Y = torch.cat([(latent * (i + 1) / 3.0).sin() for i in range(6)], dim=1)
    Y = ((Y - Y.mean(0)) / Y.std()).float()
    left, values, _ = torch.linalg.svd(Y, full_matrices=False)
    models = SimpleModels((left[:, :2] * values[:2])[None] / 10.0, ((CompleteBlock.of(Y),),))
    ones = torch.ones(1, 2)
    models.scales[1], models.scales[2] = 8.0, -30.0
    models.latents[1] = -6.0
    assert bool(torch.isfinite(models.bounds(ones, 0)).all())
    wide = (left[:, :3] * values[:3]) / 10.0
    assert bool(
        torch.isfinite(
            fold(wide, Layout(2, (0,)), Layout(3, (0,)), ((CompleteBlock.of(Y),),), 60)
        ).all()
    )
