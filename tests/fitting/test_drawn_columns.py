"""Steps of training draw columns of wide tables with holes, and of no others."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import bochner as bo
from bochner.fitting import drawn_columns
from bochner.fitting.data import TrainingData
from bochner.metrics import mean_aligned_r2
from bochner.regression.drawn_columns import DrawnColumns
from bochner.regression.observations import IncompleteBlock


def _table(n, m, noise=0.3, hidden=0.2):
    source = np.random.default_rng(3)
    latents = source.normal(size=(n, 2))
    waves = np.cos(latents @ source.normal(size=(2, 40)) + source.uniform(0.0, 6.0, 40))
    X = waves @ source.normal(size=(40, m)) / 4.0 + noise * source.normal(size=(n, m))
    X[source.random(X.shape) < hidden] = np.nan
    return latents, X


@pytest.fixture
def trained_on(monkeypatch):
    """Return the data of a fit's steps."""
    seen = []
    build = TrainingData.__init__

    def kept(self, *given):
        build(self, *given)
        seen.append(self)

    monkeypatch.setattr(TrainingData, "__init__", kept)
    return seen


@pytest.mark.parametrize(
    ("n", "m", "drawn"),
    [(250, 1000, True), (249, 1000, False), (260, 999, False), (1001, 1000, False)],
)
def test_many_columns_of_fewer_rows_are_drawn(n, m, drawn, trained_on):
    _, X = _table(n, m)
    with pytest.warns(ConvergenceWarning):
        bo.NGMVLVM(max_iter=2, n_frequencies=4, init="pca", random_state=0).fit(X)
    ((block,),) = trained_on[0].drawn
    assert type(block) is (DrawnColumns if drawn else IncompleteBlock)
    if drawn:
        completed = block.filled(block.fill).Y
        shown = block.observed > 0
        torch.testing.assert_close(completed[shown], block.Y[shown], rtol=0.0, atol=0.0)
        full, narrow = completed.double(), block.rotated.Y.double()
        assert narrow.shape[1] <= n
        torch.testing.assert_close(full @ full.T, narrow @ narrow.T, rtol=1e-4, atol=1e-2)
        # the bound that is stated is that of the observed entries
        assert trained_on[0].blocks[0][0] is not block


def test_from_the_latents_their_fit_stays_there(monkeypatch):
    monkeypatch.setattr(drawn_columns, "_ENTRIES", 60_000)
    latents, X = _table(60, 1000)
    model = bo.NGMVLVM(init=latents, random_state=0).fit(X)
    assert mean_aligned_r2(latents, model.embedding_) > 0.99
    (noise,) = model.noise_variance_.values()
    assert float(noise) == pytest.approx(0.3**2, rel=0.1)
