"""A value that computes its own gradient in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# Returns the value and, where they are wanted, the gradients in all inputs.
ClosedForm = Callable[[bool], tuple[Tensor, Sequence[Tensor | None]]]


class _ClosedForm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compute: ClosedForm, *inputs: Tensor | None) -> Tensor:  # noqa: ARG004
        wanted = any(ctx.needs_input_grad)
        value, gradients = compute(wanted)
        if wanted:
            ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *(_scaled(gradient, upstream) for gradient in ctx.saved_tensors))


def _scaled(gradient: Tensor | None, upstream: Tensor) -> Tensor | None:
    if gradient is None:
        return None
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
