"""What files must hold: one data class per object, read key by key, and tensors by shape.

A file that passes names nothing unknown, lacks nothing, holds finite numbers alone, and asks for
no more memory than it brings.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from bochner.errors import ModelFileError, message
from bochner.io.files import repair

T = TypeVar("T")

_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_TYPES = {
    "d": (torch.float64,),
    "f": (torch.float64, torch.float32),
    "i": (torch.int64,),
}
# Characters of a value that a message shows.
_SHOWN = 40


class MismatchError(Exception):
    """A part of a file is not what it should be; the text names the part."""


@contextmanager
def whole(name: str, kind: str) -> Iterator[None]:
    """Turn what goes wrong while the parts of a file are put together into one error.

    Parameters
    ----------
    name : str
        Of the file.
    kind : str
        ``"model"`` or ``"checkpoint"``.

    Raises
    ------
    ModelFileError
        Naming the part.
    """
    try:
        yield
    except ModelFileError:
        raise
    except (
        *(MismatchError, LookupError, TypeError, ValueError, ArithmeticError),
        *(AttributeError, RuntimeError, AssertionError, MemoryError),
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        got = f"{name}, which does not fit together ({reason})"
        raise ModelFileError(
            message(f"a whole bochner {kind} file", got, repair(kind))
        ) from error


def parse(kind: type[T], value: object, place: str) -> T:
    """Read an object of a data class from JSON.

    Parameters
    ----------
    kind : type
        A data class. Its fields are numbers, texts, lists, dictionaries, data classes, or None;
        `object` is any JSON.
    value : object
    place : str
        Of the value in the file, for messages.

    Raises
    ------
    MismatchError
        A key is unknown or missing, or its value of another kind or not finite.
    """
    parsed: T = _parsed(kind, value, place)
    return parsed


def _parsed(kind: object, value: object, place: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, place)
    origin = get_origin(kind)
    parts = get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(parts, value, place)
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise _wrong(place, "a list", value)
        items = [_parsed(parts[0], item, f"{place}[{i}]") for i, item in enumerate(value)]
        return items if origin is list else tuple(items)
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(place, "an object", value)
        return {
            key: _parsed(parts[1], item, f"{place}[{key!r}]") for key, item in value.items()
        }
    return _plain(kind, value, place)


def _record(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(place, "an object", value)
    kinds = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    for key in value:
        if key not in names:
            raise MismatchError(f"{place} has the unknown key {key!r}")
    for name in names:
        if name not in value:
            raise MismatchError(f"{place} lacks the key {name!r}")
    return kind(
        **{name: _parsed(kinds[name], value[name], f"{place}.{name}") for name in names}
    )


def _one_of(kinds: Sequence[object], value: object, place: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    rest = [kind for kind in kinds if kind is not types.NoneType]
    for kind in rest[:-1]:
        try:
            return _parsed(kind, value, place)
        except MismatchError:
            continue
    return _parsed(rest[-1], value, place)


def _plain(kind: Any, value: Any, place: str) -> Any:
    if kind in (object, Any):
        return _finite(value, place)
    fits = type(value) is kind or (kind is float and type(value) is int)
    if not fits:
        raise _wrong(place, _WORDS[kind], value)
    return float(_finite(value, place)) if kind is float else value


def _finite(value: object, place: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(place, "a finite number", value)
    if isinstance(value, dict):
        for item in value.values():
            _finite(item, place)
    if isinstance(value, list):
        for item in value:
            _finite(item, place)
    return value


def _wrong(place: str, expected: str, value: object) -> MismatchError:
    text = repr(value)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return MismatchError(f"{place} is {text} in place of {expected}")


class Tensors:
    """The tensors of a file, each taken once.

    Parameters
    ----------
    tensors : dict of str to Tensor
    """

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._left = dict(tensors)
        self.n_entries = sum(tensor.numel() for tensor in tensors.values())

    def __contains__(self, name: str) -> bool:
        """Tell whether a tensor of this name is left."""
        return name in self._left

    def take(self, name: str, *shape: int | None, kind: str = "d") -> Tensor:
        """Return a tensor, which must be there.

        Parameters
        ----------
        name : str
        *shape : int or None
            Its shape; None is any size.
        kind : {"d", "f", "i"}
            Fractions in double precision, in any, or whole numbers.

        Raises
        ------
        MismatchError
            It is missing, of another shape or kind, or not finite.
        """
        if name not in self._left:
            raise MismatchError(f"the tensor {name!r} is missing")
        tensor = self._left.pop(name)
        sizes = tuple(tensor.shape)
        fits = len(sizes) == len(shape)
        if not (fits and all(s is None or s == o for s, o in zip(shape, sizes, strict=True))):
            expected = tuple("any" if s is None else s for s in shape)
            raise MismatchError(
                f"the tensor {name!r} has the shape {sizes} in place of {expected}"
            )
        return _checked(name, tensor, kind)

    def take_if_there(self, name: str, *shape: int | None) -> Tensor | None:
        """Return a tensor of fractions, None where it is missing."""
        return self.take(name, *shape) if name in self._left else None

    def take_all(self, prefix: str) -> dict[str, Tensor]:
        """Return the finite tensors whose names begin so, by the rest of their names."""
        names = [name for name in self._left if name.startswith(prefix)]
        taken = {name: self._left.pop(name) for name in names}
        return {
            name[len(prefix) :]: _checked(
                name, tensor, "f" if tensor.is_floating_point() else "i"
            )
            for name, tensor in taken.items()
        }

    def finish(self) -> None:
        """Refuse what nobody took."""
        if self._left:
            raise MismatchError(f"the tensor {min(self._left)!r} is unknown")


# Squares and products of larger numbers leave double precision; scaled data have none.
LARGEST = 1e100


def _checked(name: str, tensor: Tensor, kind: str) -> Tensor:
    if tensor.dtype not in _TYPES[kind]:
        raise MismatchError(f"the tensor {name!r} is of the type {tensor.dtype}")
    if kind != "i" and not bool(tensor.isfinite().all()):
        raise MismatchError(f"the tensor {name!r} is not finite")
    if kind != "i" and bool((tensor.abs() > LARGEST).any()):
        got = f"holds {float(tensor.abs().max()):.3g}, beyond {LARGEST:g}"
        raise MismatchError(f"the tensor {name!r} {got}")
    return tensor


def check_sizes(value: object, most: int, place: str) -> None:
    """Refuse whole numbers that ask for more entries than the file has: they are sizes."""
    if isinstance(value, dict):
        for key, item in value.items():
            check_sizes(item, most, f"{place}.{key}")
    elif isinstance(value, list):
        for item in value:
            check_sizes(item, most, place)
    elif isinstance(value, int) and not isinstance(value, bool) and not 0 <= value <= most:
        raise _wrong(place, f"a whole number up to {most:,}", value)


def check_numbers(value: object, place: str) -> None:
    """Refuse numbers that are larger than those of tensors may be."""
    if isinstance(value, dict):
        for key, item in value.items():
            check_numbers(item, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for item in value:
            check_numbers(item, place)
    elif isinstance(value, int | float) and abs(value) > LARGEST:
        raise _wrong(place, f"a number up to {LARGEST:g}", value)


def same_keys(place: str, keys: Any, expected: Sequence[str]) -> None:
    """Refuse an object whose keys are not those of the views, in their order."""
    if list(keys) != list(expected):
        raise MismatchError(f"{place} is about {list(keys)} in place of {list(expected)}")
