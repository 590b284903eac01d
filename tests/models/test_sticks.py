"""The stick-breaking posterior: its updates climb its bound, its expectations are those of Beta and
Gamma draws.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributions import Beta, Gamma, kl_divergence

from bochner.errors import InputError
from bochner.models.sticks import StickBreaking


def log_density(n: int = 40, t: int = 6, seed: int = 0, batch: tuple[int, ...] = ()) -> Tensor:
    return 3 * torch.randn(
        *batch, n, t, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def some(t: int = 6, batch: tuple[int, ...] = (), known: float | None = None) -> StickBreaking:
    q = StickBreaking.start(t, prior_shape=2.0, prior_rate=0.7, batch=batch, known=known)
    phi = q.assign(log_density(t=t, batch=batch))
    return q.update_sticks(phi.sum(-2)).update_concentration()


def bound(q: StickBreaking, phi: Tensor, density: Tensor) -> Tensor:
    return (phi * density).sum((-2, -1)) + q.assignment_bound(phi) - q.kl()


@pytest.mark.parametrize("known", [None, 0.3])
def test_every_block_raises_the_bound(known):
    density = log_density()
    q = StickBreaking.start(6, prior_shape=0.5, prior_rate=0.2, known=known)
    phi = q.assign(torch.zeros_like(density))
    values = [bound(q, phi, density)]
    for _ in range(20):
        phi = q.assign(density)
        values.append(bound(q, phi, density))
        q = q.update_sticks(phi.sum(-2))
        values.append(bound(q, phi, density))
        q = q.update_concentration()
        values.append(bound(q, phi, density))
    steps = torch.stack(values).diff()
    assert (steps > -1e-10).all()
    assert (steps[:3] > 1e-3).sum() >= (2 if known else 3), "the first sweep must do something"


@pytest.mark.parametrize("name", ["a", "b", "shape", "rate", "phi"])
def test_updates_are_stationary_points(name):
    """At the optimum of a block the gradient of the bound in that block's parameters vanishes."""
    density, q = log_density(), some()
    phi = q.assign(density)
    if name in ("a", "b"):
        q = q.update_sticks(phi.sum(-2))
    elif name in ("shape", "rate"):
        q = q.update_concentration()
    if name == "phi":
        logits = phi.log().requires_grad_()
        value = bound(q, torch.softmax(logits, -1), density)
        (gradient,) = torch.autograd.grad(value, logits)
    else:
        free = getattr(q, name).clone().requires_grad_()
        (gradient,) = torch.autograd.grad(
            bound(replace(q, **{name: free}), phi, density), free
        )
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-9, rtol=0)


def test_expectations_are_those_of_draws():
    q, n = some(), 200_000
    torch.manual_seed(0)
    v = torch.cat([Beta(q.a, q.b).sample((n,)), torch.ones(n, 1, dtype=torch.float64)], -1)
    rest = torch.cat([torch.ones(n, 1, dtype=torch.float64), (1 - v[:, :-1]).cumprod(-1)], -1)
    weights = v * rest
    torch.testing.assert_close(weights.sum(-1), torch.ones(n, dtype=torch.float64))
    draws, expected = weights.log(), q.expected_log_weights()
    z = (draws.mean(0) - expected) / (draws.std(0) / n**0.5 + 1e-12)
    assert z.abs().max() < 5


def test_divergence_is_the_sum_of_its_parts():
    """With the concentration averaged by draws, KL is the mean of Beta divergences plus one of
    Gammas.
    """
    q = some()
    torch.manual_seed(0)
    posterior, prior = (
        Gamma(q.shape, q.rate),
        Gamma(torch.tensor(2.0).double(), torch.tensor(0.7).double()),
    )
    alpha = posterior.sample((50_000,))
    given = kl_divergence(Beta(q.a, q.b), Beta(torch.ones_like(q.a), alpha[:, None])).sum(-1)
    expected = given.mean() + kl_divergence(posterior, prior)
    assert abs(float(q.kl() - expected)) < 5 * float(given.std()) / 50_000**0.5


def test_known_concentration_is_the_limit_of_a_sharp_prior():
    density, big = log_density(), 1e8
    sharp, known = (
        StickBreaking.start(6, prior_shape=0.3 * big, prior_rate=big),
        StickBreaking.start(6, known=0.3),
    )
    for _ in range(3):
        sharp, known = (
            q.update_sticks(q.assign(density).sum(-2)).update_concentration()
            for q in (sharp, known)
        )
    torch.testing.assert_close(sharp.a, known.a, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sharp.kl(), known.kl(), rtol=1e-5, atol=1e-5)
    assert float(known.concentration) == 0.3


def test_one_component_takes_everything():
    q = StickBreaking.start(1)
    density = log_density(t=1)
    assert torch.equal(q.assign(density), torch.ones_like(density))
    assert torch.equal(q.expected_log_weights(), torch.zeros(1, dtype=torch.float64))
    q = q.update_sticks(torch.tensor([40.0])).update_concentration()
    assert float(q.kl()) == pytest.approx(0.0, abs=1e-12)


def test_the_start_is_the_prior():
    assert float(StickBreaking.start(5, known=0.7).kl()) == pytest.approx(0.0, abs=1e-12)
    learned = StickBreaking.start(2, prior_shape=3.0, prior_rate=2.0)
    assert float(learned.concentration) == 1.5


def test_published_updates_by_hand():
    """docs/math.md, section 4 on counts (3, 0, 1), alpha = 2."""
    q = StickBreaking.start(3, prior_shape=2.0, prior_rate=1.0).update_sticks(
        torch.tensor([3.0, 0.0, 1.0])
    )
    assert q.a.tolist() == [4.0, 1.0]
    assert q.b.tolist() == [3.0, 3.0]
    q = q.update_concentration()
    assert float(q.shape) == 4.0
    # digamma(3) - digamma(7) = -(1/3 + 1/4 + 1/5 + 1/6), digamma(3) - digamma(4) = -1/3
    assert float(q.rate) == pytest.approx(1 + (1 / 3 + 1 / 4 + 1 / 5 + 1 / 6) + 1 / 3)


def test_batches_are_independent():
    density = log_density(batch=(2, 3))
    together = some(batch=(2, 3))
    assert together.kl().shape == (2, 3)
    assert together.expected_log_weights().shape == (2, 3, 6)
    one = StickBreaking.start(6, prior_shape=2.0, prior_rate=0.7)
    one = one.update_sticks(one.assign(density[1, 2]).sum(-2)).update_concentration()
    torch.testing.assert_close(together.kl()[1, 2], one.kl())
    torch.testing.assert_close(
        together.assignment_bound(together.assign(density))[1, 2],
        one.assignment_bound(one.assign(density[1, 2])),
    )


def test_responsibilities_of_zero_cost_nothing():
    q, phi = some(), torch.eye(6, dtype=torch.float64)
    assert torch.isfinite(q.assignment_bound(phi))
    assert float(q.assignment_bound(phi)) == pytest.approx(
        float(q.expected_log_weights().sum())
    )


@pytest.mark.parametrize(
    ("params", "match"),
    [
        (
            {"n_components": 0},
            "Expected a truncation of at least 1, got 0. Choose n_mixtures=5",
        ),
        ({"n_components": 3, "prior_shape": 0.0}, "Expected a positive prior_shape, got 0.0"),
        ({"n_components": 3, "prior_rate": -1.0}, "Expected a positive prior_rate, got -1.0"),
        ({"n_components": 3, "known": float("inf")}, "Expected a positive known, got inf"),
    ],
)
def test_wrong_parameters_are_refused(params, match):
    with pytest.raises(InputError, match=match):
        StickBreaking.start(**params)
