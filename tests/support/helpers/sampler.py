"""What checks of the sampler against its prior begin with."""

import numpy as np

from bochner.mcmc.conditionals.views import ViewData
from bochner.mcmc.priors import Priors

# Proper priors with light tails: moments exist, and counts stay small.
PRIORS = Priors(
    concentration=(2.0, 2.0),
    kappa=1.0,
    extra_degrees=8.0,
    scale=4.0,
    ratio=(0.0, 0.7),
    noise=(4.0, 2.0),
    intercept=0.5,
    dispersion=(6.0, 2.0),
)


def zeros(n_rows: int, n_columns: int) -> ViewData:
    """Return data that are still zeros, without the first entry and without offsets."""
    values = np.zeros((n_rows, n_columns))
    observed = np.ones(values.shape, dtype=bool)
    observed[0, 0] = False
    return ViewData(values, observed, np.zeros(n_rows))
