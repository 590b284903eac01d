"""The encoder: keyed, masks and all, kept in files; placements that start from it are no worse, and
its page runs.
"""

import numpy as np
import pytest
import torch

import bochner as bo
from bochner import AdvisedRFLVM
from bochner.fitting import plan
from bochner.latent_inference import encoder
from bochner.latent_inference.infer import place
from bochner.random import generator

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]
VIEWS = {"a": slice(0, 6), "b": slice(6, 10)}


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr(plan, "EVALUATION_DRAWS", 4)
    monkeypatch.setattr(encoder, "_HIDDEN", 64)


def _data(n, dim=2, seed=0):
    weights = np.random.default_rng(7).normal(size=(dim, 10))
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim))
    return np.sin(x @ weights) + 0.1 * rng.normal(size=(n, 10)), x


@pytest.fixture(scope="module")
def fitted():
    X, _ = _data(150)
    return AdvisedRFLVM(
        views=VIEWS, n_frequencies=16, max_iter=150, init="pca", random_state=0, encoder=True
    ).fit(X)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_guesses_follow_the_latents_also_of_rows_with_holes(dim):
    X, x = _data(300, dim)
    y = torch.tensor(X)
    made = encoder.learn([y[:200, :6], y[:200, 6:]], torch.tensor(x[:200]), 0, n_steps=400)
    whole, held = y[200:], y[200:].clone()
    held[torch.rand(held.shape, generator=generator(0, "holes")) < 0.3] = torch.nan
    errors = [
        float((made.guess([rows[:, :6], rows[:, 6:]]) - torch.tensor(x[200:])).square().mean())
        for rows in (whole, held)
    ]
    assert errors[0] < 0.6  # the prior alone: 1
    assert errors[1] < 0.8
    assert torch.isfinite(
        made.guess([torch.full((2, 6), torch.nan), torch.full((2, 4), torch.nan)])
    ).all()


def test_it_is_keyed_by_the_seed_and_survives_as_tensors():
    X, x = _data(60)
    rows, goal = [torch.tensor(X)], torch.tensor(x)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, same, other = (encoder.learn(rows, goal, seed, n_steps=5) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.guess(rows), same.guess(rows))
    assert not torch.equal(one.guess(rows), other.guess(rows))
    again = encoder.Encoder.from_tensors(one.to_tensors())
    assert torch.equal(again.guess(rows), one.guess(rows))
    assert encoder.Encoder.from_tensors({}) is None


def test_masks_hide_nothing_scattered_entries_or_whole_views_but_never_all_views():
    hidden = encoder._hidden(4000, [6, 4], generator(0, "masks"))
    a, b = hidden[:, :6], hidden[:, 6:]
    none = ~hidden.any(1)
    dropped = (a.all(1) & ~b.any(1)) | (b.all(1) & ~a.any(1))
    assert 0.4 < float(none.double().mean()) < 0.65
    assert float(dropped.double().mean()) > 0.05
    assert float((hidden.any(1) & ~dropped).double().mean()) > 0.25


@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_rows_that_start_from_a_guess_are_placed_no_worse(fitted, holes):
    X, _ = _data(120, seed=3)
    X[np.random.default_rng(0).random(X.shape) < holes] = np.nan
    rows = fitted._split(X)
    with_guess = place(fitted._fit.posterior, fitted._candidates, rows, encoder=fitted._encoder)
    without = place(fitted._fit.posterior, fitted._candidates, rows)
    from bochner.latent_inference.row_bound import target_for

    target, index = target_for(fitted._fit.posterior, rows, 2, False), torch.arange(120)
    values = [target.evaluate(found.mean, index)[0] for found in (with_guess, without)]
    assert float((values[0] - values[1]).mean()) > -0.05
    assert float(((with_guess.mean - without.mean).norm(dim=1) < 1e-4).double().mean()) > 0.9


def test_a_wrong_guess_does_no_harm(fitted):
    X, _ = _data(40, seed=4)
    rows = fitted._split(X)

    class Wrong(encoder.Encoder):
        def guess(self, rows):
            return super().guess(rows) + 5.0

    wrong = Wrong(**vars(fitted._encoder))
    found, right = (
        place(fitted._fit.posterior, fitted._candidates, rows, encoder=e) for e in (wrong, None)
    )
    assert float(((found.mean - right.mean).norm(dim=1) < 1e-4).double().mean()) > 0.9


def test_embedding_is_transform_and_files_keep_the_encoder(fitted, tmp_path):
    X, _ = _data(150)
    np.testing.assert_array_equal(fitted.transform(X), fitted.embedding_)
    fitted.save(tmp_path / "m.bochner")
    again = bo.load(tmp_path / "m.bochner")
    np.testing.assert_array_equal(again.transform(X), fitted.embedding_)
    assert again.get_params()["encoder"] is True
    np.testing.assert_allclose(again.transform(X[7:8])[0], fitted.embedding_[7], atol=1e-6)


def test_categories_are_guessed_from_as_their_likelihood_encodes_them():
    source = np.random.default_rng(0)
    psi = np.sin(source.normal(size=(60, 2)) @ source.normal(size=(2, 6)))
    X = np.hstack([psi, np.digitize(psi[:, :3], [-0.4, 0.4])])
    views, likelihood = {"real": slice(0, 6), "kinds": slice(6, 9)}, {"kinds": "categorical"}
    options = {
        "encoder": True,
        "init": "pca",
        "max_iter": 10,
        "n_frequencies": 8,
        "random_state": 0,
    }
    model = bo.NGMVLVM(2, views=views, likelihood=likelihood, **options).fit(X)
    assert np.isfinite(model.transform(X[:5])).all()
