"""The spectrum that latents and data ask for: peaks found at the truth, limits, and what stays as
it was.
"""

import math

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.dirichlet_process.spectrum_matching import match_spectrum
from bochner.fitting.data import FitData, TrainingData
from bochner.fitting.multistart import _RACE_DRAWS, Race
from bochner.fitting.plan import Plan
from bochner.kernels import DirichletProcessMixture, SpectralMixture
from bochner.models.lvm import Covariates
from bochner.regression.observations import Block, CompleteBlock
from bochner.training.trainer import NoCheckpoint, Options
from helpers.models import spec_of

TRUTH = {1: [[0.0], [5.0]], 2: [[0.0, 0.0], [4.0, 3.0]], 3: [[0.0, 0.0, 0.0], [3.0, 0.0, 3.0]]}


def drawn(
    means: list[list[float]], n: int = 150, m: int = 200, noise: float = 0.3
) -> tuple[torch.Tensor, ...]:
    """Latents, data and kernel matrix of a Gaussian process with narrow peaks of shares 0.6 and
    0.4.
    """
    source = torch.Generator().manual_seed(0)
    X = torch.randn(n, len(means[0]), generator=source, dtype=torch.float64)
    with torch.no_grad():
        K = SpectralMixture([0.6, 0.4], means, [[0.3] * len(means[0])] * 2)(X)
    factor = torch.linalg.cholesky(K + 1e-8 * torch.eye(n, dtype=torch.float64))
    draws = [torch.randn(n, m, generator=source, dtype=torch.float64) for _ in range(2)]
    return X, factor @ draws[0] + noise * draws[1], K


def matched(
    X: torch.Tensor, blocks: tuple[Block, ...], n_points: int = 40, T: int = 8
) -> DirichletProcessMixture:
    kernel = DirichletProcessMixture(n_points=n_points).initial(
        T, X.shape[1], torch.Generator().manual_seed(1)
    )
    match_spectrum(kernel, X, blocks, torch.Generator().manual_seed(2))
    return kernel


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_kernel_of_the_data_is_found(dim: int) -> None:
    X, Y, K = drawn(TRUTH[dim])
    kernel = matched(X, (CompleteBlock.of(Y),))
    start = DirichletProcessMixture(n_points=40).initial(
        8, dim, torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        error, before = (
            float((covariance(X) - K).norm() / K.norm()) for covariance in (kernel, start)
        )
    assert error < 0.3 < before
    values = kernel.values()
    far = values["proportions"][values["means"].norm(dim=1) > 2.5].sum()
    assert abs(float(far) - 0.4) < 0.15


def test_q_of_z_is_a_distribution_and_nearly_sure() -> None:
    X, Y, _ = drawn(TRUTH[2])
    phi = matched(X, (CompleteBlock.of(Y),)).phi
    torch.testing.assert_close(phi.sum(1), torch.ones(40, dtype=torch.float64))
    assert float(phi.max(1).values.min()) > 0.9


def test_it_is_the_same_from_blocks_of_columns_and_from_rotated_columns() -> None:
    X, Y, _ = drawn(TRUTH[2])
    turn = torch.linalg.qr(
        torch.randn(200, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    )[0]
    with torch.no_grad():
        whole = matched(X, (CompleteBlock.of(Y),))(X)
        halves = matched(X, (CompleteBlock.of(Y[:, :80]), CompleteBlock.of(Y[:, 80:])))(X)
        turned = matched(X, (CompleteBlock.of(Y @ turn),))(X)
    torch.testing.assert_close(halves, whole, atol=1e-6, rtol=0.0)
    torch.testing.assert_close(turned, whole, atol=1e-6, rtol=0.0)


def test_data_without_covariance_leave_the_kernel_as_it_was() -> None:
    X = torch.randn(30, 2, dtype=torch.float64)
    kernel = DirichletProcessMixture(n_points=10).initial(
        4, 2, torch.Generator().manual_seed(1)
    )
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    match_spectrum(
        kernel,
        X,
        (CompleteBlock.of(torch.zeros(30, 3, dtype=torch.float64)),),
        torch.Generator().manual_seed(2),
    )
    for name, value in kernel.state_dict().items():
        torch.testing.assert_close(value, before[name])


@pytest.mark.parametrize("rows", [2, 3])
def test_few_rows_stay_finite(rows: int) -> None:
    X = torch.randn(rows, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = matched(X, (CompleteBlock.of(X @ torch.ones(2, 5, dtype=torch.float64)),))
    assert all(bool(torch.isfinite(value).all()) for value in kernel.state_dict().values())


@pytest.mark.filterwarnings("ignore:Training stopped")
def test_a_kernel_whose_points_have_given_proportions_trains() -> None:
    X, Y, _ = drawn(TRUTH[2], n=60, m=10)
    phi = torch.full((40, 2), 0.5)
    given = DirichletProcessMixture(phi, [[0.0, 0.0], [4.0, 3.0]], [[0.5, 0.5]] * 2)
    model = bo.RandomFeatureLVM(
        kernel=given, n_frequencies=40, init=X.numpy(), max_iter=20
    ).fit(Y.numpy())
    assert np.isfinite(model.elbo_)
    assert model.kernels_["x"]["means"].shape == (2, 2)


def test_a_race_keeps_the_spectrum_with_the_higher_bound_unless_the_components_are_given() -> (
    None
):
    X, Y, _ = drawn(TRUTH[2], n=100, m=30)
    data = ((CompleteBlock.of(Y.float()),),)
    given = DirichletProcessMixture([[0.5, 0.5]], [[0.0, 0.0], [1.0, 0.0]], [[1.0, 1.0]] * 2)
    for kernel, tried in ((DirichletProcessMixture(), True), (given, False)):
        spec = spec_of([kernel], "x", n_mixtures=8, n_frequencies=40)
        plan = Plan(spec, (X.numpy(),), math.inf, Options(400, 0.03, 1e-4), 0)
        rows = FitData(data, len(X), lambda _: Y.numpy(), Covariates.none(len(X)))
        race = Race(TrainingData(rows, plan), plan)
        built = []
        build = race.trainer
        race.trainer = lambda *args, build=build, built=built: (
            built.append(build(*args)) or built[-1]
        )  # type: ignore
        winner = race.run(NoCheckpoint())
        assert len(built) == (2 if tried else 1)
        if tried:
            plain, matched = (race._bound(trainer, _RACE_DRAWS)[0] for trainer in built)
            assert race._bound(winner, _RACE_DRAWS)[0] == max(plain, matched)
            # two narrow peaks: random components do not find the far one so soon
            assert matched > plain
