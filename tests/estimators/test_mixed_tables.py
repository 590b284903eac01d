"""Mixed tables: categories beside numbers are completed by what their rows say."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import bochner as bo
from bochner.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_three_categories_along_one_latent_are_completed():
    right = []
    for seed in (100, 101, 102):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(80)
        site = np.where(x < -0.5, "north", np.where(x < 0.5, "east", "west"))
        people = pd.DataFrame(
            {"height": 170 + 8 * x + rng.standard_normal(80), "site": pd.Categorical(site)}
        )
        hidden = rng.random(80) < 0.25
        holes = people.assign(site=people["site"].mask(hidden))
        model = bo.NGMVLVM(
            1, likelihood="auto", n_frequencies=8, init="pca", max_iter=50, random_state=0
        )
        completed = model.fit(holes).impute(holes)
        right.append((completed["site"][hidden] == people["site"][hidden]).mean())
    assert np.mean(right) > 0.8, right


@pytest.mark.parametrize("columns", [["x", "bought", "weight"], ["x", "bought"]])
def test_holes_do_not_make_zeros_and_ones_numbers(columns):
    rng = np.random.default_rng(0)
    z = rng.normal(size=120)
    table = pd.DataFrame(
        {
            "x": z + 0.3 * rng.normal(size=120),
            "bought": (z > 0).astype(int),
            "weight": 1000 * z + 200 * rng.normal(size=120),
        }
    )[columns]
    holes = table.mask(rng.random(table.shape) < 0.2).dropna(how="all")
    assert holes["bought"].dtype == float
    for rows in (table, holes):
        model = bo.NGMVLVM(1, likelihood="auto", init="pca", max_iter=20, random_state=0)
        completed = model.fit(rows).impute(rows)
        assert model.likelihood_ == {"numbers": "gaussian", "binary": "bernoulli"}
        assert completed["bought"].dtype == rows["bought"].dtype
        assert set(completed["bought"]) == {0, 1}


def test_an_image_with_pixels_of_two_values_stays_one_view():
    X = pd.DataFrame(np.random.default_rng(0).integers(0, 17, (60, 6)).astype(float))
    X[5] = X[5] > 8
    X[5] = X[5].astype(float)
    model = bo.NGMVLVM(1, likelihood="auto", init="pca", max_iter=5, random_state=0).fit(X)
    assert list(model.likelihood_) == ["x"]


def test_an_image_of_fractions_with_a_pixel_of_two_values_stays_one_view():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 256, (60, 12)) / 255)
    X[5] = (X[5] > 0.5).astype(float)
    model = bo.NGMVLVM(1, likelihood="auto", init="pca", max_iter=5, random_state=0)
    assert list(model.fit(X).likelihood_) == ["x"]
    # of few columns one of zeros and ones says what was bought
    assert set(model.fit(X[[1, 2, 5]]).likelihood_) == {"numbers", "binary"}


NARROW = ["UInt8", "Int8", "UInt64", "uint8[pyarrow]", "int8[pyarrow]", "uint8", "bool"]


def _at_the_edge(kind):
    """Return a table whose second column reaches the least or the greatest value of its type."""
    rng = np.random.default_rng(100)
    x = rng.standard_normal(60)
    unsigned = kind.lower().startswith("u")
    numbers = np.clip(np.rint(3 * x), 0, None) if unsigned else np.rint(115 + 8 * x)
    values = pd.array(np.minimum(numbers, 127), dtype="Float64")
    table = pd.DataFrame({"h": x + 0.1 * rng.standard_normal(60), "n": values > 115})
    return table if kind == "bool" else table.assign(n=pd.Series(values).astype(kind))


@pytest.mark.parametrize("likelihood", ["auto", "gaussian"])
@pytest.mark.parametrize("kind", NARROW)
def test_predictions_stay_in_the_range_of_a_narrow_type(kind, likelihood):
    if "pyarrow" in kind:
        pytest.importorskip("pyarrow")
    table = _at_the_edge(kind)
    quick = {"n_frequencies": 4, "init": "pca", "max_iter": 15, "random_state": 0}
    model = bo.NGMVLVM(1, likelihood=likelihood, **quick).fit(table)
    if likelihood == "auto":
        assert model.sample(200, random_state=0).dtypes.equals(table.dtypes)
    if kind in ("uint8", "bool"):
        # numpy's have no holes
        return
    holes = table.assign(n=table["n"].mask(np.arange(60) % 4 == 0))
    draws = model.impute(holes, n_draws=20)
    drawn = pd.concat([draw["n"] for draw in draws])
    assert drawn.dtype == table["n"].dtype
    least, most = (0, None) if kind.lower().startswith("u") else (None, 127)
    # beyond the edge lies the edge
    assert drawn.min() == least or drawn.max() == most
    shown = holes["n"].notna()
    assert (draws[0]["n"][shown] == holes["n"][shown]).all()


def test_sparse_columns_and_those_of_decimals_keep_their_types(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(100)
    x = rng.standard_normal(60)
    cents = [Decimal(f"{value:.2f}") if abs(value) < 1.5 else None for value in x]
    few = np.where(rng.random(60) < 0.2, np.nan, np.where(rng.random(60) < 0.5, 0.0, x))
    table = pd.DataFrame(
        {
            "h": 170 + 8 * x,
            "few": pd.arrays.SparseArray(few, fill_value=0.0),
            "cents": pd.array(cents, dtype=pd.ArrowDtype(arrow.decimal128(4, 2))),
            "text": pd.array(np.where(x < 0, "a", "b"), dtype=pd.ArrowDtype(arrow.string())),
        }
    )
    quick = {"n_frequencies": 4, "init": "pca", "max_iter": 15, "random_state": 0}
    model = bo.NGMVLVM(1, likelihood="auto", **quick).fit(table)
    full = model.impute(table)
    assert full.dtypes.equals(table.dtypes)
    assert not full.isna().any().any()
    assert (full["cents"][table["cents"].notna()] == table["cents"].dropna()).all()
    model.save(tmp_path / "m.bochner")
    for known in (model, bo.load(tmp_path / "m.bochner")):
        assert known.sample(50, random_state=0).dtypes.equals(table.dtypes)


def test_types_of_numbers_are_kept_under_a_gaussian_likelihood():
    rng = np.random.default_rng(100)
    X = pd.DataFrame(rng.standard_normal((60, 5)), columns=list("abcde"))
    X = X.mask(rng.random(X.shape) < 0.1)
    types = {"a": "float32", "b": "float16", "d": "Float32", "e": object}
    quick = {"n_frequencies": 4, "init": "pca", "max_iter": 15, "random_state": 0}
    tables = [X.astype(types), X.astype(types)[["a", "c"]]]
    tables += [X.astype(kind) for kind in ("float16", "float32", "float64")]
    for table in tables:
        model = bo.NGMVLVM(1, **quick).fit(table)
        for full in (model.impute(table), model.impute(table, n_draws=1)[0]):
            assert full.dtypes.equals(table.dtypes)
            assert not full.isna().any().any()
            assert (full == table)[table.notna()].sum().sum() == table.notna().sum().sum()


@pytest.mark.parametrize("labels", [[1, 2, 3], [True, False]])
def test_categories_that_are_numbers_are_no_numbers(labels):
    rng = np.random.default_rng(100)
    X = pd.DataFrame(rng.standard_normal((60, 3)), columns=list("abc"))
    quick = {"n_frequencies": 4, "init": "pca", "max_iter": 15, "random_state": 0}
    table = X.assign(b=pd.Categorical(rng.choice(labels, 60)))
    text = (
        r"^Expected numbers, got categories in column 1 \('b'\)\. Fit the mixed table with "
        r"likelihood='auto', or convert the column to numbers by astype\(float\)\.$"
    )
    with pytest.raises(InputError, match=text):
        bo.NGMVLVM(1, **quick).fit(table)
    model = bo.NGMVLVM(1, **quick).fit(table.astype(float))
    with pytest.raises(InputError, match=text):
        model.impute(table)
    holes = table.assign(b=table["b"].mask(rng.random(60) < 0.2))
    full = bo.NGMVLVM(1, likelihood="auto", **quick).fit(holes).impute(holes)
    assert full.dtypes.equals(holes.dtypes)
    assert set(full["b"]) == set(labels)


def test_columns_with_numbers_for_names_are_put_in_order_by_what_the_message_says():
    rng = np.random.default_rng(100)
    x = rng.standard_normal(60)
    text = np.where(x < 0, "a", "b")
    quick = {"n_frequencies": 4, "init": "pca", "max_iter": 5, "random_state": 0}
    for names, typed in (([0, 1], r"range\(2\)"), ([3, 7], r"\[3, 7\]")):
        table = pd.DataFrame({names[0]: x, names[1]: text})
        model = bo.NGMVLVM(1, likelihood="auto", **quick).fit(table)
        order = rf"in another order\. Take those .* order: X = X\[{typed}\]\.$"
        with pytest.raises(InputError, match=order):
            model.transform(table[names[::-1]])
        with pytest.raises(InputError, match=rf"X = X\.reindex\(columns={typed}\), in a file"):
            model.transform(table[names[:1]])
    np.testing.assert_array_equal(table[names[::-1]][[3, 7]], table)
