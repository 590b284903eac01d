"""KreinFeatures and its comparators: scikit-learn's contract, unbiasedness, tensors, and their
messages.
"""

from __future__ import annotations

import itertools
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.utils._python_dispatch import TorchDispatchMode

import bochner as bo
from bochner.errors import DataWarning, InputError
from bochner.feature_maps.comparators import RandomMaclaurin, SphericalFeatures
from bochner.feature_maps.krein import KreinFeatures
from bochner.kernels.indefinite import (
    TL1,
    DotProduct,
    DotProductSeries,
    Hellinger,
    Polynomial,
    Tanh,
    resolve,
)

QUICK = {"n_components": 8, "max_iter": 10}
MAPS = [
    KreinFeatures(**QUICK),
    RandomMaclaurin(n_components=12),
    SphericalFeatures(n_components=12),
]
over_maps = pytest.mark.parametrize("model", MAPS, ids=lambda m: type(m).__name__)


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(60, 3))


@pytest.mark.filterwarnings("ignore:Expected an even n_components")  # the checks set it to 1
@parametrize_with_checks(
    [
        *MAPS,
        KreinFeatures(inference="spectral", n_components=8),
        KreinFeatures(inference="taylor", **QUICK),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def kernel_of(features: np.ndarray, signs: np.ndarray) -> np.ndarray:
    return (features * signs) @ features.T


@pytest.mark.parametrize(
    "kernel", ["polynomial", "hellinger", "tl1", "tanh", "geodesic_gaussian"]
)
def test_signed_products_approach_the_kernel(X, kernel):
    model = KreinFeatures(kernel, 30, random_state=0).fit(X)
    F, exact = (
        model.transform(X),
        model.kernel_(*2 * (model.kernel_.normalise(torch.tensor(X)),)).numpy(),
    )
    off = ~np.eye(len(X), dtype=bool)
    rmse = np.sqrt(np.mean((kernel_of(F, model.signs_.numpy()) - exact)[off] ** 2))
    scale = np.sqrt(np.mean(exact[off] ** 2))
    assert rmse / scale < 0.05
    assert model.approximation_error(X) == pytest.approx(rmse, rel=1e-9)
    assert model.approximation_error(X, relative=True) == pytest.approx(rmse / scale, rel=1e-9)
    assert model.held_out_error_ < 0.06


@pytest.mark.parametrize("inference", ["gradient", "spectral", "taylor"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_features_are_unbiased_for_the_fitted_kernel(inference, d):
    rows = np.random.default_rng(d).uniform(0.1, 1, size=(40, d))
    model = KreinFeatures(
        "geodesic_gaussian", 8, inference=inference, max_iter=10, random_state=0
    ).fit(rows)
    source, grams = torch.Generator().manual_seed(0), []
    for _ in range(400):
        model.frequencies_ = model.posterior_.draw(source)
        grams.append(kernel_of(model.transform(rows[:5]), model.signs_.numpy()))
    draws, fitted = np.stack(grams), model.fitted_kernel(rows[:5])
    error, standard_error = np.abs(draws.mean(0) - fitted), draws.std(0) / len(draws) ** 0.5
    assert (error <= 5 * standard_error + 1e-9).all(), (error / (standard_error + 1e-12)).max()
    np.testing.assert_allclose(
        model.fitted_kernel(rows[:5], rows[5:8]), model.fitted_kernel(rows[:8])[:5, 5:]
    )


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("low", [False, True])
def test_maclaurin_features_are_unbiased(d, low):
    rows = np.random.default_rng(d).normal(size=(4, d))
    kernel = DotProductSeries([0.5, 1.0, 0.0, 2.0])
    draws = np.stack(
        [
            kernel_of(
                RandomMaclaurin(
                    kernel, d + 4, exact_low_degrees=low, random_state=s
                ).fit_transform(rows),
                1.0,
            )
            for s in range(400)
        ]
    )
    unit = torch.tensor(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    error = np.abs(draws.mean(0) - kernel(unit, unit).numpy())
    assert (error <= 5 * draws.std(0) / len(draws) ** 0.5 + 1e-9).all()


def test_maclaurin_error_falls_with_the_root_of_the_columns(X):
    def square(columns: int) -> float:
        maps = (
            RandomMaclaurin(Polynomial(3), columns, random_state=s).fit(X) for s in range(40)
        )
        return float(np.mean([one.approximation_error(X) ** 2 for one in maps]))

    errors = [square(32), square(512)]
    assert 3.0 < np.sqrt(errors[0] / errors[1]) < 5.5


@pytest.mark.parametrize("n_components", [4, 9])
@pytest.mark.parametrize("kernel", [Polynomial(1), DotProductSeries([2.0])])
def test_exact_low_degrees_alone_are_exact(X, kernel, n_components):
    model = RandomMaclaurin(kernel, n_components, exact_low_degrees=True, random_state=0)
    features = model.fit_transform(X)
    assert features.shape == (60, n_components)
    assert not features[:, 4:].any()
    assert model.approximation_error(X) < 1e-12


def test_spherical_features_fit_a_definite_kernel(X):
    gaussian = bo.kernels.GeodesicGaussian(0.5)
    few, many = (
        SphericalFeatures(gaussian, k, random_state=0).fit(X).approximation_error(X)
        for k in (64, 4096)
    )
    assert many < 0.3 * few
    assert many < 0.03


class Opposite(DotProduct):
    """A kernel whose negative is definite."""

    def of_product(self, t, n_features):
        return -(t - 1.0).exp()


def test_spherical_features_are_held_once(X):
    """Phases, cosines and features were three arrays of the same size."""
    model = SphericalFeatures(n_components=50, random_state=0).fit(X)
    held = {}

    class Large(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.numel() >= len(X) * 50:
                held[out.untyped_storage().data_ptr()] = out
            return out

    with Large():
        features = model.transform(torch.from_numpy(X))
    assert features.shape == (len(X), 50)
    assert len(held) == 1


def test_spherical_features_say_that_a_kernel_has_no_positive_spectrum(X):
    with pytest.warns(
        DataWarning, match="All features are 0: the kernel has no positive spec"
    ):
        model = SphericalFeatures(Opposite(), 16, random_state=0).fit(X)
    assert not model.transform(X).any()


def test_ours_are_closer_than_the_comparators(X):
    for kernel in ("polynomial", "hellinger", "tanh", "geodesic_gaussian"):
        ours = KreinFeatures(kernel, 12, random_state=0).fit(X).approximation_error(X)
        assert ours < SphericalFeatures(kernel, 12, random_state=0).fit(X).approximation_error(
            X
        )
    ours = KreinFeatures(n_components=12, random_state=0).fit(X).approximation_error(X)
    assert ours < RandomMaclaurin(n_components=12, random_state=0).fit(X).approximation_error(
        X
    )


def test_negative_part_is_there_where_the_sketch_shows_it(X):
    definite = KreinFeatures("polynomial", 20, random_state=0, max_iter=5).fit(X)
    assert bool((definite.signs_ == 1).all())
    assert definite.eigenvalue_ratio_ > -1e-9
    indefinite = KreinFeatures(
        Tanh(3.0), 20, inference="gradient", random_state=0, max_iter=5
    ).fit(X)
    assert indefinite.eigenvalue_ratio_ < -1e-3
    assert indefinite.signs_.tolist() == sorted(indefinite.signs_.tolist(), reverse=True)
    assert 2 <= int((indefinite.signs_ < 0).sum()) < 20


@pytest.mark.parametrize("n_components", [1, 7])
@pytest.mark.parametrize("inference", ["gradient", "spectral", "taylor"])
def test_odd_numbers_of_columns_have_a_constant_and_are_warned_about(
    X, n_components, inference
):
    match = (
        rf"even n_components, a cosine and a sine each, got {n_components}. Type "
        rf"n_components={n_components + 1}: one column is a constant."
    )
    settings = {"inference": inference, "max_iter": 5, "random_state": 0}
    with pytest.warns(DataWarning, match=match):
        model = KreinFeatures(Tanh(3.0), n_components, **settings).fit(X)
    features = model.transform(X)
    assert features.shape == (60, n_components)
    assert model.signs_.shape == (n_components,)
    assert model.signs_.tolist() == sorted(model.signs_.tolist(), reverse=True)
    unit = torch.tensor(X / np.linalg.norm(X, axis=1, keepdims=True))
    waves = (model.frequencies_ @ (unit[:, None] - unit[None])[..., None]).cos()[..., 0]
    expected = waves @ (model.posterior_.weight * model.posterior_.sign)
    np.testing.assert_allclose(kernel_of(features, model.signs_.numpy()), expected, atol=1e-9)
    assert (model.frequencies_ == 0).all(1).any()


@pytest.mark.filterwarnings("ignore:Expected an even n_components")
@pytest.mark.parametrize("kernel", ["polynomial", "tanh", "tl1"])
def test_a_column_more_than_an_even_number_makes_no_error_larger(kernel):
    X = np.random.default_rng(0).uniform(size=(300, 3))
    # a last cosine of a random phase made them two to ten times larger
    for even in (2, 8, 16):
        settings = {"inference": "gradient", "max_iter": 40, "random_state": 1}
        few, more = (
            KreinFeatures(kernel, count, **settings).fit(X).held_out_error_
            for count in (even, even + 1)
        )
        assert more <= 1.05 * few


def test_sketch_sizes(X):
    assert KreinFeatures()._sizes(10**6) == (1000, 200)
    assert KreinFeatures(n_components=300)._sizes(10**6) == (1200, 240)
    assert KreinFeatures(n_components=5000)._sizes(10**6) == (2000, 400)
    assert KreinFeatures()._sizes(600) == (480, 96)
    assert KreinFeatures()._sizes(2) == (2, 0)
    assert KreinFeatures(sketch_size=5)._sizes(10) == (5, 2)
    assert KreinFeatures(sketch_size=10)._sizes(10) == (10, 0)
    assert KreinFeatures(sketch_size=60, **QUICK).fit(X).held_out_error_ > 0


def test_callables_are_kernels(X):
    def matrices(A, B):
        return np.exp(-np.abs(A[:, None] - B[None]).sum(-1))

    model = KreinFeatures(matrices, 20, random_state=0, max_iter=50).fit(X)
    assert model.approximation_error(X, relative=True) < 0.1
    pairwise = bo.kernels.FunctionKernel(
        lambda a, b: np.exp(-np.abs(a - b).sum()), pairwise=True
    )
    again = KreinFeatures(pairwise, 20, random_state=0, max_iter=50).fit(X)
    np.testing.assert_allclose(again.transform(X), model.transform(X), atol=1e-6)


@over_maps
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensor_in_tensor_out(X, model, dtype):
    rows = torch.tensor(X, dtype=dtype)
    fitted = clone(model).set_params(random_state=0).fit(rows)
    features = fitted.transform(rows)
    assert isinstance(features, torch.Tensor)
    assert features.dtype == dtype
    np.testing.assert_array_equal(features.numpy(), fitted.transform(rows.numpy()))
    assert isinstance(fitted.approximation_error(rows), float)
    few = rows[:3].double().requires_grad_()
    assert torch.autograd.gradcheck(fitted.transform, (few,))


@over_maps
def test_chunks_are_the_whole(X, model, tmp_path):
    fitted = clone(model).set_params(random_state=0).fit(X)
    chunks = list(fitted.iter_transform(X, chunk=25))
    assert [len(c) for c in chunks] == [25, 25, 10]
    np.testing.assert_allclose(np.concatenate(chunks), fitted.transform(X), rtol=1e-12)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_allclose(
        np.concatenate(list(fitted.iter_transform(mapped, 7))), fitted.transform(X), rtol=1e-12
    )


@over_maps
def test_same_seed_same_features_and_no_global_state(X, model):
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again, other = (
        clone(model).set_params(random_state=s).fit_transform(X) for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(numpy_before, np.random.get_state()[1])


@over_maps
def test_pickled_named_and_framed(X, model):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = clone(model).set_params(random_state=0).set_output(transform="pandas").fit(frame)
    output = fitted.transform(frame)
    prefix, columns = type(model).__name__.lower(), model.n_components
    assert list(output.columns) == [f"{prefix}{i}" for i in range(columns)]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(frame), output)
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]


def test_rows_of_norm_zero_take_no_place_in_the_sketch(X):
    """Of 60 rows among 600 of zeros 2 were fitted and 58 held out: errors were a hundred times as
    large.
    """
    many = np.vstack([X, np.zeros((600, 3))])
    model = KreinFeatures("polynomial", n_components=20, max_iter=20, random_state=0)
    assert model.fit(many).approximation_error(X, relative=True) < 0.05
    with pytest.raises(InputError, match="between 2 and the 660 rows"):
        model.set_params(sketch_size=661).fit(many)
    assert model.set_params(sketch_size=300).fit(many).held_out_error_ < 0.05


@over_maps
def test_rows_of_norm_zero_become_zero_features_and_one_warning(X, model):
    X = X.copy()
    X[[3, 40]] = 0.0
    fitted = clone(model).set_params(random_state=0)
    fitted.fit(X)
    with pytest.warns(
        DataWarning, match="2 rows have norm zero: .* their features are zero"
    ) as caught:
        features = fitted.transform(X)
    assert len(caught) == 1
    assert not features[[3, 40]].any()
    assert np.isfinite(features).all()
    with pytest.warns(DataWarning, match="2 rows have norm zero") as caught:
        chunks = list(fitted.iter_transform(X, 10))
    assert len(caught) == 1
    np.testing.assert_allclose(np.concatenate(chunks), features, rtol=1e-12)
    # the kernel of such a row counts as zero too: the error stays that of the other pairs
    alone = fitted.approximation_error(np.delete(X, [3, 40], axis=0))
    assert fitted.approximation_error(X) == pytest.approx(alone * np.sqrt(58 * 57 / (60 * 59)))


def test_kernel_parameters_can_be_searched_in_a_pipeline(X):
    y = (X[:, 0] * X[:, 1] > 0.25).astype(int)
    pipe = make_pipeline(
        MinMaxScaler(clip=True),
        KreinFeatures(TL1(), random_state=0, **QUICK),
        RidgeClassifier(),
    )
    search = GridSearchCV(pipe, {"kreinfeatures__kernel__tau": [0.3, 2.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"kreinfeatures__kernel__tau": 2.0}


def test_kernels_are_copied_by_fit(X):
    kernel = Polynomial(3)
    model = KreinFeatures(kernel, random_state=0, **QUICK).fit(X)
    before = model.approximation_error(X)
    kernel.set_params(degree=20)
    assert model.approximation_error(X) == before


def not_symmetric(A, B):
    return A @ B.T + A.sum(1)[:, None]


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"n_components": 0}, "'n_components' parameter of KreinFeatures must be"),
        (
            {"sketch_size": 1},
            "between 2 and the 60 rows, got 1. Type sketch_size='auto' or a number up to 60",
        ),
        ({"sketch_size": 61}, "sketch_size between 2 and the 60 rows, got 61"),
        ({"sketch_size": "all"}, "'sketch_size' parameter of KreinFeatures must be"),
        ({"kernel": "cubic"}, "'kernel' parameter of KreinFeatures must be"),
        ({"kernel": not_symmetric}, "Expected a symmetric kernel, got k"),
        (
            {"kernel": lambda A, B: np.ones(3)},
            r"Expected a kernel matrix of shape \(48, 48\), got \(3,\)",
        ),
        (
            {"kernel": lambda A, B: A @ B.T, "inference": "spectral"},
            "known spectrum for inference='spectral'",
        ),
        ({"inference": "magic"}, "'inference' parameter of KreinFeatures must be"),
        ({"n_mixtures": 0}, "'n_mixtures' parameter of KreinFeatures must be"),
        ({"max_iter": 0}, "'max_iter' parameter of KreinFeatures must be"),
        ({"random_state": "x"}, "'random_state' parameter of KreinFeatures must be"),
        ({"device": "abacus"}, "Expected a torch device, got 'abacus'"),
    ],
)
def test_wrong_parameters_say_what_to_type(X, params, match):
    with pytest.raises(ValueError, match=match):
        KreinFeatures(**{**QUICK, **params}).fit(X)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (
            RandomMaclaurin(Tanh()),
            "a kernel with Maclaurin coefficients, got Tanh. Use Polynomial or DotProductSeries",
        ),
        (
            RandomMaclaurin(DotProductSeries([1.0, -2.0])),
            "none is negative, got -2 for degree 1. Use KreinFeatures",
        ),
        (
            RandomMaclaurin(DotProductSeries([-1.0, 1.0, 1.0]), exact_low_degrees=True),
            "none is negative, got -1 for degree 0",
        ),
        (
            RandomMaclaurin(DotProductSeries([0.0, 0.0])),
            "Expected a kernel that is not zero, got coefficients of zeros. Give a positive",
        ),
        (
            RandomMaclaurin(Polynomial(1), n_components=3, exact_low_degrees=True),
            "exact low degrees and the rest, got 3. Type n_components=4 or more, or exact_low",
        ),
        (
            RandomMaclaurin(n_components=4, exact_low_degrees=True),
            "got 4. Type n_components=5 or more, or exact_low",
        ),
        (RandomMaclaurin("tanh"), "'kernel' parameter of RandomMaclaurin must be"),
        (
            SphericalFeatures(TL1()),
            "a kernel of the distance on the sphere, got TL1. Use KreinFeatures",
        ),
        (SphericalFeatures("tl1"), "'kernel' parameter of SphericalFeatures must be"),
        (
            SphericalFeatures(n_gaussians=0),
            "'n_gaussians' parameter of SphericalFeatures must be",
        ),
    ],
)
def test_comparators_say_what_they_cannot_do(X, model, match):
    with pytest.raises(ValueError, match=match):
        model.fit(X)


def test_spectral_kernels_need_no_search(X):
    with pytest.raises(
        InputError,
        match=r"got RBF, which has a spectral density. Type bochner.FourierFeatures",
    ):
        bo.KreinFeatures(bo.kernels.RBF(), n_components=20).fit(X)
    for kind in (bo.kernels.RBF, bo.kernels.Polynomial):
        with pytest.raises(InputError, match=f"got the class {kind.__name__}. Call it"):
            bo.KreinFeatures(kind, n_components=20).fit(X)
    # one without is a function like others
    exact = bo.kernels.Sum([bo.kernels.RBF()])
    assert (
        bo.KreinFeatures(exact, n_components=20, max_iter=2, random_state=0)
        .fit(X)
        .signs_.any()
    )


def test_wrong_rows_are_refused(X):
    outside = X.copy()
    outside[4, 1] = 1.5
    model = KreinFeatures("tl1", random_state=0, **QUICK)
    with pytest.raises(InputError, match=r"entries between 0 and 1 for TL1, got 1\.5 in row"):
        clone(model).set_params(sketch_size=60).fit(outside)
    model.fit(X)
    with pytest.raises(
        InputError, match=r"got 1.5 in row 4, column 1. Put MinMaxScaler\(clip=True\)"
    ):
        model.transform(outside)
    signed = X - 0.5
    with pytest.raises(
        InputError, match="Expected non-negative products <x, y> for Hellinger"
    ):
        KreinFeatures(Hellinger(), **QUICK).fit(signed)
    nothing = np.zeros((10, 3))
    nothing[0] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        with pytest.raises(
            InputError, match=r"at least 2 rows of a norm above zero, got 1\. Check the data"
        ):
            KreinFeatures(**QUICK).fit(nothing)
    for one in (X[:1], torch.tensor(X[:1])):
        with pytest.raises(ValueError, match="1 sample"):
            KreinFeatures(**QUICK).fit(one)
        with pytest.raises(ValueError, match="1 sample"):
            model.approximation_error(one)


@over_maps
def test_unfitted_maps_and_wrong_chunks_are_refused(X, model):
    for call in ("transform", "iter_transform", "approximation_error"):
        with pytest.raises(NotFittedError):
            getattr(clone(model), call)(X)
    fitted = clone(model).fit(X)
    for chunk in (0, 1.5):
        with pytest.raises(ValueError, match="The 'chunk' parameter"):
            fitted.iter_transform(X, chunk)
    with pytest.raises(ValueError, match="X has 2 features"):
        fitted.transform(X[:, :2])


def test_public_names():
    for name, where in itertools.product(
        ("KreinFeatures", "RandomMaclaurin", "SphericalFeatures"), (bo, bo.__all__)
    ):
        assert name in where if isinstance(where, list) else hasattr(where, name)


@pytest.mark.parametrize(("kernel", "n_components"), [("hellinger", 8), ("tl1", 40)])
def test_best_is_the_better_of_gradient_and_spectral(kernel, n_components):
    X = np.random.default_rng(0).uniform(size=(300, 5))
    errors = {}
    for inference in ("gradient", "spectral", "best"):
        model = KreinFeatures(kernel, n_components, inference=inference, random_state=0).fit(X)
        errors[inference] = model.held_out_error_
    assert errors["best"] <= errors["gradient"]
    # frequencies are drawn again: their error varies a little from draw to draw
    assert errors["best"] <= 1.1 * errors["spectral"]


def test_a_search_that_would_take_minutes_is_warned_of():
    features = KreinFeatures("polynomial", n_components=4, max_iter=1, random_state=0)
    features.kernel_ = resolve("polynomial")
    text = "of 1,400 rows in 1,500 columns takes minutes.*fewer of both.*, or inference='spec"
    with pytest.warns(DataWarning, match=text):
        features._warn_of_width(
            SimpleNamespace(x=torch.zeros(1000, 1500), held_out=torch.zeros(400, 1500))
        )
    # the published updates take no less time of fewer rows, and this kernel has no spectrum
    features = KreinFeatures(lambda a, b: a @ b.T, inference="taylor")
    features.kernel_ = resolve(features.kernel)
    with pytest.warns(DataWarning, match=r"of the columns\. In seconds: PCA before it\.$"):
        features._warn_of_width(
            SimpleNamespace(x=torch.zeros(9, 1500), held_out=torch.zeros(2, 1500))
        )
    features = KreinFeatures("polynomial", n_components=4, max_iter=1, random_state=0)
    rows = np.random.default_rng(100).uniform(size=(12, 1500))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        features.fit(rows)


@pytest.mark.parametrize("n_columns", [400, 4000])
def test_the_columns_beyond_the_rows_cost_nothing_and_are_not_lost(n_columns):
    """Of TL1 on eight factors, searched in all 400 columns, the error on other rows was 0.07."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(250, 8)) @ rng.normal(size=(8, n_columns))
    rows = MinMaxScaler().fit_transform(rows + 0.5 * rng.normal(size=rows.shape))
    features = KreinFeatures("tl1", 32, inference="gradient", max_iter=40, random_state=0)
    features.fit(rows[:150])
    assert features.posterior_.within.mean.shape == (16, 144)
    assert features.held_out_error_ < 0.04
    assert features.approximation_error(rows[150:], relative=True) < 0.04
    mean = np.mean(features.transform(rows) ** 2, axis=0).sum()
    assert mean == pytest.approx(np.diag(features.fitted_kernel(rows[:5])).mean(), rel=0.2)
