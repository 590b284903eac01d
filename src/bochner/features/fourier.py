"""The one spectral feature map, its gradient, and its derivatives in the latents.

Feature-major: a chunk of n rows becomes a (K, n) matrix. With p = (w1 + w2)x / 2 and m = (w1 - w2)x
/ 2, cos(w1 x) + cos(w2 x) = 2 cos(m) cos(p) and sin(w1 x) + sin(w2 x) = 2 cos(m) sin(p): a paired
map is a stationary one at the middle frequency, modulated by cos(m). That saves a quarter of the
sines and makes the gradient in p free of them. Covariates beside the latents are further
features, after the waves. Without them all shapes may have leading axes, of several models.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bochner._typing import Context
from bochner.errors import InputError, message
from bochner.features.waves import beside, pull_back_again
from bochner.kernels.base import Frequencies
from bochner.memory import Scratch, chunks

# Up to this many latents the phases are sums of scaled rows: four times as fast as a product with
# so thin a factor.
_THIN = 8
# Rounding of phases, radians, from which single precision is left for double.
_BLURRED = 1e-3
# And from which double is refused.
_LOST = 1e-6
# Features of a block of rows.
_NUMBERS = 2**19


def alike(covariates: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the rows with the same covariates, (n,), and these covariates, (1, L)."""
    if not covariates.shape[1]:
        yield torch.arange(len(covariates)), covariates[:1]
        return
    distinct, which = torch.unique(covariates, dim=0, return_inverse=True)
    for number, values in enumerate(distinct):
        yield (which == number).nonzero()[:, 0], values[None]


def with_covariates(x: Tensor, covariates: Tensor) -> Tensor:
    """Return places of rows with the rows' covariates beside them, (n, ..., D) and (n, L) -> (n,
    ..., D + L).
    """
    if not covariates.shape[1]:
        return x
    between = (1,) * (x.ndim - 2)
    beside = covariates.to(x).reshape(x.shape[0], *between, -1)
    return torch.cat([x, beside.expand(*x.shape[:-1], -1)], dim=-1)


def columns_beside(covariates: Tensor | None, n_rows: int) -> Tensor:
    """Return the covariates of rows, (n, L): no columns where none are given."""
    return torch.zeros(n_rows, 0, dtype=torch.float64) if covariates is None else covariates


@dataclass(frozen=True)
class Trace:
    """What the gradient of a chunk of features needs: no sine but that of the half gap is computed
    again.

    Attributes
    ----------
    x : Tensor of shape (D, n)
        Contiguous: products with its transpose, or into it, are many times slower.
    covariates : Tensor of shape (L, n)
        Before they were multiplied by their factors.
    features : Tensor of shape (K, n)
        envelope * cos, then envelope * sin, then the covariates times their factors.
    cos, sin : Tensor of shape (P, n)
        Of the middle phase p.
    centre, gap : Tensor of shape (P, D), or None for single points
        Half the sum and half the difference of the two frequencies.
    half_gap, cos_gap : Tensor of shape (P, n), or None for single points
        The phase m and its cosine; the envelope is 2 a cos(m), or a.
    scratch : Scratch
        Where all these lie.
    """

    x: Tensor
    covariates: Tensor
    features: Tensor
    cos: Tensor
    sin: Tensor
    centre: Tensor | None
    gap: Tensor | None
    half_gap: Tensor | None
    cos_gap: Tensor | None
    scratch: Scratch


def evaluate(x: Tensor, frequencies: Frequencies, scratch: Scratch | None = None) -> Trace:
    """Compute the features of a chunk of rows.

    Parameters
    ----------
    x : Tensor of shape (n, D), or (n, D + L) with covariates, which are 0 where they are left out
    frequencies : Frequencies
        P points or pairs, in x's precision.
    scratch : Scratch, optional
        Of x's precision. What it held of other rows is lost: their trace must not be used any more.

    Returns
    -------
    Trace
        ``features`` has shape (K, n), K = 2 P + L: the cosines, then the sines, the covariates.
    """
    w1 = frequencies.first
    w2 = frequencies.second
    n_pairs = w1.shape[-2]
    shape = (*w1.shape[:-1], x.shape[-2])
    memory = scratch or Scratch(x)
    given = beside(x, frequencies)
    x = frequencies.latents(x).mT.contiguous()
    features = memory.take("features", *shape[:-2], frequencies.n_features, shape[-1])
    if frequencies.n_linear:
        torch.mul(given, frequencies.linear[:, None], out=features[2 * n_pairs :])
    if w2 is None:
        centre = None
        gap = None
        half_gap = None
        cos_gap = None
        envelope = frequencies.amplitude[..., None]
        middle = _phases(w1, x, memory.take("sin", *shape))
    else:
        centre = 0.5 * (w1 + w2)
        gap = 0.5 * (w1 - w2)
        middle = _phases(centre, x, memory.take("sin", *shape))
        half_gap = _phases(gap, x, memory.take("half gap", *shape))
        cos_gap = torch.cos(half_gap, out=memory.take("cos gap", *shape))
        envelope = torch.mul(
            cos_gap, 2.0 * frequencies.amplitude[..., None], out=memory.take("wave", *shape)
        )
    cos = torch.cos(middle, out=memory.take("cos", *shape))
    sin = middle.sin_()
    torch.mul(cos, envelope, out=features.narrow(-2, 0, n_pairs))
    torch.mul(sin, envelope, out=features.narrow(-2, n_pairs, n_pairs))
    return Trace(x, given, features, cos, sin, centre, gap, half_gap, cos_gap, memory)


def _phases(w: Tensor, x: Tensor, out: Tensor) -> Tensor:
    """Return w x, (P, D) times (D, n)."""
    dim = x.shape[-2]
    if not 0 < dim <= _THIN:
        return torch.matmul(w, x, out=out)
    torch.mul(w.narrow(-1, 0, 1), x.narrow(-2, 0, 1), out=out)
    for d in range(1, dim):
        out.addcmul_(w.narrow(-1, d, 1), x.narrow(-2, d, 1))
    return out


def pull_back(
    trace: Trace, frequencies: Frequencies, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    """Carry the gradient of the features back to the latents, the spectral points and the factors
    of covariates.

    Parameters
    ----------
    trace : Trace
        Of ``evaluate(x, frequencies)``.
    frequencies : Frequencies
    upstream : Tensor of shape (K, n)

    Returns
    -------
    (n, D + L), (P, D), (P, D) or None, (P,), (L,)
        Gradients in x, first, second, amplitude, linear. Covariates are data: their gradient is
        left at 0.
    """
    x = trace.x
    amplitude = frequencies.amplitude
    n_pairs = frequencies.first.shape[-2]
    cos_f, sin_f = (trace.features.narrow(-2, i, n_pairs) for i in (0, n_pairs))
    up_cos, up_sin = (upstream.narrow(-2, i, n_pairs) for i in (0, n_pairs))
    of_linear = upstream.narrow(-2, 2 * n_pairs, frequencies.n_linear)
    d_linear = (trace.covariates * of_linear).sum(-1)
    shape = trace.cos.shape
    memory = trace.scratch
    # d cos(p) = -sin(p), d sin(p) = cos(p): the features are their own derivatives
    d_middle = torch.mul(cos_f, up_sin, out=memory.take("slope", *shape)).addcmul_(
        sin_f, up_cos, value=-1.0
    )
    wave = torch.mul(trace.cos, up_cos, out=memory.take("wave", *shape)).addcmul_(
        trace.sin, up_sin
    )
    centre = trace.centre
    gap = trace.gap
    if centre is None or gap is None or trace.half_gap is None or trace.cos_gap is None:
        d_x = _with_beside((frequencies.first.mT @ d_middle).mT, trace)
        return d_x, d_middle @ x.mT, None, wave.sum(-1), d_linear
    d_amplitude = 2.0 * torch.mul(trace.cos_gap, wave, out=memory.take("gap", *shape)).sum(-1)
    # the gradient in m is -2 a sin(m) wave; its factor -2 a goes to the small matrices
    d_gap = torch.sin(trace.half_gap, out=memory.take("gap", *shape)).mul_(wave)
    factor = -2.0 * amplitude[..., None]
    d_centre_w = 0.5 * (d_middle @ x.mT)
    d_gap_w = 0.5 * factor * (d_gap @ x.mT)
    d_x = ((factor * gap).mT @ d_gap).add_(centre.mT @ d_middle).mT
    d_x = _with_beside(d_x, trace)
    return d_x, d_centre_w + d_gap_w, d_centre_w - d_gap_w, d_amplitude, d_linear


def _with_beside(d_x: Tensor, trace: Trace) -> Tensor:
    """Return the gradient in latents with zeros for the covariates beside them."""
    n_linear = trace.covariates.shape[0]
    return torch.nn.functional.pad(d_x, (0, n_linear)) if n_linear else d_x


class _FourierFeatures(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context,
        x: Tensor,
        first: Tensor,
        second: Tensor | None,
        amplitude: Tensor,
        linear: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(x, first, second, amplitude, linear)
        return evaluate(x, Frequencies(first, second, amplitude, linear)).features

    @staticmethod
    def backward(ctx: Context, upstream: Tensor) -> tuple[Tensor | None, ...]:
        frequencies = Frequencies(*ctx.saved_tensors[1:])
        # derivatives of the derivatives are wanted
        if torch.is_grad_enabled():
            return pull_back_again(ctx.saved_tensors[0], frequencies, upstream)
        return pull_back(evaluate(ctx.saved_tensors[0], frequencies), frequencies, upstream)


def fourier_features(x: Tensor, frequencies: Frequencies) -> Tensor:
    """Return the random features of the rows of x, differentiable in every argument.

    Parameters
    ----------
    x : Tensor of shape (N, D)
    frequencies : Frequencies
        Converted to x's precision.

    Returns
    -------
    Tensor of shape (K, N)
        Columns phi(x_n) with E phi(x)^T phi(x') = k(x, x').

    Raises
    ------
    InputError
        Phases are so large that double precision does not hold them.
    """
    wide = _wide(x, frequencies)
    f = frequencies.to(wide.dtype)
    features: Tensor = _FourierFeatures.apply(wide, f.first, f.second, f.amplitude, f.linear)  # type: ignore[no-untyped-call]
    return features.to(x.dtype)


def feature_rows(x: Tensor, frequencies: Frequencies) -> Tensor:
    """Return the random features of rows as rows, differentiable in x.

    Parameters
    ----------
    x : Tensor of shape (N, D)
    frequencies : Frequencies
        Converted to x's precision; constants.

    Returns
    -------
    Tensor of shape (N, K)

    Raises
    ------
    InputError
        As `fourier_features`.
    """
    out = x.new_empty(len(x), frequencies.n_features)
    # of every row by itself: its features do not depend on those beside it
    far = ~(_phase_errors(x.detach(), frequencies) < _BLURRED)
    if x.dtype != torch.float64 and bool(far.any()) and not bool(far.all()):
        # refused by their numbers among all
        _wide(x.detach(), frequencies)
        for some in (far, ~far):
            out[some] = feature_rows(x[some], frequencies)
        return out
    if x.requires_grad and torch.is_grad_enabled():
        return fourier_features(x, frequencies).T.contiguous()
    wide = _wide(x, frequencies)
    f = frequencies.to(wide.dtype)
    scratch = Scratch(wide)
    # blocks that stay in the processor's cache
    for rows in chunks(len(x), max(1, _NUMBERS // f.n_features)):
        out[rows] = evaluate(wide[rows], f, scratch).features.T
    return out


def last_phase(n_columns: int, source: torch.Generator) -> float | None:
    """Draw the phase of a last column without a partner, radians; None of an even number."""
    if n_columns % 2 == 0:
        return None
    return 2 * math.pi * float(torch.rand((), generator=source, dtype=torch.float32))


def with_last_cosine(features: Tensor, phase: float) -> Tensor:
    """Return features of which the last pair is one cosine, (N, K) -> (N, K - 1).

    sqrt(2) cos(w x + b): its square averages to the pair's over a uniform phase b.
    """
    cosines, sines = features.chunk(2, 1)
    last = math.cos(phase) * cosines[:, -1:] - math.sin(phase) * sines[:, -1:]
    return torch.cat([cosines[:, :-1], sines[:, :-1], math.sqrt(2.0) * last], 1)


def _wide(x: Tensor, frequencies: Frequencies) -> Tensor:
    """Return rows in a precision that holds their phases, or refuse them."""
    blurred = x.dtype == torch.float64 or not _phase_error(x, frequencies) < _BLURRED
    wide = x.double() if blurred else x
    if blurred and not _phase_error(wide, frequencies) < _LOST:
        raise _too_far(wide, frequencies)
    return wide


@torch.no_grad()
def _phase_error(x: Tensor, frequencies: Frequencies) -> float:
    """What rounding may change a phase by, radians, (N, D)."""
    return float(_phase_errors(x, frequencies).amax()) if len(x) else 0.0


def _phase_errors(x: Tensor, frequencies: Frequencies) -> Tensor:
    """What rounding may change a phase of every row by, radians, (N, D) -> (N,)."""
    scale = torch.finfo(x.dtype).eps * frequencies.fastest
    sizes: Tensor = frequencies.latents(x).norm(dim=-1)
    return sizes * scale


def _too_far(x: Tensor, frequencies: Frequencies) -> InputError:
    """The error for rows that lie too many wavelengths from zero, (N, D)."""
    most = _LOST / torch.finfo(x.dtype).eps / frequencies.fastest
    latents = frequencies.latents(x.detach())
    row = int(latents.abs().amax(1).argmax())
    column = int(latents[row].abs().argmax())
    got = f"{float(latents[row, column]):.3g} in row {row}, column {column}"
    want = f"rows within {most:.2g} of zero, where double precision holds the features' phases"
    do = "centre and scale the columns, or give the kernel a longer lengthscale"
    return InputError(message(want, got, do))


@dataclass(frozen=True)
class Jet:
    """Features of rows and what their derivatives are made of.

    Attributes
    ----------
    value : Tensor of shape (n, K)
    waves : tuple of (Tensor of shape (P, D), Tensor of shape (n, P), Tensor of shape (n, P))
        Spectral points, amplitude times cosine and times sine of their phases: the features are
        sums of these.
    """

    value: Tensor
    waves: tuple[tuple[Tensor, Tensor, Tensor], ...]

    @cached_property
    def stack(self) -> Tensor:
        """Features and their Jacobian in one array, (n, 1 + D, K)."""
        (n, k) = self.value.shape
        (n_points, dim) = self.waves[0][0].shape
        out = self.value.new_empty(n, 1 + dim, k)
        out[:, 0] = self.value
        # covariates do not change with the latents
        out[:, 1:, 2 * n_points :] = 0.0
        for index, (w, c, s) in enumerate(self.waves):
            for d in range(dim):
                on_cos = out[:, 1 + d, :n_points]
                on_sin = out[:, 1 + d, n_points : 2 * n_points]
                if index == 0:
                    torch.mul(s, -w[:, d], out=on_cos)
                    torch.mul(c, w[:, d], out=on_sin)
                else:
                    on_cos.addcmul_(s, w[:, d], value=-1.0)
                    on_sin.addcmul_(c, w[:, d])
        return out

    @property
    def jacobian(self) -> Tensor:
        """d phi_k / d x_d, (n, D, K)."""
        return self.stack[:, 1:]

    def slope(self, weights: Tensor) -> Tensor:
        """Return sum_k weights_k d phi_k / dx, (n, K) -> (n, D), without the Jacobian."""
        on_cos, on_sin = self._of_waves(weights)
        parts = [(on_sin * c).addcmul_(on_cos, s, value=-1.0) @ w for w, c, s in self.waves]
        return functools.reduce(torch.add, parts)

    def curvature(self, weights: Tensor) -> Tensor:
        """Return sum_k weights_k d^2 phi_k / dx dx^T, (n, K) -> (n, D, D)."""
        on_cos, on_sin = self._of_waves(weights)
        # each wave is its own second derivative times -w w^T
        parts = [
            (on_cos * c).addcmul_(on_sin, s) @ (w[:, :, None] * w[:, None, :]).flatten(1)
            for w, c, s in self.waves
        ]
        dim = self.waves[0][0].shape[1]
        return functools.reduce(torch.add, parts).neg_().reshape(-1, dim, dim)

    def _of_waves(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights of cosines and sines, without those of covariates."""
        n_points = self.waves[0][0].shape[0]
        return weights[:, :n_points], weights[:, n_points : 2 * n_points]


def jet(x: Tensor, frequencies: Frequencies) -> Jet:
    """Evaluate features and what their derivatives are made of.

    Parameters
    ----------
    x : Tensor of shape (n, D), or (n, D + L) with covariates, which are 0 where they are left out
    frequencies : Frequencies
        In x's precision.

    Returns
    -------
    Jet
        Its derivatives are those in the latents.
    """
    beside = frequencies.covariates(x)
    x = frequencies.latents(x)
    waves = []
    for w in (frequencies.first, frequencies.second):
        if w is not None:
            phase = x @ w.T
            waves.append(
                (
                    w,
                    phase.cos().mul_(frequencies.amplitude),
                    phase.sin_().mul_(frequencies.amplitude),
                )
            )
    value = torch.cat(
        [
            *(functools.reduce(torch.add, [wave[part] for wave in waves]) for part in (1, 2)),
            beside,
        ],
        dim=1,
    )
    return Jet(value, tuple(waves))


def expected_features(mean: Tensor, covariance: Tensor, frequencies: Frequencies) -> Tensor:
    """Return E phi(x) for x ~ N(mean, covariance), exactly: each wave shrinks by exp(-w^T cov w /
    2).

    Parameters
    ----------
    mean : Tensor of shape (n, D), or (n, D + L) with covariates, which are 0 where they are left
        out
    covariance : Tensor of shape (n, D, D)
    frequencies : Frequencies

    Returns
    -------
    Tensor of shape (n, K)
    """
    beside = frequencies.covariates(mean)
    mean = frequencies.latents(mean)
    total = mean.new_zeros(mean.shape[0], 2 * frequencies.first.shape[0])
    for w in (frequencies.first, frequencies.second):
        if w is not None:
            phase = mean @ w.T
            envelope = (
                frequencies.amplitude
                * (-0.5 * torch.einsum("nde,pd,pe->np", covariance, w, w)).exp()
            )
            total = total + torch.cat([envelope * phase.cos(), envelope * phase.sin()], dim=1)
    return torch.cat([total, beside], dim=1)
