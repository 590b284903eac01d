"""Every block, and the whole sweep, leaves the joint law of data and parameters invariant.

Geweke's joint test (2004) in the form of Gandy and Scott (2020): parameters from the prior, data
given them, then one update given the data. The result has the joint law again, so that the mean
change of any function of data and parameters is zero. Replications are independent, and the
change has far less variance than the function.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bochner.mcmc.conditionals.gaussian import GaussianView
from bochner.mcmc.conditionals.logistic import BinomialView, NegativeBinomialView
from bochner.mcmc.conditionals.views import ViewData
from bochner.mcmc.draws import source
from bochner.mcmc.model import BLOCKS, Model
from helpers.sampler import PRIORS, zeros

N, M, H = 4, 2, 3
# No block has code of its own for a kind of views in one dimension or in several: each kind is
# tried in one number of them, and each number with several kinds.
KINDS = [
    ("gaussian", 2),
    ("scattered", 1),
    ("binomial", 2),
    ("counts", 1),
    ("counts by column", 2),
]


def make(kind, n_components, **settings):
    data = replace(zeros(N, M), offset=np.linspace(-0.3, 0.3, N))
    dims = tuple(range(n_components))
    if kind == "gaussian":
        view = GaussianView("a", zeros(N, M), dims, H, PRIORS)
    elif kind == "scattered":
        view = GaussianView("a", scattered(), dims, H, PRIORS)
    elif kind == "binomial":
        view = BinomialView("a", data, dims, H, PRIORS, np.array([1.0, 3.0]))
    else:
        view = NegativeBinomialView("a", data, dims, H, PRIORS, kind == "counts by column")
    return Model((view,), n_components, **settings)


def scattered():
    """Five columns that lack different rows: more patterns than are integrated one by one."""
    data = zeros(N, 5)
    observed = np.ones((N, 5), dtype=bool)
    observed[np.arange(N), np.arange(N)] = False
    observed[:2, 4] = False
    return replace(data, observed=observed)


def with_data(model, state, rng):
    views = []
    for view, of_view in zip(model.views, state.views, strict=True):
        Y = view.draw_data(view.psi(of_view, state.x), of_view.parameter, rng)
        observed = view.data.observed
        views.append(
            view.with_data(ViewData(np.where(observed, Y, 0.0), observed, view.data.offset))
        )
    return replace(model, views=tuple(views))


def functions(model, state):
    """What has the same mean before and after: every block has a part in some of it."""
    x, view, of_view = state.x, model.views[0], state.views[0]
    counts = np.bincount(of_view.labels)
    sizes = np.trace(of_view.components.covariances, axis1=1, axis2=2)
    psi = view.psi(of_view, x)
    values = [
        x[0, 0] ** 2,
        x[0, 0] * x[1, 0],
        of_view.points[0, 0] ** 2,
        np.cos(of_view.points @ view.see(x).T).sum(),
        float(len(counts)),
        float(of_view.labels[0] == of_view.labels[1]),
        np.log(of_view.concentration),
        np.log(sizes[of_view.labels]).mean(),
        np.square(of_view.components.means[of_view.labels]).mean(),
        np.log(of_view.variance),
        np.log(of_view.variance) ** 2,
        of_view.weights[0, 0] ** 2,
        of_view.weights[-1, 1] * of_view.weights[0, 1],
        np.square(psi).mean(),
        (view.data.observed * psi * np.sqrt(view.data.values**2)).sum(),
        view.log_likelihood(of_view, x),
    ]
    values += [v for p in of_view.parameter for v in (np.log(p), np.log(p) ** 2)]
    return np.array(values)


def changes(model, n, order, seed=7):
    """Mean change of every function over n replications, in standard errors."""
    rng = source(seed, "joint test")
    out = []
    for i in range(n):
        start = replace(model.prior_state(rng), step=0.3)
        given = with_data(model, start, rng)
        end = given.sweep(start, seed, 0, i, order)
        out.append(functions(given, end) - functions(given, start))
    change = np.array(out)
    error = change.std(0, ddof=1) / np.sqrt(n)
    moved = error > 1e-12 * np.abs(change).max(initial=1.0)
    return np.where(moved, change.mean(0) / np.where(moved, error, 1.0), 0.0)


def check(model, n, order):
    z = changes(model, n, order)
    assert np.abs(z).max() > 0.0
    # some twenty tests of a level of 6e-5: a false alarm in a thousand runs
    assert np.abs(z).max() < 4.0, np.round(z, 1)


@pytest.mark.parametrize(
    ("block", "n_components"), [("mixture", 2), ("concentration", 1), ("coordinates", 2)]
)
def test_blocks_that_see_no_data(block, n_components):
    check(make("gaussian", n_components), 800, [block])


@pytest.mark.parametrize(("kind", "n_components"), KINDS)
@pytest.mark.parametrize("block", ["frequencies", "weights", "latents"])
def test_blocks_that_see_data(block, kind, n_components):
    check(make(kind, n_components), 400, [block])


@pytest.mark.parametrize(
    ("kind", "n_components"), [pair for pair in KINDS if pair[0] != "counts"]
)
def test_the_whole_sweep(kind, n_components):
    check(make(kind, n_components), 300, BLOCKS)


@pytest.mark.parametrize("block", ["coordinates", "latents", None])
def test_views_that_see_some_of_the_dimensions(block):
    """Two views share a dimension, and each has one of its own."""
    first = GaussianView("a", scattered(), (0, 1), H, PRIORS)
    second = NegativeBinomialView("b", zeros(N, M), (0, 2), H, PRIORS)
    model = Model((first, second), 3)
    assert model.free_blocks == [[0], [1], [2]]
    check(model, 150, BLOCKS if block is None else [block])


@pytest.mark.parametrize("kind", ["gaussian", "counts"])
def test_the_whole_sweep_in_another_order(kind):
    check(make(kind, 1), 300, BLOCKS[::-1])


def test_the_metropolis_kernel_of_the_frequencies():
    check(make("gaussian", 1, frequency_kernel="metropolis"), 800, ["frequencies"])


def test_the_joint_test_finds_a_wrong_conditional(monkeypatch):
    """Weights that are drawn a fifth too small: a test that cannot fail is none."""
    right = GaussianView.update_weights

    def wrong(self, state, x, rng):
        drawn = right(self, state, x, rng)
        return replace(drawn, weights=0.8 * drawn.weights)

    monkeypatch.setattr(GaussianView, "update_weights", wrong)
    assert np.abs(changes(make("gaussian", 1), 400, ["weights"])).max() > 5.0
