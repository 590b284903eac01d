"""The exceptions and warnings of the package, and the one way their messages are written."""

from __future__ import annotations

import sys
import warnings

# Whose lines are not what a warning is about: those of Python's own decorators stand between ours.
_BETWEEN = frozenset(
    {"bochner", "sklearn", "torch", "numpy", "joblib", "contextlib", "functools"}
)
# Characters of a value in a message.
_LONGEST = 60


class BochnerError(Exception):
    """Base of every exception this package raises on purpose."""


class InputError(BochnerError, ValueError):
    """The caller's data or parameters cannot be used; the message says what to change.

    Attributes
    ----------
    row : int, optional
        Of the rows that were given, which the message is about.
    process : int, optional
        Of several, which refused it.
    """

    def __init__(
        self, *args: object, row: int | None = None, process: int | None = None
    ) -> None:
        super().__init__(*args)
        self.row = row
        self.process = process


class ModelFileError(InputError):
    """A model or checkpoint file cannot be read."""


class StorageError(BochnerError, OSError):
    """A file could not be written: the disk is full or fails. The file that was there is whole."""


class NumericalError(BochnerError, ArithmeticError):
    """A factorisation or a bound stayed non-finite after every remedy."""


class DataWarning(UserWarning):
    """The data can be used, but something in them deserves a look."""


class NumericalWarning(RuntimeWarning):
    """A computation needed a remedy (jitter, roll back); the result is finite."""


class StorageWarning(UserWarning):
    """A checkpoint could not be written; training goes on without it."""


class CollapseWarning(UserWarning):
    """Latent dimensions carry nothing; the message says what to change."""


def printable(text: str) -> str:
    """Return a text without control characters: they are written as escapes (``\\x1b``).

    A name or a path from a file can so not move the cursor, colour or rewrite what a terminal
    shows, nor turn the direction of what follows.
    """
    return "".join(
        c if c.isprintable() or c == " " else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def message(expected: str, got: str, do: str) -> str:
    """Write an error: what was expected, what came, what to do next.

    Parameters
    ----------
    expected, got, do : str
        Clauses; a full stop ends the second and the third where they have no mark at their end.

    Returns
    -------
    str
        ``"Expected {expected}, got {got}. {Do}."``
    """
    return printable(
        f"Expected {expected}, got {_ended(got)} {do[:1].upper()}{_ended(do[1:])}"
    )


def _ended(clause: str) -> str:
    """Return a clause with one mark at its end, which what it quotes may have."""
    clause = clause.rstrip(" ,:;")
    marked = clause.rstrip("'\"").endswith((".", "?", "!", "…"))
    return clause if marked else f"{clause}."


def shown(value: object) -> str:
    """Return a value as a message quotes it: of a long one the beginning, on one line."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        # to users np.int64(2) is 2
        value = value.item()  # type: ignore[attr-defined]
    text = " ".join(line.strip() for line in repr(value).splitlines())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip(' ,:;')}…"


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn at the line of the program that called the package, however many calls of libraries lie
    between.
    """
    frame = sys._getframe(1)
    level = 2
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN
    ):
        frame = frame.f_back
        level = level + 1
    warnings.warn(text, category, stacklevel=level)
