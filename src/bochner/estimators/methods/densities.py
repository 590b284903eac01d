"""What a fitted estimator says about the distribution of rows: densities, samples, kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bochner import random
from bochner.data.arrays import FloatArray
from bochner.data.covariates import AVERAGE
from bochner.errors import InputError, message
from bochner.estimators.methods.loadings import LoadingsMixin
from bochner.estimators.methods.rows import warn_of_empty
from bochner.estimators.settings.constraints import check_types
from bochner.features.fourier import columns_beside, with_covariates
from bochner.memory import Memory
from bochner.prediction import decoding
from bochner.prediction.row_density import log_density
from bochner.processes.isolation import isolated


class DensitiesMixin(LoadingsMixin):
    """Densities and samples of rows, and kernels between latents."""

    seed_: int
    _candidates: Tensor

    def score(
        self,
        X: object,
        y: object = None,  # noqa: ARG002 - scikit-learn's
        size_factors: object = None,
        covariates: object = None,
        return_std: bool = False,
    ) -> Any:
        """Return the mean over rows of log p(observed entries), in nats and original units.

        The mean of ``score_samples``.

        Parameters
        ----------
        X : array-like of shape (n, M)
        y : ignored
        size_factors : array-like of shape (n,), or dict of view to one, optional
            As in ``transform``.
        covariates : DataFrame, Series, dict of name to values, or array, optional
            As in ``transform``.
        return_std : bool, default=False

        Returns
        -------
        score : float
        std : float, if ``return_std``
            Standard error of the integration over latents, in nats. What a mean of other rows would
            differ by is not in it.
        """
        check_types("score", return_std=return_std)
        density, errors = self.score_samples(X, size_factors, True, covariates)
        score = float(density.mean())
        return (score, float(np.linalg.norm(errors)) / len(errors)) if return_std else score

    @isolated
    def score_samples(
        self,
        X: object,
        size_factors: object = None,
        return_std: bool = False,
        covariates: object = None,
    ) -> Any:
        """Return log p(observed entries) of every row, in nats and original units.

        The latent is integrated out by importance sampling about the modes that the row has under
        every draw of the spectra. Noise depends on ``random_state`` and on the row's values: rows
        have errors of their own, and no row depends on those beside it. Rows with large errors get
        more samples.

        Parameters
        ----------
        X : array-like of shape (n, M)
        size_factors : array-like of shape (n,), or dict of view to one, optional
            As in ``transform``.
        return_std : bool, default=False
        covariates : DataFrame, Series, dict of name to values, or array, optional
            As in ``transform``.

        Returns
        -------
        densities : ndarray of shape (n,)
            0 for a row with nothing observed.
        std : ndarray of shape (n,), if ``return_std``
            Standard errors of the integration, in nats.
        """
        check_types("score_samples", return_std=return_std)
        values = self._validate(X, reset=False)
        offsets = self._offsets(values, size_factors)
        warn_of_empty(values)
        beside = self._beside(X, values, covariates, size_factors)
        model = (self._fit.posterior, self._candidates)
        parts = [
            log_density(*model, rows, self.seed_, row_offsets, known)
            for rows, row_offsets, known in self._dense_parts(values, offsets, beside)
        ]
        density: NDArray[np.float64] = torch.cat([part for part, _ in parts]).numpy()
        density = density + self._log_jacobian(values)
        errors = torch.cat([error for _, error in parts]).numpy()
        return (density, errors) if return_std else density

    @isolated
    def sample(
        self,
        n_samples: int = 1,
        random_state: object = None,
        covariates: object = "average",
    ) -> Any:
        """Draw new rows from the fitted model: latents from the prior, noise included.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None
        covariates : DataFrame, Series, dict of name to values, or array, default="average"
            Of the new rows, for a model that was fitted with covariates.

        Returns
        -------
        ndarray of shape (n_samples, M)
            A DataFrame of a mixed table.
        """
        check_is_fitted(self)
        check_types("sample", n_samples=n_samples, random_state=random_state)
        if n_samples < 1:
            raise InputError(
                message(
                    "n_samples of at least 1",
                    str(n_samples),
                    "ask for a positive number of rows",
                )
            )
        width = len(self._scaling.centre) + self._n_latents
        Memory().check(8 * n_samples * width, f"{n_samples:,} rows", "draw them in parts")
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        source = random.generator(seed, "sample")
        x = torch.randn(n_samples, self._n_latents, generator=source, dtype=torch.float64)
        x = with_covariates(x, self._wanted(covariates, n_samples))
        drawn = self._unscale(decoding.sample_at(self._fit.posterior, x, source))
        return self._coding.rows(drawn.astype(self._dtype))

    @isolated
    def kernel_matrix(
        self, Z: ArrayLike, view: str | None = None, exact: bool = True
    ) -> FloatArray:
        """Return a view's learned kernel between latents, original units squared.

        Parameters
        ----------
        Z : array-like of shape (n, D)
        view : str, optional
            Needed when there are several.
        exact : bool, default=True
            The closed form; False: the mean over the stored draws of random features.

        Returns
        -------
        ndarray of shape (n, n)

        Raises
        ------
        InputError
            The view is unknown, or the precision of Z cannot hold its kernel.
        """
        check_types("kernel_matrix", view=view)
        latents, dtype = self._validate_latents(Z)
        index = self._view_index(view)
        scale = list(self._scales.values())[index]
        posterior = self._fit.posterior[index]
        with torch.no_grad():
            kernel = (
                self._fit.kernels[index](posterior.see(latents))
                if exact
                else decoding.kernel(posterior, latents)
            )
        matrix: FloatArray = (scale**2 * kernel).numpy()
        largest = float(np.abs(matrix).max(initial=0.0))
        if not largest <= float(np.finfo(dtype).max):
            got = f"one of up to {largest:.1e}"
            do = "pass Z in float64, or scale the data of this view"
            raise InputError(message(f"a kernel that {np.dtype(dtype)} can hold", got, do))
        return matrix.astype(dtype)

    def _wanted(self, covariates: object, n_rows: int) -> Tensor:
        """Return the covariates that rows are to be predicted for; no columns: their average."""
        if isinstance(covariates, str) and covariates == AVERAGE:
            return columns_beside(None, n_rows)
        return self._covariate_coding.encode(covariates, n_rows)

    def _view_index(self, view: str | None) -> int:
        names = list(self.views_)
        if view is None and len(names) == 1:
            return 0
        if view not in names:
            raise InputError(message(f"view= one of {names}", repr(view), "name a view"))
        return names.index(view)
