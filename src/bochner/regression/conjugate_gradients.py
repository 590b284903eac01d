"""q(A) of a view from its sites: covariances by groups of columns, means by conjugate gradients.

With natural parameters precision omega_nm and shift h_nm the best q(A_m) has S_m^-1 = I + Phi
Omega_m Phi^T and m_m = S_m Phi h_m. Columns of about the same precision share one covariance,
S_g^-1 = I + Phi mean_{m in g}(Omega_m) Phi^T, which is the best one they can share; the means stay
exact, because S_g is a good preconditioner for each of them. Any (m, S) gives a valid bound, so
that both are matters of speed, never of correctness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.data.masks import Index
from bochner.linalg import cholesky
from bochner.memory import chunks
from bochner.regression.noise import products_in
from bochner.regression.weighted_grams import weighted_grams

# Iterations, unless the caller asks for more.
MAX_ITER = 20
# Iterations without an improvement after which rounding is all that is left.
_PATIENCE = 30
# Numbers in covariances that one pass multiplies and adds up.
_FEW = 2**17
# Numbers in the means of columns that are left, beyond which those that are settled are laid aside.
_WORTH = 2**12
# What the shift of a column is taken for at least, in twice the nats an entry: means of a step may
# cost 1e-5 nats an entry, a hundredth of what was too much (a quarter of the iterations of counts).
_PER_ENTRY = 20.0
# Rows whose values at all columns are held at a time.
_ROWS = 1024

# Multiplies columns, (K, j), by their I + Phi Omega_m Phi^T.
Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Weights:
    """q(A_m) = N(mean_m, covariance_{group of m}) of some columns, which stand group after group.

    Attributes
    ----------
    mean : Tensor of shape (K, m)
    covariance : Tensor of shape (G, K, K)
        In the precision of the products.
    logdet : Tensor of shape (G,), float64
        log det S_g^-1.
    trace : Tensor of shape (G,), float64
    sizes : tuple of int
        Columns of each group.
    """

    mean: Tensor
    covariance: Tensor
    logdet: Tensor
    trace: Tensor
    sizes: tuple[int, ...]

    @classmethod
    def joined(cls, parts: Sequence[Weights]) -> Weights:
        """Put groups of columns behind each other."""
        return cls(
            torch.cat([part.mean for part in parts], dim=1),
            torch.cat([part.covariance for part in parts]),
            torch.cat([part.logdet for part in parts]),
            torch.cat([part.trace for part in parts]),
            tuple(size for part in parts for size in part.sizes),
        )

    def of(self, columns: Index) -> Weights:
        """Return those of some columns, in ascending order; a slice stands for all."""
        if isinstance(columns, slice):
            return self
        groups, sizes = groups_left(self.sizes, columns)
        return Weights(
            self.mean.index_select(1, columns),
            self.covariance[groups],
            self.logdet[groups],
            self.trace[groups],
            sizes,
        )

    def towards(self, other: Weights, share: Tensor) -> Weights:
        """Return the q(A) whose means and covariances lie so far on the way to those of another one
        of the same columns, by group, (G,).

        Its log det is that of the same way, and so is its divergence: more than it has, which is
        convex. The slope of the bound along the way is upwards where the other one is what sites
        laid at this one lead to, and no matrix is factored.
        """
        if bool((share == 1.0).all()):
            return other
        narrow = share.to(self.mean)
        return Weights(
            torch.lerp(self.mean, other.mean, self.spread(narrow)),
            torch.lerp(self.covariance, other.covariance, narrow[:, None, None]),
            torch.lerp(self.logdet, other.logdet, share),
            torch.lerp(self.trace, other.trace, share),
            self.sizes,
        )

    def kl(self) -> Tensor:
        """Return KL(q(A_m) || N(0, I)) of every column, (m,), float64."""
        k = self.mean.shape[0]
        return self.spread(
            0.5 * (self.trace - k + self.logdet)
        ) + 0.5 * self.mean.double().square().sum(0)

    def spread(self, by_group: Tensor) -> Tensor:
        """Repeat what groups have for their columns, (..., G) -> (..., m)."""
        if max(self.sizes) == 1:
            return by_group
        sizes = torch.tensor(self.sizes, device=by_group.device)
        return torch.repeat_interleave(by_group, sizes, dim=-1, output_size=sum(self.sizes))

    def gather(self, by_column: Tensor) -> Tensor:
        """Add up over the columns of every group, (n, m) -> (n, G)."""
        return group_sums(by_column, self.sizes)

    def average(self, by_column: Tensor) -> Tensor:
        """Average over the columns of every group, (n, m) -> (n, G)."""
        return group_means(by_column, self.sizes)


def group_sums(by_column: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Add up over the columns of every group, (n, m) -> (n, G)."""
    if max(sizes) == 1:
        return by_column
    parts = torch.split(by_column, list(sizes), dim=1)
    return torch.stack([part.sum(1) for part in parts], dim=1)


def group_means(by_column: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Average over the columns of every group, (n, m) -> (n, G)."""
    if max(sizes) == 1:
        return by_column
    return group_sums(by_column, sizes) / by_column.new_tensor(sizes)


def factored(grams: Tensor, factors_in: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Factor G + I of every group: its inverse, (G, K, K), and log det, (G,).

    In another precision than double where that is asked for and its rounding is far below the
    identity.
    """
    matrices = grams.clone()
    diagonal = matrices.diagonal(dim1=-2, dim2=-1).add_(1.0)
    if factors_in != torch.float64:
        factors_in = products_in(factors_in, float(diagonal.max()), diagonal.new_ones(()))
    factor = cholesky(matrices, precision=factors_in)
    return factor.inverse(), factor.logdet()


def traces(matrices: Tensor) -> Tensor:
    """Return the trace of every matrix, (G, K, K) -> (G,)."""
    return torch.diagonal(matrices, dim1=-2, dim2=-1).sum(-1, dtype=torch.float64)


def weights_from(
    features: Tensor,
    precision: Tensor,
    shift: Tensor,
    sizes: tuple[int, ...],
    tol: float | Tensor,
    max_iter: int = MAX_ITER,
    factors_in: torch.dtype = torch.float64,
) -> Weights:
    """Solve for q(A).

    Parameters
    ----------
    features : Tensor of shape (K, n)
    precision, shift : Tensor of shape (n, m)
        Columns group after group.
    sizes : tuple of int
        Columns of each group.
    tol : float or Tensor of shape (m,)
        When means are exact enough: a relative residual of each column; or, column by column, twice
        the nats that the bound may lose by them.
    max_iter : int
        Conjugate gradient iterations at the most.
    factors_in : torch.dtype
        As in ``factored``.

    Returns
    -------
    Weights
    """
    grams = weighted_grams(features, group_means(precision, sizes))
    inverse, logdet = factored(grams, factors_in)
    covariance = inverse.to(features.dtype)
    right = features @ shift
    mean = precondition(covariance, right, sizes)

    def products(columns: Index) -> Product:
        chosen = precision[:, columns]

        def product(v: Tensor) -> Tensor:
            out = v.clone()
            for part in chunks(features.shape[1], _ROWS):
                phi = features[:, part]
                out.addmm_(phi, (phi.T @ v).mul_(chosen[part]))
            return out

        return product

    if max(sizes) > 1:
        # a column's error in the metric of q, r^T S r, against that of its shift
        least = _PER_ENTRY * features.shape[1]
        goal = (
            tol if isinstance(tol, Tensor) else tol**2 * (right * mean).sum(0).clamp(min=least)
        )
        residual = right - products(slice(None))(mean)
        mean = refined(products, mean, residual, covariance, sizes, goal, max_iter)
    return Weights(mean, covariance, logdet, traces(inverse), sizes)


def precondition(covariance: Tensor, right: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return every column times the covariance of its group, (K, m)."""
    if covariance.shape[0] == right.shape[1]:
        if covariance.numel() <= _FEW:
            # a third of the time of products so small
            return (covariance * right.T[:, None]).sum(-1).T
        return torch.bmm(covariance, right.T[:, :, None])[:, :, 0].T
    return torch.cat(
        [
            s @ part
            for s, part in zip(covariance, torch.split(right, list(sizes), dim=1), strict=True)
        ],
        dim=1,
    )


def refined(
    products: Callable[[Index], Product],
    mean: Tensor,
    residual: Tensor,
    covariance: Tensor,
    sizes: tuple[int, ...],
    goal: Tensor,
    max_iter: int = MAX_ITER,
) -> Tensor:
    """Solve for the means of all columns at once by preconditioned conjugate gradients.

    Parameters
    ----------
    products : callable
        Returns what multiplies some columns, (K, j), by their I + Phi Omega_m Phi^T. All columns
        are asked for first, and then those that are left: of counts of cells a quarter is after two
        iterations, and a tenth after five.
    mean, residual : Tensor of shape (K, m)
        A first guess, and what its product lacks.
    covariance : Tensor of shape (G, K, K)
        Preconditioner of every group; the solution where every column has its own.
    sizes : tuple of int
        Columns of each group.
    goal : Tensor of shape (m,)
        Twice the nats that the bound may lose by each column, which is then left as it is: its
        means do not depend on the columns beside it.
    max_iter : int
    """
    out = mean
    left: Index = slice(None)
    product = products(left)
    z = precondition(covariance, residual, sizes)
    direction = z
    inner = (residual * z).sum(0)
    best = math.inf
    worse = 0
    for _ in range(max_iter):
        unsettled = inner > goal
        count = int(unsettled.sum())
        if not count:
            break
        # the bound lies half of `inner` below what the best means would give
        lost = float(inner[unsettled].sum())
        best, worse = (lost, 0) if lost < best else (best, worse + 1)
        if worse == _PATIENCE:
            break
        if 2 * count <= len(goal) and mean.numel() > _WORTH:
            kept = unsettled.nonzero()[:, 0]
            out = _placed(out, left, mean)
            left = kept if isinstance(left, slice) else left[kept]
            product = products(left)
            mean, residual, direction = (
                part.index_select(1, kept) for part in (mean, residual, direction)
            )
            inner, goal, unsettled = inner[kept], goal[kept], unsettled[kept]
            groups, sizes = groups_left(sizes, kept)
            covariance = covariance[groups]
        image = product(direction)
        curvature = (direction * image).sum(0)
        # where rounding leaves no curvature, there is no step
        rises = (curvature > 0.0) & unsettled
        step = torch.where(rises, inner / curvature, 0.0)
        further = mean + step * direction
        # a sum takes a fourth of the time of asking every number
        if not math.isfinite(float(further.sum())):
            break
        mean = further
        residual = residual - step * image
        z = precondition(covariance, residual, sizes)
        before = inner
        inner = (residual * z).sum(0)
        direction = z + (inner / before.clamp(min=1e-30)) * direction
    return _placed(out, left, mean)


def _placed(out: Tensor, columns: Index, mean: Tensor) -> Tensor:
    """Return means with those of some columns in their place; all of them are what they are."""
    return mean if isinstance(columns, slice) else out.index_copy(1, columns, mean)


def groups_left(sizes: tuple[int, ...], columns: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return the groups of which some columns are left, and how many of each these are."""
    groups = torch.repeat_interleave(torch.tensor(sizes)).to(columns.device)[columns]
    present, counts = torch.unique_consecutive(groups, return_counts=True)
    return present, tuple(counts.tolist())
