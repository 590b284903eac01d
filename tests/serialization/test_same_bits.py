"""A loaded model answers with the bits of the one that was saved: its tensors lie as it does in
memory, and so every product sums in the same order.
"""

import numpy as np
import pytest
import torch

import bochner as bo
from bochner.linalg import laid_out
from campaign.cases import case_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.DataWarning"),
]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(8.0)[None].T,  # a column, which torch calls contiguous
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(9.0)[1:],  # not where torch allocates
        torch.ones(1).expand(5),
        torch.arange(24.0).reshape(2, 3, 4).transpose(1, 2),
        torch.zeros(0, 3),
    ],
)
def test_the_layout_is_that_of_memory_of_its_own(tensor):
    own = torch.empty(tensor.shape, dtype=tensor.dtype)
    laid = laid_out(tensor)
    assert laid.stride() == own.stride()
    assert laid.storage_offset() == 0
    assert laid.data_ptr() % 64 == 0
    assert torch.equal(laid, tensor)
    assert laid_out(laid) is laid


def _tensors(fit):
    yield "latents", fit.latents
    for v, posterior in enumerate(fit.posterior):
        yield f"{v}.group_of", posterior.group_of
        yield f"{v}.intercept", getattr(posterior, "intercept", torch.zeros(0))
        for s, draw in enumerate(posterior.draws):
            f = draw.frequencies
            yield f"{v}.{s}.first", f.first
            yield f"{v}.{s}.second", f.partners
            yield f"{v}.{s}.amplitude", f.amplitude
            yield from ((f"{v}.{s}.{name}", part) for name, part in draw.tensors().items())


# Two of the campaign whose loaded models answered with other bits, one with covariances and one
# with frequencies in another order; a bernoulli view beside others; noise per column.
@pytest.mark.parametrize("seed", [1041, 1065, 1094])
def test_a_loaded_model_answers_with_the_same_bits(seed, tmp_path):
    case = case_of(seed)
    case.options["max_iter"] = min(case.options["max_iter"], 12)
    X = case.pack(case.values)
    model = case.estimator().fit(X)
    model.save(tmp_path / "m.bochner")
    loaded = bo.load(tmp_path / "m.bochner")
    for (name, was), (_, now) in zip(_tensors(model._fit), _tensors(loaded._fit), strict=True):
        assert was.stride() == now.stride(), name
        assert was.data_ptr() % 64 == now.data_ptr() % 64 == 0, name
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
