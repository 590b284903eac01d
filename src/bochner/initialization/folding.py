"""Layouts of the latents under the simplest kernels: several are trained, and compared, in one
batch.

A flexible kernel makes up for a layout that is bent or torn: its bound from such a layout is within
tens of nats of the one from the right layout, and sometimes above it. One isotropic RBF kernel and
one noise variance per view cannot: most torn and unrolled layouts cost hundreds. So layouts are
compared under these; flexible kernels refine what is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from bochner import random
from bochner.models.lvm import kl_standard_normal
from bochner.models.spec import Layout
from bochner.regression.batched import batched_evidence
from bochner.regression.observations import Data
from bochner.training.trainer import Options, Trainer

# Few in training: what they leave to chance from step to step shakes layouts out of poor optima.
_FREQUENCIES, _JUDGED, _DRAWS = 16, 64, 32
_LEARNING_RATE = 0.1
_NOISE, _STD = 0.3, 0.1
# Of data without noise the Gram matrix, summed in single precision, would soon have no factor: the
# noise stays above this share of N times the kernel's variance.
_ROUNDING = 1e-6


class SimpleModels(nn.Module):
    """S models of the same data, each with one isotropic RBF kernel and one noise variance per
    view.

    Parameters
    ----------
    latents : Tensor of shape (S, N, E)
        Where their latents start.
    data : tuple over views of tuples of Block
    layout : Layout, optional
        Which view sees which of the E dimensions; None: all see all.
    weights : sequence of float, optional
        Of the views; None: 1.
    """

    def __init__(
        self,
        latents: Tensor,
        data: Data,
        layout: Layout | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        zeros = torch.zeros(latents.shape[0], len(data), dtype=torch.float64, device=latents.device)
        self.mean = nn.Parameter(latents.clone())
        self.log_std = nn.Parameter(torch.full_like(latents, math.log(_STD)))
        self.log_lengthscale, self.log_variance = (
            nn.Parameter(zeros.clone()),
            nn.Parameter(zeros.clone()),
        )
        self.log_noise = nn.Parameter(zeros + math.log(_NOISE))
        self.data, self.weights = data, weights or (1.0,) * len(data)
        self.dims = [_seen(layout, v, latents.shape[2]) for v in range(len(data))]

    def evidence(
        self,
        factors: Tensor,
        seed: int,
        purpose: str,
        step: int,
        n_frequencies: int,
        shared: bool = True,
    ) -> Tensor:
        """Return sum over views of weight log p(Y_v | X_s, W_v), (S,), at one draw keyed by (seed,
        purpose, step).

        The latents are multiplied by factors, (S, E). The models share their base noise or have
        frequencies of their own, so that they do not all take the same wrong turn.
        """
        (_, n, e), like = self.mean.shape, {"dtype": self.mean.dtype, "device": self.mean.device}
        base = random.row_noise(n, e, seed, f"{purpose}/latents", step, **like)  # type: ignore[arg-type]
        x = (self.mean + self.log_std.exp() * base) * factors[:, None, :]
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for v, (blocks, dims, weight) in enumerate(
            zip(self.data, self.dims, self.weights, strict=True)
        ):
            source = random.generator(seed, f"{purpose}/spectrum/{v}", step, device=x.device)
            points = random.normal(
                n_frequencies * (1 if shared else len(x)), len(dims), source, "sobol"
            )
            features = self._features(x[..., dims], v, points.reshape(-1, n_frequencies, len(dims)))
            noise = self.log_noise[:, v].exp() + _ROUNDING * n * self.log_variance[:, v].exp()
            total = total + weight * batched_evidence(features, noise, blocks)
        return total

    def _features(self, x: Tensor, view: int, points: Tensor) -> Tensor:
        """Return sqrt(variance / H) [cos wx; sin wx], w = points / lengthscale, (S or 1, H, D) ->
        (S, 2 H, n).
        """
        w = points / self.log_lengthscale[:, view].exp()[:, None, None]
        phase = w.to(x.dtype) @ x.mT
        amplitude = (0.5 * self.log_variance[:, view]).exp() / points.shape[1] ** 0.5
        features: Tensor = (
            torch.cat([phase.cos(), phase.sin()], dim=1) * amplitude.to(x.dtype)[:, None, None]
        )
        return features

    @torch.no_grad()
    def bounds(self, factors: Tensor, seed: int) -> Tensor:
        """Return the bounds of the models over draws that they share, (S,), float64, nats.

        Dimensions of factor 0 are left out of the divergence from the prior as well.
        """
        draws = torch.stack(
            [self.evidence(factors, seed, "simple bound", i, _JUDGED) for i in range(_DRAWS)]
        )
        kept = [own.nonzero()[:, 0] for own in factors]
        pairs = zip(self.mean, self.log_std, kept, strict=True)
        kl = [kl_standard_normal(mean[:, own], log_std[:, own]) for mean, log_std, own in pairs]
        return draws.mean(0) - torch.stack(kl)

    def settle(self, n_steps: int, seed: int, factors: Callable[[float], Tensor]) -> None:
        """Train all models for so many steps; factors of the dimensions are a function of the
        progress in [0, 1).
        """
        n_entries = sum(block.n_entries for blocks in self.data for block in blocks)

        def objective(step: int) -> Tensor:
            evidence = self.evidence(
                factors(step / n_steps), seed, "simple", step, _FREQUENCIES, shared=False
            )
            return evidence.sum() - kl_standard_normal(self.mean, self.log_std)

        Trainer(self, objective, n_entries, Options(n_steps, _LEARNING_RATE, tol=-math.inf)).run()


def _seen(layout: Layout | None, view: int, n_dims: int) -> list[int]:
    own = None if layout is None else layout.dims(view)
    return list(range(n_dims)) if own is None else list(own)


STEPS = 600
_TRIES = 4
_FOLDED_AT = 0.7


def fold(
    latents: Tensor,
    layout: Layout,
    wide: Layout,
    data: Data,
    seed: int,
    n_steps: int = STEPS,
    weights: Sequence[float] | None = None,
) -> Tensor:
    """Fold latents of more dimensions into fewer.

    Parameters
    ----------
    latents : Tensor of shape (N, E)
        Principal components, E > D, on the plan's device and in its precision.
    layout, wide : Layout
        Of the D dimensions that stay and of all E. Without private dimensions there are several
        tries, which begin with one, two, ... or all of the others, the first ones first, and around
        again; with them there is one, with all.
    data : tuple over views of tuples of Block
    seed : int
    n_steps : int
    weights : sequence of float, optional
        Of the views; None: 1.

    Returns
    -------
    Tensor of shape (N, D)
    """
    kept = wide.narrowed(layout)
    begins = torch.ones_like(latents[:1]) if layout.has_private else _begins(latents, kept)
    models = SimpleModels(latents.expand(len(begins), -1, -1), data, wide, weights)
    models.settle(n_steps, seed, lambda progress: _shrink(begins, kept, progress))
    best = int(models.bounds(_shrink(begins, kept, 1.0), seed).argmax())
    return models.mean.detach()[best][:, kept]


def _begins(latents: Tensor, kept: list[int]) -> Tensor:
    """Return which dimensions each try begins with, (S, E): those that stay and one, two, ... of
    the others.
    """
    extra = [d for d in range(latents.shape[1]) if d not in kept]
    begins = latents.new_zeros(_TRIES, latents.shape[1])
    begins[:, kept] = 1.0
    for i in range(_TRIES):
        begins[i, extra[: i % len(extra) + 1]] = 1.0
    return begins


def _shrink(begins: Tensor, kept: list[int], progress: float) -> Tensor:
    """Factors of the dimensions: 1 for those that stay, falling from 1 to 0 for the others that a
    try has.
    """
    factors = begins * max(0.0, 1.0 - progress / _FOLDED_AT)
    factors[:, kept] = 1.0
    return factors
