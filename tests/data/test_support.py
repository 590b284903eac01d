"""Which likelihood whole numbers ask for: counts are told from answers."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bochner as bo
from bochner.data.support import COUNTS, guess, vary_too_little


def answers(seed, low, high, n=200):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    middle = (low + high) / 2
    weights = 0.5 * rng.normal(size=(2, 8))
    noise = 0.5 * rng.normal(size=(n, 8))
    return np.clip(np.rint(z @ weights + noise + middle), low, high)


@pytest.mark.parametrize("scale", [(1, 5), (0, 4), (1, 7)])
@pytest.mark.parametrize("seed", range(100, 104))
def test_answers_are_no_counts(scale, seed):
    S = answers(seed, *scale)
    assert guess(S)[0] == "gaussian"
    assert guess(sp.csr_array(S)) == guess(S)
    S[np.random.default_rng(seed).random(S.shape) < 0.2] = np.nan
    assert guess(S)[0] == "gaussian"


@pytest.mark.parametrize("n_rows", [30, 100, 500, 2000])
@pytest.mark.parametrize("n_columns", [1, 3, 30])
def test_counts_of_small_rates_are_counts(n_rows, n_columns):
    for seed in range(100, 120):
        rng = np.random.default_rng(seed)
        rates = rng.uniform(0.02, 3.0, size=n_columns)
        for varying in (0.0, 0.5):
            sizes = np.exp(varying * rng.normal(size=(n_rows, 1)))
            X = rng.poisson(rates * sizes, size=(n_rows, n_columns)).astype(float)
            assert not vary_too_little(X)
            # of few numbers the largest may come up often by chance
            chosen, why = guess(X)
            assert chosen in COUNTS or "pile up" in why or X.max() <= 1.0, (seed, why)


def test_zeros_ones_and_constants_beside_counts_tell_nothing_of_them():
    rng = np.random.default_rng(100)
    counts = rng.poisson(3.0, size=(500, 2))
    beside = np.hstack([counts, rng.integers(0, 2, size=(500, 20)), np.full((500, 5), 7)])
    assert guess(beside.astype(float))[0] == "poisson"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n", [40, 200])
def test_arrays_and_tables_of_answers_agree(n):
    S = answers(100, 1, 5, n)
    settings = {"likelihood": "auto", "n_frequencies": 5, "max_iter": 3, "n_init": 1}
    of_array = bo.NGMVLVM(1, **settings).fit(S)
    frame = pd.DataFrame(S.astype(int), columns=list("abcdefgh"))
    of_frame = bo.NGMVLVM(1, **settings).fit(frame)
    assert set(of_array.likelihood_.values()) == {"gaussian"}
    assert set(of_frame.likelihood_.values()) == {"gaussian"}
    # beside zeros and ones, which keep a view of their own
    both = frame.assign(yes=np.arange(n) % 2)
    of_both = bo.NGMVLVM(1, **settings).fit(both)
    assert of_both.likelihood_ == {"numbers": "gaussian", "binary": "bernoulli"}
