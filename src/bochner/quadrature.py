"""Expectations under a normal distribution by Gauss-Hermite quadrature."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

N_NODES = 20


@functools.lru_cache(maxsize=8)
def normal_nodes(n_nodes: int = N_NODES) -> tuple[Tensor, Tensor]:
    """Return nodes and weights with sum_i w_i f(z_i) = E f(z), z ~ N(0, 1), exact for degrees below
    2 n.

    Parameters
    ----------
    n_nodes : int

    Returns
    -------
    nodes, weights : Tensor of shape (n_nodes,), float64
        The weights sum to 1.

    Notes
    -----
    Golub and Welsch (1969): eigenvalues of the Jacobi matrix of the Hermite polynomials of the
    normal density.
    """
    beside = torch.arange(1, n_nodes, dtype=torch.float64).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(beside, 1) + torch.diag(beside, -1))
    return nodes, vectors[0].square()


def normal_mean(
    f: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor, n_nodes: int = N_NODES
) -> Tensor:
    """Return E f(psi), psi ~ N(mean, variance), elementwise.

    Parameters
    ----------
    f : callable
        Elementwise; called once per node, so that memory stays that of the arguments.
    mean, variance : Tensor of one shape
    n_nodes : int
    """
    deviation, total = variance.sqrt(), torch.zeros_like(mean)
    for node, weight in zip(*(part.tolist() for part in normal_nodes(n_nodes)), strict=True):
        total = total + weight * f(mean + node * deviation)
    return total


def log_normal_mean(
    log_f: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor, n_nodes: int = 9
) -> Tensor:
    """Return log E exp(log_f(psi)), psi ~ N(mean, variance), elementwise; nothing overflows."""
    deviation, parts = variance.sqrt(), []
    for node, weight in zip(*(part for part in normal_nodes(n_nodes)), strict=True):
        parts.append(log_f(mean + float(node) * deviation) + float(weight.log()))
    return torch.stack(parts).logsumexp(0)
