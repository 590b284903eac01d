"""Random features of radial functions: directions, and averages of plane waves over them.

The mean of cos(r u.delta) over directions u is a function of r ||delta|| alone, the characteristic
function of a direction; a radial kernel is a (signed) mixture of it over radii.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from bochner import random

# Weights below this are below the last digit.
_NEGLIGIBLE = 1e-18
# Nodes of the rule for the mean over directions: exact to rounding for arguments up to 1.3 times as
# many, and up to 12 sqrt(dim), where the mean is 1e-31.
_NODES = 96
_PER_NODE = 1.3
_WIDTHS = 12.0


@functools.lru_cache(maxsize=32)
def _rule(dim: int, n_nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes u >= 0 and weights of the density of one coordinate of a random direction in dim >= 2.

    Gauss's rule for the weight (1 - u^2)^((dim - 3) / 2) of the Gegenbauer polynomials: its nodes
    lie within the width 1 / sqrt(dim) of the density.
    """
    k = torch.arange(1, n_nodes, dtype=torch.float64)
    degree = k + 0.5 * (dim - 2)
    square = k * (k + dim - 3) / (4.0 * degree * (degree - 1.0).clamp(min=0.5))
    if dim == 2:
        square[0] = 0.5  # the limit
    beside = square.sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(beside, 1) + torch.diag(beside, -1))
    half = n_nodes // 2
    return nodes[half:], 2.0 * vectors[0, half:].square()


def direction_mean(argument: Tensor, dim: int) -> Tensor:
    """Return the mean of cos(s u_1) over directions u of the unit sphere in ``dim`` dimensions,
    elementwise in s.

    Parameters
    ----------
    argument : Tensor of any shape
        s = r ||delta||, radians.
    dim : int

    Returns
    -------
    Tensor of that shape, float64
        Gamma(dim/2) (2/s)^(dim/2 - 1) J_(dim/2 - 1)(s), the characteristic function of a
        coordinate.
    """
    s = argument.double()
    if dim == 1 or not s.numel():
        return s.cos()
    nodes, weights = _rule(dim, _n_nodes(float(s.abs().max()), dim))
    out = torch.zeros_like(s)
    for u, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        if weight > _NEGLIGIBLE:
            out += weight * (s * u).cos()
    return out


def _n_nodes(largest: float, dim: int) -> int:
    """Return an even number of nodes that is enough for arguments up to the largest."""
    enough = _NODES
    while largest > max(_PER_NODE * enough, _WIDTHS * math.sqrt(dim)):
        enough *= 2
    return enough


def directions(n: int, dim: int, source: torch.Generator) -> Tensor:
    """Draw n directions, orthogonal within groups of ``dim``: each is uniform, and they spread
    evenly.

    Returns
    -------
    Tensor of shape (n, dim), float64
    """
    if dim == 1:
        # the sign does not matter to a cosine and its sine
        return torch.ones(n, 1, dtype=torch.float64)
    return random.orthonormal(n, dim, source)
