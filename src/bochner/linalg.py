"""Factorisations in float64 with jitter that is reported, Newton's step, values that compute their
own gradients in closed form, and the device on which all that happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner._typing import Context
from bochner.errors import InputError, NumericalError, NumericalWarning, message, warn_user

# Relative to the mean diagonal: from what float64 rounding explains to what would be another model.
_JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)
# Bytes: where torch allocates, and products ask nothing else of where memory begins.
_ALIGNMENT = 64
# Returns the value and, where they are wanted, the gradients in all inputs.
ClosedForm = Callable[[bool], tuple[Tensor, Sequence[Tensor | None]]]


@dataclass(frozen=True)
class Cholesky:
    """A lower triangular factor with what it took to get it.

    Attributes
    ----------
    factor : Tensor of shape (..., K, K)
    jitter : float
        What was added to the diagonal, 0 when nothing was.
    """

    factor: Tensor
    jitter: float

    def logdet(self) -> Tensor:
        """Return log det of the factored matrix, shape (...).

        What ``torch.logdet`` is not to be used for: its LU factors, which ``torch.linalg.inv``
        takes too, never end for several matrices of some 150 rows with some builds of MKL once
        ``torch.set_num_threads`` has set several.
        """
        diagonal = torch.diagonal(self.factor, dim1=-2, dim2=-1).double()
        logdet: Tensor = 2.0 * diagonal.log().sum(-1)
        return logdet

    def solve(self, right: Tensor) -> Tensor:
        """Solve A x = right, shapes (..., K, M)."""
        solution: Tensor = torch.cholesky_solve(right.to(self.factor.dtype), self.factor)
        return solution

    def inverse(self) -> Tensor:
        """Return the inverse of the factored matrix, shape (..., K, K)."""
        return torch.cholesky_inverse(self.factor)


def cholesky(
    matrix: Tensor,
    exact: Callable[[], Tensor] | None = None,
    precision: torch.dtype = torch.float64,
) -> Cholesky:
    """Factor a symmetric positive definite matrix; escalate jitter when rounding made it
    indefinite.

    Parameters
    ----------
    matrix : Tensor of shape (..., K, K)
    exact : callable, optional
        Forms the matrix anew from products in float64: asked where those of single precision made
        it indefinite, which happens when the noise variance is below their rounding.
    precision : torch.dtype
        Of the factor, tried first; where there is none, it is float64.

    Returns
    -------
    Cholesky

    Raises
    ------
    NumericalError
        The matrix is not finite, or not positive definite with a jitter of 1e-6 of its mean
        diagonal.

    Warns
    -----
    NumericalWarning
        Jitter was needed; the message says how much.
    """
    if precision != torch.float64:
        factor, info = torch.linalg.cholesky_ex(matrix.to(precision))
        trace = factor.diagonal(dim1=-2, dim2=-1).sum()
        if not bool(info.any()) and bool(trace.isfinite()):
            return Cholesky(factor, 0.0)
    matrix = matrix.double()
    factor, info = torch.linalg.cholesky_ex(matrix)
    diagonal = torch.diagonal(
        factor.detach(),
        dim1=-2,
        dim2=-1,
        # an infinite matrix has a factor, of sorts
    ).sum()
    if not bool(info.any()) and math.isfinite(float(diagonal)):
        return Cholesky(factor, 0.0)
    return _with_jitter(matrix) if exact is None else cholesky(exact())


# Rows of a product from which leaving out what lies below its diagonal is worth several calls, and
# how many blocks of rows there are then: 400 rows of 1,000 take 0.7 of the time, 200 of them 0.8.
_SEVERAL = 160
_BLOCKS = 4


def symmetric_product(left: Tensor, right: Tensor) -> Tensor:
    """Return L R^T where that is symmetric: what lies below the blocks of the diagonal is what lies
    above them.

    Parameters
    ----------
    left, right : Tensor of shape (K, n)
        R is L, or L with its columns multiplied by numbers.

    Returns
    -------
    Tensor of shape (K, K)
    """
    k = left.shape[0]
    if k < _SEVERAL or left.device.type != "cpu":
        return left @ right.T
    out = left.new_empty(k, k)
    size = -(-k // _BLOCKS)
    for begin in range(0, k, size):
        end = min(begin + size, k)
        torch.mm(left[begin:end], right[begin:].T, out=out[begin:end, begin:])
        out[begin:end, :begin] = out[:begin, begin:end].T
    return out


def laid_out(tensor: Tensor) -> Tensor:
    """Return a tensor in the order of rows, in memory of its own allocation.

    As it is when it comes out of a file: the same numbers in another layout, or away from the
    processor's vectors, may be summed in another order, and a product rounds otherwise. ``torch``
    calls a column of a transposed matrix contiguous although its strides are others.
    """
    steps = []
    size = 1
    for length in reversed(tensor.shape):
        steps.append(size)
        size *= max(length, 1)
    as_allocated = not tensor.storage_offset() and tensor.data_ptr() % _ALIGNMENT == 0
    if as_allocated and tensor.stride() == tuple(reversed(steps)):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def plus_diagonal(matrix: Tensor, value: Tensor | float) -> Tensor:
    """Return a copy of the matrix with ``value`` added to its diagonal, shape (K, K)."""
    out = matrix.clone()
    out.diagonal().add_(value)
    return out


def _with_jitter(matrix: Tensor) -> Cholesky:
    """Escalate; the common case above pays for none of this."""
    if not bool(torch.isfinite(matrix).all()):
        raise NumericalError(
            "Cholesky: the matrix holds non-finite numbers. Check the scale of the data."
        )
    scale = float(torch.diagonal(matrix.detach(), dim1=-2, dim2=-1).mean().abs())
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for relative in _JITTERS:
        jitter = relative * scale
        factor, info = torch.linalg.cholesky_ex(matrix + jitter * eye)
        if not bool(info.any()):
            # in words that come again: Python and the commands show a text once, and a fit that
            # needs jitter needs it hundreds of times
            text = f"Cholesky needed a jitter of {relative:.0e} of the mean diagonal."
            warn_user(text, NumericalWarning)
            return Cholesky(factor, jitter)
    raise NumericalError(
        f"Cholesky failed with a jitter of {jitter:.1e}: the matrix is not positive definite. "
        "Lower the learning rate or raise the noise variance."
    )


def covariance_root(covariance: Tensor) -> Tensor:
    """Return R with R R^T = covariance: lower triangular, or of eigenvectors where rounding left
    no triangular one.

    Parameters
    ----------
    covariance : Tensor of shape (..., D, D), float64
        Positive semi-definite but for rounding: smaller eigenvalues count as 0.
    """
    root: Tensor
    root, info = torch.linalg.cholesky_ex(covariance)
    flat = (info != 0).reshape(-1)
    if bool(flat.any()):
        shape = covariance.shape[-2:]
        values, vectors = torch.linalg.eigh(covariance.reshape(-1, *shape)[flat])
        root.reshape(-1, *shape)[flat] = vectors * values.clamp(min=0.0).sqrt()[:, None, :]
    return root


def newton_step(gradient: Tensor, hessian: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Return an ascent step, its curvatures made positive and its length cut, and the rise the full
    step promises.
    """
    full, straight = _solved(-hessian, gradient)
    bent = (~(straight & full.isfinite().all(1))).nonzero()[:, 0]
    if bent.numel():
        # eigenvectors cost ten times a factor, and are only needed here; where there are none, the
        # step is 0
        matrices = -hessian[bent]
        slopes = gradient[bent]
        finite = matrices.isfinite().flatten(1).all(1) & slopes.isfinite().all(1)
        matrices = matrices.masked_fill(~finite[:, None, None], 0.0)
        slopes = slopes.masked_fill(~finite[:, None], 0.0)
        values, vectors = torch.linalg.eigh(matrices)
        along = (vectors.transpose(1, 2) @ slopes[..., None])[..., 0]
        steps = along / values.abs().clamp(min=1e-6)
        full[bent] = (vectors @ steps[..., None])[..., 0]
    length = full.norm(dim=1).clamp(min=1e-300)
    step = full * (radius / length).clamp(max=1.0)[:, None]
    rise = 0.5 * (full * gradient).sum(1)
    return step, rise


def _solved(matrices: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Solve A x = right, (P, D, D), (P, D) -> (P, D), and return where A is positive definite,
    (P,).
    """
    if matrices.shape[-1] != 2:
        factor, info = torch.linalg.cholesky_ex(matrices)
        solved = torch.cholesky_solve(right[..., None], factor)
        return solved[..., 0], info == 0
    a = matrices[:, 0, 0]
    b = matrices[:, 0, 1]
    c = matrices[:, 1, 1]
    determinant = a * c - b * b
    first = right[:, 0]
    second = right[:, 1]
    x = torch.stack([c * first - b * second, a * second - b * first], dim=1)
    return x / determinant[:, None], (a > 0.0) & (determinant > 0.0)


# Share of the largest diagonal entry below which a curvature has no sign.
_ROUNDED = 1e-8


def positive_definite(matrices: Tensor) -> Tensor:
    """Return which matrices, (P, D, D), are positive definite but for rounding, (P,)."""
    scale = matrices.diagonal(dim1=1, dim2=2).abs().amax(1)
    eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    raised = matrices + (_ROUNDED * scale)[:, None, None] * eye
    return _solved(raised, torch.zeros_like(matrices[..., 0]))[1]


def _inverted(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Invert positive definite matrices, (P, D, D), with log det of the inverses, (P,)."""
    if matrices.shape[-1] != 2:
        factor = cholesky(matrices)
        return factor.inverse(), -factor.logdet()
    wide = matrices.double()
    a = wide[:, 0, 0]
    b = wide[:, 0, 1]
    c = wide[:, 1, 1]
    determinant = a * c - b * b
    parts = torch.stack([c, -b, -b, a], dim=1) / determinant[:, None]
    return parts.reshape(-1, 2, 2), -determinant.log()


def positive_inverse(precision: Tensor) -> tuple[Tensor, Tensor]:
    """Invert, with log det; directions that are no maximum get the prior's precision, never more
    certainty.
    """
    eye = torch.eye(precision.shape[-1], dtype=precision.dtype)
    _, above = _solved(precision - eye, torch.zeros_like(precision[..., 0]))
    # what is not finite tells nothing
    finite = precision.isfinite().flatten(-2).all(-1)
    above &= finite
    inverse, log_volume = _inverted(torch.where(above[:, None, None], precision, eye))
    rest = (~above).nonzero()[:, 0]
    if rest.numel():
        usable = torch.where(finite[rest, None, None], precision[rest], eye)
        values, vectors = torch.linalg.eigh(usable)
        values = values.clamp(min=1.0)
        inverse[rest] = (vectors / values[..., None, :]) @ vectors.transpose(-1, -2)
        log_volume[rest] = -values.log().sum(-1)
    return inverse, log_volume


class _ClosedForm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, compute: ClosedForm, *inputs: Tensor | None) -> Tensor:  # noqa: ARG004
        wanted = any(ctx.needs_input_grad)
        value, gradients = compute(wanted)
        if wanted:
            ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Context, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *(_scaled(gradient, upstream) for gradient in ctx.saved_tensors))


def _scaled(gradient: Tensor | None, upstream: Tensor) -> Tensor | None:
    if gradient is None or (not upstream.ndim and float(upstream) == 1.0):
        return gradient  # of all rows: no copy
    if not upstream.ndim:
        return gradient * upstream
    trailing = (1,) * (gradient.ndim - upstream.ndim)
    return upstream.to(gradient.dtype).reshape(upstream.shape + trailing) * gradient


def closed_form(compute: ClosedForm, *inputs: Tensor | None) -> Tensor:
    """Return a value that is differentiable once: the backward pass only scales its gradients.

    Parameters
    ----------
    compute : callable
        Takes whether gradients are wanted. Returns the value, a scalar or of shape (S,), and its
        gradients in the inputs, in their order, each of shape (...) or (S, ...).
    inputs : Tensor or None
        What the value depends on.
    """
    value: Tensor = _ClosedForm.apply(compute, *inputs)  # type: ignore[no-untyped-call]
    return value


def device_named(name: str) -> torch.device:
    """Return the device of a name; "auto" is the processor.

    It is not a GPU where there is one: fits of tables of some thousand rows are small operations,
    which take a GPU several times as long, and its random numbers are others, so that one
    ``random_state`` would give other fits on other machines.

    Raises
    ------
    InputError
        Torch has no such device here, or it holds no numbers.
    """
    do = "use 'auto', 'cpu' or 'cuda'"
    try:
        device = torch.empty(
            0, dtype=torch.float32, device="cpu" if name == "auto" else name
        ).device
    except (RuntimeError, AssertionError) as error:
        got = f"{name!r} ({str(error).splitlines()[0]})"
        raise InputError(message("a torch device", got, do)) from error
    if device.type == "meta":
        raise InputError(message("a torch device", f"{name!r}, which holds no numbers", do))
    return device


def check_dense(X: Tensor) -> None:
    """Refuse a tensor whose rows cannot be cut, or that holds no numbers.

    Raises
    ------
    InputError
        It is sparse or quantised, or lies on the device "meta".
    """
    if X.layout is not torch.strided or X.is_quantized or X.is_meta:
        kind = "on the device 'meta'" if X.is_meta else f"of {X.dtype}, {X.layout}"
        do = "pass X.to_dense() or X.dequantize(), or a scipy sparse matrix"
        raise InputError(message("a dense tensor of numbers", f"one {kind}", do))


@contextmanager
def own_precision() -> Iterator[None]:
    """Let products be computed in the precision of their factors, whether or not the program
    around has autocast on.
    """
    with ExitStack() as settings:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                settings.enter_context(torch.autocast(kind, enabled=False))
        yield
