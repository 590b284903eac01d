"""The random features of a state of the chain, and their gradient in the latents."""

from __future__ import annotations

import numpy as np
import torch

from bochner.data.arrays import Float64Array

# Numbers of which torch takes cosines faster than NumPy does: it has them vectorised on every
# processor, and costs some microseconds a call.
_MANY = 512


def features(x: Float64Array, points: Float64Array, amplitude: Float64Array) -> Float64Array:
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
        amplitude * cos, then amplitude * sin: the order of `bochner.features`. A feature's values
        lie beside each other in memory: cosines of few frequencies take a third of the time.
    """
    phase = points @ x.T
    out = np.empty((2, *phase.shape))
    if phase.size < _MANY:
        np.cos(phase, out=out[0])
        np.sin(phase, out=out[1])
    else:
        angles = torch.from_numpy(phase)
        into = torch.from_numpy(out)
        torch.cos(angles, out=into[0])
        torch.sin(angles, out=into[1])
    out *= amplitude[:, None]
    return out.reshape(-1, x.shape[0]).T


def pull_back(phi: Float64Array, points: Float64Array, upstream: Float64Array) -> Float64Array:
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
