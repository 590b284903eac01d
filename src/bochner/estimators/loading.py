"""Load estimators from files."""

from __future__ import annotations

import os
from pathlib import Path

from bochner.errors import ModelFileError
from bochner.estimators import lvm, rflvm, saving, srflvm
from bochner.estimators.base import LatentVariableEstimator
from bochner.estimators.settings.constraints import check_types
from bochner.io import files
from bochner.io.extensions import MODEL_FILE
from bochner.io.schema import MismatchError, Tensors, parse, same_keys, whole
from bochner.processes.isolation import isolated


@isolated
def load(path: str | Path) -> LatentVariableEstimator:
    """Load an estimator that was saved.

    Parameters
    ----------
    path : str or Path
        A file, or the folder that ``bochner fit`` wrote.

    Returns
    -------
    NGMVLVM, AdvisedRFLVM, SRFLVM, RFLVM or RandomFeatureLVM
        Fitted; it predicts exactly what the saved one did.

    Raises
    ------
    ModelFileError
        The file is missing, not a model, cut short, of a newer schema, or its parts do not fit
        together.
    """
    check_types("load", path=path)
    path = Path(path)
    path = path / MODEL_FILE if os.path.isdir(path) else path
    tensors, plain = files.read(path, "model", saving.SCHEMA)
    with whole(path.name, "model"):
        header = parse(saving.Header, plain, "the file")
        left = Tensors(tensors)
        estimator = _unfitted(header)
        saving.restore(estimator, left, header)
        left.finish()
    return estimator


def _unfitted(header: saving.Header) -> LatentVariableEstimator:
    """Return the estimator that a file names, with its parameters."""
    modules = (lvm, srflvm, rflvm)
    named = [getattr(module, header.estimator, None) for module in modules]
    cls = next((known for known in named if known is not None), None)
    if (
        not (isinstance(cls, type) and issubclass(cls, LatentVariableEstimator))
        or cls is LatentVariableEstimator  # which they build on, and is no model
    ):
        raise ModelFileError(
            f"The file needs the model {header.estimator!r}, unknown here. Upgrade bochner."
        )
    same_keys("params", sorted(header.params), sorted(cls().get_params(deep=False)))
    if header.params.get("checkpoint") is not None:
        # a path that the next fit would write to
        raise MismatchError("params.checkpoint is a path, which no model file holds")
    estimator = cls(**{name: saving.decode(value) for name, value in header.params.items()})
    estimator._validate_params()
    return estimator
