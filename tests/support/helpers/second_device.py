"""A device that is not there: tensors "on cuda" that hold their numbers on the processor.

What may not be done with tensors of two devices is refused as CUDA refuses it, and the numbers are
those of the processor to the last bit: a fit there has to be the fit here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# What users call it, and what torch believes: the only other device of every build.
THERE = torch.device("cuda", 0)
_BELIEVED = torch.device("meta")
_INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_")
_ANY_DEVICE = ("copy_", "_copy_from", "set_")
_INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)


class There(torch.Tensor):
    """A tensor on the second device."""

    held: torch.Tensor
    device = property(lambda _: THERE)  # type: ignore[assignment]
    is_meta = property(lambda _: False)  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> There:
        out = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=_BELIEVED,
        )
        out.held = held
        return out

    def __repr__(self, **_: object) -> str:
        return f"There({self.held!r})"

    def numpy(self, **_: object) -> np.ndarray:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return self.numpy()

    def tolist(self) -> object:
        return self.held.tolist()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func == torch.Tensor.data.__set__ and isinstance(args[0], There):
            args[0].held = args[1].held
        if func == torch.Tensor.new_tensor and isinstance(args[0], There):
            return There(torch.tensor(*args[1:], **{"dtype": args[0].dtype, **(kwargs or {})}))
        if func in _INDEXING:
            args = (args[0], _indices(args[1]), *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


def _indices(index: object) -> object:
    """Lists become tensors here: torch would make them where it believes the tensor is."""
    parts = index if isinstance(index, tuple) else (index,)
    return tuple(
        torch.as_tensor(part) if isinstance(part, list | tuple | np.ndarray) else part
        for part in parts
    )


def _run(func, args, kwargs):
    name = func.overloadpacket.__name__
    tensors = [*_tensors(args), *_tensors(kwargs.values())]
    asked = kwargs.get("device")
    there = any(isinstance(tensor, There) for tensor in tensors)
    _refuse_mixtures(name, args, tensors, there)
    result_there = there if asked is None else torch.device(asked) == _BELIEVED
    source = kwargs.get("generator")
    if source is not None and result_there != (source._cdata in _SOURCES):
        raise RuntimeError(f"{name}: Expected a generator of the device of the result")
    args = _held(args)
    kwargs = {key: _held(value) for key, value in kwargs.items()}
    if asked is not None:
        kwargs["device"] = torch.device("cpu")
    if name == "copy_" and args[0].data_ptr() == args[1].data_ptr():
        # what `out=` of a product does to itself
        return There(args[0])
    out = func(*args, **kwargs)
    if not result_there or name == "_local_scalar_dense":
        return out
    return _moved(out)


# What operations take and return are tensors, sequences of them, and what is neither: torch's own
# functions for trees of any kind take several times as long as the operations.
def _tensors(values: Iterable[object]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _held(value):
    if isinstance(value, There):
        return value.held
    if isinstance(value, list | tuple):
        return type(value)([_held(part) for part in value])
    return value


def _moved(value):
    if type(value) is torch.Tensor:
        return There(value)
    if isinstance(value, list | tuple):
        return type(value)([_moved(part) for part in value])
    return value


def _refuse_mixtures(name: str, args, tensors, there: bool) -> None:
    """Numbers of no dimension and, of what is indexed, the indices may lie here."""
    if not there or name in _ANY_DEVICE:
        return
    message = (
        f"{name}: Expected all tensors to be on the same device, but found cuda:0 and cpu"
    )
    if name not in _INDEXED:
        if any(not isinstance(tensor, There) and tensor.dim() for tensor in tensors):
            raise RuntimeError(message)
        return
    values = args[2] if len(args) > 2 else None
    if isinstance(args[0], There):
        mixed = values is not None and values.dim() and not isinstance(values, There)
    else:
        mixed = any(isinstance(part, There) for part in args[1]) or (
            isinstance(values, There) and values.dim()
        )
    if mixed:
        raise RuntimeError(message)


class _Names(TorchFunctionMode):
    """What names the second device gets what torch believes it to be."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        asked = [v for v in (*args, *kwargs.values()) if isinstance(v, str | torch.device)]
        if func is not torch.device and any(str(v).startswith("cuda") for v in asked):
            if func in (torch.tensor, torch.as_tensor):
                del kwargs["device"]
                out = func(*args, **kwargs)
                return out if isinstance(out, There) else There(out)
            args = tuple(map(_believed, args))
            kwargs = {name: _believed(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _believed(value: object) -> object:
    named = isinstance(value, str | torch.device) and str(value).startswith("cuda")
    return _BELIEVED if named else value


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


# Generators of the second device: torch knows them by their address alone.
_SOURCES: dict[int, torch.Generator] = {}


class _Source(torch.Generator):
    def __new__(cls, device: torch.device | str = "cpu") -> _Source:
        out = super().__new__(cls)
        out._where = torch.device(device)
        # the address may be that of another, which is no more
        _SOURCES.pop(out._cdata, None)
        if out._where.type == "cuda":
            _SOURCES[out._cdata] = out
        return out

    @property
    def device(self) -> torch.device:
        return THERE if self._where.type == "cuda" else self._where


@contextmanager
def second_device() -> Iterator[str]:
    """Have a device "cuda" in this thread; yields its name."""
    with mock.patch.object(torch, "Generator", _Source), _Names(), _Operations():
        try:
            yield "cuda"
        finally:
            _SOURCES.clear()
