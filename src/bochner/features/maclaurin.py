"""Random Maclaurin features of dot-product kernels (Kar and Karnick 2012): products of random
signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.errors import InputError, message


@dataclass(frozen=True)
class MaclaurinPoints:
    """Random signs of every column and degree; columns in order of falling degree.

    Attributes
    ----------
    signs : tuple of Tensor
        ``signs[i]`` of shape (number of columns of degree above i, d): the factors of position i,
        +1 or -1.
    amplitude : Tensor of shape (K,)
    """

    signs: tuple[Tensor, ...]
    amplitude: Tensor


def check_coefficients(coefficients: Sequence[float]) -> None:
    """Refuse coefficients of a kernel that has no Maclaurin features.

    Raises
    ------
    InputError
        A coefficient is negative, or all are zero.
    """
    least = min(coefficients)
    if least < 0:
        got = f"{least:.4g} for degree {list(coefficients).index(least)}"
        do = "use KreinFeatures for kernels with negative coefficients"
        raise InputError(message("Maclaurin coefficients of which none is negative", got, do))
    if not any(a > 0 for a in coefficients):
        do = "give a positive coefficient"
        raise InputError(message("a kernel that is not zero", "coefficients of zeros", do))


def draw(
    coefficients: Sequence[float], n_columns: int, dim: int, source: torch.Generator
) -> MaclaurinPoints:
    """Draw a degree n with probability proportional to 2^-n for every column, and n vectors of
    random signs.

    Parameters
    ----------
    coefficients : sequence of float
        a_n of k = sum_n a_n <x, y>^n, none negative; degrees with a_n = 0 are not drawn, and where
        all are zero, so are the columns.
    n_columns : int
        K.
    dim : int
        d.
    source : torch.Generator
    """
    a = torch.as_tensor([float(c) for c in coefficients], dtype=torch.float64)
    if not bool((a > 0).any()):
        return MaclaurinPoints((), torch.zeros(n_columns, dtype=torch.float64))
    # far degrees have no probability left in double precision; they are refused by the weights
    # below, never biased
    weight = torch.where(
        a > 0, 0.5 ** torch.arange(len(a), dtype=torch.float64), torch.zeros_like(a)
    )
    probability = weight / weight.sum()
    degree = torch.multinomial(probability, n_columns, replacement=True, generator=source)
    degree = degree.sort(descending=True).values
    amplitude = (a[degree] / (probability[degree] * n_columns)).sqrt()
    counts = [int((degree > i).sum()) for i in range(int(degree.max()))]
    signs = tuple(
        2.0 * torch.randint(2, (count, dim), generator=source, dtype=torch.float64) - 1.0
        for count in counts
    )
    return MaclaurinPoints(signs, amplitude)


def maclaurin_features(x: Tensor, points: MaclaurinPoints) -> Tensor:
    """Return the features of the rows of x: amplitude times the product of the projections on the
    signs.

    Parameters
    ----------
    x : Tensor of shape (n, d)
    points : MaclaurinPoints

    Returns
    -------
    Tensor of shape (n, K)
    """
    columns = points.amplitude.to(x)[None, :].expand(x.shape[0], -1)
    # columns without a further factor, those of degree 0 first
    finished = []
    for signs in points.signs:
        count = signs.shape[0]
        finished.append(columns[:, count:])
        columns = columns[:, :count] * (x @ signs.to(x).T)
    return torch.cat([columns, *reversed(finished)], 1)
