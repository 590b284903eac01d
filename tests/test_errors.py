"""Warnings name the line of the program that called, whatever lies between, and come once."""

from __future__ import annotations

import contextlib
import functools
import pickle
import warnings

import numpy as np
import pytest
import torch

from bochner.errors import InputError, NumericalWarning, warn_user
from bochner.linalg import cholesky
from bochner.processes import in_all_rows


@contextlib.contextmanager
def _around():
    yield


def _of_the_package():
    """A function that warns, as one of the package's modules would have it."""
    names = {"__name__": "bochner.somewhere", "warn_user": warn_user}
    exec("def warn(value): warn_user('a text', UserWarning)", names)
    return names["warn"]


@pytest.mark.parametrize(
    "wrap", [functools.singledispatch, _around(), np.errstate(all="ignore"), torch.no_grad()]
)
def test_decorators_are_not_what_a_warning_is_about(wrap):
    function = wrap(_of_the_package())
    with pytest.warns(UserWarning, match="a text") as caught:
        function(1)
    assert caught[0].filename == __file__


def test_jitter_of_any_size_is_said_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for scale in (1.0, 1e7, 3e65):
            cholesky(scale * torch.ones(2, 2, dtype=torch.float64))
    texts = [str(one.message) for one in caught if one.category is NumericalWarning]
    assert len(texts) == 1


def test_a_row_is_counted_among_all_where_the_error_is_about_one():
    named = InputError("Expected columns of training, got 'plate row 3'. Rename it.")
    with pytest.raises(InputError) as caught, in_all_rows([280]):
        raise named
    assert caught.value is named
    # as processes hand them on
    of_row = pickle.loads(
        pickle.dumps(InputError("got inf in row 3. (process 1)", row=3, process=1))
    )
    with pytest.raises(InputError) as caught, in_all_rows([0, 150]):
        raise of_row
    said = "got inf in row 3. (process 1, whose row 0 is row 150 of the data)"
    assert str(caught.value) == said
