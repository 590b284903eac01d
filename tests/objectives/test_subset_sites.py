"""Sites of some rows only: the bound of all rows from them."""

from __future__ import annotations

import pytest
import torch

from bochner.kernels import SpectralMixture
from bochner.likelihoods import Bernoulli, NegativeBinomial, Poisson
from bochner.likelihoods.likelihood import Gaussian
from bochner.models import sites as module
from bochner.models.lvm import GaussianLatents, LatentVariableModel, View
from bochner.models.sites import Sites
from bochner.objectives import subset_sites
from bochner.objectives.elbo import Evaluation, draw, elbo
from bochner.objectives.subset_sites import Anchors, anchored_elbo
from bochner.regression import nonconjugate as local
from bochner.regression import site_passes
from bochner.regression.observations import (
    AllRows,
    CompleteBlock,
    EncodedBlock,
    IncompleteBlock,
)
from bochner.weight_posterior import conditioning
from bochner.weight_posterior.posterior import weights_posterior

N, M, H = 40, 9, 6


def _model(likelihood, index, dim=2, private=0):
    source = torch.Generator().manual_seed(0)
    x = torch.randn(N, dim, generator=source, dtype=torch.float64)
    f = x @ torch.randn(dim, M, generator=source, dtype=torch.float64)
    Y = (
        (f > 0).double()
        if isinstance(likelihood, Bernoulli)
        else torch.poisson(f.clamp(max=2).exp(), generator=source)
    )
    offset = 0.1 * torch.randn(N, generator=source, dtype=torch.float64)
    counts, real = EncodedBlock.of(Y, None, offset), CompleteBlock.of(f)
    few = counts.take(index, AllRows())
    sites = Sites(likelihood, few.Y, few.mask, few.offset, 2)
    kernels = [
        SpectralMixture().initial(1, dim, torch.Generator().manual_seed(1)) for _ in range(2)
    ]
    # dimensions that one view does not see
    extra = torch.randn(N, private, generator=source, dtype=torch.float64)
    dims = (
        [range(dim), [*range(private, dim), *range(dim, dim + private)]]
        if private
        else [None, None]
    )
    views = [
        View("counts", kernels[0], likelihood, sites, dims[0]),
        View("real", kernels[1], Gaussian(0.3), None, dims[1]),
    ]
    x = torch.cat([x, extra], dim=1)
    model = LatentVariableModel(GaussianLatents(x, torch.full_like(x, -2.0)), views)
    return (
        model,
        ((counts,), (real,)),
        Anchors(index, ((few,), (real.take(index, AllRows()),))),
    )


def _draws(model, step=0):
    return draw(model, H, "iid", 0, "test", step)


@pytest.mark.parametrize(("dim", "private"), [(1, 0), (2, 0), (3, 0), (2, 1)])
@pytest.mark.parametrize("likelihood", [Bernoulli(), NegativeBinomial(2.0), Poisson()])
def test_with_all_rows_as_anchors_the_bound_is_the_one_of_training(likelihood, dim, private):
    model, data, anchors = _model(likelihood, torch.arange(N), dim, private)
    with torch.no_grad():
        for step in range(10):  # sites near their fixed point
            model.update_sites(elbo(model, data, _draws(model, step)).updates)
        draws = _draws(model)
        wanted = elbo(model, data, draws, Evaluation(n_sweeps=4)).with_gap
        result = anchored_elbo(
            model, model.latents.sample(draws.latents), data, anchors, draws
        )
    assert float(result) == pytest.approx(float(wanted), abs=1e-3 * abs(float(wanted)))


@pytest.mark.parametrize("likelihood", [Bernoulli(), NegativeBinomial(2.0)])
def test_anchors_lay_the_sites_of_the_other_rows(likelihood):
    """Laid at the anchors' q(A) and brought up to date once, the bound is close below its fixed
    point.
    """
    model, data, anchors = _model(likelihood, torch.arange(0, N, 2))
    whole, _, _ = _model(likelihood, torch.arange(N))
    with torch.no_grad():
        draws = _draws(model)
        result, limit = (
            anchored_elbo(model, model.latents.sample(draws.latents), data, anchors, draws),
            elbo(whole, data, draws, Evaluation(n_sweeps=50)).with_gap,
        )
    assert (
        float(limit) - 0.02 * abs(float(limit))
        < float(result)
        < float(limit) + 1e-3 * abs(float(limit))
    )


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson()])
def test_means_that_are_not_solved_to_the_end_cost_little(likelihood, monkeypatch):
    """Columns share two covariances, so that means are found by iteration."""
    model, data, anchors = _model(likelihood, torch.arange(0, N, 2))
    with torch.no_grad():
        draws = _draws(model)
        given = (model, model.latents.sample(draws.latents), data, anchors, draws)
        result = float(anchored_elbo(*given))
        monkeypatch.setattr(subset_sites, "LOST_PER_ENTRY", 0.0)
        limit = float(anchored_elbo(*given))
    assert limit - 3e-5 * N * M < result < limit + 1e-5 * N * M


def test_holes_of_a_view_beside_the_counts_are_in_the_bound():
    model, (counts, (real,)), anchors = _model(Poisson(), torch.arange(N))
    Y = real.Y.float().double()
    Y[3, 2] = Y[7, 5] = torch.nan
    with_holes = IncompleteBlock.of(Y, None, torch.arange(M), (M,))
    data = (counts, (with_holes,))
    with torch.no_grad():
        for step in range(10):
            model.update_sites(elbo(model, data, _draws(model, step)).updates)
        draws = _draws(model)
        wanted = elbo(model, data, draws, Evaluation(n_sweeps=4)).with_gap
        result = anchored_elbo(
            model,
            model.latents.sample(draws.latents),
            data,
            Anchors(anchors.index, (counts, (with_holes,))),
            draws,
        )
    assert float(result) == pytest.approx(float(wanted), abs=1e-3 * abs(float(wanted)))


def test_the_posterior_of_all_rows_is_sharper_than_that_of_the_anchors():
    model, data, anchors = _model(Bernoulli(), torch.arange(0, N, 2))
    settings = {
        "n_frequencies": H,
        "n_draws": 1,
        "n_latent_draws": 1,
        "sampling": "iid",
        "seed": 0,
    }
    every = weights_posterior(model, data, **settings, anchors=anchors)[0].draws[0]
    few = LatentVariableModel(
        GaussianLatents(
            model.latents.mean[anchors.index].detach(),
            model.latents.log_std[anchors.index].detach(),
        ),
        model.views,
    )
    some = weights_posterior(few, anchors.data, **settings)[0].draws[0]
    size = every.covariance.shape[0]
    assert size == some.covariance.shape[0]
    assert bool(
        (
            every.covariance.diagonal(dim1=1, dim2=2).sum(1)
            < some.covariance.diagonal(dim1=1, dim2=2).sum(1)
        ).all()
    )


def test_posteriors_of_many_entries_are_those_of_few(monkeypatch):
    """In passes over rows, and at once."""
    model, data, _ = _model(NegativeBinomial(2.0), torch.arange(N))
    with torch.no_grad():
        for step in range(10):
            model.update_sites(elbo(model, data, _draws(model, step)).updates)
    settings = {"n_frequencies": H, "n_draws": 1, "sampling": "iid", "seed": 0}
    whole = weights_posterior(model, data, **settings, n_latent_draws=3)[0]
    monkeypatch.setattr(conditioning, "DENSE", N)
    monkeypatch.setattr(site_passes, "_CACHED", 0)
    monkeypatch.setattr(site_passes, "_FEWEST", 5)
    parts = weights_posterior(model, data, **settings, n_latent_draws=3)[0]
    one, other = parts.draws[0], whole.draws[0]
    covariance = other.covariance[whole.group_of]
    # they take fewer steps: means agree to a tenth of their standard deviations
    std = covariance.diagonal(dim1=1, dim2=2).sqrt().T
    assert float(((one.mean - other.mean) / std).abs().max()) < 0.1
    torch.testing.assert_close(
        one.covariance[parts.group_of], covariance, rtol=0.05, atol=0.01
    )


def test_a_bound_without_gradient_is_taken_a_few_columns_at_a_time(monkeypatch):
    model, data, _ = _model(NegativeBinomial(2.0), torch.arange(N))
    with torch.no_grad():
        whole = elbo(model, data, _draws(model))
        monkeypatch.setattr(local, "DENSE", N)
        part = elbo(model, data, _draws(model))  # the groups, one after the other
        assert float(part.total) == pytest.approx(float(whole.total), rel=1e-9)
        update, same = part.updates[0], whole.updates[0]
        order, like = update.columns.argsort(), same.columns.argsort()
        assert torch.allclose(update.shift[:, order], same.shift[:, like])
        assert torch.allclose(update.intercept[order], same.intercept[like])
        monkeypatch.setattr(module, "DENSE", N)
        # every column by itself, with a covariance of its own
        alone = elbo(model, data, _draws(model))
    assert float(alone.total) >= float(whole.total) - 1e-6
