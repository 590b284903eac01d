"""Siblings show what they share with one of them, and keep what they say themselves."""

from __future__ import annotations

import inspect

import bochner as bo
from bochner.estimators.docstrings import described_by


class Base:
    """The base.

    Parameters
    ----------
    a : int
        First.
    b : int
        Second,
        in two lines.
    gone : int

    Attributes
    ----------
    x_, y_ : float
        Both.
    """


def test_missing_entries_are_added_in_the_order_of_the_signature():
    @described_by(Base)
    class Sibling:
        """A sibling.

        Parameters
        ----------
        b : str
            Its own.

        Notes
        -----
        Kept.
        """

        def __init__(self, a: int, b: str) -> None: ...

    assert (
        Sibling.__doc__
        == """A sibling.

Parameters
----------
a : int
    First.
b : str
    Its own.

Attributes
----------
x_, y_ : float
    Both.

Notes
-----
Kept.
"""
    )


def test_every_estimator_describes_every_parameter():
    for cls in (bo.NGMVLVM, bo.AdvisedRFLVM, bo.SRFLVM, bo.RandomFeatureLVM):
        text = inspect.cleandoc(cls.__doc__)
        parameters = text[text.index("Parameters\n") : text.index("Attributes\n")]
        for name in inspect.signature(cls).parameters:
            assert f"\n{name} : " in parameters, f"{cls.__name__} {name}"
    assert "T, the most components" in bo.SRFLVM.__doc__
    assert "Q, mixture components of a view's kernel" not in bo.SRFLVM.__doc__
