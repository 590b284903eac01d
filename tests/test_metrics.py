import numpy as np
import pandas as pd
import pytest
from scipy.spatial import procrustes
from sklearn.datasets import load_iris

from bochner import metrics
from bochner.errors import InputError

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(60, 2))


def test_r2_is_blind_to_affine_maps_and_sees_noise():
    X = Z @ [[2.0, 1.0], [0.5, -3.0]] + [100, -7]
    assert metrics.aligned_r2(X, Z) == pytest.approx([1, 1])
    noise = RNG.normal(size=(5000, 1))
    signal = RNG.normal(size=(5000, 1))
    # of a squared correlation r^2: 2 r (1 - r^2) / sqrt(n)
    error = 2 * 0.8**0.5 * 0.2 / 5000**0.5
    r2 = metrics.aligned_r2(signal + 0.5 * noise, signal)[0]
    assert r2 == pytest.approx(1 / 1.25, abs=4 * error)
    assert metrics.aligned_r2(signal, noise)[0] == pytest.approx(0, abs=0.01)
    half = np.column_stack([Z[:, 0], RNG.normal(size=60)])
    assert metrics.mean_aligned_r2(half, Z) == pytest.approx(
        metrics.aligned_r2(half, Z).mean()
    )
    assert metrics.aligned_r2(half, Z)[0] == pytest.approx(1)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_knn_accuracy_names_the_row_without_a_label(missing):
    labels = pd.Series(["a", "b"] * 10, dtype=object)
    labels[3] = missing
    Z = np.arange(40.0).reshape(20, 2)
    with pytest.raises(
        InputError, match=r"a label for every row, got .* in row 3\. Leave out"
    ):
        metrics.knn_accuracy(Z, labels)


def test_knn_accuracy_takes_labels_of_any_kind():
    Z = np.arange(40.0).reshape(20, 2) // 20
    expected = metrics.knn_accuracy(Z, np.arange(20) // 10)
    for kinds in (["a", "b"], ["a", 1], [0.25, 0.5], [b"x", b"y"], [(1, 2), (3,)], [1j, 2]):
        labels = np.empty(20, dtype=object)
        labels[:] = [kinds[i // 10] for i in range(20)]
        assert metrics.knn_accuracy(Z, labels) == expected
    labels = np.empty(20, dtype=object)
    labels[:] = [{}] * 20
    with pytest.raises(InputError, match="labels, got an object of type dict in row 0"):
        metrics.knn_accuracy(Z, labels)


def test_knn_accuracy_follows_the_protocol():
    X, y = load_iris(return_X_y=True)
    assert 0.93 < metrics.knn_accuracy(X, y, 1) < 1
    assert metrics.knn_accuracy(y[:, None] + 0.0, y, 5) == 1
    assert metrics.knn_accuracy(X, y, 10) == metrics.knn_accuracy(X, y, 10)


def test_trustworthiness():
    assert metrics.trustworthiness(Z, Z * 2, 5) == 1
    assert metrics.trustworthiness(Z, RNG.permutation(Z), 5) < 0.7


def test_rmse_with_and_without_mask():
    true = np.array([[0.0, 1.0], [np.nan, 3.0]])
    mask = np.array([[True, True], [False, False]])
    assert metrics.rmse([[3.0, 4.0]], [[0.0, 0.0]]) == pytest.approx(np.sqrt(12.5))
    assert metrics.rmse(true, np.ones((2, 2)), mask) == pytest.approx(np.sqrt(0.5))


def test_coverage_and_pit_of_a_right_predictive():
    mean, std = RNG.normal(size=20000), RNG.uniform(0.5, 2, size=20000)
    true = mean + std * RNG.normal(size=20000)
    for level in (0.5, 0.9):
        error = np.sqrt(level * (1 - level) / 20000)
        assert metrics.coverage(true, mean, std, level) == pytest.approx(level, abs=5 * error)
    assert metrics.coverage(true, mean, 2 * std, 0.9) > 0.95
    deciles = np.histogram(metrics.pit(true, mean, std), bins=10, range=(0, 1))[0]
    assert np.abs(deciles - 2000).max() < 5 * np.sqrt(2000 * 0.9)
    assert metrics.coverage([1.0, 2.0], [1.0, 1.0], [0.0, 0.0]) == 0.5


def test_relative_error():
    assert metrics.relative_error([[3.0, 4.0]], [[0.0, 5.0]]) == pytest.approx(np.sqrt(10) / 5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: metrics.aligned_r2(Z[:, 0], Z),
            r"X_true with shape \(rows, columns\), got shape \(60,\)",
        ),
        (
            lambda: metrics.aligned_r2(Z, Z[:5]),
            "the same number of rows, got X_true: 60, Z: 5",
        ),
        (
            lambda: metrics.aligned_r2(np.ones((60, 1)), Z),
            "true latents that vary, got a constant dimension 0",
        ),
        (
            lambda: metrics.aligned_r2(Z, np.full((60, 2), np.nan)),
            r"finite values in Z, got nan at \(0, 0\)",
        ),
        (
            lambda: metrics.knn_accuracy(Z, [0, 1]),
            r"labels of shape \(60,\), one per row of Z, got \(2,\)",
        ),
        (
            lambda: metrics.knn_accuracy(Z, np.zeros(60), 49),
            "1 <= k <= 48, the rows of four folds, got k=49 for 60",
        ),
        (lambda: metrics.knn_accuracy(Z[:3], np.zeros(3)), "got k=1 for 3 rows"),
        (
            lambda: metrics.trustworthiness(Z, Z, 30),
            "1 <= k < half the rows, got k=30 for 60 rows",
        ),
        (
            lambda: metrics.rmse([1.0], [1.0, 2.0]),
            r"arrays of one shape, got true \(1,\), predicted \(2,\)",
        ),
        (
            lambda: metrics.rmse([1.0], [np.inf]),
            r"finite values in predicted, got inf at \(0,\)",
        ),
        (lambda: metrics.rmse([1.0], [1.0], [False]), "entries to compare, got none"),
        (
            lambda: metrics.rmse([1.0], [1.0], [1]),
            r"a boolean mask of shape \(1,\), got int64 of shape \(1,\)",
        ),
        (
            lambda: metrics.coverage([1.0], [1.0], [1.0], 90),
            "a level between 0 and 1, got 90. Write 0.9",
        ),
        (lambda: metrics.coverage([1.0], [1.0], [-1.0]), "deviations of at least 0, got -1.0"),
        (lambda: metrics.coverage([], [], []), "deviations of at least 0, got none"),
        (
            lambda: metrics.pit([1.0], [1.0], [0.0]),
            "positive standard deviations, got a standard deviation of 0",
        ),
        (lambda: metrics.relative_error([[1.0]], [[0.0]]), "a reference B that is not zero"),
    ],
)
def test_wrong_input(call, text):
    with pytest.raises(InputError, match=text):
        call()


def test_randomised_ranks_are_uniform_for_counts_and_say_when_draws_are_too_narrow():
    source = np.random.default_rng(0)
    rate = source.gamma(2.0, size=3000)
    true, draws = source.poisson(rate), source.poisson(rate, size=(99, 3000))
    ranks = metrics.randomised_pit(true, draws, random_state=1)
    counts = np.bincount((ranks * 10).astype(int), minlength=10)
    assert (
        (counts - 300) ** 2 / 300
    ).sum() < 27.9  # chi-squared with 9 degrees of freedom, one in a thousand
    np.testing.assert_array_equal(ranks, metrics.randomised_pit(true, draws, random_state=1))
    still = np.broadcast_to(np.round(rate), (99, 3000))
    assert (np.abs(metrics.randomised_pit(true, still, 1) - 0.5) > 0.49).mean() > 0.4
    assert 0.25 <= metrics.randomised_pit([0.0], [[-1.0], [1.0], [2.0]], 0)[0] <= 0.5


def test_randomised_ranks_of_draws_of_another_shape_are_refused():
    with pytest.raises(
        InputError,
        match=r"Expected draws of shape \(S, 3\), got \(3,\). Put the draws along the first",
    ):
        metrics.randomised_pit(np.zeros(3), np.zeros(3))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_embeddings_agree_up_to_shift_rotation_and_scale(dim):
    source = np.random.default_rng(dim)
    Z = source.normal(size=(50, dim))
    turn = np.linalg.qr(source.normal(size=(dim, dim)))[0]
    assert metrics.procrustes_agreement(Z, 3.0 * Z @ turn + 7.0) == pytest.approx(1.0)
    other = Z + 0.5 * source.normal(size=Z.shape)
    agreement = metrics.procrustes_agreement(Z, other)
    assert agreement == pytest.approx(metrics.procrustes_agreement(other, Z))
    # scipy's disparity is what is left of a standardised sum of squares
    assert agreement == pytest.approx(1.0 - procrustes(Z, other)[2])
    assert metrics.procrustes_agreement(Z, source.normal(size=(50, dim))) < 0.5
    with pytest.raises(
        InputError, match="Expected embeddings that vary, got one with all rows at one point"
    ):
        metrics.procrustes_agreement(Z, np.ones((50, 2)))


def _embeddings():
    source = np.random.default_rng(100)
    Z = source.normal(size=(30, 2))
    return Z, Z @ source.normal(size=(2, 2)) + 5.0


@pytest.mark.parametrize("constant", [0.1, 5.0, 1e6 + 0.1])
def test_constant_columns_are_known_whatever_their_mean_is_rounded_to(constant):
    Z, _ = _embeddings()
    with pytest.raises(InputError, match="vary, got a constant dimension 0"):
        metrics.aligned_r2(np.c_[np.full(30, constant), Z[:, 0]], Z)
    with pytest.raises(InputError, match="got one with all rows at one point"):
        metrics.procrustes_agreement(np.full((30, 2), constant), Z)


@pytest.mark.parametrize("unit", [1e-160, 1e-15, 1.0, 1e15, 1e160])
def test_measures_without_units_do_not_depend_on_them(unit):
    Z, A = _embeddings()
    np.testing.assert_allclose(metrics.aligned_r2(A, unit * Z), 1.0)
    np.testing.assert_allclose(metrics.aligned_r2(unit * A, Z), 1.0)
    assert metrics.procrustes_agreement(unit * Z, Z) == pytest.approx(1.0)
    assert metrics.procrustes_agreement(unit * A, unit * Z) == pytest.approx(
        metrics.procrustes_agreement(A, Z)
    )
    assert metrics.relative_error(unit * Z, 2.0 * unit * Z) == pytest.approx(0.5)
    assert metrics.rmse(unit * Z, 2.0 * unit * Z) == pytest.approx(
        unit * float(np.sqrt(np.mean(Z**2)))
    )


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_neighbours_do_not_depend_on_units(unit):
    X = RNG.normal(size=(60, 3))
    labels = np.arange(60) % 3
    assert metrics.trustworthiness(unit * X, unit * Z, 5) == metrics.trustworthiness(X, Z, 5)
    assert metrics.knn_accuracy(unit * Z, labels, 3) == metrics.knn_accuracy(Z, labels, 3)


def test_agreement_is_at_most_one():
    for seed in range(20):
        Z = np.random.default_rng(seed).normal(size=(30, 2))
        assert 1 - 1e-12 < metrics.procrustes_agreement(Z, 3 * Z[:, ::-1] + 5) <= 1
