"""Adam (Kingma and Ba 2015) for a module: torch's own imports a compiler first, seconds that a fit
would wait for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

# Of the gradient's moments; eps is tiny because gradients per entry are: more would act as a hidden
# learning rate.
# By number of the parameter: the moments, and the count of steps.
Moments = dict[int, dict[str, Tensor]]
_FIRST, _SECOND, _EPS = 0.9, 0.99, 1e-12


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
        self, module: nn.Module, learning_rate: float, factors: Mapping[str, float] | None = None
    ) -> None:
        self.names = [name for name, _ in module.named_parameters()]
        self.parameters, self.learning_rate = list(module.parameters()), learning_rate
        pairs = list((factors or {}).items())
        self._factors = [
            next((f for ending, f in pairs if name.endswith(ending)), 1.0) for name in self.names
        ]
        self._state: dict[int, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def not_finite(self) -> str | None:
        """Return the name of the first parameter whose gradient is not finite, if there is one."""
        own = [
            (name, p.grad)
            for name, p in zip(self.names, self.parameters, strict=True)
            if p.grad is not None
        ]
        # a sum is finite where all its terms are: one number to wait for
        if math.isfinite(
            float(torch.stack([grad.sum(dtype=torch.float64) for _, grad in own]).sum())
        ):
            return None
        return next((name for name, grad in own if not bool(torch.isfinite(grad).all())), None)

    def step(self) -> None:
        """Move every parameter that has a gradient."""
        with torch.no_grad():
            for i, parameter in enumerate(self.parameters):
                if parameter.grad is not None:
                    self._move(i, parameter, parameter.grad, self.learning_rate * self._factors[i])

    def _move(self, i: int, parameter: Tensor, gradient: Tensor, rate: float) -> None:
        if i not in self._state:
            zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self._state[i] = {"step": torch.zeros((), dtype=torch.int64), **zeros}
        own = self._state[i]
        count = int(own["step"].add_(1))
        mean = own["exp_avg"].lerp_(gradient, 1.0 - _FIRST)
        square = own["exp_avg_sq"].mul_(_SECOND).addcmul_(gradient, gradient, value=1.0 - _SECOND)
        scale = (square / (1.0 - _SECOND**count)).sqrt_().add_(_EPS)
        parameter.addcdiv_(mean, scale, value=-rate / (1.0 - _FIRST**count))

    def state_dict(self) -> dict[str, Moments]:
        """Return the moments by number of the parameter, as torch's optimisers do."""
        return {"state": self._state}

    def load_state_dict(self, state: dict[str, Moments]) -> None:
        """Continue from moments, brought to where the parameters are; tensors already there will
        change.
        """
        self._state = {
            i: {
                name: value if name == "step" else value.to(self.parameters[i])
                for name, value in own.items()
            }
            for i, own in state["state"].items()
        }
