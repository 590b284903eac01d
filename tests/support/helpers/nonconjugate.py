"""Small non-conjugate views of every likelihood."""

from __future__ import annotations

import torch

from bochner.kernels.base import Frequencies
from bochner.likelihoods import Bernoulli, Binomial, Categorical, NegativeBinomial, Poisson
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.models.sites import Sites
from bochner.random import generator
from bochner.regression.observations import EncodedBlock

MAKERS = {
    "bernoulli": Bernoulli,
    "bohning": lambda: Bernoulli(bound="bohning"),
    "binomial": lambda: Binomial(5),
    "negative_binomial": lambda: NegativeBinomial(3.0, bound="tilted"),
    "loose_negative_binomial": lambda: NegativeBinomial(3.0, bound="polya-gamma"),
    "poisson": Poisson,
    "categorical": lambda: Categorical([[0.0, 1.0, 2.0]] * 3),
}


def small_view(
    name: str,
    dim: int = 2,
    n: int = 9,
    n_pairs: int = 3,
    missing: bool = False,
    groups: int | None = None,
):
    """Latents, frequencies, a likelihood, its block and its sites."""
    source = generator(0, f"local/{name}", dim)
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    first = torch.randn(n_pairs, dim, generator=source, dtype=torch.float64)
    second = torch.randn(n_pairs, dim, generator=source, dtype=torch.float64)
    f = Frequencies(first, second, torch.full((n_pairs,), 0.6, dtype=torch.float64))
    psi = torch.randn(n, 3, generator=source, dtype=torch.float64)
    if name == "categorical":
        Y = torch.randint(3, (n, 3), generator=source).double()
    else:
        Y = MAKERS[name]().draw(psi, source)
    if missing:
        Y[2, 1] = torch.nan
    offset = 0.3 * torch.randn(n, generator=source, dtype=torch.float64)
    likelihood: NonConjugateLikelihood = MAKERS[name]()
    block = EncodedBlock.of(likelihood.encode(Y), offset=offset)
    return x, f, likelihood, block, Sites(likelihood, block.Y, block.mask, offset, groups)
