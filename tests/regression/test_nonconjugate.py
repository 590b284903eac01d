"""The bound of non-conjugate views: below the evidence, monotone, the formula of
docs/math.md, the right gradient.
"""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from torch import Tensor

from bochner.data.masks import FullMask
from bochner.kernels.base import Frequencies
from bochner.likelihoods import Bernoulli, NegativeBinomial, Poisson
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.likelihoods.polya_gamma import log_2cosh_half, mean_weight
from bochner.models.sites import INTERCEPT_STD, Sites
from bochner.random import generator
from bochner.regression.nonconjugate import nonconjugate_evidence
from bochner.regression.observations import EncodedBlock
from bochner.regression.site_entries import RowSample
from helpers.nonconjugate import MAKERS, small_view

OTHER_DIMENSIONS = [("bernoulli", 1, 3), ("bernoulli", 3, 3), ("categorical", 1, 12)]


def _value(
    x: Tensor,
    f: Frequencies,
    likelihood: NonConjugateLikelihood,
    sites: Sites,
    block: EncodedBlock,
    n_sweeps: int,
) -> Tensor:
    return nonconjugate_evidence(
        x, f, likelihood, sites, block, n_sweeps=n_sweeps, tol=1e-13
    ).value


def _features(x: Tensor, f: Frequencies) -> Tensor:
    """(N, K), written out."""
    waves = [x @ w.T for w in (f.first, f.second) if w is not None]
    return torch.cat(
        [f.amplitude * sum(w.cos() for w in waves), f.amplitude * sum(w.sin() for w in waves)],
        dim=1,
    )


# the 9 rows of a small view have more than half as many as features, or are computed in their span
@pytest.mark.parametrize("n_pairs", [3, 12])
def test_at_its_fixed_point_the_bound_is_the_collapsed_one(n_pairs):
    """docs/math.md, section 3, term by term, at the local parameters that the sweeps end with,
    offsets included.
    """
    x, f, likelihood, block, sites = small_view("loose_negative_binomial", n_pairs=n_pairs)
    for _ in range(80):
        sites.absorb(nonconjugate_evidence(x, f, likelihood, sites, block, tol=1e-13).update)
    value = _value(x, f, likelihood, sites, block, 60) - sites.log_prior(torch.arange(3)).sum()
    phi, y, r = _features(x, f), block.Y, likelihood.dispersion.detach()
    o = sites.intercept + block.offset[:, None] - r.log()  # type: ignore[index]
    b, kappa = y + r, 0.5 * (y - r)
    constant = (y + r).lgamma() - (y + 1).lgamma() - r.lgamma()
    total = torch.zeros((), dtype=torch.float64)
    for m in range(3):
        c = torch.ones(9, dtype=torch.float64)
        for _ in range(300):
            omega = b[:, m] * mean_weight(c)
            precision = torch.eye(phi.shape[1], dtype=torch.float64) + (phi.T * omega) @ phi
            mean = torch.linalg.solve(precision, phi.T @ (kappa[:, m] - omega * o[:, m]))
            c = (
                (o[:, m] + phi @ mean).square()
                + ((phi @ torch.linalg.inv(precision)) * phi).sum(1)
            ).sqrt()
        omega = b[:, m] * mean_weight(c)
        lower = torch.linalg.cholesky(
            torch.eye(phi.shape[1], dtype=torch.float64) + (phi.T * omega) @ phi
        )
        pulled = torch.linalg.solve_triangular(
            lower, (phi.T @ (kappa[:, m] - omega * o[:, m]))[:, None], upper=False
        )
        log_cosh = log_2cosh_half(c) - math.log(2.0)
        entries = (
            constant[:, m] - b[:, m] * (math.log(2.0) + log_cosh) + 0.5 * omega * c.square()
        )
        entries = entries + kappa[:, m] * o[:, m] - 0.5 * omega * o[:, m].square()
        total = (
            total + entries.sum() + 0.5 * pulled.square().sum() - lower.diagonal().log().sum()
        )
    torch.testing.assert_close(value.detach(), total, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "name", ["bernoulli", "bohning", "binomial", "loose_negative_binomial", "categorical"]
)
def test_closed_form_blocks_never_lower_the_bound(name, missing, groups):
    x, f, likelihood, block, sites = small_view(name, missing=missing, groups=groups)
    values = []
    with torch.no_grad():
        for _ in range(25):
            result = nonconjugate_evidence(x, f, likelihood, sites, block, tol=1e-13)
            values.append(float(result.value))
            sites.absorb(result.update)
    rises = torch.tensor(values).diff()
    assert bool((rises > -1e-9).all()), rises
    assert values[-1] > values[0] + 1e-3


# every likelihood with few and with many features, and every dimension
@pytest.mark.parametrize(
    ("name", "dim", "n_pairs"),
    [*itertools.product(MAKERS, [2], [3, 12]), *OTHER_DIMENSIONS, ("negative_binomial", 3, 3)],
)
def test_the_gradient_is_that_of_the_converged_bound(name, dim, n_pairs):
    """Envelope theorem: with q(A) at its optimum, its own dependence on X and W does not count."""
    x, f, likelihood, block, sites = small_view(name, dim, n=6, n_pairs=n_pairs, missing=True)
    likelihood.requires_grad_(False)
    inputs = tuple(part.requires_grad_() for part in (x, f.first, f.second, f.amplitude))

    def value(x: Tensor, first: Tensor, second: Tensor, amplitude: Tensor) -> Tensor:
        return _value(x, Frequencies(first, second, amplitude), likelihood, sites, block, 100)

    assert torch.autograd.gradcheck(
        value, inputs, eps=1e-5, atol=1e-4, rtol=1e-4, fast_mode=True
    )


@pytest.mark.parametrize(
    ("name", "dim", "n_pairs"),
    [
        *itertools.product(["bernoulli", "bohning", "binomial", "categorical"], [2], [3, 12]),
        *OTHER_DIMENSIONS,
        ("bohning", 3, 12),
    ],
)
def test_the_gradient_is_that_of_the_bound_at_sites_of_another_draw(name, dim, n_pairs):
    """No envelope theorem: q(A) at sites that are held is not at its optimum, and follows."""
    x, f, likelihood, block, sites = small_view(name, dim, n_pairs=n_pairs, missing=True)
    likelihood.requires_grad_(False)
    far = x + 0.8 * torch.randn(x.shape, generator=generator(1, "far"), dtype=x.dtype)
    sites.absorb(nonconjugate_evidence(far, f, likelihood, sites, block, tol=1e-13).update)
    inputs = tuple(part.requires_grad_() for part in (x, f.first, f.second, f.amplitude))

    def value(x: Tensor, first: Tensor, second: Tensor, amplitude: Tensor) -> Tensor:
        return _value(x, Frequencies(first, second, amplitude), likelihood, sites, block, 1)

    assert torch.autograd.gradcheck(value, inputs, eps=1e-6, atol=1e-5, rtol=1e-5)


def _log_evidence(
    phi: Tensor,
    likelihood: NonConjugateLikelihood,
    sites: Sites,
    block: EncodedBlock,
    source: torch.Generator,
):
    """log of the integral of p(Y | A, intercepts) p(A), by sampling from the prior, and its
    standard error.
    """
    samples = torch.randn(200_000, phi.shape[1], generator=source, dtype=torch.float64)
    total, variance = 0.0, 0.0
    for m in range(block.Y.shape[1]):
        psi = samples @ phi.T + (sites.intercept[m] + block.offset)  # type: ignore[operator]
        entries = likelihood.log_prob(block.Y[:, m].expand_as(psi), psi).detach()
        log_p = block.mask.columns(slice(m, m + 1)).apply(entries[..., None])[..., 0].sum(1)
        ratio = (log_p - log_p.max()).exp()
        total += float(log_p.max() + ratio.mean().log())
        variance += float(ratio.var() / ratio.mean().square() / len(ratio))
    return total, variance**0.5


@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("name", list(MAKERS))
def test_the_bound_is_below_the_sampled_evidence_and_close(name, groups):
    x, f, likelihood, block, sites = small_view(
        name, n=5, n_pairs=2, missing=True, groups=groups
    )
    with torch.no_grad():
        value = float(_value(x, f, likelihood, sites, block, 60))
    evidence, error = _log_evidence(
        _features(x, f), likelihood, sites, block, generator(1, "evidence")
    )
    assert value <= evidence + 4 * error
    assert value > evidence - (2.5 if name == "bohning" or name.startswith("loose") else 1.0)


def test_a_loose_group_or_a_rough_solve_is_still_a_bound():
    x, f, likelihood, block, sites = small_view("bernoulli", groups=1)
    separate = small_view("bernoulli")[-1]
    with torch.no_grad():
        rough = nonconjugate_evidence(
            x, f, likelihood, sites, block, n_sweeps=1, tol=1.0
        ).value
        shared = _value(x, f, likelihood, sites, block, 50)
        best = _value(x, f, likelihood, separate, block, 50)
    assert float(rough) < float(shared) <= float(best) + 1e-9


def test_column_batches_are_unbiased():
    x, f, likelihood, block, sites = small_view("bernoulli")
    with torch.no_grad():
        whole = nonconjugate_evidence(x, f, likelihood, sites, block, tol=1e-12)
        parts = [
            nonconjugate_evidence(
                x, f, likelihood, sites, block, columns=torch.tensor([m]), tol=1e-12
            )
            for m in range(3)
        ]
    mean = torch.stack([part.value for part in parts]).mean()
    torch.testing.assert_close(mean, whole.value)
    for m, part in enumerate(parts):
        torch.testing.assert_close(part.update.shift[:, 0], whole.update.shift[:, m])


@pytest.mark.parametrize("n", [9, 10, 11])
@pytest.mark.parametrize("name", ["negative_binomial", "loose_negative_binomial"])
def test_the_mean_over_all_samples_of_rows_is_the_value_of_all_rows(name, n):
    """However many rows the last sample lacks: gap and gradients in the parameters."""
    x, f, likelihood, block, sites = small_view(name, n=n, missing=True)
    parameters = list(likelihood.parameters())

    def slack_and_gradient(sample):
        result = nonconjugate_evidence(
            x, f, likelihood, sites, block, tol=1e-13, sample=sample
        )
        return torch.stack([result.gap, *torch.autograd.grad(result.value, parameters)])

    n_samples = RowSample(0.0, n_entries=8).of(n, 3)[1]
    assert n_samples == n * 3 // 8
    some = [
        slack_and_gradient(RowSample((i + 0.5) / n_samples, n_entries=8))
        for i in range(n_samples)
    ]
    every = slack_and_gradient(None)
    assert float((some[0] - every)[1].abs()) > 1e-3
    torch.testing.assert_close(torch.stack(some).mean(0), every, rtol=1e-10, atol=1e-10)


def test_a_sample_of_rows_never_is_empty():
    assert RowSample(0.999, n_entries=1).of(3, 100) == (slice(2, None, 3), 3)
    assert RowSample(0.999).of(3, 100) == (slice(0, None, 1), 1)


def test_missing_entries_and_absent_rows_tell_nothing():
    x, f, likelihood, block, _ = small_view("poisson")
    empty = torch.cat([block.Y, torch.full((2, 3), torch.nan, dtype=torch.float64)])
    offset = torch.cat([block.offset, torch.zeros(2).double()])  # type: ignore[list-item]
    more = torch.cat([x, torch.ones(2, 2, dtype=torch.float64)])
    masked = EncodedBlock.of(empty, offset=offset)
    sites = Sites(likelihood, masked.Y, masked.mask, offset, None)
    few = EncodedBlock.of(block.Y, rows=torch.arange(9), offset=block.offset)
    alone = Sites(likelihood, block.Y, FullMask(), block.offset, None)  # type: ignore[arg-type]
    with torch.no_grad():
        one = _value(more, f, likelihood, sites, masked, 10)
        two = _value(more, f, likelihood, alone, few, 10)
    torch.testing.assert_close(one, two)


def test_separable_and_empty_columns_keep_finite_intercepts():
    x, f, _, block, _ = small_view("bernoulli")
    Y = torch.zeros_like(block.Y)
    Y[:, 1] = 1.0
    Y[:, 2] = (x[:, 0] > 0).double()
    for likelihood in (
        Bernoulli(),
        Bernoulli(bound="bohning"),
        NegativeBinomial(1.0),
        Poisson(),
    ):
        sites = Sites(likelihood, Y, FullMask(), torch.zeros(9).double(), None)
        separable = EncodedBlock.of(Y)
        with torch.no_grad():
            for _ in range(80):
                result = nonconjugate_evidence(x, f, likelihood, sites, separable)
                sites.absorb(result.update)
        assert bool(torch.isfinite(result.value))
        assert bool(((sites.intercept - sites.centre).abs() < 3 * INTERCEPT_STD).all())


def test_counts_of_a_million_stay_finite_in_single_precision():
    x, f, _, _, _ = small_view("poisson", n=9)
    Y = torch.tensor([1e6, 0.0, 3.0]).repeat(9, 1)
    Y[4, 0] = 0.0
    for likelihood in (Poisson(), NegativeBinomial(1.0)):
        sites = Sites(likelihood, Y, FullMask(), torch.zeros(9), None)
        for _ in range(20):
            inputs = x.float().requires_grad_()
            result = nonconjugate_evidence(
                inputs, f.to(torch.float32), likelihood, sites, EncodedBlock.of(Y)
            )
            (gradient,) = torch.autograd.grad(result.value, inputs)
            assert bool(torch.isfinite(result.value))
            assert bool(torch.isfinite(gradient).all())
            sites.absorb(result.update)


def grouped(precision, n_groups):
    n, m = 9, len(precision)
    likelihood = small_view("bernoulli", n=n)[2]
    sites = Sites(likelihood, torch.zeros(n, m).double(), FullMask(), torch.zeros(n), n_groups)
    sites.precision.copy_(torch.as_tensor(precision).expand(n, -1))
    sites.regroup()
    return sites


def test_groups_follow_precision_and_cost_the_least():
    """By what an average precision costs columns of their own, over all ways to cut their order."""
    precision = (
        torch.rand(8, generator=torch.Generator().manual_seed(3)).mul(9.0).exp().double()
    )
    sites = grouped(precision, 3)
    total = 1.0 + 9.0 * precision

    def cost(parts):
        return float(sum(len(p) * p.mean().log() - p.log().sum() for p in parts))

    ours = cost([total[sites.group_of == g] for g in range(3)])
    cuts = itertools.combinations(range(1, 8), 2)
    best = min(cost(torch.tensor_split(total.sort().values, cut)) for cut in cuts)
    assert ours == pytest.approx(best, rel=1e-12)
    before = copy.deepcopy(sites.state_dict())
    sites.regroup()
    assert all(torch.equal(before[name], part) for name, part in sites.state_dict().items())


@pytest.mark.parametrize("m", [12, 700])
def test_columns_of_huge_counts_share_no_covariance_with_columns_of_small_ones(m):
    """Groups of the same size did, and training went to bounds of -1e77 nats."""
    precision = torch.where(torch.arange(m) % 3 == 0, 1e5, 5.0).double()
    sites = grouped(precision, 4)
    for group in range(4):
        assert precision[sites.group_of == group].unique().numel() == 1


def test_counts_have_a_higher_bound_where_columns_share_no_covariance():
    source = generator(0, "test")
    x = torch.randn(40, 2, generator=source).double()
    waves = torch.randn(6, 2, generator=source).double()
    f = Frequencies(waves, None, torch.full((6,), 0.4).double())
    rates = torch.linspace(-2.0, 4.0, 12).exp().expand(40, -1).double()
    block = EncodedBlock.of(torch.poisson(rates, generator=source))
    values = []
    for n_groups in (4, None):
        likelihood = Poisson()
        sites = Sites(likelihood, block.Y, FullMask(), torch.zeros(40).double(), n_groups)
        for _ in range(40):
            sites.absorb(nonconjugate_evidence(x, f, likelihood, sites, block).update)
        values.append(float(_value(x, f, likelihood, sites, block, 20)))
    assert values[1] > values[0] + 0.1


@pytest.mark.parametrize("r", [1.0, 30.0])
def test_the_gap_of_a_negative_binomial_is_what_its_bound_gives_away(r):
    likelihood = NegativeBinomial(r, bound="polya-gamma")
    source = torch.Generator().manual_seed(0)
    mean, y = (
        torch.randn(6, 3, generator=source).double(),
        torch.arange(18.0).double().reshape(6, 3),
    )
    variance = 0.3 * torch.rand(6, 3, generator=source).double()
    gap = likelihood.gap(y, mean, variance)
    psi = mean + variance.sqrt() * torch.randn(
        40_000, 6, 3, generator=source, dtype=torch.float64
    )
    sampled = likelihood.log_prob(y, psi)
    want = sampled.mean(0) - likelihood.slopes(y, mean, variance).value
    assert bool((gap >= 0).all())
    assert bool(((gap - want).abs() < 5 * sampled.std(0) / 200 + 1e-6).all())
    assert Bernoulli().gap(y, mean, variance) is None
    assert NegativeBinomial(r, bound="tilted").gap(y, mean, variance) is None


@pytest.mark.parametrize("bound", ["tilted", "polya-gamma"])
@pytest.mark.parametrize("r", [0.3, 3.0, 100.0])
def test_bounds_of_counts_are_bounds_and_with_the_gap_up_to_its_quadrature(bound, r):
    """As docs/likelihoods.md states its error: y + r times so much at these variances of psi."""
    likelihood = NegativeBinomial(r, bound=bound)
    stated = {0.05: 1e-9, 1.0: 1e-6, 4.0: 3e-4, 10.0: 5e-3}
    y = torch.tensor([0.0, 1.0, 10.0, 100.0, 1e4], dtype=torch.float64)
    node = torch.linspace(-10.0, 10.0, 2001, dtype=torch.float64)
    weight = (-0.5 * node.square()).softmax(0)
    for variance, off in stated.items():
        v = torch.full((1, 5), variance, dtype=torch.float64)
        for place in (-3.0, 0.0, 3.0, 6.0, 9.0):
            mean = torch.full((1, 5), place, dtype=torch.float64)
            psi = mean + math.sqrt(variance) * node[:, None]
            expected = weight @ likelihood.log_prob(y.expand(2001, -1), psi)
            value = likelihood.slopes(y[None], mean, v).value[0]
            rounding = 1e-9 * (1.0 + expected.abs())
            assert bool((value <= expected + rounding).all())
            gap = likelihood.gap(y[None], mean, v)
            if gap is not None:
                beyond = value + gap[0] - expected
                assert bool((beyond <= off * (y + r) + rounding).all())


def test_sites_of_the_tilted_bound_ask_for_no_more_than_their_reach():
    psi = torch.tensor([[-20.0, 0.0, 3.0, 6.0, 30.0]], dtype=torch.float64)
    y, variance = torch.full_like(psi, 400.0), torch.full_like(psi, 0.1)
    steps = {}
    for bound in ("tilted", "polya-gamma"):
        counts = NegativeBinomial(5.0, bound=bound)
        slopes = counts.slopes(y, psi, variance)
        precision, slope = counts.site(y, psi, variance, slopes)
        assert bool((precision >= -2.0 * slopes.d_variance).all())
        assert bool((slope == slopes.d_mean).all())
        steps[bound] = (slope / precision).detach().abs()
    assert float(steps["tilted"].max()) <= 2.0 + 1e-9
    # its bound is quadratic: every step is safe, however long
    assert float(steps["polya-gamma"].max()) > 2.0


@pytest.mark.parametrize("count", [0.0, 7.0, 1e6])
def test_sites_of_poisson_counts_touch_but_far_from_the_count(count):
    peak, poisson = math.log(count + 0.5), Poisson()
    psi = peak + torch.tensor(
        [[-300.0, -30.0, -3.5, 0.0, 1.0, 4.0, 40.0, 300.0]], dtype=torch.float64
    )
    y, variance = torch.full_like(psi, count), torch.full_like(psi, 0.1)
    slopes = poisson.slopes(y, psi, variance)
    precision, slope = poisson.site(y, psi, variance, slopes)
    near = (psi > peak - 4.0) & (psi < peak + 4.5)
    torch.testing.assert_close(slope[near], slopes.d_mean[near])
    torch.testing.assert_close(precision[near], -2.0 * slopes.d_variance[near])
    asked = psi + slope / precision
    assert bool((asked <= psi + 2.0 + 1e-9)[psi < peak - 4.0].all())
    assert bool((asked < peak + 5.0)[psi > peak].all())
    assert float(precision.max()) <= (count + 0.5) * math.exp(5.0) + 1e-6


@pytest.mark.parametrize("dim", [1, 2])
def test_means_of_columns_that_share_a_covariance_are_found_well_enough(dim):
    """Zeros and ones that latents separate. Means that lose a thousandth of a nat an entry lead the
    sites to a bound a third lower (400 rows in dim = 2), with a slope in the kernel's variance 13 %
    off.
    """
    source = generator(0, "separated", dim)
    x = torch.randn(300, dim, generator=source, dtype=torch.float64)
    first = torch.randn(40, dim, generator=source, dtype=torch.float64)
    f = Frequencies(first, None, torch.full((40,), 0.5, dtype=torch.float64))
    weights = torch.randn(80, 60, generator=source, dtype=torch.float64)
    y = (_features(x, f) @ weights > 0.0).double()
    likelihood = Bernoulli()
    offset = torch.zeros(len(x), dtype=torch.float64)
    block = EncodedBlock.of(likelihood.encode(y), offset=offset)

    def settled(tol: dict[str, float]) -> Sites:
        sites = Sites(likelihood, block.Y, block.mask, offset, 1)
        with torch.no_grad():
            for _ in range(25):
                update = nonconjugate_evidence(x, f, likelihood, sites, block, **tol).update
                sites.absorb(update)
        return sites

    def at(sites: Sites, tol: dict[str, float]) -> tuple[float, float]:
        amplitude = f.amplitude.clone().requires_grad_()
        moved = Frequencies(first, None, amplitude)
        value = nonconjugate_evidence(x, moved, likelihood, sites, block, **tol).value
        value.backward()
        assert amplitude.grad is not None
        return float(value.detach()), float(amplitude.grad @ amplitude)

    exact = {"tol": 1e-10}
    ours, best = settled({}), settled(exact)
    highest = at(best, exact)[0]
    value, slope = at(ours, {})
    reached, right = at(ours, exact)
    assert abs(reached - value) < 1e-4 * y.numel()
    assert abs(slope - right) < 0.01 * abs(right)
    assert value > 1.001 * highest
