"""Are intervals calibrated? A report on entries that were hidden and predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from bochner import markup
from bochner.data.arrays import Float64Array
from bochner.prediction.entry_statistics import (
    beyond_scale,
    by_column,
    mean_of_rows,
    skewness,
)

# Intervals that are checked: the middle, what most report, and the tails.
LEVELS = (0.5, 0.8, 0.95)
# Bins of the histogram of PIT values: the outer two are what 90 % intervals leave out.
N_BINS = 20

# A share further off than this, beyond two standard errors where rows are many, is reported.
_TOLERANCE = 0.02
_CHANCE = 0.02275
# Columns are compared with the share of the view at this level, by a test of all of them with this
# probability of a false alarm.
_COLUMN_LEVEL = 0.8
_COLUMN_ALARM = 0.005
# Errors of a row's entries that correlate by so much more than predicted, beyond three standard
# errors, are said; and so is skewness of normal scores.
_DEPENDENT = 0.03
_SKEWED = 0.2
# Counts and what they are taken for where they vary more.
_ONE_PARAMETER = ("poisson", "binomial")
# What has no size has no tails, and no shape that another likelihood or a logarithm would change.
_LABELS = ("bernoulli", "categorical")
# Tails: entries outside of such intervals, and outside of wider ones, counted in deviations of the
# inner half and no more than so many of these; shares of them beyond a normal distribution's, and
# beyond so many standard errors, are said.
_TAILS = 0.95
_TAILS_MOST = 2.5
_TAILS_SHARE = 0.02
_FAR = 0.98
_FAR_MOST = 4.0
_FAR_SHARE = 0.012
_TAILS_ERRORS = 2.5
# Gross outliers lie outside both, and the wider intervals leave fewer others: so many times more.
_OUTLIERS = 1.25
# Fewer hidden entries, or fewer rows, tell nothing.
_LEAST_ENTRIES = 20
_LEAST_ROWS = 5


@dataclass(frozen=True)
class ViewCalibration:
    """How the predictions of one view's hidden entries compare with the truth.

    Attributes
    ----------
    view : str
    n_entries, n_rows : int
        Hidden entries, and the rows they lie in.
    coverage : dict of float to float
        Share of the entries inside their central interval, by the share it should hold.
    coverage_se : dict of float to float
        Standard errors: rows are independent, the entries of a row are not.
    pit : ndarray of shape (20,)
        Histogram of the randomised probability integral transform: shares, all 0.05 where
        predictions are right.
    pit_se : ndarray of shape (20,)
    pit_mean, pit_mean_se : float
        0.5 where predictions are neither too high nor too low.
    log_likelihood, log_likelihood_se : float
        Mean log density of a hidden entry given what was shown of its row, nats, original units.
    tails, tails_se : float
        How many more entries lie outside 95 % intervals than where a normal distribution has the
        inner half of them, a share. A factor by which all deviations are wrong does not count.
    far, far_se : float
        The same of 98 % intervals.
    columns_off, columns_seen : int
        Columns whose own 80 % intervals hold more or less than the view's on the whole, of those
        with at least 20 hidden entries.
    columns_p : float
        Of a chi-square test that the columns hold as much as the view; 1 without such columns.
    column_range : (float, float)
        Least and largest share of a column's entries in their 80 % intervals; NaN without such
        columns.
    dependence, dependence_se : float
        Mean correlation of the errors of two hidden entries of a row, less that of draws; 0 with an
        infinite error where rows hardly have two.
    skewness, skewness_se : float
        Of the normal scores of the transforms: 0 where predictions have the right shape.
    likelihood : str
    """

    view: str
    n_entries: int
    n_rows: int
    coverage: dict[float, float]
    coverage_se: dict[float, float]
    pit: Float64Array
    pit_se: Float64Array
    pit_mean: float
    pit_mean_se: float
    log_likelihood: float
    log_likelihood_se: float
    tails: float
    tails_se: float
    far: float
    far_se: float
    columns_off: int
    columns_seen: int
    columns_p: float
    column_range: tuple[float, float]
    dependence: float = 0.0
    dependence_se: float = float("inf")
    skewness: float = 0.0
    skewness_se: float = float("inf")
    likelihood: str = ""

    @property
    def few(self) -> str:
        """Say that there is too little to tell anything, where that is so."""
        if self.n_entries >= _LEAST_ENTRIES and self.n_rows >= _LEAST_ROWS:
            return ""
        return (
            f"view {self.view!r}: {self.n_entries:,} hidden entries of {self.n_rows:,} rows are "
            "too few to tell: pass more rows, or hide a larger fraction."
        )

    def problems(self) -> list[str]:
        """Say in plain sentences where the predictions are not calibrated; empty where they are."""
        if self.few:
            return []
        differ = self.columns_p < _COLUMN_ALARM and self.columns_off > 0
        texts = self._width("" if differ else self._tails()) + self._shape()
        lean = self._beyond(self.pit_mean - 0.5, self.pit_mean_se)
        if lean:
            mean = f"{100 * self.pit_mean:.0f} ± {100 * self.pit_mean_se:.0f} %"
            side = "low" if lean > 0 else "high"
            texts.append(
                f"The truth lies at {mean} of its predictive distribution on average: predictions "
                f"too {side}."
            )
        if differ:
            low, high = self.column_range
            # noise is what Gaussian views have
            of_noise = self.likelihood in ("", "gaussian")
            how = "their noise" if of_noise else "how far they vary about their predictions"
            texts.append(
                f"80 % intervals hold {100 * low:.0f} to {100 * high:.0f} % in single columns "
                f"({self.columns_off} of {self.columns_seen} are off what the view holds): the "
                f"columns differ in {how}."
            )
        return [f"view {self.view!r}: {text}" for text in texts]

    def _shape(self) -> list[str]:
        """Say whether errors are skewed, or go together within rows."""
        texts = []
        skewed = abs(self.skewness) - 3.0 * self.skewness_se > _SKEWED
        if skewed and self.likelihood not in _LABELS:
            texts.append(
                f"Errors are skewed ({self.skewness:.2f} ± {self.skewness_se:.2f}) where "
                "predictions are not: another likelihood, or a transformation, such as a logarithm."
            )
        if abs(self.dependence) - 3.0 * self.dependence_se > _DEPENDENT:
            texts.append(
                f"Errors of a row's entries correlate by {self.dependence:.2f} ± "
                f"{self.dependence_se:.2f} more than predicted: they share what the latents do not "
                "have, or have too much of."
            )
        return texts

    def _width(self, tails: str) -> list[str]:
        """Say whether tails are heavy, or else whether intervals are too wide or too narrow."""
        off = {level: self._excess(level) for level in self.coverage}
        worst = max(off, key=lambda level: abs(off[level]))
        texts = [tails] if tails else []
        if off[worst] and not tails:
            texts.append(
                f"{self._holds(worst)}: too {'wide' if off[worst] > 0 else 'narrow'}."
            )
        if off[worst] < 0 and self.likelihood in _ONE_PARAMETER:
            texts.append(
                f"Counts vary more than {self.likelihood} ones do: another likelihood, such as "
                "'negative_binomial'."
            )
        return texts

    def _tails(self) -> str:
        """Say whether more entries lie far out than the inner half lets expect; outliers where all
        of those lie further out still.
        """
        if self.likelihood in _LABELS:
            return ""
        heavy = self.tails > max(_TAILS_ERRORS * self.tails_se, _TAILS_SHARE)
        far = self.far > max(_TAILS_ERRORS * self.far_se, _FAR_SHARE)
        if far and (not heavy or self.far >= _OUTLIERS * self.tails):
            return (
                f"{100 * self.far:.1f} ± {100 * self.far_se:.1f} % more of the entries lie outside "
                "98 % intervals than the inner half lets expect: outliers."
            )
        if heavy:
            both = f"{self._holds(min(self.coverage))}, {self._holds(max(self.coverage))}"
            return f"{both}: the noise has heavier tails than the likelihood."
        return ""

    def _excess(self, level: float) -> float:
        # intervals that hold all entries have errors, too
        least = (level * (1.0 - level) / self.n_entries) ** 0.5
        return self._beyond(self.coverage[level] - level, max(self.coverage_se[level], least))

    def _beyond(self, difference: float, error: float) -> float:
        """Return a difference that is more than chance and matters, 0 otherwise. Errors of few rows
        are estimates.
        """
        errors = student.isf(_CHANCE, self.n_rows - 1)
        return difference if abs(difference) - errors * error > _TOLERANCE else 0.0

    def _holds(self, level: float) -> str:
        share = 100 * self.coverage[level]
        error = 100 * self.coverage_se[level]
        return f"{100 * level:.0f} % intervals hold {share:.0f} ± {error:.0f} %"

    def to_json(self) -> dict[str, object]:
        """Return plain numbers; levels as text such as "0.8"."""
        plain = {name: value for name, value in vars(self).items() if name != "view"}
        plain |= {
            name: {str(k): v for k, v in plain[name].items()}
            for name in ("coverage", "coverage_se")
        }
        plain |= {
            "pit": self.pit.tolist(),
            "pit_se": self.pit_se.tolist(),
            "column_range": list(self.column_range) if self.columns_seen else None,
        }
        # nothing lies inside intervals to compare with
        for name in ("tails", "far"):
            if not np.isfinite(plain[f"{name}_se"]):
                plain |= {name: None, f"{name}_se": None}
        # rows hardly have two hidden entries
        if not np.isfinite(self.dependence_se):
            plain |= {"dependence": None, "dependence_se": None}
        # an error of one row is not known
        if self.n_rows < 2:
            plain |= {name: None for name in plain if name.endswith("_se")}
        return {**plain, "problems": self.problems()}


@dataclass(frozen=True)
class CalibrationReport:
    """What hidden entries say about a model's uncertainty, by view; prints itself.

    Attributes
    ----------
    views : dict of str to ViewCalibration
        Views of which something was hidden.
    hidden : str
        What was hidden, in words.
    n_draws : int
        Draws of every hidden entry with which it was compared.
    """

    views: dict[str, ViewCalibration]
    hidden: str
    n_draws: int

    @property
    def calibrated(self) -> bool:
        """Whether no view has a problem; of views with too few hidden entries none is known."""
        return not self.problems()

    def problems(self) -> list[str]:
        """Return the sentences of all views."""
        return [text for view in self.views.values() for text in view.problems()]

    def _repr_html_(self) -> str:
        """Return the report as a table, for notebooks."""
        levels = list(next(iter(self.views.values())).coverage)
        heads = ["view", "entries", *(f"in {100 * level:.0f} % intervals" for level in levels)]
        rows = [
            [
                view.view,
                f"{view.n_entries:,}",
                *(
                    f"{100 * view.coverage[level]:.1f} ± {100 * view.coverage_se[level]:.1f} %"
                    for level in levels
                ),
                f"{view.log_likelihood:.4g} ± {view.log_likelihood_se:.2g}",
            ]
            for view in self._known()
        ]
        below = self._verdict()
        heads.append("log-likelihood (nats per entry)")
        return markup.table(f"Calibration on {self.hidden}", heads, rows, below)

    def __str__(self) -> str:
        """Return a line per view, then what is not calibrated."""
        lines = [f"Calibration on {self.hidden}: share of the truth in central intervals"]
        for view in self._known():
            shares = ", ".join(
                f"{100 * level:.0f} %: {100 * share:.1f} ± {100 * view.coverage_se[level]:.1f}"
                for level, share in view.coverage.items()
            )
            density = (
                f"log-likelihood {view.log_likelihood:.4g} ± {view.log_likelihood_se:.2g} "
                "nats per entry"
            )
            lines.append(
                f"  {view.view} ({view.n_entries:,} entries of {view.n_rows:,} rows): {shares}; "
                f"{density}"
            )
        return "\n".join([*lines, *self._verdict()])

    def too_few(self) -> list[str]:
        """Return a sentence for each view of which too few entries were hidden to tell anything."""
        return [view.few for view in self.views.values() if view.few]

    def _known(self) -> list[ViewCalibration]:
        """Return the views of which enough was hidden to tell anything."""
        return [view for view in self.views.values() if not view.few]

    def _verdict(self) -> list[str]:
        said = [*self.problems(), *self.too_few()]
        return said or ["Calibrated, as far as these entries can tell."]

    def to_json(self) -> dict[str, object]:
        """Return the report as plain numbers and text; "calibrated" is None where every view has
        too few hidden entries to tell.
        """
        views = {name: view.to_json() for name, view in self.views.items()}
        known = self.calibrated if self._known() else None
        head = {"hidden": self.hidden, "n_draws": self.n_draws, "calibrated": known}
        said = {"problems": self.problems(), "too_few": self.too_few()}
        return {**head, **said, "views": views}


def assess(
    view: str,
    pit: Float64Array,
    log_density: Float64Array,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    joint: tuple[float, float] = (0.0, float("inf")),
    likelihood: str = "",
) -> ViewCalibration:
    """Summarise the hidden entries of a view.

    Parameters
    ----------
    view : str
    pit : ndarray of shape (n,)
        Probability integral transform of every hidden entry, randomised where the data are
        discrete.
    log_density : ndarray of shape (n,)
        Nats, original units.
    rows, columns : ndarray of int, shape (n,)
        Where the entries lie.
    joint : (float, float)
        How much more errors of a row correlate than draws, and its standard error.
    likelihood : str
        Of the view.

    Returns
    -------
    ViewCalibration
    """
    centred = np.abs(pit - 0.5)
    coverage = {
        level: mean_of_rows((centred <= level / 2).astype(np.float64), rows)
        for level in LEVELS
    }
    bins = np.minimum((pit * N_BINS).astype(int), N_BINS - 1)
    shares = np.array(
        [mean_of_rows((bins == b).astype(np.float64), rows) for b in range(N_BINS)]
    )
    lean = mean_of_rows(pit, rows)
    density = mean_of_rows(log_density, rows)
    off, counted, p, shares_of_columns = by_column(
        (centred <= _COLUMN_LEVEL / 2).astype(np.float64), columns
    )
    return ViewCalibration(
        view,
        len(pit),
        len(np.unique(rows)),
        {level: mean for level, (mean, _) in coverage.items()},
        {level: error for level, (_, error) in coverage.items()},
        shares[:, 0],
        shares[:, 1],
        *lean,
        *density,
        *beyond_scale(pit, rows, _TAILS, _TAILS_MOST),
        *beyond_scale(pit, rows, _FAR, _FAR_MOST),
        off,
        counted,
        p,
        shares_of_columns,
        *joint,
        *skewness(pit, rows),
        likelihood,
    )


def describe(hide: str, fraction: float, n_entries: int, views: Mapping[str, int]) -> str:
    """Say what was hidden."""
    if hide == "entries":
        return f"{n_entries:,} entries, {100 * fraction:.0f} % of those observed"
    return "whole views: " + ", ".join(
        f"{view} of {count:,} rows" for view, count in views.items()
    )
