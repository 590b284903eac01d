"""Whole models with non-conjugate views: below the evidence, indifferent to the order of
views, keyed.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from bochner.kernels.spectral_mixture import SpectralMixture
from bochner.likelihoods import Bernoulli, Poisson
from bochner.objectives.elbo import Evaluation, draw, elbo
from bochner.random import generator, row_noise
from bochner.regression.observations import EncodedBlock
from helpers.dense import features_of_draws
from helpers.models import build
from helpers.nonconjugate import MAKERS

N = 5


def _model(names: tuple[str, ...], dim: int):
    """A model of one view per name, and its data."""
    source = generator(2, "data", dim)
    likelihoods = [MAKERS[name]() for name in names]
    data = []
    for likelihood, name in zip(likelihoods, names, strict=True):
        likelihood.requires_grad_(False)
        if name == "categorical":
            Y = torch.randint(3, (N, 3), generator=source).double()
        else:
            Y = likelihood.draw(
                torch.randn(N, 2, generator=source, dtype=torch.float64), source
            )
        data.append((EncodedBlock.of(likelihood.encode(Y)),))
    start = row_noise(N, dim, 0, "test", 0, dtype=torch.float64).numpy()
    kernels = [SpectralMixture() for _ in names]
    model = build(start, kernels, names, likelihoods=likelihoods, data=tuple(data))
    with torch.no_grad():
        model.latents.log_std.fill_(math.log(0.4))
    return model, tuple(data)


def _evidence(
    model, block: EncodedBlock, n_frequencies: int, n_samples: int
) -> tuple[float, float]:
    """log E p(Y | X, W, A) over the prior of X, W and A, and its standard error, by plain
    sampling.
    """
    source, view = generator(9, "evidence"), model.views[0]
    dim = model.n_components
    x = torch.randn(n_samples, N, dim, generator=source, dtype=torch.float64)
    with torch.no_grad():
        f = view.kernel.frequencies(
            view.kernel.noise(n_frequencies * n_samples, dim, source, "iid")
        )
        q = view.kernel.n_mixtures

        def split(w):
            return (
                w.reshape(q, n_samples, n_frequencies, -1)
                .transpose(0, 1)
                .reshape(n_samples, q * n_frequencies, -1)
            )

        amplitude = split(f.amplitude[:, None])[:, :, 0] * math.sqrt(n_samples)
        phi = features_of_draws(x, split(f.first), None, amplitude[:, None, :])
        a = torch.randn(
            n_samples, phi.shape[2], block.Y.shape[1], generator=source, dtype=torch.float64
        )
        psi = phi @ a + view.sites.intercept
        entries = view.likelihood.log_prob(block.Y.expand_as(psi), psi)
        log_p = block.mask.apply(entries).sum((1, 2))
    ratios = (log_p - log_p.max()).exp()
    return float(log_p.max() + ratios.mean().log()), float(
        ratios.std() / ratios.mean() / math.sqrt(n_samples)
    )


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(
    "name", ["bernoulli", "binomial", "negative_binomial", "poisson", "categorical"]
)
def test_the_mean_bound_lies_below_the_log_evidence(name, dim):
    model, data = _model((name,), dim)
    model.views[0].sites.intercept.copy_(model.views[0].sites.centre)
    with torch.no_grad():
        values = [
            float(
                elbo(
                    model, data, draw(model, 2, "iid", 3, "law", i), Evaluation(n_sweeps=4)
                ).total
            )
            for i in range(60)
        ]
    evidence, error = _evidence(model, data[0][0], 2, 30_000)
    mean, spread = float(np.mean(values)), float(np.std(values)) / math.sqrt(len(values))
    assert mean < evidence + 4 * math.hypot(error, spread)
    assert mean > evidence - 15.0


def test_the_order_of_views_does_not_matter():
    one, data = _model(("bernoulli", "poisson"), 2)
    other, swapped = _model(("bernoulli", "poisson"), 2)
    other._views = torch.nn.ModuleList(reversed(other.views))
    first = elbo(one, data, draw(one, 4, "iid", 0, "t", 0)).total
    second = elbo(other, swapped[::-1], draw(other, 4, "iid", 0, "t", 0)).total
    torch.testing.assert_close(first, second)


def test_column_budgets_are_keyed_and_unbiased_in_the_long_run():
    model, _ = _model(("bernoulli",), 2)
    source = generator(4, "wide")
    Y = (torch.rand(N, 40, generator=source) < 0.5).double()
    likelihood = Bernoulli()
    data = ((EncodedBlock.of(Y),),)
    start = model.latents.mean.detach().numpy()
    kernels = [SpectralMixture()]
    model = build(start, kernels, n_mixtures=1, likelihoods=[likelihood], data=data)
    model.views[
        0
    ].sites.n_groups = (
        None  # a covariance each: groups would be shared by fewer columns in a batch
    )
    model.regroup()
    gaps = []
    for step in range(60):
        part = draw(model, 4, "iid", 0, "t", step, budget=N * 8 * 10)
        again = draw(model, 4, "iid", 0, "t", step, budget=N * 8 * 10)
        torch.testing.assert_close(part.columns, again.columns)
        assert [len(columns) for columns in part.columns or () if columns is not None] == [10]
        whole = draw(model, 4, "iid", 0, "t", step)
        assert whole.columns is None
        torch.testing.assert_close(part.latents, whole.latents)
        with torch.no_grad():
            gaps.append(float(elbo(model, data, part).total - elbo(model, data, whole).total))
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / math.sqrt(len(gaps))


def test_levelling_is_0_on_average_and_takes_the_columns_out_of_the_noise():
    source = generator(5, "uneven")
    # columns worth very different amounts: mostly zeros, or large counts
    rates = torch.logspace(-2.0, 2.0, 30, dtype=torch.float64)
    data = ((EncodedBlock.of(torch.poisson(rates.expand(N, -1), generator=source)),),)
    start = row_noise(N, 2, 0, "test", 0, dtype=torch.float64).numpy()
    kernels = [SpectralMixture()]
    model = build(start, kernels, n_mixtures=1, likelihoods=[Poisson()], data=data)
    sites = model.views[0].sites
    assert float(sites.control_variate(torch.tensor([3, 5]))) == 0.0  # nothing is known yet
    plain, level = [], []
    with torch.no_grad():
        for step in range(120):
            bound = elbo(model, data, draw(model, 4, "iid", 0, "t", step, budget=N * 8 * 6))
            plain.append(float(bound.with_gap))
            level.append(float(bound.comparable))
            model.update_sites(bound.updates)
            assert float(bound.comparable) == level[-1]  # whatever was updated since
        pairs = [
            sites.control_variate(torch.tensor(pair))
            for pair in itertools.combinations(range(30), 2)
        ]
        whole = elbo(model, data, draw(model, 4, "iid", 0, "t", 0))
    assert abs(float(torch.stack(pairs).mean())) < 1e-9 * float(sites.worth.abs().sum())
    assert np.std(level[60:]) < 0.2 * np.std(plain[60:])
    torch.testing.assert_close(whole.updates[0].worth.sum(), whole.with_gap + whole.kl)
    assert float(whole.control) == 0.0  # nothing was drawn


def test_a_bound_leaves_the_model_alone_and_its_updates_change_the_sites():
    model, data = _model(("poisson",), 2)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    bound = elbo(model, data, draw(model, 4, "iid", 0, "t", 0))
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    model.update_sites(bound.updates)
    model.regroup()
    assert not torch.equal(model.views[0].sites.shift, before["_views.0.sites.shift"])
    assert isinstance(model.views[0].likelihood, Poisson)
