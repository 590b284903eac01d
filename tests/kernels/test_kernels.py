"""Kernels against independent formulas: scikit-learn, scipy, and the special cases that must
coincide.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn.gaussian_process import kernels as reference
from sklearn.model_selection import ParameterGrid
from torch import Tensor

from bochner import random
from bochner.errors import InputError
from bochner.features.fourier import fourier_features
from bochner.kernels.base import Kernel, SpectralKernel
from bochner.kernels.bivariate import BivariateSpectralMixture
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.kernels.function import FunctionKernel
from bochner.kernels.indefinite import (
    TL1,
    DotProductSeries,
    GeodesicGaussian,
    Polynomial,
    Tanh,
)
from bochner.kernels.nonstationary import Gibbs, SpectralSum, Sum
from bochner.kernels.periodic import Periodic
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.kernels.stationary import RBF, Matern

DIMENSIONS = pytest.mark.parametrize("d", [1, 2, 3])


def points(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(
        n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


@torch.no_grad()
def exact(kernel: Kernel, x: Tensor, y: Tensor | None = None) -> Tensor:
    return kernel(x, y)


def close(one: Tensor, other: Tensor | np.ndarray, atol: float = 1e-12) -> None:
    torch.testing.assert_close(one, torch.as_tensor(other), rtol=0, atol=atol)


@DIMENSIONS
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_is_scikit_learns(d, nu):
    x, lengthscale = points(8, d), np.linspace(0.5, 1.5, d)
    close(
        exact(Matern(lengthscale, nu, 2.0), x),
        2.0 * reference.Matern(lengthscale, nu=nu)(x.numpy()),
    )


@DIMENSIONS
def test_rbf_is_scikit_learns(d):
    x, y, lengthscale = points(8, d), points(5, d, 1), np.linspace(0.5, 1.5, d)
    close(
        exact(RBF(lengthscale, 2.0), x, y),
        2.0 * reference.RBF(lengthscale)(x.numpy(), y.numpy()),
    )


def test_periodic_is_scikit_learns_and_sums_over_dimensions():
    x = points(8, 1)
    close(exact(Periodic(1.7, 0.6), x), reference.ExpSineSquared(0.6, 1.7)(x.numpy()))
    x = points(8, 2)
    parts = [
        exact(Periodic(p, s), x[:, [i]]) for i, (p, s) in enumerate([(1.7, 0.6), (0.9, 1.2)])
    ]
    close(exact(Periodic([1.7, 0.9], [0.6, 1.2], 3.0), x), 3.0 * parts[0] * parts[1])


def test_periodic_spectrum_is_discrete():
    x, scale, period = points(6, 1), 0.8, 1.3
    order = np.arange(-60, 61)
    weights = special.ive(order, 1 / scale**2)  # e^(-1/l^2) I_n(1/l^2)
    assert weights.sum() == pytest.approx(1.0)
    delta = (x - x.T).numpy()[..., None]
    close(
        exact(Periodic(period, scale), x),
        (weights * np.cos(2 * np.pi * order * delta / period)).sum(-1),
    )


@pytest.mark.parametrize("lengthscale", [0.25, 0.8, 3.0])
def test_periodic_features_carry_the_ratio_to_what_they_were_drawn_from(lengthscale):
    """Drawn from one lengthscale, right for another: the mean of cos(w delta) under the weights is
    the kernel.
    """
    kernel, x = Periodic(1.3, 0.5, 1.5), points(6, 2)
    with torch.no_grad():
        kernel.log_lengthscale.fill_(math.log(lengthscale))
        # quantiles of a fine regular grid instead of random draws: the sum over harmonics is then
        # nearly exact
        u = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
        noise = torch.special.ndtri(torch.cartesian_prod(u, u))[None]
        f = kernel.frequencies(noise)
        features = fourier_features(x, f)
    close(features.T @ features, exact(kernel, x), atol=0.05)
    harmonics = f.first * 1.3 / (2 * math.pi)
    close(harmonics, harmonics.round(), atol=1e-9)


@DIMENSIONS
def test_bivariate_mixture_is_its_spectral_integral(d):
    """The four pairs of means and their mirror images, integrated in closed form one by one."""
    x, (m1, m2), s, rho, weight = (
        points(7, d),
        points(2, d, 1),
        0.3 + points(1, d, 2).abs()[0],
        0.4,
        1.3,
    )
    total = torch.zeros(7, 7, dtype=torch.float64)
    for a in (m1, m2):
        for b in (m1, m2):
            wave = ((x @ a)[:, None] - (x @ b)[None, :]).cos()
            square = (x * s).square().sum(1)
            total += (
                2
                / 8
                * wave
                * (-0.5 * (square[:, None] + square - 2 * rho * (x * s) @ (x * s).T)).exp()
            )
    close(
        exact(BivariateSpectralMixture([weight], m1[None], m2[None], s[None], [rho]), x),
        weight * total,
    )


def test_bivariate_mixture_needs_its_conditions():
    """What the constructor refuses would indeed not be a covariance."""
    x = torch.linspace(-2, 2, 30, dtype=torch.float64)
    negative = (
        -0.5 * (x[:, None] ** 2 + x**2 + 2 * 0.5 * x[:, None] * x)
    ).exp()  # rho = -1/2, equal scales
    assert torch.linalg.eigvalsh(negative).min() < -0.1
    unequal = (
        -0.5 * (x[:, None] ** 2 + 4 * x**2 - 2 * 0.5 * 2 * x[:, None] * x)
    ).exp()  # sigma2 = 2 sigma1
    assert (unequal - unequal.T).abs().max() > 0.1


@DIMENSIONS
def test_matern_one_half_is_the_exponential(d):
    x = points(8, d)
    close(
        exact(Matern(0.7, 0.5), x),
        torch.exp(-torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") / 0.7),
    )


@DIMENSIONS
def test_spectral_mixture_with_one_centred_component_is_rbf(d):
    x, lengthscale = points(8, d), np.linspace(0.5, 1.5, d)
    close(
        exact(SpectralMixture([2.0], np.zeros((1, d)), 1.0 / lengthscale[None]), x),
        exact(RBF(lengthscale, 2.0), x),
    )


@DIMENSIONS
def test_next_gen_with_equal_partners_is_the_spectral_mixture(d):
    x, means, scales = points(8, d), points(2, d, 1), 0.3 + points(2, d, 2).abs()
    stationary = SpectralMixture([0.7, 0.4], means, scales)
    gaps = []
    for gap in (1e-4, 1e-6):
        paired = NextGenSpectralMixture(
            [0.7, 0.4], means, means, scales, scales, [1 - gap] * 2
        )
        gaps.append(float((exact(paired, x) - exact(stationary, x)).abs().max()))
    assert gaps[1] < 1e-4
    assert gaps[1] == pytest.approx(gaps[0] / 100, rel=0.005), "linear in 1 - rho"


@DIMENSIONS
def test_next_gen_diagonal(d):
    x, (m1, m2), (s1, s2) = points(8, d), points(2, d, 1), 0.3 + points(2, d, 2).abs()
    rho, weight = 0.4, 1.3
    spread = s1**2 + s2**2 - 2 * rho * s1 * s2  # Sigma_1 - 2 Sigma_c + Sigma_2
    diagonal = 0.5 * weight * (1 + (-0.5 * x.square() @ spread).exp() * (x @ (m1 - m2)).cos())
    kernel = NextGenSpectralMixture([weight], m1[None], m2[None], s1[None], s2[None], [rho])
    close(exact(kernel, x).diagonal(), diagonal)


def test_next_gen_frequencies_are_correlated_as_asked():
    kernel = NextGenSpectralMixture([1.0], [[0.5]], [[-1.0]], [[2.0]], [[0.7]], [-0.6])
    f = kernel.frequencies(kernel.noise(20_000, 1, random.generator(0, "w"), "iid")).detach()
    assert float(f.first.mean()) == pytest.approx(0.5, abs=4 * 2.0 / 20_000**0.5)
    assert float(f.second.mean()) == pytest.approx(-1.0, abs=4 * 0.7 / 20_000**0.5)
    assert float(f.second.std()) == pytest.approx(0.7, rel=0.02)
    pairs = torch.cat([f.first, f.second], dim=1).T
    assert float(torch.corrcoef(pairs)[0, 1]) == pytest.approx(-0.6, abs=0.02)


@DIMENSIONS
@pytest.mark.parametrize("sampling", ["iid", "orthogonal", "sobol"])
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_frequencies_are_one_multivariate_student(d, sampling, nu):
    source, kernel = random.generator(0, "t"), Matern(0.5, nu)
    noises = [kernel.noise(8, d, source, sampling) for _ in range(500)]
    assert noises[0].shape == (1, 8, d + round(2 * nu))
    first = (
        torch.stack([kernel.frequencies(noise).first[0] for noise in noises]).detach().numpy()
    )
    # |w|^2 lengthscale^2 / D is F(D, 2 nu) for one shared chi-square; margins are Student-t with 2
    # nu degrees
    assert stats.kstest(0.25 * (first**2).sum(1) / d, "f", args=(d, 2 * nu)).pvalue > 1e-3
    assert stats.kstest(0.5 * first[:, -1], "t", args=(2 * nu,)).pvalue > 1e-3


def test_matern_is_not_a_product_over_dimensions():
    x = torch.tensor([[0.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    joint = float(exact(Matern(1.0, 1.5), x)[0, 1])
    product = math.prod(float(exact(Matern(1.0, 1.5), x[:, [i]])[0, 1]) for i in range(2))
    assert abs(joint - product) > 0.03
    kernel, source = Matern(1.0, 1.5), random.generator(0, "product")
    f = kernel.frequencies(kernel.noise(2**14, 2, source, "iid")).detach()
    mean, error = float((x[1] @ f.first.T).cos().mean()), (0.5 / 2**14) ** 0.5
    assert abs(mean - joint) < 4 * error
    assert abs(mean - product) > 4 * error


def test_orthogonal_matern_directions_are_orthogonal():
    noise = Matern(nu=1.5).noise(3, 3, random.generator(0, "o"), "orthogonal")[0]
    gram = noise[:, :3] @ noise[:, :3].T
    close(gram, torch.diag(gram.diagonal()))
    lengths = noise[:, 3:] @ noise[:, 3:].T
    assert (lengths - torch.diag(lengths.diagonal())).abs().max() > 0.1, (
        "the chi-square columns stay independent"
    )


@DIMENSIONS
def test_matern_slope_at_distance_zero(d):
    x = torch.zeros(2, d, dtype=torch.float64)
    for nu in (0.5, 1.5, 2.5):
        y = x.clone().requires_grad_()
        Matern(1.0, nu)(y, x).sum().backward()
        assert (y.grad == 0).all()
    # beside zero the slope is the formula's: dk/dr = -3 r exp(-sqrt(3) r)
    y = torch.full((1, 1), 1e-5, dtype=torch.float64, requires_grad=True)
    Matern(1.0, 1.5)(y, torch.zeros_like(y)).backward()
    assert float(y.grad) == pytest.approx(-3e-5 * math.exp(-math.sqrt(3) * 1e-5), rel=1e-9)


@DIMENSIONS
def test_gibbs_formula_and_its_constant_case(d):
    x = points(7, d)
    lengths = 0.9 * (-0.5 * x.norm(dim=1)).exp()
    square = lengths[:, None] ** 2 + lengths[None, :] ** 2
    prefactor = (2 * lengths[:, None] * lengths[None, :] / square) ** (d / 2)
    distance = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    close(
        exact(Gibbs(0.9, variance=1.5), x),
        1.5 * prefactor * (-distance.square() / square).exp(),
    )
    close(exact(Gibbs(0.9, decay=0.0), x), exact(RBF(0.9), x))


def test_gibbs_with_the_square_root_is_not_positive_in_two_dimensions():
    t = 3 * np.pi * (np.random.default_rng(0).random(400) - 0.5)
    curve = torch.tensor(np.stack([np.sin(t), np.sign(t) * (np.cos(t) - 1)], axis=1))
    lengths = (-0.5 * curve.norm(dim=1)).exp()
    ratio = (
        2
        * lengths[:, None]
        * lengths[None, :]
        / (lengths[:, None] ** 2 + lengths[None, :] ** 2)
    )
    right = exact(Gibbs(), curve)
    assert torch.linalg.eigvalsh(right).min() > -1e-10
    assert torch.linalg.eigvalsh(right / ratio.sqrt()).min() < -0.01, "the printed form"


def test_sums_add_and_copy_their_parts():
    x, parts = points(6, 2), [RBF(0.5), Matern(1.5)]
    expected = exact(parts[0], x) + exact(parts[1], x)
    for total in (Sum(parts), SpectralSum(parts)):
        close(exact(total, x), expected)
        with torch.no_grad():
            for parameter in total.parameters():
                parameter.add_(1.0)
        close(exact(parts[0], x) + exact(parts[1], x), expected)
        assert total.stationary
    assert not Sum([RBF(), Gibbs()]).stationary


def test_spectral_sum_stacks_the_features_of_its_parts():
    x, source = points(4, 2), random.generator(0, "sum")
    paired = NextGenSpectralMixture(
        [1.0], [[0.5, 0]], [[0, 0.5]], [[1.0, 1]], [[0.5, 1]], [0.2]
    )
    parts: list[SpectralKernel] = [RBF(0.5), Matern(1.5, 0.5), paired]
    total = SpectralSum(parts)
    noise = total.noise(4, 2, source, "iid")
    gram = torch.zeros(4, 4, dtype=torch.float64)
    for part, block, width in zip(parts, noise, (2, 3, 4), strict=True):
        f = fourier_features(x, part.frequencies(block[None, :, :width]))
        gram = gram + f.T @ f
    features = fourier_features(x, total.frequencies(noise))
    torch.testing.assert_close(features.T @ features, gram)


@pytest.mark.parametrize("inner", [[RBF(0.5), Matern(1.5)], [Matern(1.5), RBF(0.5)]])
def test_nested_sums_stack_the_points_of_all_parts(inner):
    flat, nested = SpectralSum([*inner, RBF(2.0)]), SpectralSum([SpectralSum(inner), RBF(2.0)])
    points = [
        total.frequencies(total.noise(5, 2, random.generator(0, "sum"), "iid"))
        for total in (flat, nested)
    ]
    torch.testing.assert_close(points[0].first, points[1].first)
    torch.testing.assert_close(points[0].amplitude, points[1].amplitude)


@DIMENSIONS
def test_mixtures_start_with_what_was_asked(d):
    for kernel in (SpectralMixture(), NextGenSpectralMixture()):
        start = kernel.initial(3, d, random.generator(0, "start"))
        assert start.n_mixtures == 3
        assert start.means.shape[-2:] == (3, d)
        assert exact(start, torch.zeros(1, d, dtype=torch.float64)).item() == pytest.approx(
            1.0
        )
        again = kernel.initial(3, d, random.generator(0, "start"))
        assert torch.equal(start.means, again.means)


def test_set_params_rebuilds():
    kernel = Matern(2.0)
    assert kernel.set_params(nu=0.5, lengthscale=1.0) is kernel
    x = points(4, 2)
    close(exact(kernel, x), exact(Matern(1.0, 0.5), x))
    assert kernel.get_params() == {"lengthscale": 1.0, "nu": 0.5, "variance": 1.0}
    assert repr(kernel) == "Matern(lengthscale=1.0, nu=0.5, variance=1.0)"
    for params in ParameterGrid({"lengthscale": [0.5, 1.5]}):
        close(
            exact(kernel.set_params(**params), x), exact(Matern(params["lengthscale"], 0.5), x)
        )


@pytest.mark.parametrize(
    ("kernel", "params"),
    [
        (Matern(2.0), {"lengthscale": -1.0}),
        (Periodic(), {"period": 0.0}),
        (Gibbs(), {"decay": "a"}),
    ],
)
def test_parameters_that_are_refused_leave_the_kernel_as_it_is(kernel, params):
    x = points(4, 2)
    before = exact(kernel, x)
    given = kernel.get_params()
    with pytest.raises(InputError):
        kernel.set_params(**params)
    assert kernel.get_params() == given
    assert torch.equal(exact(kernel, x), before)


@pytest.mark.parametrize("kernel", [SpectralMixture, NextGenSpectralMixture])
@pytest.mark.parametrize("d", [11, 40, 80])
def test_in_many_dimensions_mixtures_start_smooth_enough_and_span_what_is_linear(kernel, d):
    x = points(200, d)
    mixture = kernel().initial(2, d, torch.Generator().manual_seed(1))
    values = mixture(x).detach()
    apart = values[~torch.eye(200, dtype=torch.bool)] / values.diagonal().mean()
    # with the scales of few dimensions it is the kernel of noise: 0
    assert float(apart.min()) > 0.3
    noise = mixture.noise(math.ceil(1.25 * d), d, torch.Generator().manual_seed(2), "sobol")
    phi = fourier_features(x, mixture.frequencies(noise).detach()).T
    w = torch.randn(d, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    target = x @ w / w.norm()
    ridge = phi @ torch.linalg.solve(
        phi.T @ phi + 1e-3 * torch.eye(phi.shape[1], dtype=phi.dtype), phi.T @ target
    )
    assert float((ridge - target).square().mean()) < 0.15


@pytest.mark.parametrize("leading", [(), (3,)], ids=["one model", "three models"])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_frequencies_of_pairs_have_the_gradients_of_their_definition(dim, leading):
    source = torch.Generator().manual_seed(dim)
    shapes = ((2,), (2, 2, dim), (2, 2, dim), (2,))  # weights, means, scales, correlations
    leaves = [
        torch.randn(*leading, *shape, generator=source, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]
    noise = torch.randn(*leading, 2, 4, 2 * dim, generator=source, dtype=torch.float64)
    kernel = NextGenSpectralMixture().initial(2, dim, source)
    stems = ("log_weights", "means", "log_scales", "atanh_correlations")
    names = [f"kernel.{stem}" for stem in stems]

    def pairs(*values):
        given = dict(zip(names, values, strict=True))
        f = torch.func.functional_call(_Frequencies(kernel), given, (noise,))
        return f.first, f.second, f.amplitude

    assert torch.autograd.gradcheck(pairs, leaves)
    first, second, _ = pairs(*leaves)
    eps1, eps2 = noise.chunk(2, dim=-1)
    rho = leaves[3].tanh()[..., None, None]
    expected = leaves[1][..., 1, :, None, :] + leaves[2].exp()[..., 1, :, None, :] * (
        rho * eps1 + (1.0 - rho.square()).sqrt() * eps2
    )
    torch.testing.assert_close(second, expected.flatten(-3, -2))
    expected = leaves[1][..., 0, :, None, :] + leaves[2].exp()[..., 0, :, None, :] * eps1
    torch.testing.assert_close(first, expected.flatten(-3, -2))


class _Frequencies(torch.nn.Module):
    def __init__(self, kernel: SpectralKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, noise: Tensor):
        return self.kernel.frequencies(noise)


EVERY = [RBF(), Matern(), Periodic(), SpectralMixture([1.0], [[0.5]], [[1.0]]), Gibbs()]
EVERY += [Sum([RBF()]), SpectralSum([RBF()]), Polynomial(), TL1(), FunctionKernel(np.dot)]


@pytest.mark.parametrize("kernel", EVERY, ids=lambda kernel: type(kernel).__name__)
def test_points_of_two_spaces_are_refused(kernel):
    with pytest.raises(InputError, match="got points of 3 and of 1 dimensions"):
        kernel(points(4, 3), points(5, 1))
    for given in (torch.zeros(3), 1.0, [1.0]):
        with pytest.raises(
            InputError, match=r"points of shape \(n, d\), got shape .*x\[None\]"
        ):
            kernel(given, given)
    with pytest.raises(InputError, match="Expected numbers, got 'abc'"):
        kernel("abc", "abc")


@pytest.mark.parametrize("kernel", [RBF(2.0), Polynomial()], ids=["spectral", "dot product"])
def test_arrays_lists_and_whole_numbers_are_points(kernel):
    x, y = np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[2.0, 1.0]])
    wanted = kernel(torch.from_numpy(x), torch.from_numpy(y)).detach()
    whole = [torch.from_numpy(one).long() for one in (x, y)]
    for given in ((x, y), (x.tolist(), y.tolist()), whole):
        torch.testing.assert_close(kernel(*given).detach(), wanted)
    single = torch.from_numpy(x).float()
    near = {"rtol": 1e-6, "atol": 1e-6, "check_dtype": False}
    torch.testing.assert_close(kernel(single, y).detach(), wanted, **near)
    torch.testing.assert_close(kernel(x, torch.from_numpy(y).float()).detach(), wanted, **near)


@pytest.mark.parametrize("wrong", ["3", None, True, [1.0, 2.0], 10**400])
def test_what_is_no_number_is_refused_as_such(wrong):
    kernels = [
        lambda: Polynomial(wrong),
        lambda: GeodesicGaussian(wrong),
        lambda: Tanh(offset=wrong),
        lambda: Matern(nu=wrong),
        lambda: DotProductSeries([1.0, wrong]),
    ]
    if wrong is not None:
        kernels += [
            lambda: TL1(wrong),
            lambda: Tanh(wrong),
            lambda: DirichletProcessMixture(n_points="a"),
        ]
    for make in kernels:
        with pytest.raises(InputError):
            make()


@pytest.mark.parametrize("wrong", ["12", 3.0, None])
def test_what_is_no_sequence_is_refused_as_such(wrong):
    for make in (DotProductSeries, Sum, SpectralSum):
        with pytest.raises(InputError):
            make(wrong)
    with pytest.raises(InputError, match=r"means1 must have shape \(mixtures, dimensions\)"):
        NextGenSpectralMixture([1.0], [0.0], [0.0], [1.0], [1.0], [0.5])


def test_orders_of_any_type_of_number_are_orders():
    assert Matern(nu=np.float32(1.5)).degrees == 3


def test_features_of_a_lengthscale_that_harmonics_do_not_reach_are_refused():
    """Their kernel was off by three times its values."""
    kernel = Periodic(lengthscale=[1.0, 0.01])
    assert torch.isfinite(exact(kernel, points(4, 2))).all()
    with pytest.raises(InputError, match=r"lengthscale of at least 0.05 .* got 0.01"):
        kernel.noise(5, 2, random.generator(0, "p"), "iid")


def test_complex_points_are_refused():
    with pytest.raises(InputError, match=r"real points, got points of torch\.complex64"):
        RBF()(torch.zeros(2, 2, dtype=torch.complex64))
