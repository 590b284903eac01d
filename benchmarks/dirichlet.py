"""Does a Dirichlet process kernel find its spectrum, by which gradient in q(z): ``python
benchmarks/dirichlet.py``.

Data from a Gaussian process whose spectrum has three components (N = 500, M = 100, D = 2, noise
standard deviation 0.3), fitted with T = 20 and H = 100 and the prior Gamma(1, 0.1) of the
concentration, mean 10. First with the latents known, by every way to estimate what a spectral point
gains from a component, each scored by the bound with hard draws z ~ q(z), w | z on the same fresh
draws; then with the latents learned. Last, S-curves (RBF, RBF + periodic): R² of SRFLVM with its
defaults, from single starts and from the true latents.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from harness import Job, Protocol, Store, Value, arguments, table, timed
from sklearn.manifold import TSNE
from sklearn.utils import Bunch
from torch import Tensor, nn

import bochner as bo
from bochner import random
from bochner.dirichlet_process.sweeps import Gains, local_gains, sweeps
from bochner.kernels import DirichletProcessMixture, SpectralMixture
from bochner.kernels.base import Frequencies
from bochner.likelihoods.likelihood import Gaussian
from bochner.models.dirichlet_posterior import kernel_kl, sticks_of
from bochner.models.lvm import GaussianLatents, LatentVariableModel, View
from bochner.objectives.elbo import draw, elbo
from bochner.regression.evidence import view_evidence
from bochner.regression.observations import Block, CompleteBlock
from bochner.training.trainer import Options, Trainer

PRIOR = (1.0, 0.1)
TRUE_WEIGHTS = (0.5, 0.3, 0.2)
SPECTRUM = {
    "elbo": ".0f",
    "elbo_se": ".0f",
    "components": ".1f",
    "alpha": ".2f",
    "alpha_std": ".2f",
    "first": ".2f",
    "second": ".2f",
    "third": ".2f",
    "kernel_error": ".2f",
    "kl": ".0f",
    "seconds": ".1f",
}
CURVE = {
    "r2": ".4f",
    "elbo": ".0f",
    "components": ".1f",
    "alpha": ".2f",
    "steps": ".0f",
    "seconds": ".1f",
}
_SMALL = 1e-4


@dataclass(frozen=True)
class Setting:
    """Sizes of a run."""

    n_rows: int = 500
    n_columns: int = 100
    truncation: int = 20
    n_points: int = 100
    max_iter: int = 1200


@functools.cache
def three_components(seed: int, setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """Draw latents, data and the kernel matrix of three spectral components."""
    source = torch.Generator().manual_seed(seed)
    X = torch.randn(setting.n_rows, 2, generator=source, dtype=torch.float64)
    means, scales = [[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]], [[0.4, 0.4], [0.3, 0.3], [0.3, 0.3]]
    with torch.no_grad():
        K = SpectralMixture(TRUE_WEIGHTS, means, scales)(X)
    factor = torch.linalg.cholesky(K + 1e-8 * torch.eye(len(X), dtype=torch.float64))
    Y, noise = (
        torch.randn(setting.n_rows, setting.n_columns, generator=source, dtype=torch.float64)
        for _ in range(2)
    )
    return X, factor @ Y + 0.3 * noise, K


# Ways to estimate E[log p(Y | X, W) | z_l = k] up to a number for each l, (H, T): what the block of
# q(z) needs.


def _all_points(
    kernel: DirichletProcessMixture, noise: Tensor, weights: Tensor
) -> Frequencies:
    """Every point under every component, T H of them, each with the weight of the pair."""
    w = kernel.means[None] + kernel.log_scales.exp()[None] * noise[0, :, None, :-1]
    amplitude = (kernel.log_variance.exp() * weights / noise.shape[1]).sqrt()
    return Frequencies(w.flatten(0, 1).detach(), None, amplitude.flatten())


def _complete(blocks: tuple[Block, ...]) -> tuple[CompleteBlock, ...]:
    """Return the blocks, which have no holes: data are made."""
    return tuple(block for block in blocks if isinstance(block, CompleteBlock))


def averaged_features(
    view: View,
    kernel: DirichletProcessMixture,
    x: Tensor,
    noise: Tensor,
    blocks: tuple[Block, ...],
    source: torch.Generator,  # noqa: ARG001 - one signature for all
) -> Tensor:
    """Differentiate the evidence of the averaged features, sqrt(phi_lk / H): a surrogate that is no
    bound.
    """
    with torch.enable_grad():
        phi = kernel.phi.clamp(min=_SMALL).requires_grad_()
        value = view_evidence(
            x, _all_points(kernel, noise, phi), view.noise_variance.detach(), _complete(blocks)
        )
        return torch.autograd.grad(value, phi)[0]


def relaxed_categorical(
    view: View,
    kernel: DirichletProcessMixture,
    x: Tensor,
    noise: Tensor,
    blocks: tuple[Block, ...],
    source: torch.Generator,
    temperature: float = 0.5,
) -> Tensor:
    """Differentiate the evidence under a concrete sample of z instead of a hard one."""
    with torch.enable_grad():
        log_phi = kernel.get_buffer("log_phi").clone().requires_grad_()
        uniform = torch.rand(log_phi.shape, generator=source, dtype=torch.float64).clamp(
            1e-12, 1 - 1e-12
        )
        relaxed = (
            ((log_phi - (-uniform.log()).log()) / temperature).softmax(1).clamp(min=1e-12)
        )
        points = _all_points(kernel, noise, relaxed)
        value = view_evidence(x, points, view.noise_variance.detach(), _complete(blocks))
        gradient = torch.autograd.grad(value, log_phi)[0]
    # the gradient in the logits is phi times (gain minus its mean)
    return gradient / kernel.phi.clamp(min=_SMALL)


def score_function(
    view: View,
    kernel: DirichletProcessMixture,
    x: Tensor,
    noise: Tensor,
    blocks: tuple[Block, ...],
    source: torch.Generator,
    n_draws: int = 8,
) -> Tensor:
    """Average the evidence of hard draws by what they chose, each less the mean of the others:
    unbiased.
    """
    values, chosen = [], []
    complete = _complete(blocks)
    for _ in range(n_draws):
        drawn = kernel.noise(noise.shape[1], noise.shape[2] - 1, source, "iid")
        spectrum = kernel.frequencies(drawn)
        values.append(view_evidence(x, spectrum, view.noise_variance, complete))
        chosen.append(nn.functional.one_hot(kernel.assign(drawn), kernel.truncation).double())
    value = torch.stack(values)
    advantage = (value - value.mean()) * n_draws / (n_draws - 1)
    return (advantage[:, None, None] * torch.stack(chosen)).mean(0) / kernel.phi.clamp(
        min=_SMALL
    )


VARIANTS: dict[str, Gains] = {
    "local expectations": local_gains,
    "averaged features": averaged_features,
    "relaxed categorical": relaxed_categorical,
    "score function": score_function,
}


def known_latents(seed: int, setting: Setting, gains: Gains) -> dict[str, Value]:
    """Fit spectrum and noise at the true latents."""
    X, Y, K = three_components(seed, setting)
    kernel = DirichletProcessMixture(prior=PRIOR, n_points=setting.n_points)
    kernel = kernel.initial(setting.truncation, 2, random.generator(seed, "kernel"))
    latents = GaussianLatents(X.float(), torch.full((len(X), 2), -12.0))
    model = LatentVariableModel(latents, [View("x", kernel, Gaussian(0.3))])
    data = ((CompleteBlock.of(Y.float()),),)

    def bound(purpose: str, step: int) -> Tensor:
        return elbo(
            model, data, draw(model, setting.n_points, "sobol", seed, purpose, step)
        ).total

    between = sweeps(model, data, setting.n_points, "sobol", seed, gains=gains)
    options = Options(setting.max_iter, 0.03, tol=-math.inf)
    trainer = Trainer(
        nn.ModuleList(model.views),
        partial(bound, "train"),
        Y.numel(),
        options,
        between=between,
    )
    _, seconds = timed(trainer.run)
    with torch.no_grad():
        # the latents are no variables
        values = torch.stack([bound("final", i) for i in range(32)]) + latents.kl()
        error = bo.metrics.relative_error(kernel(X).numpy(), K.numpy())
    result = {
        "elbo": float(values.mean()),
        "elbo_se": float(values.std() / 32**0.5),
        "kernel_error": error,
    }
    return {**result, **spectrum_of(kernel, setting), "seconds": seconds}


def spectrum_of(kernel: DirichletProcessMixture, setting: Setting) -> dict[str, Value]:
    """Return how many components hold a point, the largest shares, and what is believed of the
    concentration.
    """
    values, sticks = kernel.values(), sticks_of(kernel)
    share = values["proportions"]
    largest = dict(zip(("first", "second", "third"), share[:3].tolist(), strict=False))
    alpha = {
        "alpha": float(values["concentration"]),
        "alpha_std": float(sticks.shape.sqrt() / sticks.rate),
    }
    active = int((share * setting.n_points >= 1).sum())
    return {"components": active, **largest, **alpha, "kl": float(kernel_kl(kernel).detach())}


def learned_latents(seed: int, setting: Setting, start: str) -> dict[str, Value]:
    """Fit everything with the estimator."""
    X, Y, K = three_components(seed, setting)
    settings: dict[str, Any] = {
        "n_mixtures": setting.truncation,
        "n_frequencies": setting.n_points,
        "max_iter": setting.max_iter,
    }
    init = X.numpy() if start == "truth" else start
    model = bo.RandomFeatureLVM(
        kernel=DirichletProcessMixture(prior=PRIOR),
        init=init,
        random_state=seed,
        tol=0.0,
        **settings,
    )
    _, seconds = timed(lambda: quiet(model, Y.numpy()))
    kernel = model._fit.kernels[0]
    assert isinstance(kernel, DirichletProcessMixture)
    error = bo.metrics.relative_error(
        model.kernel_matrix(model.embedding_).astype(np.float64), K.numpy()
    )
    bound = {
        "elbo": float(model.elbo_),
        "elbo_se": float(model.elbo_se_),
        "kernel_error": error,
    }
    return {**bound, **spectrum_of(kernel, setting), "seconds": seconds}


def quiet(model: Any, X: Any) -> Any:
    """Fit; that a fit was cut short is no news here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X)


CURVES = {"RBF": "rbf", "RBF+periodic": "rbf+periodic"}


def curve(name: str, seed: int, setting: Setting, start: str) -> Mapping[str, Value]:
    """Fit SRFLVM to one S-curve view."""
    data: Bunch = bo.datasets.make_s_curve(
        setting.n_rows, setting.n_columns, (CURVES[name],), 0.5, seed
    )
    init: Any = start
    if start == "truth":
        init = data.latent
    elif start == "t-sne":
        init = TSNE(init="pca", random_state=seed).fit_transform(data.data)
        init = (init - init.mean(axis=0)) / init.std(axis=0)
    model = bo.SRFLVM(init=init, random_state=seed)
    if setting.max_iter < 500:
        model.set_params(max_iter=setting.max_iter)
    _, seconds = timed(lambda: quiet(model, data.data))
    r2 = bo.metrics.mean_aligned_r2(data.latent, model.embedding_)
    result = {
        "components": model.n_active_mixtures_["x"],
        "alpha": model.concentration_["x"],
        "steps": model.n_iter_,
    }
    return {"r2": r2, "elbo": float(model.elbo_), **result, "seconds": seconds}


def spectrum_jobs(seeds: range, setting: Setting) -> Iterator[Job]:
    """Yield the estimator and local expectations at the true latents, then every other variant."""
    for seed in seeds:
        yield Job(
            "latents learned",
            "from the truth",
            seed,
            partial(learned_latents, seed, setting, "truth"),
        )
        yield Job(
            "latents known",
            "local expectations",
            seed,
            partial(known_latents, seed, setting, local_gains),
        )
    for seed in seeds:
        for name, gains in VARIANTS.items():
            yield Job(
                "latents known", name, seed, partial(known_latents, seed, setting, gains)
            )


def curve_jobs(seeds: range, setting: Setting) -> Iterator[Job]:
    """Yield S-curves from several starts."""
    starts = {
        "SRFLVM, defaults": "auto",
        "SRFLVM from t-SNE": "t-sne",
        "SRFLVM from Isomap": "isomap",
        "SRFLVM from the truth": "truth",
    }
    for seed in seeds:
        for name in CURVES:
            for method, start in starts.items():
                run: Callable[[], Mapping[str, Value]] = partial(
                    curve, name, seed, setting, start
                )
                yield Job(name, method, seed, run)


SMALL = Setting(60, 10, 5, 12, 40)
PROTOCOL = Protocol(
    "dirichlet_scurve",
    tuple(CURVE),
    lambda seeds, quick: curve_jobs(seeds, SMALL if quick else Setting()),
)


def main() -> None:
    options = arguments(__doc__)
    setting = SMALL if options.quick else Setting()
    spectra = Store("dirichlet", tuple(SPECTRUM), options.quick)
    spectra.collect(spectrum_jobs(options.seeds, setting))
    print(
        f"prior of the concentration: mean {PRIOR[0] / PRIOR[1]:.0f}; true shares {TRUE_WEIGHTS}"
    )
    print(table(spectra.rows(), SPECTRUM))
    curves = PROTOCOL.store(options.quick)
    curves.collect(curve_jobs(options.seeds, setting))
    print(table(curves.rows(), CURVE))


if __name__ == "__main__":
    main()
