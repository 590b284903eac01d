"""Arguments of a wrong type are refused with their name, and nothing that is returned overflows."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone

import bochner as bo
from bochner.errors import InputError
from bochner.estimators.settings.constraints import METHODS

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]

X = np.sin(np.random.default_rng(0).normal(size=(20, 4)))
SMALL = {"n_frequencies": 4, "n_mixtures": 1, "max_iter": 3, "init": "pca", "random_state": 0}
WRONG = {
    ("sample", "n_samples"): lambda m, v: m.sample(v),
    ("sample", "random_state"): lambda m, v: m.sample(2, random_state=v),
    ("impute", "return_std"): lambda m, v: m.impute(X, return_std=v),
    ("inverse_transform", "return_std"): lambda m, v: m.inverse_transform(X[:2, :2], v),
    ("loadings", "as_frame"): lambda m, v: m.loadings(v),
    ("score", "return_std"): lambda m, v: m.score(X, return_std=v),
    ("score_samples", "return_std"): lambda m, v: m.score_samples(X, return_std=v),
    ("transform", "return_std"): lambda m, v: m.transform(X, return_std=v),
    ("transform", "interval"): lambda m, v: m.transform(X, interval=v),
    ("impute", "n_draws"): lambda m, v: m.impute(X, n_draws=v),
    ("inverse_transform", "interval"): lambda m, v: m.inverse_transform(X[:2, :2], interval=v),
    ("kernel_matrix", "view"): lambda m, v: m.kernel_matrix(X[:2, :2], view=v),
    ("save", "path"): lambda m, v: m.save(v),
    ("load", "path"): lambda m, v: bo.load(v),
}


@pytest.fixture(scope="module")
def model():
    return bo.NGMVLVM(**SMALL).fit(X)


@pytest.mark.parametrize(("method", "name"), WRONG)
@pytest.mark.parametrize("value", [b"x", [1], {}, object(), 2j])
def test_a_wrong_type_is_refused_by_name(model, method, name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of {method} must be"):
        WRONG[method, name](model, value)


def test_no_argument_is_left_out():
    assert set(WRONG) == {
        (method, name) for method, arguments in METHODS.items() for name in arguments
    }


def test_half_a_row_and_no_path(model):
    with pytest.raises(ValueError, match=r"must be an instance of 'int'\. Got 1\.5 instead"):
        model.sample(1.5)
    with pytest.raises(ValueError, match="The 'path' parameter of load must be"):
        bo.load(None)


def test_a_kernel_beyond_single_precision_is_refused():
    large = bo.NGMVLVM(**SMALL).fit((1e24 * X).astype(np.float32))
    Z = large.embedding_[:3]
    with pytest.raises(
        InputError, match=r"Expected a kernel that float32 can hold, got one of up"
    ):
        large.kernel_matrix(Z)
    assert np.isfinite(large.kernel_matrix(Z.astype(np.float64))).all()


def test_a_kernel_of_no_rows_and_of_rows_without_numbers_is_refused(model):
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        model.kernel_matrix(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="Input Z contains NaN"):
        model.kernel_matrix(np.full((1, 2), np.nan))


def test_an_error_relative_to_a_kernel_of_zero_is_refused():
    features = bo.SphericalFeatures("hellinger", random_state=0).fit(np.eye(3))
    rows = np.eye(3)  # no two of them have anything in common
    assert np.isfinite(features.approximation_error(rows))
    with pytest.raises(
        InputError, match="Expected a kernel that is not zero between all rows"
    ):
        features.approximation_error(rows, relative=True)


@pytest.mark.parametrize(
    "name",
    ["n_components", "n_mixtures", "n_frequencies", "n_init", "max_iter", "noise_variance"],
)
@pytest.mark.parametrize("truth", [True, np.True_])
def test_true_is_no_number(name, truth):
    with pytest.raises(
        ValueError, match=rf"The '{name}' parameter of NGMVLVM must be .* Got .*True"
    ):
        bo.NGMVLVM(**{**SMALL, name: truth}).fit(X)


def test_fits_may_be_asked_to_talk():
    talking, silent = (bo.NGMVLVM(**SMALL, verbose=verbose).fit(X) for verbose in (True, 0))
    np.testing.assert_array_equal(talking.embedding_, silent.embedding_)


@pytest.mark.parametrize(
    "word", ["nb", "negbin", "NegBinomial", "negative-binomial", "negatve_binomial"]
)
def test_a_likelihood_by_another_name_is_known(word):
    with pytest.raises(InputError, match=rf"got '{word}'\. Write 'negative_binomial'\."):
        bo.NGMVLVM(likelihood=word).fit(X)
    with pytest.raises(InputError, match=rf"for view 'x', got '{word}'\. Write 'neg"):
        bo.NGMVLVM(**SMALL, likelihood={"x": word}).fit(X)


def test_no_likelihood_is_guessed_from_nothing():
    with pytest.raises(
        InputError, match=r"got 'xyzq'\. Choose from auto, bernoulli, binomial"
    ):
        bo.NGMVLVM(likelihood="xyzq").fit(X)


SIBLINGS = {
    bo.RandomFeatureLVM: {"kernel", "inference"},
    bo.RFLVM: {
        "n_chains", "n_warmup", "n_draws", "thin", "latents", "frequency_kernel", "n_jobs",
    },
}  # fmt: skip


@pytest.mark.parametrize("cls", SIBLINGS)
def test_siblings_take_the_parameters_of_all_with_their_defaults(cls):
    shared, taken = (inspect.signature(kind).parameters for kind in (bo.NGMVLVM, cls))
    lacking = {"noise_variance"} if cls is bo.RFLVM else set()
    assert set(taken) == set(shared) - lacking | SIBLINGS[cls]
    assert all(taken[name] == shared[name] for name in set(taken) & set(shared))
    model = cls(3, n_init=2)
    assert (model.n_components, model.n_init, model.get_params()["tol"]) == (3, 2, "auto")
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("cls", "given", "text"),
    [
        (bo.RandomFeatureLVM, {"kernels": "rbf"}, "unexpected keyword argument 'kernels'"),
        (bo.RFLVM, {"noise_variance": 1.0}, "unexpected keyword argument 'noise_variance'"),
    ],
)
def test_parameters_that_a_sibling_does_not_take_are_refused(cls, given, text):
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\.__init__\(\) got an {text}$"):
        cls(**given)
