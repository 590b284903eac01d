"""How far a kernel matrix of random features may be from the exact one.

Two functions bound P(||K_hat - K||_2 >= epsilon) for N rows and iid spectral points, H for each of
the Q components with weights alpha. They hold for the stationary mixture and for the paired one
alike, and for RBF and Matern with the single weight ``variance`` (not for the periodic kernel,
whose features have no fixed norm). Both are often vacuous: they then return 1. Two more solve the
sharper one for the number of frequencies that a standard deviation needs, and for the standard
deviation that a number of frequencies allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bochner.errors import InputError


def published_bound(
    epsilon: float,
    *,
    n_rows: int,
    n_frequencies: int,
    weights: Sequence[float],
    spectral_norm: float,
) -> float:
    """Return the bound as Yang et al. (2025, Theorem 4) and Li et al. (2024a, Theorem 4.3) print
    it.

    Parameters
    ----------
    epsilon : float
        The standard deviation in spectral norm, positive.
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
        Probability, at most 1. Matrix Bernstein has the factor 2 N where the papers print N; the
        printed bound still holds for N >= 4 (docs/math.md, section 1).

    Raises
    ------
    InputError
        An argument is not positive and finite.
    """
    _check(epsilon, n_rows, n_frequencies, weights, spectral_norm)
    n = n_rows
    c = math.hypot(*weights)
    scale = 2 * n * c * (6 * spectral_norm + 3 * n * c * math.sqrt(len(weights)) + 8 * epsilon)
    return min(1.0, n * math.exp(-3 * epsilon**2 * (2 * n_frequencies) / scale))


def sharper_bound(
    epsilon: float,
    *,
    n_rows: int,
    n_frequencies: int,
    weights: Sequence[float],
    spectral_norm: float,
) -> float:
    """Return the matrix Bernstein bound with the norm of one term, alpha_max N / H, used as it is.

    Parameters
    ----------
    epsilon, n_rows, n_frequencies, weights, spectral_norm : number
        The weights: a sequence of Q floats.
        As in `published_bound`.

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
    K_hat - K is a sum of Q H centred terms of norm at most R = alpha_max N / H, whose summed second
    moments have norm at most R ||K||_2: 2 N exp(-epsilon^2 / 2 / (R ||K||_2 + R epsilon / 3)).
    """
    _check(epsilon, n_rows, n_frequencies, weights, spectral_norm)
    scale = 2 * n_rows * max(weights) * (3 * spectral_norm + epsilon)
    return min(1.0, 2 * n_rows * math.exp(-3 * epsilon**2 * n_frequencies / scale))


def frequencies_needed(
    epsilon: float,
    *,
    probability: float = 0.05,
    n_rows: int,
    weights: Sequence[float],
    spectral_norm: float,
) -> int:
    """Return the least H with which a standard deviation of epsilon has at most the given
    probability, by ``sharper_bound``.

    Parameters
    ----------
    epsilon : float
        The standard deviation in spectral norm that is too much, positive; 0.1 ``spectral_norm``,
        say.
    probability : float, default=0.05
        Of that standard deviation or a larger one, in (0, 1).
    n_rows, weights, spectral_norm : number, or sequence of Q floats for the weights
        As in `published_bound`.

    Returns
    -------
    int
        H, spectral points per component: 2 Q H features are enough, and usually far more than
        enough.

    Raises
    ------
    InputError
        An argument is not positive and finite, or the probability is not inside (0, 1).

    Examples
    --------
    >>> import torch
    >>> from bochner.features import frequencies_needed
    >>> from bochner.kernels import RBF
    >>> rows = torch.linspace(-1, 1, 100)[:, None]
    >>> norm = float(torch.linalg.matrix_norm(RBF()(rows).detach(), 2))
    >>> frequencies_needed(0.2 * norm, n_rows=100, weights=[1.0], spectral_norm=norm)
    576
    """
    _check(epsilon, n_rows, 1, weights, spectral_norm)
    scale = _bernstein_scale(probability, n_rows, weights)
    return math.ceil(scale * (3 * spectral_norm + epsilon) / epsilon**2)


def error_allowed(
    n_frequencies: int,
    *,
    probability: float = 0.05,
    n_rows: int,
    weights: Sequence[float],
    spectral_norm: float,
) -> float:
    """Return the standard deviation in spectral norm that H frequencies exceed with at most the
    given probability.

    Parameters
    ----------
    n_frequencies : int
        H.
    probability, n_rows, weights, spectral_norm : number, or sequence of Q floats for the weights
        As in `frequencies_needed`, of which this is the inverse.

    Returns
    -------
    float

    Raises
    ------
    InputError
        As ``frequencies_needed``.
    """
    _check(1.0, n_rows, n_frequencies, weights, spectral_norm)
    # H epsilon^2 = c (3 ||K|| + epsilon)
    c = _bernstein_scale(probability, n_rows, weights) / n_frequencies
    return 0.5 * (c + math.sqrt(c * c + 12 * c * spectral_norm))


def _bernstein_scale(probability: float, n_rows: int, weights: Sequence[float]) -> float:
    """c of H epsilon^2 = c (3 ||K|| + epsilon), the sharper bound at a probability."""
    if not 0 < probability < 1:
        raise InputError(f"probability must lie inside (0, 1), got {probability}.")
    return 2 * n_rows * max(weights) * math.log(2 * n_rows / probability) / 3


def _check(
    epsilon: float,
    n_rows: int,
    n_frequencies: int,
    weights: Sequence[float],
    spectral_norm: float,
) -> None:
    named = {
        "epsilon": epsilon,
        "n_rows": n_rows,
        "n_frequencies": n_frequencies,
        "spectral_norm": spectral_norm,
    }
    named["weights"] = min(weights, default=math.nan)
    for name, value in named.items():
        if not (value > 0 and math.isfinite(value)):
            raise InputError(f"{name} must be positive and finite, got {value}.")
