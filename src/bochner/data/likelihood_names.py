"""Likelihoods by name, and what others call them: known before anything heavy is imported."""

from __future__ import annotations

import difflib

from bochner.errors import InputError, message

LIKELIHOODS = (
    "auto",
    "bernoulli",
    "binomial",
    "categorical",
    "gaussian",
    "negative_binomial",
    "poisson",
)
_ALIASES = {
    "binary": "bernoulli",
    "logistic": "bernoulli",
    "multinomial": "categorical",
    "nb": "negative_binomial",
    "negbin": "negative_binomial",
    "negbinomial": "negative_binomial",
    "normal": "gaussian",
}


def unknown_likelihood(name: object, view: str | None = None) -> InputError:
    """Return what refuses a name that no likelihood has, with the one that is meant where that can
    be told.

    Parameters
    ----------
    name : object
        What was given where a name is expected.
    view : str, optional
        The view it was given for.

    Returns
    -------
    InputError
        To be raised.
    """
    typed = str(name).lower().replace("-", "_").replace(" ", "_")
    close = difflib.get_close_matches(typed, LIKELIHOODS, n=1)
    meant = _ALIASES.get(typed, close[0] if close else None)
    do = f"write {meant!r}" if meant else f"choose from {', '.join(LIKELIHOODS)}"
    expected = "the name of a likelihood" + ("" if view is None else f" for view {view!r}")
    return InputError(message(expected, repr(name), do))
