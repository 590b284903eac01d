"""Load estimators from files."""

from __future__ import annotations

from pathlib import Path

from bochner.errors import ModelFileError, message
from bochner.estimators import lvm, saving, srflvm
from bochner.estimators.base import LatentVariableEstimator
from bochner.io import files
from bochner.isolation import undisturbed


@undisturbed
def load(path: str | Path) -> LatentVariableEstimator:
    """Load an estimator that was saved.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    NGMVLVM, AdvisedRFLVM, SRFLVM or RandomFeatureLVM
        Fitted; it predicts exactly what the saved one did.

    Raises
    ------
    ModelFileError
        The file is missing, not a model, cut short, or of a newer schema.
    """
    tensors, header = files.read(path, "model", saving.SCHEMA)
    cls = getattr(lvm, header["class"], getattr(srflvm, header["class"], None))
    if not (isinstance(cls, type) and issubclass(cls, LatentVariableEstimator)):
        raise ModelFileError(
            f"The file needs the model {header['class']!r}, unknown here. Upgrade bochner."
        )
    try:
        estimator = cls(**{name: saving.decode(value) for name, value in header["params"].items()})
        saving.restore(estimator, tensors, header)
    except (KeyError, TypeError, RuntimeError) as error:  # a part is missing or has another shape
        got = f"{Path(path).name}, which lacks a part ({error})"
        raise ModelFileError(message("a whole bochner model file", got, "save it again")) from error
    return estimator
