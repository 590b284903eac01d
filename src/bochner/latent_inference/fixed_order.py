"""Products whose numbers of a row are its own, bit for bit, whatever rows are beside it.

Libraries of linear algebra sum in an order that follows from the shapes of matrices and from where
they lie in memory, at the edges above all. Inside `FixedOrder` matrices are filled up with zeros,
so that none has an edge: the order is the same for every row then. That was seen of several
libraries and processors, none promises it, and `holds` looks whether it is so here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bochner import random

# Bytes of the processor's vectors.
_ALIGNMENT = 64
# Numbers of one elementwise product: they stay in the cache.
_CACHED = 2**17
# Rows and matrices on which the order is tried.
_ROWS = 100
_TRIED = ((13, 7), (64, 300), (200, 50))


@functools.cache
def holds() -> bool:
    """Return whether products of filled up matrices are the same for a row alone and beside others:
    tried once in a process.
    """
    source = random.generator(0, "fixed order")
    for k, m in _TRIED:
        rows, slopes = (
            torch.randn(_ROWS, *shape, k, generator=source, dtype=torch.float64)
            for shape in ((), (3,))
        )
        matrix = torch.randn(k, m, generator=source, dtype=torch.float64)
        for part in (slice(0, 1), slice(2, 7), slice(_ROWS - 9, _ROWS)):
            same = torch.equal(_product(rows, matrix)[part], _product(rows[part], matrix))
            form = _product(slopes, slopes.mT)
            some = slopes[part]
            if not (same and torch.equal(form[part], _product(some, some.mT))):
                return False
    return True


class FixedOrder(TorchFunctionMode):
    """A context in which no product, and no factor, of a row depends on the other rows."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Call a function of torch, or what stands in for it here."""
        return _IN_ORDER.get(func, func)(*args, **(kwargs or {}))


def _contracted(equation: str, *operands: Tensor) -> Tensor:
    """Return what `torch.einsum` does; what is summed over may have several axes."""
    given, kept = equation.split("->")
    parts = given.split(",")
    summed = "".join(sorted(set(given) - set(kept) - {","}))
    size = {
        axis: n
        for part, operand in zip(parts, operands, strict=True)
        for axis, n in zip(part, operand.shape, strict=True)
    }
    factors = []
    for part, operand in zip(parts, operands, strict=True):
        order = [part.index(axis) for axis in summed + kept if axis in part]
        shape = [size[axis] if axis in part else 1 for axis in summed + kept]
        factors.append(operand.permute(order).reshape(shape))
    over = [size[axis] for axis in summed]
    wide = [factor.expand(*over, *factor.shape[len(over) :]) for factor in factors]
    return _summed([factor.flatten(0, len(over) - 1) for factor in wide])


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return what `torch.matmul` does."""
    if left.ndim == 1:
        return _product(left[None], right)[..., 0, :]
    if right.ndim == 1:
        return _product(left, right[:, None])[..., 0]
    columns = right.shape[-1]
    if right.ndim > 2:
        return torch.matmul(_whole(left), _whole(right))[
            ..., : left.shape[-2], :columns
        ].contiguous()
    rows = left.flatten(0, -2)
    out = torch.mm(_whole(rows), _whole(right))[: len(rows), :columns]
    return out.reshape(*left.shape[:-1], columns)


def _summed(factors: Sequence[Tensor]) -> Tensor:
    """Return the product of factors that broadcast to (K, ...), summed over its first axis."""
    # torch's own function for this takes as long as the product
    shape = [
        0 if 0 in sizes else max(sizes)
        for sizes in zip(*(factor.shape for factor in factors), strict=True)
    ]
    if not shape[0]:
        return factors[0].new_zeros(shape[1:])
    if math.prod(shape) > _CACHED and max(shape[1:], default=1) > 1:
        axis = max(range(1, len(shape)), key=lambda axis: shape[axis])
        some = max(1, shape[axis] * _CACHED // math.prod(shape))
        parts = [
            [
                factor if factor.shape[axis] == 1 else factor.narrow(axis, begin, size)
                for factor in factors
            ]
            for begin in range(0, shape[axis], some)
            for size in [min(some, shape[axis] - begin)]
        ]
        return torch.cat([_summed(part) for part in parts], dim=axis - 1)
    total = functools.reduce(torch.mul, factors)
    count = shape[0]
    while count > 1:
        half = count // 2
        total[:half] += total[count - half : count]
        count -= half
    return total[0]


def _plus_product(
    added: Tensor, left: Tensor, right: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """Return what `torch.addmm` does."""
    return beta * added + alpha * _product(left, right)


def _plus_product_(added: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Do what `Tensor.addmm_` does."""
    return added.add_(_product(left, right))


def _whole(matrices: Tensor) -> Tensor:
    """Return matrices, (..., M, N), filled with 0 up to whole vectors, in memory of their own."""
    step = _ALIGNMENT // matrices.element_size()
    rows, columns = matrices.shape[-2:]
    return torch.constant_pad_nd(matrices, (0, -columns % step, 0, -rows % step))


def _block(matrices: Tensor, beside: Tensor | float = 1.0) -> Tensor:
    """Return matrices, (..., D, D), as blocks of larger ones, a number beside them on the
    diagonal.
    """
    out = _whole(matrices)
    out.diagonal(dim1=-2, dim2=-1)[..., matrices.shape[-1] :] = beside
    return out


def _factored(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `torch.linalg.cholesky_ex` does."""
    dim = matrices.shape[-1]
    factor, info = torch.linalg.cholesky_ex(_block(matrices))
    return factor[..., :dim, :dim].contiguous(), info


def _solved(right: Tensor, factor: Tensor) -> Tensor:
    """Return what `torch.cholesky_solve` does."""
    dim, columns = right.shape[-2:]
    return torch.cholesky_solve(_whole(right), _block(factor))[
        ..., :dim, :columns
    ].contiguous()


def _inverted(factor: Tensor) -> Tensor:
    """Return what `torch.cholesky_inverse` does."""
    dim = factor.shape[-1]
    return torch.cholesky_inverse(_block(factor))[..., :dim, :dim].contiguous()


def _eigenvectors(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `torch.linalg.eigh` does."""
    dim = matrices.shape[-1]
    # more than any eigenvalue, so that those that are added come last
    above = 1.0 + matrices.abs().sum((-2, -1))
    values, vectors = torch.linalg.eigh(_block(matrices, above[..., None]))
    return values[..., :dim].contiguous(), vectors[..., :dim, :dim].contiguous()


def _weighted(
    weights: Tensor,
    terms: Tensor,
    dims: int,
    out: None = None,  # noqa: ARG001
) -> Tensor:
    """Return what `torch.tensordot` does for a vector, over one axis."""
    if weights.ndim != 1 or dims != 1:
        raise NotImplementedError("tensordot in a fixed order takes a vector and 1 axis")
    return _summed([weights.reshape(-1, *(1,) * (terms.ndim - 1)), terms])


def _logistic(z: Tensor) -> Tensor:
    """Return what `torch.sigmoid` does, which rounds the last few numbers of an array in another
    way: exponentials and logarithms do not.
    """
    return (1.0 + (-z).exp()).reciprocal()


def _logistic_(z: Tensor) -> Tensor:
    """Do what `Tensor.sigmoid_` does."""
    return z.copy_(_logistic(z))


def _softplus(z: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:  # noqa: ARG001
    """Return what `torch.nn.functional.softplus` does, to all digits."""
    return ((beta * z).abs().neg().exp().log1p() / beta).add_(z.clamp(min=0.0))


_IN_ORDER: dict[Callable[..., object], Callable[..., object]] = {
    torch.matmul: _product,
    torch.mm: _product,
    torch.bmm: _product,
    Tensor.matmul: _product,
    Tensor.__matmul__: _product,
    torch.addmm: _plus_product,
    Tensor.addmm_: _plus_product_,
    torch.functional.einsum: _contracted,
    torch.linalg.cholesky_ex: _factored,
    torch.cholesky_solve: _solved,
    torch.cholesky_inverse: _inverted,
    torch.linalg.eigh: _eigenvectors,
    torch.functional.tensordot: _weighted,
    torch.sigmoid: _logistic,
    Tensor.sigmoid: _logistic,
    Tensor.sigmoid_: _logistic_,
    torch.nn.functional.softplus: _softplus,
}
