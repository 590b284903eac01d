"""Channels of users who move past an antenna array, from 3GPP's statistical model of cities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch, check_random_state

from bochner.data.arrays import Float64Array
from bochner.errors import InputError, message
from bochner.extras import require
from bochner.memory import Memory

if TYPE_CHECKING:
    from torch import Tensor


# Table 5 of Yang et al. (2025): 2 rows of 8 cross-polarised elements, which are 32 antennas, on a
# mast of 25 m, tilted by 7 degrees; single omnidirectional antennas; 30 km/h.
_ROWS = 2
_COLUMNS = 8
N_ANTENNAS = 2 * _ROWS * _COLUMNS
_CARRIER = 1.84e9
_MAST = 25.0
_HEIGHT = 1.5
_TILT = math.radians(7.0)
_NEAREST = 35.0
_FARTHEST = 300.0
_SECTOR = math.pi / 3
_SPEED = 30.0 / 3.6


def make_channel(
    n_users: int = 10,
    n_samples: int = 1000,
    interval: float = 5e-3,
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    """Draw channel vectors of users who move past a base station, as real and imaginary parts.

    Users are indoors in a sector of 120 degrees, 35 to 300 m away, walk on straight lines at 30
    km/h and have one antenna each; the base station has 32. The model is the urban macro cell of
    3GPP TR 38.901 at 1.84 GHz, by Sionna (``pip install 'bochner[channel]'``), where Yang et al.
    (2025) used QuaDRiGa. One carrier: paths are added up. Scatterers stay where they are
    within a draw, users move through the phases of their paths. Powers of users span 70 dB: every
    user's vectors are divided by their root mean square.

    Parameters
    ----------
    n_users : int
        At least 1.
    n_samples : int
        Channel vectors of every user, at least 1.
    interval : float
        Seconds between them.
    random_state : int, RandomState or None
        None draws afresh.

    Returns
    -------
    Bunch
        data (n_users n_samples, 64) float64, user by user in time order, views {"real": columns
        0-31, "imaginary": columns 32-63}, target (n_users n_samples,) the user, powers (n_users,)
        the mean squared magnitudes before the division, feature_names, DESCR.

    Raises
    ------
    InputError
        For sizes or intervals that are not positive, and where Sionna is not installed.
    """
    for name, value in (("n_users", n_users), ("n_samples", n_samples)):
        if value < 1:
            raise InputError(message(f"{name} of at least 1", str(value), "ask for more"))
    if not 0 < interval < math.inf:
        raise InputError(message("a positive interval", str(interval), "give it in seconds"))
    # numbers of every user's paths are some ten times as many
    size = 160 * n_users * n_samples * N_ANTENNAS
    Memory().check(size, f"{n_samples:,} vectors of {n_users:,} users", "draw fewer")
    rng = check_random_state(random_state)
    places, velocities = _users(n_users, rng)
    vectors = _vectors(places, velocities, n_samples, interval, int(rng.randint(2**31 - 1)))
    powers = np.mean(np.abs(vectors) ** 2, axis=(1, 2))
    scaled = (vectors / np.sqrt(powers)[:, None, None]).reshape(-1, N_ANTENNAS)
    return Bunch(
        data=np.hstack([scaled.real, scaled.imag]),
        target=np.repeat(np.arange(n_users), n_samples),
        views={"real": slice(0, N_ANTENNAS), "imaginary": slice(N_ANTENNAS, 2 * N_ANTENNAS)},
        powers=powers,
        feature_names=[f"{part}_{j}" for part in ("real", "imag") for j in range(N_ANTENNAS)],
        DESCR=f"Channel vectors of {n_users} users at {N_ANTENNAS} antennas, {n_samples} each, "
        f"every {interval} s (3GPP TR 38.901 UMa, 1.84 GHz).",
    )


def _users(n_users: int, rng: np.random.RandomState) -> tuple[Float64Array, Float64Array]:
    """Return where users are at the start, evenly over the area of the sector, and how fast they
    move, (n, 3) each.
    """
    distance = np.sqrt(rng.uniform(_NEAREST**2, _FARTHEST**2, n_users))
    angle = rng.uniform(-_SECTOR, _SECTOR, n_users)
    heading = rng.uniform(0.0, 2.0 * math.pi, n_users)
    still = np.zeros(n_users)
    place = (distance * np.cos(angle), distance * np.sin(angle), np.full(n_users, _HEIGHT))
    velocity = (_SPEED * np.cos(heading), _SPEED * np.sin(heading), still)
    return np.stack(place, axis=1), np.stack(velocity, axis=1)


def _vectors(
    places: Float64Array, velocities: Float64Array, n_samples: int, interval: float, seed: int
) -> NDArray[np.complex128]:
    """Return channel vectors, (users, samples, antennas)."""
    import torch

    n_users = len(places)

    def batch(values: Float64Array) -> Tensor:
        return torch.tensor(values, dtype=torch.float32)[None]

    with _seeded(seed) as models:
        common = {"carrier_frequency": _CARRIER}
        station = models.PanelArray(
            num_rows_per_panel=_ROWS,
            num_cols_per_panel=_COLUMNS,
            polarization="dual",
            polarization_type="cross",
            antenna_pattern="38.901",
            **common,
        )
        user = models.PanelArray(
            num_rows_per_panel=1,
            num_cols_per_panel=1,
            polarization="single",
            polarization_type="V",
            antenna_pattern="omni",
            **common,
        )
        city = models.UMa(
            _CARRIER, "low", user, station, "downlink", precision="single", device="cpu"
        )
        city.set_topology(
            ut_loc=batch(places),
            bs_loc=batch(np.array([[0.0, 0.0, _MAST]])),
            ut_orientations=batch(np.zeros((n_users, 3))),
            bs_orientations=batch(np.array([[0.0, _TILT, 0.0]])),
            ut_velocities=batch(velocities),
            in_state=torch.ones(1, n_users, dtype=torch.bool),
        )
        # (1, users, 1, 1, antennas, paths, samples)
        gains, _ = city(n_samples, 1.0 / interval)
    drawn: NDArray[np.complex128] = gains.sum(5)[0, :, 0, 0].mT.to(torch.complex128).numpy()
    return drawn


@contextmanager
def _seeded(seed: int) -> Iterator[Any]:
    """Give Sionna's models, with its global generators at a seed and torch's as they were
    afterwards: Sionna sets both, already when it is imported.
    """
    import torch

    with torch.random.fork_rng():
        models = require("sionna.phy.channel.tr38901", "make_channel")
        config = require("sionna.phy", "make_channel").config
        before = dict(vars(config))
        try:
            config.seed = seed
            yield models
        finally:
            vars(config).update(before)
