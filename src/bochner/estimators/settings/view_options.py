"""What `latent` and `view_weight` ask of single views."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from bochner.errors import InputError, message
from bochner.models.lvm import Layout

# Of n_components: with a dict of latents this value means that nothing was asked for.
DEFAULT = 2
_EXAMPLE = "write latent={'shared': 2, 'private': {'a': 1}}"


def layout(latent: Mapping[str, Any], n_components: int, names: Sequence[str]) -> Layout:
    """Return the layout that is asked for.

    Parameters
    ----------
    latent : mapping
        With "shared", the dimensions of all views (left out: ``n_components``), and "private",
        those of single views.
    n_components : int
    names : sequence of str
        Of the views.

    Raises
    ------
    InputError
        A key, a view or a number is not possible, or ``n_components`` says another number of
        dimensions.
    """
    unknown = sorted(str(key) for key in latent if key not in ("shared", "private"))
    if unknown:
        raise InputError(
            message("latent with the keys 'shared' and 'private'", repr(unknown[0]), _EXAMPLE)
        )
    shared = latent.get("shared", n_components)
    _check_count("latent['shared']", shared, 1)
    private = _private(latent.get("private") or {}, names)
    asked = Layout(int(shared), tuple(private.get(name, 0) for name in names))
    if n_components not in (DEFAULT, asked.shared, asked.n_components):
        want = f"n_components={asked.n_components}, the dimensions of latent together"
        raise InputError(
            message(
                want,
                f"n_components={n_components}",
                "leave n_components out: latent says it all",
            )
        )
    return asked


def _private(private: object, names: Sequence[str]) -> dict[str, int]:
    if not isinstance(private, Mapping):
        raise InputError(
            message(
                "latent['private'] as a dict of view to dimensions", repr(private), _EXAMPLE
            )
        )
    for view, count in private.items():
        if view not in names:
            raise InputError(
                message(
                    f"private latents for views {list(names)}", repr(view), "correct the name"
                )
            )
        _check_count(f"latent['private'][{view!r}]", count, 0)
    counts = {view: int(count) for view, count in private.items()}
    if len(names) == 1 and any(counts.values()):
        hint = "add the dimensions to 'shared', or pass views="
        raise InputError(
            message("several views for private latents", f"one view, {names[0]!r}", hint)
        )
    return counts


def _check_count(name: str, count: object, least: int) -> None:
    if isinstance(count, bool) or not isinstance(count, Integral) or count < least:
        raise InputError(
            message(f"{name} as a whole number of at least {least}", repr(count), _EXAMPLE)
        )


def weights(view_weight: Any, widths: Mapping[str, int]) -> dict[str, float]:
    """Return the weights of the views' terms in training.

    Parameters
    ----------
    view_weight : "balanced" or mapping of view to number
        "balanced" is M / (V M_v), scikit-learn's rule for classes: every view counts as much as an
        average one, and the mean over columns is 1. Views that a mapping leaves out have weight 1.
    widths : mapping of view to int
        M_v, its columns.

    Raises
    ------
    InputError
        A view is unknown or a weight is not a positive number.
    """
    if isinstance(view_weight, str):
        total = sum(widths.values())
        return {view: total / (len(widths) * width) for view, width in widths.items()}
    for view, weight in view_weight.items():
        if view not in widths:
            raise InputError(
                message(
                    f"view_weight for views {list(widths)}", repr(view), "correct the name"
                )
            )
        if (
            isinstance(weight, bool)
            or not isinstance(weight, Real)
            or not 0 < float(weight) < math.inf
        ):
            hint = "choose a number above 0, 1.0 say, or drop the view's columns from X and views="
            raise InputError(
                message(f"a positive view_weight for view {view!r}", repr(weight), hint)
            )
    return {view: float(view_weight.get(view, 1.0)) for view in widths}
