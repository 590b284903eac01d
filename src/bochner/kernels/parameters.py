"""Constructor arguments as parameters, as scikit-learn clones and searches them."""

from __future__ import annotations

import math
from typing import Any, Self

from bochner.errors import InputError


def number(value: object) -> float:
    """Return a number as a float, NaN where it is none: no comparison holds for it."""
    if isinstance(value, str | bytes | bool):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan


class HasParameters:
    """What is made anew when an argument of its constructor is replaced.

    Subclasses keep every argument in ``_params``, or say in ``_given`` where they are.
    """

    _params: dict[str, Any]

    def _given(self) -> dict[str, Any]:
        return dict(self._params)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's signature
        """Return the constructor's arguments, the very objects that were passed.

        Parameters
        ----------
        deep : bool, default=True
            Ignored: scikit-learn's signature.

        Returns
        -------
        dict
        """
        return self._given()

    def set_params(self, **params: Any) -> Self:
        """Build this anew with some constructor arguments replaced.

        Parameters
        ----------
        **params
            New values by name.

        Returns
        -------
        self

        Raises
        ------
        InputError
            A name is unknown, or a value is refused; this stays as it was.
        """
        known = self._given()
        unknown = sorted(set(params) - set(known))
        if unknown:
            raise InputError(
                f"{type(self).__name__} has no parameter {unknown[0]!r}. It has: {sorted(known)}."
            )
        # what is refused is refused here: half of this would be made anew
        type(self)(**{**known, **params})
        self.__init__(**{**known, **params})  # type: ignore[misc]
        return self
