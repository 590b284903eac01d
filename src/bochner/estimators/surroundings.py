"""What a program sets for all of torch (gradients off, autocast, a device) must not change what estimators do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def undisturbed(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method run as it would in a program that sets nothing; the program's settings stand again afterwards."""

    @functools.wraps(method)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with ExitStack() as settings:
            settings.enter_context(torch.inference_mode(False))
            settings.enter_context(torch.enable_grad())
            for kind in ("cpu", "cuda"):
                if torch.is_autocast_enabled(kind):
                    settings.enter_context(torch.autocast(kind, enabled=False))
            # only then: a context of a device makes every operation slower
            if torch.get_default_device().type != "cpu":
                settings.enter_context(torch.device("cpu"))
            return method(*args, **kwargs)

    return alone
