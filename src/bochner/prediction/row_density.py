"""Log densities of rows, integrated over their latents by importance sampling.

The proposal of a row is a mixture of Student's t distributions about the modes that every draw of
the spectra has by itself, and of the prior. Rows whose standard error is large go on to a round of
more samples, from a mixture to which the places of large weights are added. The samples of the last
round count alone: those that told where its proposal goes would weigh too little against it, and
densities of rows in many dimensions were 0.06 nats too low.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.features.fourier import columns_beside
from bochner.latent_inference.mixtures import Modes, merged
from bochner.latent_inference.row_misfit import peaked
from bochner.likelihoods.likelihood import Offsets, offsets_of
from bochner.prediction.proposals import Cloud, Proposal
from bochner.prediction.row_batch import Batch, by_draw, gained, row_keys
from bochner.prediction.turned_rows import whole_rows
from bochner.weight_posterior.posterior import ViewPosterior

# Standard error, in nats, of rows that need no further round: rows that missed something look sure,
# and of binomial rows 4 % of the density were missing where 0.1 was enough. Where posteriors are
# peaked, weights have heavier tails than it says.
_SURE = 0.07
_PEAKED_SURE = 0.05
# Least variance of the moments' part of a proposal, as a share of that at the best mode.
_LEAST_VARIANCE = 0.1
_LOG_2_PI = math.log(2.0 * math.pi)


def log_density(
    views: Sequence[ViewPosterior],
    candidates: Tensor,
    rows: Sequence[Tensor],
    seed: int,
    offsets: Offsets | None = None,
    covariates: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Estimate log of the integral of p(y_observed | x) p(x) for every row.

    Parameters
    ----------
    views : sequence of ViewPosterior
    candidates : Tensor of shape (C, D), float64
        Latents of training rows, where the search for modes starts.
    rows : sequence over views of Tensor of shape (n, M_v), float64
        Scaled data, NaN where missing.
    seed : int
        Of noise that depends on the values of a row, not on the rows beside it.
    offsets : sequence over views of Tensor of shape (n,), or None, optional
        Logarithms of size factors.
    covariates : Tensor of shape (n, L), float64, optional

    Returns
    -------
    density, standard_error : Tensor of shape (n,)
        In nats; 0 and 0 for a row without observed entries.
    """
    keys = row_keys([view.name for view in views], rows)
    encoded = [view.encode(y) for view, y in zip(views, rows, strict=True)]
    sizes = list(offsets or [None] * len(views))
    beside = columns_beside(covariates, len(keys))
    density = torch.zeros(len(keys), dtype=torch.float64)
    error = torch.zeros_like(density)
    for some, complete in whole_rows(views, encoded, torch.arange(len(keys))):
        shown = [y[some] for y in encoded]
        draws = by_draw(views, shown, complete)
        keyed = [keys[i] for i in some.tolist()]
        batch = Batch(views, shown, draws, offsets_of(sizes, some), keyed, seed, beside[some])
        cloud = batch.cloud(candidates)
        modes = batch.modes(candidates, cloud)
        rounds = batch.rounds(candidates.shape[1])
        density[some], error[some] = _estimate(batch, Proposal.about(modes, cloud), rounds)
        missed = batch.missed(modes)
        if len(missed):
            better, proposal = _searched(batch.at(missed), candidates, cloud, modes, missed)
            if len(better):
                rest, which = batch.at(better), some[better]
                density[which], error[which] = _estimate(rest, proposal, rounds)
    observed = torch.stack([(~y.isnan()).any(1) for y in rows]).any(0)
    nothing = torch.zeros_like(density)
    return torch.where(observed, density, nothing), torch.where(observed, error, nothing)


def _searched(
    rest: Batch, candidates: Tensor, cloud: Cloud | None, found: Modes, missed: Tensor
) -> tuple[Tensor, Proposal]:
    """Climb from more places; return which of the missed rows have more modes than were found, and
    a proposal about these.
    """
    nearby = cloud and cloud.at(missed)
    more = rest.more_modes(candidates, nearby)
    better = gained(found.at(missed), more)
    return missed[better], Proposal.about(more, nearby).at(better)


@dataclass(frozen=True)
class _Samples:
    """Places drawn for every row from its proposal, with log p(y, x) there.

    Attributes
    ----------
    proposal : Proposal
    places : Tensor of shape (n, T, D)
    log_joint : Tensor of shape (n, T)
    """

    proposal: Proposal
    places: Tensor
    log_joint: Tensor

    @classmethod
    def drawn(cls, batch: Batch, proposal: Proposal, count: int, number: int) -> _Samples:
        """Draw so many from a proposal, in the round of this number."""
        dim = proposal.means.shape[2]
        x = proposal.draw(*batch.noise(count, dim, number))
        return cls(proposal, x, batch.log_joint(x))

    def at(self, index: Tensor) -> _Samples:
        """Return those of some rows."""
        return _Samples(self.proposal.at(index), self.places[index], self.log_joint[index])

    def log_weights(self) -> Tensor:
        """Return log p(y, x) less that of the proposal, (n, T)."""
        return self.log_joint - self._log_proposal

    def prior_weights(self) -> Tensor:
        """Return the prior's density over that of the proposal, (n, T)."""
        square = self.places.square().sum(-1)
        log_prior = -0.5 * (square + self.places.shape[-1] * _LOG_2_PI)
        return (log_prior - self._log_proposal).exp()

    @functools.cached_property
    def _log_proposal(self) -> Tensor:
        return self.proposal.log_density(self.places)

    def adapted(self, batch: Batch) -> Proposal:
        """Return a proposal that knows where the weights are large."""
        weights = self.log_weights().softmax(1)
        best = self.places[torch.arange(self.places.shape[0]), weights.argmax(1)]
        modes = merged(self.proposal.modes, batch.modes_near(best))
        mean = (weights[..., None] * self.places).sum(1)
        away = self.places - mean[:, None]
        covariance = (weights[..., None] * away).mT @ away
        covariance = covariance + _LEAST_VARIANCE * modes.covariances[:, 0]
        return Proposal.about(modes, self.proposal.cloud, (mean, covariance))


def _estimate(
    batch: Batch, proposal: Proposal, rounds: tuple[int, ...], number: int = 0
) -> tuple[Tensor, Tensor]:
    """Return log densities and standard errors; rows that are not sure enough go a round on."""
    samples = _Samples.drawn(batch, proposal, rounds[number], number)
    density, error = _controlled(samples.log_weights(), samples.prior_weights())
    sure = _PEAKED_SURE if peaked(batch.views) else _SURE
    unsure = (error > sure).nonzero()[:, 0]
    if number + 1 < len(rounds) and unsure.numel():
        rest = batch.at(unsure)
        better = samples.at(unsure).adapted(rest)
        density[unsure], error[unsure] = _estimate(rest, better, rounds, number + 1)
    return density, error


def _controlled(log_weights: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Return log means of weights and their standard errors.

    The prior's weights, whose mean is 1, are a control variate (Owen and Zhou 2000): where a row
    says little its weights are nearly those, and their mean is known. Where a sample would count
    less than nothing, as where few lie in the prior, it is not used: a choice that does not depend
    on the row's own weights.

    Standard errors are the jackknife's (MacKinnon and White 1985): where the sampled prior's mean
    is far from 1, few samples carry much and have hardly a residual, and with an equal share for
    each, errors of 0.2 nats had standard errors of 0.01.

    Parameters
    ----------
    log_weights, prior : Tensor of shape (n, T)

    Returns
    -------
    log_mean, standard_error : Tensor of shape (n,)
    """
    count = prior.shape[1]
    most = log_weights.amax(1, keepdim=True).clamp(min=-1e300)  # of -inf alone too
    weights = (log_weights - most).exp()
    centre = prior.mean(1, keepdim=True)
    away = prior - centre
    squares = away.square().sum(1, keepdim=True).clamp(min=1e-300)
    share = 1.0 / count - (centre - 1.0) * away / squares
    used = (share > 0.0).all(1, keepdim=True)
    share = torch.where(used, share, 1.0 / count)
    mean = (share * weights).sum(1, keepdim=True)
    slope = (weights * away).sum(1, keepdim=True) / squares
    plain = weights - weights.mean(1, keepdim=True)
    left = torch.where(used, plain - slope * away, plain)
    # how much of a sample's weight the others do not say
    alone = 1.0 - 1.0 / count - torch.where(used, away.square() / squares, 0.0)
    error = (share * left / alone.clamp(min=1e-6)).square().sum(1, keepdim=True).sqrt() / mean
    return (mean.log() + most)[:, 0], error[:, 0]
