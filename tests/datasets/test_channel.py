"""Channel vectors: their shapes, what a seed repeats, and what stays as it was."""

import subprocess
import sys

import numpy as np
import pytest

import bochner as bo
from bochner.datasets import channel
from bochner.errors import InputError


def drawn(**options):
    pytest.importorskip("sionna.phy", reason="pip install 'bochner[channel]'")
    return bo.datasets.make_channel(**{"n_users": 3, "n_samples": 40, **options})


def test_two_views_of_users_in_turn():
    bunch = drawn(random_state=0)
    assert bunch.data.shape == (120, 64)
    assert bunch.views == {"real": slice(0, 32), "imaginary": slice(32, 64)}
    assert bunch.target.tolist() == [0] * 40 + [1] * 40 + [2] * 40
    assert len(bunch.feature_names) == 64
    whole = bunch.data[:, :32] + 1j * bunch.data[:, 32:]
    power = (np.abs(whole) ** 2).reshape(3, -1).mean(axis=1)
    np.testing.assert_allclose(power, 1.0)
    decibels = 10 * np.log10(bunch.powers)
    assert (decibels < -60).all()  # losses of a city at a distance
    assert (decibels > -180).all()


def test_a_user_is_like_itself_and_fades_with_time():
    bunch = drawn(random_state=0, n_samples=100)
    whole = (bunch.data[:, :32] + 1j * bunch.data[:, 32:]).reshape(3, 100, 32)
    unit = whole / np.linalg.norm(whole, axis=2, keepdims=True)
    alike = [np.abs(np.sum(u[:-1].conj() * u[1:], axis=1)).mean() for u in unit]
    across = np.abs(np.sum(unit[0].conj() * unit[1], axis=1)).mean()
    assert min(alike) > across
    still = drawn(random_state=0, n_samples=100, interval=1e-6).data.reshape(3, 100, 64)
    assert (
        np.abs(np.diff(still, axis=1)).max() < 1e-3 < np.abs(np.diff(bunch.data, axis=0)).max()
    )


def test_a_seed_repeats_and_another_does_not():
    first, again, other = (drawn(random_state=seed).data for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_no_generator_is_touched():
    code = """
import numpy as np, torch, bochner as bo
torch.manual_seed(3); np.random.seed(3)
own = torch.Generator().manual_seed(3)
expected = torch.rand(2, generator=own), np.random.RandomState(3).rand()
bo.datasets.make_channel(2, 5, random_state=0)
print(bool((torch.rand(2) == expected[0]).all()), np.random.rand() == expected[1])
from sionna.phy import config
print(config.seed)
"""
    pytest.importorskip("sionna.phy", reason="pip install 'bochner[channel]'")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True", "True", "None"], done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_users": 0}, "n_users of at least 1, got 0"),
        ({"n_samples": 0}, "n_samples of at least 1, got 0"),
        ({"interval": 0.0}, "a positive interval, got 0.0"),
    ],
)
def test_what_makes_no_sense_is_refused(options, text):
    with pytest.raises(InputError, match=text):
        bo.datasets.make_channel(**options)


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sionna.phy.channel.tr38901", None)
    with pytest.raises(InputError, match=r"pip install 'bochner\[channel\]'"):
        channel.make_channel(1, 1)
