"""Noise keyed by what it is for, never by rank, chunk or batch.

A key is (seed, purpose, counters such as the step or a block of global rows). The same key gives
the same numbers in every process and however the rows are cut into chunks; no global generator is
touched.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner._typing import Sampling
from bochner.errors import InputError, message

# Rows whose noise has one key: any rows are drawn without those before them. Bits of a Sobol net.
ROWS_PER_BLOCK = 1024
_SOBOL_BITS = 30
# Numbers of a net that is kept for the next draw, of 32 at the most.
_KEPT_NET = 2**18
# Up to so many numbers are drawn from by permuting them all.
_PERMUTED = 2**20


def generator(
    seed: int, purpose: str, *counters: int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a generator that depends on the key alone.

    Parameters
    ----------
    seed : int
        The run's seed.
    purpose : str
        What the noise is for, e.g. ``"latents"``.
    *counters : int
        Step, view, block of rows.
    device : torch.device or str

    Returns
    -------
    torch.Generator
    """
    return torch.Generator(device=device).manual_seed(key(seed, purpose, *counters))


def key(seed: int, purpose: str, *counters: int) -> int:
    """Return the 63 bits that stand for a key, for other generators than torch's."""
    digest = hashlib.blake2b(repr((seed, purpose, counters)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def row_noise(
    n_rows: int,
    dim: int,
    seed: int,
    purpose: str,
    step: int,
    *,
    start: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Draw standard normal noise for global rows ``start .. start + n_rows``.

    Parameters
    ----------
    n_rows, dim : int
        Shape of the result.
    seed, purpose, step
        The key; blocks of ``ROWS_PER_BLOCK`` global rows have one generator each.
    start : int
        First global row.
    dtype, device
        Of the result.

    Returns
    -------
    Tensor of shape (n_rows, dim)
    """
    key = (n_rows, dim, seed, purpose, step)
    return RowNoise(*key, start=start, dtype=dtype, device=device)[0:n_rows]


@dataclass(frozen=True)
class RowNoise:
    """What `row_noise` draws, made when somebody asks for some rows of it.

    Attributes
    ----------
    n_rows, dim, seed, purpose, step, start, dtype, device
        As in `row_noise`.
    """

    n_rows: int
    dim: int
    seed: int
    purpose: str
    step: int
    start: int = 0
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"

    def __getitem__(self, part: slice) -> Tensor:
        """Return consecutive rows, (n, dim), by a slice with both ends."""
        begin = self.start + int(part.start)
        end = self.start + int(part.stop)
        first = begin // ROWS_PER_BLOCK
        last = max(-(-end // ROWS_PER_BLOCK), first + 1)
        blocks = torch.cat([self._block(number) for number in range(first, last)])
        return blocks[begin - first * ROWS_PER_BLOCK : end - first * ROWS_PER_BLOCK]

    def _block(self, number: int) -> Tensor:
        key = (self.seed, self.purpose, self.step, number)
        source = generator(*key, device=self.device)
        shape = (ROWS_PER_BLOCK, self.dim)
        return torch.randn(shape, generator=source, dtype=self.dtype, device=self.device)


def sample(n: int, size: int, source: torch.Generator) -> Tensor:
    """Draw different numbers below n, in random order.

    Parameters
    ----------
    n : int
    size : int
        At most n.
    source : torch.Generator

    Returns
    -------
    Tensor of shape (size,), int64

    Notes
    -----
    Of many numbers few are drawn without a permutation of all of them: memory grows with ``size``
    alone. Repeated draws are left out, which keeps the others uniform.
    """
    device = source.device
    if n <= _PERMUTED or size > n // 4:
        return torch.randperm(n, generator=source, device=device)[:size]
    drawn = torch.empty(0, dtype=torch.int64, device=device)
    while len(drawn) < size:
        more = torch.randint(n, (size,), generator=source, device=device)
        drawn = _first_of_each(torch.cat([drawn, more]))
    return drawn[:size]


def _first_of_each(values: Tensor) -> Tensor:
    """Return every value once, in the order in which they come."""
    order = values.argsort(stable=True)
    ascending = values[order]
    new = torch.ones_like(ascending, dtype=torch.bool)
    new[1:] = ascending[1:] != ascending[:-1]
    return values[order[new].sort().values]


def normal(
    n: int,
    dim: int,
    source: torch.Generator,
    sampling: Sampling = "iid",
    groups: int = 1,
) -> Tensor:
    """Draw n points whose rows are each standard normal in ``dim`` dimensions.

    Parameters
    ----------
    n, dim : int
        Shape of the result.
    source : torch.Generator
    sampling : {"iid", "orthogonal", "sobol"}
        How the rows depend on each other: independent; orthogonal directions within blocks (Yu et
        al. 2016); a randomly shifted Sobol net (n a power of two is best). Each row is standard
        normal in all three.
    groups : int
        Orthogonality holds within each of this many equal groups of columns.

    Returns
    -------
    Tensor of shape (n, dim), float64
    """
    if sampling == "iid":
        return torch.randn(n, dim, generator=source, dtype=torch.float64, device=source.device)
    if sampling == "orthogonal":
        return torch.cat([_orthogonal(n, dim // groups, source) for _ in range(groups)], dim=1)
    if sampling == "sobol":
        return _sobol(n, dim, source)
    raise ValueError(f"sampling must be 'iid', 'orthogonal' or 'sobol', got {sampling!r}")


def orthonormal(n: int, dim: int, source: torch.Generator) -> Tensor:
    """Draw n directions that are orthogonal within groups of ``dim``; each is uniform.

    Parameters
    ----------
    n, dim : int
        Shape of the result.
    source : torch.Generator

    Returns
    -------
    Tensor of shape (n, dim), float64
        Rows of length 1.
    """
    # of one group: fewer directions than dimensions are a few columns
    count = min(n, dim)
    normal = torch.randn(
        -(-n // dim), dim, count, generator=source, dtype=torch.float64, device=source.device
    )
    q, r = torch.linalg.qr(normal)
    # The sign convention of QR would bias the rotation; with diag(R) > 0 it is Haar distributed.
    q = q * torch.sign(torch.diagonal(r, dim1=-2, dim2=-1)).unsqueeze(-2)
    if n < dim:
        columns: Tensor = q[0]
        return columns.T.contiguous()
    points: Tensor = q.reshape(-1, dim)[:n]
    return points


def _orthogonal(n: int, dim: int, source: torch.Generator) -> Tensor:
    points = orthonormal(n, dim, source)
    length = torch.randn(
        -(-n // dim),
        min(n, dim),
        dim,
        generator=source,
        dtype=torch.float64,
        device=source.device,
    ).norm(dim=-1)
    stretched: Tensor = points * length.reshape(-1, 1)[:n]
    return stretched


def _sobol(n: int, dim: int, source: torch.Generator) -> Tensor:
    """A Sobol net under a random digital shift: every point is uniform, the net stays a net, and it
    costs one xor.
    """
    if dim > (most := torch.quasirandom.SobolEngine.MAXDIM):
        do = "choose sampling='orthogonal' or 'iid'"
        raise InputError(message(f"at most {most} dimensions for a Sobol net", f"{dim}", do))
    shift = torch.randint(2**_SOBOL_BITS, (dim,), generator=source, device=source.device)
    # large nets take no longer than what is done with them, and would be kept for good
    make = _sobol_net if n * dim <= _KEPT_NET else _sobol_net.__wrapped__
    points = torch.bitwise_xor(make(n, dim).to(source.device), shift)
    # half a step to the right: the quantile of 0 would be infinite
    uniform = (points.double() + 0.5) / 2**_SOBOL_BITS
    quantiles: Tensor = torch.erfinv(2.0 * uniform - 1.0) * math.sqrt(2.0)
    return quantiles


@functools.lru_cache(maxsize=32)
def _sobol_net(n: int, dim: int) -> Tensor:
    """The first n points as integers, under one fixed linear scramble (a law of the net, not of a
    run).
    """
    engine = torch.quasirandom.SobolEngine(dim, scramble=True, seed=0)  # type: ignore[no-untyped-call]
    net: Tensor = (engine.draw(n, dtype=torch.float64) * 2**_SOBOL_BITS).long()
    return net
