"""Weights of views: twice the weight is twice the columns, in the bound and in placement; files,
messages.
"""

import numpy as np
import pytest
import torch

import bochner as bo
from bochner import NGMVLVM, AdvisedRFLVM
from bochner.errors import InputError
from bochner.estimators.settings import view_options
from bochner.fitting import plan
from bochner.kernels.spectral_mixture import SpectralMixture
from bochner.latent_inference.candidates import candidate_scores, scores_at
from bochner.latent_inference.infer import place
from bochner.latent_inference.row_bound import target_for
from bochner.objectives.elbo import draw, elbo
from bochner.random import generator, row_noise
from bochner.regression.observations import CompleteBlock
from bochner.weight_posterior.posterior import weights_posterior
from helpers.models import build

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]
VIEWS = {"a": slice(0, 6), "b": slice(6, 9)}
QUICK = {
    "n_frequencies": 5,
    "n_mixtures": 1,
    "max_iter": 12,
    "init": "pca",
    "random_state": 0,
    "views": VIEWS,
}


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr(plan, "EVALUATION_DRAWS", 4)


def _model(dim, weights=None, n=20):
    start = row_noise(n, dim, 0, "test", 0, dtype=torch.float64).numpy()
    kernels = [SpectralMixture(), SpectralMixture()]
    return build(start, kernels, weights=weights)


def _columns(n=20):
    return [
        torch.randn(n, m, generator=generator(1, "y", m), dtype=torch.float64) for m in (4, 3)
    ]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_twice_the_weight_is_the_bound_of_twice_the_columns(dim):
    a, b = _columns()
    weighted, plain = _model(dim, (2.0, 1.0)), _model(dim)
    draws = draw(plain, 3, "iid", 0, "train", 0)
    one = elbo(weighted, ((CompleteBlock.of(a),), (CompleteBlock.of(b),)), draws)
    two = elbo(
        plain, ((CompleteBlock.of(torch.cat([a, a], 1)),), (CompleteBlock.of(b),)), draws
    )
    torch.testing.assert_close(one.total, two.total)
    torch.testing.assert_close(one.unweighted, two.total - one.views[0])
    gradient = torch.autograd.grad(one.total, weighted.latents.mean)[0]
    torch.testing.assert_close(gradient, torch.autograd.grad(two.total, plain.latents.mean)[0])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_twice_the_weight_places_as_twice_the_columns_do(dim, shared):
    a, b = _columns()
    twice = torch.cat([a, a], 1)
    options = {
        "n_frequencies": 4,
        "n_draws": 2,
        "n_latent_draws": 1,
        "sampling": "iid",
        "seed": 0,
    }
    one = weights_posterior(
        _model(dim, (2.0, 1.0)), ((CompleteBlock.of(a),), (CompleteBlock.of(b),)), **options
    )
    two = weights_posterior(
        _model(dim), ((CompleteBlock.of(twice),), (CompleteBlock.of(b),)), **options
    )
    x, rows = (
        torch.randn(5, dim, generator=generator(2, "x"), dtype=torch.float64),
        torch.arange(5),
    )
    single, double = (
        target_for(one, [a[:5], b[:5]], dim, shared),
        target_for(two, [twice[:5], b[:5]], dim, shared),
    )
    for part, other in zip(single.evaluate(x, rows), double.evaluate(x, rows), strict=True):
        torch.testing.assert_close(part, other)
    if shared:
        torch.testing.assert_close(single.table(x), double.table(x))
    scores = [
        candidate_scores(scores_at(views, x), [first[:5], b[:5]], [None, None])
        for views, first in ((one, a), (two, twice))
    ]
    torch.testing.assert_close(scores[0], scores[1])
    placed = place(one, x, [a[:5], b[:5]])
    assert torch.isfinite(placed.mean).all()


def test_balanced_is_the_rule_that_scikit_learn_has_for_classes():
    from sklearn.utils.class_weight import compute_class_weight

    labels = np.repeat(["a", "b"], [6, 3])
    expected = compute_class_weight("balanced", classes=np.array(["a", "b"]), y=labels)
    widths = {"a": 6, "b": 3}
    balanced = view_options.weights("balanced", widths)
    np.testing.assert_allclose(list(balanced.values()), expected)
    assert view_options.weights({"b": 2}, widths) == {"a": 1.0, "b": 2.0}


def test_a_weighted_model_states_the_bound_of_the_data_and_its_file_keeps_the_weights(
    tmp_path,
):
    X = np.random.default_rng(0).normal(size=(40, 9))
    plain = AdvisedRFLVM(**QUICK).fit(X)
    ones = AdvisedRFLVM(**QUICK, view_weight={"a": 1.0}).fit(X)
    assert ones.elbo_ == plain.elbo_
    faint = AdvisedRFLVM(**{**QUICK, "max_iter": 1}, view_weight={"b": 1e-6, "a": 1e-6}).fit(X)
    whole = AdvisedRFLVM(**{**QUICK, "max_iter": 1}).fit(X)
    # a weighted bound would be a millionth of it
    assert abs(faint.elbo_ - whole.elbo_) < 0.2 * abs(whole.elbo_)
    # data of no weight leave rows at the prior
    assert float(np.abs(faint.embedding_).max()) < 1e-3
    balanced = NGMVLVM(**QUICK, view_weight="balanced").fit(X)
    balanced.save(tmp_path / "m.bochner")
    again = bo.load(tmp_path / "m.bochner")
    assert [view.weight for view in again._fit.posterior] == [0.75, 1.5]
    np.testing.assert_array_equal(again.transform(X), balanced.embedding_)


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (
            {"c": 1.0},
            r"Expected view_weight for views \['a', 'b'\], got 'c'\. Correct the name\.",
        ),
        (
            {"a": 0},
            r"Expected a positive view_weight for view 'a', got 0\. Choose a number above 0",
        ),
        ({"a": "big"}, r"Expected a positive view_weight for view 'a', got 'big'\."),
    ],
)
def test_wrong_weights_are_named(weights, text):
    with pytest.raises(InputError, match=text):
        NGMVLVM(**QUICK, view_weight=weights).fit(
            np.random.default_rng(0).normal(size=(20, 9))
        )
