"""Load estimators from files."""

from __future__ import annotations

from pathlib import Path

from bochner.errors import ModelFileError, message
from bochner.estimators import lvm, rflvm, saving, srflvm
from bochner.estimators.base import LatentVariableEstimator
from bochner.io import files
from bochner.isolation import isolated


@isolated
def load(path: str | Path) -> LatentVariableEstimator:
    """Load an estimator that was saved.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    NGMVLVM, AdvisedRFLVM, SRFLVM, RFLVM or RandomFeatureLVM
        Fitted; it predicts exactly what the saved one did.

    Raises
    ------
    ModelFileError
        The file is missing, not a model, cut short, or of a newer schema.
    """
    tensors, header = files.read(path, "model", saving.SCHEMA)
    modules = (lvm, srflvm, rflvm)
    named = [getattr(module, header["class"], None) for module in modules]
    cls = next((own for own in named if own is not None), None)
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
