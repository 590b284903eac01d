"""Several models of the same data under the simplest kernel, trained and compared in one batch;
folds begin with more dimensions than stay, and lose some of them there.

A flexible kernel makes up for a layout that is bent or torn: its bound from such a layout is within
tens of nats of the one from the right layout, and sometimes above it. One isotropic RBF kernel and
one noise variance per view cannot: most torn and unrolled layouts cost hundreds. So layouts are
compared under these; flexible kernels refine what is kept.

A step is written by hand: values, gradients in closed form and Adam (Kingma and Ba 2015), about
thirty operations on all models at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner import random
from bochner.models.lvm import Layout, kl_standard_normal
from bochner.regression.batched_evidence import batched_evidence, batched_evidence_value
from bochner.regression.observations import Data, complete_blocks
from bochner.training.trainer import EPS, FIRST, SECOND

# Few in training: what they leave to chance from step to step shakes layouts out of poor optima.
_FREQUENCIES = 16
# Of the bounds that are compared.
_JUDGED = 64
_DRAWS = 16
_NOISE = 0.3
_STD = 0.1
# Of data without noise the Gram matrix, summed in single precision, would soon have no factor: the
# noise stays above this share of N times the kernel's variance.
_ROUNDING = 1e-6
# Share of the noise variance that rounding of products may have: the chance of the frequencies is
# larger by far, and bounds of 10,000 to 1,000,000 nats move by 0.3 at most.
_COARSE = 1e-2
# Adam, as the trainer has it, at half of its rate: there are some hundred steps.
_LEARNING_RATE = 0.1
_WARM_UP = 20
# Share of the steps over which the learning rate falls to zero.
_DECAY = 0.25


@dataclass(frozen=True)
class Gradient:
    """Values of S models and their gradients.

    Attributes
    ----------
    value : Tensor of shape (S,), float64
        sum over views of weight log p(Y_v | X_s, W_v), in nats.
    latents : Tensor of shape (2, S, N, E)
        In the means and in the logarithms of the standard deviations.
    scales : Tensor of shape (3, S, V), float64
        In log lengthscale, log variance and log noise variance.
    """

    value: Tensor
    latents: Tensor
    scales: Tensor


class SimpleModels:
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
    names : sequence of str, optional
        Of the views: their noise does not depend on the order that they come in.

    Attributes
    ----------
    latents : Tensor of shape (2, S, N, E)
        Means and logarithms of the standard deviations.
    scales : Tensor of shape (3, S, V), float64
        Log lengthscale, log variance, log noise variance.
    """

    def __init__(
        self,
        latents: Tensor,
        data: Data,
        layout: Layout | None = None,
        weights: Sequence[float] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        log_std = torch.full_like(latents, math.log(_STD))
        self.latents = torch.stack([latents, log_std])
        size = (3, latents.shape[0], len(data))
        self.scales = torch.zeros(size, dtype=torch.float64, device=latents.device)
        self.scales[2] = math.log(_NOISE)
        self.data = data
        self.weights = weights or (1.0,) * len(data)
        keys = list(range(len(data)))
        self.keys = keys if names is None else [sorted(names).index(name) for name in names]
        self.dims = [_dims(layout, v, latents.shape[2]) for v in range(len(data))]

    @property
    def mean(self) -> Tensor:
        """Means of the latents, (S, N, E)."""
        return self.latents[0]

    def gradient(
        self,
        factors: Tensor,
        seed: int,
        purpose: str,
        step: int,
        n_frequencies: int,
        shared: bool = True,
    ) -> Gradient:
        """Evaluate log p(Y | X_s, W_s) at one draw keyed by (seed, purpose, step).

        Parameters
        ----------
        factors : Tensor of shape (S, E)
            What the latents are multiplied by.
        seed, purpose, step
            The key.
        n_frequencies : int
        shared : bool
            Whether the models share their frequencies' base noise, or have frequencies of their
            own, so that they do not all take the same wrong turn.
        """
        x, spread = self._sample(factors, seed, purpose, step)
        d_x = torch.zeros_like(x)
        d_scales = torch.zeros_like(self.scales)
        value = torch.zeros(x.shape[0], dtype=torch.float64, device=x.device)
        for v, weight in enumerate(self.weights):
            points = self._points(v, seed, purpose, step, n_frequencies, shared)
            value += weight * self._add_view(v, weight, x, points, d_x, d_scales)
        d_mean = d_x.mT * factors[:, None, :]
        return Gradient(value, torch.stack([d_mean, d_mean * spread]), d_scales)

    def _sample(
        self, factors: Tensor, seed: int, purpose: str, step: int
    ) -> tuple[Tensor, Tensor]:
        """Return a draw of the latents times their factors, (S, E, N), and how far the draw is from
        the means, (S, N, E).
        """
        mean, log_std = self.latents
        n, e = mean.shape[1:]
        key = (seed, f"{purpose}/latents", step)
        base = random.row_noise(n, e, *key, dtype=mean.dtype, device=mean.device)
        spread = log_std.exp() * base
        # products with latents that lie row by row are several times slower
        return ((mean + spread) * factors[:, None, :]).mT.contiguous(), spread

    def _points(
        self, v: int, seed: int, purpose: str, step: int, n_frequencies: int, shared: bool
    ) -> Tensor:
        """Return the base noise of a view's frequencies, (1 or S, H, D), in one half of the space.

        Of a frequency and its negative the features are the same. A net in three dimensions has the
        negative of every point near it in the first two: half of the features said nothing.
        """
        device = self.latents.device
        dim = len(self.dims[v])
        source = random.generator(
            seed, f"{purpose}/spectrum/{self.keys[v]}", step, device=device
        )
        count = n_frequencies if shared else n_frequencies * self.latents.shape[1]
        points = random.normal(count, dim, source, "sobol")
        points[:, 0] = torch.special.ndtri(0.5 + 0.5 * torch.special.ndtr(points[:, 0]))
        return points.reshape(-1, n_frequencies, dim)

    def values(
        self, factors: Tensor, seed: int, purpose: str, step: int, n_frequencies: int
    ) -> Tensor:
        """Return the value of ``gradient`` alone, whose models share their frequencies, (S,)."""
        x, _ = self._sample(factors, seed, purpose, step)
        value = torch.zeros(x.shape[0], dtype=torch.float64, device=x.device)
        for v, weight in enumerate(self.weights):
            scales = self._scales(v, x.shape[2], n_frequencies)
            points = self._points(v, seed, purpose, step, n_frequencies, shared=True)
            w = self._frequencies(v, points, x)
            for block in complete_blocks(self.data[v]):
                features = _features(w, block.rows.take(_seen(x, self.dims[v]), dim=2))
                of_block = batched_evidence_value(features, *scales, block, _COARSE)
                value += weight * of_block
        return value

    def _scales(self, v: int, n_rows: int, n_frequencies: int) -> tuple[Tensor, Tensor]:
        """Return a view's amplitudes and noise variances, each (S,)."""
        _, log_variance, log_noise = self.scales[:, :, v]
        noise = log_noise.exp() + _ROUNDING * n_rows * log_variance.exp()
        return (0.5 * log_variance).exp() / n_frequencies**0.5, noise

    def _frequencies(self, v: int, points: Tensor, x: Tensor) -> Tensor:
        """Return a view's frequencies, (S, H, D)."""
        w = (points / self.scales[0, :, v].exp()[:, None, None]).to(x.dtype)
        return w.expand(x.shape[0], -1, -1)

    def _add_view(
        self,
        v: int,
        weight: float,
        x: Tensor,
        points: Tensor,
        d_x: Tensor,
        d_scales: Tensor,
    ) -> Tensor:
        """Return log p(Y_v | X_s, W_s), (S,), and add its gradients."""
        dims = self.dims[v]
        _, log_variance, log_noise = self.scales[:, :, v]
        floor = _ROUNDING * x.shape[2] * log_variance.exp()
        amplitude, noise = self._scales(v, x.shape[2], points.shape[1])
        w = self._frequencies(v, points, x)
        total = torch.zeros_like(log_noise)
        for block in complete_blocks(self.data[v]):
            latents = block.rows.take(_seen(x, dims), dim=2)
            features = _features(w, latents)
            result = batched_evidence(features, amplitude, noise, block, _COARSE)
            total += result.value
            d_phase = _d_phase(features, result.d_features).mul_(weight)
            # rows and dimensions to the front, of views: nothing is copied where all are seen
            of_rows = d_x.movedim((2, 1), (0, 1))
            d_latents = (w.mT @ d_phase).movedim((2, 1), (0, 1))
            if len(dims) == len(of_rows[0]):
                block.rows.add_to(of_rows, d_latents)
            else:
                of_rows[:, dims] += block.rows.scatter(d_latents, of_rows[:, dims])
            d_w = d_phase @ latents.mT
            d_scales[0, :, v] -= (d_w * w).sum((1, 2), dtype=torch.float64)
            on_variance = 0.5 * result.d_log_amplitude + floor * result.d_noise
            d_scales[1, :, v] += weight * on_variance
            d_scales[2, :, v] += weight * log_noise.exp() * result.d_noise
        return total

    def bounds(self, factors: Tensor, seed: int) -> Tensor:
        """Return the bounds of the models over draws that they share, (S,), float64, nats.

        Dimensions of factor 0 are left out of the divergence from the prior as well.
        """
        draws = [self.values(factors, seed, "simple bound", i, _JUDGED) for i in range(_DRAWS)]
        mean, log_std = self.latents
        kl = []
        for s, kept in enumerate(factors != 0.0):
            kl.append(kl_standard_normal(mean[s][:, kept], log_std[s][:, kept]))
        return torch.stack(draws).mean(0) - torch.stack(kl)

    def settle(self, n_steps: int, seed: int, factors: Callable[[float], Tensor]) -> None:
        """Train all models for so many steps; factors of the dimensions are a function of the
        progress in [0, 1).
        """
        optimisers = [_Adam(self.latents), _Adam(self.scales)]
        for step in range(n_steps):
            weights = factors(step / n_steps)
            g = self.gradient(weights, seed, "simple", step, _FREQUENCIES, shared=False)
            mean, log_std = self.latents
            # less the gradient of the divergence from the prior
            g.latents[0] -= mean
            g.latents[1] -= (2.0 * log_std).exp() - 1.0
            finite = g.latents.sum((0, 2, 3)).isfinite() & g.value.isfinite()
            # those stay where they are
            if not bool(finite.all()):
                g.latents[:, ~finite] = 0.0
                g.scales[:, ~finite] = 0.0
            rate = _LEARNING_RATE * _share(step, n_steps)
            for optimiser, gradient in zip(optimisers, (g.latents, g.scales), strict=True):
                optimiser.step(gradient, rate)


class _Adam:
    """Climbs the gradients of one tensor (`bochner.training.trainer` has modules' parameters)."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.first = torch.zeros_like(values)
        self.second = torch.zeros_like(values)
        self.count = 0

    def step(self, gradient: Tensor, rate: float) -> None:
        self.count += 1
        self.first.lerp_(gradient, 1.0 - FIRST)
        self.second.mul_(SECOND).addcmul_(gradient, gradient, value=1.0 - SECOND)
        scale = (self.second / (1.0 - SECOND**self.count)).sqrt_().add_(EPS)
        self.values.addcdiv_(self.first, scale, value=rate / (1.0 - FIRST**self.count))


def _share(step: int, n_steps: int) -> float:
    """Return the share of the learning rate: a linear warm-up, constant, then linear to zero."""
    left = (n_steps - step) / max(1.0, _DECAY * n_steps)
    return min(1.0, (step + 1) / _WARM_UP, left)


def _dims(layout: Layout | None, view: int, n_dims: int) -> list[int]:
    dims = None if layout is None else layout.dims(view)
    return list(range(n_dims)) if dims is None else list(dims)


def _seen(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Return some dimensions of the latents, ascending, (S, E, N) -> (S, D, N)."""
    return x if len(dims) == x.shape[1] else x[:, dims]


def _features(w: Tensor, x: Tensor) -> Tensor:
    """Return [cos wx; sin wx], (S, H, D) and (S, D, n) -> (S, 2 H, n)."""
    phase = w @ x
    s, h, n = phase.shape
    features = phase.new_empty(s, 2 * h, n)
    torch.cos(phase, out=features[:, :h])
    torch.sin(phase, out=features[:, h:])
    return features


def _d_phase(features: Tensor, upstream: Tensor) -> Tensor:
    """Carry the gradient of [cos; sin] back to the phases, (S, H, n)."""
    cos, sin = features.chunk(2, dim=1)
    up_cos, up_sin = upstream.chunk(2, dim=1)
    return (cos * up_sin).addcmul_(sin, up_cos, value=-1.0)


# Steps of a batch of layouts.
STEPS = 200
_FOLDED_AT = 0.7


@dataclass(frozen=True)
class Settled:
    """Layouts after training under the simplest kernels.

    Attributes
    ----------
    latents : Tensor of shape (S, N, D)
    bounds : Tensor of shape (S,), float64
        Over draws that all share, in nats.
    """

    latents: Tensor
    bounds: Tensor


def settle(
    latents: Tensor,
    begins: Tensor,
    layout: Layout,
    wide: Layout,
    data: Data,
    seed: int,
    n_steps: int = STEPS,
    weights: Sequence[float] | None = None,
    names: Sequence[str] | None = None,
) -> Settled:
    """Train layouts together; dimensions that do not stay shrink to nothing on the way.

    Parameters
    ----------
    latents : Tensor of shape (S, N, E)
        E >= D, on the plan's device and in its precision.
    begins : Tensor of shape (S, E)
        1 for the dimensions that a layout begins with, 0 for others.
    layout, wide : Layout
        Of the D dimensions that stay and of all E.
    data : tuple over views of tuples of Block
    seed : int
    n_steps : int
    weights : sequence of float, optional
        Of the views; None: 1.
    names : sequence of str, optional
        Of the views.

    Returns
    -------
    Settled
    """
    kept = wide.narrowed(layout)
    models = SimpleModels(latents, data, wide, weights, names)
    models.settle(n_steps, seed, lambda progress: _shrink(begins, kept, progress))
    bounds = models.bounds(_shrink(begins, kept, 1.0), seed)
    return Settled(models.mean[..., kept], bounds)


def _shrink(begins: Tensor, kept: list[int], progress: float) -> Tensor:
    """Factors of the dimensions: of those that stay as they begin, falling from 1 to 0 for the
    others that a layout begins with.
    """
    factors = begins * max(0.0, 1.0 - progress / _FOLDED_AT)
    factors[:, kept] = begins[:, kept]
    return factors
