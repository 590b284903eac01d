"""What a fitted estimator says about rows: in the caller's units, names and precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bochner import random
from bochner.data.views import fingerprint
from bochner.errors import InputError, message
from bochner.estimators import options
from bochner.estimators.loadings import LoadingsMixin
from bochner.fitting.completion_choice import Question
from bochner.io.limits import Memory
from bochner.isolation import isolated
from bochner.latent_inference.infer import place
from bochner.latent_inference.placement import Placement
from bochner.prediction import completion, decoding
from bochner.prediction.row_density import log_density

FloatArray = NDArray[np.floating[Any]]

# Numbers in the covariances of places that are remembered.
_REMEMBERED = 2**25


def _digest(values: FloatArray) -> str:
    return fingerprint([values], {})


class PredictionMixin(LoadingsMixin, TransformerMixin):
    """Placement, decoding, completion, densities and samples of a fitted latent variable model.

    A TransformerMixin itself, because ``set_output`` wraps a method only in the class that defines
    it.
    """

    seed_: int
    _completion: Question | dict[str, float | None]
    _candidates: Tensor
    _placed: tuple[str, Placement] | None

    @property
    def completion_(self) -> dict[str, float | None]:
        """How rows that lack a view are completed, by view: chosen when it is first asked for."""
        if isinstance(self._completion, Question):
            self._completion = isolated(self._completion.answer)()
        return self._completion

    @completion_.setter
    def completion_(self, value: dict[str, float | None]) -> None:
        self._completion = value

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without rows of the training data: what they are held for is done."""
        state: dict[str, Any] = super().__getstate__()
        return state | ({"_completion": self.completion_} if "_completion" in state else {})

    # -- latents of rows
    # ---------------------------------------------------------------------------------------

    @isolated
    def transform(self, X: ArrayLike, return_std: bool = False, size_factors: Any = None) -> Any:
        """Place rows in latent space.

        Parameters
        ----------
        X : array-like or scipy sparse matrix of shape (n, M)
            Rows seen or not; any entries or whole views may be NaN. Zeros of a sparse X are
            observed values.
        return_std : bool, default=False
        size_factors : array-like of shape (n,), or dict of view to one, optional
            For views of counts that were fitted with them; rows without one are of typical size.

        Returns
        -------
        Z : ndarray of shape (n, D)
            The best posterior mode. A row with nothing observed gets 0, with standard deviation 1
            and one warning.
        std : ndarray of shape (n, D), if ``return_std``
            Root mean square distance of the posterior from Z; large where several places are
            plausible.
        """
        values = self._validate(X, reset=False)
        placement = self._place(values, self._offsets(values, size_factors))
        mean = placement.mean.numpy().astype(values.dtype)
        return (mean, placement.std.numpy().astype(values.dtype)) if return_std else mean

    def _place(self, values: FloatArray, offsets: list[Tensor | None]) -> Placement:
        options.of_empty(values)
        model = (self._fit.posterior, self._candidates)
        parts = [place(*model, rows, own) for rows, own in self._dense_parts(values, offsets)]
        return Placement.joined(parts)

    def _remember(self, values: FloatArray, placement: Placement) -> None:
        """Keep where the training rows lie, if that is small: completing them is what usually comes
        next.
        """
        small = placement.covariances.numel() <= _REMEMBERED and not sp.issparse(values)
        self._placed = (_digest(values), placement) if small else None

    def _recall(self, values: FloatArray, offsets: list[Tensor | None]) -> Placement | None:
        """Return where rows lie if they are the training rows of this very fit, without size
        factors.
        """
        placed = getattr(self, "_placed", None)  # files do not hold it
        known = (
            placed is not None and all(o is None for o in offsets) and placed[0] == _digest(values)
        )
        return placed[1] if known and placed is not None else None

    # -- data from latents
    # -------------------------------------------------------------------------------------

    @property
    def predictive_noise_variance_(self) -> dict[str, Any]:
        """Noise variance of the entries that Gaussian views predict, original units squared."""
        gaussian = [view for view in self._fit.posterior if view.local is None]
        found = {
            v.name: v.noise_variance if v.predictive_noise is None else v.predictive_noise
            for v in gaussian
        }
        return {name: self._noise_in_units(name, own) for name, own in found.items()}

    @isolated
    def inverse_transform(
        self, Z: ArrayLike, return_std: bool = False, interval: float | None = None
    ) -> Any:
        """Decode latents.

        Parameters
        ----------
        Z : array-like of shape (n, D)
        return_std : bool, default=False
        interval : float, optional
            Probability, such as 0.9, of central intervals of new observations; views of counts give
            counts.

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
        if interval is not None and not 0.0 < interval < 1.0:
            raise InputError(
                message(
                    "interval between 0 and 1", repr(interval), "give a probability such as 0.9"
                )
            )
        latents, dtype = self._validate_latents(Z)
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
        self, X: Any, return_std: bool = False, n_draws: int | None = None, size_factors: Any = None
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

        Returns
        -------
        X : ndarray of shape (n, M), or (n_draws, n, M)
            A DataFrame when X is one, with its columns, index and types: whole numbers are
            rounded, labels the most probable ones. With ``n_draws`` an array, or of a mixed table
            (``likelihood="auto"``) a list of DataFrames.
        std : ndarray of shape (n, M), if ``return_std``
            Standard deviation of the imputed entries, noise included; 0 where an entry was
            observed.
        """
        if n_draws is not None and (return_std or n_draws < 1):
            raise InputError(
                "n_draws must be a positive number and goes without return_std: draws carry their "
                "own."
            )
        if sp.issparse(X):
            do = "write NaN for what is to be predicted into a dense array of these rows"
            raise InputError(
                message(
                    "a dense X to complete", "a sparse one, whose zeros are observed values", do
                )
            )
        values = self._validate(X, reset=False)
        options.of_empty(values)
        rows, missing, offsets = (
            self._split(values),
            np.isnan(values),
            self._offsets(values, size_factors),
        )
        mixture = completion.Mixture(self._candidates, self.completion_)
        if n_draws is not None:
            draws = completion.draw_rows(
                self._fit.posterior, mixture, rows, n_draws, self.seed_, offsets
            )
            drawn = np.stack([self._unscale(row) for row in draws])
            filled = np.where(missing, drawn, values).astype(values.dtype)
            return self._coding.complete_draws(X, filled, missing)
        mean, variance = completion.complete(
            self._fit.posterior, mixture, rows, offsets, self._recall(values, offsets)
        )
        full = np.where(missing, self._unscale(mean), values).astype(values.dtype)
        out = self._coding.complete(X, full, missing)
        std = np.where(missing, self._unscale_std(variance), 0.0).astype(values.dtype)
        return (out, std) if return_std else out

    def score(self, X: ArrayLike, y: object = None, size_factors: Any = None) -> float:  # noqa: ARG002 - scikit-learn's
        """Return the mean over rows of log p(observed entries), in nats and original units.

        The mean of ``score_samples``, which has standard errors too.

        Parameters
        ----------
        X : array-like of shape (n, M)
        y : ignored
        size_factors : array-like of shape (n,), or dict of view to one, optional
            As in ``transform``.

        Returns
        -------
        float
        """
        return float(self.score_samples(X, size_factors).mean())

    @isolated
    def score_samples(
        self, X: ArrayLike, size_factors: Any = None, return_std: bool = False
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

        Returns
        -------
        densities : ndarray of shape (n,)
            0 for a row with nothing observed.
        std : ndarray of shape (n,), if ``return_std``
            Standard error of the integration, in nats; that of a mean over rows is the root of the
            sum of their squares over n.
        """
        values = self._validate(X, reset=False)
        offsets = self._offsets(values, size_factors)
        options.of_empty(values)
        model = (self._fit.posterior, self._candidates)
        parts = [
            log_density(*model, rows, self.seed_, own)
            for rows, own in self._dense_parts(values, offsets)
        ]
        density: NDArray[np.float64] = torch.cat([part for part, _ in parts]).numpy()
        density = density + self._log_jacobian(values)
        errors = torch.cat([error for _, error in parts]).numpy()
        return (density, errors) if return_std else density

    @isolated
    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw new rows from the fitted model: latents from the prior, noise included.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, M)
            A DataFrame of a mixed table.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise InputError(
                message(
                    "n_samples of at least 1", str(n_samples), "ask for a positive number of rows"
                )
            )
        width = len(self._scaling.centre) + self.embedding_.shape[1]
        Memory().check(8 * n_samples * width, f"{n_samples:,} rows", "draw them in parts")
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        source = random.generator(seed, "sample")
        x = torch.randn(n_samples, self.embedding_.shape[1], generator=source, dtype=torch.float64)
        drawn = self._unscale(decoding.sample_at(self._fit.posterior, x, source))
        return self._coding.rows(drawn.astype(self.embedding_.dtype))

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
        """
        latents, dtype = self._validate_latents(Z)
        index = self._view_index(view)
        scale = list(self._scales.values())[index]
        own = self._fit.posterior[index]
        with torch.no_grad():
            kernel = (
                self._fit.kernels[index](own.see(latents))
                if exact
                else decoding.kernel(own, latents)
            )
        matrix: FloatArray = (scale**2 * kernel).numpy().astype(dtype)
        return matrix

    def _view_index(self, view: str | None) -> int:
        names = list(self._columns)
        if view is None and len(names) == 1:
            return 0
        if view not in names:
            raise InputError(message(f"view= one of {names}", repr(view), "name a view"))
        return names.index(view)
