"""Pictures of tables: columns in units of their own, categories, counts and long names."""

import warnings

import numpy as np
import pytest
import scipy.sparse

import bochner as bo
from bochner import plots
from bochner.errors import InputError
from bochner.summary import describe_model

pytest.importorskip("matplotlib")
pandas = pytest.importorskip("pandas")

QUICK = {"n_frequencies": 8, "init": "pca", "max_iter": 15, "random_state": 0}


def fit(X, n_components=2, covariates=None, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(n_components, **QUICK, **settings)
        return model.fit(X, covariates=covariates)


@pytest.fixture(scope="module")
def table():
    source = np.random.default_rng(0)
    z = source.normal(size=40)
    return pandas.DataFrame(
        {
            "metres": 1.7 + 0.1 * z,
            "grams": 7e4 + 1e4 * source.normal(size=40),
            "euros": 50.0 + 20.0 * np.sin(z),
            "kind": pandas.Categorical(np.array(["x", "y", "z"])[np.digitize(z, [-0.5, 0.5])]),
            "member": z > 0,
        }
    )


@pytest.fixture(scope="module")
def mixed(table):
    return fit(table, likelihood="auto")


def title(ax):
    return ax.get_title(loc="left")


def test_reconstructions_of_columns_in_several_units_have_the_mean_of_their_r2(mixed, table):
    ax = plots.reconstructions(mixed, table, "numbers")
    columns = mixed.views_["numbers"]
    data = table.iloc[:, columns].to_numpy(dtype=float)
    decoded = mixed.inverse_transform(mixed.transform(table))[:, columns]
    r2 = 1 - ((data - decoded) ** 2).mean(axis=0) / data.var(axis=0)
    assert title(ax) == f"View 'numbers', 120 entries\nmean R² of columns = {r2.mean():.3f}"
    points = ax.collections[0].get_offsets()
    np.testing.assert_allclose(
        points[:, 0], ((data - data.mean(axis=0)) / data.std(axis=0)).ravel(), rtol=1e-4
    )
    assert ax.get_xlabel() == "observed, in standard deviations of the column"


def test_r2_is_about_the_means_of_the_columns(model):
    X = np.random.default_rng(1).normal(size=(9, 7)) + np.arange(7) * 100.0
    X[:, 0] = 3.0
    X[2, 1] = np.nan
    decoded = model.inverse_transform(model.transform(X))[:, :3]
    left, total = (
        np.nansum((X[:, :3] - other) ** 2) for other in (decoded, np.nanmean(X[:, :3], 0))
    )
    left -= ((X[:, 0] - decoded[:, 0]) ** 2).sum()
    assert title(plots.reconstructions(model, X, "left")).endswith(
        f"R² = {1 - left / total:.3f}"
    )
    assert "R²" not in title(plots.reconstructions(model, X[:1], "left"))


def test_reconstructions_of_categories_count_the_labels_that_are_right(mixed, table):
    j = mixed.views_["categories"][0]
    decoded = mixed.inverse_transform(mixed.transform(table))[:, j]
    share = np.mean(decoded == table["kind"].cat.codes)
    ax = plots.reconstructions(mixed, table, "categories")
    assert title(ax).endswith(f"{100 * share:.1f} % of labels right")


def test_reconstructions_take_covariates():
    X = np.random.default_rng(0).normal(size=(20, 4))
    batch = {"batch": np.arange(20) % 2}
    model = fit(X, covariates=batch)
    decoded = model.inverse_transform(model.transform(X, covariates=batch), covariates=batch)
    points = plots.reconstructions(model, X, covariates=batch).collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 1], decoded.ravel(), rtol=1e-5)
    some = {"batch": pandas.Series(batch["batch"])}
    picture = plots.reconstructions(model, X, shape=(2, 2), n=20, covariates=some).images[0]
    np.testing.assert_allclose(
        picture.get_array()[3:5, :2].ravel(), decoded[0], rtol=1e-4, atol=1e-5
    )


@pytest.fixture(scope="module")
def counted():
    source = np.random.default_rng(0)
    size = source.uniform(0.2, 5.0, 60)
    rate = size[:, None] * np.exp(np.sin(source.normal(size=(60, 2)) @ np.ones((2, 4))))
    X = source.poisson(5.0 * rate).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(2, **QUICK, likelihood="poisson").fit(X, size_factors=size)
    return model, X, size


def test_reconstructions_are_of_rows_with_their_size_factors(counted):
    model, X, size = counted
    points = plots.reconstructions(model, X, size_factors=size).collections[0].get_offsets()
    # rows of typical size, times their sizes
    typical = model.inverse_transform(model.transform(X, size_factors=size))
    relative = size / np.exp(np.log(size).mean())
    np.testing.assert_allclose(points[:, 1], (typical * relative[:, None]).ravel(), rtol=1e-5)
    picture = plots.reconstructions(model, X, shape=(2, 2), n=60, size_factors=size).images[0]
    drawn = np.ma.filled(picture.get_array(), np.nan)[3:5].reshape(2, 60, 3)[..., :2]
    np.testing.assert_allclose(drawn.transpose(1, 0, 2).reshape(60, 4).ravel(), points[:, 1])


@pytest.mark.parametrize("shape", [None, (2, 2)])
def test_reconstructions_take_sparse_rows_and_rows_on_disk(counted, shape, tmp_path):
    model, X, size = counted
    np.save(tmp_path / "x.npy", X)
    drawn = []
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    for rows in (X, scipy.sparse.csr_array(X), stored, bo.open_rows(tmp_path / "x.npy")):
        ax = plots.reconstructions(model, rows, shape=shape, size_factors=size)
        shown = ax.images[0].get_array() if shape else ax.collections[0].get_offsets()
        drawn.append(np.ma.filled(shown, np.nan))
    for other in drawn[1:]:
        np.testing.assert_array_equal(other, drawn[0])


def test_reconstructions_leave_out_columns_that_no_view_names():
    X = np.random.default_rng(0).normal(size=(20, 5))
    frame = pandas.DataFrame(X, columns=list("abcde"))
    model = fit(frame, views={"x": ["b", "c"], "y": ["d", "e"]})
    points = plots.reconstructions(model, frame, "x").collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 0], X[:, 1:3].ravel())


def test_images_of_a_grid_are_apart_and_their_pixels_square(model):
    ax = plots.decoded_grid(model, "right", shape=(1, 4), n=3)
    ax.figure.draw_without_rendering()
    picture = ax.images[0].get_array()
    assert picture.shape == (3 * 2 - 1, 3 * 5 - 1)
    assert np.ma.getmaskarray(picture)[1::2].all()
    assert np.ma.getmaskarray(picture)[:, 4::5].all()
    assert np.ma.getmaskarray(picture).sum() == 5 * 14 - 3 * 12
    box = ax.get_window_extent()
    assert box.width / 14 == pytest.approx(box.height / 5, rel=1e-3)


def test_the_column_of_a_grid_varies_most_for_its_scale():
    source = np.random.default_rng(0)
    z = source.normal(size=(40, 2))
    units = [1.0, 0.1, 2.0, 0.2, 1e4]
    X = np.column_stack([z, z, source.normal(size=40)]) * units
    model = fit(pandas.DataFrame(X, columns=list("abcde")), likelihood="auto")
    ranges = [
        np.var(plots.decoded_grid(model, column=j, n=8).images[0].get_array())
        for j in range(5)
    ]
    most = "abcde"[np.argmax(ranges / model._scaling.scale**2)]
    assert np.argmax(ranges) == 4
    assert title(plots.decoded_grid(model, n=8)).startswith(f"{most} of")
    assert most != "e"


def test_a_grid_of_categories_has_their_names_and_nothing_between_them(mixed):
    ax = plots.decoded_grid(mixed, "categories", n=4)
    bar = ax.figure.axes[1]
    assert [text.get_text() for text in bar.get_yticklabels()] == ["x", "y", "z"]
    assert ax.images[0].get_interpolation() == "nearest"
    assert ax.images[0].get_clim() == (0, 2)
    assert "probability of another label" in title(ax)
    bar = plots.decoded_grid(mixed, "binary", n=4).figure.axes[1]
    assert bar.get_ylabel() == "member: probability of 'True'"


def test_a_grid_needs_two_dimensions():
    X = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(InputError, match="a model with two latent dimensions, got one of 1"):
        plots.decoded_grid(fit(X, 1))


@pytest.mark.parametrize("length", [9, 77])
def test_loadings_hold_long_names_and_their_title(length):
    X = np.random.default_rng(0).normal(size=(15, 4))
    names = [f"{'column':_<{length - 1}}{j}" for j in range(4)]
    model = fit(pandas.DataFrame(X, columns=names))
    ax = plots.loadings(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax.figure.draw_without_rendering()
    whole = ax.figure.bbox
    drawn = [ax._left_title, *ax.get_yticklabels()]
    extents = [text.get_window_extent() for text in drawn]
    assert min(extent.x0 for extent in extents) >= 0
    assert max(extent.x1 for extent in extents) <= whole.x1
    assert ax.get_window_extent().width > 100
    shown = [text.get_text() for text in ax.get_yticklabels()]
    assert len(set(shown)) == 4
    assert max(len(name) for name in shown) <= 40


def test_a_kernel_is_called_what_it_is_the_covariance_of(mixed, model):
    source = np.random.default_rng(0)
    counts = fit(source.poisson(3.0, size=(20, 4)), likelihood="negative_binomial")
    binary = fit(source.integers(0, 2, size=(20, 4)), likelihood="bernoulli")

    def label(model, view=None):
        return plots.learned_kernel(model, view).figure.axes[1].get_ylabel()

    assert label(model, "left") == "covariance (data units²)"
    assert label(mixed, "numbers") == "covariance of standardised columns"
    assert label(mixed, "categories") == "covariance of log odds"
    assert label(counts) == "covariance of log means"
    assert label(binary) == "covariance of log odds"
    K = counts.kernel_matrix(counts.embedding_)
    bar = plots.kernel_recovery(counts, K)[0].figure.axes[-1]
    assert bar.get_ylabel() == "covariance of log means"


def test_noise_of_columns_in_several_units_is_summarised_as_a_share(mixed, model):
    numbers = describe_model(mixed)["views"]["numbers"]
    assert "noise_variance" not in numbers
    data = (
        mixed.noise_variance_["numbers"] / mixed._scaling.scale[mixed.views_["numbers"]] ** 2
    )
    assert numbers["noise_share"] == pytest.approx(data.mean())
    left = describe_model(model)["views"]["left"]
    assert left["noise_variance"] == pytest.approx(model.noise_variance_["left"])
