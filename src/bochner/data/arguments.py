"""Types of arguments: what is of another type is refused by name, before anything is computed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import ParamSpec, TypeVar

import numpy as np
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

from bochner.errors import InputError, message

P = ParamSpec("P")
R = TypeVar("R")

COUNT = Interval(Integral, 1, None, closed="left")
COUNT_OR_NONE = Interval(Integral, 0, None, closed="left")
FLAG = "boolean"
# Constraints that True and False meet.
_FLAGS = (FLAG, "verbose")


class _Truth:
    """True or False where a number is wanted: Python takes them for 1 and 0."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return repr(self._value)


def check(
    constraints: Mapping[str, list[object]], given: Mapping[str, object], caller: str
) -> None:
    """Refuse arguments that are not what a function takes.

    Parameters
    ----------
    constraints : mapping of str to list
        Types, and constraints of scikit-learn, by argument; those without any are not looked at.
    given : mapping of str to object
    caller : str
        The function's name.

    Raises
    ------
    InvalidParameterError
        A ValueError and a TypeError, that names the argument, what it may be, and what came.
    """
    chosen = {name: value for name, value in given.items() if name in constraints}
    for name, value in chosen.items():
        allowed = any(isinstance(one, str) and one in _FLAGS for one in constraints[name])
        if isinstance(value, bool | np.bool_) and not allowed:
            chosen[name] = _Truth(value)
    validate_parameter_constraints(constraints, chosen, caller_name=caller)


def checked(**constraints: list[object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function refuse arguments of other types than these.

    Parameters
    ----------
    **constraints : list
        As in `check`.

    Returns
    -------
    callable
        A decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:
                # Python says what is wrong with the call itself
                given = {}
            check(constraints, given, function.__name__)
            return function(*args, **kwargs)

        return call

    return decorate


def pair(name: str, value: object) -> tuple[int, int]:
    """Return two whole numbers.

    Raises
    ------
    InputError
        They are something else.
    """
    numbers = list(value) if isinstance(value, tuple | list | np.ndarray) else []
    if len(numbers) != 2 or not all(isinstance(number, Integral) for number in numbers):
        do = "write (0, 1)" if name == "dims" else "write (height, width)"
        raise InputError(message(f"{name} of two whole numbers", repr(value), do))
    return int(numbers[0]), int(numbers[1])
