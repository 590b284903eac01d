"""Sparse data: the same numbers as from the dense matrix, blocks cut without a dense whole,
messages.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import bochner as bo
from bochner.data.sparse import SparseMatrix, canonical, leading, mapped
from bochner.data.support import guess
from bochner.data.views import Scaling, Views
from bochner.errors import DataWarning, InputError
from bochner.fitting.svd_compression import rotate
from bochner.regression.observations import AllRows, CompleteBlock, EncodedBlock

COMMON = {
    "n_mixtures": 1,
    "n_frequencies": 8,
    "max_iter": 20,
    "init": "pca",
    "random_state": 0,
}
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    # what is the same with few draws is the same with many
    pytest.mark.usefixtures("few_draws"),
]
KINDS = ("gaussian", "bernoulli", "binomial", "negative_binomial", "poisson")


def _counts(n: int = 40, m: int = 7, seed: int = 0) -> np.ndarray:
    source = np.random.default_rng(seed)
    rate = np.exp(-1.0 + 0.8 * source.normal(size=(n, 2)) @ source.normal(size=(2, m)))
    return source.poisson(rate).astype(float)


def _data(kind: str, seed: int = 0) -> np.ndarray:
    return (
        (_counts(seed=seed) > 0).astype(float) if kind == "bernoulli" else _counts(seed=seed)
    )


def _matrix(X: np.ndarray, centre: np.ndarray | None = None) -> SparseMatrix:
    return SparseMatrix.of(sp.csr_array(X), centre, torch.float64)


@pytest.mark.parametrize("centre", [None, np.arange(7.0)])
def test_blocks_of_a_sparse_matrix_are_those_of_the_dense_one(centre):
    X = _counts()
    dense, sparse = torch.tensor(X - (0.0 if centre is None else centre)), _matrix(X, centre)
    assert sparse.shape == X.shape
    assert sparse.numel() == X.size
    rows, columns = torch.tensor([5, 0, 39, 5]), torch.tensor([6, 2])
    assert torch.equal(sparse[rows], dense[rows])
    assert torch.equal(sparse[3:9], dense[3:9])
    assert torch.equal(sparse.rows(rows)[1:3], dense[rows][1:3])
    assert torch.equal(sparse.index_select(1, columns), dense[:, columns])
    assert torch.equal(sparse.index_select(0, rows), dense[rows])
    assert torch.equal(sparse.double(), dense)
    assert sparse.square() == pytest.approx(float(dense.square().sum()))


@pytest.mark.parametrize("width", [1, 3, 40])
def test_few_columns_are_those_of_many(width):
    rng = np.random.default_rng(3)
    counts = rng.poisson(0.3, size=(50, 40)).astype(float)
    counts[:, 7] = 0.0
    centre = rng.normal(size=40)
    sparse = _matrix(counts, centre)
    columns = torch.from_numpy(rng.permutation(40)[:width])
    dense = torch.from_numpy(counts - centre)
    assert torch.equal(sparse.index_select(1, columns), dense[:, columns])
    assert torch.equal(sparse.rows(slice(5, 9)).index_select(1, columns), dense[5:9, columns])


def test_an_empty_sparse_matrix_is_all_centre():
    sparse = _matrix(np.zeros((3, 2)), np.array([1.0, 2.0]))
    assert torch.equal(sparse[:], torch.tensor([[-1.0, -2.0]] * 3).double())
    assert sparse.square() == 15.0


def test_a_block_is_taken_by_rows_whether_sparse_or_not():
    X, index = _counts(), torch.tensor([1, 4, 30])
    offset = torch.arange(40.0).double()
    dense, sparse = (EncodedBlock.of(Y, None, offset) for Y in (torch.tensor(X), _matrix(X)))
    dense, sparse = (block.take(index, AllRows()) for block in (dense, sparse))
    assert torch.equal(dense.Y, sparse.Y[:])
    assert torch.equal(sparse.offset, offset[index])
    assert CompleteBlock.of(_matrix(X)).square == pytest.approx(float(np.square(X).sum()))


@pytest.mark.parametrize("shape", [(40, 7), (12, 300)])
def test_rotation_of_sparse_columns_keeps_the_gram_of_the_rows(shape):
    X = _counts(*shape)
    centre = X.mean(0)
    data = ((CompleteBlock.of(_matrix(X, centre)),),)
    rotated, _ = rotate(data, 0.0, 0)
    result, wanted = rotated[0][0].Y[:], torch.tensor(X - centre)
    assert torch.allclose(result @ result.T, wanted @ wanted.T, atol=1e-8)
    assert rotated[0][0].square == pytest.approx(float(wanted.square().sum()))


def test_scaling_is_that_of_the_dense_matrix():
    X = np.hstack([_counts(), 1e200 * _counts(seed=1), np.zeros((40, 2))])
    columns = {"a": np.arange(7), "b": np.arange(7, 14), "c": np.arange(14, 16)}
    dense, sparse = Scaling.fit(X, columns), Scaling.fit(sp.csr_array(X), columns)
    np.testing.assert_allclose(sparse.centre, dense.centre, rtol=1e-12)
    np.testing.assert_allclose(sparse.scale, dense.scale, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_guesses_do_not_depend_on_how_zeros_are_stored(kind):
    for X in (
        _data(kind),
        -_data(kind),
        0.5 * _data(kind),
        np.minimum(_counts(), 1.0) * 9,
        np.zeros((3, 2)),
    ):
        assert guess(sp.csr_array(X))[0] == guess(X)[0]


def test_leading_components_are_the_same_whenever_they_are_asked_for():
    source = np.random.default_rng(0)
    twice = np.repeat(source.normal(size=(23, 2)), 2, axis=1)
    for values in (twice, np.outer(source.normal(size=30), np.ones(6)), _counts(60, 20)):
        X = sp.csr_array(values)
        first = leading(X, 0)
        assert all(np.array_equal(leading(X, 0), first) for _ in range(4))


def test_leading_components_are_those_of_the_centred_matrix():
    X = _counts(60, 20)
    result = leading(sp.csr_array(X), 0)
    wanted = np.linalg.svd(X - X.mean(0), compute_uv=False)[: result.shape[1]]
    np.testing.assert_allclose(np.sqrt((result**2).sum(0)), wanted, rtol=1e-6)
    np.testing.assert_array_equal(leading(sp.csr_array([[1.0, 2.0]]), 0), [[1.0, 2.0]])
    np.testing.assert_array_equal(
        leading(sp.csr_array(np.full((4, 5), 1e6)), 0), np.zeros((4, 1))
    )


def test_functions_that_keep_zeros_are_applied_row_by_row():
    X, sizes = _counts(2500, 3), np.random.default_rng(0).uniform(1, 2, 2500)
    result = mapped(sp.csr_array(X), lambda part, rows: np.log1p(part / sizes[rows, None]))
    np.testing.assert_array_equal(result.toarray(), np.log1p(X / sizes[:, None]))


def test_entries_that_are_stored_twice_are_added_and_the_callers_matrix_stays():
    X = sp.csr_array(([1.0, 2.0, 3.0], [1, 0, 1], [0, 3]), shape=(1, 2))
    assert canonical(X).toarray().tolist() == [[2.0, 4.0]]
    assert X.nnz == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("landmarks", [None, 20])
def test_a_sparse_fit_is_the_dense_one(kind, landmarks):
    X, Z = _data(kind), np.random.default_rng(1).normal(size=(40, 2))
    settings = {
        **COMMON,
        "init": Z,
        "max_iter": 8,
        "likelihood": kind,
        "landmarks": landmarks,
        "dtype": "float64",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = bo.NGMVLVM(**settings).fit(X)
        sparse = bo.NGMVLVM(**settings).fit(sp.csc_matrix(X))
    # the surrogates are rounded alike, their sums are not
    assert sparse.elbo_ == pytest.approx(dense.elbo_, abs=1e-6 * abs(dense.elbo_))
    np.testing.assert_allclose(sparse.embedding_, dense.embedding_, atol=1e-4)
    placed, score = sparse.transform(X), sparse.score(X)
    for rows in (sp.csr_array(X), sp.coo_matrix(X)):
        np.testing.assert_allclose(sparse.transform(rows), placed, atol=1e-9)
        assert sparse.score(rows) == pytest.approx(score)


@pytest.mark.usefixtures("quick_choice")
def test_columns_of_a_sparse_matrix_are_views_and_size_factors_are_totals():
    X = np.hstack([_counts(), (_counts(seed=3) > 0).astype(float), _counts(seed=4) - 1.0])
    views = {"rna": slice(0, 7), "open": slice(7, 14), "real": list(range(14, 21))}
    kinds = {"rna": bo.likelihoods.Poisson(size_factors="total"), "open": "auto"}
    settings = {
        **COMMON,
        "max_iter": 8,
        "views": views,
        "likelihood": kinds,
        "dtype": "float64",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense, sparse = (
            bo.NGMVLVM(**settings).fit(X),
            bo.NGMVLVM(**settings).fit(sp.csr_array(X)),
        )
    assert sparse.likelihood_ == {"rna": "poisson", "open": "bernoulli", "real": "gaussian"}
    assert sparse.elbo_ == pytest.approx(dense.elbo_, abs=1e-3 * abs(dense.elbo_))
    half = X[:3].copy()
    half[:, :7] = np.nan
    assert (sparse.impute(half)[:, :7] > 0).all()  # dense rows of a sparse fit may lack a view


def _message(act) -> str:
    with pytest.raises(InputError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (np.inf, "inf")])
def test_what_is_no_number_is_named_by_its_place(value, shown):
    X = sp.csr_array(_counts())
    X.data[3] = value
    row, column = (int(i[3]) for i in X.nonzero())
    want = (
        f"Expected finite numbers in a sparse X, got {shown} in view 'x', row {row}, column "
        f"{column}. "
        "Correct the value; where entries are missing, pass a dense X with NaN."
    )
    assert _message(lambda: bo.NGMVLVM(**COMMON, likelihood="poisson").fit(X)) == want


def test_impossible_counts_are_named_by_row_and_column():
    X = _counts()
    X[4, 2], X[6, 1] = 2.5, -1.0
    for kind in ("poisson", "negative_binomial"):
        want = (
            f"Expected counts (whole numbers of at least 0) in view 'x' (likelihood {kind!r}), got "
            "2.5 in row 4, "
            "column 2. Correct the value, or choose another likelihood."
        )
        assert (
            _message(
                lambda kind=kind: bo.NGMVLVM(**COMMON, likelihood=kind).fit(sp.csr_array(X))
            )
            == want
        )
    trials = bo.likelihoods.Binomial(n_trials=[9, 9, 9, 9, 9, 9, 1])
    counts = np.zeros((40, 7))
    counts[3, 6] = 2
    text = _message(lambda: bo.NGMVLVM(**COMMON, likelihood=trials).fit(sp.csr_array(counts)))
    assert "got 2 in row 3, column 6" in text


def test_categories_and_completions_need_dense_data():
    X = sp.csr_array(_counts())
    assert "dense X for view 'x' (likelihood 'categorical')" in _message(
        lambda: bo.NGMVLVM(**COMMON, likelihood="categorical").fit(X)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(**COMMON, likelihood="poisson").fit(X)
    assert _message(lambda: model.impute(X)).startswith(
        "Expected a dense X to complete, got a sparse one"
    )


@pytest.mark.parametrize("kind", ["poisson", "negative_binomial", "bernoulli"])
def test_separable_empty_and_enormous_columns_stay_finite(kind):
    X = np.zeros((30, 4))
    X[:15, 0] = 1.0
    if kind != "bernoulli":
        X[3:20, 2] = 1e6
    with pytest.warns(DataWarning, match="Constant columns are kept"):
        model = bo.NGMVLVM(**COMMON, likelihood=kind).fit(sp.csr_array(X))
    assert np.isfinite(model.elbo_)
    assert np.isfinite(model.embedding_).all()
    assert np.isfinite(model.inverse_transform(model.embedding_)).all()


def test_a_sparse_matrix_is_never_dense_as_a_whole(monkeypatch):
    X = sp.random_array((6000, 20), density=0.05, rng=np.random.default_rng(0), format="csr")
    X.data[:] = 1.0
    largest = 0

    def watched(self, *args, **kwargs):
        nonlocal largest
        largest = max(largest, self.shape[0] * self.shape[-1])
        return kept(self, *args, **kwargs)

    kept = sp.csr_array.toarray
    monkeypatch.setattr(sp.csr_array, "toarray", watched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {**COMMON, "max_iter": 3, "landmarks": 50, "likelihood": "poisson"}
        bo.NGMVLVM(**settings).fit(X)
    assert 0 < largest < X.shape[0] * X.shape[1]


def test_views_of_a_sparse_matrix_are_cut_sparse():
    X = _counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = Views.fit(sp.csr_array(X), {"a": [0, 2], "b": [1, 3, 4, 5, 6]})
    part, centre = data.scaled_sparse("a")
    assert sp.issparse(part)
    np.testing.assert_allclose(
        part.toarray() - centre, Views.fit(X, {"a": [0, 2], "b": [1, 3, 4, 5, 6]}).scaled("a")
    )


def test_what_hides_entries_or_shows_rows_takes_a_sparse_X_too(tmp_path):
    counts = np.random.default_rng(0).poisson(2.0, (40, 6)).astype(float)
    X, small = (
        sp.csr_array(counts),
        {"n_frequencies": 8, "init": "pca", "max_iter": 4, "random_state": 0},
    )
    factors = counts.sum(axis=1)
    model = bo.NGMVLVM(likelihood="poisson", **small).fit(X, size_factors=factors)
    assert np.isfinite(model.embedding_).all()
    plain = bo.NGMVLVM(**small).fit(X)
    result, dense = (
        str(bo.calibration(plain, rows, n_draws=10, random_state=0)) for rows in (X, counts)
    )
    assert result == dense
    assert bo.select_n_components(
        bo.NGMVLVM(**small), X, candidates=[1, 2], fraction=0.4, random_state=0
    ).best in (
        1,
        2,
    )
    assert bo.report(plain, X, path=tmp_path / "r.html").stat().st_size > 0


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize(
    ("part", "value"), [("indices", 10**9), ("indices", -7), ("indptr", 9999)]
)
def test_entries_outside_a_matrix_are_refused(kind, part, value):
    """Libraries write them beyond their results, and the process ended."""
    X = kind(np.eye(30))
    getattr(X, part)[5] = value
    calls = (
        bo.NGMVLVM().fit,
        bo.FourierFeatures(n_components=4).fit,
        bo.FourierFeatures(n_components=4).partial_fit,
        lambda X: bo.stack({"a": X}),
    )
    for call in calls:
        with pytest.raises(
            InputError, match=r"a sparse matrix of 30 × 30, got entries outside it"
        ):
            call(X)
