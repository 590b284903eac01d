"""Bounds at several draws read rows on disk once, and have the bits of those at one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bochner.data.row_sources import RowSource
from bochner.data.stored import StoredMatrix
from bochner.data.views import Scaling
from bochner.fitting.plan import Plan, evaluate
from bochner.kernels.stationary import RBF
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.lvm import (
    GaussianLatents,
    LatentVariableModel,
    Layout,
    ModelSpec,
    View,
    ViewSpec,
)
from bochner.objectives.elbo import PLAIN, Evaluation, elbo_at
from bochner.objectives.stored_draws import elbos_of_stored
from bochner.regression.observations import CompleteBlock, Rows
from bochner.regression.streamed import StreamedBlock
from bochner.training.trainer import Options

N, M, DRAWS = 300, 5, 4


class Counted(RowSource):
    """Rows that count how often each is read."""

    columns = None

    def __init__(self, X):
        self.X, self.read_rows = X, np.zeros(len(X), dtype=int)
        self.n_rows, self.n_columns, self.dtype = *X.shape, X.dtype

    @property
    def block_rows(self):
        return 40

    def read(self, start, stop):
        self.read_rows[start:stop] += 1
        return self.X[start:stop]


def _stored(source, columns, rows=None):
    plain = Scaling(np.zeros(len(columns)), np.ones(len(columns)))
    place = torch.float32, torch.device("cpu")
    return StoredMatrix(source, np.array(columns), plain, *place, rows=rows)


def _model(noise=Gaussian):
    source = torch.Generator().manual_seed(0)
    z = torch.randn(N, 2, generator=source)
    Y = torch.sin(z @ torch.randn(2, M, generator=source))
    Y += 0.1 * torch.randn(N, M, generator=source)
    specs = tuple(ViewSpec(name, RBF(), noise(), w) for name, w in (("a", 1.0), ("b", 0.5)))
    spec = ModelSpec(specs, Layout(2, (0, 0)), 1, 8, "sobol", 8)
    views = [View(s.name, RBF(), noise(), weight=s.weight) for s in specs]
    model = LatentVariableModel(GaussianLatents(z, torch.full_like(z, -1.0)), views)
    return model, Y, Plan(spec, ("pca",), 0.1, Options(), 0)


def _at_each(model, data, plan):
    """Return the bounds draw by draw."""
    with torch.no_grad():
        kl = model.latents.kl()
        return [
            elbo_at(
                model,
                model.latents.drawn(plan.row_noise(model, "final", i)),
                kl,
                data,
                plan.spectra(model, "final", i),
            )
            for i in range(DRAWS)
        ]


def _together(model, data, plan, how=PLAIN):
    noises = [plan.row_noise(model, "final", i) for i in range(DRAWS)]
    with torch.no_grad():
        return list(
            elbos_of_stored(
                model, noises, data, lambda i: plan.spectra(model, "final", i), how
            )
        )


def _same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.total, other.total)
        assert torch.equal(one.with_gap, other.with_gap)
        assert torch.equal(one.unweighted, other.unweighted)
        assert torch.equal(one.kl, other.kl)


@pytest.mark.parametrize("at_once", [2**24, 300])
def test_rows_are_read_once_for_all_draws(at_once):
    model, Y, plan = _model()
    source = Counted(Y.numpy())
    some = torch.arange(0, N, 2)
    data = (
        (CompleteBlock.of(_stored(source, [0, 1, 2])),),
        (CompleteBlock.of(_stored(source, [3, 4], some), some),),
    )
    expected = _at_each(model, data, plan)
    source.read_rows[:] = 0
    found = _together(model, data, plan, Evaluation(sums=at_once))
    _same(found, expected)
    # two views; sums of 16 (16 + 3) numbers: one draw at a time where 300 are the most
    assert source.read_rows.max() == (2 if at_once > 300 else 2 * DRAWS)
    mean, _ = evaluate(model, data, plan, "final", n_draws=DRAWS, weighted=False)
    assert mean == pytest.approx(float(torch.stack([b.unweighted for b in expected]).mean()))


def test_rows_with_holes_beside_complete_ones_have_the_same_bounds():
    model, Y, plan = _model()
    holes = Y.clone()
    holes[torch.rand(holes.shape, generator=torch.Generator().manual_seed(1)) < 0.1] = (
        torch.nan
    )
    source = Counted(torch.cat([Y[:, :2], holes[:, 2:]], dim=1).numpy())
    count = int((~holes[:, 2:4].isnan()).sum())
    columns = torch.arange(2)
    data = (
        (
            CompleteBlock.of(_stored(source, [0, 1])),
            StreamedBlock(_stored(source, [2, 3]), Rows.of(None), 2 + columns, (1, 1), count),
        ),
        (CompleteBlock.of(Y[:, 3:]),),
    )
    _same(_together(model, data, plan), _at_each(model, data, plan))


def test_products_that_round_too_much_are_formed_again():
    model, Y, plan = _model(lambda: Gaussian(1e-7))
    source = Counted(Y.numpy())
    data = tuple((CompleteBlock.of(_stored(source, part)),) for part in ([0, 1, 2], [3, 4]))
    _same(_together(model, data, plan), _at_each(model, data, plan))


def test_noise_per_column_has_the_same_bounds():
    model, Y, plan = _model(lambda: Gaussian(torch.full((2,), 0.1, dtype=torch.float64)))
    source = Counted(Y.numpy())
    data = tuple((CompleteBlock.of(_stored(source, part)),) for part in ([0, 1], [3, 4]))
    _same(_together(model, data, plan), _at_each(model, data, plan))
