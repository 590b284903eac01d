"""Estimators in a program that sets things for all of torch (gradients off, autocast, a device),
which must not change what they do; and fits that change nothing where they fail.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Concatenate, ParamSpec, TypeVar

import torch

from bochner.errors import warn_user
from bochner.linalg import own_precision

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


# The process in which estimators ran first.
_PROCESS: dict[str, int] = {}


def _warn_of_fork() -> None:
    """Warn once in a process forked from one that ran estimators: the threads it has by name do not
    exist in it.
    """
    first = _PROCESS.setdefault("id", os.getpid())
    if first != os.getpid():
        _PROCESS["id"] = os.getpid()
        if torch.get_num_threads() > 1:
            warn_user(
                "This process was forked from one that used several threads, and may wait for them "
                "for ever. Start it "
                "with joblib or multiprocessing.get_context('spawn'), or call "
                "torch.set_num_threads(1) in it.",
                RuntimeWarning,
            )


def isolated(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method run as it would in a program that sets nothing; the program's settings stand
    again afterwards.
    """

    @functools.wraps(method)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        _warn_of_fork()
        with ExitStack() as settings:
            settings.enter_context(torch.inference_mode(False))
            settings.enter_context(torch.enable_grad())
            settings.enter_context(own_precision())
            # only then: a context of a device makes every operation slower
            if torch.get_default_device().type != "cpu":
                settings.enter_context(torch.device("cpu"))
            return method(*args, **kwargs)

    return alone


def transactional(fit: Callable[Concatenate[S, P], S]) -> Callable[Concatenate[S, P], S]:
    """Let a fit change its estimator at once and at its end: one that fails, or is interrupted,
    changes nothing.
    """

    @functools.wraps(fit)
    def whole(self: S, /, *args: P.args, **kwargs: P.kwargs) -> S:
        attempt = object.__new__(type(self))
        vars(attempt).update(vars(self))
        fit(attempt, *args, **kwargs)
        # one assignment: no interrupt falls into the middle
        self.__dict__ = vars(attempt)
        return self

    return whole
