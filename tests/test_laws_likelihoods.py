"""Law 3 for every likelihood: a concrete likelihood that is not among the examples fails the
suite.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pickle
import pkgutil
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext

import pytest
import torch
from torch import Tensor

import bochner as bo
import bochner.likelihoods
from bochner.errors import InputError
from bochner.likelihoods import (
    Bernoulli,
    Binomial,
    Categorical,
    Gaussian,
    NegativeBinomial,
    Poisson,
    tilted,
)
from bochner.likelihoods.counts import log_factorial, moment_dispersion
from bochner.likelihoods.densities import EntryDensity
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.likelihoods.polya_gamma import log_2cosh_half, mean_weight
from bochner.quadrature import log_normal_mean, normal_mean, normal_nodes
from bochner.random import generator
from bochner.serialization.fitted import likelihood_from_json, likelihood_to_json
from bochner.testing.likelihoods import LIKELIHOOD_LAWS, USUAL_VALUES, Case
from exponential_likelihood import Exponential
from student_t_likelihood import StudentT

COUNTS = torch.arange(0, 1500, dtype=torch.float64)
# likelihood, every value y can take for one column of psi, and values of y to check bounds at
EXAMPLES: dict[
    type[NonConjugateLikelihood],
    list[tuple[Callable[[], NonConjugateLikelihood], Tensor, Sequence[float]]],
] = {
    Bernoulli: [
        (Bernoulli, COUNTS[:2], [0.0, 1.0]),
        (lambda: Bernoulli(bound="bohning"), COUNTS[:2], [0.0, 1.0]),
    ],
    Binomial: [
        (lambda: Binomial(7), COUNTS[:8], [0.0, 3.0, 7.0]),
        (lambda: Binomial(7, bound="bohning"), COUNTS[:8], [0.0, 3.0, 7.0]),
    ],
    NegativeBinomial: [
        (lambda: NegativeBinomial(0.7), COUNTS, [0.0, 1.0, 30.0]),
        (lambda: NegativeBinomial(20.0), COUNTS, [0.0, 5.0, 200.0]),
        (lambda: NegativeBinomial(0.7, bound="tilted"), COUNTS, [0.0, 1.0, 30.0]),
        (lambda: NegativeBinomial(20.0, bound="tilted"), COUNTS, [0.0, 5.0, 200.0]),
    ],
    Poisson: [(Poisson, COUNTS, [0.0, 1.0, 40.0])],
    Categorical: [(lambda: Categorical([[0.0, 1.0]]), COUNTS[:2], [0.0, 1.0])],
    # the documentation's likelihoods of one's own
    Exponential: [(Exponential, *USUAL_VALUES["positive"])],
    StudentT: [
        (StudentT, *USUAL_VALUES["real"]),
        (lambda: StudentT(1.5, df=7), *USUAL_VALUES["real"]),
    ],
}
CASES = [
    pytest.param(*case, id=f"{cls.__name__}{i}")
    for cls, own in EXAMPLES.items()
    for i, case in enumerate(own)
]
PSI = torch.linspace(-4.0, 3.0, 8, dtype=torch.float64)


def test_every_likelihood_is_among_the_examples():
    modules = [
        importlib.import_module(f"bochner.likelihoods.{m.name}")
        for m in pkgutil.iter_modules(bochner.likelihoods.__path__)
    ]
    result = {
        cls
        for module in modules
        for cls in vars(module).values()
        if inspect.isclass(cls) and issubclass(cls, Likelihood) and not inspect.isabstract(cls)
    }
    missing = result - set(EXAMPLES) - {Gaussian}
    assert not missing, f"add {sorted(c.__name__ for c in missing)} to EXAMPLES"


# -- densities
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("law", LIKELIHOOD_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize(("make", "values", "some"), CASES)
def test_laws_of_likelihoods(law, make, values, some):
    law(Case(make(), values, tuple(some)))


def test_gaussian_density_integrates_to_one():
    likelihood, y = Gaussian(0.3), torch.linspace(-8, 8, 20001, dtype=torch.float64)
    p = likelihood.log_prob(y, torch.tensor(0.4, dtype=torch.float64)).exp()
    assert float(torch.trapezoid(p, y).detach()) == pytest.approx(1.0, abs=1e-9)


def test_categories_sum_to_one_in_any_number():
    likelihood = Categorical([[3.0, 1.0, 7.0, 2.0]])
    psi = torch.randn(5, 3, generator=generator(0, "psi"), dtype=torch.float64)
    total = torch.zeros(5, dtype=torch.float64)
    for k, value in enumerate([3.0, 1.0, 7.0, 2.0]):
        sticks = likelihood.encode(torch.full((5, 1), value, dtype=torch.float64))
        log_p = torch.where(
            sticks.isnan(),
            torch.zeros(()).double(),
            likelihood.log_prob(torch.nan_to_num(sticks), psi),
        )
        probability = likelihood.probabilities(psi, torch.zeros_like(psi))[0][:, k]
        torch.testing.assert_close(log_p.sum(1).exp(), probability)
        total += probability
    torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("spread", [0.0, 0.1, 10.0])
def test_no_probability_leaves_its_range_where_entries_are_sure(spread):
    """Weights of nodes add up to 1 but for rounding, and multinomial refuses what is below 0."""
    psi = torch.linspace(-60.0, 60.0, 4001, dtype=torch.float64)[:, None]
    variance = torch.full_like(psi, spread)
    for likelihood, most in ((Bernoulli(), 1.0), (Binomial(5), 5.0)):
        first, second = likelihood.predict(psi, variance)
        assert 0.0 <= float(first.min()) <= float(first.max()) <= most
        assert float(second.min()) >= 0.0
    sticks, spreads = psi.repeat(1, 2), variance.repeat(1, 2)
    categories = Categorical([[0.0, 1.0, 2.0]])
    probability = categories.probabilities(sticks, spreads)[0]
    assert 0.0 <= float(probability.min()) <= float(probability.max()) <= 1.0
    assert bool(categories.draw(sticks, generator(0, "sure")).isfinite().all())


def test_draws_have_the_variance_they_should():
    psi = torch.full((40_000, 1), 0.6, dtype=torch.float64)
    for make, _, _ in (case for cls, rows in EXAMPLES.items() for case in rows):
        likelihood = make()
        y = likelihood.draw(psi, generator(1, "draws")).detach()
        if isinstance(likelihood, Categorical):  # a stick that is taken is category 0
            y, mean = 1.0 - y, torch.sigmoid(psi[:1])
            variance = mean * (1.0 - mean)
        else:
            mean, variance = likelihood.mean(psi[:1]), likelihood.variance(psi[:1])
        assert float(y.mean()) == pytest.approx(
            float(mean), abs=5 * (float(variance) / 40_000) ** 0.5
        )
        # whose fourth moment is infinite or nearly so
        if not isinstance(likelihood, StudentT):
            error = float((y - y.mean()).square().var() / 40_000) ** 0.5
            assert float(y.var()) == pytest.approx(float(variance), abs=5 * error)


# -- the local bound
# ---------------------------------------------------------------------------


def _grid(y: float) -> tuple[Tensor, Tensor, Tensor]:
    mean = torch.linspace(-3.0, 3.0, 7, dtype=torch.float64).repeat(4)
    variance = torch.tensor([1e-8, 0.1, 0.7, 2.0], dtype=torch.float64).repeat_interleave(7)
    return torch.full_like(mean, y)[:, None], mean[:, None], variance[:, None]


@pytest.mark.parametrize("make", [Poisson, Exponential])
def test_a_bound_without_augmentation_is_the_expectation(make):
    likelihood = make()
    for value in (0.01, 1.0, 30.0):
        y, mean, variance = _grid(value)
        exact = normal_mean(
            lambda psi, y=y: likelihood.log_prob(y, psi).detach(), mean, variance, 60
        )
        bound = likelihood.slopes(y, mean, variance).value
        torch.testing.assert_close(bound, exact, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("family", ["polya-gamma", "bohning"])
def test_no_other_local_parameter_gives_a_better_bound(family):
    """docs/math.md, section 3 states the bounds for any c and xi; ours are at their best."""
    y, mean, variance = _grid(1.0)
    best = Bernoulli(bound=family).slopes(y, mean, variance).value
    for local in torch.linspace(0.0, 4.0, 9, dtype=torch.float64):
        if family == "polya-gamma":
            omega = mean_weight(local)
            any_c = (
                0.5 * mean
                - log_2cosh_half(local)
                + 0.5 * omega * (local**2 - mean.square() - variance)
            )
            assert bool((any_c <= best + 1e-12).all())
        else:
            xi = local - 2.0
            p = torch.sigmoid(xi)
            kappa = 1.0 - p + 0.25 * xi
            constant = -(torch.log1p(xi.exp()) - xi * p + xi**2 / 8)
            any_xi = constant + kappa * mean - 0.125 * (mean.square() + variance)
            assert bool((any_xi <= best + 1e-12).all())


@pytest.mark.parametrize(("make", "values", "some"), CASES)
def test_the_expansion_is_the_slopes_and_the_curvatures(make, values, some):
    likelihood = make()
    y = torch.tensor(some, dtype=torch.float64)[:, None].repeat(1, 2 * len(PSI))
    mean = PSI.repeat(2).expand_as(y)
    # c^2 on either side of where the series takes over
    variance = torch.cat([torch.full_like(PSI, 0.4), torch.full_like(PSI, 1e-4)]).expand_as(y)
    slopes, bend = likelihood.expansion(y, mean, variance)
    for result, wanted in (
        (slopes, likelihood.slopes(y, mean, variance)),
        (bend, likelihood.curvatures(y, mean, variance)),
    ):
        for name, part in vars(wanted).items():
            got = vars(result)[name].expand_as(y)
            torch.testing.assert_close(got, part.expand_as(y), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [0.0, 3.0, 70.5, 1e9])
def test_log_factorials_are_those_of_the_gamma_function(count):
    y = torch.arange(300.0, dtype=torch.float64).reshape(60, 5) % 11
    y[4, 2] = count  # beyond the table, or no whole number: none is used
    torch.testing.assert_close(log_factorial(y), (y + 1.0).lgamma())
    assert log_factorial(y[:0]).shape == (0, 5)


@pytest.mark.parametrize(("make", "values", "some"), CASES)
def test_products_are_the_bound_up_to_a_constant_of_the_row(make, values, some):
    likelihood = make()
    if getattr(likelihood, "bound", "") == "bohning" or isinstance(likelihood, StudentT):
        return  # ranked by Polya-gamma's bound, the tighter one; by squared errors
    y = torch.tensor(some, dtype=torch.float64)[:, None]
    mean, variance = PSI[:, None], torch.full((len(PSI), 1), 0.4, dtype=torch.float64)
    scores = sum(
        of_row @ of_candidate.T
        for of_row, of_candidate in likelihood.products(y, mean, variance)
    )
    for i in range(len(some)):
        exact = likelihood.slopes(y[i].expand_as(mean), mean, variance).value[:, 0]
        away = scores[i] - exact
        torch.testing.assert_close(away, away[:1].expand_as(away), rtol=1e-9, atol=1e-9)


def test_predictive_products_of_counts_are_near_log_densities_where_the_bound_is_not():
    likelihood, source = Poisson(), torch.Generator().manual_seed(0)
    centre = 2.0 + torch.randn(40, 1, generator=source, dtype=torch.float64)
    y = torch.poisson(centre.exp(), generator=source)
    mean = 2.0 + torch.randn(50, 1, generator=source, dtype=torch.float64)
    variance = torch.logspace(-5.0, 0.5, 50, dtype=torch.float64)[:, None]
    wide = [part.expand(40, 50) for part in (y, mean.T, variance.T)]
    exact = log_normal_mean(likelihood.density(wide[0]), wide[1], wide[2])
    away = []
    for products in (likelihood.predictive_products, likelihood.products):
        scores = sum(of_row @ of_place.T for of_row, of_place in products(y, mean, variance))
        away.append((scores - (y + 1.0).lgamma() - exact).abs())
    near, of_bound = away
    assert float(near.quantile(0.9)) < 0.5
    assert float(of_bound.quantile(0.9)) > 5.0
    assert float(near[exact > -6.0].quantile(0.9)) < 0.25


def test_predictive_products_of_others_are_the_bound():
    likelihood = NegativeBinomial([0.5])
    y, mean, variance = torch.tensor([[3.0]]).double(), PSI[:, None], torch.ones(len(PSI), 1)
    pairs = zip(
        likelihood.predictive_products(y, mean, variance.double()),
        likelihood.products(y, mean, variance.double()),
        strict=True,
    )
    assert all(
        torch.equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True)
    )


def _outcomes(likelihood, y):
    values = torch.tensor(y, dtype=torch.float64)
    return likelihood, likelihood.encode(values) if isinstance(
        likelihood, Categorical
    ) else values


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        _outcomes(Bernoulli(), [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]),
        _outcomes(Binomial([1, 5]), [[0.0, 3.0], [1.0, 5.0], [1.0, 0.0]]),
        _outcomes(Categorical([[0.0, 1.0, 2.0]]), [[0.0], [1.0], [2.0]]),
    ],
    ids=["bernoulli", "binomial", "categorical"],
)
def test_predictive_products_of_few_values_are_log_densities_up_to_a_constant(likelihood, y):
    """The bound is up to 5 nats an entry below, more where psi is less certain: posteriors of
    latents were too far from there.
    """
    source = torch.Generator().manual_seed(0)
    mean = 2.0 * torch.randn(60, 2, generator=source, dtype=torch.float64)
    mean[0] = torch.tensor([-2000.0, 2000.0])
    variance = torch.logspace(-6.0, 1.0, 60, dtype=torch.float64)[:, None].expand(60, 2)
    observed = (~y.isnan()).double()
    filled = torch.nan_to_num(y)
    products = likelihood.predictive_products(filled, mean, variance)
    scores = sum((observed * of_row) @ of_place.T for of_row, of_place in products)
    assert bool(scores.isfinite().all())
    for i in range(len(y)):
        exact = likelihood.log_predictive(filled[i].expand(60, 2), mean, variance)
        away = scores[i] - (observed[i] * exact).sum(1)
        torch.testing.assert_close(away[1:], away[1:2].expand_as(away[1:]), rtol=0, atol=0.01)


def test_many_trials_keep_the_bound():
    many = Binomial(1000)
    y, mean = torch.tensor([[500.0]]).double(), PSI[:, None]
    products = many.predictive_products(y, mean, torch.ones_like(mean))
    assert len(products) == 2


def test_dispersion_follows_the_exact_expectation():
    likelihood = NegativeBinomial([0.5, 4.0])
    y, mean = (
        torch.tensor([[3.0, 8.0], [0.0, 1.0]]).double(),
        torch.tensor([[1.0, 1.5], [0.2, 0.4]]).double(),
    )
    variance = torch.full_like(mean, 0.3)
    value = likelihood.parameter_value(y, mean, variance)
    (result,) = torch.autograd.grad(value.sum(), likelihood.log_dispersion)
    steps = []
    for shift in (1e-5, -1e-5):
        moved = NegativeBinomial((likelihood.dispersion.detach().log() + shift).exp())
        steps.append(
            normal_mean(
                lambda psi, m=moved: m.log_prob(y, psi).detach(), mean, variance, 40
            ).sum(0)
        )
    torch.testing.assert_close(result, (steps[0] - steps[1]) / 2e-5, rtol=1e-3, atol=1e-5)


def test_moments_find_the_dispersion_of_counts():
    source = generator(3, "counts")
    psi = 2.0 + 0.5 * torch.randn(400, 30, generator=source, dtype=torch.float64)
    y = NegativeBinomial(4.0).draw(psi, source)
    shared = moment_dispersion(y, psi.exp(), shared=True, smallest=0.1, largest=100.0)
    assert float(shared) == pytest.approx(4.0, rel=0.12)
    none = moment_dispersion(psi.exp(), psi.exp(), shared=False, smallest=0.1, largest=100.0)
    torch.testing.assert_close(none, torch.full_like(none, 100.0))


# -- prediction
# ---------------------------------------------------------------------------


def test_categories_are_predicted_by_the_most_probable():
    likelihood = Categorical([[0.0, 1.0]])
    mean = torch.tensor([[-1.0], [0.3], [1.0]], dtype=torch.float64)
    variance = torch.full_like(mean, 0.5)
    log_p = [likelihood.log_predictive(v.expand_as(mean), mean, variance) for v in COUNTS[:2]]
    p = torch.stack(log_p).exp()
    best, doubt = likelihood.predict(mean, variance)
    # a stick that is taken is category 0
    torch.testing.assert_close(best, 1.0 - p.argmax(0).double())
    torch.testing.assert_close(doubt, 1.0 - p.max(0).values, rtol=1e-4, atol=1e-5)


def test_quadrature_is_exact_for_polynomials():
    nodes, weights = normal_nodes(6)
    assert float(weights.sum()) == pytest.approx(1.0)
    for degree, moment in ((2, 1.0), (4, 3.0), (10, 945.0)):
        assert float((weights * nodes**degree).sum()) == pytest.approx(moment)
    mean = torch.tensor([0.3], dtype=torch.float64)
    variance = torch.tensor([0.5], dtype=torch.float64)
    linear = EntryDensity(mean, lambda y, psi: psi + 0.0 * y)
    assert float(log_normal_mean(linear, mean, variance)) == pytest.approx(
        0.3 + 0.25, abs=1e-12
    )


# -- extremes, parameters, files
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "value"),
    [
        (Bernoulli(), 1.0),
        (Binomial(10), 10.0),
        (NegativeBinomial(2.0), 1e6),
        (Poisson(), 1e6),
        (NegativeBinomial(), 0.0),
        (Exponential(), 1e-6),
    ],
)
def test_extreme_entries_stay_finite_in_single_precision(likelihood, value):
    y = torch.full((6, 1), value)
    mean = torch.tensor([[-30.0], [-5.0], [0.0], [5.0], [14.0], [30.0]])
    slopes = likelihood.slopes(y, mean, torch.full_like(mean, 0.2))
    for part in (slopes.value, slopes.d_mean, slopes.d_variance):
        assert bool(torch.isfinite(part).all())
    columns = torch.full((20, 1), value, dtype=torch.float64)
    assert bool(torch.isfinite(likelihood.initial(columns).intercept(columns, None)).all())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Binomial(0), "Expected n_trials as whole numbers of at least 1, got 0"),
        (lambda: Binomial([2, 2.5]), "got [2, 2.5]. Count the trials"),
        (
            lambda: Bernoulli(bound="jaakkola"),
            "Expected bound 'polya-gamma' or 'bohning', got 'jaakkola'",
        ),
        (lambda: NegativeBinomial(-1.0), "dispersion must be positive and finite, got -1.0"),
        (
            lambda: NegativeBinomial(bound="jensen"),
            "Expected bound 'auto', 'polya-gamma' or 'tilted', got 'jensen'",
        ),
        (
            lambda: NegativeBinomial("each"),
            "Expected dispersion 'shared', 'column' or numbers, got 'each'",
        ),
        (
            lambda: Poisson(size_factors="sum"),
            "Expected size_factors None or 'total', got 'sum'",
        ),
        (lambda: Categorical([[1.0, 1.0]]), "Expected distinct categories for every column"),
        (lambda: Gaussian(0.0), "noise_variance must be positive and finite, got 0.0"),
        (
            lambda: Binomial([3, 3]).initial(torch.ones(4, 3).double()),
            "got 2 numbers for 3 columns",
        ),
        (
            lambda: NegativeBinomial([1.0, 2.0]).initial(torch.ones(4, 3).double()),
            "got 2 numbers for 3 columns",
        ),
    ],
)
def test_constraints_are_named(make, text):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)


def test_starts_come_from_the_data():
    Y = torch.tensor([[0.0, 3.0], [2.0, torch.nan], [5.0, 1.0]], dtype=torch.float64)
    assert float(Binomial().initial(Y).n_trials) == 5.0
    assert NegativeBinomial("column").initial(Y).dispersion.shape == (2,)
    categories = Categorical().initial(Y)
    assert categories.get_params()["categories"] == [[0.0, 2.0, 5.0], [1.0, 3.0]]
    assert categories.group_sizes == (2, 1)
    encoded = categories.encode(Y)
    expected = torch.tensor(
        [[1.0, torch.nan, 0.0], [0.0, 1.0, torch.nan], [0.0, 0.0, 1.0]], dtype=torch.float64
    )
    torch.testing.assert_close(encoded, expected, equal_nan=True)
    # as many of each: the sticks start at -log(C - k)
    even = torch.arange(4000, dtype=torch.float64)[:, None] % 4
    made = Categorical().initial(even)
    start = made.intercept(made.encode(even), None)
    torch.testing.assert_close(
        start, torch.tensor([-math.log(3), -math.log(2), 0.0]).double(), rtol=0, atol=2e-3
    )


@pytest.mark.parametrize(("make", "values", "some"), CASES)
def test_parameters_are_replaced_as_a_search_does_it(make, values, some):
    likelihood = make()
    before = likelihood.get_params()
    assert likelihood.set_params(**before) is likelihood
    assert likelihood.get_params() == before
    assert repr(likelihood) == repr(make())
    with pytest.raises(InputError) as caught:
        likelihood.set_params(colour=1)
    name = type(likelihood).__name__
    assert str(caught.value) == f"{name} has no parameter 'colour'. It has: {sorted(before)}."


def test_an_estimator_replaces_parameters_of_its_likelihood():
    model = bo.NGMVLVM(likelihood=NegativeBinomial(2.0))
    model.set_params(likelihood__dispersion=5.0)
    assert float(model.likelihood.dispersion.detach()) == pytest.approx(5.0)
    assert model.likelihood.get_params()["dispersion"] == 5.0


@pytest.mark.parametrize(("make", "values", "some"), CASES)
def test_likelihoods_pickle_and_go_through_json(make, values, some):
    likelihood = make()
    copies = [pickle.loads(pickle.dumps(likelihood))]
    if isinstance(likelihood, Exponential | StudentT):
        with pytest.raises(
            InputError,
            match=r"one of the class .*(Exponential|StudentT), and a model file holds no code\.",
        ):
            likelihood_to_json(likelihood)
    else:
        copies.append(
            likelihood_from_json(type(likelihood).__name__, likelihood_to_json(likelihood))
        )
    y = torch.tensor(some, dtype=torch.float64)
    psi = torch.zeros_like(y)
    for other in copies:
        torch.testing.assert_close(other.log_prob(y, psi), likelihood.log_prob(y, psi))
    assert repr(likelihood).startswith(type(likelihood).__name__)


def test_few_counts_and_many_have_the_same_value_for_the_dispersion():
    # of few, all nodes of the quadrature are one array
    source = generator(0, "few counts")
    y = torch.poisson(torch.full((6, 4), 3.0, dtype=torch.float64), generator=source)
    mean = torch.randn(6, 4, generator=source, dtype=torch.float64)
    variance = torch.rand(6, 4, generator=source, dtype=torch.float64)
    likelihood = NegativeBinomial(0.7)
    few = likelihood.parameter_value(y, mean, variance)
    many = likelihood.parameter_value(*(t.repeat(1000, 1) for t in (y, mean, variance)))
    torch.testing.assert_close(many, few.repeat(1000, 1), rtol=1e-12, atol=1e-12)


def test_a_large_count_has_the_value_that_all_its_digits_have():
    """Of 4e11 the three parts of the density are 1e13 each, and their difference some nats."""
    y = torch.tensor([2e5, 3e8, 4e11], dtype=torch.float64)
    away = torch.tensor([1e-3, -2.0, 1e-6], dtype=torch.float64) / y.sqrt()
    value = Poisson().slopes(y, y.log() + away, torch.zeros_like(y)).value
    expected = -0.5 * (2.0 * math.pi * y).log() - 0.5 * y * away.square()
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=2e-4)
    wide = Poisson().slopes(y[:1], y[:1].log() + away[:1], torch.full((1,), 1e-3).double())
    plain = y[0] * (y[0].log() + away[0]) - (y[0].log() + away[0] + 5e-4).exp()
    plain = plain - log_factorial(y[0])
    torch.testing.assert_close(wide.value[0], plain, rtol=1e-9, atol=1e-4)


def _log_gamma(z: Decimal) -> Decimal:
    """Stirling's series, of large z."""
    pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
    half = Decimal("0.5")
    return (z - half) * z.ln() - z + half * (2 * pi).ln() + 1 / (12 * z) - 1 / (360 * z**3)


@pytest.mark.parametrize("power", [22, 40, 50, 60])
@pytest.mark.parametrize("away", [0.0, 1e-9, -1e-4, 0.7, -3.0])
def test_densities_of_large_counts_have_all_their_digits(power, away):
    """Of 2^40 Poisson ones were wrong by hundredths of a nat, of 2^60 by thousands, and negative
    binomial ones with them: compared with sixty decimal places.
    """
    y = torch.tensor([[2.0**power]], dtype=torch.float64)
    psi = y.log() + away
    with localcontext() as context:
        context.prec = 60
        count, place = Decimal(float(y)), Decimal(float(psi))
        poisson = count * place - place.exp() - _log_gamma(count + 1)
        r = Decimal(3)
        odds = place - r.ln()
        constant = _log_gamma(count + r) - _log_gamma(count + 1) - Decimal(2).ln()
        binomial = constant + count * odds - (count + r) * (1 + odds.exp()).ln()
    for likelihood, exact in ((Poisson(), poisson), (NegativeBinomial(3.0), binomial)):
        # of psi itself the last digit is not known
        slack = 4.0 * torch.finfo(torch.float64).eps * float(psi)
        slope = likelihood.density(y).derivatives(psi)[0].abs() + 1.0
        tolerance = {"rtol": 1e-9, "atol": 1e-8 + slack * float(slope)}
        expected = torch.tensor([[float(exact)]], dtype=torch.float64)
        log_p = likelihood.log_prob(y, psi).detach()
        torch.testing.assert_close(log_p, expected, **tolerance)
        torch.testing.assert_close(likelihood.density(y).value(psi), expected, **tolerance)


@pytest.mark.parametrize(
    "likelihood",
    [Bernoulli(), Binomial(7), Categorical([[0, 1, 2]]), NegativeBinomial(1.0), Poisson()],
    ids=lambda likelihood: likelihood.name,
)
def test_log_prob_has_its_slopes_where_the_log_odds_are_zero(likelihood):
    """Weights of zero put psi there: the slope of its magnitude, 0, is not that of log p."""
    y = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    y = y[:, :1] if not isinstance(likelihood, Categorical) else y
    density = likelihood.density(y)
    psi = torch.zeros_like(y)
    by_torch = EntryDensity(y, likelihood.log_prob).derivatives(psi)
    for expected, found in zip(density.derivatives(psi), by_torch, strict=True):
        torch.testing.assert_close(found, expected.expand(y.shape))


def test_the_dispersion_of_large_counts_has_the_slope_that_all_their_digits_have():
    """Of 2^60 the slope was rounded to hundreds."""
    slopes = []
    for power in (30.0, 60.0):
        likelihood = NegativeBinomial(3.0, bound="tilted")
        y = torch.full((1, 1), 2.0**power, dtype=torch.float64)
        value = likelihood.parameter_value(y, y.log() + 0.5, torch.full_like(y, 0.2))
        slopes.append(torch.autograd.grad(value.sum(), likelihood.log_dispersion)[0])
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_best_tilt_is_found_at_any_variance(dtype):
    """It is where its own slope is 0, from variances of 10 on, too, where a plain iteration goes to
    and fro.
    """
    mean, variance = (
        part.flatten().to(dtype)
        for part in torch.meshgrid(
            torch.linspace(-60.0, 60.0, 121), torch.logspace(-3, 3, 61), indexing="ij"
        )
    )
    a = tilted.tilt(mean, variance).double()
    low, high = torch.zeros_like(a), torch.ones_like(a)
    for _ in range(60):
        middle = 0.5 * (low + high)
        more = middle < torch.sigmoid(mean + (0.5 - middle) * variance)
        low, high = torch.where(more, middle, low), torch.where(more, high, middle)
    digits = 1e-11 if dtype == torch.float64 else 2e-6
    torch.testing.assert_close(a, low, rtol=0.0, atol=digits)


@pytest.mark.parametrize("variance", [0.0, 0.3, 4.0, 30.0, 300.0])
def test_the_expansion_of_a_huge_count_keeps_its_digits(variance):
    """Values are differences of parts of 10^13; their slopes are of order 1."""
    likelihood = NegativeBinomial(0.7, bound="tilted")
    y = torch.full((9,), 1e12, dtype=torch.float64)
    psi = math.log(1e12) + torch.linspace(-4.0, 4.0, 9, dtype=torch.float64)
    spread = torch.full_like(psi, variance)
    step = 1e-3

    def at(moved, wider=0.0):
        return likelihood.expansion(y, psi + moved, spread + wider)

    (up, _), (down, _) = at(step), at(-step)
    slopes, bend = at(0.0)
    near = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close((up.value - down.value) / (2 * step), slopes.d_mean, **near)
    torch.testing.assert_close((up.d_mean - down.d_mean) / (2 * step), bend.mean, **near)
    torch.testing.assert_close(
        (up.d_variance - down.d_variance) / (2 * step), bend.mixed, **near
    )
    wider, _ = at(0.0, step)
    slope = slopes.d_variance + 0.5 * step * bend.variance
    torch.testing.assert_close((wider.value - slopes.value) / step, slope, **near)
