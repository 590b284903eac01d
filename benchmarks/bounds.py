"""How close are the bounds of the likelihoods to the evidence: ``python benchmarks/bounds.py``.

Small models given latents and frequencies: N = 20 rows, M = 4 columns drawn from the model, K = 8
features. The evidence, the integral over the weights, is estimated by importance sampling from a
Student-like widening of q(A); the bounds are ours, with intercepts at the truth. Tables: gap in
nats of Polya-gamma, Boehning and Poisson; of the negative binomial's two against r; and what groups
of columns that share a covariance lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Literal

import torch
from harness import Job, Store, Value, arguments, table
from torch import Tensor

from bochner.kernels.base import Frequencies
from bochner.likelihoods import Bernoulli, Binomial, NegativeBinomial, Poisson
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.models.sites import Sites
from bochner.random import generator
from bochner.regression.nonconjugate import nonconjugate_evidence
from bochner.regression.observations import EncodedBlock
from bochner.regression.site_entries import Entries, entry_pass

N_ROWS, N_COLUMNS, N_PAIRS = 20, 4, 4
COLUMNS = {
    "evidence": ".2f",
    "evidence_se": ".3f",
    "bound": ".2f",
    "gap": ".3f",
    "grouped_gap": ".3f",
}
DISPERSIONS = (1.0, 3.0, 10.0, 30.0, 100.0)

BOUNDS: dict[str, Literal["polya-gamma", "tilted"]] = {
    "Polya-gamma": "polya-gamma",
    "tilted": "tilted",
}
METHODS: dict[str, tuple[str, Callable[[], NonConjugateLikelihood]]] = {
    "Polya-gamma": ("Bernoulli", Bernoulli),
    "Boehning": ("Bernoulli", lambda: Bernoulli(bound="bohning")),
    "Polya-gamma ": ("binomial, n = 10", lambda: Binomial(10)),
    "Boehning ": ("binomial, n = 10", lambda: Binomial(10, bound="bohning")),
    "closed form": ("Poisson", Poisson),
    **{
        f"{name}, r = {r:g}": ("negative binomial", partial(NegativeBinomial, r, bound=bound))
        for name, bound in BOUNDS.items()
        for r in DISPERSIONS
    },
}


def evidence(
    phi: Tensor,
    y: Tensor,
    likelihood: NonConjugateLikelihood,
    mean: Tensor,
    root: Tensor,
    n: int,
) -> Tensor:
    """Return log weights of n draws of one column's weights from q, half of them widened by 1.5."""
    source = generator(1, "evidence")
    k = phi.shape[1]
    z = torch.randn(n, k, generator=source, dtype=torch.float64)
    wide = torch.where(torch.rand(n, 1, generator=source, dtype=torch.float64) < 0.5, 1.5, 1.0)
    a = mean + (wide * z) @ root.T
    half = torch.tensor(0.5, dtype=torch.float64).log()
    norm = (wide * z).square().sum(1)
    log_q = (
        torch.stack(
            [
                half - 0.5 * norm / s**2 - k * torch.tensor(s, dtype=torch.float64).log()
                for s in (1.0, 1.5)
            ]
        ).logsumexp(0)
        - root.diagonal().log().sum()
    )
    psi = a @ phi.T
    return (
        likelihood.log_prob(y.expand_as(psi), psi).detach().sum(1)
        - 0.5 * a.square().sum(1)
        - log_q
    )


def measure(
    make: Callable[[], NonConjugateLikelihood], seed: int, quick: bool
) -> Mapping[str, Value]:
    """Compare bound and evidence on one data set."""
    likelihood, source = make(), generator(seed, "bounds")
    likelihood.requires_grad_(False)
    x = torch.randn(N_ROWS, 2, generator=source, dtype=torch.float64)
    w = torch.randn(N_PAIRS, 2, generator=source, dtype=torch.float64)
    f = Frequencies(w, None, torch.full((N_PAIRS,), N_PAIRS**-0.5, dtype=torch.float64))
    phi = torch.cat([(x @ w.T).cos(), (x @ w.T).sin()], dim=1) * N_PAIRS**-0.5
    truth = torch.randn(phi.shape[1], N_COLUMNS, generator=source, dtype=torch.float64)
    drawn = likelihood.draw(phi @ truth, source)
    block = EncodedBlock.of(drawn)
    result: dict[str, float] = {}
    for name, groups in (("own", None), ("grouped", 1)):
        sites = Sites(likelihood, block.Y, block.mask, torch.zeros(N_ROWS).double(), groups)
        sites.intercept.zero_()
        sites.centre.zero_()
        with torch.no_grad():
            result[name] = float(
                nonconjugate_evidence(
                    x, f, likelihood, sites, block, n_sweeps=200, tol=1e-12
                ).value
            )
            if groups is None:
                entries = Entries.of(sites, block, None)
                for _ in range(100):
                    done = entry_pass(phi.T.contiguous(), likelihood, entries, 1e-12)
                    entries = _renewed(entries, *done.sites(entries, likelihood.site))
    n, total, error = (10_000 if quick else 40_000), 0.0, 0.0
    for m in range(N_COLUMNS):
        root = torch.linalg.cholesky(done.weights.covariance[m])
        logs = evidence(phi, drawn[:, m], likelihood, done.weights.mean[:, m], root, n)
        ratio = (logs - logs.max()).exp()
        total += float(logs.max() + ratio.mean().log())
        error += float(ratio.var() / ratio.mean().square() / n)
    return {
        "evidence": total,
        "evidence_se": error**0.5,
        "bound": result["own"],
        "gap": total - result["own"],
        "grouped_gap": total - result["grouped"],
    }


def _renewed(entries: Entries, precision: Tensor, shift: Tensor) -> Entries:
    return Entries(**{**vars(entries), "precision": precision, "shift": shift})


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """List what to measure."""
    for seed in seeds:
        for method, (data, make) in METHODS.items():
            yield Job(data, method.strip(), seed, partial(measure, make, seed, quick))


def main() -> None:
    """Measure what is missing and print the table."""
    options = arguments(__doc__)
    store = Store("bounds", tuple(COLUMNS), options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
