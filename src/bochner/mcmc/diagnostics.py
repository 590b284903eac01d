"""R-hat, effective sample sizes and what they mean, by ArviZ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bochner.io.extras import require
from bochner.mcmc.chain import Chain
from bochner.mcmc.draws import FloatArray
from bochner.mcmc.model import Model

# Vehtari et al. (2021) ask for less than 1.01 before a report; chains of a look at the data are
# shorter. Beyond 1.1 they disagree.
GOOD, POOR = 1.01, 1.1
QUANTITIES = (
    "points",
    "n_components",
    "concentration",
    "variance",
    "parameter",
    "missing",
)
_FEW_DRAWS = 50
_FEW_EFFECTIVE = 100.0
_STUCK = 0.01


def posterior_arrays(model: Model, chains: Sequence[Chain]) -> dict[str, FloatArray]:
    """Return the quantities of interest, first axes chain and draw."""
    length = min(chain.n_draws for chain in chains)
    own = [f"{view.name}.{name}" for view in model.views for name in QUANTITIES]
    names = ["latents", *own]
    return {
        name: np.stack([chain.traces[name][:length] for chain in chains])
        for name in names
        if chains[0].traces[name].size
    }


def inference_data(model: Model, chains: Sequence[Chain]) -> Any:
    """Return the draws as an `arviz.InferenceData`.

    Parameters
    ----------
    model : Model
    chains : sequence of Chain
        Aligned.

    Returns
    -------
    arviz.InferenceData
        Groups ``posterior`` and ``sample_stats`` (log joint density, acceptance).
    """
    arviz = require("arviz", "draws as InferenceData")
    length = min(chain.n_draws for chain in chains)
    stats = {"lp": "log_joint", "acceptance_rate": "accept.latents"}
    return arviz.from_dict(
        posterior=posterior_arrays(model, chains),
        sample_stats={
            key: np.stack([chain.traces[name][:length] for chain in chains])
            for key, name in stats.items()
        },
    )


def summary(model: Model, chains: Sequence[Chain]) -> dict[str, dict[str, float]]:
    """Return the largest R-hat and the smallest bulk effective sample size of each quantity.

    Frequencies and labels have no identity from draw to draw and are left out.
    """
    arviz = require("arviz", "R-hat and effective sample sizes")
    arrays = posterior_arrays(model, chains)
    length = min(chain.n_draws for chain in chains)
    arrays["log_joint"] = np.stack([chain.traces["log_joint"][:length] for chain in chains])
    found = {}
    for name, values in arrays.items():
        if name.endswith(".points"):
            continue
        own = arviz.convert_to_dataset({"q": values})
        with np.errstate(all="ignore"):
            rhat, ess = arviz.rhat(own)["q"].values, arviz.ess(own)["q"].values
        found[name] = {"r_hat": _worst(rhat, np.max), "ess": _worst(ess, np.min)}
    return found


def _worst(values: Any, worst: Any) -> float:
    """Return the worst of the finite values, NaN where there is none: constants have no R-hat."""
    known = np.asarray(values)[np.isfinite(values)]
    return float(worst(known)) if known.size else float("nan")


def advice(found: dict[str, dict[str, float]], chains: Sequence[Chain], sampled: bool) -> list[str]:
    """Say in words what is wrong with chains; nothing when nothing is.

    Parameters
    ----------
    found : dict
        Of `summary`.
    chains : sequence of Chain
    sampled : bool
        Whether the latents were sampled.

    Returns
    -------
    list of str
        Sentences.
    """
    out = []
    length = min(chain.n_draws for chain in chains)
    if len(chains) < 2 or length < _FEW_DRAWS:
        out.append(
            f"{len(chains)} chains of {length} draws are too few for R-hat: it needs two chains "
            f"and some {_FEW_DRAWS} draws. Raise n_chains or n_draws."
        )
    out += [_disagreement(name, own) for name, own in found.items() if own["r_hat"] > POOR]
    few = [(own["ess"], name) for name, own in found.items() if own["ess"] < _FEW_EFFECTIVE]
    if few:
        least, name = min(few)
        out.append(
            f"{name} has {least:.0f} effective draws: means of it are known to "
            f"{1.0 / max(least, 1.0) ** 0.5:.2f} posterior standard deviations. Raise n_draws."
        )
    out += [_stuck(chain) for chain in chains if sampled and _is_stuck(chain)]
    return out


def _disagreement(name: str, own: dict[str, float]) -> str:
    return (
        f"Chains disagree on {name}: R-hat {own['r_hat']:.2f}, and below {GOOD} is wanted. They "
        "have not converged, or lie in different modes. Raise n_warmup, or look at to_arviz()."
    )


def _is_stuck(chain: Chain) -> bool:
    return float(np.nanmean(chain.traces["accept.latents"])) < _STUCK


def _stuck(chain: Chain) -> str:
    return (
        f"Chain {chain.number} is stuck: its joint moves of the latents are not accepted. Raise "
        "n_warmup, so that their step size can adapt."
    )
