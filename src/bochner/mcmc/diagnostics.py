"""R-hat, effective sample sizes and what they mean, by ArviZ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bochner.data.arrays import Float64Array
from bochner.data.columns import evenly_spread
from bochner.extras import require
from bochner.mcmc.chain import Chain
from bochner.mcmc.model import Model

Draws = dict[str, Float64Array]

# Vehtari et al. (2021) ask for less than 1.01 before a report; chains of a look at the data are
# shorter. Beyond 1.1 they disagree.
GOOD = 1.01
POOR = 1.1
# Of every view, before the likelihood's parameter.
_OF_SPECTRUM = ("points", "n_components", "concentration", "variance")
STATISTICS = ("log_joint", "accept.latents", "accept.frequencies")
# Draws of a chain below which its figures say nothing.
_FEW_DRAWS = 50
# Entries of a quantity that are looked at.
_ENTRIES = 500
# ArviZ splits chains in two and needs some draws in each half.
_LEAST = 4
_FEW_EFFECTIVE = 100.0
_STUCK = 0.01


def stacked(model: Model, chains: Sequence[Chain]) -> Draws:
    """Return the draws of all chains by quantity, first axes chain and draw.

    Parameters
    ----------
    model : Model
    chains : sequence of Chain
        Aligned.

    Returns
    -------
    dict of str to ndarray
        "latents"; "NAME.points", "NAME.n_components", "NAME.concentration", "NAME.variance",
        "NAME.noise_variance" (Gaussian) or "NAME.dispersion" (negative binomial), and
        "NAME.missing" (of at most 500 entries) of each view, without those that are empty;
        the statistics "log_joint", "accept.latents" and "accept.frequencies".
    """
    length = min(chain.n_draws for chain in chains)
    of_views = [
        f"{view.name}.{name}"
        for view in model.views
        for name in (*_OF_SPECTRUM, view.parameter_name, "missing")
    ]
    return {
        name: np.stack([chain.traces[name][:length] for chain in chains])
        for name in ["latents", *of_views, *STATISTICS]
        if chains[0].traces[name].size
    }


def inference_data(draws: Draws) -> Any:
    """Return draws as an `arviz.InferenceData`.

    Parameters
    ----------
    draws : dict of str to ndarray
        Of `stacked`.

    Returns
    -------
    arviz.InferenceData
        Groups ``posterior`` and ``sample_stats`` (log joint density, acceptance).
    """
    arviz = require("arviz", "draws as InferenceData")
    stats = {"lp": draws["log_joint"], "acceptance_rate": draws["accept.latents"]}
    posterior = {name: values for name, values in draws.items() if name not in STATISTICS}
    return arviz.from_dict(posterior=posterior, sample_stats=stats)


def summary(draws: Draws) -> dict[str, dict[str, float]]:
    """Return the largest R-hat and the smallest bulk effective sample size of each quantity, of at
    most 500 of its entries, evenly spread: ArviZ takes milliseconds for each.

    Frequencies have no identity from draw to draw and are left out; constants have neither.
    """
    arviz = require("arviz", "R-hat and effective sample sizes")
    figures = {}
    for name, values in draws.items():
        if name.endswith(".points") or name.startswith("accept.") or values.shape[1] < _LEAST:
            continue
        entries = values.reshape(*values.shape[:2], -1)
        some = entries[..., evenly_spread(entries.shape[2], _ENTRIES)]
        dataset = arviz.convert_to_dataset({"q": some})
        with np.errstate(all="ignore"):
            # ArviZ complains of a single chain in a log of its own; `advice` does in words
            several = len(values) > 1
            rhat = arviz.rhat(dataset)["q"].values if several else np.array(np.nan)
            ess = arviz.ess(dataset)["q"].values
        figures[name] = {"r_hat": _worst(rhat, np.max), "ess": _worst(ess, np.min)}
    return figures


def _worst(values: Float64Array, worst: Callable[[Float64Array], np.float64]) -> float:
    """Return the worst of the finite values, NaN where there is none: constants have no R-hat."""
    known = np.asarray(values)[np.isfinite(values)]
    return float(worst(known)) if known.size else float("nan")


def converged(figures: dict[str, dict[str, float]], draws: Draws) -> bool:
    """Return whether chains are long enough for R-hat and every R-hat is at most 1.1."""
    known = [of_name["r_hat"] for of_name in figures.values() if np.isfinite(of_name["r_hat"])]
    return not _too_short(draws) and bool(known) and max(known) <= POOR


def _too_short(draws: Draws) -> bool:
    n_chains, length = draws["log_joint"].shape
    return bool(n_chains < 2 or length < _FEW_DRAWS)


def advice(figures: dict[str, dict[str, float]], draws: Draws, sampled: bool) -> list[str]:
    """Say in words what is wrong with chains; nothing when nothing is.

    Parameters
    ----------
    figures : dict
        Of `summary`.
    draws : dict of str to ndarray
        Of `stacked`.
    sampled : bool
        Whether the latents were sampled.

    Returns
    -------
    list of str
        Sentences.
    """
    n_chains, length = draws["log_joint"].shape
    out = []
    if _too_short(draws):
        out.append(
            f"Chains: {n_chains}, draws of each: {length}. That is too few for R-hat, which needs "
            f"two chains and some {_FEW_DRAWS} draws. Raise n_chains or n_draws."
        )
    apart = [
        (of_name["r_hat"], name)
        for name, of_name in figures.items()
        if of_name["r_hat"] > POOR
    ]
    out += [_disagreement(name, r_hat) for r_hat, name in sorted(apart, reverse=True)[:1]]
    few = [
        (of_name["ess"], name)
        for name, of_name in figures.items()
        if of_name["ess"] < _FEW_EFFECTIVE
    ]
    out += [_few_effective(name, least) for least, name in sorted(few)[:1]]
    rates = draws["accept.latents"].mean(axis=1)
    stuck = np.flatnonzero(rates < _STUCK) if sampled else ()
    return out + [_stuck(int(number)) for number in stuck]


def _disagreement(name: str, r_hat: float) -> str:
    return (
        f"Chains disagree, most on {name}: R-hat {r_hat:.2f}, and below {GOOD} is wanted. They "
        "have not converged, or lie in different modes. Raise n_warmup, or look at the traces "
        "in the report or by to_arviz()."
    )


def _few_effective(name: str, least: float) -> str:
    error = 1.0 / max(least, 1.0) ** 0.5
    return (
        f"{name} has {least:.0f} effective draws: its mean is known to {error:.2f} posterior "
        "standard deviations. Raise n_draws."
    )


def _stuck(number: int) -> str:
    return (
        f"Chain {number} is stuck: its joint moves of the latents are not accepted. Raise "
        "n_warmup, so that their step size can adapt."
    )
