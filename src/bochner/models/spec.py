"""What a model is asked to be, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from bochner._typing import Sampling
from bochner.kernels.base import SpectralKernel
from bochner.likelihoods.gaussian import Gaussian
from bochner.likelihoods.nonconjugate import Likelihood, NonConjugateLikelihood


@dataclass(frozen=True)
class Layout:
    """Shared dimensions come first, then every view's private ones, in the order of the views.

    Attributes
    ----------
    shared : int
        Dimensions that every view sees, at least 1.
    private : tuple of int
        Further dimensions of each view, which no other view sees.
    """

    shared: int
    private: tuple[int, ...]

    @property
    def n_components(self) -> int:
        """D, all dimensions together."""
        return self.shared + sum(self.private)

    @property
    def has_private(self) -> bool:
        """Whether any view has dimensions that no other view sees."""
        return any(self.private)

    def narrowed(self, narrow: Layout) -> list[int]:
        """Return which dimensions a layout of fewer keeps: the first shared ones, and the first of
        every view's private ones.
        """
        private = [self.own(v)[:n] for v, n in enumerate(narrow.private)]
        return [*range(narrow.shared), *(d for dims in private for d in dims)]

    def own(self, view: int) -> tuple[int, ...]:
        """Return the private dimensions of the view with this number."""
        starts = list(accumulate(self.private, initial=self.shared))
        return tuple(range(starts[view], starts[view + 1]))

    def dims(self, view: int) -> tuple[int, ...] | None:
        """Return the dimensions that a view sees, ascending; None when it sees all of them."""
        seen = (*range(self.shared), *self.own(view))
        return None if len(seen) == self.n_components else seen


@dataclass(frozen=True)
class ViewSpec:
    """One view before training.

    Attributes
    ----------
    name : str
    kernel : SpectralKernel
        What the view's kernel is like; ``initial`` makes the one to train.
    likelihood : Likelihood
        At its start.
    weight : float
        Of the view's term in what training maximises.
    """

    name: str
    kernel: SpectralKernel
    likelihood: Likelihood
    weight: float = 1.0

    @property
    def conjugate(self) -> bool:
        """Whether the weights can be integrated out exactly."""
        return not isinstance(self.likelihood, NonConjugateLikelihood)


@dataclass(frozen=True)
class ModelSpec:
    """A model before training.

    Attributes
    ----------
    views : tuple of ViewSpec
    layout : Layout
        Which view depends on which latent dimensions.
    n_mixtures, n_frequencies : int
        Q, H.
    n_early : int
        H until the bound has converged: steps cost a fraction and find nearly the same place.
    sampling : {"iid", "orthogonal", "sobol"}
        How spectral points are drawn.
    groups : tuple of L int, or None
        The covariate that each column beside the latents belongs to; None: no covariates.
    """

    views: tuple[ViewSpec, ...]
    layout: Layout
    n_mixtures: int
    n_frequencies: int
    sampling: Sampling
    n_early: int
    groups: tuple[int, ...] | None = None

    def __iter__(self) -> Iterator[ViewSpec]:
        return iter(self.views)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the views."""
        return tuple(view.name for view in self.views)

    @property
    def n_components(self) -> int:
        """D."""
        return self.layout.n_components

    @property
    def likelihoods(self) -> tuple[Likelihood, ...]:
        """Of the views."""
        return tuple(view.likelihood for view in self.views)

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the views in training."""
        return tuple(view.weight for view in self.views)

    @property
    def conjugate(self) -> bool:
        """Whether every view is."""
        return all(view.conjugate for view in self.views)

    @property
    def has_sweeps(self) -> bool:
        """Whether a kernel has block updates between the steps of training."""
        return any(view.kernel.has_posterior for view in self.views)

    @property
    def surrogate(self) -> ModelSpec:
        """The same model with Gaussian likelihoods in place of non-conjugate ones."""
        gaussian = (v if v.conjugate else replace(v, likelihood=Gaussian()) for v in self.views)
        return replace(self, views=tuple(gaussian))

    @property
    def early(self) -> ModelSpec:
        """The model of the race and of training up to the decay: with fewer frequencies.

        Non-conjugate views, and kernels that are made for one number of points, have all of them
        throughout.
        """
        fixed = any(view.kernel.has_own_points for view in self.views)
        if fixed or not self.conjugate:
            return self
        return replace(self, n_frequencies=self.n_early)
