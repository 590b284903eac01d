"""What a fit tells its caller: attributes in the units of the data, and reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bochner.data.arrays import FloatArray
from bochner.data.row_sources import RowSource
from bochner.data.sparse import dense_rows
from bochner.errors import CollapseWarning, warn_user
from bochner.estimators import training_data
from bochner.estimators.methods import rows
from bochner.estimators.methods.placing import Unchecked, Unplaced
from bochner.estimators.methods.prediction import PredictionMixin
from bochner.estimators.settings import likelihoods, options
from bochner.estimators.shards import Candidates
from bochner.likelihoods.likelihood import rows_of
from bochner.likelihoods.negative_binomial import NegativeBinomial
from bochner.prediction import diagnostics
from bochner.processes import current

# Rows are placed from at most this many training latents: scoring is one product of rows and
# candidates.
CANDIDATES = 5000
# Rows from which dispersions are estimated by moments, beside the learned ones.
_MOMENT_ROWS = 10_000


class AttributesMixin(PredictionMixin):
    """Fitted attributes."""

    def _set_attributes(self, values: FloatArray, plan: Any) -> None:
        own = torch.tensor(self._total_log_jacobian(values), dtype=torch.float64)
        fit, jacobian = self._fit, float(plan.processes.sum(own))
        self.elbo_, self.elbo_se_ = fit.elbo + jacobian, fit.elbo_se
        self.elbo_history_ = np.asarray(fit.history) + jacobian
        self.starts_ = [
            {
                **start,
                "elbo": start["elbo"] + jacobian,
                "elbo_start": start["elbo_start"] + jacobian,
            }
            for start in fit.starts
        ]
        self.n_iter_, self.converged_ = len(fit.history), fit.stopped == "plateau"
        self.interrupted_ = fit.stopped == "interrupted"
        self.n_mixtures_ = plan.spec.n_mixtures
        self.n_frequencies_ = plan.spec.n_frequencies
        self.seed_ = plan.seed
        self.landmarks_ = fit.landmarks and {
            name: value + (jacobian if name.startswith("elbo") else 0)
            for name, value in fit.landmarks.items()
        }
        self.dropped_ = dict(zip(plan.spec.names, fit.dropped, strict=True))
        scales = self._scales
        self.likelihood_ = {view.name: view.likelihood.name for view in fit.posterior}
        gaussian = [view for view in fit.posterior if view.local is None]
        self.noise_variance_ = {
            v.name: self._noise_in_units(v.name, v.noise_variance) for v in gaussian
        }
        self.dispersion_ = {
            view.name: view.likelihood.dispersion.numpy()
            for view in fit.posterior
            if isinstance(view.likelihood, NegativeBinomial)
        }
        self.kernels_ = {
            view.name: rows.natural(kernel, scales[view.name])
            for view, kernel in zip(fit.posterior, fit.kernels, strict=True)
        }
        if fit.stopped in ("max_iter", "failed"):
            warn_user(
                f"Training stopped after {self.n_iter_} steps before the bound had converged. "
                "Raise "
                "max_iter or tol.",
                ConvergenceWarning,
            )

    def _set_embedding(
        self,
        values: Any,
        offsets: list[Tensor | None],
        some: Candidates,
        checksum: int,
        covariates: Tensor | None,
    ) -> None:
        kept = some.index
        self._keep_patterns(some.values, kept, covariates)
        if isinstance(values, RowSource) or some.values is not values:
            # reports look at the candidates; rows on disk are placed when somebody asks for them
            if isinstance(values, RowSource):
                self._embedded = unplaced = Unplaced(values, checksum, covariates)
                current().together(unplaced.check)
            else:
                found = self._latents(values, offsets, covariates, checked=False)
                self._embedded = Unchecked(*found)
            values = dense_rows(some.values, kept.numpy())
            beside = rows_of(covariates, kept)
            kept = torch.arange(len(kept))
            placement = self._place(values, offsets, beside)
            std = self._stds(values, offsets, placement)
        else:
            placement = self._place(values, offsets, covariates)
            self._remember(values, placement)
            mean, std = placement.mean.numpy(), self._stds(values, offsets, placement)
            self._embedded = Unchecked(mean.astype(values.dtype), std)
        self.relevance_ = diagnostics.relevance(self._fit.posterior, placement.mean)
        few = training_data.subset(
            len(kept), training_data.fitting(CANDIDATES, values.shape[1]), self.seed_
        )
        index = kept[torch.from_numpy(few)]
        shown, latents_shown = self._some(values, offsets, index)[0], placement.mean[index]
        self.variance_explained_ = diagnostics.variance_explained(
            self._fit.posterior, latents_shown, shown, placement.of(index).covariates
        )
        gaussian = [view for view in self._fit.posterior if view.local is None]
        noise = {
            view.name: float(np.mean(likelihoods.plain_noise(view.noise_variance)))
            for view in gaussian
        }
        self.collapse_ = diagnostics.collapse(placement.mean.numpy(), std, noise)
        self.dispersion_moment_: dict[str, Any] = {}
        if self.dispersion_:
            count = training_data.fitting(_MOMENT_ROWS, values.shape[1])
            index = torch.from_numpy(training_data.subset(values.shape[0], count, self.seed_))
            rows, of_some = self._some(values, offsets, index)
            chosen = placement.of(index)
            moments = diagnostics.moment_dispersions(
                self._fit.posterior, chosen.inputs(chosen.mean), rows, of_some
            )
            self.dispersion_moment_ = {view: found.tolist() for view, found in moments.items()}
        options.of_dispersion(self.dispersion_)
        if self.collapse_.collapsed:
            warn_user(self.collapse_.advice(), CollapseWarning)
