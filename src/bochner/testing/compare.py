"""Assertions that name the law, the object and by how much it fails."""

from __future__ import annotations

from torch import Tensor


def holds(condition: bool | Tensor, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds.

    An ``assert`` would vanish under ``python -O``.
    """
    if not bool(condition):
        raise AssertionError(message)


def close(actual: Tensor, expected: Tensor, message: str, *, rtol: float, atol: float) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere.

    Parameters
    ----------
    actual, expected : Tensor
        Of shapes that broadcast.
    message : str
        What was expected; the entry that is worst is added.
    rtol, atol : float
    """
    actual, expected = (part.detach().double() for part in (actual, expected))
    excess = (actual - expected).abs() - (atol + rtol * expected.abs())
    excess = excess.nan_to_num(nan=float("inf"), posinf=float("inf"))
    if not excess.numel() or float(excess.max()) <= 0.0:
        return
    worst = int(excess.argmax())
    got, wanted = (
        float(part.expand(excess.shape).flatten()[worst]) for part in (actual, expected)
    )
    raise AssertionError(f"{message}: expected {wanted:.6g}, got {got:.6g}.")
