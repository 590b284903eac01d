"""Signatures and docstrings of sibling estimators: what they share with one of them is written once
and shown by all.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_SHARED = ("Parameters", "Attributes")

C = TypeVar("C", bound=type)
Init = TypeVar("Init", bound=Callable[..., None])


def shares_parameters(base: type, without: Sequence[str] = ()) -> Callable[[Init], Init]:
    """Return a decorator of an ``__init__`` that hands ``**shared`` on to that of ``base``: its
    signature then names what may be shared, and anything else is refused.

    Parameters
    ----------
    base : type
        Its ``__init__`` names the shared parameters and their defaults.
    without : sequence of str
        Those that the class does not take.

    Returns
    -------
    callable
    """

    def complete(init: Init) -> Init:
        signature = inspect.signature(init)
        named = {
            name: parameter
            for name, parameter in signature.parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        theirs = inspect.signature(base.__init__).parameters  # type: ignore[misc]
        shared = [theirs[name] for name in theirs if name not in {*named, *without}]
        whole = signature.replace(parameters=[*named.values(), *shared])

        @functools.wraps(init)
        def checked(*args: object, **given: object) -> None:
            try:
                whole.bind(*args, **given)
            except TypeError as error:
                raise TypeError(f"{init.__qualname__}() {error}") from None
            init(*args, **given)

        checked.__signature__ = whole  # type: ignore[attr-defined]
        return cast(Init, checked)

    return complete


def described_by(base: type) -> Callable[[C], C]:
    """Return a decorator that adds the parameters and attributes of ``base`` which a class does not
    describe itself.

    Parameters
    ----------
    base : type
        Its docstring has all of them; parameters that the class does not take are left out.

    Returns
    -------
    callable
    """

    def complete(cls: C) -> C:
        sections = _sections(cls)
        theirs = _sections(base)
        for section in _SHARED:
            entries = _entries(sections.get(section, ""))
            said = {name for entry in entries for name in _names(entry)}
            shared = _entries(theirs.get(section, ""))
            entries = {
                entry: text
                for entry, text in shared.items()
                if not said.issuperset(_names(entry))
            } | entries
            sections[section] = "\n".join(
                entries[name] for name in _order(cls, section, sections, entries)
            )
        cls.__doc__ = _joined(sections)
        return cls

    return complete


def _order(
    cls: type, section: str, sections: dict[str, str], entries: dict[str, str]
) -> Iterable[str]:
    """Parameters as in the signature; attributes of the class's own first."""
    if section == "Parameters":
        return [name for name in inspect.signature(cls).parameters if name in entries]
    return dict.fromkeys([*_entries(sections.get(section, "")), *entries])


def _sections(cls: type) -> dict[str, str]:
    """Text by section, the summary under "", in the order that numpydoc wants."""
    parts = _HEADING.split(inspect.cleandoc(cls.__doc__ or ""))
    return (
        {"": parts[0]}
        | dict.fromkeys(_SHARED, "")
        | dict(zip(parts[1::2], parts[2::2], strict=True))
    )


def _entries(text: str) -> dict[str, str]:
    """Blocks of a section by the name that they begin with: a line without indent begins one."""
    blocks = re.split(r"\n(?=\S)", text.strip())
    return {block.split(" : ")[0].split("\n")[0]: block for block in blocks if block}


def _names(entry: str) -> list[str]:
    """Return what is described together: "elbo_, elbo_se_" are two."""
    return entry.split(", ")


def _joined(sections: dict[str, str]) -> str:
    titled = [
        f"{title}\n{'-' * len(title)}\n{text.strip()}\n"
        for title, text in sections.items()
        if title and text
    ]
    return "\n".join([sections[""].strip() + "\n", *titled])
