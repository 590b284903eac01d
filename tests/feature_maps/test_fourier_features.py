"""FourierFeatures: scikit-learn's contract, the kernel it approximates, tensors, and its
messages.
"""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from bochner.errors import InputError
from bochner.feature_maps.fourier import FourierFeatures
from bochner.features import fourier
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.kernels.indefinite import TL1
from bochner.kernels.nonstationary import Gibbs, SpectralSum
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.kernels.stationary import RBF, Matern

SAMPLINGS = ("iid", "orthogonal", "sobol")
MIXTURE = SpectralMixture([0.5, 0.3, 0.2], np.zeros((3, 2)), np.ones((3, 2)))


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(30, 2))


def expected_failures(estimator: FourierFeatures) -> dict[str, str]:
    if isinstance(estimator.kernel, str):
        return {}
    return {
        "check_estimators_overwrite_params": "torch pickles addresses: a copy of a kernel has "
        "another joblib hash"
    }


@parametrize_with_checks(
    [FourierFeatures(), FourierFeatures(kernel=Matern(), sampling="sobol")],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_inner_products_approach_scikit_learns_rbf(X, sampling):
    features = FourierFeatures(
        RBF(0.7), n_components=2**14, sampling=sampling, random_state=0
    ).fit_transform(X)
    # 5 standard deviations of the mean of H = 2^13 cosines
    np.testing.assert_allclose(
        features @ features.T, rbf_kernel(X, gamma=0.5 / 0.7**2), atol=5 / np.sqrt(2 * 2**13)
    )


def test_error_is_the_rmse_over_pairs_of_different_rows(X):
    model = FourierFeatures(RBF(2.0), n_components=20, random_state=1).fit(X)
    features, exact = model.transform(X), rbf_kernel(X, gamma=0.125)
    off = ~np.eye(len(X), dtype=bool)
    rmse = np.sqrt(np.mean((features @ features.T - exact)[off] ** 2))
    assert model.approximation_error(X) == pytest.approx(rmse, rel=1e-9)
    assert model.approximation_error(X, relative=True) == pytest.approx(
        rmse / np.sqrt(np.mean(exact[off] ** 2))
    )


def test_error_of_many_rows_is_that_of_all_pairs():
    """5,000 rows: 3,355 at a time, then the others."""
    X = np.random.default_rng(1).normal(size=(5000, 1))
    model = FourierFeatures("rbf", n_components=4, random_state=1).fit(X)
    features = model.transform(X)
    away = features @ features.T - rbf_kernel(X, gamma=0.5)
    np.fill_diagonal(away, 0.0)
    rmse = np.sqrt(np.square(away).sum() / (5000 * 4999))
    assert model.approximation_error(X) == pytest.approx(rmse, rel=1e-9)


def test_structured_samplings_have_smaller_errors(X):
    errors = {
        sampling: np.mean(
            [
                FourierFeatures("rbf", 128, sampling=sampling, random_state=s)
                .fit(X)
                .approximation_error(X)
                for s in range(20)
            ]
        )
        for sampling in SAMPLINGS
    }
    assert errors["orthogonal"] < 0.97 * errors["iid"]
    assert errors["sobol"] < 0.6 * errors["iid"]


def test_dirichlet_process_mixtures_with_values_are_approximated(X):
    """They were told to give n_points, which models alone have."""
    kernel = DirichletProcessMixture([0.4, 0.6], np.zeros((2, 2)), [[1.0] * 2, [0.5] * 2])
    model = FourierFeatures(kernel, n_components=2**13, random_state=0).fit(X)
    assert model.approximation_error(X) < 0.02
    with pytest.raises(InputError, match=r"no values for proportions, means, scales\."):
        FourierFeatures(DirichletProcessMixture()).fit(X)


def test_non_stationary_kernels_are_approximated(X):
    kernel = NextGenSpectralMixture(
        [1.0], [[0.5, 0.0]], [[0.0, 0.5]], [[1.0, 0.5]], [[0.5, 1.0]], [0.3]
    )
    assert FourierFeatures(kernel, 2**13, random_state=0).fit(X).approximation_error(X) < 0.02


@pytest.mark.parametrize("n_components", [1, 3])
def test_odd_numbers_of_columns_are_unbiased(X, n_components):
    kernel = NextGenSpectralMixture(
        [1.0], [[0.5, 0.0]], [[0.0, 0.5]], [[1.0, 0.5]], [[0.5, 1.0]], [0.3]
    )
    draws = [
        FourierFeatures(kernel, n_components, random_state=s).fit_transform(X[:4])
        for s in range(600)
    ]
    assert draws[0].shape == (4, n_components)
    grams = np.stack([draw @ draw.T for draw in draws])
    exact = kernel(torch.tensor(X[:4])).detach().numpy()
    z = (grams.mean(0) - exact) / (grams.std(0) / np.sqrt(len(draws)))
    assert np.abs(z).max() < 4.5


def test_a_learned_kernel_is_approximated_as_it_is_now(X):
    kernel = RBF(1.0)
    with torch.no_grad():
        kernel.log_lengthscale.fill_(np.log(3.0))
    model = FourierFeatures(kernel, 40, random_state=0).fit(X)
    expected = FourierFeatures(RBF(3.0), 40, random_state=0).fit(X)
    np.testing.assert_allclose(model.transform(X), expected.transform(X))
    assert model.approximation_error(X) == pytest.approx(expected.approximation_error(X))
    with torch.no_grad():
        kernel.log_lengthscale.fill_(0.0)
    assert model.approximation_error(X) == pytest.approx(expected.approximation_error(X)), (
        "fit must copy the kernel"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensor_in_tensor_out(X, dtype):
    rows = torch.tensor(X, dtype=dtype)
    model = FourierFeatures(n_components=20, random_state=0).fit(rows)
    features = model.transform(rows)
    assert isinstance(features, torch.Tensor)
    assert features.dtype == dtype
    assert model.n_features_in_ == 2
    np.testing.assert_array_equal(features.numpy(), model.transform(rows.numpy()))
    assert isinstance(model.approximation_error(rows), float)


def test_tensors_carry_gradients(X):
    rows = torch.tensor(X[:3], requires_grad=True)
    model = FourierFeatures(n_components=6, random_state=0).fit(rows)
    assert torch.autograd.gradcheck(model.transform, (rows,))


def test_other_tensor_types_are_computed_in_float64():
    model = FourierFeatures(n_components=6, random_state=0).fit(torch.arange(6).reshape(3, 2))
    assert model.transform(torch.arange(6).reshape(3, 2)).dtype == torch.float64


def test_chunks_are_the_whole(X, tmp_path):
    model = FourierFeatures(n_components=20, random_state=0).fit(X)
    chunks = list(model.iter_transform(X, chunk=8))
    assert [len(c) for c in chunks] == [8, 8, 8, 6]
    np.testing.assert_allclose(np.concatenate(chunks), model.transform(X), rtol=1e-12)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_allclose(
        np.concatenate(list(model.iter_transform(mapped, 7))), model.transform(X), rtol=1e-12
    )
    tensors = list(model.iter_transform(torch.tensor(X), 20))
    np.testing.assert_allclose(torch.cat(tensors).numpy(), model.transform(X), rtol=1e-12)


def test_frames_and_output_containers(X):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = (
        FourierFeatures(n_components=4, random_state=0)
        .set_output(transform="pandas")
        .fit(frame)
    )
    assert list(model.transform(frame).columns) == [f"fourierfeatures{i}" for i in range(4)]
    assert sum(len(c) for c in model.iter_transform(frame, 7)) == len(frame)


def test_same_seed_same_features_and_no_global_state(X):
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again = (FourierFeatures(random_state=3).fit_transform(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, FourierFeatures(random_state=4).fit_transform(X))
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(numpy_before, np.random.get_state()[1])
    assert not np.allclose(
        FourierFeatures().fit_transform(X), FourierFeatures().fit_transform(X)
    )


def test_pickled_and_cloned(X):
    model = FourierFeatures(MIXTURE, n_components=12, random_state=0).fit(X)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).transform(X), model.transform(X)
    )
    fresh = clone(model)
    assert fresh.kernel is not model.kernel
    np.testing.assert_array_equal(fresh.fit(X).transform(X), model.transform(X))


def test_kernel_parameters_can_be_searched(X):
    y = (X[:, 0] ** 2 + X[:, 1] ** 2 > 1.2).astype(int)
    pipe = make_pipeline(
        FourierFeatures(RBF(), n_components=60, random_state=0), RidgeClassifier(alpha=1e-2)
    )
    search = GridSearchCV(
        pipe, {"fourierfeatures__kernel__lengthscale": [0.01, 1.0]}, cv=3
    ).fit(X, y)
    assert search.best_params_ == {"fourierfeatures__kernel__lengthscale": 1.0}
    assert "lengthscale=1.0" in repr(search.best_estimator_)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"kernel": "cubic"}, "'kernel' parameter of FourierFeatures must be"),
        ({"kernel": Gibbs()}, "must have a spectral density, got Gibbs"),
        (
            {"kernel": SpectralMixture()},
            "SpectralMixture has no values for weights, means, scales",
        ),
        (
            {"kernel": SpectralSum([RBF(), SpectralMixture()])},
            "SpectralMixture has no values for weights",
        ),
        ({"kernel": RBF([1.0, 2.0, 3.0])}, "lengthscale is for 3 dimensions, got points of 2"),
        (
            {"kernel": SpectralMixture([1.0], [[0.0]], [[1.0]])},
            "means is for 1 dimension, got points of 2",
        ),
        (
            {"kernel": MIXTURE, "n_components": 100},
            r"multiple of 6 .* got 100. Type n_components=102",
        ),
        ({"n_components": 0}, "'n_components' parameter of FourierFeatures must be"),
        ({"sampling": "halton"}, "'sampling' parameter of FourierFeatures must be"),
        ({"random_state": "x"}, "'random_state' parameter of FourierFeatures must be"),
        ({"device": 3}, "'device' parameter of FourierFeatures must be"),
        (
            {"device": "abacus"},
            "Expected a torch device, got 'abacus'.*'auto', 'cpu' or 'cuda'",
        ),
    ],
)
def test_wrong_parameters_say_what_to_type(X, params, match):
    with pytest.raises(ValueError, match=match):
        FourierFeatures(**params).fit(X)


def test_wrong_rows_are_refused(X):
    with pytest.raises(NotFittedError):
        FourierFeatures().transform(X)
    with pytest.raises(NotFittedError):
        FourierFeatures().iter_transform(X)
    model = FourierFeatures().fit(X)
    wrong = torch.tensor(X)
    wrong[3, 1] = float("nan")
    with pytest.raises(
        ValueError, match=r"finite numbers in X, got nan in row 3, column 1\. Drop"
    ):
        model.transform(wrong)
    wrong[3, 1] = -float("inf")
    text = r"got -inf in row 1, column 1\..* Rows are counted from row 2 on\."
    with pytest.raises(ValueError, match=text):
        list(model.iter_transform(wrong, chunk=2))
    with pytest.raises(
        ValueError, match="X has 1 features, but FourierFeatures is expecting 2"
    ):
        model.transform(torch.tensor(X[:, :1]))
    with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
        model.transform(torch.tensor(X[:, 0]))
    with pytest.raises(ValueError, match="Complex data not supported"):
        model.transform(torch.tensor(X).to(torch.complex128))
    for one, chunk in itertools.product((X[:1], torch.tensor(X[:1])), (0, 1.5)):
        with pytest.raises(ValueError, match="1 sample"):
            model.approximation_error(one)
        with pytest.raises(ValueError, match="The 'chunk' parameter"):
            model.iter_transform(one, chunk)


@pytest.mark.parametrize("kernel", ["rbf", Matern(nu=0.5)], ids=["rbf", "heavy tails"])
@pytest.mark.parametrize("scale", [1e2, 1e5, 1e8])
def test_single_precision_holds_the_phases_of_rows_far_from_zero(X, kernel, scale):
    # 1e5 radians in single precision: an error of 0.01, and of 10 at 1e8
    features = FourierFeatures(kernel, n_components=40, random_state=0).fit(X)
    rows = (scale * X).astype(np.float32)
    single, double = features.transform(rows), features.transform(rows.astype(np.float64))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=1e-3)


def test_features_of_a_row_do_not_depend_on_the_rows_beside_it(X):
    """One far row took all of them to double precision."""
    near = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    both = np.concatenate([near, np.float32([[30.0, 0.0]])])
    model = FourierFeatures(RBF(1e-3), n_components=20, random_state=0).fit(X)
    np.testing.assert_array_equal(model.transform(both)[:-1], model.transform(near))
    exact = model.transform(both[-1:].astype(np.float64))
    np.testing.assert_allclose(model.transform(both)[-1:], exact, atol=1e-6)
    tensor = torch.tensor(both, requires_grad=True)
    torch.testing.assert_close(model.transform(tensor).detach().numpy(), model.transform(both))
    (slope,) = torch.autograd.grad(model.transform(tensor)[:, 0].sum(), tensor)
    assert bool((slope != 0).any(1).all())


def test_rows_are_computed_block_by_block(X, monkeypatch):
    model = FourierFeatures(n_components=20, random_state=0).fit(X)
    whole = model.transform(X)
    monkeypatch.setattr(fourier, "_NUMBERS", 7 * 20)
    np.testing.assert_allclose(model.transform(X), whole, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [2, 12])
def test_rows_whose_phases_no_precision_holds_are_refused(dtype, columns):
    # at 1e20 a phase is rounded by 16,000 radians: features were noise, another one in each order
    rows = np.random.default_rng(0).normal(size=(5, columns)).astype(dtype)
    rows[3, 1] = 1.25e20
    features = FourierFeatures(random_state=0).fit(rows)
    text = (
        r"rows within .*e\+0. of zero, .* got 1.25e\+20 in row 3, column 1. Centre and scale"
    )
    with pytest.raises(InputError, match=text):
        features.transform(rows)


def test_kernels_of_another_map_are_sent_there(X):
    for kernel, text in (
        (TL1(0.5), r"got TL1\. Type bochner\.KreinFeatures\(TL1\(tau=0\.5\)\)"),
        (RBF, r"got the class RBF\. Call it, with its parameters: RBF\(\)"),
    ):
        with pytest.raises(InputError, match=text):
            FourierFeatures(kernel).fit(X)
