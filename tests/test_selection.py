"""Choosing n_components: the table, its rule, and that it finds the dimension of data that have one."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest

import bochner as bo
from bochner import plots
from bochner.errors import InputError
from bochner.estimators.selection import _summary

pytest.importorskip("matplotlib")


def data(dim, n=100, m=14):
    source = np.random.default_rng(1)
    z = source.normal(size=(n, dim))
    return (
        np.tanh(z @ source.normal(size=(dim, m))) + z @ source.normal(size=(dim, m)) + 0.3 * source.normal(size=(n, m))
    )


def model(**settings):
    common = {"n_mixtures": 1, "n_frequencies": 16, "n_init": 1, "init": "pca", "max_iter": 120}
    return bo.NGMVLVM(**{**common, **settings})


@pytest.fixture(scope="module")
def found():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bo.select_n_components(model(), data(2), [1, 3, 2], n_repeats=2, random_state=0)


def test_the_dimension_of_the_data_is_found(found):
    assert found.candidates == (1, 2, 3)
    assert found.best in (2, 3)
    assert found.behind[0] > 2 * found.behind_se[0] > 0  # one is not enough
    assert (found.behind >= 0).all()
    top = int(found.log_likelihood.argmax())
    assert found.behind[top] == found.behind_se[top] == 0.0
    assert found.best == found.candidates[top]
    assert ((found.agreement > 0) & (found.agreement <= 1)).all()
    assert found.agreement[1] > 0.9  # two dimensions come out alike from other rows and seeds


def test_it_prints_itself_and_can_be_drawn(found, tmp_path):
    lines = str(found).splitlines()
    assert lines[0].split()[:5] == ["n_components", "log-likelihood", "per", "held-out", "entry"]
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "3"]
    assert lines[-1] == f"Use n_components={found.best}."
    ax = plots.n_components(found)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), found.log_likelihood)
    assert plots.save(ax, tmp_path / "n.png").read_bytes()[:4] == b"\x89PNG"


def test_the_rule_of_one_standard_error_takes_the_smallest_that_is_near():
    source = np.random.default_rng(0)
    rows, noise = np.arange(200), source.normal(size=200)
    near = source.normal(size=200)
    scores = {1: noise - 1.0, 2: noise + near - near.mean() - 0.01, 3: noise, 4: noise - 0.5}
    embeddings = {d: [source.normal(size=(5, d))] for d in scores}
    best = [_summary((1, 2, 3, 4), scores, rows, embeddings, 1, rule) for rule in (False, True)]
    assert [b.best for b in best] == [3, 2]
    # the errors of single means are all alike here: only the comparison row by row tells the numbers apart
    assert best[0].behind_se[3] < 1e-9 < best[0].behind_se[1] < 0.1
    assert best[0].log_likelihood_se[3] > 0.05
    assert np.isnan(best[0].agreement).all()
    assert dataclasses.replace(best[0], best=1).best == 1


def test_frames_views_and_size_factors_go_along():
    source = np.random.default_rng(2)
    X = pd.DataFrame(source.poisson(3.0, size=(30, 5)).astype(float), columns=list("abcde"))
    estimator = model(
        views={"one": ["a", "b"], "two": ["c", "d", "e"]}, likelihood="poisson", max_iter=5, n_frequencies=4
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = {"hide": "view", "n_repeats": 1, "size_factors": source.random(30) + 0.5, "random_state": 0}
        one, other = (bo.select_n_components(estimator, X, [1], **arguments) for _ in range(2))
    np.testing.assert_array_equal(one.log_likelihood, other.log_likelihood)
    assert np.isfinite(one.log_likelihood).all()
    assert not hasattr(estimator, "embedding_")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"candidates": [0, 2]}, r"Expected candidates that are positive whole numbers, got \[0, 2\]. Correct them."),
        ({"candidates": [1.5]}, r"Expected candidates that are positive whole numbers, got \[1.5\]"),
        ({"candidates": []}, r"Expected candidates that are positive whole numbers, got \[\]"),
        ({"n_repeats": 0}, r"Expected n_repeats of at least 1, got 0. Ask for 3."),
        ({"n_repeats": 60}, r"Expected at least 120 rows, got 100. Pass more rows, or choose n_components yourself."),
    ],
)
def test_what_cannot_be_is_said(arguments, text):
    with pytest.raises(InputError, match=text):
        bo.select_n_components(model(), data(1), **arguments)
