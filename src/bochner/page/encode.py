"""Arrays in a page: rounded to a range, compressed, as text."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bochner.data.arrays import FloatArray

# Browsers unpack this format themselves (DecompressionStream("deflate")): no library of ours rides
# along.
_LEVEL = 6
_MANY = 50_000


@dataclass(frozen=True)
class Packed:
    """A compressed array.

    Attributes
    ----------
    dtype : str
        NumPy's name, little endian: "float32", "float64", "uint8", "uint16", "int32".
    shape : tuple of int
    body : bytes
        Deflated.
    low, step : ndarray of shape (C,), or None
        Of codes: value = low + step * code in every column; the largest code of the type stands for
        missing.
    """

    dtype: str
    shape: tuple[int, ...]
    body: bytes
    low: FloatArray | None = None
    step: FloatArray | None = None

    @property
    def size(self) -> int:
        """Bytes in the page."""
        return 4 * -(-len(self.body) // 3)

    def to_json(self) -> dict[str, object]:
        """Return what the page unpacks."""
        text = base64.b64encode(self.body).decode("ascii")
        scale = (
            {}
            if self.low is None or self.step is None
            else {"low": _short(self.low), "step": _short(self.step)}
        )
        return {"dtype": self.dtype, "shape": list(self.shape), "body": text, **scale}


def pack(array: NDArray[np.generic]) -> Packed:
    """Compress an array as it is, float64 as float32."""
    kept = array.astype(np.float32) if array.dtype == np.float64 else array
    return Packed(kept.dtype.name, kept.shape, _deflate(kept))


def pack_numbers(numbers: NDArray[np.float64]) -> Packed:
    """Compress numbers that are read and exported: as float32 where that holds all their digits,
    else as float64.

    Of very many numbers, float32 need hold no more than whole numbers, and others to a millionth
    of their range: float64 would take most of the page.
    """
    known = numbers[np.isfinite(numbers)]
    with np.errstate(over="ignore"):
        short = known.astype(np.float32)
    if len(known) <= _MANY:
        # the page writes seven digits of a float32
        held = [float(f"{value:.7g}") for value in short.tolist()] == known.tolist()
    else:
        away = np.abs(short - known)
        least = np.where(known == np.rint(known), 0.0, 1e-6 * np.ptp(known))
        held = bool(np.all(away <= least))
    return pack(numbers) if held else Packed("float64", numbers.shape, _deflate(numbers))


def quantise(values: FloatArray, low: FloatArray, high: FloatArray, bits: int) -> Packed:
    """Round columns to whole numbers of 8 or 16 bits between their limits.

    Parameters
    ----------
    values : ndarray of shape (n, C)
        NaN = missing; values beyond the limits are moved to them.
    low, high : ndarray of shape (C,)
        Limits of every column; a column whose limits agree is constant.
    bits : {8, 16}

    Returns
    -------
    Packed
        Within half a step, (high - low) / (2**bits - 2), of the values.
    """
    dtype = np.dtype(np.uint8 if bits == 8 else np.uint16)
    missing = 2**bits - 1
    width = np.where(high > low, high - low, 1.0)
    with np.errstate(invalid="ignore"):
        codes = np.clip(np.rint((values - low) / width * (missing - 1)), 0, missing - 1)
    whole = np.where(np.isnan(values), missing, codes).astype(dtype)
    return Packed(dtype.name, whole.shape, _deflate(whole), low, width / (missing - 1))


def script_json(value: object) -> str:
    """Write JSON that is safe inside a script element, whatever text it holds: no ``</script>``, no
    ``<!--``.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def finite(value: object) -> object:
    """Replace numbers that JSON has no word for by None, arrays and NumPy numbers by plain ones."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return (
        value if value is None or isinstance(value, bool | int | float | str) else repr(value)
    )


def _deflate(array: NDArray[np.generic]) -> bytes:
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
    return zlib.compress(little.tobytes(), _LEVEL)


def _short(values: FloatArray) -> list[float]:
    """Seven digits are more than a screen shows. One number where all agree."""
    rounded = [float(f"{value:.7g}") for value in values.tolist()]
    return rounded[:1] if len(set(rounded)) == 1 else rounded
