"""More columns do not make the error of `KreinFeatures` worse, and the better of both ways is
had.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from bochner.feature_maps.krein import KreinFeatures
from bochner.kernels.function import FunctionKernel
from bochner.krein import growth
from bochner.krein.growth import copied, fit_grown
from bochner.krein.signed_frequencies import GaussianFrequencies
from bochner.krein.sketch import Sketch

COLUMNS, SEEDS = (8, 16, 64), range(3)


@pytest.fixture(scope="module", autouse=True)
def each_search_once():
    """Fits of many frequencies contain those of fewer, and the better of both ways that by
    gradient: a search that begins with the very same numbers is not made again.
    """
    search, found = growth.fit_gradient, {}

    def remembered(sketch, start, n_mixtures, max_iter, source):
        state = (sketch.x, sketch.held_out, *vars(start).values(), source.get_state())
        given = (n_mixtures, max_iter, *(part.numpy().tobytes() for part in state))
        if given not in found:
            fit = search(sketch, start, n_mixtures, max_iter, source)
            found[given] = fit, source.get_state()
        fit, after = found[given]
        source.set_state(after)
        return fit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "fit_gradient", remembered)
        yield


def _hellinger(X, Y=None):
    rows, others = (
        Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (X, X if Y is None else Y)
    )
    return np.sqrt(rows @ others.T)


def _error(inference, n_columns, seed, max_iter, shape=(60, 3)):
    X = np.random.default_rng(0).uniform(size=shape)
    settings = {"inference": inference, "random_state": seed, "max_iter": max_iter}
    return KreinFeatures("hellinger", n_columns, **settings).fit(X).held_out_error_


# after one iteration the spectrum is the better way
@pytest.mark.parametrize("max_iter", [1, 20])
@pytest.mark.parametrize("n_columns", COLUMNS)
def test_the_better_of_both_ways_is_had_at_every_number_of_columns(n_columns, max_iter):
    for seed in SEEDS if n_columns < 64 else SEEDS[:1]:
        gradient, spectral, best = (
            _error(way, n_columns, seed, max_iter) for way in ("gradient", "spectral", "best")
        )
        assert best == min(gradient, spectral)


def test_more_columns_do_not_make_the_error_worse():
    """Up to what seeds differ by."""
    shape = (300, 5)
    best = np.array([[_error("best", k, seed, 30, shape) for seed in SEEDS] for k in COLUMNS])
    for few, many in itertools.pairwise(best):
        standard_error = np.std(many - few, ddof=1) / np.sqrt(len(SEEDS))
        assert (many - few).mean() <= 2.0 * standard_error


def test_of_few_rows_more_columns_are_no_worse_on_others():
    """Searches for many frequencies at once were worse than for few: by a twentieth here, and up to
    a seventh.
    """
    others = np.random.default_rng(9).uniform(size=(300, 3))
    exact = _hellinger(others)
    errors = []
    for k in (16, 32, 64):
        of_seeds = []
        for seed in range(4):
            X = np.random.default_rng(seed).uniform(size=(60, 3))
            settings = {"inference": "gradient", "random_state": seed}
            fitted = KreinFeatures("hellinger", k, **settings).fit(X)
            features = fitted.transform(others)
            away = (features * np.asarray(fitted.signs_)) @ features.T
            np.fill_diagonal(away, np.diagonal(exact))
            of_seeds.append(np.linalg.norm(away - exact))
        errors.append(np.mean(of_seeds))
    for few, many in itertools.pairwise(errors):
        assert many <= few


@pytest.mark.parametrize(("n", "d", "seed"), [(60, 3, 0), (100, 5, 0), (100, 5, 2)])
def test_more_frequencies_by_gradient_are_never_worse_on_rows_held_out(n, d, seed):
    x = torch.as_tensor(np.random.default_rng(seed).uniform(size=(n, d)))
    sketch = Sketch.of(FunctionKernel(_hellinger), x[: n - n // 4], x[n - n // 4 :])
    errors = []
    for count in (8, 16, 32, 64):
        source = torch.Generator().manual_seed(seed)
        kernel = fit_grown(sketch, count, 2, 10, source).frequencies.kernel
        away = kernel(sketch.held_out, sketch.held_out) - sketch.held_target
        errors.append(float(away.fill_diagonal_(0.0).square().sum()))
    for few, many in itertools.pairwise(errors):
        assert many <= few * (1.0 + 1e-9)


def test_copies_have_the_same_kernel():
    source = torch.Generator().manual_seed(0)
    weight = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    sign = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    mean = torch.randn(3, 2, generator=source, dtype=torch.float64)
    few = GaussianFrequencies(weight, sign, mean, 0.1 * mean.abs())
    x = torch.randn(5, 2, generator=source, dtype=torch.float64)
    for count in (4, 5, 6):
        many = copied(few, count)
        assert len(many.weight) == count
        assert bool((many.sign.diff() <= 0).all())
        torch.testing.assert_close(many.kernel(x, x), few.kernel(x, x))
