"""From the `likelihood` of an estimator to one likelihood per view, its noise and checks, and the
rows' size factors.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bochner.data.arrays import FloatArray, as_numbers, first_no_number
from bochner.data.columns import ColumnNames, observed_rows
from bochner.data.kinds import least_noise, sampled, warn_of_units
from bochner.data.likelihood_names import unknown_likelihood
from bochner.data.support import Support, guess
from bochner.data.validation import as_array
from bochner.data.views import Views
from bochner.errors import DataWarning, InputError, message, shown, warn_user
from bochner.likelihoods import (
    Bernoulli,
    Binomial,
    Categorical,
    Gaussian,
    NegativeBinomial,
    Poisson,
)
from bochner.likelihoods.negative_binomial import LARGEST, LARGEST_POLYA_GAMMA
from bochner.likelihoods.nonconjugate import Likelihood
from bochner.memory import passes
from bochner.processes import ALONE, Processes

NAMES: dict[str, type[Likelihood]] = {
    cls.name: cls
    for cls in (Gaussian, Bernoulli, Binomial, NegativeBinomial, Poisson, Categorical)
}
# Of the scaled view: where training of a column's noise begins.
_START_NOISE = 0.3
_LOG = logging.getLogger("bochner")


def choose(likelihood: object, data: Views, verbose: bool) -> dict[str, Likelihood]:
    """Return what the likelihood of every view is like.

    Parameters
    ----------
    likelihood : str, Likelihood, or mapping of view to one of these
        Views that a mapping does not name are Gaussian.
    data : Views
    verbose : bool
        Whether to print why "auto" chose what it chose; it is logged in any case.

    Raises
    ------
    InputError
        A view or a name is unknown.
    """
    if isinstance(likelihood, Mapping):
        for view in likelihood:
            if view not in data.names:
                raise InputError(
                    message(
                        f"likelihood for views {list(data.names)}",
                        repr(view),
                        "correct the name",
                    )
                )
        chosen = {view: likelihood.get(view, "gaussian") for view in data.names}
    else:
        chosen = dict.fromkeys(data.names, likelihood)
    return {view: _one(asked, view, data, verbose) for view, asked in chosen.items()}


def _one(given: object, view: str, data: Views, verbose: bool) -> Likelihood:
    if isinstance(given, Likelihood):
        return given
    if isinstance(given, str) and given == "auto":
        given, reason = guess(data.X[:, data.columns[view]])
        announce([f"view {view!r}: likelihood {given!r}, because {reason}"], verbose)
    kind = NAMES.get(given) if isinstance(given, str) else None
    if kind is None:
        raise unknown_likelihood(given, view)
    return kind()


def all_gaussian(likelihood: object) -> bool:
    """Return whether what is asked for is Gaussian in every view."""
    asked = likelihood.values() if isinstance(likelihood, Mapping) else [likelihood]
    return all(
        isinstance(likelihood_of_view, Gaussian)
        or (isinstance(likelihood_of_view, str) and likelihood_of_view == Gaussian.name)
        for likelihood_of_view in asked
    )


def known_by_rows(likelihood: object) -> bool:
    """Return whether rows of what is asked for may be divided, or read block by block, in every
    view.
    """
    asked = likelihood.values() if isinstance(likelihood, Mapping) else [likelihood]
    kinds = (NAMES.get(one) if isinstance(one, str) else one for one in asked)
    return all(kind is not None and getattr(kind, "knows_by_rows", False) for kind in kinds)


def not_with_holes(likelihood: object, noise: str) -> str | None:
    """Return what keeps rows with missing entries from being divided."""
    if not all_gaussian(likelihood):
        return f"likelihood={likelihood!r}"
    return "a noise variance per column" if noise == "column" else None


def per_column(
    chosen: Mapping[str, Likelihood], data: Views, verbose: bool, processes: Processes
) -> dict[str, Likelihood]:
    """Give every column of the Gaussian views a noise variance of its own, and say what that
    costs.
    """
    out = dict(chosen)
    here = sampled(data.X, processes.total(data.X.shape[0]), processes.start)
    some = np.concatenate(processes.gathered(here))
    for view, likelihood in chosen.items():
        if isinstance(likelihood, Gaussian):
            columns = data.columns[view]
            scales = data.scaling.scale
            least = [least_noise(some[:, j] / scales[j]) for j in columns]
            noise = [max(_START_NOISE, 2.0 * one) for one in least]
            out[view] = Gaussian(noise, least)
            text = (
                f"view {view!r}: noise per column, so that training sees all columns and "
                "rotates none away"
            )
            announce([text], verbose)
    return out


def announce(texts: Sequence[str], verbose: bool) -> None:
    """Log what was chosen, and print it if wanted."""
    for text in texts:
        _LOG.info(text)
        if verbose:
            print(text, file=sys.stderr)


def plain_noise(variance: float | Tensor, scale: float = 1.0) -> float | NDArray[np.float64]:
    """Return a noise variance in original units, or one per column (M_v,)."""
    if isinstance(variance, Tensor):
        values: NDArray[np.float64] = variance.numpy() * scale**2
        return values
    return variance * scale**2


def with_fixed_noise(
    noise_variance: Any,
    likelihoods: Mapping[str, Likelihood],
    scales: Mapping[str, float],
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


def warn_of_caps(dispersion: Mapping[str, Any]) -> None:
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


def support(likelihood: Likelihood) -> Support | None:
    """Return what a likelihood can have produced; None: any number."""
    kind = likelihood.support
    largest = None
    if isinstance(likelihood, Binomial):
        given = likelihood.get_params()["n_trials"]
        # "max" is what the data have
        largest = None if isinstance(given, str) else likelihood.n_trials.numpy()
    categories = likelihood.categories if isinstance(likelihood, Categorical) else None
    if kind == "real":
        return None
    return Support(kind, largest, categories)


def check(
    values: FloatArray,
    likelihoods: Mapping[str, Likelihood],
    columns: Mapping[str, NDArray[np.intp]],
    column_names: ColumnNames,
) -> None:
    """Refuse entries that a view's likelihood cannot have produced; the message names the place."""
    for view, likelihood in likelihoods.items():
        if sp.issparse(values) and isinstance(likelihood, Categorical):
            want = f"a dense X for view {view!r} (likelihood 'categorical')"
            do = "pass X.toarray()"
            raise InputError(
                message(
                    want, "a sparse one, whose zeros mean nothing special to categories", do
                )
            )
        if allowed := support(likelihood):
            allowed.check(values, columns[view], view, likelihood.name, column_names)


def check_units(
    values: Any,
    likelihoods: Mapping[str, Likelihood],
    data: Views,
    column_names: ColumnNames,
) -> None:
    """Warn of Gaussian views with one scale of which one column has nearly all variance; rows on
    disk and sparse ones are not looked at.
    """
    if not isinstance(values, np.ndarray):
        return
    some = sampled(values)
    for view, likelihood in likelihoods.items():
        positions = data.columns[view]
        one_scale = np.ptp(data.scaling.scale[positions]) == 0.0
        if isinstance(likelihood, Gaussian) and one_scale:
            warn_of_units(some, positions, view, column_names)


class SizeFactors:
    """The logarithms of the rows' size factors, relative to the typical training row.

    Attributes
    ----------
    typical : dict of str to float
        By view that has them: the mean of the logarithms over training rows.
    shares : dict of str to ndarray of shape (M_v,)
        By view whose factors are total counts: each column's share of all counts, with which a row
        that was seen in part is extrapolated.
    """

    def __init__(
        self, typical: dict[str, float], shares: dict[str, NDArray[np.float64]]
    ) -> None:
        self.typical = typical
        self.shares = shares

    @classmethod
    def fit(
        cls,
        values: FloatArray,
        given: object,
        likelihoods: Mapping[str, Likelihood],
        columns: Mapping[str, NDArray[np.intp]],
        processes: Processes = ALONE,
    ) -> SizeFactors:
        """Measure what is typical, over the rows of all processes."""
        made = cls({}, {})
        for view, likelihood in likelihoods.items():
            if getattr(likelihood, "size_factors", None) == "total":
                rate = _rates(values, columns[view], processes)
                made.shares[view] = rate / max(float(rate.sum()), 1e-300)

        def known() -> dict[str, object]:
            factors = _given(given, likelihoods)
            for view in factors:
                _refuse_unknown(factors[view], view, values, columns[view])
            return factors

        for view in {*made.shares, *processes.together(known)}:
            made.typical[view] = 0.0
        raw = made.offsets(values, given, likelihoods, columns)
        made.typical = {
            view: float(_mean(part, processes))
            for view, part in raw.items()
            if part is not None
        }
        return made

    def offsets(
        self,
        values: FloatArray,
        given: object,
        likelihoods: Mapping[str, Likelihood],
        columns: Mapping[str, NDArray[np.intp]],
    ) -> dict[str, Tensor | None]:
        """Return the offsets of rows by view, each of shape (n,) or None.

        Parameters
        ----------
        values : ndarray of shape (n, M)
        given : None, array-like of shape (n,), or mapping of view to one
            NaN stands for a typical row.
        likelihoods, columns
            By view.

        Raises
        ------
        InputError
            Factors of the wrong length, factors that are not positive, or for a view that takes
            none.
        """
        factors = _given(given, likelihoods)
        out: dict[str, Tensor | None] = dict.fromkeys(likelihoods)
        for view, typical in self.typical.items():
            if view in factors:
                logs = _checked(factors[view], view, values.shape[0])
            elif view in self.shares:
                of_view = columns[view]
                shares = self.shares[view]
                parts = (values[rows][:, of_view] for rows in passes(values.shape))
                logs = np.concatenate([self._totals(part, shares) for part in parts])
            else:
                # not given for these rows: they are typical
                continue
            out[view] = torch.from_numpy(np.where(np.isnan(logs), 0.0, logs - typical))
        extra = sorted(set(factors) - set(self.typical))
        if extra:
            do = "fit with size_factors for it as well"
            raise InputError(
                message(f"size_factors for views {sorted(self.typical)}", repr(extra[0]), do)
            )
        return out

    @staticmethod
    def _totals(part: FloatArray, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        if sp.issparse(part):
            reach: NDArray[np.float64] = np.full(part.shape[0], float(shares.sum()))
            total: NDArray[np.float64] = np.array(part.sum(axis=1, dtype=np.float64)).ravel()
        else:
            reach = ~np.isnan(part) @ shares
            total = np.nansum(part, axis=1, dtype=np.float64)
        # a row without counts says that it is small, not that it is nothing
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(reach > 0, np.log(np.maximum(total, 0.5) / reach), np.nan)

    def to_json(self) -> dict[str, object]:
        """Return plain numbers."""
        return {
            "typical": self.typical,
            "shares": {view: share.tolist() for view, share in self.shares.items()},
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> SizeFactors:
        """Rebuild what `to_json` wrote."""
        return cls(
            dict(plain["typical"]),
            {view: np.array(share) for view, share in plain["shares"].items()},
        )


def _rates(
    values: Any, columns: NDArray[np.intp], processes: Processes
) -> NDArray[np.float64]:
    """Return the mean of every column over the rows of all processes."""
    total, count = torch.zeros(2, len(columns), dtype=torch.float64)
    for rows in passes(values.shape):
        part = values[rows][:, columns]
        observed = np.full(len(columns), float(part.shape[0]))
        if sp.issparse(part):
            wide: Any = part
            total += torch.from_numpy(np.asarray(wide.sum(axis=0, dtype=np.float64)).ravel())
        else:
            total += torch.from_numpy(np.nansum(part, axis=0, dtype=np.float64))
            observed = np.count_nonzero(~np.isnan(part), axis=0).astype(np.float64)
        count += torch.from_numpy(observed)
    total, count = processes.sums([total, count])
    rates: NDArray[np.float64] = (total / count).numpy()
    return rates


def _mean(values: Tensor, processes: Processes) -> Tensor:
    """Return the mean over the rows of all processes."""
    total = processes.sum(values.sum())
    return total / processes.total(len(values))


def _given(given: object, likelihoods: Mapping[str, Likelihood]) -> dict[str, object]:
    """Size factors by view: an array goes to every view of counts."""
    counts = [
        view for view, likelihood in likelihoods.items() if hasattr(likelihood, "size_factors")
    ]
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if not counts:
            got = f"views {list(likelihoods)} without one"
            do = "leave size_factors out, or choose 'poisson' or 'negative_binomial'"
            raise InputError(message("a view of counts for size_factors", got, do))
        return dict.fromkeys(counts, given)
    for view in given:
        if view not in counts:
            raise InputError(
                message(
                    f"size_factors for views of counts {counts}",
                    repr(view),
                    "correct the name",
                )
            )
    return dict(given)


def _refuse_unknown(given: object, view: str, values: Any, columns: NDArray[np.intp]) -> None:
    """Refuse training rows that have counts and no size factor: what is typical could not be
    told.
    """
    unknown = np.isnan(_checked(given, view, values.shape[0]))
    unknown[unknown] = observed_rows(values[np.flatnonzero(unknown)][:, columns])
    if unknown.any():
        do = "give the row's factor, such as its total count, or drop the row"
        want = f"a size factor for every training row of view {view!r}"
        row = int(unknown.argmax())
        raise InputError(message(want, f"NaN in row {row}", do), row=row)


def _checked(given: object, view: str, n_rows: int) -> NDArray[np.float64]:
    values = as_array("size_factors", given)
    try:
        if values.dtype.kind in "cmM":
            raise TypeError(f"{values.dtype} is no real number")
        factors = as_numbers(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        want = f"numbers as size factors of view {view!r}"
        do = "give one number per row of X"
        row = first_no_number(values)
        got = shown(given) if row is None else f"{shown(values[row])} in row {row}"
        if isinstance(given, str):
            do += ", or size_factors='total' to the likelihood, bo.likelihoods.Poisson say"
        raise InputError(message(want, got, do), row=row) from error
    if factors.shape != (n_rows,):
        want = f"{n_rows} size factors for view {view!r}, one per row"
        raise InputError(
            message(want, f"shape {factors.shape}", "give one number per row of X")
        )
    bad = ~np.isnan(factors) & ~((factors > 0) & np.isfinite(factors))
    if bad.any():
        row = int(bad.argmax())
        got = f"{factors[row]:.6g} in row {row}"
        want = f"positive size factors for view {view!r}"
        do = "drop the row, or correct its factor"
        raise InputError(message(want, got, do), row=row)
    logs: NDArray[np.float64] = np.log(factors)
    return logs
