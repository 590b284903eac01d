"""What a step costs: the features of the model that would be fitted."""

import numpy as np
import pytest

import bochner as bo
from bochner.model_selection.cost import operations

COLUMNS = {"a": np.arange(3), "b": np.arange(3, 8)}
N, H, Q = 20, 8, 4


def _products(*counts: int) -> int:
    return sum(
        4 * N * K * (K + view.size) for K, view in zip(counts, COLUMNS.values(), strict=True)
    )


@pytest.mark.parametrize(
    ("estimator", "counts"),
    [
        (bo.NGMVLVM, (2 * Q * H, 2 * Q * H)),
        # all components share one set of points
        (bo.SRFLVM, (2 * H, 2 * H)),
        (bo.RFLVM, (2 * H, 2 * H)),
    ],
)
def test_features_of_a_step_are_those_of_the_kernel(estimator, counts):
    asked = estimator(2, n_frequencies=H, n_mixtures=Q)
    assert operations(asked, N, COLUMNS) == _products(*counts)


def test_every_view_has_the_features_of_its_own_kernel():
    kernel = {"a": "rbf", "b": bo.kernels.SpectralMixture()}
    asked = bo.RandomFeatureLVM(2, kernel=kernel, n_frequencies=H, n_mixtures=Q)
    assert operations(asked, N, COLUMNS) == _products(2 * H, 2 * Q * H)


def test_gaussian_views_cost_the_same_however_they_are_asked_for():
    by_view = dict.fromkeys(COLUMNS, "gaussian")
    asked = operations(bo.NGMVLVM(2, likelihood=by_view), N, COLUMNS)
    assert asked == operations(bo.NGMVLVM(2), N, COLUMNS)
