"""Pictures: what is drawn where, without pyplot's global state."""

import copy
import sys
import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import bochner as bo
from bochner import plots
from bochner.errors import InputError
from bochner.plots.figures import COLOURS

pytest.importorskip("matplotlib")
Figure = pytest.importorskip("matplotlib.figure").Figure


def test_every_plot_writes_a_png_with_title_and_labels(model, tmp_path):
    drawn = {
        "latent": plots.latent_map(model),
        "bound": plots.bound_trace(model),
        "kernel": plots.learned_kernel(model, "right"),
        "relevance": plots.relevance(model),
        "loadings": plots.loadings(model),
    }
    for name, ax in drawn.items():
        assert ax.get_title(loc="left")
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert plots.save(ax, tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert (
        "matplotlib.pyplot" not in sys.modules
        or not sys.modules["matplotlib.pyplot"].get_fignums()
    )


def test_a_notebook_shows_the_figure_of_axes(model):
    assert plots.relevance(model)._repr_png_()[:4] == b"\x89PNG"


def test_a_notebook_shows_and_save_writes_the_figure_of_several_axes(model, tmp_path):
    report = bo.calibration(
        model, model.sample(40, random_state=0), hide="view", n_draws=40, random_state=0
    )
    K = model.kernel_matrix(model.embedding_, view="left")
    for axs in (
        plots.axes(6, 3, 2),
        plots.calibration(report),
        plots.calibration(report, Figure().subplots(1, 2)),
        plots.calibration(report, Figure().subfigures(1, 2)[0].subplots(1, 2)),
        plots.kernel_recovery(model, K, "left"),
        plots.kernel_recovery(model, K, "left", axs=list(plots.axes(9, 3, 3))),
    ):
        assert isinstance(axs, list)
        assert axs._repr_png_()[:4] == b"\x89PNG"
        assert plots.save(axs, tmp_path / "several.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ([], "an object of type list"),
        ("x.png", "an object of type str"),
        ([*plots.axes(2, 2), *plots.axes(2, 2)], "Axes of 2 figures"),
    ],
)
def test_what_has_no_figure_is_not_saved(given, got, tmp_path):
    with pytest.raises(InputError, match=f"got {got}. Pass what a function of bochner.plots"):
        plots.save(given, tmp_path / "none.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("draw", [plots.relevance, plots.bound_trace, plots.latent_map])
def test_titles_and_legends_stay_within_small_axes(model, draw):
    figure = Figure(figsize=(6, 2.5))
    left, right = figure.subplots(1, 2)
    options = {"labels": ["a", "b"] * 15} if draw is plots.latent_map else {}
    draw(model, ax=left, **options)
    figure.draw_without_rendering()
    neighbour = right.get_window_extent().x0
    titles = [text for text in left.get_children() if getattr(text, "get_text", str)()]
    assert titles
    for part in (*titles, left.get_legend()):
        assert part.get_window_extent().x1 < neighbour
    assert left.get_legend().get_window_extent().x1 <= left.get_window_extent().x1


def test_legends_stand_beside_axes_where_the_layout_makes_room(model):
    ax = plots.relevance(model)
    ax.figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().x0 > ax.get_window_extent().x1


def test_title_colours_and_sizes_are_the_callers(model):
    numbers = np.linspace(0, 1, len(model.embedding_))
    ax = plots.latent_map(model, numbers, s=7.0, cmap="magma", title="Rows")
    points = ax.collections[-1]
    assert points.get_cmap().name == "magma"
    assert points.get_sizes().tolist() == [7.0]
    drawn = [
        ax,
        plots.bound_trace(model, title="Rows"),
        plots.relevance(model, title="Rows"),
        plots.starts(model, title="Rows"),
        plots.learned_kernel(model, "left", cmap="magma", title="Rows"),
        plots.decoded_grid(model, "left", n=3, cmap="magma", title="Rows"),
        plots.reconstructions(model, model.sample(5, random_state=0), "left", title="Rows"),
    ]
    assert [one.get_title(loc="left") for one in drawn] == ["Rows"] * len(drawn)
    assert {one.images[0].get_cmap().name for one in drawn[4:6]} == {"magma"}


def test_loadings_name_the_leading_columns_of_each_dimension(model):
    shares = model.loadings()
    ax = plots.loadings(model, n=2, cmap="Greens", title="Top columns")
    first = np.argsort(-shares[:, 0])[:2].astype(str).tolist()
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == first
    assert ax.images[0].get_cmap().name == "Greens"
    assert ax.get_title(loc="left") == "Top columns"
    with pytest.raises(InputError, match="n of at least 1"):
        plots.loadings(model, n=0)


def test_shares_beyond_the_colours_of_loadings_are_seen_to_be(model, monkeypatch):
    assert plots.loadings(model).images[0].colorbar.extend == "neither"
    monkeypatch.setattr(model, "loadings", lambda: np.full((model.n_features_in_, 2), 1.3))
    ax = plots.loadings(model)
    assert ax.images[0].colorbar.extend == "max"
    assert ax.get_title(loc="left") == "Column variance lost without a dimension"


def test_calibration_shows_what_intervals_hold_and_the_histogram(model, tmp_path):
    report = bo.calibration(
        model, model.sample(40, random_state=0), hide="view", n_draws=40, random_state=0
    )
    left, right = plots.calibration(report)
    held = dict(
        zip(
            ["left", "right"],
            [line.get_ydata() for line in left.lines if len(line.get_xdata()) == 11],
            strict=True,
        )
    )
    for name, view in report.views.items():
        assert held[name][[0, -1]] == pytest.approx([0.0, 1.0])
        # levels of the report lie on the line
        assert held[name][5] == pytest.approx(view.coverage[0.5])
        assert held[name][8] == pytest.approx(view.coverage[0.8])
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["left", "right"]
    assert "Where the truth lies" in right.get_title(loc="left")
    assert plots.save(left, tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InputError, match=r"Expected two Axes, got 1. Leave axs out"):
        plots.calibration(report, [left])


def test_kernel_recovery_shows_the_two_matrices_and_their_difference(model, tmp_path):
    learned = model.kernel_matrix(model.embedding_, view="left").astype(float)
    true = learned + 0.25 * learned.max()
    order = np.arange(30)[::-1]
    axs = plots.kernel_recovery(model, true, "left", order)
    first, second, third = (np.asarray(ax.images[0].get_array()) for ax in axs)
    np.testing.assert_allclose(first, learned[::-1, ::-1])
    np.testing.assert_allclose(second, true[::-1, ::-1])
    np.testing.assert_allclose(third, first - second)
    error = np.linalg.norm(learned - true) / np.linalg.norm(true)
    assert (
        axs[2].get_title(loc="left")
        == f"Difference: error {error:.2f}, without constants 0.00"
    )
    assert len({ax.images[0].get_clim() for ax in axs}) == 1
    assert plots.save(axs[0], tmp_path / "k.png").read_bytes()[:4] == b"\x89PNG"
    leading = np.linalg.eigh(true)[1][:, -1].argsort()
    shown = np.asarray(plots.kernel_recovery(model, true, "left")[1].images[0].get_array())
    np.testing.assert_allclose(shown, true[np.ix_(leading, leading)])


def test_kernel_recovery_refuses_what_is_no_kernel_of_the_rows(model):
    with pytest.raises(
        InputError, match=r"kernel matrix of the 30 training rows, got shape \(3, 3\)"
    ):
        plots.kernel_recovery(model, np.eye(3), "left")
    with pytest.raises(InputError, match="got one that is not symmetric"):
        plots.kernel_recovery(model, np.triu(np.ones((30, 30))), "left")
    with pytest.raises(InputError, match=r"order of shape \(30,\), got \(2,\)"):
        plots.kernel_recovery(model, np.eye(30), "left", [1, 2])
    with pytest.raises(InputError, match=r"three Axes, got 2. Leave axs out, or pass a list"):
        plots.kernel_recovery(model, np.eye(30), "left", axs=plots.axes(6, 3, 2))


def test_the_spectrum_shows_every_component_twice(model, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = np.random.default_rng(0).normal(size=(20, 4))
        fits = [
            bo.SRFLVM(d, n_mixtures=3, n_frequencies=6, init="pca", max_iter=5, random_state=0)
            for d in (1, 2, 3)
        ]
        one, two, three = (fit.fit(X) for fit in fits)
        many = bo.AdvisedRFLVM(2, n_mixtures=12, n_frequencies=4, init="pca", max_iter=2)
        many.fit(X)
    # names of a few, however many there are
    assert len(plots.spectrum(many).patches) == 24
    learned, ax = two.kernels_["x"], plots.spectrum(two)
    n = int((learned["proportions"] >= 0.005).sum())
    assert ax.get_title(loc="left") == f"Spectrum of view 'x': {n} components"
    assert len(ax.patches) == 2 * n
    np.testing.assert_allclose(ax.patches[0].get_center(), learned["means"][0])
    np.testing.assert_allclose(ax.patches[1].get_center(), -learned["means"][0])
    np.testing.assert_allclose(ax.patches[0].get_width(), 2 * learned["scales"][0, 0])
    assert plots.save(ax, tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"
    assert (
        plots.spectrum(three, dims=(2, 0))
        .get_xlabel()
        .startswith("frequency along latent dimension 2")
    )
    w, density = plots.spectrum(one).lines[-1].get_data()
    assert np.trapezoid(density, w) == pytest.approx(1.0, abs=1e-3)
    for dims in ((0, 2), (1, 1)):
        with pytest.raises(InputError, match="two dimensions from 0 to 1, got dims="):
            plots.spectrum(two, dims=dims)
    ax.figure.draw_without_rendering()
    right = learned["means"][:n] + learned["scales"][:n] * (1.0, 0.0)
    np.testing.assert_allclose(sorted(text.xy[0] for text in ax.texts), np.sort(right[:, 0]))
    for text in ax.texts:
        assert text.get_window_extent().x0 >= ax.transData.transform(text.xy)[0]
    with pytest.raises(
        InputError, match=r"a kernel with mixture components, got the kernel of view 'x' with"
    ):
        plots.spectrum(
            bo.RandomFeatureLVM(kernel="rbf", init="pca", max_iter=5, random_state=0).fit(X)
        )
    with pytest.raises(
        InputError,
        match=r"a kernel with mixture components, got the kernel of view 'left' with",
    ):
        plots.spectrum(model, "left")  # pairs of frequencies


def test_plots_of_reports_say_what_they_are_given_instead(model):
    with pytest.raises(
        InputError, match=r"a CalibrationReport, got a NGMVLVM. Call bochner.calibration"
    ):
        plots.calibration(model)
    with pytest.raises(
        InputError,
        match=r"a ComponentSelection, got a NGMVLVM. Call bochner.select_n_components",
    ):
        plots.n_components(model)


def test_a_given_axes_is_drawn_into(model):
    left, right = plots.axes(6, 3, 2)
    assert plots.latent_map(model, ax=left) is left
    assert plots.learned_kernel(model, "left", ax=right) is right


def test_an_ellipse_of_two_far_places_does_not_make_the_map_small(model, monkeypatch):
    std = np.array(model.embedding_std_)
    std[3] = 40.0
    monkeypatch.setattr(type(model), "embedding_std_", property(lambda _: std))
    ax = plots.latent_map(model, n_ellipses=len(std))
    low, high = ax.get_ylim()
    x = model.embedding_[:, 1]
    assert high - low < np.ptp(x) + 3.0 * x.std()


def test_the_ellipses_are_one_deviation(model):
    collections = plots.latent_map(model, n_ellipses=30).collections
    ellipses = next(c for c in collections if type(c).__name__ == "EllipseCollection")
    np.testing.assert_allclose(
        ellipses.get_widths(), 2 * model.embedding_std_[:, 0], rtol=1e-6
    )
    np.testing.assert_allclose(ellipses.get_offsets(), model.embedding_, rtol=1e-6)


def test_classes_get_a_legend_and_numbers_a_colour_bar(model):
    classes = plots.latent_map(model, labels=["a", "b", "c"] * 10)
    assert [text.get_text() for text in classes.get_legend().get_texts()] == ["a", "b", "c"]
    numbers = plots.latent_map(model, labels=np.linspace(0, 1, 30))
    assert numbers.get_legend() is None
    assert len(numbers.figure.axes) == 2


def test_labels_may_be_missing_and_of_any_kind(model):
    ax = plots.latent_map(model, labels=[None, "a", np.nan] * 10)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "no label"]
    plots.latent_map(model, labels=[None, 1.5, 2] * 10)  # colours
    for odd in ([1, "a"], [(1,), {}], [1j, 2], [b"x", None], np.array(["2020"], "M8[D]")):
        labels = np.empty(30, dtype=object)
        labels[:] = [odd[i % len(odd)] for i in range(30)]
        plots.latent_map(model, labels=labels)


def test_images_with_unknown_pixels_are_drawn():
    true = np.arange(24.0).reshape(2, 12)
    true[0, 3] = np.nan
    ax = plots.completions(true, true, ~np.isnan(true), (4, 3), n=2)
    assert ax.images[0].get_clim() == (0.0, 23.0)


def test_ticks_of_small_bounds_differ(model, monkeypatch):
    start = {"init": "pca", "index": 0, "steps": 5, "elbo": -4946.5, "elbo_se": 0.1}
    monkeypatch.setattr(model, "starts_", [start | {"elbo_start": -4947.5}])
    for ax, axis in ((plots.starts(model), "x"), (small_bound(model), "y")):
        ax.figure.draw_without_rendering()
        ticks = [text.get_text() for text in getattr(ax, f"get_{axis}ticklabels")()]
        assert len(set(ticks)) == len(ticks)


def small_bound(model):
    small = copy.copy(model)
    small.elbo_history_ = np.linspace(1000.1, 1000.6, 20)
    small.elbo_ = 1000.6
    small.elbo_se_ = 0.05
    ax = plots.bound_trace(small)
    assert ax.get_legend().get_texts()[-1].get_text() == "final: 1,000.60 ± 0.05"
    return ax


def test_wrong_labels_and_dimensions_are_refused(model):
    with pytest.raises(InputError, match=r"labels of shape \(30,\)"):
        plots.latent_map(model, labels=[1, 2])
    for dims in ((0, 2), (0, 0)):
        with pytest.raises(InputError, match="two dimensions from 0 to 1"):
            plots.latent_map(model, dims=dims)
    with pytest.raises(InputError, match="view= one of"):
        plots.learned_kernel(model)


def test_one_latent_dimension_is_drawn_against_the_rows():
    X = np.random.default_rng(0).normal(size=(12, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(1, n_frequencies=5, n_init=1, max_iter=5, random_state=0).fit(X)
    assert plots.latent_map(model).get_xlabel() == "row"
    assert plots.learned_kernel(model).get_xlabel() == "latent dimension 0"


def test_the_shown_line_hides_what_was_not_observed():
    true = np.arange(24.0).reshape(2, 12)
    observed = np.tile([True] * 6 + [False] * 6, (2, 1))
    ax = plots.completions(true, true + 1, observed, (4, 3), n=2)
    picture, hidden = (
        np.ma.filled(image.get_array().astype(float), np.nan) for image in ax.images
    )
    assert picture.shape == (15, 7)
    np.testing.assert_array_equal(picture[:4, :3], true[0].reshape(4, 3))
    np.testing.assert_array_equal(picture[10:14, 4:], true[1].reshape(4, 3) + 1)
    assert np.isnan(picture[7:9, :3]).all()
    assert int(np.nansum(hidden)) == int((~observed).sum())
    with pytest.raises(ValueError, match="The 'n' parameter of completions must be an int"):
        plots.completions(true, true, observed, (4, 3), n=0)
    with pytest.raises(InputError, match=r"images, got none\. Pass at least one row"):
        plots.completions(true[:0], true[:0], observed[:0], (4, 3))
    with pytest.raises(
        InputError, match=r"shape of two whole numbers, got 12\. Write \(height"
    ):
        plots.completions(true, true, observed, 12)
    with pytest.raises(InputError, match=r"three arrays of shape \(rows, 9\)"):
        plots.completions(true, true, observed, (3, 3))


def test_without_matplotlib_the_error_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "bochner\[plot\]"'):
        plots.bound_trace(model)


def test_the_starts_are_in_order_and_the_kept_one_in_colour(model, monkeypatch):
    raced = [
        {
            "init": "pca",
            "index": 0,
            "steps": 5,
            "elbo": -9.0,
            "elbo_se": 0.1,
            "elbo_start": -12.0,
        },
        {
            "init": "isomap",
            "index": 0,
            "steps": 5,
            "elbo": -7.0,
            "elbo_se": 0.2,
            "elbo_start": -14.0,
        },
    ]
    monkeypatch.setattr(model, "starts_", raced)
    ax = plots.starts(model)
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "pca, 5 steps",
        "isomap, 5 steps",
    ]
    races = [
        line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 2
    ]
    assert [list(line.get_xdata()) for line in races] == [[-12.0, -9.0], [-14.0, -7.0]]
    assert [line.get_color() == COLOURS[0] for line in races] == [False, True]
    assert ax.get_title(loc="left")
    assert ax.get_xlabel() == "bound (nats)"


def test_starts_of_one_name_are_told_apart(model, monkeypatch):
    raced = [
        {"init": name, "settled": settled, "steps": 5, "elbo": elbo, "elbo_se": 0.1}
        | {"elbo_start": -12.0}
        for name, settled, elbo in (("tsne", False, -9), ("tsne", True, -8), ("pca", True, -7))
    ]
    monkeypatch.setattr(model, "starts_", raced)
    assert [text.get_text() for text in plots.starts(model).get_yticklabels()] == [
        "tsne, as embedded, 5 steps",
        "tsne, settled, 5 steps",
        "pca, 5 steps",
    ]


def test_a_start_that_does_not_lead_by_its_handicap_is_not_shown_as_the_winner(
    model, monkeypatch
):
    raced = [
        {"init": name, "settled": True, "steps": 5, "elbo": elbo, "elbo_se": 0.1}
        | {"elbo_start": -12.0, "handicap": handicap}
        for name, elbo, handicap in (("pca", -7, 2.0), ("tsne-2", -8, 0.0))
    ]
    monkeypatch.setattr(model, "starts_", raced)
    ax = plots.starts(model)
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "pca, 5 steps",
        "tsne-2, 5 steps",
    ]
    last = [line for line in ax.get_lines() if list(line.get_ydata()) == [1, 1]]
    assert [line.get_color() for line in last] == [COLOURS[0]]


def test_the_grid_holds_what_the_model_decodes_at_its_places(model, tmp_path):
    ax = plots.decoded_grid(model, "right", shape=(2, 2), n=3)
    picture, (left, right, bottom, top) = (
        np.asarray(ax.images[0].get_array()),
        ax.images[0].get_extent(),
    )
    assert picture.shape == (8, 8)
    middle = [[(left + right) / 2, bottom + (top - bottom) * 7 / 8]]  # of the upper line
    np.testing.assert_allclose(
        picture[:2, 3:5].ravel(), model.inverse_transform(middle)[0, 3:], rtol=1e-4, atol=1e-5
    )
    assert plots.save(ax, tmp_path / "g.png").read_bytes()[:4] == b"\x89PNG"
    ax = plots.decoded_grid(model, "left", column=1, n=3)
    colours, (left, right, bottom, top) = (
        np.asarray(ax.images[0].get_array()),
        ax.images[0].get_extent(),
    )
    corner = [[left + (right - left) / 24, bottom + (top - bottom) / 24]]
    assert colours[0, 0] == pytest.approx(
        model.inverse_transform(corner)[0, 1], rel=1e-3, abs=1e-4
    )
    assert "column 1" in ax.get_title(loc="left")
    most = np.argmax(
        [
            np.var(plots.decoded_grid(model, "left", column=j, n=3).images[0].get_array())
            for j in range(3)
        ]
    )
    assert f"column {most} " in plots.decoded_grid(model, "left", n=3).get_title(loc="left")


def test_a_grid_of_what_is_not_there_is_refused(model):
    with pytest.raises(InputError, match="two dimensions from 0 to 1, got dims="):
        plots.decoded_grid(model, "left", dims=(0, 0))
    with pytest.raises(
        InputError,
        match=r"a column of view 'left', which has 3, got 3\. Number it within the view",
    ):
        plots.decoded_grid(model, "left", column=3)
    with pytest.raises(InputError, match="got 'age'"):
        plots.decoded_grid(model, "left", column="age")
    with pytest.raises(
        InputError, match="a shape of 4 pixels for view 'right', got 3 x 3 = 9"
    ):
        plots.decoded_grid(model, "right", shape=(3, 3))


def test_reconstructions_show_rows_above_what_is_decoded(model, tmp_path):
    X = np.random.default_rng(1).normal(size=(9, 7)).astype(model.embedding_.dtype)
    X[4, 3] = np.nan
    decoded = model.inverse_transform(model.transform(X))
    ax = plots.reconstructions(model, X, "right", (2, 2), n=3)
    picture = np.ma.filled(ax.images[0].get_array().astype(float), np.nan)
    assert picture.shape == (6, 9)
    np.testing.assert_allclose(picture[:2, 3:5].ravel(), X[4, 3:], rtol=1e-6)
    np.testing.assert_allclose(picture[3:5, 3:5].ravel(), decoded[4, 3:], rtol=1e-4, atol=1e-5)
    assert np.isnan(picture[2]).all()
    assert plots.save(ax, tmp_path / "r.png").read_bytes()[:4] == b"\x89PNG"
    points = plots.reconstructions(model, X, "right").collections[0].get_offsets()
    observed = ~np.isnan(X[:, 3:])
    np.testing.assert_allclose(points[:, 0], X[:, 3:][observed])
    np.testing.assert_allclose(points[:, 1], decoded[:, 3:][observed], rtol=1e-5)


ARGUMENTS = {
    "reconstructions": [np.zeros((2, 7))],
    "kernel_recovery": [np.eye(2)],
}


def test_a_fit_that_was_interrupted_before_its_first_step_is_drawn(model, tmp_path):
    early = copy.copy(model)
    early.elbo_history_ = np.zeros(0)
    (line,) = [
        drawn for drawn in plots.bound_trace(early).lines if "final" in str(drawn.get_label())
    ]
    assert line.get_ydata()[0] == model.elbo_
    assert bo.report(early, path=tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    "name",
    [
        "bound_trace",
        "decoded_grid",
        "kernel_recovery",
        "latent_map",
        "learned_kernel",
        "loadings",
        "reconstructions",
        "relevance",
        "spectrum",
        "starts",
    ],
)
def test_a_model_that_was_not_fitted_is_named(name):
    with pytest.raises(NotFittedError, match="This NGMVLVM instance is not fitted yet"):
        getattr(plots, name)(bo.NGMVLVM(), *ARGUMENTS.get(name, ()))


def test_labels_that_are_missing_are_no_class(model):
    pandas = pytest.importorskip("pandas")
    n = len(model.embedding_)
    texts = np.array(["a", "b", None, np.nan, pandas.NA], dtype=object)[np.arange(n) % 5]
    for labels in (
        texts,
        pandas.Series(texts, dtype="string"),
        pandas.Series(texts).astype("category"),
    ):
        ax = plots.latent_map(model, labels)
        assert {text.get_text() for text in ax.texts} == {"a", "b"}


@pytest.mark.usefixtures("quick_choice")
def test_many_views_have_a_legend_that_covers_nothing_and_marks_of_their_own():
    rng = np.random.default_rng(0)
    X = np.tanh(rng.normal(size=(30, 1)) + 0.1 * rng.normal(size=(30, 24)))
    views = {f"view {i}": slice(2 * i, 2 * i + 2) for i in range(12)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"init": "pca", "n_frequencies": 4, "max_iter": 2, "random_state": 0}
        many = bo.NGMVLVM(1, views=views, **settings).fit(X)
        report = bo.calibration(many, X, n_draws=20, random_state=0)
    left, right = plots.calibration(report)
    assert left.get_legend() is None
    legend = right.get_legend()
    assert len(legend.get_texts()) == len(report.views)
    left.figure.canvas.draw()
    assert legend.get_window_extent().x0 >= right.get_window_extent().x1
    assert left.get_ylim()[1] < 1.1
    marks = {(handle.get_color(), handle.get_linestyle()) for handle in legend.legend_handles}
    assert len(marks) == len(report.views)
    bars = plots.relevance(many).containers
    shown = {(group[0].get_facecolor(), group[0].get_hatch()) for group in bars}
    assert len(shown) == 12


def test_a_bound_of_one_step_warns_of_no_limits(model):
    early = copy.copy(model)
    early.elbo_history_ = np.array([model.elbo_])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.bound_trace(early).figure.draw_without_rendering()


def test_a_backend_that_matplotlib_lacks_is_named(forks):
    """It is looked at when matplotlib is imported, and was called a fault of bochner."""
    code = """
import os
from bochner.errors import InputError
from bochner.plots import figures
os.environ["MPLBACKEND"] = "nope"
try:
    figures.axes(1.0, 1.0)
except InputError as error:
    print(error)
"""
    said = forks.run(code).stdout
    assert said.startswith("Expected a backend of matplotlib, got MPLBACKEND=nope. Unset ")
