"""More columns do not make the error of `KreinFeatures` worse, and the better of both ways is
had.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bochner.feature_maps.krein import KreinFeatures

COLUMNS, SEEDS = (8, 16, 64), range(3)


def _error(inference, n_columns, seed, max_iter, shape=(60, 3)):
    X = np.random.default_rng(0).uniform(size=shape)
    settings = {"inference": inference, "random_state": seed, "max_iter": max_iter}
    return KreinFeatures("hellinger", n_columns, **settings).fit(X).held_out_error_


# after one iteration the spectrum is the better way
@pytest.mark.parametrize("max_iter", [1, 20])
@pytest.mark.parametrize("n_columns", COLUMNS)
def test_the_better_of_both_ways_is_had_at_every_number_of_columns(n_columns, max_iter):
    for seed in SEEDS:
        gradient, spectral, best = (
            _error(way, n_columns, seed, max_iter) for way in ("gradient", "spectral", "best")
        )
        assert best <= gradient
        # the spectrum is drawn again: its error is another one, by the noise of a draw
        assert best <= 1.3 * spectral


def test_more_columns_do_not_make_the_error_worse():
    """Up to what seeds differ by. Of a hundred rows it may be a quarter worse on others: the search
    follows the sketch too closely.
    """
    shape = (300, 5)
    best = np.array([[_error("best", k, seed, 30, shape) for seed in SEEDS] for k in COLUMNS])
    for few, many in itertools.pairwise(best):
        standard_error = np.std(many - few, ddof=1) / np.sqrt(len(SEEDS))
        assert (many - few).mean() <= 2.0 * standard_error
