"""Subclasses that the package defines: other tests of a process define some of their own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any


def concrete(cls: type[Any]) -> Iterator[type[Any]]:
    """Yield each subclass of `cls`, however deep, that the package defines and that can be made."""
    for child in cls.__subclasses__():
        if child.__module__.startswith("bochner.") and not inspect.isabstract(child):
            yield child
        yield from concrete(child)
