"""Which views are images: told by the caller, or found in how neighbours resemble each other."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from bochner.data.accepted import pair
from bochner.data.arrays import FloatArray
from bochner.errors import InputError, message, shown

Shape = tuple[int, int]

# Squares below 8 x 8 are too few pixels to tell an image from a table.
_LEAST_SIDE = 8
# Neighbours of an image differ by less than this share of what any two pixels differ by, and about
# as much in both directions: columns that follow each other in time differ far less along the lines
# than across them.
_ALIKE = 0.7
_LOPSIDED = 4.0


def parse_shapes(specs: Sequence[str]) -> dict[str, Shape]:
    """Turn ``view=28x28`` into shapes: height, then width.

    Raises
    ------
    InputError
        A specification of another form, or a view given twice.
    """
    shapes: dict[str, Shape] = {}
    for spec in specs:
        parts = re.fullmatch(r"(.+)=(\d{1,9})[x×](\d{1,9})", spec)
        if parts is None:
            raise InputError(
                message("--shape VIEW=HEIGHTxWIDTH", shown(spec), "write --shape left=28x28")
            )
        if parts[1] in shapes:
            raise InputError(
                message("every view once", f"--shape {parts[1]}=... twice", "drop one")
            )
        shapes[parts[1]] = (int(parts[2]), int(parts[3]))
    return shapes


def check_shapes(shapes: Mapping[str, object], widths: Mapping[str, int]) -> dict[str, Shape]:
    """Check that every shape belongs to a view and has as many pixels as that view has columns."""
    checked: dict[str, Shape] = {}
    for view, shape in shapes.items():
        if view not in widths:
            raise InputError(
                message(
                    f"shapes for views from {list(widths)}", f"one for {view!r}", "name a view"
                )
            )
        sides = pair(f"the shape of {view!r}", shape)
        if min(sides) < 1 or sides[0] * sides[1] != widths[view]:
            got = f"{' x '.join(map(str, sides))} = {math.prod(sides)}"
            want = f"a shape of {widths[view]} pixels for view {view!r}"
            raise InputError(message(want, got, "give height and width of one image"))
        checked[view] = sides
    return checked


def guess_shape(values: FloatArray) -> Shape | None:
    """Guess whether columns are the pixels of square images.

    Parameters
    ----------
    values : ndarray of shape (n, M)
        Some rows, NaN = missing.

    Returns
    -------
    (int, int) or None
        A shape only where neighbours in both directions are much more alike than columns at random.
    """
    side = math.isqrt(values.shape[1])
    if side * side != values.shape[1] or side < _LEAST_SIDE:
        return None
    images = np.nan_to_num(values, nan=float(np.nanmean(values))).reshape(-1, side, side)
    # expected squared difference of two pixels of one image
    any_two = 2 * float(images.var(axis=(1, 2)).mean())
    down, across = (float((np.diff(images, axis=axis) ** 2).mean()) for axis in (1, 2))
    alike = max(down, across) < _ALIKE * any_two and max(down, across) < _LOPSIDED * min(
        down, across
    )
    return (side, side) if alike else None
