"""Memory that chunks share: the same for arrays of one name, and no trace of it in what is
computed.
"""

import pytest
import torch

from bochner.features.fourier import evaluate, pull_back
from bochner.kernels.base import Frequencies
from bochner.memory import Scratch


def test_arrays_of_one_name_share_their_memory():
    scratch = Scratch(torch.zeros(3))
    first, again, other = (
        scratch.take("a", 4, 6),
        scratch.take("a", 3, 5),
        scratch.take("b", 3, 5),
    )
    assert first.data_ptr() == again.data_ptr() != other.data_ptr()
    assert again.shape == (3, 5)
    assert again.is_contiguous()
    larger = scratch.take("a", 5, 6)
    assert larger.numel() == 30
    assert larger.dtype == torch.float32


@pytest.mark.parametrize("dim", [1, 2, 3, 9])
@pytest.mark.parametrize("paired", [False, True])
def test_chunks_that_share_scratch_are_what_they_are_alone(paired, dim):
    source = torch.Generator().manual_seed(0)
    first, second, amplitude = (
        torch.randn(*s, generator=source) for s in ((7, dim), (7, dim), (7,))
    )
    frequencies, scratch = (
        Frequencies(first, second if paired else None, amplitude),
        Scratch(first),
    )
    for n in (12, 5, 12):  # the memory of a larger chunk serves a smaller one
        x, up = torch.randn(n, dim, generator=source), torch.randn(14, n, generator=source)
        alone = evaluate(x, frequencies)
        expected = pull_back(alone, frequencies, up)
        shared = evaluate(x, frequencies, scratch)
        torch.testing.assert_close(shared.features, alone.features, rtol=0, atol=0)
        for one, other in zip(pull_back(shared, frequencies, up), expected, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=0, atol=0)
