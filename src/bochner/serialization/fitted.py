"""A fit as named tensors and plain numbers, and back: what model files hold. Never training rows,
never code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import ModuleType

import torch
from torch import Tensor

from bochner import kernels as kernel_classes
from bochner import likelihoods as likelihood_classes
from bochner.errors import InputError, ModelFileError, message
from bochner.fitting.plan import Fit, StartResult
from bochner.io.schema import LARGEST, MismatchError, Tensors, check_numbers, check_sizes
from bochner.kernels.base import Frequencies, SpectralKernel
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.prediction.latent_calibration import LEVELS
from bochner.weight_posterior.conditioning import Draw
from bochner.weight_posterior.posterior import NonConjugatePosterior, ViewPosterior

_STOPPED = ("plateau", "max_iter", "interrupted", "failed")


@dataclass(frozen=True)
class ViewHeader:
    """What a file says of a view, beside its tensors; see `ViewPosterior`."""

    name: str
    n_draws: int
    dims: tuple[int, ...] | None
    weight: float
    predictive_noise: float | list[float] | None
    likelihood: str
    likelihood_params: dict[str, object]
    kernel: str
    kernel_params: dict[str, object]


@dataclass(frozen=True)
class FitHeader:
    """What a file says of a fit, beside its tensors; see `Fit`."""

    views: list[ViewHeader]
    elbo: float
    elbo_se: float
    history: list[float]
    stopped: str
    starts: list[StartResult]
    blocks: list[list[object]]
    landmarks: dict[str, int | float] | None
    dropped: list[float]
    withheld: list[int]
    latent_excess: float
    latent_shares: list[float]


_PLAIN = tuple(field.name for field in fields(FitHeader) if field.name != "views")


def fit_to_file(fit: Fit) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Return the tensors and the JSON-able header of a fit."""
    tensors: dict[str, Tensor] = {"latents": fit.latents}
    views = []
    pairs = zip(fit.posterior, fit.kernels, strict=True)
    for v, (posterior, kernel) in enumerate(pairs):
        tensors[f"{v}.group_of"] = posterior.group_of
        for s, draw in enumerate(posterior.draws):
            f = draw.frequencies
            parts = {"first": f.first, "second": f.second, "amplitude": f.amplitude}
            parts |= draw.tensors()
            if f.n_linear:
                parts["linear"] = f.linear
            present = {name: part for name, part in parts.items() if part is not None}
            tensors |= _prefixed(f"{v}.{s}.", present)
        if isinstance(posterior, NonConjugatePosterior):
            tensors[f"{v}.intercept"] = posterior.intercept
            if posterior.largest is not None:
                tensors[f"{v}.largest"] = posterior.largest
        tensors |= _prefixed(f"{v}.likelihood.", posterior.likelihood.state_dict())
        tensors |= _prefixed(f"{v}.kernel.", kernel.state_dict())
        views.append(
            {
                "name": posterior.name,
                "n_draws": len(posterior.draws),
                "dims": posterior.dims,
                "weight": posterior.weight,
                "predictive_noise": posterior.predictive_noise,
                "likelihood": type(posterior.likelihood).__name__,
                "likelihood_params": likelihood_to_json(posterior.likelihood),
                "kernel": type(kernel).__name__,
                "kernel_params": kernel_to_json(kernel),
            }
        )
    plain = {name: getattr(fit, name) for name in _PLAIN}
    return tensors, {"views": views, **plain}


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def fit_from_file(tensors: Tensors, header: FitHeader) -> Fit:
    """Rebuild a fit.

    Raises
    ------
    MismatchError
        Tensors and header do not fit together.
    ModelFileError
        This release lacks a kernel or a likelihood.
    """
    latents = tensors.take("latents", None, None)
    n_views = len(header.views)
    if header.stopped not in _STOPPED or len(header.dropped) != n_views:
        raise MismatchError("fit.stopped or fit.dropped is none that a fit has")
    if len(header.withheld) != n_views or any(count < 0 for count in header.withheld):
        raise MismatchError("fit.withheld are not counts of every view")
    shares = header.latent_shares
    between = all(0.0 <= share <= 1.0 for share in shares)
    if len(shares) != len(LEVELS) or not between:
        raise MismatchError("fit.latent_shares are not shares of intervals")
    posterior = []
    kernels = []
    for v, view in enumerate(header.views):
        of_view = _view(v, view, tensors, latents.shape[1])
        posterior.append(of_view)
        some = of_view.see(latents[:2])
        kernels.append(_kernel(v, view, tensors, some))
    return Fit(
        posterior=tuple(posterior),
        latents=latents,
        kernels=tuple(kernels),
        **{name: getattr(header, name) for name in _PLAIN},
    )


def _view(v: int, view: ViewHeader, tensors: Tensors, dim: int) -> ViewPosterior:
    """Rebuild a view's posterior over latents of so many dimensions."""
    check_numbers(asdict(view), f"fit.views[{v}]")
    group_of = tensors.take(f"{v}.group_of", None, kind="i")
    width = group_of.shape[0]
    if view.n_draws < 1 or not width:
        raise MismatchError(f"the view {view.name!r} has no draws or no columns")
    if not set(view.dims or ()) <= set(range(dim)):
        raise MismatchError(f"the view {view.name!r} sees dimensions that are not there")
    draws = tuple(_draw(tensors, f"{v}.{s}.", dim, width) for s in range(view.n_draws))
    n_groups = draws[0].covariance.shape[0]
    there = (group_of >= 0) & (group_of < n_groups)
    if not bool(there.all()):
        raise MismatchError(f"the tensor '{v}.group_of' names groups that are not there")
    noise = view.predictive_noise
    noises = noise if isinstance(noise, list) else [1.0 if noise is None else noise]
    refused = view.weight <= 0 or any(value <= 0 for value in noises)
    if refused or len(noises) not in (1, width):
        raise MismatchError(f"a weight or a noise of the view {view.name!r} is not positive")
    return ViewPosterior.of(
        view.name,
        draws,
        group_of,
        _likelihood(v, view, tensors, width),
        tensors.take_if_there(f"{v}.intercept", width),
        dims=view.dims,
        weight=view.weight,
        predictive_noise=view.predictive_noise,
        largest=tensors.take_if_there(f"{v}.largest", width),
    )


def _likelihood(v: int, view: ViewHeader, tensors: Tensors, width: int) -> Likelihood:
    likelihood = likelihood_from_json(view.likelihood, view.likelihood_params)
    state = tensors.take_all(f"{v}.likelihood.")
    if state.keys() != likelihood.state_dict().keys():
        raise MismatchError(f"the tensors of {view.likelihood} are not {sorted(state)}")
    # learned shapes may differ from those of the arguments
    for name, value in state.items():
        tensor = f"the tensor '{v}.likelihood.{name}'"
        if value.dim() > 1 or not value.is_floating_point():
            raise MismatchError(f"{tensor} is no list of numbers")
        lengths = {1, width, getattr(likelihood, name).numel()}
        if value.numel() not in lengths:
            got = f"has {value.numel()} numbers for {width} columns"
            raise MismatchError(f"{tensor} {got}")
        most = math.log(LARGEST)
        if name.startswith("log_") and bool((value.abs() > most).any()):
            got = f"holds {float(value.abs().max()):.3g}, beyond {most:.0f}"
            raise MismatchError(f"{tensor} {got}")
        getattr(likelihood, name).data = value
    return likelihood.requires_grad_(False)


def _kernel(v: int, view: ViewHeader, tensors: Tensors, latents: Tensor) -> SpectralKernel:
    """Rebuild a view's kernel, and ask it about some latents: shapes that do not fit show."""
    check_sizes(view.kernel_params, tensors.n_entries, f"the parameters of {view.kernel}")
    kernel = kernel_from_json(view.kernel, view.kernel_params)
    state = tensors.take_all(f"{v}.kernel.")
    for name, value in state.items():
        if not value.is_floating_point():
            check_sizes(value.tolist(), value.numel() - 1, f"the tensor '{v}.kernel.{name}'")
    kernel.load_state_dict(state)
    with torch.no_grad():
        if not bool(kernel.double()(latents).isfinite().all()):
            raise MismatchError(f"the kernel of the view {view.name!r} is not finite")
    return kernel


def _is_exported(cls: type, package: ModuleType) -> bool:
    """Return whether a class is the one that loading a file would find under its name."""
    return getattr(package, cls.__name__, None) is cls


def refusal(expected: str, cls: type) -> str:
    """Return why an object of this class cannot be saved.

    Parameters
    ----------
    expected : str
        What can be.
    cls : type

    Returns
    -------
    str
    """
    name = f"{cls.__module__}.{cls.__qualname__}"
    got = f"one of the class {name}, and a model file holds no code"
    return message(f"a {expected}", got, "pickle the estimator instead")


def likelihood_to_json(likelihood: Likelihood) -> dict[str, object]:
    """Return a likelihood's constructor arguments as plain numbers and lists.

    Raises
    ------
    InputError
        The class is not exported by `bochner.likelihoods`: files hold no code.
    """
    if not _is_exported(type(likelihood), likelihood_classes):
        raise InputError(refusal("likelihood of bochner.likelihoods", type(likelihood)))
    return {name: _plain(value) for name, value in likelihood.get_params().items()}


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return torch.as_tensor(value, dtype=torch.float64).tolist()


def likelihood_from_json(name: str, params: dict[str, object]) -> Likelihood:
    """Rebuild a likelihood by its class's name.

    Raises
    ------
    ModelFileError
        This release has no such likelihood.
    """
    cls = getattr(likelihood_classes, name, None)
    if not (isinstance(cls, type) and issubclass(cls, Likelihood)):
        raise ModelFileError(
            f"The file needs the likelihood {name!r}, unknown to this release. Upgrade bochner."
        )
    return cls(**params)


def _draw(tensors: Tensors, prefix: str, dim: int, width: int) -> Draw:
    first = tensors.take(prefix + "first", None, dim)
    n_points = first.shape[0]
    frequencies = Frequencies(
        first,
        tensors.take_if_there(prefix + "second", n_points, dim),
        tensors.take(prefix + "amplitude", n_points),
    )
    factors = tensors.take_if_there(prefix + "linear", None)
    if factors is not None:
        frequencies = replace(frequencies, linear=factors)
    n_features = frequencies.n_features
    return Draw.of(
        frequencies,
        tensors.take(prefix + "mean", n_features, width),
        tensors.take(prefix + "covariance", None, n_features, n_features),
        tensors.take_if_there(prefix + "scales", width, n_features),
    )


def kernel_to_json(kernel: SpectralKernel) -> dict[str, object]:
    """Return a kernel's constructor arguments as plain numbers and lists.

    Raises
    ------
    InputError
        The class is not exported by `bochner.kernels`, or an argument is a callable: files hold no
        code.
    """
    if not _is_exported(type(kernel), kernel_classes):
        raise InputError(refusal("kernel of bochner.kernels", type(kernel)))
    owner = type(kernel).__name__
    params = kernel.get_params()
    return {name: _to_json(owner, name, value) for name, value in params.items()}


def _to_json(owner: str, name: str, value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and any(
        isinstance(part, SpectralKernel) for part in value
    ):
        return [
            {"kernel": type(part).__name__, "params": kernel_to_json(part)} for part in value
        ]
    if callable(value):
        raise InputError(
            f"{name} of {owner} is a callable, and a model file holds no code. Pickle the "
            "estimator."
        )
    return torch.as_tensor(value, dtype=torch.float64).tolist()


def kernel_from_json(name: str, params: dict[str, object]) -> SpectralKernel:
    """Rebuild a kernel by its class's name.

    Raises
    ------
    ModelFileError
        This release has no such kernel.
    """
    cls = getattr(kernel_classes, name, None)
    if not (isinstance(cls, type) and issubclass(cls, SpectralKernel)):
        raise ModelFileError(
            f"The file needs the kernel {name!r}, which this release does not have. Upgrade "
            "bochner."
        )
    return cls(**{key: _from_json(value) for key, value in params.items()})


def _from_json(value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [kernel_from_json(part["kernel"], part["params"]) for part in value]
    return value
