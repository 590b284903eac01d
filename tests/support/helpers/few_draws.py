"""Fits whose bound and posterior are known less well: for tests that do not look at them."""

from bochner.fitting import landmarks, multistart, plan
from bochner.prediction import latent_calibration


def know_less(put=setattr):
    """Take few draws wherever a fit averages over some; ``put`` does what setattr does."""
    put(plan, "EVALUATION_DRAWS", 4)
    put(plan, "LOCAL_EVALUATION_DRAWS", 4)
    put(plan, "LATENT_DRAWS", 2)
    put(landmarks, "_DRAWS", 4)
    put(multistart, "_RACE_DRAWS", 4)
    # rows of the model on which standard deviations of latents are checked
    put(latent_calibration, "_N_LATENTS", 32)
    put(latent_calibration, "_LEAST", 16)
