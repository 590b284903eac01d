"""The random features of a state of the chain, row-major, and their gradient in the latents."""

from __future__ import annotations

import numpy as np

from bochner.mcmc.draws import FloatArray


def features(x: FloatArray, points: FloatArray, amplitude: FloatArray) -> FloatArray:
    """Return the features of rows.

    Parameters
    ----------
    x : ndarray of shape (n, D)
    points : ndarray of shape (P, D)
        Frequencies.
    amplitude : ndarray of shape (P,)

    Returns
    -------
    ndarray of shape (n, 2 P)
        amplitude * cos, then amplitude * sin: the order of `bochner.features`.
    """
    phase = x @ points.T
    out = np.empty((x.shape[0], 2 * points.shape[0]))
    np.multiply(np.cos(phase), amplitude, out=out[:, : points.shape[0]])
    np.multiply(np.sin(phase), amplitude, out=out[:, points.shape[0] :])
    return out


def pull_back(phi: FloatArray, points: FloatArray, upstream: FloatArray) -> FloatArray:
    """Carry a gradient in the features back to the rows.

    Parameters
    ----------
    phi, upstream : ndarray of shape (n, 2 P)
        Features and the gradient in them.
    points : ndarray of shape (P, D)

    Returns
    -------
    ndarray of shape (n, D)
    """
    size = points.shape[0]
    slope = phi[:, :size] * upstream[:, size:] - phi[:, size:] * upstream[:, :size]
    return np.asarray(slope @ points)
