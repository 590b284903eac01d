"""A fit as named tensors and plain numbers, and back: what model files hold. Never training rows,
never code.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from bochner import kernels as kernel_classes
from bochner import likelihoods as likelihood_classes
from bochner.errors import InputError, ModelFileError, message
from bochner.fitting.plan import Fit
from bochner.kernels.base import Frequencies, SpectralKernel
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.weight_posterior.posterior import Draw, ViewPosterior

_PLAIN = ("elbo", "elbo_se", "history", "stopped", "starts", "blocks", "landmarks", "dropped")


def fit_to_file(fit: Fit) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the JSON-able header of a fit."""
    tensors: dict[str, Tensor] = {"latents": fit.latents}
    views = []
    for v, (posterior, kernel) in enumerate(zip(fit.posterior, fit.kernels, strict=True)):
        tensors[f"{v}.group_of"] = posterior.group_of
        for s, draw in enumerate(posterior.draws):
            f = draw.frequencies
            parts = {"first": f.first, "second": f.second, "amplitude": f.amplitude}
            parts |= {"mean": draw.mean, "covariance": draw.covariance, "scales": draw.scales}
            tensors |= {f"{v}.{s}.{name}": part for name, part in parts.items() if part is not None}
        if posterior.intercept is not None:
            tensors[f"{v}.intercept"] = posterior.intercept
        tensors |= {
            f"{v}.likelihood.{name}": value
            for name, value in posterior.likelihood.state_dict().items()
        }
        tensors |= {f"{v}.kernel.{name}": value for name, value in kernel.state_dict().items()}
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
    return tensors, {"views": views, **{name: getattr(fit, name) for name in _PLAIN}}


def fit_from_file(tensors: dict[str, Tensor], header: dict[str, Any]) -> Fit:
    """Rebuild a fit."""
    posterior, kernels = [], []
    for v, view in enumerate(header["views"]):
        draws = tuple(_draw(tensors, f"{v}.{s}.") for s in range(view["n_draws"]))
        likelihood = _likelihood(view, tensors, v)
        intercept = tensors.get(f"{v}.intercept")
        dims = (
            None if view.get("dims") is None else tuple(view["dims"])
        )  # files of 0.1 know no private latents
        own = (dims, view.get("weight", 1.0), view.get("predictive_noise"))
        posterior.append(
            ViewPosterior(
                view["name"], draws, tensors[f"{v}.group_of"], likelihood, intercept, *own
            )
        )
        kernel = kernel_from_json(view["kernel"], view["kernel_params"])
        prefix = f"{v}.kernel."
        kernel.load_state_dict(
            {k[len(prefix) :]: t for k, t in tensors.items() if k.startswith(prefix)}
        )
        kernels.append(kernel)
    plain = {name: header[name] for name in _PLAIN if name in header}  # files of 0.1 know no blocks
    return Fit(
        posterior=tuple(posterior), latents=tensors["latents"], kernels=tuple(kernels), **plain
    )


def _likelihood(view: dict[str, Any], tensors: dict[str, Tensor], v: int) -> Likelihood:
    if "likelihood" not in view:  # schema 1 knew Gaussian views only
        return Gaussian(view["noise_variance"]).requires_grad_(False)
    likelihood = likelihood_from_json(view["likelihood"], view["likelihood_params"])
    prefix = f"{v}.likelihood."
    state = {k[len(prefix) :]: t for k, t in tensors.items() if k.startswith(prefix)}
    for name, value in state.items():  # learned shapes may differ from those of the arguments
        getattr(likelihood, name).data = value
    return likelihood.requires_grad_(False)


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
    got = f"one of the class {cls.__module__}.{cls.__qualname__}, and a model file holds no code"
    return message(f"a {expected}", got, "pickle the estimator instead")


def likelihood_to_json(likelihood: Likelihood) -> dict[str, Any]:
    """Return a likelihood's constructor arguments as plain numbers and lists.

    Raises
    ------
    InputError
        The class is not exported by `bochner.likelihoods`: files hold no code.
    """
    if not _is_exported(type(likelihood), likelihood_classes):
        raise InputError(refusal("likelihood of bochner.likelihoods", type(likelihood)))
    return {name: _plain(value) for name, value in likelihood.get_params().items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return torch.as_tensor(value, dtype=torch.float64).tolist()


def likelihood_from_json(name: str, params: dict[str, Any]) -> Likelihood:
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


def _draw(tensors: dict[str, Tensor], prefix: str) -> Draw:
    f = Frequencies(
        tensors[prefix + "first"], tensors.get(prefix + "second"), tensors[prefix + "amplitude"]
    )
    return Draw(
        f, tensors[prefix + "mean"], tensors[prefix + "covariance"], tensors.get(prefix + "scales")
    )


def kernel_to_json(kernel: SpectralKernel) -> dict[str, Any]:
    """Return a kernel's constructor arguments as plain numbers and lists.

    Raises
    ------
    InputError
        The class is not exported by `bochner.kernels`, or an argument is a callable: files hold no
        code.
    """
    if not _is_exported(type(kernel), kernel_classes):
        raise InputError(refusal("kernel of bochner.kernels", type(kernel)))
    return {
        name: _to_json(type(kernel).__name__, name, value)
        for name, value in kernel.get_params().items()
    }


def _to_json(owner: str, name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and any(isinstance(part, SpectralKernel) for part in value):
        return [{"kernel": type(part).__name__, "params": kernel_to_json(part)} for part in value]
    if callable(value):
        raise InputError(
            f"{name} of {owner} is a callable, and a model file holds no code. Pickle the "
            "estimator."
        )
    return torch.as_tensor(value, dtype=torch.float64).tolist()


def kernel_from_json(name: str, params: dict[str, Any]) -> SpectralKernel:
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


def _from_json(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [kernel_from_json(part["kernel"], part["params"]) for part in value]
    return value
