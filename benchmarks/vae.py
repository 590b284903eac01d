"""Variational autoencoders of one view and of several, for ``autoencoders.py``.

Kingma & Welling (2014), MVAE of Wu & Goodman (2018), MMVAE of Shi et al. (2019) with Gaussian
experts and one draw from each. q(z | x) is N(m, diag(s)), p(z) is N(0, I), encoders and decoders
are networks with SiLU units; the weight of the Kullback-Leibler divergence rises from 0 to 1 in the
first steps. Libraries have these models (pythae, multivae), but noise variances that are not
learned, and multivae needs a torchvision that does not load beside a torch for processors.
"""

from __future__ import annotations

import copy
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

HELD_OUT = 0.1  # of the rows
LEAST_HELD_OUT = 20
DRAWS = 4  # of the latents of held-out rows
EVERY = 25  # steps between two looks at held-out rows
# Steps without a better bound before training ends
PATIENCE = 300
RISE = 200  # steps until the divergence counts in full
BATCH = 128
_VARIANCES = (-12.0, 12.0)  # log variances of experts


@dataclass(frozen=True)
class Settings:
    """Widths of the hidden layers, learning rate, share of an encoder's inputs that are set to zero
    in training, and the most steps.
    """

    hidden: tuple[int, ...]
    rate: float
    dropout: float = 0.0
    steps: int = 5000

    def at_most(self, steps: int) -> Self:
        """Return the same with fewer steps."""
        return replace(self, steps=steps)

    def __str__(self) -> str:
        units = " + ".join(map(str, self.hidden))
        return f"{units} units, rate {self.rate:g}, dropout {self.dropout:g}"


class Likelihood(nn.Module):
    """The density of a view given what its decoder returns, summed over columns."""

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return log p(x | z) of every row."""
        raise NotImplementedError


class Gaussian(Likelihood):
    """One variance for all entries, learned."""

    def __init__(self) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(()))

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        squares = (targets - outputs).square() * torch.exp(-self.log_variance)
        return -0.5 * (squares + self.log_variance + math.log(2 * math.pi)).sum(-1)


class Bernoulli(Likelihood):
    """Log odds of ones; targets between 0 and 1 are shares."""

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (targets * outputs - nn.functional.softplus(outputs)).sum(-1)


class NegativeBinomial(Likelihood):
    """Log means about those of the columns, and a dispersion r per column."""

    def __init__(self, means: Tensor) -> None:
        super().__init__()
        self.base = nn.Parameter(torch.log(means), requires_grad=False)
        self.log_r = nn.Parameter(torch.zeros(len(means)))

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_mean, r = self.base + outputs, torch.exp(self.log_r)
        total = torch.logaddexp(log_mean, self.log_r)
        counted = torch.lgamma(targets + r) - torch.lgamma(r) - torch.lgamma(targets + 1)
        return (counted + r * (self.log_r - total) + targets * (log_mean - total)).sum(-1)


class Categorical(Likelihood):
    """Log odds of categories; targets are zeros and a one."""

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (targets * torch.log_softmax(outputs, -1)).sum(-1)


@dataclass(frozen=True)
class View:
    """Rows of one view: what its encoder sees, what its decoder explains, and which rows it has.

    Attributes
    ----------
    inputs, targets : Tensor, shape (N, M)
    observed : Tensor, shape (N,)
        1 or 0.
    likelihood : Likelihood
    weight : float
        Of the log density in the bound.
    """

    inputs: Tensor
    targets: Tensor
    observed: Tensor
    likelihood: Likelihood
    weight: float = 1.0

    @classmethod
    def of(cls, inputs: NDArray[np.float64], targets: Tensor, kind: Likelihood) -> Self:
        """Return a view of which all rows are there."""
        return cls(_float(inputs), targets, torch.ones(len(inputs)), kind)

    @classmethod
    def gaussian(cls, X: NDArray[np.float64]) -> Self:
        """Return centred columns in units of their common standard deviation."""
        scaled = _scaled(X)
        return cls.of(scaled, _float(scaled), Gaussian())

    @classmethod
    def bernoulli(cls, X: NDArray[np.float64]) -> Self:
        """Return zeros and ones, or shares of ones."""
        return cls.of(_scaled(X), _float(X), Bernoulli())

    @classmethod
    def counts(cls, X: NDArray[np.float64]) -> Self:
        """Return counts; the encoder sees their logarithms."""
        means = _float(np.maximum(X.mean(axis=0), 1.0 / len(X)))
        return cls.of(_scaled(np.log1p(X)), _float(X), NegativeBinomial(means))

    @classmethod
    def categories(cls, codes: NDArray[np.intp], known: NDArray[np.bool_]) -> Self:
        """Return one column of codes, of which some are unknown."""
        ones = np.eye(codes.max() + 1)[codes] * known[:, None]
        return replace(cls.of(ones, _float(ones), Categorical()), observed=_float(known))

    def weighed(self, weight: float) -> Self:
        """Return a view that counts more or less."""
        return replace(self, weight=weight)

    def shown(self, visible: bool) -> Self:
        """Return the view, or nothing of it."""
        return replace(self, observed=self.observed * float(visible))

    def rows(self, chosen: NDArray[np.intp] | Tensor) -> Self:
        """Return some rows."""
        at = torch.as_tensor(chosen)
        return replace(
            self,
            inputs=self.inputs[at],
            targets=self.targets[at],
            observed=self.observed[at],
        )


def _scaled(X: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = X - X.mean(axis=0)
    return centred / centred.std()


def _float(X: NDArray[np.generic]) -> Tensor:
    return torch.as_tensor(X).float()


def network(widths: Sequence[int]) -> nn.Sequential:
    """Return linear layers with SiLU units between them."""
    layers: list[nn.Module] = []
    for into, out in itertools.pairwise(widths):
        layers += [nn.Linear(into, out), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class Normals:
    """N(mean, diag(exp(log_variance))) of every row.

    Attributes
    ----------
    mean, log_variance : Tensor, shape (N, D)
    """

    mean: Tensor
    log_variance: Tensor

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a draw of every row, differentiable."""
        noise = torch.randn(self.mean.shape, generator=generator)
        return self.mean + torch.exp(0.5 * self.log_variance) * noise

    def log_density(self, z: Tensor) -> Tensor:
        """Return log q(z)."""
        squares = (z - self.mean).square() * torch.exp(-self.log_variance)
        return -0.5 * (squares + self.log_variance + math.log(2 * math.pi)).sum(-1)

    def divergence(self) -> Tensor:
        """Return the Kullback-Leibler divergence to N(0, I)."""
        variance = torch.exp(self.log_variance)
        return 0.5 * (self.mean.square() + variance - self.log_variance - 1).sum(-1)


class Autoencoder(nn.Module, ABC):
    """Encoders, decoders and likelihoods of all views, and how they are trained.

    Parameters
    ----------
    views : list of View
        Rows to be trained on.
    dim : int
        Of the latents.
    settings : Settings
    seed : int
    """

    def __init__(self, views: Sequence[View], dim: int, settings: Settings, seed: int) -> None:
        super().__init__()
        self.views, self.settings = list(views), settings
        self.generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            inside = settings.hidden
            self.encoders = nn.ModuleList(
                nn.Sequential(
                    nn.Dropout(settings.dropout),
                    network((v.inputs.shape[1], *inside, 2 * dim)),
                )
                for v in views
            )
            self.decoders = nn.ModuleList(
                network((dim, *inside[::-1], v.targets.shape[1])) for v in views
            )
        self.likelihoods = nn.ModuleList(copy.deepcopy(v.likelihood) for v in views)

    def experts(self, views: Sequence[View]) -> list[Normals]:
        """Return q(z | x) by every view alone."""
        result = []
        for encoder, view in zip(self.encoders, views, strict=True):
            mean, log_variance = encoder(view.inputs).chunk(2, -1)
            result.append(Normals(mean, log_variance.clamp(*_VARIANCES)))
        return result

    def log_density(self, z: Tensor, views: Sequence[View]) -> Tensor:
        """Return the log density of what is observed of every row."""
        parts: Iterable[tuple[Any, Any, View]] = zip(
            self.decoders, self.likelihoods, views, strict=True
        )
        return torch.stack(
            [
                view.weight * view.observed * likelihood.log_density(decoder(z), view.targets)
                for decoder, likelihood, view in parts
                if view.observed.any()
            ]
        ).sum(0)

    @abstractmethod
    def bound(
        self,
        experts: Sequence[Normals],
        views: Sequence[View],
        generator: torch.Generator,
        part: float = 1.0,
    ) -> Tensor:
        """Return a draw of the bound on every row's evidence, of whose divergence a part counts."""

    @abstractmethod
    def placed(self, experts: Sequence[Normals], views: Sequence[View]) -> Tensor:
        """Return the means of q(z | x)."""

    def objective(self, views: Sequence[View], part: float) -> Tensor:
        """Return what training raises."""
        return self.bound(self.experts(views), views, self.generator, part).mean()

    def means(self, views: Sequence[View] | None = None) -> NDArray[np.float64]:
        """Return the latents of rows, without any those trained on."""
        rows = self.views if views is None else views
        self.eval()
        with torch.no_grad():
            return self.placed(self.experts(rows), rows).double().numpy()

    def fit(self) -> dict[str, float]:
        """Train until the bound of held-out rows rises no more, and keep the best parameters.

        Returns
        -------
        dict
            That bound, nats a row, and after how many steps.
        """
        n = len(self.views[0].inputs)
        order = torch.randperm(n, generator=self.generator)
        held = max(int(HELD_OUT * n), LEAST_HELD_OUT)
        test = [v.rows(order[:held].repeat(DRAWS)) for v in self.views]
        train = [v.rows(order[held:]) for v in self.views]
        size = min(BATCH, max((n - held) // 4, 1))
        optimiser = torch.optim.Adam(self.parameters(), lr=self.settings.rate)
        best, at, kept = -math.inf, 0, copy.deepcopy(self.state_dict())
        rise = min(RISE, self.settings.steps // 2)
        for step in range(1, self.settings.steps + 1):
            self.train()
            rows = torch.randint(n - held, (size,), generator=self.generator)
            optimiser.zero_grad()
            loss = -self.objective([v.rows(rows) for v in train], min(1.0, step / rise))
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if step < self.settings.steps and (step < rise or step % EVERY):
                continue
            self.eval()
            with torch.no_grad():
                draws = torch.Generator().manual_seed(0)  # the same at every look
                now = float(self.bound(self.experts(test), test, draws).mean())
            if now > best:
                best, at, kept = now, step, copy.deepcopy(self.state_dict())
            if step - at >= PATIENCE:
                break
        self.load_state_dict(kept)
        return {"held_out": best, "steps": at}


class MVAE(Autoencoder):
    """q(z | x) is the product of the prior and of the experts of views that are there."""

    def joint(self, experts: Sequence[Normals], views: Sequence[View]) -> Normals:
        """Return q(z | x)."""
        precisions = torch.stack(
            [
                view.observed[:, None] * torch.exp(-expert.log_variance)
                for expert, view in zip(experts, views, strict=True)
            ]
        )
        total = 1.0 + precisions.sum(0)
        means = torch.stack([expert.mean for expert in experts])
        return Normals((precisions * means).sum(0) / total, -torch.log(total))

    def bound(
        self,
        experts: Sequence[Normals],
        views: Sequence[View],
        generator: torch.Generator,
        part: float = 1.0,
    ) -> Tensor:
        q = self.joint(experts, views)
        return self.log_density(q.draw(generator), views) - part * q.divergence()

    def placed(self, experts: Sequence[Normals], views: Sequence[View]) -> Tensor:
        return self.joint(experts, views).mean

    def objective(self, views: Sequence[View], part: float) -> Tensor:
        """Return the mean of the bounds of all views and, of several, of every view alone and of
        one more subset where there is one.
        """
        n, experts = len(views), self.experts(views)
        subsets = [range(n), *([i] for i in range(n if n > 1 else 0))]
        if n > 2:
            size = int(torch.randint(2, n, (1,), generator=self.generator))
            subsets.append(torch.randperm(n, generator=self.generator)[:size].tolist())
        bounds = []
        for subset in subsets:
            shown = [view.shown(i in subset) for i, view in enumerate(views)]
            bounds.append(self.bound(experts, shown, self.generator, part).mean())
        return torch.stack(bounds).mean()


class VAE(MVAE):
    """One view; the prior in the product keeps variances below 1, as those of the best q(z | x)
    are.
    """


class MMVAE(Autoencoder):
    """q(z | x) is the mixture of the experts of views that are there."""

    def bound(
        self,
        experts: Sequence[Normals],
        views: Sequence[View],
        generator: torch.Generator,
        part: float = 1.0,
    ) -> Tensor:
        observed = torch.stack([view.observed for view in views])
        bounds = []
        for z in [expert.draw(generator) for expert in experts]:
            densities = torch.stack([expert.log_density(z) for expert in experts])
            densities = densities.masked_fill(observed == 0, -torch.inf)
            mixture = torch.logsumexp(densities, 0) - torch.log(observed.sum(0))
            prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(-1)
            bounds.append(self.log_density(z, views) + part * (prior - mixture))
        return (observed * torch.stack(bounds)).sum(0) / observed.sum(0)

    def placed(self, experts: Sequence[Normals], views: Sequence[View]) -> Tensor:
        weights = torch.stack([view.observed for view in views])[..., None]
        means = torch.stack([expert.mean for expert in experts])
        return (weights * means).sum(0) / weights.sum(0)
