"""From the `view_weight` of an estimator to one number per view."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from bochner.errors import InputError, message


def resolve(view_weight: Any, widths: Mapping[str, int]) -> tuple[float, ...] | None:
    """Return the weights of the views' terms in training; None: all are 1.

    Parameters
    ----------
    view_weight : None, "balanced" or mapping of view to number
        "balanced" is M / (V M_v), scikit-learn's rule for classes: every view counts as much as an
        average one, and the mean over columns is 1. Views that a mapping leaves out have weight 1.
    widths : mapping of view to int
        M_v, its columns.

    Raises
    ------
    InputError
        A view is unknown or a weight is not a positive number.
    """
    if view_weight is None:
        return None
    if isinstance(view_weight, str):
        total = sum(widths.values())
        return tuple(total / (len(widths) * width) for width in widths.values())
    for view, weight in view_weight.items():
        if view not in widths:
            raise InputError(
                message(f"view_weight for views {list(widths)}", repr(view), "correct the name")
            )
        if (
            isinstance(weight, bool)
            or not isinstance(weight, Real)
            or not 0 < float(weight) < math.inf
        ):
            hint = "choose a number above 0, 1.0 say, or leave the view out of views="
            raise InputError(
                message(f"a positive view_weight for view {view!r}", repr(weight), hint)
            )
    return tuple(float(view_weight.get(view, 1.0)) for view in widths)
