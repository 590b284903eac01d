"""What a fit is asked to do and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from bochner._typing import Sampling
from bochner.data.sparse import SparseMatrix
from bochner.initialization.build import FloatArray
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood
from bochner.models.latent_layout import Layout
from bochner.models.lvm import LatentVariableModel
from bochner.objectives.elbo import Data, draw, elbo
from bochner.regression.statistics import Block
from bochner.training.checkpoint import fingerprint
from bochner.training.trainer import Options
from bochner.weight_posterior.posterior import ViewPosterior

EVALUATION_DRAWS = 32
# An evaluation of views that are not Gaussian, or have scattered holes, costs as much as a step,
# and candidates share their draws.
LOCAL_EVALUATION_DRAWS = 8
COLUMN_BUDGET = 3e7
# Times that the sites of a view follow each draw of latents and spectra, where a step takes all of
# its columns: with one, tables of some thousand entries ended up to a twentieth of their bound
# lower.
SWEEPS = 2
# Half of the frequencies, not below this, until the bound is level: steps cost a third and find
# nearly the same place.
FEW_FREQUENCIES = 25
Start = str | FloatArray
Stopped = Literal["plateau", "max_iter", "interrupted", "failed"]


@dataclass(frozen=True)
class Plan:
    """Everything a fit needs besides the data.

    Attributes
    ----------
    names : tuple of str
        Of the views.
    kernels : tuple of SpectralKernel
        What each view's kernel is like.
    starts : tuple of (name or array of shape (N, D))
    n_components, n_mixtures, n_frequencies : int
        D, Q, H.
    sampling : {"iid", "orthogonal", "sobol"}
    training : Options
    seed : int
    dtype : torch.dtype
    device : torch.device
    truncation : float
        Share of a complete view's squares that training may leave out.
    n_rows : int
        N.
    landmarks : int or None
        Rows to train on before the others are placed; None trains on all.
    shown : bool
        Whether a progress bar is wanted.
    checkpoint : Path or None
    likelihoods : tuple of Likelihood, optional
        At their start; None: Gaussian ones.
    column_budget : float
        Multiplications of one product of features and columns in a step, for views that are not
        Gaussian.
    layout : Layout, optional
        Which view sees which latents; None: all see all.
    weights : tuple of float, optional
        Of the views in training; None: 1.
    """

    names: tuple[str, ...]
    kernels: tuple[SpectralKernel, ...]
    starts: tuple[Start, ...]
    n_components: int
    n_mixtures: int
    n_frequencies: int
    sampling: Sampling
    training: Options
    seed: int
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    truncation: float = 0.0
    n_rows: int = 0
    landmarks: int | None = None
    shown: bool = False
    checkpoint: Path | None = None
    likelihoods: tuple[Likelihood, ...] | None = None
    column_budget: float = COLUMN_BUDGET
    layout: Layout | None = None
    weights: tuple[float, ...] | None = None

    @property
    def early_frequencies(self) -> int:
        """H of the race and of training up to the decay.

        Views that are not Gaussian, and kernels that are made for one number of points, have H
        throughout.
        """
        local = any(isinstance(own, NonConjugateLikelihood) for own in self.likelihoods or ())
        if local or any(kernel.has_own_points for kernel in self.kernels):
            return self.n_frequencies
        # a point per dimension and a quarter more: fewer do not span the linear functions of all of
        # them
        few = max(
            FEW_FREQUENCIES, self.n_frequencies // 2, self.n_components + self.n_components // 4
        )
        return min(self.n_frequencies, few)

    def digest(self, data: Data) -> str:
        """Return the fingerprint of this fit."""
        settings = {
            **vars(self),
            "starts": [s if isinstance(s, str) else "array" for s in self.starts],
        }
        for transient in ("shown", "checkpoint", "kernels", "device", "likelihoods"):
            settings.pop(transient)
        settings["likelihoods"] = [_described(one) for one in self.likelihoods or ()]
        settings["kernels"] = [_described(kernel) for kernel in self.kernels]
        arrays = [s for s in self.starts if not isinstance(s, str)]
        # which entries are observed is part of the data: the same values in other rows are another
        # fit
        parts = [part for blocks in data for block in blocks for part in _parts(block)]
        return fingerprint([*arrays, *(part for part in parts if part is not None)], settings)


def _described(part: Likelihood | SpectralKernel) -> list[object]:
    """Return the class, by module and name, and the arguments of a likelihood or a kernel."""
    cls = type(part)
    params = {
        name: [_described(one) if isinstance(one, SpectralKernel) else one for one in value]
        if isinstance(value, list | tuple)
        else value
        for name, value in part.get_params().items()
    }
    return [f"{cls.__module__}.{cls.__qualname__}", params]


@dataclass(frozen=True)
class Fit:
    """What a fit found, for scaled data, in nats.

    Attributes
    ----------
    posterior : tuple of ViewPosterior
    latents : Tensor of shape (N, D), float64
        Means of q(X): the candidates from which rows are placed.
    kernels : tuple of SpectralKernel
        Learned.
    elbo, elbo_se : float
        Mean over fresh draws, and its standard error.
    history : list of float
    stopped : {"plateau", "max_iter", "interrupted", "failed"}
    starts : list of dict
        Name and bound of every start, before and after its race.
    blocks : list of (step, name, bound)
        The bound after every block of every sweep, for kernels whose posterior has blocks of its
        own.
    landmarks : dict or None
        Their number, and the bound of all rows (as trained on) when the others were placed and
        after the joint passes.
    dropped : list of float
        Share of every view's squares that training left out.
    latent_draws : Tensor of shape (S, N, D), float64, or None
        The draws of X over which the posterior's statistics are means, while somebody may leave
        rows out of it: where there are several views.
    """

    posterior: tuple[ViewPosterior, ...]
    latents: Tensor
    kernels: tuple[SpectralKernel, ...]
    elbo: float
    elbo_se: float
    history: list[float]
    stopped: Stopped
    starts: list[dict[str, Any]]
    blocks: list[Any] = field(default_factory=list)
    landmarks: dict[str, float] | None = None
    dropped: list[float] = field(default_factory=list)
    latent_draws: Tensor | None = None


def _parts(block: Block) -> tuple[Tensor | None, ...]:
    values = block.Y.parts if isinstance(block.Y, SparseMatrix) else (block.Y,)
    return (*values, block.rows, block.columns, block.seen, block.offset)


def evaluate(
    model: LatentVariableModel,
    data: Data,
    plan: Plan,
    purpose: str,
    budget: float | None = None,
    n_draws: int | None = None,
    weighted: bool = True,
) -> tuple[float, float]:
    """Return the bound over fresh draws that all candidates of a purpose share: mean and standard
    error.

    With a budget, views that are not Gaussian draw columns as in training; without, every column
    counts. Sites follow each draw: two sweeps of all columns, one of some of them. What training
    maximised decides between starts; the bound that is stated is not ``weighted``.
    """
    if n_draws is None:
        dear = any(view.sites is not None for view in model.views) or any(
            b.sizes for blocks in data for b in blocks
        )
        n_draws = LOCAL_EVALUATION_DRAWS if dear else EVALUATION_DRAWS
    with torch.no_grad():
        draws = (
            draw(model, plan.n_frequencies, plan.sampling, plan.seed, purpose, i, budget)
            for i in range(n_draws)
        )
        bounds = (elbo(model, data, own, n_sweeps=SWEEPS) for own in draws)
        values = torch.stack([bound.with_gap if weighted else bound.unweighted for bound in bounds])
    return float(values.mean()), float(values.std() / n_draws**0.5)
