"""Block coordinate ascent as a general piece: order, records, and closed-form blocks that never
lower the bound.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from bochner.dirichlet_process.coordinate_ascent import Block, CoordinateAscent

A = torch.tensor([[2.0, 0.9, 0.3], [0.9, 1.5, -0.4], [0.3, -0.4, 1.0]], dtype=torch.float64)
B = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)


def quadratic():
    """b'x - x'Ax/2 with one exact block per coordinate."""
    x = torch.zeros(3, dtype=torch.float64)

    def exact(i: int):
        def update(_: int) -> None:
            x[i] = (B[i] - A[i] @ x + A[i, i] * x[i]) / A[i, i]

        return update

    blocks = [Block(f"x{i}", exact(i), exact=True) for i in range(3)]
    return x, CoordinateAscent(blocks, lambda _: float(B @ x - 0.5 * x @ A @ x))


def test_exact_blocks_climb_to_the_optimum():
    x, ascent = quadratic()
    history = ascent.run(200, tol=1e-14)
    values = [bound for _, _, bound in history]
    assert all(b >= a - 1e-13 for a, b in itertools.pairwise(values))
    assert values[2] > values[0]
    torch.testing.assert_close(x, torch.linalg.solve(A, B), rtol=0, atol=1e-6)
    assert len(history) < 3 * 200, "stops when a sweep brings nothing"


def test_the_bound_is_recorded_after_every_block_in_order():
    _, ascent = quadratic()
    history = ascent.run(2)
    assert [(sweep, name) for sweep, name, _ in history] == [
        (n, f"x{i}") for n in (0, 1) for i in range(3)
    ]


def test_blocks_of_a_sweep_share_what_depends_on_its_number():
    asked: list[tuple[str, int]] = []
    blocks = [Block(name, lambda n, name=name: asked.append((name, n))) for name in ("a", "b")]

    def bound(n: int) -> float:
        asked.append(("bound", n))
        return float(n)

    CoordinateAscent(blocks, bound).sweep(7)
    assert asked == [("a", 7), ("bound", 7), ("b", 7), ("bound", 7)]


def test_no_sweep_no_history():
    assert quadratic()[1].run(0) == []
    assert CoordinateAscent([], lambda _: 0.0).sweep(0) == []


def test_blocks_are_values():
    with pytest.raises(AttributeError):
        Block("a", lambda _: None).name = "b"  # type: ignore[misc]
