"""The laws that users call on classes of their own: each is broken by a class that it names."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from bochner.errors import InputError
from bochner.kernels import RBF
from bochner.kernels.nonstationary import Gibbs
from bochner.likelihoods import Binomial, Curvatures, Gaussian, Poisson
from bochner.testing import check_kernel, check_likelihood
from rational_quadratic_kernel import RationalQuadratic
from student_t_likelihood import StudentT


class Lopsided(Gibbs):
    def forward(self, x, y=None):
        other = x if y is None else y
        return super().forward(x, y) * (1.0 + 0.01 * x[:, :1] - 0.01 * other[:, :1].T)


class Indefinite(RBF):
    def forward(self, x, y=None):
        return super().forward(x, y) - 0.5


class Misplaced(RBF):
    stationary = False


class Rooted(RBF):
    def forward(self, x, y=None):
        distance = (x[:, None] - (x if y is None else y)[None]).square().sum(-1).sqrt()
        return (
            self.log_variance.exp().to(x.dtype)
            * (-distance / self.log_lengthscale.exp()).exp()
        )


class Doubled(RBF):
    def forward(self, x, y=None):
        return super().forward(x.double(), None if y is None else y.double())


class Forgetful(RBF):
    def __init__(self, lengthscale=1.0):
        super().__init__(lengthscale)
        self._params = {}


class Wide(RBF):
    def frequencies(self, noise):
        return dataclasses.replace(super().frequencies(noise), first=1.2 * noise[0])


class Flat(RBF):
    def noise(self, n_frequencies, n_components, source, sampling):
        return super().noise(n_frequencies, n_components, source, sampling)[0]


class Frozen(RBF):
    def frequencies(self, noise):
        return super().frequencies(noise).detach()


class Restarted(RBF):
    def initial(self, n_mixtures, n_components, source):
        return Restarted()


class Correlated(RBF):
    def noise(self, n_frequencies, n_components, source, sampling):
        return (
            super()
            .noise(1, n_components, source, "iid")
            .expand(1, n_frequencies, n_components)
        )


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (
            Lopsided(),
            r"Lopsided, 2 dimensions: k\(x, x'\) must be k\(x', x\): expected .*, got",
        ),
        (Indefinite(), "not positive semi-definite, an eigenvalue is -"),
        (Misplaced(), "says stationary = False, but shifts change nothing"),
        (Rooted(), "the gradient in x must be finite where points coincide"),
        (Doubled(), "float32 rows must give float32"),
        (Forgetful(0.5), "sklearn.base.clone must give the same kernel"),
        (Wide(), "features are not unbiased for the closed form with sampling='iid'"),
        (Flat(), r"noise must have shape \(n_mixtures, n_frequencies, columns\) = \(1, 6"),
        (Frozen(), "gradients of features are not those of finite differences"),
        (Restarted(0.5), "initial must keep the arguments that were given"),
        (Correlated(), "must leave about a quarter of the error|draws scatter too much"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_kernel_that_breaks_a_law_is_told_which(kernel, text):
    with pytest.raises(AssertionError, match=text):
        check_kernel(kernel, dimensions=[2])


class Heavy(Poisson):
    def log_prob(self, y, psi):
        return super().log_prob(y, psi) + 0.1


class Shifted(StudentT):
    def mean(self, psi):
        return psi + 0.1


class Narrow(StudentT):
    def draw(self, psi, source):
        return psi + 0.5 * (super().draw(psi, source) - psi)


class Careless(StudentT):
    def predict(self, mean, variance):
        return mean, self.variance(mean)


class Above(Poisson):
    def slopes(self, y, mean, variance, columns=None):
        result = super().slopes(y, mean, variance, columns)
        return dataclasses.replace(result, value=result.value + 0.1 * variance)


class Loose(Poisson):
    def slopes(self, y, mean, variance, columns=None):
        result = super().slopes(y, mean, variance, columns)
        return dataclasses.replace(result, value=result.value - 0.1)


class Uphill(Poisson):
    def slopes(self, y, mean, variance, columns=None):
        result = super().slopes(y, mean, variance, columns)
        return dataclasses.replace(result, d_mean=-result.d_mean)


class Straight(Poisson):
    def curvatures(self, y, mean, variance):
        zero = torch.zeros_like(mean)
        return Curvatures(zero, zero, zero)


class Reversed(Poisson):
    def products(self, y, mean, variance):
        return tuple(
            (of_row, -of_candidate)
            for of_row, of_candidate in super().products(y, mean, variance)
        )


class Logarithmic(Poisson):
    def intercept(self, y, offset, columns=None):
        return y.log().nanmean(0)


class Nameless(StudentT):
    def __init__(self, scale=0.3):
        super().__init__(scale)
        self._params = {}


@pytest.mark.parametrize(
    ("likelihood", "text"),
    [
        (Heavy(), "Heavy: densities must add up to one: expected 1, got 1.105"),
        (Shifted(), r"Shifted: mean\(psi\) must be the mean of the density"),
        (Narrow(), r"at psi = 0.6, 0\.2\d+ of the draws must be at most"),
        (Careless(), "predict must give the variance of the predictive density"),
        (Above(), "the bound must lie below E log p: at y = 0"),
        (Loose(), r"at variance 0 the bound must be log p\(y \| mean\), y = 0.0"),
        (Uphill(), "d_mean must be the derivative of value"),
        (Straight(), "Curvatures.mean must be the second derivative"),
        (Reversed(), "products must rank latents as the bound does: of the entry 0, 0%"),
        (Logarithmic(), "intercept must be finite for a column of 0"),
        (Nameless(1.0), "get_params must give the same likelihood"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_likelihood_that_breaks_a_law_is_told_which(likelihood, text):
    with pytest.raises(AssertionError, match=text):
        check_likelihood(likelihood)


def test_values_are_asked_for_where_the_support_does_not_say():
    with pytest.raises(InputError, match=r"Binomial can have: its support is 'trials'\. Give"):
        check_likelihood(Binomial(7))
    check_likelihood(Binomial(7), values=range(8))


def test_kernels_with_one_lengthscale_per_latent_are_checked_in_their_dimension():
    check_kernel(RationalQuadratic([0.7, 1.4], alpha=2), dimensions=[2])


@pytest.mark.parametrize("given", ["rbf", RBF])
def test_what_is_no_kernel_is_not_checked(given):
    with pytest.raises(
        InputError, match=r"a kernel with all its arguments, got .*RBF\(0\.7\)"
    ):
        check_kernel(given)


@pytest.mark.parametrize("given", [Gaussian(), "poisson"])
def test_what_is_no_likelihood_of_the_kind_is_not_checked(given):
    with pytest.raises(
        InputError, match="a likelihood that is not Gaussian, with all its arg"
    ):
        check_likelihood(given)


def test_nothing_to_check_at_is_refused():
    with pytest.raises(InputError, match="dimensions to check the kernel with, got none"):
        check_kernel(RBF(), [])
    for name in ("values", "entries"):
        with pytest.raises(InputError, match=f"{name} to check the likelihood at, got none"):
            check_likelihood(Poisson(), **{name: []})
