"""The bivariate spectral mixture kernel, what the next generation is compared with; exact only
(Yang et al. 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bochner._typing import Numbers
from bochner.errors import InputError
from bochner.kernels.base import Kernel, as_tensor, check_components, positive


class BivariateSpectralMixture(Kernel):
    r"""The non-stationary kernel of the generalised Bochner theorem with a mixture of bivariate
    Gaussians; exact only.

    .. math::

        k(x, y) = \tfrac14 \sum_q \alpha_q \exp\left(-\tfrac12 (x^\top S_q x
        - 2 \rho_q x^\top S_q y + y^\top S_q y)\right) \Psi_q(x)^\top \Psi_q(y)

    with :math:`S_q = \mathrm{diag}(\sigma_q^2)` and :math:`\Psi_q(x) = [\cos \mu_{q1}^\top x +
    \cos \mu_{q2}^\top x;\ \sin \mu_{q1}^\top x + \sin \mu_{q2}^\top x]`.

    Parameters
    ----------
    weights : array-like of shape (Q,)
        alpha, positive.
    means1, means2 : array-like of shape (Q, D)
        Means of the two frequencies, radians per unit of latent.
    scales : array-like of shape (Q, D)
        sigma, positive; one for both frequencies of a pair: otherwise the kernel is not symmetric.
    correlations : array-like of shape (Q,)
        rho in (0, 1): below 0 the kernel is not positive semi-definite.

    Raises
    ------
    InputError
        A weight or scale is not positive, a correlation not inside (0, 1), or shapes disagree.

    Notes
    -----
    Yang et al. (2025), Eq. 18 to 21, with the factor 1/4 that Eq. 21 lost (docs/math.md, section
    1). Its features have no closed form; `NextGenSpectralMixture` has them, and needs neither of
    the two conditions.
    """

    def __init__(
        self,
        weights: Numbers,
        means1: Numbers,
        means2: Numbers,
        scales: Numbers,
        correlations: Numbers,
    ) -> None:
        super().__init__(
            weights=weights,
            means1=means1,
            means2=means2,
            scales=scales,
            correlations=correlations,
        )
        first = as_tensor(means1)
        shape = tuple(first.shape)
        rho = as_tensor(correlations)
        logs = {
            "weights": positive("weights", as_tensor(weights)),
            "scales": positive("scales", as_tensor(scales)),
        }
        given = {"means1": first, "means2": as_tensor(means2), "correlations": rho, **logs}
        for name, values in given.items():
            expected = shape[:1] if name in ("weights", "correlations") else shape
            if tuple(values.shape) != expected or len(shape) != 2:
                got = tuple(values.shape)
                raise InputError(
                    f"{name} must have shape {expected} (mixtures first), got {got}."
                )
            if not bool(torch.isfinite(values).all()):
                raise InputError(f"{name} must be finite.")
        outside = (rho <= 0) | (rho >= 1)
        if bool(outside.any()):
            raise InputError(
                f"correlations must lie inside (0, 1), got {float(rho[outside][0])}: the kernel is "
                "not positive "
                "semi-definite otherwise. NextGenSpectralMixture takes any correlation inside (-1, "
                "1)."
            )
        self.log_weights = nn.Parameter(logs["weights"])
        self.means = nn.Parameter(torch.stack([first, given["means2"]]))
        self.log_scales = nn.Parameter(logs["scales"])
        self.logit_correlations = nn.Parameter(rho.logit())

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the kernel matrix, (N, D), (N', D) -> (N, N')."""
        check_components("means1", self.means, x.shape[-1])
        y = x if y is None else y
        scales = self.log_scales.exp().to(x.dtype)
        means = self.means.to(x.dtype)
        rho = self.logit_correlations.sigmoid().to(x.dtype)
        weights = self.log_weights.exp().to(x.dtype)
        kernel = x.new_zeros(x.shape[0], y.shape[0])
        for q in range(len(weights)):
            a = x * scales[q]
            b = y * scales[q]
            # x'Sx - 2 rho x'Sy + y'Sy = rho |a - b|^2 + (1 - rho) (|a|^2 + |b|^2): no cancellation,
            # both parts PSD
            near = (a[:, None, :] - b[None, :, :]).square().sum(-1)
            away = a.square().sum(-1)[:, None] + b.square().sum(-1)[None, :]
            decay = (-0.5 * (rho[q] * near + (1.0 - rho[q]) * away)).exp()
            kernel = kernel + 0.25 * weights[q] * decay * (
                _waves(x, means[:, q]) @ _waves(y, means[:, q]).T
            )
        return kernel


def _waves(x: Tensor, means: Tensor) -> Tensor:
    """Psi(x), shapes (N, D), (2, D) -> (N, 2)."""
    phase = x @ means.T
    return torch.stack([phase.cos().sum(-1), phase.sin().sum(-1)], dim=-1)
