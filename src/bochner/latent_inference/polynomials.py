"""Polynomials on an interval or a square, from their values at points that suit it."""

from __future__ import annotations

import functools
import itertools

import torch
from torch import Tensor

# Degree of the polynomials.
DEGREE = 12


class Polynomials:
    """Polynomials of total degree on the square [-1, 1]^D, which values at as many points tell.

    Parameters
    ----------
    dim : int
        1: Chebyshev's extrema; 2: the Padua points, at which interpolation is nearly as good.
    """

    def __init__(self, dim: int) -> None:
        p = DEGREE
        first = torch.arange(p + 1, dtype=torch.float64).mul(torch.pi / p).cos()
        second = torch.arange(p + 2, dtype=torch.float64).mul(torch.pi / (p + 1)).cos()
        if dim == 1:
            self.index = torch.arange(p + 1)[None]
            self.nodes = first[:, None]
        else:
            pairs = itertools.product(range(p + 1), repeat=2)
            self.index = torch.tensor([pair for pair in pairs if sum(pair) <= p]).T
            places = itertools.product(range(p + 1), range(p + 2))
            some = torch.tensor([pair for pair in places if sum(pair) % 2 == 0]).T
            self.nodes = torch.stack([first[some[0]], second[some[1]]], dim=1)
        directions, triangle = torch.linalg.qr(self.at(self.nodes)[0].T)
        self.coefficients = torch.linalg.solve_triangular(triangle, directions.T, upper=True)

    def at(self, u: Tensor) -> list[Tensor]:
        """Return all polynomials, and their derivatives along each dimension and along each pair of
        them, (T, P), at points (P, D).
        """
        along = [_chebyshev(u[:, d]) for d in range(u.shape[1])]
        columns = [part[:, index] for part, index in zip(along, self.index, strict=True)]
        orders = sorted(itertools.product(range(3), repeat=u.shape[1]), key=_order)
        out = []
        for order in orders:
            if sum(order) <= 2:
                parts = [column[r] for column, r in zip(columns, order, strict=True)]
                out.append(functools.reduce(torch.mul, parts))
        return out

    def evaluate(self, terms: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values, gradients and Hessians of P polynomials, (T, P), at a point each."""
        sums = [(terms * part).sum(0) for part in self.at(u)]
        if u.shape[1] == 1:
            return sums[0], sums[1][:, None], sums[2][:, None, None]
        value, first, second, along, across, beside = sums
        hessian = torch.stack([along, across, across, beside], dim=1).reshape(-1, 2, 2)
        return value, torch.stack([first, second], dim=1), hessian


def _order(order: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return sum(order), tuple(-r for r in order)


def _chebyshev(u: Tensor) -> Tensor:
    """Return Chebyshev's polynomials with two derivatives, (3, degree + 1, P)."""
    out = u.new_zeros(3, DEGREE + 1, len(u))
    out[0, 0], out[0, 1], out[1, 1] = 1.0, u, 1.0
    twice = 2.0 * u
    for k in range(2, DEGREE + 1):
        out[:, k] = twice * out[:, k - 1] - out[:, k - 2]
        out[1, k].add_(out[0, k - 1], alpha=2.0)
        out[2, k].add_(out[1, k - 1], alpha=4.0)
    return out
