"""Several simple models in one batch against one at a time, and the folding start they are for."""

import numpy as np
import pytest
import torch

from bochner.data.rows import AllRows
from bochner.datasets import make_s_curve
from bochner.initialization.folding import SimpleModels, fold
from bochner.metrics import mean_aligned_r2
from bochner.models.spec import Layout
from bochner.regression.batched import batched_evidence
from bochner.regression.evidence import dense_evidence, evidence
from bochner.regression.observations import CompleteBlock
from bochner.regression.statistics import statistics


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def blocks():
    rows = torch.tensor([0, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 15])
    return CompleteBlock.of(normal(16, 3)), CompleteBlock.of(
        normal(12, 2, seed=1), rows, torch.tensor([3, 4])
    )


def test_a_batch_has_the_evidence_of_each_model(blocks):
    features, noise = normal(3, 6, 16, seed=2), torch.tensor([0.2, 0.5, 1.3], dtype=torch.float64)
    values = batched_evidence(features, noise, blocks)
    for i in range(3):
        first = evidence(statistics(features[i], blocks[0].Y), noise[i]).value
        second = dense_evidence(blocks[1].rows.take(features[i], dim=1), blocks[1], noise[i])[0]
        assert float(values[i]) == pytest.approx(float(first + second), rel=1e-12)


@pytest.mark.parametrize("n_features", [6, 20])  # more features than rows, too
def test_gradients_of_a_batch_are_those_of_differences(blocks, n_features):
    features = normal(2, n_features, 16, seed=2).requires_grad_()
    noise = torch.tensor([0.2, 0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda phi, s2: batched_evidence(phi, s2, blocks), (features, noise)
    )


def test_columns_that_were_rotated_away_still_count():
    Y, features = normal(10, 6), normal(1, 4, 10, seed=1)
    turned = Y @ torch.linalg.svd(Y)[2].mT
    whole = batched_evidence(features, torch.ones(1, dtype=torch.float64), (CompleteBlock.of(Y),))
    least = CompleteBlock(turned[:, :4], AllRows(), torch.arange(6), float(Y.square().sum()))
    assert float(batched_evidence(features, torch.ones(1, dtype=torch.float64), (least,))) < float(
        whole
    )
    all_of_it = CompleteBlock(turned, AllRows(), torch.arange(6), float(Y.square().sum()))
    same = batched_evidence(features, torch.ones(1, dtype=torch.float64), (all_of_it,))
    assert float(same) == pytest.approx(float(whole), rel=1e-12)


def test_models_of_a_batch_do_not_know_of_each_other():
    data, latents = (
        ((CompleteBlock.of(normal(20, 4)),), (CompleteBlock.of(normal(20, 3, seed=1)),)),
        normal(2, 20, 2, seed=2),
    )
    ends, ones = [], torch.ones(2, 2, dtype=torch.float64)
    for others in (latents, torch.stack([latents[0], 3.0 * latents[1]])):
        models = SimpleModels(others, data, Layout(1, (1, 0)), (1.0, 2.0))
        models.settle(5, 0, lambda _: ones)
        ends.append((models.mean.detach(), models.bounds(ones, 0)))
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
    with torch.no_grad():
        apart = models.evidence(ones, 0, "test", 0, 8, shared=False)
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
    models.evidence(ones, 0, "test", 0, 8).sum().backward()
    assert models.mean.grad[..., 1].abs().max() > 0
    hidden = SimpleModels(latents, (data[0],), Layout(1, (0, 1)))
    hidden.evidence(ones, 0, "test", 0, 8).sum().backward()
    assert float(hidden.mean.grad[..., 1].abs().max()) == 0.0


def test_the_bound_of_a_folded_model_leaves_the_other_dimensions_out():
    data, latents = ((CompleteBlock.of(normal(20, 4)),),), normal(1, 20, 3, seed=2)
    flat = torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64)
    moved = latents.clone()
    moved[..., 2] += 7.0
    bounds = [float(SimpleModels(own, data).bounds(flat, 0)) for own in (latents, moved)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


def test_folding_straightens_what_principal_components_leave_crossed():
    data = make_s_curve(150, 40, ("rbf", "rbf"), 0.3, 1)
    Y = (data.data - data.data.mean(0)) / data.data.std()
    left, values, _ = np.linalg.svd(Y, full_matrices=False)
    wide = torch.tensor(
        left[:, :5] * values[:5] / (left[:, 0] * values[0]).std(), dtype=torch.float32
    )
    halves = tuple(
        (CompleteBlock.of(torch.tensor(part, dtype=torch.float32)),) for part in np.hsplit(Y, 2)
    )
    folded = fold(wide, Layout(2, (0, 0)), Layout(5, (0, 0)), halves, 0, 400).double().numpy()
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
    with torch.no_grad():
        models.log_noise.fill_(-30.0)
        models.log_variance.fill_(8.0)
        models.log_std.fill_(-6.0)
    assert bool(torch.isfinite(models.bounds(ones, 0)).all())
    wide = (left[:, :4] * values[:4]) / 10.0
    assert bool(
        torch.isfinite(
            fold(wide, Layout(2, (0,)), Layout(4, (0,)), ((CompleteBlock.of(Y),),), 0, 60)
        ).all()
    )
