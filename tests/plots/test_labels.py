"""Labels of maps: what is a class, a number or a date, and how its name is drawn."""

import datetime

import numpy as np
import pytest

from bochner import plots
from bochner.errors import InputError
from bochner.page.labels import Labels
from bochner.plots.figures import quoted, shortened

pytest.importorskip("matplotlib")


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def cycle(*labels):
    out = np.empty(30, dtype=object)
    out[:] = [labels[i % len(labels)] for i in range(30)]
    return out


def save(ax, tmp_path):
    """What cannot be drawn fails here, not before."""
    assert plots.save(ax, tmp_path / "l.png").read_bytes()[:4] == b"\x89PNG"
    return ax


def test_names_with_dollar_signs_are_no_mathematics(model, tmp_path):
    names = ["$10-$20", "$5-$10", "$\\beta_{$"]
    ax = save(plots.latent_map(model, cycle(*names)), tmp_path)
    assert sorted(legend(ax)) == names
    assert sorted(text.get_text() for text in ax.texts) == names
    drawn = [*ax.get_legend().get_texts(), *ax.texts]
    assert not any(text.get_parse_math() for text in drawn)


def test_names_that_matplotlib_would_hide_are_in_the_legend(model):
    assert legend(plots.latent_map(model, cycle("_other", "a"))) == ["_other", "a"]


def test_whole_floats_are_classes_and_rows_without_one_are_drawn(model):
    ax = plots.latent_map(model, cycle(0.0, 1.0, np.nan, 10.0, 2.0).astype(float))
    assert legend(ax) == ["0", "1", "2", "10", "no label"]
    assert len(ax.figure.axes) == 1
    points = [c for c in ax.collections if type(c).__name__ == "PathCollection"]
    assert sum(len(c.get_offsets()) for c in points) == 30


@pytest.mark.parametrize("missing", [None, np.nan, ""])
def test_texts_may_be_missing(model, missing):
    assert legend(plots.latent_map(model, cycle("a", "b", missing))) == ["a", "b", "no label"]


def test_numbers_may_be_missing(model):
    ax = plots.latent_map(model, np.where(np.arange(30) % 3, np.linspace(0, 1, 30), np.nan))
    assert legend(ax) == ["no label"]
    grey, coloured = (len(c.get_offsets()) for c in ax.collections[-2:])
    assert (grey, coloured) == (10, 20)
    assert len(ax.figure.axes) == 2


@pytest.mark.parametrize("labels", [[None] * 30, np.full(30, np.nan)])
def test_labels_that_are_all_missing_have_no_colour_bar(model, labels):
    ax = plots.latent_map(model, labels)
    assert legend(ax) == ["no label"]
    assert len(ax.figure.axes) == 1


def test_texts_are_sorted_by_the_numbers_in_them(model):
    ax = plots.latent_map(model, [f"type {i % 12}" for i in range(30)])
    assert legend(ax) == [f"type {i}" for i in range(12)]


def test_more_classes_than_marks_are_counted(model):
    ax = plots.latent_map(model, [f"type {i}" for i in range(30)])
    assert len(legend(ax)) == 30
    first = ax.get_legend().get_window_extent()
    assert 0 < first.y0 < first.y1 < ax.figure.bbox.y1
    many = Labels("label", np.arange(60) % 58, [f"type {i}" for i in range(58)])
    ax = plots.axes(8.4, 5.6)[0]
    plots.labels.draw_labels(
        ax, np.random.default_rng(0).normal(size=(60, 2)), many, 9, "Blues"
    )
    # the two with two rows are among them
    assert legend(ax) == [*(f"type {i}" for i in range(50)), "and 8 more"]


def test_long_names_are_short_and_differ(model):
    start = "a very long name of a class that is written on and on, number "
    ax = plots.latent_map(model, [f"{start}{i % 3}" for i in range(30)])
    assert max(len(text) for text in legend(ax)) <= 24
    assert max(len(text.get_text()) for text in ax.texts) <= 14
    assert shortened(["one two three", "four\nfive"], 9) == ["one …hree", "four five"]
    assert shortened(["abcdef 1 uvwxyz", "abcdef 2 uvwxyz"], 9) == ["…1 uvwxyz", "…2 uvwxyz"]
    # escaped once
    assert quoted("\u200f\\a") == r"'\u200f\a'"


def test_dates_have_a_colour_bar_of_dates(model):
    pandas = pytest.importorskip("pandas")
    days = pandas.Series(pandas.date_range("2020-01-01", periods=30, freq="31D"))
    zoned = days.dt.tz_localize("Europe/Berlin")
    for labels in (
        days,
        days.astype(object),
        zoned,
        [d.date() for d in days],
        days.to_numpy(),
    ):
        ax = plots.latent_map(model, labels)
        low, high = ax.collections[-1].get_clim()
        start = (datetime.date(2020, 1, 1) - datetime.date(1970, 1, 1)).days
        assert (low, high) == pytest.approx((start, start + 29 * 31), abs=0.1)
        ax.figure.draw_without_rendering()
        ticks = [text.get_text() for text in ax.figure.axes[1].get_yticklabels()]
        assert "2021" in ticks
    ax = plots.latent_map(model, days.where(days.index > 0))
    assert legend(ax) == ["no label"]
    bar = plots.latent_map(model, days - days[0]).figure.axes[1]
    assert bar.get_ylabel() == "label (days)"


def test_booleans_are_called_false_and_true(model):
    assert legend(plots.latent_map(model, np.arange(30) % 2 == 0)) == ["False", "True"]
    assert legend(plots.latent_map(model, cycle(True, False))) == ["False", "True"]


def test_ordered_categories_keep_their_order(model):
    pandas = pytest.importorskip("pandas")
    sizes = ["small", "medium", "large", "huge"]
    values = cycle("small", "large", "medium", None, None, "large")
    kept = pandas.Categorical(values, categories=sizes, ordered=True)
    for labels in (kept, pandas.Series(kept)):
        ax = plots.latent_map(model, labels)
        assert legend(ax) == ["small", "medium", "large", "no label"]
        small = next(c for c in ax.collections if len(c.get_offsets()) == 5)
        np.testing.assert_allclose(small.get_offsets(), model.embedding_[values == "small"])
    loose = plots.latent_map(model, pandas.Series(values).astype("category"))
    assert legend(loose) == ["large", "medium", "small", "no label"]
    numbers = pandas.Categorical([0.5, 10.0, None] * 10)
    assert legend(plots.latent_map(model, numbers)) == ["0.5", "10.0", "no label"]


def test_names_on_the_map_do_not_cover_one_another(model):
    ax = plots.latent_map(model, cycle("first", "second", "third"), n_ellipses=0)
    ax.figure.draw_without_rendering()
    heights = sorted(text.get_window_extent().y0 for text in ax.texts)
    assert np.diff(heights).min() > 0


def test_a_name_does_not_hide_a_class_of_few_rows(model):
    labels = ["one"] + ["many"] * 29
    ax = plots.latent_map(model, labels, n_ellipses=0)
    ax.figure.draw_without_rendering()
    name = next(text for text in ax.texts if text.get_text() == "one")
    row = ax.transData.transform(model.embedding_[0])
    assert name.get_window_extent().y0 > row[1]


def test_labels_of_another_length_are_refused(model):
    pandas = pytest.importorskip("pandas")
    for labels in ([1, 2], pandas.Categorical(["a"])):
        with pytest.raises(InputError, match=r"labels of shape \(30,\)"):
            plots.latent_map(model, labels)


def test_names_of_views_and_columns_are_no_mathematics(tmp_path):
    pandas = pytest.importorskip("pandas")
    import bochner as bo

    X = np.random.default_rng(0).normal(size=(12, 4))
    frame = pandas.DataFrame(X, columns=["$\\beta_{$", "$5-$10", "_c", "d"])
    views = {"_$\\alpha_{$": [0, 1], "$b$": [2, 3]}
    model = bo.NGMVLVM(2, views=views, n_frequencies=5, init="pca", max_iter=5, random_state=0)
    with pytest.warns():
        model.fit(frame)
    for view in views:
        for ax in (
            plots.learned_kernel(model, view),
            plots.decoded_grid(model, view, n=2),
            plots.decoded_grid(model, view, shape=(1, 2), n=2),
            plots.reconstructions(model, frame, view),
            plots.reconstructions(model, frame, view, (1, 2)),
        ):
            assert view in save(ax, tmp_path).get_title(loc="left").replace("\\\\", "\\")
    assert legend(save(plots.relevance(model), tmp_path)) == list(views)
    shown = save(plots.loadings(model), tmp_path).get_yticklabels()
    assert {text.get_text() for text in shown} == set(frame.columns)
    report = bo.calibration(model, X, hide="view", n_draws=40, random_state=0)
    assert legend(save(plots.calibration(report)[0], tmp_path)) == list(views)
    save(plots.latent_map(model, title="$\\beta_{$"), tmp_path)
