"""A fitted model in plain numbers and text, as its doors show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator

# A smaller share of squares would be written as 0.0 %.
_LEFT_OUT = 0.0005


def describe_model(model: LatentVariableEstimator) -> dict[str, object]:
    """Summarise a fitted model."""
    report = model.collapse_
    return {
        "model": type(model).__name__,
        "elbo": model.elbo_,
        "elbo_se": model.elbo_se_,
        "n_iter": model.n_iter_,
        "converged": model.converged_,
        "interrupted": model.interrupted_,
        "rows": int(model._fit.latents.shape[0]),
        "columns": int(model.n_features_in_),
        "n_components": int(model._n_latents),
        "n_mixtures": model.n_mixtures_,
        "n_frequencies": model.n_frequencies_,
        "views": {
            view: {
                "columns": int(positions.size),
                "likelihood": model.likelihood_[view],
                **_noise(model, view),
                "relevance": [float(r) for r in model.relevance_[i]],
            }
            for i, (view, positions) in enumerate(model.views_.items())
        },
        "collapse": {
            "dead": list(report.dead),
            "variance_ratio": [float(r) for r in report.variance_ratio],
            "effective_dimensions": float(report.effective_dimensions),
            "advice": report.advice(),
        },
        "starts": model.starts_,
        "parameters": {
            name: _plain(value)
            for name, value in model.get_params(deep=False).items()
            if name not in ("views", "checkpoint")
        },
    }


def seen_in_training(model: LatentVariableEstimator) -> list[str]:
    """Return in what the bound of training steps and starts is about less, or other, than the final
    one; nothing where they are about the same.
    """
    what = ["fewer rows (landmarks)"] if model.landmarks_ else []
    left = max(model.dropped_.values(), default=0.0)
    if left > _LEFT_OUT:
        what.append(f"columns truncated to all but {100 * left:.1f} % of their squares")
    withheld = sum(model.withheld_.values())
    if withheld:
        what.append(
            f"fewer entries ({withheld:,} are kept out of training, to see what noise "
            "predictions need)"
        )
    if model.view_weight is not None:
        what.append("weighted views")
    return what


def _noise(model: LatentVariableEstimator, view: str) -> dict[str, object]:
    """What a view's likelihood learned of its own."""
    if view in model.dispersion_:
        return {"dispersion": model.dispersion_[view].tolist()}
    if view not in model.noise_variance_:
        return {}
    share: dict[str, object] = {"noise_share": float(model.collapse_.noise_share[view])}
    # kilograms and euros have no mean: of columns in units of their own the share says it all
    if model._units_differ(view):
        return share
    return {"noise_variance": float(np.mean(model.noise_variance_[view])), **share}


def _plain(value: object) -> Any:
    return (
        value
        if value is None or isinstance(value, bool | int | float | str | dict)
        else repr(value)
    )
