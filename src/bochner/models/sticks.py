"""The truncated stick-breaking posterior of a Dirichlet process mixture: closed-form updates and
their bound.

v_k ~ Beta(1, alpha) for k < T, v_T = 1, pi_k = v_k prod_{j<k} (1 - v_j), alpha ~ Gamma(a0, b0);
mean field q(v_k) = Beta(a_k, b_k), q(alpha) = Gamma(shape, rate), q(z_l) on the simplex.
docs/math.md, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from bochner.errors import InputError, message


@dataclass(frozen=True)
class StickBreaking:
    """q(v) q(alpha) of T components; leading axes are independent copies. Immutable: updates return
    a new one.

    Attributes
    ----------
    a, b : Tensor of shape (..., T - 1), float64
        Beta parameters of the sticks; the last stick takes what is left.
    shape, rate : Tensor of shape (...), float64
        Gamma parameters of the concentration; without meaning where it is known.
    prior_shape, prior_rate : float
        a0 and b0 of the concentration's prior.
    known : float or None
        The concentration where it is known (Liu et al. 2020): no update changes it and it costs no
        divergence.
    """

    a: Tensor
    b: Tensor
    shape: Tensor
    rate: Tensor
    prior_shape: float = 1.0
    prior_rate: float = 1.0
    known: float | None = None

    @classmethod
    def start(
        cls,
        n_components: int,
        *,
        prior_shape: float = 1.0,
        prior_rate: float = 1.0,
        known: float | None = None,
        batch: tuple[int, ...] = (),
        device: torch.device | str = "cpu",
    ) -> Self:
        """Return the posterior that equals the prior, with the concentration at its prior mean.

        Parameters
        ----------
        n_components : int
            T, the truncation, at least 1.
        prior_shape, prior_rate : float
            a0, b0, positive.
        known : float, optional
            Fix the concentration at this positive number instead of learning it.
        batch : tuple of int
            Leading axes.
        device : torch.device or str

        Raises
        ------
        InputError
            T is below 1 or a hyperparameter is not positive.
        """
        if n_components < 1:
            raise InputError(
                message(
                    "a truncation of at least 1", str(n_components), "choose n_mixtures=5, say"
                )
            )
        for name, value in (
            ("prior_shape", prior_shape),
            ("prior_rate", prior_rate),
            ("known", known),
        ):
            if value is not None and not 0 < value < float("inf"):
                raise InputError(
                    message(f"a positive {name}", str(value), f"choose {name}=1.0, say")
                )
        options = {"dtype": torch.float64, "device": device}
        mean = prior_shape / prior_rate if known is None else known
        sticks = torch.ones(*batch, n_components - 1, **options)  # type: ignore[call-overload]
        one = torch.ones(batch, **options)  # type: ignore[call-overload]
        return cls(
            sticks,
            sticks * mean,
            one * prior_shape,
            one * prior_rate,
            prior_shape,
            prior_rate,
            known,
        )

    @property
    def n_components(self) -> int:
        """T."""
        return self.a.shape[-1] + 1

    @property
    def concentration(self) -> Tensor:
        """E[alpha], shape (...)."""
        return (
            self.shape / self.rate
            if self.known is None
            else torch.full_like(self.shape, self.known)
        )

    def expected_log_sticks(self) -> tuple[Tensor, Tensor]:
        """Return E[log v_k] and E[log(1 - v_k)] for k < T, each of shape (..., T - 1)."""
        total = torch.digamma(self.a + self.b)
        return torch.digamma(self.a) - total, torch.digamma(self.b) - total

    def expected_log_weights(self) -> Tensor:
        """Return E[log pi_k] = E[log v_k] + sum_{j<k} E[log(1 - v_j)], shape (..., T)."""
        log_v, log_rest = self.expected_log_sticks()
        zero = torch.zeros_like(self.shape)[..., None]
        return torch.cat([log_v, zero], -1) + torch.cat([zero, log_rest.cumsum(-1)], -1)

    def assign(self, log_density: Tensor) -> Tensor:
        """Return the optimal q(z): softmax over k of E[log p(w_l | z_l = k)] + E[log pi_k].

        Parameters
        ----------
        log_density : Tensor of shape (..., H, T)

        Returns
        -------
        Tensor of shape (..., H, T)
            Responsibilities; rows sum to 1.
        """
        return torch.softmax(
            log_density.double() + self.expected_log_weights()[..., None, :], -1
        )

    def update_sticks(self, counts: Tensor) -> Self:
        """Return q with the optimal q(v): a_k = 1 + n_k, b_k = E[alpha] + sum_{j>k} n_j.

        Parameters
        ----------
        counts : Tensor of shape (..., T)
            n_k = sum_l phi_lk, the responsibilities summed over the spectral points.
        """
        counts = counts.double()
        later = counts.flip(-1).cumsum(-1).flip(-1) - counts
        return replace(
            self, a=1.0 + counts[..., :-1], b=self.concentration[..., None] + later[..., :-1]
        )

    def update_concentration(self) -> Self:
        """Return q with the optimal q(alpha): Gamma(a0 + T - 1, b0 - sum_k E[log(1 - v_k)]); as it
        is where known.
        """
        if self.known is not None:
            return self
        _, log_rest = self.expected_log_sticks()
        shape = torch.full_like(self.shape, self.prior_shape + self.n_components - 1)
        return replace(self, shape=shape, rate=self.prior_rate - log_rest.sum(-1))

    def assignment_bound(self, responsibilities: Tensor) -> Tensor:
        """Return sum_l sum_k phi_lk E[log pi_k] + sum_l H(phi_l), shape (...), nats.

        Parameters
        ----------
        responsibilities : Tensor of shape (..., H, T)
        """
        phi = responsibilities.double()
        return (phi * self.expected_log_weights()[..., None, :]).sum((-2, -1)) - torch.xlogy(
            phi, phi
        ).sum((-2, -1))

    def kl(self) -> Tensor:
        """Return KL(q(v) q(alpha) || p(v | alpha) p(alpha)), shape (...), nats."""
        log_v, log_rest = self.expected_log_sticks()
        log_beta = torch.lgamma(self.a) + torch.lgamma(self.b) - torch.lgamma(self.a + self.b)
        log_q = (self.a - 1.0) * log_v + (self.b - 1.0) * log_rest - log_beta
        log_p = (
            self._expected_log_concentration()[..., None]
            + (self.concentration[..., None] - 1.0) * log_rest
        )
        return (log_q - log_p).sum(-1) + self._kl_concentration()

    def _expected_log_concentration(self) -> Tensor:
        return (
            self.concentration.log()
            if self.known is not None
            else torch.digamma(self.shape) - self.rate.log()
        )

    def _kl_concentration(self) -> Tensor:
        if self.known is not None:
            return torch.zeros_like(self.shape)
        prior_rate = torch.as_tensor(self.prior_rate, dtype=torch.float64)
        prior_lgamma = torch.lgamma(torch.as_tensor(self.prior_shape, dtype=torch.float64))
        return (
            (self.shape - self.prior_shape) * torch.digamma(self.shape)
            - torch.lgamma(self.shape)
            + prior_lgamma
            + self.prior_shape * (self.rate.log() - prior_rate.log())
            + self.shape * (prior_rate - self.rate) / self.rate
        )
