"""The figures of a page, as plain numbers and text that its script draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bochner.data.arrays import FloatArray
from bochner.data.columns import evenly_spread
from bochner.page.encode import quantise
from bochner.plots import kernels
from bochner.plots.kernels import components, kernel_slice
from bochner.prediction.calibration import CalibrationReport
from bochner.summary import seen_in_training

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator

Chart = dict[str, Any]

# A trace is drawn at so many steps; a screen has about as many pixels.
_TRACE = 1500
_KERNEL_POINTS = 80
# Chains whose lines have names in the chart.
_NAMED_CHAINS = 6
# Draws of a chain for each bar of a rank plot, that counts say more than chance.
_DRAWS_PER_BIN = 10


def bound_trace(model: LatentVariableEstimator) -> Chart:
    """Return the bound of every training step and the final one.

    Returns
    -------
    dict
        The range of y leaves out the first steps, which lie far below the rest, and a final bound
        of more rows or columns than training saw, which may lie far off.
    """
    history = np.asarray(model.elbo_history_, dtype=np.float64)
    kept = evenly_spread(len(history), _TRACE)
    # of a fit that was interrupted before its first step the final bound is all there is
    bounds = history if history.size else np.full(1, model.elbo_)
    low = float(np.quantile(bounds, 0.02))
    high = float(bounds.max())
    reach = max(high - low, 1.0)
    near = low - reach < model.elbo_ < high + reach
    lines = [_line(kept + 1, history[kept], "one draw per step")]
    whole = ", of all data" if seen_in_training(model) else ""
    if near:
        low = min(low, model.elbo_)
        high = max(high, model.elbo_)
        final = _line(
            [1, max(len(history), 2)],
            [model.elbo_] * 2,
            f"final{whole}: {model.elbo_:,.0f}".replace("-", "−"),
        )
        lines.append({**final, "dashed": True})
    return {
        "kind": "lines",
        "title": "",
        "x": "training step",
        "y": "bound (nats)",
        "x_range": [1, max(len(history), 2)],
        "y_range": [low - 0.05 * reach, high + 0.08 * reach],
        "lines": lines,
    }


def chains(log_joint: FloatArray) -> list[Chart]:
    """Return the trace and the rank plot of the log joint density of Markov chains.

    Parameters
    ----------
    log_joint : ndarray of shape (chains, draws)

    Returns
    -------
    list of dict
        Rank plots (Vehtari et al. 2021) are flat where chains explore the same places; a single
        chain has none.
    """
    n_chains, n_draws = log_joint.shape
    kept = evenly_spread(n_draws, _TRACE)
    named = n_chains <= _NAMED_CHAINS
    low = float(log_joint.min())
    high = float(log_joint.max())
    span = max(high - low, 1e-3)
    # names of chains stand below the traces
    below = 0.08 + (0.13 * n_chains if named else 0.0)
    trace = {
        "kind": "lines",
        "title": "Trace of each chain",
        "alt": "Log joint density of every kept draw, by chain.",
        "x": "draw",
        "y": "log joint density (nats)",
        "x_range": [1, max(n_draws, 2)],
        "y_range": [low - below * span, high + 0.08 * span],
        "lines": [
            _line(kept + 1, values[kept], f"chain {c}" if named else "")
            for c, values in enumerate(log_joint)
        ],
    }
    return [trace] if n_chains == 1 else [trace, _ranks(log_joint)]


def _ranks(log_joint: FloatArray) -> Chart:
    """Return how often each chain has each range of ranks among all draws, over what is expected
    of chains that agree.
    """
    n_draws = log_joint.shape[1]
    ranks = log_joint.ravel().argsort().argsort().reshape(log_joint.shape)
    n_bins = int(np.clip(n_draws // _DRAWS_PER_BIN, 2, 20))
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    places = (ranks + 0.5) / log_joint.size
    shares = [np.histogram(of_chain, edges)[0] * (n_bins / n_draws) for of_chain in places]
    steps = np.repeat(edges, 2)[1:-1]
    level = {**_line([0, 1], [1, 1], ""), "dashed": True, "quiet": True}
    title = "Ranks: flat where chains agree"
    return {
        "kind": "lines",
        "title": title,
        "alt": title,
        "x": "rank among all draws, as a share",
        "y": "frequency, 1 expected",
        "x_range": [0, 1],
        "y_range": [0, 1.08 * max(float(np.max(shares)), 1.0)],
        "lines": [*(_line(steps, np.repeat(share, 2), "") for share in shares), level],
    }


def kernel(model: LatentVariableEstimator, view: str) -> Chart:
    """Return a view's learned kernel along the dimension that matters most to it."""
    dim, places, K = kernel_slice(model, view, _KERNEL_POINTS)
    limit = float(np.abs(K).max())
    signed = float(K.min()) < -0.02 * limit
    label = f"latent dimension {dim}"
    return {
        "kind": "matrix",
        "title": f"View {_apart(view)}",
        "alt": f"Learned kernel of view {_apart(view)}: {kernels.covariance(model, view)}.",
        "x": label,
        "y": label,
        "x_range": [float(places[0]), float(places[-1])],
        "y_range": [float(places[-1]), float(places[0])],
        "limits": [-limit if signed else 0.0, limit],
        "of": kernels.covariance(model, view),
        "values": quantise(K, np.array([-limit]), np.array([limit]), bits=16).to_json(),
    }


def spectrum(model: LatentVariableEstimator, view: str) -> Chart | None:
    """Return where the components of a view's spectrum lie, None for kernels that have none to
    draw.
    """
    learned = model.kernels_[view]
    if (
        not {"means", "scales"} <= set(learned)
        or np.ndim(learned["means"]) != 2
        or np.shape(learned["means"])[1] < 2
    ):
        return None
    share, means, scales = components(learned, view)
    a, b = sorted(np.argsort(-model.relevance_[model._view_index(view)])[:2].tolist())
    title = f"View {_apart(view)}: {counted(len(share), 'component')}"
    unit = "frequency along dim {} (rad per unit)"
    reach = [float((np.abs(means[:, d]) + scales[:, d]).max()) * 1.05 for d in (a, b)]
    return {
        "kind": "ellipses",
        "title": title,
        "alt": f"Spectrum. {title}.",
        "x": unit.format(a),
        "y": unit.format(b),
        "x_range": [-reach[0], reach[0]],
        "y_range": [-reach[1], reach[1]],
        "centres": means[:, [a, b]].tolist(),
        "radii": scales[:, [a, b]].tolist(),
        "depths": (0.15 + 0.6 * share / share.max()).tolist(),
    }


def calibration(report: CalibrationReport) -> list[Chart]:
    """Return the coverage of intervals beside their level, and the histogram of the probability
    integral transform.
    """
    coverage = []
    histogram = []
    highest = 0.0
    for view in report.views.values():
        pit = np.asarray(view.pit)
        half = len(pit) // 2
        held = np.concatenate([[0.0], np.cumsum(pit[half:] + pit[half - 1 :: -1])])
        coverage.append(_line(np.linspace(0, 1, half + 1), held, view.view))
        edges = np.repeat(np.linspace(0, 1, len(pit) + 1), 2)[1:-1]
        # colours as in the chart beside it
        histogram.append(_line(edges, np.repeat(pit, 2) * len(pit), ""))
        highest = max(highest, float(pit.max()) * len(pit))
    diagonal = {**_line([0, 1], [0, 1], ""), "dashed": True, "quiet": True}
    left = {
        "kind": "lines",
        "title": "Coverage",
        "alt": "Coverage.",
        "x": "nominal coverage",
        "y": "empirical coverage",
        "x_range": [0, 1],
        "y_range": [0, 1],
        "lines": [*coverage, diagonal],
    }
    title = "Flat where calibrated"
    right = {
        "kind": "lines",
        "title": title,
        "alt": title,
        "x": "probability integral transform",
        "y": "density",
        "x_range": [0, 1],
        "y_range": [0, 1.08 * max(highest, 1.0)],
        "lines": histogram,
    }
    return [left, right]


def counted(n: int, word: str) -> str:
    """Return a number and what it counts: 1 row, 2 rows."""
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def _apart(name: str) -> str:
    """Return a quoted name that, read from right to left, leaves what follows in its place."""
    return f"\u2068'{name}'\u2069"


def _line(x: object, y: object, label: str) -> Chart:
    return {"x": np.asarray(x).tolist(), "y": _short(y), "label": label}


def _short(values: object) -> list[float]:
    """Seven digits are more than a screen shows."""
    return [float(f"{value:.7g}") for value in np.asarray(values).tolist()]
