"""The entries of a non-conjugate view, and one pass over them: q(A) from their sites, slopes
under it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.data.masks import Mask
from bochner.likelihoods.likelihood import Slopes
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.models.sites import Sites
from bochner.regression.conjugate_gradients import Weights, weights_from
from bochner.regression.observations import EncodedBlock, Matrix
from bochner.regression.weighted_grams import QuadraticForms


@dataclass(frozen=True)
class RowSample:
    """Every k-th row from a random first one: each row is in it with probability 1/k.

    The gradient in the parameters of a likelihood and its gap are estimated from these rows: they
    need a quadrature at every entry.

    Attributes
    ----------
    start : float
        Uniform in [0, 1): says which of the k samples it is.
    n_entries : int
        k is the largest number that leaves so many entries, or 1.
    """

    start: float
    n_entries: int = 2**15

    def of(self, n: int, m: int) -> tuple[slice, int]:
        """Return the rows among n rows of m entries, and k: by how much their sum is multiplied."""
        k = min(n, max(1, n * m // self.n_entries))
        return slice(int(self.start * k), None, k), k


@dataclass(frozen=True)
class Entries:
    """Some columns of a view, ordered by group.

    Attributes
    ----------
    columns : Tensor of shape (m,), int64
    mask : Mask
    y, precision, shift : Tensor of shape (n, m)
    total : Tensor of shape (n, m)
        Intercept plus offset.
    sizes : tuple of int
        Columns of each group.
    scale : float
        All columns over these.
    """

    columns: Tensor
    y: Tensor
    mask: Mask
    precision: Tensor
    shift: Tensor
    total: Tensor
    sizes: tuple[int, ...]
    scale: float

    @classmethod
    def of(cls, sites: Sites, block: EncodedBlock, columns: Tensor | None) -> Entries:
        """Gather columns (None = all)."""
        m = sites.n_columns
        chosen = torch.arange(m, device=sites.shift.device) if columns is None else columns
        chosen = chosen[sites.group_of[chosen].argsort(stable=True)]
        counts = torch.bincount(sites.group_of[chosen]).tolist()

        def take(part: Matrix) -> Tensor:
            return part.index_select(1, chosen)

        total = sites.intercept[chosen] + block.offset[:, None]
        return cls(
            chosen,
            take(block.Y),
            block.mask.columns(chosen),
            take(sites.precision),
            take(sites.shift),
            total,
            tuple(c for c in counts if c),
            m / len(chosen),
        )


@dataclass(frozen=True)
class Pass:
    """q(A) and the entries' slopes under it."""

    weights: Weights
    forms: QuadraticForms
    latent: Tensor
    variance: Tensor
    slopes: Slopes

    def sites(
        self, entries: Entries, likelihood: NonConjugateLikelihood
    ) -> tuple[Tensor, Tensor]:
        """Return precision and shift on phi(x)^T a, which psi is but for intercept and offset."""
        mean = entries.total + self.latent
        precision, slope = likelihood.site(entries.y, mean, self.variance, self.slopes)
        precision = entries.mask.apply(precision)
        return precision, entries.mask.apply(slope) + precision * self.latent


def entry_pass(
    features: Tensor,
    likelihood: NonConjugateLikelihood,
    entries: Entries,
    tol: float,
    weights: Weights | None = None,
    factors_in: torch.dtype = torch.float64,
) -> Pass:
    """Bring q(A) up to date with the sites, unless one is given, and lay the bound of every entry
    at it. Factors are in double precision, or in another one as far as that does.
    """
    if weights is None:
        sites = (entries.precision, entries.shift, entries.sizes)
        weights = weights_from(features, *sites, tol, factors_in=factors_in)
    # counts in the thousands leave variances below single precision's rounding
    forms = QuadraticForms.of(features, weights.covariance)
    variance = weights.spread(forms.values).clamp(min=0.0)
    latent = features.T @ weights.mean
    slopes = likelihood.slopes(entries.y, entries.total + latent, variance, entries.columns)
    return Pass(weights, forms, latent, variance, slopes)
