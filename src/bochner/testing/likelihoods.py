"""The laws of likelihoods: densities, their moments, and the bound with its derivatives."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bochner.errors import InputError, message, shown
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.quadrature import normal_mean
from bochner.random import generator
from bochner.testing.compare import close, holds

_PSI = torch.linspace(-4.0, 3.0, 8, dtype=torch.float64)
# A grid of values for every support whose values are known, and entries to check bounds at.
USUAL_VALUES: dict[str, tuple[Tensor, tuple[float, ...]]] = {
    "real": (
        torch.linspace(-16.0, 16.0, 8001, dtype=torch.float64).sinh(),
        (-2.0, 0.0, 0.7, 30.0),
    ),
    "positive": (torch.logspace(-7, 4, 4001, dtype=torch.float64), (0.01, 1.0, 30.0)),
    "binary": (torch.arange(0, 2, dtype=torch.float64), (0.0, 1.0)),
    "counts": (torch.arange(0, 1500, dtype=torch.float64), (0.0, 1.0, 30.0)),
}
# Draws: five standard errors of a share are then 0.0125 at the most.
_N_DRAWS = 40_000
# Pairs of candidate latents that products must rank as the bound does.
_RANKED = 0.9
# Tolerances of sums over whole numbers, and of the trapezoidal rule over a grid.
_SUM = 1e-6
_TRAPEZOID = 3e-5


@dataclass(frozen=True)
class Case:
    """A likelihood with values that its entries can have.

    Attributes
    ----------
    likelihood : NonConjugateLikelihood
        Of one data column, or the same for all.
    values : Tensor of shape (n,), float64
        Every value, or a fine grid of them.
    entries : tuple of float
        Some values, to check the bound at.
    """

    likelihood: NonConjugateLikelihood
    values: Tensor
    entries: tuple[float, ...]
    psi: Tensor = field(default_factory=lambda: _PSI)

    @property
    def where(self) -> str:
        """The name of its class."""
        return type(self.likelihood).__name__

    @property
    def discrete(self) -> bool:
        """Whether the values are whole numbers."""
        return bool((self.values == self.values.round()).all())

    @property
    def numeric(self) -> bool:
        """Whether entries are numbers, with means: categories have none."""
        return self.likelihood.support != "categories"

    def measure(self) -> Tensor:
        """Return what a sum over values weighs each with, (n, 1): 1, or the trapezoidal rule."""
        if self.discrete:
            return torch.ones_like(self.values)[:, None]
        step = torch.nn.functional.pad(self.values.diff(), (1, 1))
        return (0.5 * (step[1:] + step[:-1]))[:, None]

    def grids(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return y, mean and variance of psi, (28, 1) each, for every entry."""
        mean = torch.linspace(-3.0, 3.0, 7, dtype=torch.float64).repeat(4)[:, None]
        steps = torch.tensor([1e-8, 0.1, 0.7, 2.0], dtype=torch.float64)
        variance = steps.repeat_interleave(7)[:, None]
        return [(torch.full_like(mean, y), mean, variance) for y in self.entries]


def check_likelihood(
    likelihood: NonConjugateLikelihood,
    values: Sequence[float] | Tensor | None = None,
    entries: Sequence[float] | None = None,
) -> None:
    """Check the laws that the package's own likelihoods obey on a likelihood of one's own.

    Densities add up to 1, with the moments that ``mean`` and ``variance`` state; draws have them
    too; predictions are integrals over psi; the bound lies below the exact expectation of log p
    and touches it where psi is known; ``slopes`` and ``curvatures`` hold its derivatives;
    ``products`` rank latents as the bound does; starts are finite; copies say the same.

    Parameters
    ----------
    likelihood : NonConjugateLikelihood
        With all its arguments given: parameters that hold for one column of data.
    values : sequence of float, optional
        Every value that an entry can have where psi is between -4 and 3, or a grid of real values
        fine and wide enough for the trapezoidal rule. None: by ``support``.
    entries : sequence of float, optional
        Values to check the bound at. None: by ``support``, or the first, middle and last value.

    Raises
    ------
    AssertionError
        A law is broken: the law, and the worst entry.
    InputError
        Values are not given, and ``support`` does not say which there are.

    Examples
    --------
    >>> from bochner.likelihoods import Poisson
    >>> from bochner.testing import check_likelihood
    >>> check_likelihood(Poisson())
    """
    if not isinstance(likelihood, NonConjugateLikelihood):
        raise InputError(
            message(
                "a likelihood that is not Gaussian, with all its arguments",
                shown(likelihood),
                "pass an object, such as Poisson()",
            )
        )
    for name, given in (("values", values), ("entries", entries)):
        if given is not None and not len(given):
            do = f"leave {name} out, or give some"
            raise InputError(message(f"{name} to check the likelihood at", "none", do))
    usual = USUAL_VALUES.get(likelihood.support)
    if values is None and usual is None:
        raise InputError(
            f"Expected the values that an entry of {type(likelihood).__name__} can have: its "
            f"support is {likelihood.support!r}. Give values=[0, 1, ...]."
        )
    if values is not None or usual is None:
        grid = torch.as_tensor(values, dtype=torch.float64)
        some = tuple(float(grid[i]) for i in (0, len(grid) // 2, -1))
    else:
        grid, some = usual
    case = Case(likelihood, grid, some if entries is None else tuple(entries))
    for law in LIKELIHOOD_LAWS:
        law(case)


# -- densities
# ---------------------------------------------------------------------------


def densities_add_up_to_one(case: Case) -> None:
    """The sum or integral of p(y | psi) over y is 1; mean and variance are its moments."""
    likelihood = case.likelihood
    values = case.values[:, None]
    log_p = likelihood.log_prob(values, case.psi[None, :]).detach()
    p = log_p.exp() * case.measure()
    tolerance = _SUM if case.discrete else _TRAPEZOID
    text = f"{case.where}: densities must add up to one"
    close(p.sum(0), torch.ones_like(case.psi), text, rtol=0.0, atol=tolerance)
    if not case.numeric:
        # the mean of categories is the most probable one
        return
    mean = (p * values).sum(0)
    text = f"{case.where}: mean(psi) must be the mean of the density"
    close(likelihood.mean(case.psi), mean, text, rtol=1e-4, atol=1e-6)
    second = (p * (values - mean).square()).sum(0)
    text = f"{case.where}: variance(psi) must be the variance of the density"
    close(likelihood.variance(case.psi), second, text, rtol=1e-3, atol=1e-6)


def draws_follow_the_density(case: Case) -> None:
    """Draws are values the entry can have, and fall below quartiles as often as they should."""
    likelihood = case.likelihood
    psi = torch.full((_N_DRAWS, 1), 0.6, dtype=torch.float64)
    y = likelihood.draw(psi, generator(1, "draws")).detach()
    holds(
        y.shape == psi.shape,
        f"{case.where}: draw must return the shape of psi, got {y.shape}.",
    )
    if case.discrete:
        holds(
            (y == y.round()).all(),
            f"{case.where}: draws must be whole numbers, as values are.",
        )
    if not case.numeric:
        return  # draws are categories, values are encoded
    lowest = float(case.values.min())
    inside = bool((y >= lowest).all())
    got = f"got {float(y.min()):.3g}"
    holds(inside, f"{case.where}: draws must be at least {lowest:.3g}, {got}.")
    weights = case.measure()[:, 0]
    log_p = likelihood.log_prob(case.values, psi[0]).detach()
    mass = (log_p.exp() * weights).cumsum(0)
    half = 0.0 if case.discrete else 0.5
    for share in (0.25, 0.5, 0.75):
        at = min(int((mass < share).sum()), len(mass) - 1)
        expected = float(mass[at] - half * (mass[at] - mass[at - 1]))
        below = float((y <= case.values[at]).double().mean())
        error = 5.0 * (expected * (1.0 - expected) / _N_DRAWS) ** 0.5 + 1e-3
        holds(
            abs(below - expected) <= error,
            f"{case.where}: at psi = 0.6, {expected:.4f} of the draws must be at most "
            f"{float(case.values[at]):.4g}, got {below:.4f}.",
        )


def predictions_are_integrals_over_psi(case: Case) -> None:
    """log_predictive is log E p(y | psi), and predict gives the moments of that density."""
    likelihood = case.likelihood
    values = case.values[:, None, None]
    mean = torch.tensor([[-1.0], [0.3], [1.0]], dtype=torch.float64)
    variance = torch.full_like(mean, 0.5)
    log_p = likelihood.log_predictive(
        values.expand(-1, 3, 1).reshape(-1, 1),
        mean.repeat(len(values), 1),
        variance.repeat(len(values), 1),
    )
    p = log_p.detach().exp().view(-1, 3, 1) * case.measure()[:, :, None]
    text = f"{case.where}: the densities of log_predictive must add up to one"
    close(p.sum(0), torch.ones_like(mean), text, rtol=0.0, atol=1e-4)
    if not case.numeric:
        return
    expected = (p * values).sum(0)
    first, second = likelihood.predict(mean, variance)
    text = f"{case.where}: predict must give the mean of the predictive density"
    close(first, expected, text, rtol=1e-3, atol=1e-4)
    spread = (p * (values - expected).square()).sum(0)
    text = f"{case.where}: predict must give the variance of the predictive density"
    close(second, spread, text, rtol=0.03, atol=1e-6)


# -- the bound
# ---------------------------------------------------------------------------


def bound_is_below_the_expectation(case: Case) -> None:
    """The value of slopes is at most E log p(y | psi) for psi ~ N(mean, variance)."""
    likelihood = case.likelihood
    for y, mean, variance in case.grids():
        exact = normal_mean(
            lambda psi, y=y: likelihood.log_prob(y, psi).detach(),  # type: ignore[misc]
            mean,
            variance,
            60,
        )
        bound = likelihood.slopes(y, mean, variance).value.detach()
        excess = bound - (exact + 1e-7 * exact.abs() + 1e-9)
        worst = int(excess.argmax())
        holds(
            excess.max() <= 0.0,
            f"{case.where}: the bound must lie below E log p: at y = {float(y[worst]):.4g}, mean "
            f"{float(mean[worst]):.4g} and variance {float(variance[worst]):.4g} it is "
            f"{float(bound[worst]):.8g}, above {float(exact[worst]):.8g}.",
        )


def bound_is_tight_where_psi_is_known(case: Case) -> None:
    """At variance 0 the value of slopes is log p(y | mean)."""
    for y, mean, variance in case.grids():
        bound = case.likelihood.slopes(y, mean, torch.zeros_like(variance)).value
        exact = case.likelihood.log_prob(y, mean)
        text = (
            f"{case.where}: at variance 0 the bound must be log p(y | mean), y = {float(y[0])}"
        )
        close(bound, exact, text, rtol=1e-9, atol=1e-9)


def slopes_and_curvatures_are_derivatives(case: Case) -> None:
    """d_mean, d_variance and the second derivatives are those of the value."""
    likelihood = case.likelihood
    where = case.where
    for y, grid, spread in case.grids():
        mean = grid.clone().requires_grad_()
        variance = (spread + 0.05).requires_grad_()
        slopes = likelihood.slopes(y, mean, variance)
        total = slopes.value.sum()
        expected = torch.autograd.grad(total, (mean, variance), create_graph=True)
        names = ("d_mean", "d_variance")
        stated = (slopes.d_mean, slopes.d_variance)
        for name, slope, other in zip(names, stated, expected, strict=True):
            text = f"{where}: {name} must be the derivative of value, y = {float(y[0])}"
            close(slope.expand_as(other), other, text, rtol=1e-6, atol=1e-7)
        bend = likelihood.curvatures(y, grid, spread + 0.05)
        pairs = (
            ("mean", bend.mean, slopes.d_mean, mean),
            ("mixed", bend.mixed, slopes.d_mean, variance),
            ("variance", bend.variance, slopes.d_variance, variance),
        )
        for name, curvature, slope, argument in pairs:
            # Slopes that depend on nothing have no history: they are given one.
            out = (slope + 0.0 * argument).sum()
            second = torch.autograd.grad(out, argument, retain_graph=True)[0]
            text = (
                f"{where}: Curvatures.{name} must be the second derivative, y = {float(y[0])}"
            )
            close(curvature, second, text, rtol=1e-5, atol=1e-6)


def products_rank_as_the_bound(case: Case) -> None:
    """Of pairs of candidate latents, products prefer the one that the bound prefers."""
    likelihood = case.likelihood
    y = torch.tensor(case.entries, dtype=torch.float64)[:, None]
    mean = case.psi[:, None]
    variance = torch.full_like(mean, 0.4)
    pairs = likelihood.products(y, mean, variance)
    scores = sum(
        (of_row @ of_candidate.T for of_row, of_candidate in pairs), mean.new_zeros(())
    )
    every = torch.ones(len(mean), len(mean), dtype=torch.bool)
    upper = torch.triu(every, 1)
    for i, value in enumerate(case.entries):
        slopes = likelihood.slopes(y[i].expand_as(mean), mean, variance)
        bound = slopes.value[:, 0].detach()
        expected = (bound[:, None] - bound[None, :])[upper].sign()
        score = scores[i].detach()
        ranked = (score[:, None] - score[None, :])[upper].sign()
        agree = float((expected == ranked).double().mean())
        holds(
            agree >= _RANKED,
            f"{case.where}: products must rank latents as the bound does: of the entry "
            f"{value:.4g}, {agree:.0%} of the pairs agree.",
        )


# -- starts, precision, copies
# ---------------------------------------------------------------------------


def starts_are_finite(case: Case) -> None:
    """A column of one value has a finite intercept, first psi and surrogate, and finite slopes."""
    for value in case.entries:
        columns = torch.full((20, 1), value, dtype=torch.float64)
        started = case.likelihood.initial(columns)
        y = started.encode(columns) if case.numeric else columns
        starts = {
            "intercept": started.intercept(y, None),
            "first": started.first(y, torch.zeros_like(y)),
        }
        if case.numeric:
            starts["surrogate"] = started.surrogate(columns, None)
        for name, start in starts.items():
            finite = bool(torch.isfinite(start).all())
            holds(finite, f"{case.where}: {name} must be finite for a column of {value:.4g}.")
        means = [[-30.0], [-5.0], [0.0], [5.0], [14.0], [30.0]]
        mean = torch.tensor(means, dtype=torch.float32)
        single = torch.full_like(mean, value)
        slopes = case.likelihood.slopes(single, mean, torch.full_like(mean, 0.2))
        for name in ("value", "d_mean", "d_variance"):
            part = getattr(slopes, name)
            finite = bool(torch.isfinite(part).all()) and part.dtype == torch.float32
            text = f"{case.where}: {name} must be finite float32 for float32 entries of {value:.4g}"
            holds(finite, f"{text} and psi up to 30.")


def copies_say_the_same(case: Case) -> None:
    """Pickles and copies have the same density; repr names the class."""
    y = torch.tensor(case.entries, dtype=torch.float64)
    psi = torch.zeros_like(y)
    before = case.likelihood.log_prob(y, psi)
    rebuilt = type(case.likelihood)(**case.likelihood.get_params())
    made = {
        "pickle": pickle.loads(pickle.dumps(case.likelihood)),
        "copy.deepcopy": copy.deepcopy(case.likelihood),
        "get_params": rebuilt,
    }
    for way, other in made.items():
        text = f"{case.where}: {way} must give the same likelihood (pass arguments to super())"
        close(other.log_prob(y, psi), before, text, rtol=1e-12, atol=1e-12)
    named = repr(case.likelihood).startswith(case.where)
    holds(named, f"{case.where}: repr must begin with the name of the class.")


LIKELIHOOD_LAWS: tuple[Callable[[Case], None], ...] = (
    densities_add_up_to_one,
    draws_follow_the_density,
    predictions_are_integrals_over_psi,
    bound_is_below_the_expectation,
    bound_is_tight_where_psi_is_known,
    slopes_and_curvatures_are_derivatives,
    products_rank_as_the_bound,
    starts_are_finite,
    copies_say_the_same,
)
