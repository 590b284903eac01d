"""How far a kernel matrix of random features may be from the exact one.

Both functions bound P(||K_hat - K||_2 >= epsilon) for N rows and iid spectral points, H for each of the Q
components with weights alpha. They hold for the stationary mixture and for the paired one alike, and for RBF and
Matern with the single weight ``variance``. Both are often vacuous: they then return 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bochner.errors import InputError


def published_bound(
    epsilon: float, *, n_rows: int, n_frequencies: int, weights: Sequence[float], spectral_norm: float
) -> float:
    """Return the bound as papers 000 (Thm 4) and 001 (Thm 4.3) print it.

    Parameters
    ----------
    epsilon : float
        The deviation in spectral norm, positive.
    n_rows : int
        N.
    n_frequencies : int
        H, spectral points per component; L = 2 H in the papers.
    weights : sequence of Q floats
        alpha, positive.
    spectral_norm : float
        ||K||_2 of the exact kernel matrix.

    Returns
    -------
    float
        Probability, at most 1. Matrix Bernstein has the factor 2 N where the papers print N; the printed
        bound still holds for N >= 4 (MATH.md section 1).

    Raises
    ------
    InputError
        An argument is not positive and finite.
    """
    _check(epsilon, n_rows, n_frequencies, weights, spectral_norm)
    n, c = n_rows, math.hypot(*weights)
    scale = 2 * n * c * (6 * spectral_norm + 3 * n * c * math.sqrt(len(weights)) + 8 * epsilon)
    return min(1.0, n * math.exp(-3 * epsilon**2 * (2 * n_frequencies) / scale))


def sharper_bound(
    epsilon: float, *, n_rows: int, n_frequencies: int, weights: Sequence[float], spectral_norm: float
) -> float:
    """Return the matrix Bernstein bound with the norm of one term, alpha_max N / H, used as it is.

    Parameters
    ----------
    epsilon, n_rows, n_frequencies, weights, spectral_norm
        As in ``published_bound``.

    Returns
    -------
    float
        Probability, at most 1.

    Raises
    ------
    InputError
        An argument is not positive and finite.

    Notes
    -----
    K_hat - K is a sum of Q H centred terms of norm at most R = alpha_max N / H, whose summed second moments
    have norm at most R ||K||_2: 2 N exp(-epsilon^2 / 2 / (R ||K||_2 + R epsilon / 3)).
    """
    _check(epsilon, n_rows, n_frequencies, weights, spectral_norm)
    scale = 2 * n_rows * max(weights) * (3 * spectral_norm + epsilon)
    return min(1.0, 2 * n_rows * math.exp(-3 * epsilon**2 * n_frequencies / scale))


def _check(epsilon: float, n_rows: int, n_frequencies: int, weights: Sequence[float], spectral_norm: float) -> None:
    named = {"epsilon": epsilon, "n_rows": n_rows, "n_frequencies": n_frequencies, "spectral_norm": spectral_norm}
    named["weights"] = min(weights, default=math.nan)
    for name, value in named.items():
        if not (value > 0 and math.isfinite(value)):
            raise InputError(f"{name} must be positive and finite, got {value}.")
