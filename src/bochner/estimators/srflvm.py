"""The latent variable model whose kernels decide themselves how many mixture components they
have.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bochner.estimators.base import LatentVariableEstimator
from bochner.estimators.docstrings import described_by
from bochner.estimators.lvm import NGMVLVM
from bochner.kernels.base import SpectralKernel
from bochner.kernels.dirichlet_process import DirichletProcessMixture


@described_by(NGMVLVM)
class SRFLVM(LatentVariableEstimator):
    """The latent variable model with Dirichlet process mixture kernels, by block coordinate
    variational inference.

    Parameters
    ----------
    n_mixtures : int or "auto", default="auto"
        T, the most components that a view's kernel can have; "auto" is 20. The data decide how many
        it uses.
    n_frequencies : int or "auto", default="auto"
        H, all spectral points of a view: K = 2 H features; "auto" is 100.

    Attributes
    ----------
    n_active_mixtures_ : dict of str to int
        Components of each view's kernel that are expected to hold at least one spectral point.
    concentration_ : dict of str to float
        Posterior mean of the Dirichlet process's concentration.
    kernels_ : dict of str to dict
        Learned spectrum per view, the largest component first: ``proportions`` (T,), ``means`` and
        ``scales`` (T, D) in radians per unit of latent, ``variance`` in original units squared,
        ``concentration``.
    block_history_ : dict of str to ndarray
        The bound after every block of every sweep, on draws that a sweep's blocks share: "step",
        "gradient" (latents, spectra, noise), "z", "merge", "birth", "v", "alpha"; nats, original
        units.

    Notes
    -----
    Li et al. (2024b); docs/math.md, section 4. Every spectral point chooses its component; q(z)
    follows natural gradients whose local expectations are exact, point by point, and q(v), q(alpha)
    have closed forms.

    Examples
    --------
    >>> import bochner as bo
    >>> digits = bo.datasets.load_digits_halves()
    >>> model = bo.SRFLVM(max_iter=50, tol=1.0, n_init=1, random_state=0).fit(digits.data[:100])
    >>> model.kernels_["x"]["means"].shape
    (20, 2)
    """

    _auto_mixtures: ClassVar[int] = 20
    _auto_frequencies: ClassVar[int] = 100
    _fewer_frequencies: ClassVar[int] = 100
    _local_frequencies: ClassVar[int] = 64

    _kernel: ClassVar[type[SpectralKernel]] = DirichletProcessMixture

    @property
    def n_active_mixtures_(self) -> dict[str, int]:
        """Components that are expected to hold at least one spectral point, by view."""
        return {
            name: int((np.asarray(values["proportions"]) * self.n_frequencies_ >= 1.0).sum())
            for name, values in self.kernels_.items()
        }

    @property
    def concentration_(self) -> dict[str, float]:
        """Posterior mean of the concentration, by view."""
        return {name: float(values["concentration"]) for name, values in self.kernels_.items()}

    @property
    def block_history_(self) -> dict[str, NDArray[np.float64]]:
        """The bound after every block of every sweep."""
        jacobian = self.elbo_ - self._fit.elbo
        columns: dict[str, dict[int, float]] = {}
        for step, block, bound in self._fit.blocks:
            columns.setdefault(block, {})[int(step)] = bound + jacobian
        steps = sorted({int(step) for step, _, _ in self._fit.blocks})
        table: dict[str, NDArray[np.generic]] = {"step": np.array(steps, dtype=np.float64)}
        return table | {
            name: np.array([trace[s] for s in steps]) for name, trace in columns.items()
        }
