"""Pictures of fitted models: every function draws into an Axes and returns it, without pyplot's
global state. A notebook shows what the last expression of its cell returns; ``plt.show()`` shows
what was drawn into an ``ax`` of pyplot's.
"""

from bochner.plots.decodings import decoded_grid, reconstructions, starts
from bochner.plots.figures import axes, save
from bochner.plots.kernels import kernel_recovery, learned_kernel, spectrum
from bochner.plots.latents import bound_trace, completions, latent_map, relevance
from bochner.plots.loadings import loadings
from bochner.plots.uncertainty import calibration, n_components

__all__ = [
    "axes",
    "bound_trace",
    "calibration",
    "completions",
    "decoded_grid",
    "kernel_recovery",
    "latent_map",
    "learned_kernel",
    "loadings",
    "n_components",
    "reconstructions",
    "relevance",
    "save",
    "spectrum",
    "starts",
]
