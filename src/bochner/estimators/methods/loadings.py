"""Which columns a latent dimension drives, and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bochner.data.arrays import FloatArray
from bochner.data.columns import evenly_spread
from bochner.estimators.methods.placing import PlacingMixin
from bochner.estimators.settings.constraints import check_types
from bochner.extras import require
from bochner.memory import Memory
from bochner.prediction import diagnostics
from bochner.processes.isolation import isolated

# Training rows over which shares of variance are taken.
_ROWS = 1000


class LoadingsMixin(PlacingMixin):
    """Loadings and slopes of columns."""

    n_features_in_: int

    @property
    def covariate_std_(self) -> dict[str, dict[str, float]]:
        """How large the effects of each covariate are, by view: their learned prior standard
        deviation, original units (per standard deviation of a continuous covariate); of views
        whose columns have units of their own, as in mixed tables, in standard deviations of each
        column, and of counts and labels that of the linear predictor. 0 for a covariate that is the
        same in all rows. Empty without covariates.
        """
        check_is_fitted(self)
        out = {}
        for view in self._fit.posterior:
            linear = view.draws[0].frequencies.linear
            if len(linear):
                effects = self._scales[view.name] * linear
                out[view.name] = self._covariate_coding.standard_deviations(effects)
        return out

    @isolated
    def loadings(self, as_frame: bool = False) -> Any:
        """Return the share of each column's variance that each latent dimension explains.

        Parameters
        ----------
        as_frame : bool, default=False
            Return a DataFrame with the names of the columns.

        Returns
        -------
        ndarray or DataFrame of shape (M, D)
            What is lost when the dimension is not known (integrated out under its prior) while the
            others are, over the variance of the column's prediction plus its noise variance, at up
            to 1,000 training rows. For a linear model with independent latents this is the squared
            correlation of column and dimension. Rows need not sum to one: what dimensions do
            together counts for each. Values beyond one: without the dimension predictions are worse
            than the column's mean. For other likelihoods than the Gaussian it is the variance of
            the linear predictor (log odds, log mean), whose mean variance under the weights'
            posterior stands in place of the noise.
        """
        check_is_fitted(self)
        check_types("loadings", as_frame=as_frame)
        Z = self.embedding_
        rows = evenly_spread(len(Z), _ROWS)
        latents = torch.tensor(Z[rows], dtype=torch.float64)
        with torch.no_grad():
            stacked = diagnostics.explained(self._fit.posterior, latents)
        shares = self._in_columns_of_X(stacked.T).T
        if not as_frame:
            return np.ascontiguousarray(shares)
        pandas = require("pandas", "labels loadings")
        names = getattr(self, "feature_names_in_", None)
        dimensions = [f"dim {d}" for d in range(shares.shape[1])]
        return pandas.DataFrame(shares, index=names, columns=dimensions)

    @isolated
    def slopes(self, Z: ArrayLike) -> FloatArray:
        """Return the derivatives of the predicted columns at places in latent space.

        Parameters
        ----------
        Z : array-like of shape (n, D)
            Latents, as ``transform`` returns them.

        Returns
        -------
        ndarray of shape (n, M, D)
            Original units per unit of latent. For other likelihoods than the Gaussian that of the
            linear predictor (log odds, log mean); NaN for categories.
        """
        latents, dtype = self._validate_latents(Z)
        size = latents.shape[0] * self.n_features_in_ * latents.shape[1]
        Memory().check(
            8 * size, f"slopes at {latents.shape[0]:,} places", "ask for fewer places"
        )
        with torch.no_grad():
            stacked = diagnostics.slopes(self._fit.posterior, latents)
        along = [
            self._in_columns_of_X(stacked[:, :, d]) * self._scaling.scale
            for d in range(latents.shape[1])
        ]
        out: FloatArray = np.stack(along, axis=2).astype(dtype)
        return out
