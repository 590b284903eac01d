"""Starts from tables: derivatives, and the places of climbs from every start."""

import pytest
import torch

from bochner.latent_inference.candidate_table import CandidateTable
from bochner.latent_inference.infer import Placer, place
from bochner.latent_inference.row_bound import target_for
from helpers.posteriors import conditioned_view


@pytest.mark.parametrize("m", [5, 200])  # tables by data, and by linear terms
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_scores_are_the_bound_and_cubics_its_expansion(dim, m):
    view, x, Y = conditioned_view(dim, m, n=60)
    y = Y[:4].clone()
    y[:, 2] = torch.nan
    target = target_for([view], [y], dim, shared=True)
    table = CandidateTable.of([view], target, x)
    multipliers = table.multipliers([y], target)
    scores = table.scores(multipliers).double() + target.constant()[:, None]
    torch.testing.assert_close(scores, target.table(x), rtol=1e-4, atol=1e-2)
    # where a table finds a mode the bound has one
    chosen = scores.argmax(1, keepdim=True)
    starts = table.begin(chosen, multipliers)
    assert bool(starts.settled.any())
    here = starts.settled[:, 0]
    at, rows = starts.x[here, 0].double(), torch.arange(4)[here]
    value, gradient, hessian = target.evaluate(at, rows)
    at_starts = starts.value[here, 0].double() + target.constant()[rows]
    torch.testing.assert_close(at_starts, value, rtol=1e-3, atol=1e-2)
    scale = hessian.diagonal(dim1=1, dim2=2).abs().amax(1, keepdim=True)
    assert float((gradient / scale).abs().max()) < 1e-2
    assert (
        float((starts.hessian[here, 0] - hessian).abs().amax((1, 2)).div(scale[:, 0]).max())
        < 0.2
    )


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_rows_lie_where_climbs_from_every_start_put_them(dim):
    view, x, Y = conditioned_view(dim, 6)
    rows = [Y[:200]]
    climbed = place([view], x, rows)
    placed = Placer([view], x).place(rows)
    target, every = target_for([view], rows, dim, True), torch.arange(200)
    lost = target.evaluate(climbed.mean, every)[0] - target.evaluate(placed.mean, every)[0]
    assert int((lost > 0.1).sum()) <= 1
    same = lost.abs() < 1e-6
    assert int(same.sum()) >= 195
    apart = (placed.mean - climbed.mean)[same] / climbed.std[same]
    assert float(apart.abs().median()) < 1e-6
    spread = (placed.std / climbed.std)[same]
    assert float((spread - 1.0).abs().quantile(0.9)) < 1e-3


@pytest.mark.parametrize("dim", [2, 3])
def test_a_row_does_not_depend_on_its_batch(dim):
    view, x, Y = conditioned_view(dim, 6)
    placer = Placer([view], x)
    together = placer.place([Y[:70]])
    for i in (0, 17, 69):
        alone = placer.place([Y[i : i + 1]])
        apart = (alone.mean[0] - together.mean[i]) / together.std[i]
        assert float(apart.abs().max()) < 1e-7
        torch.testing.assert_close(alone.std[0], together.std[i], rtol=1e-6, atol=0.0)


def test_rows_with_other_columns_get_a_table_of_their_own():
    view, x, Y = conditioned_view(2, 8)
    y = Y[:40].clone()
    y[20:, 3] = torch.nan
    placer = Placer([view], x)
    together = placer.place([y])
    torch.testing.assert_close(
        placer.place([y[20:]]).mean, together.mean[20:], atol=1e-7, rtol=0
    )
    torch.testing.assert_close(
        placer.place([y[:20]]).mean, together.mean[:20], atol=1e-7, rtol=0
    )


@pytest.mark.parametrize("missing", [0, 1])
def test_rows_that_lack_a_whole_view_are_placed_by_the_others(missing):
    first, x, Y = conditioned_view(2, 6)
    second, _, Z = conditioned_view(2, 9)
    rows = [Y[:60].clone(), Z[:60].clone()]
    rows[missing][20:] = torch.nan
    placer = Placer([first, second], x)
    together = placer.place(rows)
    alone = Placer([(second, first)[missing]], x).place([rows[1 - missing][20:]])
    torch.testing.assert_close(together.mean[20:], alone.mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(together.std[20:], alone.std, atol=0, rtol=1e-6)
