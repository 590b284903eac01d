"""Several starts of one fit in one batch.

A step of a small model is mostly the time that its many small operations take to begin: starts that
are trained side by side, as one model whose parameters have a leading axis, cost little more than
one of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from bochner.features.fourier import evaluate, pull_back
from bochner.fitting.plan import mean_of_draws
from bochner.kernels.base import Frequencies
from bochner.linalg import closed_form
from bochner.models.lvm import LatentVariableModel, View, ViewSpec
from bochner.objectives.elbo import Draws
from bochner.regression.batched_evidence import (
    MOST_NUMBERS,
    batched_evidence,
    batched_evidence_value,
)
from bochner.regression.observations import CompleteBlock, Data, complete_blocks
from bochner.training.trainer import Moments, OnStep, State, Trainer


def stackable(
    views: Sequence[View | ViewSpec],
    data: Data,
    n_rows: int,
    n_models: int,
    n_features: int,
) -> bool:
    """Return whether models can be trained as one: small ones of complete Gaussian views, with one
    noise variance each and kernels whose parameters may have a leading axis.

    Parameters
    ----------
    views : sequence of View or ViewSpec
        Of each model, without covariates.
    data : tuple over views of tuples of Block
    n_rows, n_models, n_features : int
    """
    small = n_models * n_features * n_rows <= MOST_NUMBERS
    plain = all(
        # a class derived from it says so itself
        vars(type(view.kernel)).get("stackable", False) and view.likelihood.one_variance
        for view in views
    )
    complete = all(
        block.n_rows == n_rows and not block.has_holes for blocks in data for block in blocks
    )
    return n_models > 1 and small and plain and complete


class StackedModels(nn.Module):
    """Models of one shape as one: every parameter has a leading axis of S models.

    Parameters
    ----------
    models : sequence of LatentVariableModel
        Their parameters are copied.
    """

    def __init__(self, models: Sequence[LatentVariableModel]) -> None:
        super().__init__()
        self.model = copy.deepcopy(models[0])
        named = [dict(model.named_parameters()) for model in models]
        for name, parameter in self.model.named_parameters():
            parameter.data = torch.stack([each[name].detach() for each in named])

    def bounds(self, data: Data, draws: Sequence[Draws]) -> Tensor:
        """Return the bound of every model at draws of its own, (S,), float64, as ``elbo`` has it.

        Parameters
        ----------
        data : tuple over views of tuples of CompleteBlock
        draws : sequence of S Draws
        """
        latents = self.model.latents
        x, kl = latents.sample_with_kl(torch.stack([one.latents for one in draws]))
        total = -kl
        for v, (view, blocks) in enumerate(zip(self.model.views, data, strict=True)):
            f = view.kernel.frequencies(torch.stack([one.spectra[v] for one in draws]))
            log_noise = view.likelihood.get_parameter("log_noise_variance")
            for block in complete_blocks(blocks):
                value = stacked_evidence(view.see(x), f, log_noise.exp(), block)
                total = total + view.weight * value
        return total


def stacked_evidence(
    x: Tensor, frequencies: Frequencies, noise_variance: Tensor, block: CompleteBlock
) -> Tensor:
    """Return log p(Y | X_s, W_s) of S models, as ``view_evidence`` does of one.

    Parameters
    ----------
    x : Tensor of shape (S, N, D)
    frequencies : Frequencies
        With a leading axis of S.
    noise_variance : Tensor of shape (S,), float64
    block : CompleteBlock
        Of all rows.

    Returns
    -------
    Tensor of shape (S,), float64
        -inf where rounding left no factor. Differentiable once.
    """
    f = frequencies.to(x.dtype)

    def compute(wanted: bool) -> tuple[Tensor, Sequence[Tensor | None]]:
        trace = evaluate(x, f)
        given = (
            trace.features,
            torch.ones_like(noise_variance),
            noise_variance.detach(),
            block,
        )
        if not wanted:
            return batched_evidence_value(*given), ()
        result = batched_evidence(*given)
        return result.value, (*pull_back(trace, f, result.d_features)[:4], result.d_noise)

    return closed_form(compute, x, f.first, f.second, f.amplitude, noise_variance)


class StackedRun:
    """Trains several trainers side by side: what each of them takes is the steps of its own, up to
    rounding.

    Parameters
    ----------
    trainers : sequence of Trainer
        Of models that are ``stackable``, at the same step.
    draws : callable
        Number of the trainer, step -> Draws.
    data : tuple over views of tuples of CompleteBlock
    """

    def __init__(
        self,
        trainers: Sequence[Trainer[LatentVariableModel]],
        draws: Callable[[int, int], Draws],
        data: Data,
    ) -> None:
        self.trainers = trainers
        self.draws = draws
        self.data = data
        self.models = StackedModels([trainer.module for trainer in trainers])
        first = trainers[0]
        self._values: list[Tensor] = []
        self._trainer = Trainer(self.models, self._objective, first.n_entries, first.options)

    def _objective(self, step: int) -> Tensor:
        draws = [self.draws(i, step) for i in range(len(self.trainers))]
        values = self.models.bounds(self.data, draws)
        # of steps that were rolled back
        del self._values[step:]
        self._values.append(values.detach())
        return values.sum()

    def run(self, length: int, on_step: OnStep | None = None, settle: bool = True) -> bool:
        """Train for so many steps, as ``Trainer.run`` does, and bring the trainers there; return
        whether that was possible.
        """
        try:
            state = self._trainer.run(until=length, on_step=on_step, settle=settle)
            return state.step == length
        except KeyboardInterrupt:
            # it may have struck in the middle of a step
            self._trainer.rewind()
            raise
        finally:
            self._hand_over()

    def evaluate(self, draws: Sequence[Draws]) -> tuple[Tensor, Tensor]:
        """Return the mean bound of every model over draws that all share, and its standard error,
        each (S,).
        """
        with torch.no_grad():
            among = len(self.trainers)
            values = torch.stack(
                [self.models.bounds(self.data, [one] * among) for one in draws]
            )
        return mean_of_draws(values)

    def _hand_over(self) -> None:
        """Bring the trainers to where their models stand."""
        state = self._trainer.state
        history = torch.stack(self._values[: state.step]).T.tolist() if state.step else []
        parameters = self.models.model.state_dict()
        for s, trainer in enumerate(self.trainers):
            trainer.module.load_state_dict({name: p[s] for name, p in parameters.items()})
            trainer.optimiser.load_state_dict({"state": self._moments(s)})
            single = State(**{**vars(state), "history": history[s] if history else []})
            trainer.resume(single)

    def _moments(self, s: int) -> Moments:
        """Return the moments of one trainer."""
        every = self._trainer.optimiser.state_dict()["state"]
        return {
            i: {name: (m if name == "step" else m[s]).clone() for name, m in slots.items()}
            for i, slots in every.items()
        }
