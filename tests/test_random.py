"""Noise depends on its key alone, is standard normal, and leaves the global generator alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from bochner import random

SAMPLINGS = ("iid", "orthogonal", "sobol")


def test_a_key_is_its_seed_purpose_and_counters():
    def draw(*key):
        return torch.randn(4, generator=random.generator(*key))

    assert torch.equal(draw(1, "a", 2), draw(1, "a", 2))
    keys = [
        (1, "a", 2),
        (2, "a", 2),
        (1, "b", 2),
        (1, "a", 3),
        (1, "a"),
        (1, "a", 2, 0),
        (-1, "a", 2),
    ]
    draws = torch.stack([draw(*key) for key in keys])
    assert len(torch.unique(draws[:, 0])) == len(keys)


@pytest.mark.parametrize("chunk", [1, 700, random.ROWS_PER_BLOCK, 1500])
def test_rows_do_not_depend_on_the_chunks(chunk):
    n_rows, size = 2600, {1: 40}.get(chunk, 2600)
    whole = random.row_noise(n_rows, 3, 0, "latents", 5)
    assert whole.shape == (n_rows, 3)
    first = n_rows - size
    parts = [
        random.row_noise(min(chunk, n_rows - start), 3, 0, "latents", 5, start=start)
        for start in range(first, n_rows, chunk)
    ]
    assert torch.equal(torch.cat(parts), whole[first:])


def test_rows_differ_between_blocks_steps_and_purposes():
    draws = [
        random.row_noise(2, 2, 0, "a", 0),
        random.row_noise(2, 2, 0, "a", 0, start=random.ROWS_PER_BLOCK),
        random.row_noise(2, 2, 0, "a", 1),
        random.row_noise(2, 2, 0, "b", 0),
    ]
    assert len(torch.unique(torch.stack(draws))) == 16
    assert random.row_noise(0, 2, 0, "a", 0).shape == (0, 2)
    assert random.row_noise(3, 2, 0, "a", 0, dtype=torch.float64).dtype == torch.float64


def test_row_noise_is_standard_normal():
    noise = random.row_noise(5000, 2, 3, "latents", 0, dtype=torch.float64).numpy()
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(noise.T)[0, 1]) < 4 / np.sqrt(5000)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("n", "dim"), [(8, 1), (8, 2), (10, 3), (4, 6)])
def test_each_row_is_standard_normal(sampling, n, dim):
    # Rows of one draw depend on each other: the independent unit is a draw, and a row is followed
    # across draws.
    source = random.generator(0, "z-test", n, dim)
    draws = torch.stack([random.normal(n, dim, source, sampling) for _ in range(400)]).numpy()
    assert draws.shape == (400, n, dim)
    statistics = {"mean": draws, "variance": draws**2 - 1}
    statistics |= {f"wave {t}": np.cos(t * draws) - np.exp(-0.5 * t**2) for t in (1, 2)}
    if dim > 1:
        statistics["correlation"] = draws * np.roll(draws, 1, axis=-1)
    for name, values in statistics.items():
        z = values.mean(0) / (values.std(0) / np.sqrt(len(draws)))
        assert np.abs(z).max() < 4.5, name
    for row in (0, n - 1):
        assert stats.kstest(draws[:, row, 0], "norm").pvalue > 1e-3
        assert stats.kstest((draws[:, row] ** 2).sum(-1), "chi2", args=(dim,)).pvalue > 1e-3


def test_orthogonal_blocks_are_orthogonal_within_groups():
    points = random.normal(6, 6, random.generator(0, "o"), "orthogonal", groups=2)
    for group in points.split(3, dim=1):
        for block in group.split(3):
            gram = block @ block.T
            torch.testing.assert_close(gram, torch.diag(gram.diagonal()), atol=1e-12, rtol=0)


def test_few_orthogonal_points_of_many_dimensions_are_no_square_matrix(monkeypatch):
    """Five points in 4,000 dimensions took the factors of a matrix of 4,000 columns, a minute."""
    sizes = []
    factored = torch.linalg.qr

    def noted(matrix):
        sizes.append(matrix.numel())
        return factored(matrix)

    monkeypatch.setattr(torch.linalg, "qr", noted)
    points = random.normal(5, 4000, random.generator(0, "o"), "orthogonal")
    assert points.shape == (5, 4000)
    assert sizes == [5 * 4000]
    gram = points @ points.T
    torch.testing.assert_close(gram, torch.diag(gram.diagonal()), atol=1e-9, rtol=0)


def test_sobol_is_a_net_and_stays_finite():
    points = random.normal(64, 2, random.generator(0, "s"), "sobol")
    cells = torch.special.ndtr(points[:, 0]).mul(64).floor().sort().values
    assert torch.equal(cells, torch.arange(64, dtype=torch.float64)), "one point in each 64th"
    assert torch.isfinite(random.normal(2**16, 4, random.generator(1, "s"), "sobol")).all()
    whole = (
        torch.tensor([0, 2**random._SOBOL_BITS - 1]).double() + 0.5
    ) / 2**random._SOBOL_BITS
    assert torch.isfinite(torch.erfinv(2.0 * whole - 1.0)).all(), (
        "the outermost points of any shift"
    )
    assert random._sobol_net(2**10, 3).min() >= 0
    assert random._sobol_net(2**10, 3).max() < 2**random._SOBOL_BITS


def test_large_nets_are_not_kept(monkeypatch):
    draw = lambda: random.normal(8, 5, random.generator(0, "s"), "sobol")  # noqa: E731
    small = draw()
    monkeypatch.setattr(random, "_KEPT_NET", 39)
    random._sobol_net.cache_clear()
    assert torch.equal(draw(), small)
    assert random._sobol_net.cache_info().currsize == 0


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_global_generator_is_left_alone(sampling):
    before = torch.get_rng_state()
    first, second = (random.normal(5, 3, random.generator(7, "x"), sampling) for _ in range(2))
    random.row_noise(5, 3, 0, "x", 0)
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())
    source = random.generator(7, "x")
    assert not torch.equal(
        random.normal(5, 3, source, sampling), random.normal(5, 3, source, sampling)
    )


def test_unknown_sampling_is_refused():
    with pytest.raises(
        ValueError, match="sampling must be 'iid', 'orthogonal' or 'sobol', got 'halton'"
    ):
        random.normal(2, 2, random.generator(0, "x"), "halton")


def test_few_numbers_are_those_of_a_permutation():
    drawn = random.sample(1000, 30, random.generator(3, "some"))
    permutation = torch.randperm(1000, generator=random.generator(3, "some"))
    assert torch.equal(drawn, permutation[:30])


@pytest.mark.parametrize("n", [2**20 + 1, 10**12])
def test_a_sample_of_many_numbers_is_different_and_uniform(n):
    drawn = random.sample(n, 20_000, random.generator(5, "some"))
    assert len(drawn.unique()) == 20_000
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) < n
    counts = torch.histc(drawn.double() / n, 20, 0.0, 1.0)
    # chi squared with 19 degrees of freedom exceeds 50 once in 8,000 draws
    assert float(((counts - 1000.0) ** 2 / 1000.0).sum()) < 50.0
    # in random order: the first half is no more of the small ones than the second
    assert abs(float(drawn[:10_000].double().mean() / n) - 0.5) < 0.02


def test_a_large_part_of_many_numbers_is_drawn_once_each():
    n = 2**20 + 8
    assert len(random.sample(n, n, random.generator(5, "some")).unique()) == n
