"""The autoencoders that benchmarks compare with are what their papers define."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.decomposition import PCA

PATH = Path(__file__).parents[2] / "benchmarks" / "vae.py"


def load():
    spec = importlib.util.spec_from_file_location("vae", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["vae"] = module  # where its dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


vae = load()
LINEAR = vae.Settings((), 1e-2, steps=2000)


def made(columns=6, seed=0):
    """Rows of a plane with noise."""
    source = np.random.default_rng(seed)
    weights = source.normal(size=(2, columns))
    return source.normal(size=(400, 2)) @ weights + 0.5 * source.normal(size=(400, columns))


def bound(model, views, draws=200):
    generator = torch.Generator().manual_seed(1)
    model.eval()
    with torch.no_grad():
        experts = model.experts(views)
        return torch.stack(
            [model.bound(experts, views, generator) for _ in range(draws)]
        ).mean()


@pytest.mark.parametrize("kind", ["VAE", "MMVAE"])
def test_the_bound_of_a_linear_autoencoder_is_the_evidence_of_principal_components(kind):
    """Lucas et al. (2019): q(z | x) of a linear model is Gaussian with one diagonal covariance."""
    view = vae.View.gaussian(made())
    model = getattr(vae, kind)([view], 2, LINEAR, 0)
    model.fit()
    exact = PCA(2).fit(view.inputs.double().numpy()).score(view.inputs.double().numpy())
    assert exact - 0.1 < float(bound(model, [view])) < exact + 0.02


@pytest.mark.parametrize("kind", ["MVAE", "MMVAE"])
def test_a_view_that_is_not_there_changes_nothing(kind):
    views = [vae.View.gaussian(made(seed=s)) for s in range(2)]
    model = getattr(vae, kind)(views, 2, LINEAR, 0)
    half = torch.arange(400) < 200
    some = [views[0], vae.replace(views[1], observed=half.float())]
    other = [some[0], vae.replace(some[1], inputs=some[1].inputs * half[:, None])]
    assert np.array_equal(model.means(some), model.means(other))
    assert np.array_equal(model.means(some)[:200], model.means(views)[:200])
    assert not np.allclose(model.means(some)[200:], model.means(views)[200:])
    assert bound(model, some, 1) == bound(model, other, 1)


def test_experts_multiply_with_the_prior():
    views = [vae.View.gaussian(made(seed=s)) for s in range(2)]
    model = vae.MVAE(views, 2, LINEAR, 0)
    experts = model.experts(views)
    x = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = torch.exp(-0.5 * x**2)
    for e in experts:
        density *= torch.exp(
            -0.5 * (x - e.mean[0, 0].double()) ** 2 / e.log_variance[0, 0].double().exp()
        )
    density /= density.sum()
    mean = (x * density).sum()
    q = model.joint(experts, views)
    assert float(q.mean[0, 0]) == pytest.approx(float(mean), abs=1e-5)
    assert float(q.log_variance[0, 0].exp()) == pytest.approx(
        float(((x - mean) ** 2 * density).sum()), rel=1e-5
    )


def test_densities_are_those_of_scipy():
    source = np.random.default_rng(0)
    counts = source.poisson(3.0, (5, 4)).astype(float)
    outputs = source.normal(size=(5, 4))
    mean = counts.mean(axis=0) * np.exp(outputs)
    given = torch.as_tensor(outputs)
    binomial = vae.NegativeBinomial(torch.as_tensor(counts.mean(axis=0)))
    torch.nn.init.constant_(binomial.log_r, np.log(2.0))
    normal = vae.Gaussian()
    torch.nn.init.constant_(normal.log_variance, np.log(4.0))
    ones = np.eye(4)[[0, 2, 1, 1, 3]]
    shares = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    for kind, x, expected in (
        (binomial, counts, stats.nbinom.logpmf(counts, 2.0, 2.0 / (2.0 + mean))),
        (normal, counts, stats.norm.logpdf(counts, outputs, 2.0)),
        (vae.Bernoulli(), ones, stats.bernoulli.logpmf(ones, 1 / (1 + np.exp(-outputs)))),
        (vae.Categorical(), ones, ones * np.log(shares)),
    ):
        density = kind.log_density(given, torch.as_tensor(x)).detach().numpy()
        assert density == pytest.approx(expected.sum(axis=1), rel=1e-5)
