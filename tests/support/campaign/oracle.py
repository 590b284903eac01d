"""The rule by which trials are judged: right, or a named error, and the process as it was."""

import locale
import logging
import os
import random
import signal
import traceback
import warnings
from numbers import Number
from pathlib import Path

import numpy as np
import torch

import bochner
from bochner.errors import BochnerError, DataWarning, NumericalWarning, StorageWarning

PACKAGE = str(Path(bochner.__file__).parent)


def is_named(error):
    """Whether an exception says what is wrong: ours, or one of scikit-learn's checks."""
    if isinstance(error, BochnerError):
        return bool(str(error).strip())
    frames = list(traceback.walk_tb(error.__traceback__))
    module = str(frames[-1][0].f_globals.get("__name__", "")) if frames else ""
    checked = module.startswith(("sklearn.utils", "sklearn.base"))
    return checked and isinstance(error, ValueError | TypeError)


def place_of(error):
    """The last line of the package that an exception passed, and what it says."""
    frames = [
        f"{frame.f_globals.get('__name__')}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).startswith("bochner")
    ]
    text = " ".join(str(error).split())[:120]
    return f"{type(error).__name__} at {frames[-1] if frames else 'no line of ours'}: {text}"


def process_state():
    """What a library has no business to change."""
    state = np.random.get_state()
    return {
        "numpy.random": (state[0], state[1].tobytes(), *state[2:]),
        "random": random.getstate(),
        "torch.random": torch.get_rng_state().numpy().tobytes(),
        "default dtype": torch.get_default_dtype(),
        "default device": str(torch.get_default_device()),
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "numpy errors": np.geterr(),
        "print options": str(np.get_printoptions()),
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "SIGINT": signal.getsignal(signal.SIGINT),
        "SIGTERM": signal.getsignal(signal.SIGTERM),
        "root log": (logging.root.level, list(logging.root.handlers)),
        "umask": _umask(),
    }


def _umask():
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def changes(before, after):
    """Names of what differs between two states."""
    return [f"changed {name}" for name in before if before[name] != after[name]]


def not_finite(name, value):
    """Names of numbers in a value that are not finite."""
    if value is None or isinstance(value, str | bytes | bool | np.bool_):
        return []
    if isinstance(value, dict):
        return [
            result
            for key, item in value.items()
            for result in not_finite(f"{name}[{key}]", item)
        ]
    if isinstance(value, list | tuple):
        return [result for item in value for result in not_finite(name, item)][:1]
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, Number):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "fc":
        return [] if np.isfinite(value).all() else [f"not finite: {name}"]
    return []


def bad_warnings(caught, caller):
    """Warnings that name another line than the caller's, or that escaped from a computation.

    Parameters
    ----------
    caught : list of warnings.WarningMessage
    caller : str
        The file that called.
    """
    faults = []
    for warning in caught:
        ours = issubclass(warning.category, DataWarning | NumericalWarning | StorageWarning)
        ours = ours or warning.category.__module__.startswith("bochner")
        if ours and warning.filename != caller:
            faults.append(
                f"warning at {warning.filename}:{warning.lineno}: {str(warning.message)[:60]}"
            )
        if not ours and warning.filename.startswith(PACKAGE):
            where = f"{warning.filename.removeprefix(PACKAGE)}:{warning.lineno}"
            faults.append(
                f"{warning.category.__name__} from {where}: {str(warning.message)[:60]}"
            )
    return sorted(set(faults))
