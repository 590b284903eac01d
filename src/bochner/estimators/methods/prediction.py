"""What a fitted estimator says about rows: in the caller's units, names and precision."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bochner.data.row_sources import source_of
from bochner.errors import InputError, message
from bochner.estimators.methods.densities import DensitiesMixin
from bochner.estimators.methods.rows import warn_of_empty
from bochner.estimators.settings.constraints import check_types
from bochner.features.fourier import with_covariates
from bochner.fitting.completion_choice import Question
from bochner.memory import Memory
from bochner.prediction import completion, decoding
from bochner.processes.isolation import isolated


class PredictionMixin(DensitiesMixin, TransformerMixin):
    """Placement, decoding, completion, densities and samples of a fitted latent variable model.

    A TransformerMixin itself, because ``set_output`` wraps a method only in the class that defines
    it.
    """

    _completion: Question | dict[str, float | None]
    # how places of rows with holes are found
    _mixture_of: ClassVar[type[completion.Mixture]] = completion.Mixture

    @property
    def _mixture(self) -> completion.Mixture:
        return self._mixture_of(self._candidates, self.completion_, self._current_placer())

    @property
    def completion_(self) -> dict[str, float | None]:
        """How rows that lack a view are completed, by view: chosen when it is first asked for."""
        check_is_fitted(self)
        if isinstance(self._completion, Question):
            self._completion = isolated(self._completion.answer)()
        return self._completion

    @completion_.setter
    def completion_(self, value: dict[str, float | None]) -> None:
        self._completion = value

    def __getstate__(self) -> dict[str, object]:
        """Return the state without rows of the training data: what they are held for is done."""
        state: dict[str, object] = {**super().__getstate__()}
        # large, and soon made again
        state.pop("_placer", None)
        state.pop("_index", None)
        if "_embedded" in state:
            state["_embedded"] = self._lasting()
        return state | ({"_completion": self.completion_} if "_completion" in state else {})

    # -- latents of rows
    # ---------------------------------------------------------------------------------------

    @isolated
    def transform(
        self,
        X: object,
        return_std: bool = False,
        size_factors: object = None,
        covariates: object = None,
        interval: float | None = None,
    ) -> Any:
        """Place rows in latent space.

        Parameters
        ----------
        X : array-like, scipy sparse matrix or row source of shape (n, M)
            Rows seen or not; any entries or whole views may be NaN. Zeros of a sparse X are
            observed values.
        return_std : bool, default=False
        size_factors : array-like of shape (n,), or dict of view to one, optional
            For views of counts that were fitted with them; rows without one are of typical size.
        covariates : DataFrame, Series, dict of name to values, or array, optional
            What is known of every row, as in ``fit``; None in place of a value, or "average" in
            place of them all, stands for the average of the rows of training.
        interval : float, optional
            Probability, such as 0.9, of central intervals of the posterior.

        Returns
        -------
        Z : ndarray of shape (n, D)
            The best posterior mode. A row with nothing observed gets 0, with standard deviation 1
            and one warning.
        std : ndarray of shape (n, D), if ``return_std``
            Of a normal distribution about Z as wide as the posterior, weights and spectra as
            uncertain as they are: of several modes the geometric mean of their root mean square
            distance and of what 50 and 95 % intervals ask for. Widened by what rows drawn from the
            model show. To three digits.
        low, high : ndarray of shape (n, D), if ``interval``
            Quantiles of the posterior, whatever its shape, at levels that hold so much of the
            latents of rows drawn from the model. Where the predictive density rules Z out, a
            normal distribution about Z counts as well.
        """
        check_types("transform", return_std=return_std, interval=interval)
        _check_interval(interval)
        values = self._validate(X, reset=False)
        beside = self._beside(X, values, covariates, size_factors)
        offsets = self._offsets(values, size_factors)
        if interval is not None:
            mean, std, *limits = self._intervals(values, offsets, beside, interval)
            return (mean, std, *limits) if return_std else (mean, *limits)
        mean, std = self._latents(values, offsets, beside, with_std=return_std)
        return (mean, std) if return_std else mean

    # -- data from latents
    # -------------------------------------------------------------------------------------

    @property
    def predictive_noise_variance_(self) -> dict[str, object]:
        """Noise variance of the entries that Gaussian views predict, original units squared."""
        return {
            view.name: self._noise_in_units(view.name, view.predicted_noise)
            for view in self._gaussian_views()
        }

    @isolated
    def inverse_transform(
        self,
        Z: ArrayLike,
        return_std: bool = False,
        interval: float | None = None,
        covariates: object = "average",
    ) -> Any:
        """Decode latents.

        Parameters
        ----------
        Z : array-like of shape (n, D)
        return_std : bool, default=False
        interval : float, optional
            Probability, such as 0.9, of central intervals of new observations; views of counts give
            counts.
        covariates : DataFrame, Series, dict of name to values, or array, default="average"
            What the rows are to be predicted for, of a model that was fitted with covariates.

        Returns
        -------
        X : ndarray of shape (n, M)
            Posterior mean, original units; of categories the most probable one. Views with size
            factors are predicted for a row of typical size. Of a mixed table labels are their
            positions among the labels of training.
        std : ndarray of shape (n, M), if ``return_std``
            Of a new observation, noise included; of categories the root of the probability of any
            other.
        low, high : ndarray of shape (n, M), if ``interval``
            Drawn, so that they carry the sampling error of 400 draws.
        """
        check_types("inverse_transform", return_std=return_std, interval=interval)
        _check_interval(interval)
        latents, dtype = self._validate_latents(Z)
        latents = with_covariates(latents, self._wanted(covariates, len(latents)))
        mean, variance = decoding.decode(self._fit.posterior, latents)
        out = [self._unscale(mean).astype(dtype)]
        if return_std:
            out.append(self._unscale_std(variance).astype(dtype))
        if interval is not None:
            limits = decoding.intervals(self._fit.posterior, latents, interval, self.seed_)
            out += [self._unscale(limit).astype(dtype) for limit in limits]
        return tuple(out) if len(out) > 1 else out[0]

    @isolated
    def impute(
        self,
        X: object,
        return_std: bool = False,
        n_draws: int | None = None,
        size_factors: object = None,
        covariates: object = None,
    ) -> Any:
        """Replace every NaN by its posterior mean, or by draws from the posterior.

        Parameters
        ----------
        X : array-like of shape (n, M)
            A view that is NaN in a row is predicted from the others. Dense: a sparse X has nothing
            to fill.
        return_std : bool, default=False
        n_draws : int, optional
            Return that many conditional draws instead of the mean.
        size_factors : array-like of shape (n,), or dict of view to one, optional
            As in ``transform``.
        covariates : DataFrame, Series, dict of name to values, or array, optional
            As in ``transform``.

        Returns
        -------
        X : ndarray of shape (n, M), or (n_draws, n, M)
            A DataFrame when X is one, or a mixed table of Polars or Arrow, with its columns, index
            and types: whole numbers are rounded, numbers beyond the range of their type the nearest
            in it, labels the most probable ones; columns that no view names are left out. With
            ``n_draws`` a list of such DataFrames.
        std : ndarray of shape (n, M), if ``return_std``
            Standard deviation of the imputed entries, noise included; 0 where an entry was
            observed.
        """
        check_types("impute", return_std=return_std, n_draws=n_draws)
        if n_draws is not None and (return_std or n_draws < 1):
            raise InputError(
                "n_draws must be a positive number and goes without return_std: draws carry their "
                "own."
            )
        values = self._validate(X, reset=False)
        if sp.issparse(values):
            do = "write NaN for what is to be predicted into a dense array of these rows"
            raise InputError(
                message(
                    "a dense X to complete",
                    "a sparse one, whose zeros are observed values",
                    do,
                )
            )
        # rows on disk are completed in memory
        if (source := source_of(X)) is not None:
            what = f"{source.n_rows:,} × {source.n_columns:,} numbers, completed in memory"
            do = "complete rows in parts, such as X[:100_000], or run bochner impute"
            Memory().check(source.held_bytes, what, do)
            X = values = values[:]
        warn_of_empty(values)
        if n_draws is not None:
            size = 8 * n_draws * len(values) * (values.shape[1] + self._n_latents)
            what = f"{n_draws:,} draws of {len(values):,} rows"
            Memory().check(size, what, "ask for fewer draws, or complete rows in parts")
        X = self._columns_of_fit(X)
        rows = self._split(values)
        missing = np.isnan(values)
        offsets = self._offsets(values, size_factors)
        beside = self._beside(X, values, covariates, size_factors)
        mixture = self._mixture
        if n_draws is not None:
            draws = completion.draw_rows(
                self._fit.posterior, mixture, rows, n_draws, self.seed_, offsets, beside
            )
            drawn = np.stack([self._unscale(row) for row in draws])
            filled = np.where(missing, drawn, values).astype(values.dtype)
            return self._coding.complete_draws(X, filled, missing)
        mean, variance = completion.complete(
            self._fit.posterior, mixture, rows, offsets, self._recall(values, offsets), beside
        )
        full = np.where(missing, self._unscale(mean), values).astype(values.dtype)
        out = self._coding.complete(X, full, missing)
        std = np.where(missing, self._unscale_std(variance), 0.0).astype(values.dtype)
        return (out, std) if return_std else out


def _check_interval(interval: float | None) -> None:
    """Refuse what is no probability of an interval."""
    if interval is not None and not 0.0 < interval < 1.0:
        wanted = ("interval between 0 and 1", repr(interval), "give a probability such as 0.9")
        raise InputError(message(*wanted))
