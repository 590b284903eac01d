"""Adam: steps down the gradients of a module's parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

# By number of the parameter: the moments, and the count of steps.
Moments = dict[int, dict[str, Tensor]]
# Of the gradient's moments; eps is tiny because gradients per entry are: more would act as a hidden
# learning rate.
FIRST, SECOND, EPS = 0.9, 0.99, 1e-12


class Adam:
    """Takes steps down the gradients of a module's parameters.

    Parameters
    ----------
    module : nn.Module
        Parameters without a gradient at a step are left alone.
    learning_rate : float
        May be changed between steps.
    factors : mapping of str to float, optional
        Endings of parameters' names and what their learning rate is multiplied by; others: 1.
    """

    def __init__(
        self,
        module: nn.Module,
        learning_rate: float,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        self.names = [name for name, _ in module.named_parameters()]
        self.parameters, self.learning_rate = list(module.parameters()), learning_rate
        of_endings = list((factors or {}).items())
        self._factors = [
            next((f for end, f in of_endings if name.endswith(end)), 1.0)
            for name in self.names
        ]
        self._counts = [0] * len(self.parameters)
        self._first: list[Tensor | None] = [None] * len(self.parameters)
        self._second: list[Tensor | None] = [None] * len(self.parameters)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def not_finite(self) -> str | None:
        """Return the name of the first parameter whose gradient is not finite, if there is one."""
        named = [(n, p.grad) for n, p in zip(self.names, self.parameters, strict=True)]
        given = [(name, grad) for name, grad in named if grad is not None]
        # a norm is finite only where all entries are
        norms = torch._foreach_norm([grad for _, grad in given])
        if math.isfinite(sum(float(norm) for norm in norms)):
            return None
        faulty = (name for name, grad in given if not bool(torch.isfinite(grad).all()))
        return next(faulty, None)

    def step(self) -> None:
        """Move every parameter that has a gradient: all of them by each of a few operations."""
        moving = [i for i, p in enumerate(self.parameters) if p.grad is not None]
        if not moving:
            return
        with torch.no_grad():
            gradients = [cast(Tensor, self.parameters[i].grad) for i in moving]
            pairs = list(zip(moving, gradients, strict=True))
            first = [_there(self._first, i, gradient) for i, gradient in pairs]
            second = [_there(self._second, i, gradient) for i, gradient in pairs]
            for i in moving:
                self._counts[i] += 1
            counts = [self._counts[i] for i in moving]
            torch._foreach_lerp_(first, gradients, 1.0 - FIRST)
            torch._foreach_mul_(second, SECOND)
            torch._foreach_addcmul_(second, gradients, gradients, 1.0 - SECOND)
            scales = torch._foreach_div(second, [1.0 - SECOND**count for count in counts])
            torch._foreach_sqrt_(scales)
            torch._foreach_add_(scales, EPS)
            rates = [
                -self.learning_rate * self._factors[i] / (1.0 - FIRST**count)
                for i, count in zip(moving, counts, strict=True)
            ]
            torch._foreach_addcdiv_([self.parameters[i] for i in moving], first, scales, rates)

    def stop(self, name: str, rows: Tensor) -> None:
        """Take the momentum from some rows of a parameter: others moved them."""
        momentum = self._first[self.names.index(name)]
        if momentum is not None:
            momentum[rows] = 0.0

    def state_dict(self) -> dict[str, Moments]:
        """Return the moments by number of the parameter, as torch's optimisers do."""
        state = {
            i: {"step": torch.tensor(self._counts[i]), "exp_avg": first, "exp_avg_sq": second}
            for i, (first, second) in enumerate(zip(self._first, self._second, strict=True))
            if first is not None and second is not None
        }
        return {"state": state}

    def load_state_dict(self, state: dict[str, Moments]) -> None:
        """Continue from moments, brought to where the parameters are; tensors already there will
        change.
        """
        moments = state["state"]
        for i, parameter in enumerate(self.parameters):
            moment = moments.get(i)
            self._counts[i] = 0 if moment is None else int(moment["step"])
            self._first[i] = None if moment is None else moment["exp_avg"].to(parameter)
            self._second[i] = None if moment is None else moment["exp_avg_sq"].to(parameter)


def _there(moments: list[Tensor | None], i: int, like: Tensor) -> Tensor:
    """Return a parameter's moment, 0 to begin with."""
    moment = moments[i]
    if moment is None:
        moment = moments[i] = torch.zeros_like(like)
    return moment
