"""How good is a model, and which one: calibration, the number of dimensions, the cost of a fit."""

from bochner.model_selection.calibrate import calibration
from bochner.model_selection.n_components import select_n_components

__all__ = ["calibration", "select_n_components"]
