"""Data drawn from the model: views that are Gaussian processes over a known latent curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import make_s_curve as sklearn_s_curve
from sklearn.utils import Bunch, check_random_state

from bochner.data.accepted import checked
from bochner.data.arrays import Float64Array
from bochner.errors import InputError, message
from bochner.memory import Memory

if TYPE_CHECKING:
    from bochner.kernels.base import Kernel


# a coordinate spans about 3.5 standard deviations: not quite two periods
PERIOD = 2.0
PERIODIC_LENGTHSCALE = 1.0
# relative to the mean of the diagonal; far below any noise worth fitting
JITTER = 1e-8


def _squared_distances(X: Float64Array) -> Float64Array:
    norms = np.sum(X**2, axis=1)
    return np.asarray(np.maximum(norms[:, None] + norms - 2 * X @ X.T, 0.0))


def _rbf(X: Float64Array) -> Float64Array:
    # k = exp(−½‖δ‖²)
    return np.asarray(np.exp(-0.5 * _squared_distances(X)))


def _gibbs(X: Float64Array) -> Float64Array:
    # k = (2ℓℓ'/(ℓ² + ℓ'²))^{D/2} exp(−‖δ‖²/(ℓ² + ℓ'²)),  ℓ_x = exp(−½‖x‖); without the power D/2 it
    # is not PSD
    lengthscale = np.exp(-0.5 * np.linalg.norm(X, axis=1))
    product = 2 * np.outer(lengthscale, lengthscale)
    total = np.add.outer(lengthscale**2, lengthscale**2)
    return np.asarray(
        (product / total) ** (X.shape[1] / 2) * np.exp(-_squared_distances(X) / total)
    )


def _periodic(X: Float64Array) -> Float64Array:
    # k = exp(−2 Σ_d sin²(πδ_d/p) / ℓ²)
    delta = X[:, None, :] - X[None, :, :]
    return np.asarray(
        np.exp(
            -2 * np.sum(np.sin(np.pi * delta / PERIOD) ** 2, axis=2) / PERIODIC_LENGTHSCALE**2
        )
    )


KERNELS: dict[str, Callable[[Float64Array], Float64Array]] = {
    "rbf": _rbf,
    "gibbs": _gibbs,
    "periodic": _periodic,
    "rbf+periodic": lambda X: _rbf(X) + _periodic(X),
}


@checked(
    n_samples=[Integral],
    n_columns=[Integral, Sequence],
    kernels=[Sequence],
    noise=[Real],
    random_state=["random_state"],
)
def make_s_curve(
    n_samples: int = 500,
    n_columns: int | Sequence[int] = 100,
    kernels: Sequence[str | Kernel] = ("rbf", "rbf"),
    noise: float = 0.5,
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    """Draw views from Gaussian processes over a two-dimensional S-shaped curve.

    The latent points are the x and z coordinates of scikit-learn's S-curve, standardised per
    dimension. Each column of a view is an independent draw from the Gaussian process with the
    view's kernel, plus Gaussian noise.

    Parameters
    ----------
    n_samples : int
        N, at least 2.
    n_columns : int or sequence of int
        M_v: columns of every view, or one number per view.
    kernels : sequence of {"rbf", "gibbs", "periodic", "rbf+periodic"} or of Kernel
        One per view. ``rbf`` has lengthscale 1; ``gibbs`` the lengthscale exp(−½‖x‖), which varies
        with x; ``periodic`` has period 2 and lengthscale 1; ``rbf+periodic`` is its sum with the
        first, variance 2.
    noise : float
        Standard deviation of the noise of every entry, at least 0.
    random_state : int, RandomState or None
        None draws afresh.

    Returns
    -------
    Bunch
        data (N, ΣM_v), views {"view_0": slice, ...}, latent (N, 2), target (N,) the position along
        the curve, kernel_matrices {view: (N, N)} of the noise-free processes, feature_names, DESCR.

    Raises
    ------
    InputError
        For unknown kernels, sizes that do not fit or negative noise.
    """
    widths = _checked_widths(n_samples, n_columns, kernels, noise)
    rng = check_random_state(random_state)
    points, position = sklearn_s_curve(n_samples, random_state=rng)
    X = points[:, [0, 2]]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    data = []
    views = {}
    matrices = {}
    for v, (kernel, width) in enumerate(zip(kernels, widths, strict=True)):
        K = _matrix(kernel, X)
        factor = np.linalg.cholesky(K + JITTER * np.trace(K) / n_samples * np.eye(n_samples))
        data.append(
            factor @ rng.normal(size=(n_samples, width))
            + noise * rng.normal(size=(n_samples, width))
        )
        views[f"view_{v}"] = slice(sum(widths[:v]), sum(widths[: v + 1]))
        matrices[f"view_{v}"] = K
    names = ", ".join(map(_name, kernels))
    return Bunch(
        data=np.hstack(data),
        target=position,
        views=views,
        latent=X,
        kernel_matrices=matrices,
        feature_names=[
            f"view_{v}_{j}" for v, width in enumerate(widths) for j in range(width)
        ],
        DESCR=f"Gaussian process views of an S-curve: kernels {names}, noise standard deviation "
        f"{noise}.",
    )


def _name(kernel: str | Kernel) -> str:
    return kernel if isinstance(kernel, str) else type(kernel).__name__


def _matrix(kernel: str | Kernel, X: Float64Array) -> Float64Array:
    if isinstance(kernel, str):
        return KERNELS[kernel](X)
    import torch

    with torch.no_grad():
        matrix: Float64Array = kernel(torch.from_numpy(X)).numpy()
    return matrix


def _is_kernel(kernel: object) -> bool:
    if isinstance(kernel, str):
        return kernel in KERNELS
    from bochner.kernels.base import Kernel

    return isinstance(kernel, Kernel)


def _checked_widths(
    n_samples: int,
    n_columns: int | Sequence[int],
    kernels: Sequence[str | Kernel],
    noise: float,
) -> list[int]:
    known = ", ".join(map(repr, KERNELS))
    if isinstance(kernels, str) or not kernels or not all(map(_is_kernel, kernels)):
        expected = f"kernels from {known}, or of bochner.kernels, one per view"
        raise InputError(message(expected, repr(kernels), 'write ("rbf", "gibbs")'))
    if n_samples < 2:
        raise InputError(
            message("n_samples of at least 2", str(n_samples), "ask for more rows")
        )
    if not 0 <= noise < np.inf:
        raise InputError(
            message("a noise standard deviation of at least 0", str(noise), "correct it")
        )
    one = not isinstance(n_columns, Sequence)
    widths: list[int] = [n_columns] * len(kernels) if one else list(n_columns)  # type: ignore[list-item, arg-type]
    if len(widths) != len(kernels) or not all(
        isinstance(width, int | np.integer) and width >= 1 for width in widths
    ):
        got = f"{n_columns} for {len(kernels)} kernels"
        raise InputError(
            message(
                "n_columns as one positive number, or one per kernel", got, "match the two"
            )
        )
    size = 8 * n_samples * (n_samples + sum(widths))
    Memory().check(size, f"{n_samples:,} rows and their kernel", "draw fewer")
    return widths
