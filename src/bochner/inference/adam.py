"""Adam (Kingma and Ba 2015) for a module: torch's own imports a compiler first, seconds that a fit would wait for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

# Of the gradient's moments; eps is tiny because gradients per entry are: more would act as a hidden learning rate.
_FIRST, _SECOND, _EPS = 0.9, 0.99, 1e-12


class Adam:
    """Takes steps down the gradients of a module's parameters.

    Parameters
    ----------
    module : nn.Module
        Parameters without a gradient at a step are left alone.
    learning_rate : float
        May be changed between steps.
    """

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        self.parameters, self.learning_rate = list(module.parameters()), learning_rate
        self._state: dict[int, dict[str, Tensor]] = {}

    def step(self) -> None:
        """Move every parameter that has a gradient."""
        with torch.no_grad():
            for i, parameter in enumerate(self.parameters):
                if parameter.grad is not None:
                    self._move(i, parameter, parameter.grad)

    def _move(self, i: int, parameter: Tensor, gradient: Tensor) -> None:
        own = self._state.setdefault(
            i,
            {
                "step": torch.zeros((), dtype=torch.int64),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            },
        )
        count = int(own["step"].add_(1))
        mean = own["exp_avg"].lerp_(gradient, 1.0 - _FIRST)
        square = own["exp_avg_sq"].mul_(_SECOND).addcmul_(gradient, gradient, value=1.0 - _SECOND)
        scale = (square / (1.0 - _SECOND**count)).sqrt_().add_(_EPS)
        parameter.addcdiv_(mean, scale, value=-self.learning_rate / (1.0 - _FIRST**count))

    def state_dict(self) -> dict[str, Any]:
        """Return the moments by number of the parameter, as torch's optimisers do."""
        return {"state": self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from moments, brought to where the parameters are; tensors already there will change."""
        self._state = {
            i: {name: value if name == "step" else value.to(self.parameters[i]) for name, value in own.items()}
            for i, own in state["state"].items()
        }
