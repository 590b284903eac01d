"""Which starts race, and which of them goes on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bochner.fitting import multistart
from bochner.fitting.data import FitData, TrainingData
from bochner.fitting.multistart import Candidate, Race, _promising, _standing
from bochner.fitting.plan import Plan
from bochner.kernels import SpectralMixture
from bochner.models.lvm import Covariates
from bochner.regression.observations import CompleteBlock
from bochner.training.trainer import NoCheckpoint, Options
from helpers.models import spec_of

AT = np.zeros((3, 4))


def _both(index: int, name: str, bound: float) -> list[Candidate]:
    """Return a start as it was and as it settled."""
    return [Candidate(index, name, AT, bound, settled) for settled in (False, True)]


def _names(raced: list[Candidate]) -> list[tuple[str, bool, float]]:
    return [(one.name, one.settled, one.handicap) for one in raced]


def test_where_only_starts_with_two_wide_dimensions_are_good_the_best_other_one_races_too():
    every = [
        *_both(0, "pca", -30.0),
        *_both(1, "laplacian", -25.0),
        *_both(2, "laplacian-2", -10.0),
        *_both(3, "tsne-2", -11.0),
    ]
    assert _names(_promising(every, 2.0, conjugate=True)) == [
        ("laplacian-2", False, 0.0),
        ("laplacian-2", True, 0.0),
        ("tsne-2", True, 0.0),
        ("laplacian", True, 4.0),
    ]
    # another one is among the good ones: it has no handicap, and no further start races
    assert _names(_promising(every, 15.0, conjugate=True)) == [
        ("laplacian-2", False, 0.0),
        ("laplacian-2", True, 0.0),
        ("tsne-2", True, 0.0),
        ("laplacian", True, 0.0),
    ]
    assert _names(_promising(every, 0.0, conjugate=False)) == [("laplacian-2", True, 0.0)]
    assert _promising(every, math.inf, conjugate=True) == every


def test_a_start_with_a_handicap_has_to_lead_by_it():
    rival = {"elbo": -8.0, "handicap": 4.0}
    assert _standing(rival) < _standing({"elbo": -11.0, "handicap": 0.0})
    assert _standing(rival) > _standing({"elbo": -13.0, "handicap": 0.0})


def test_a_race_goes_on_from_the_better_start_unless_its_handicap_is_larger_than_its_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(60, 2, dtype=torch.float64, generator=generator)
    Y = torch.cat([Z.sin(), Z.cos(), Z.prod(1, keepdim=True)], 1).repeat(1, 4)
    data = ((CompleteBlock.of(Y.float()),),)
    spec = spec_of([SpectralMixture()], "x", n_mixtures=1, n_frequencies=10)
    plan = Plan(spec, ("random", "pca"), math.inf, Options(400, 0.03, 1e-4), 0)
    rows = FitData(data, len(Y), lambda _: Y.numpy(), Covariates.none(len(Y)))
    worse = torch.randn(60, 2, dtype=torch.float64, generator=generator)
    for handicap in (0.0, 1e6):
        two = [
            Candidate(0, "random", worse.numpy()),
            Candidate(1, "pca", Z.numpy(), handicap=handicap),
        ]
        monkeypatch.setattr(multistart, "candidates", lambda *_, two=two: two)
        race = Race(TrainingData(rows, plan), plan)
        best = race.run(NoCheckpoint())
        assert race.results[1]["elbo"] > race.results[0]["elbo"]
        assert [result["handicap"] for result in race.results] == [0.0, handicap]
        winner = race.results[0 if handicap else 1]
        assert race._bound(best, multistart._RACE_DRAWS)[0] == pytest.approx(
            winner["elbo"], rel=1e-4
        )
