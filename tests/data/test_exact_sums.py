"""Sums of rows to the last digit, however they are divided."""

import math
from fractions import Fraction

import numpy as np
import pytest

from bochner.data.views import ExactSum, Scaling
from bochner.processes import ALONE


@pytest.mark.parametrize("n", [1, 2, 3, 5000])
def test_sums_are_those_of_fractions(n):
    values = np.random.default_rng(0).normal(size=(n, 3)) * 10.0 ** np.arange(3)
    total = ExactSum(3)
    total.add(values)
    exact = [float(sum(map(Fraction, column))) for column in values.T.tolist()]
    np.testing.assert_array_equal(total.over(ALONE), exact)


class _Two:
    """The second of two processes, the first of which has said what it has."""

    def __init__(self, said):
        self.said = said

    def gathered(self, value):
        return [self.said, value]


@pytest.mark.parametrize("cut", [1, 77, 2999])
def test_parts_of_rows_have_the_sum_of_all(cut):
    values = np.random.default_rng(1).normal(size=(3000, 4)).astype(np.float32).astype(float)
    whole, first, second = ExactSum(4), ExactSum(4), ExactSum(4)
    whole.add(values)
    first.add(values[:cut])
    second.add(values[cut:])
    both = second.over(_Two((first._high, first._low)))
    np.testing.assert_array_equal(both, whole.over(ALONE))
    assert both[0] == math.fsum(values[:, 0])


def test_scalings_of_many_rows_are_those_of_few_to_rounding():
    X = np.random.default_rng(2).normal(size=(400, 5)) * 3.0 + 7.0
    X[5, 2] = np.nan
    columns = {"a": np.arange(3), "b": np.arange(3, 5)}
    plain = Scaling.fit(X, columns)
    # of more than 10,000 rows sums are exact
    X = np.tile(X, (26, 1))
    exact = Scaling.fit(X, columns)
    np.testing.assert_allclose(exact.centre, plain.centre, rtol=1e-14)
    np.testing.assert_allclose(exact.scale, plain.scale, rtol=1e-14)
    again = Scaling.fit(X[::-1].copy(), columns)
    np.testing.assert_array_equal(again.centre, exact.centre)
