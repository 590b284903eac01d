"""What `latent`, `view_weight` and `noise_variance` ask of every view, warnings about what was
asked, and a digest of all parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bochner.data.columns import observed_rows
from bochner.data.views import Views, fingerprint
from bochner.errors import DataWarning, InputError, message, warn_user
from bochner.estimators.settings.parameters import Parameters
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.likelihood import Likelihood
from bochner.likelihoods.negative_binomial import LARGEST, LARGEST_POLYA_GAMMA
from bochner.models.lvm import Layout, ModelSpec

# Of n_components: with a dict of latents this value means that nothing was asked for.
DEFAULT = 2
_EXAMPLE = "write latent={'shared': 2, 'private': {'a': 1}}"


def layout(latent: Any, n_components: int, names: Sequence[str]) -> Layout:
    """Return the layout that is asked for.

    Parameters
    ----------
    latent : "shared" or mapping
        With "shared", the dimensions of all views (left out: ``n_components``), and "private",
        those of single views.
    n_components : int
    names : sequence of str
        Of the views.

    Raises
    ------
    InputError
        A key, a view or a number is not possible, or ``n_components`` says another number of
        dimensions.
    """
    if isinstance(latent, str):
        return Layout(int(n_components), (0,) * len(names))
    unknown = sorted(str(key) for key in latent if key not in ("shared", "private"))
    if unknown:
        raise InputError(
            message("latent with the keys 'shared' and 'private'", repr(unknown[0]), _EXAMPLE)
        )
    shared = latent.get("shared", n_components)
    _check_count("latent['shared']", shared, 1)
    private = _private(latent.get("private") or {}, names)
    asked = Layout(int(shared), tuple(private.get(name, 0) for name in names))
    if n_components not in (DEFAULT, asked.shared, asked.n_components):
        want = f"n_components={asked.n_components}, the dimensions of latent together"
        raise InputError(
            message(
                want,
                f"n_components={n_components}",
                "leave n_components out: latent says it all",
            )
        )
    return asked


def _private(private: object, names: Sequence[str]) -> dict[str, int]:
    if not isinstance(private, Mapping):
        raise InputError(
            message(
                "latent['private'] as a dict of view to dimensions", repr(private), _EXAMPLE
            )
        )
    for view, count in private.items():
        if view not in names:
            raise InputError(
                message(
                    f"private latents for views {list(names)}", repr(view), "correct the name"
                )
            )
        _check_count(f"latent['private'][{view!r}]", count, 0)
    counts = {view: int(count) for view, count in private.items()}
    if len(names) == 1 and any(counts.values()):
        hint = "add the dimensions to 'shared', or pass views="
        raise InputError(
            message("several views for private latents", f"one view, {names[0]!r}", hint)
        )
    return counts


def _check_count(name: str, count: object, least: int) -> None:
    if isinstance(count, bool) or not isinstance(count, Integral) or count < least:
        raise InputError(
            message(f"{name} as a whole number of at least {least}", repr(count), _EXAMPLE)
        )


def weights(view_weight: Any, widths: Mapping[str, int]) -> dict[str, float]:
    """Return the weights of the views' terms in training.

    Parameters
    ----------
    view_weight : None, "balanced" or mapping of view to number
        "balanced" is M / (V M_v), scikit-learn's rule for classes: every view counts as much as an
        average one, and the mean over columns is 1. Views that a mapping leaves out have weight 1.
    widths : mapping of view to int
        M_v, its columns.

    Raises
    ------
    InputError
        A view is unknown or a weight is not a positive number.
    """
    if view_weight is None:
        return dict.fromkeys(widths, 1.0)
    if isinstance(view_weight, str):
        total = sum(widths.values())
        return {view: total / (len(widths) * width) for view, width in widths.items()}
    for view, weight in view_weight.items():
        if view not in widths:
            raise InputError(
                message(
                    f"view_weight for views {list(widths)}", repr(view), "correct the name"
                )
            )
        if (
            isinstance(weight, bool)
            or not isinstance(weight, Real)
            or not 0 < float(weight) < math.inf
        ):
            hint = "choose a number above 0, 1.0 say, or leave the view out of views="
            raise InputError(
                message(f"a positive view_weight for view {view!r}", repr(weight), hint)
            )
    return {view: float(view_weight.get(view, 1.0)) for view in widths}


def with_fixed_noise(
    noise_variance: Any, likelihoods: Mapping[str, Likelihood], scales: Mapping[str, float]
) -> dict[str, Likelihood]:
    """Return the likelihoods of the views, with noise that training leaves alone where it is given.

    Parameters
    ----------
    noise_variance : None, float or mapping of view to float
        In original units squared. A number is that of every Gaussian view.
    likelihoods : mapping of view to Likelihood
    scales : mapping of view to float
        Original units of a unit of the scaled view.

    Raises
    ------
    InputError
        A view is unknown, is not Gaussian or learns a variance per column, or a variance is not a
        positive number.
    """
    if noise_variance is None:
        return dict(likelihoods)
    fixes_all = not isinstance(noise_variance, Mapping)
    given = dict.fromkeys(likelihoods, noise_variance) if fixes_all else dict(noise_variance)
    out = dict(likelihoods)
    for view, variance in given.items():
        if view not in likelihoods:
            expected = f"noise_variance for views {list(likelihoods)}"
            raise InputError(message(expected, repr(view), "correct the name"))
        likelihood = likelihoods[view]
        if not isinstance(likelihood, Gaussian):
            if fixes_all:
                continue
            expected = f"noise_variance for Gaussian views, and {view!r} is {likelihood.name}"
            raise InputError(message(expected, repr(variance), f"leave {view!r} out of it"))
        if likelihood.per_column:
            got = f"noise_variance={variance!r} with a noise variance per column"
            hint = "leave noise_variance out, or noise='column'"
            raise InputError(message(f"one noise variance for view {view!r}", got, hint))
        if not _is_number(variance) or not 0 < float(variance) < math.inf:
            hint = "give the variance of the measurement, 0.5 say"
            expected = f"a positive noise_variance for view {view!r}"
            raise InputError(message(expected, repr(variance), hint))
        out[view] = Gaussian(float(variance) / scales[view] ** 2).requires_grad_(False)
    return out


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


# Standard deviations of given latents beyond which maps are as embeddings of other libraries have
# them, not as the prior does.
_FAR = 3.0


def of_rank(shape: tuple[int, ...], n_components: int) -> None:
    """Warn of more latent dimensions than data of a shape (N, M) can have."""
    limit = min(shape[0] - 1, shape[1])
    if n_components > limit:
        warn_user(
            f"n_components={n_components} is above the rank the data can have ({limit}): "
            "the further dimensions can only repeat the prior.",
            DataWarning,
        )


def of_starts(starts: Iterable[str | NDArray[np.float64]]) -> None:
    """Warn of given latents, (N, D), that lie where the prior hardly is: training seldom gets back
    from there.
    """
    spreads = [
        float(start.std(axis=0).max(initial=0.0))
        for start in starts
        if not isinstance(start, str)
    ]
    for spread in (far for far in spreads if far > _FAR):
        warn_user(
            f"init has a standard deviation of {spread:.3g}, where latents have about 1 under "
            "their prior: "
            "training from there "
            f"ends far below what it can reach. Divide the array by {spread:.3g}.",
            DataWarning,
        )


def of_dispersion(dispersion: Mapping[str, Any]) -> None:
    """Warn of a shared dispersion at its cap."""
    for view, learned in dispersion.items():
        caps = [
            cap
            for cap in (LARGEST, LARGEST_POLYA_GAMMA)
            if np.ndim(learned) == 0 and np.isclose(learned, cap)
        ]
        if caps:
            text = (
                f"The dispersion of view {view!r} reached {caps[0]:g}, its cap: its counts are "
                "as good as Poisson."
            )
            warn_user(
                f"{text} Use likelihood='poisson', which has a tighter bound.", DataWarning
            )


def of_empty(values: NDArray[np.generic]) -> None:
    """Warn of rows with nothing observed; zeros of a sparse matrix are observed."""
    empty = ~observed_rows(values)
    if empty.any():
        warn_user(
            f"{int(empty.sum())} row(s) with nothing observed (first: row {int(empty.argmax())}): "
            "they are placed at the prior, mean 0 and standard deviation 1.",
            DataWarning,
        )


# What may differ between the two.
_TRANSIENT = ("checkpoint", "verbose", "device", "random_state")


def divisible(data: Views, spec: ModelSpec, landmarks: int | None) -> bool:
    """Return whether a fit may be continued by another number of processes: its training sees
    landmarks alone, and all that they are follows from the rows.
    """
    by_rows = all(view.likelihood.knows_by_rows for view in spec)
    return landmarks is not None and by_rows and not data.sparse


def digest(estimator: Parameters, data: Views, divisible: bool = False) -> str:
    """Return a digest of the data's units, the names of their columns, and all parameters.

    Parameters
    ----------
    estimator : LatentVariableEstimator
    data : Views
    divisible : bool
        Whether the same rows, divided in another way, are to have the same digest: without units.

    Returns
    -------
    str
    """
    params = estimator.get_params(deep=False)
    names = getattr(estimator, "feature_names_in_", None)
    settings = {
        "class": _described(type(estimator)),
        "params": {
            name: _described(params[name]) for name in params if name not in _TRANSIENT
        },
        "names": None if names is None else [str(name) for name in names],
        "views": list(data.columns),
    }
    units = [data.scaling.centre, data.scaling.scale]
    # sums of other parts round in another way
    if divisible:
        units = []
    return fingerprint([*units, *data.columns.values()], settings)


def _described(value: object) -> object:
    """Return what tells a parameter from another, the same in every process."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | torch.Tensor):
        return fingerprint([np.asarray(value)], {})
    if isinstance(value, dict):
        return [[str(key), _described(item)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    if isinstance(value, slice | Path | np.generic):
        return str(value)
    return _of_object(value)


def _of_object(value: object) -> object:
    cls = value if isinstance(value, type) else type(value)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if cls is value or not hasattr(value, "get_params"):
        return name
    return [name, _described(value.get_params())]
