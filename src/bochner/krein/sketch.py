"""A sketch of rows with its kernel matrix, and what it shows of the kernel's negative part
(docs/math.md, section 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.errors import InputError, message
from bochner.kernels.domains import IndefiniteKernel, magnitude_of

# An eigenvalue is negative when rounding does not explain it.
_ROUNDING = 1e-10
# Distances, relative to the largest norm, that rounding explains.
_EQUAL = 1e-13
# Rows of which a mean over pairs is computed.
_FEW = 256


@dataclass(frozen=True)
class Decomposition:
    """K = K+ - K- with both parts positive definite.

    Attributes
    ----------
    positive, negative : Tensor of shape (n, n), float64
        U diag(max(lambda, 0) + s) U^T and U diag(max(-lambda, 0) + s) U^T; no negative part: None.
    shift : float
        s = max(0, -1.1 lambda_min): it changes diagonals only.
    """

    positive: Tensor
    negative: Tensor | None
    shift: float


def decompose(matrix: Tensor) -> Decomposition:
    """Split a symmetric matrix into the difference of two positive definite ones.

    Parameters
    ----------
    matrix : Tensor of shape (n, n)

    Notes
    -----
    Liu et al. (2020), Eq. 5, with all eigenvectors in both parts, so that their difference is K
    (docs/math.md, section 5). Without an eigenvalue below zero there is no negative part.
    """
    values, vectors = torch.linalg.eigh(matrix.double())
    if not _indefinite(values):
        return Decomposition(matrix.double(), None, 0.0)
    shift = -1.1 * float(values[0])
    positive = (vectors * (values.clamp(min=0.0) + shift)) @ vectors.T
    negative = (vectors * ((-values).clamp(min=0.0) + shift)) @ vectors.T
    return Decomposition(positive, negative, shift)


def _indefinite(values: Tensor) -> bool:
    """Say whether the least of ascending eigenvalues is below zero by more than rounding."""
    return float(values[0]) < -_ROUNDING * len(values) * float(values.abs().max())


@dataclass(frozen=True)
class Sketch:
    """Rows on the kernel's domain, their kernel matrix, and rows held out from the fit.

    Kernel values are in units of ``magnitude``.

    Attributes
    ----------
    x : Tensor of shape (n, d), float64
    target : Tensor of shape (n, n), float64
    held_out : Tensor of shape (n', d)
        Rows that no fit sees; none where the kernel is zero between all of them.
    held_target : Tensor of shape (n', n')
    eigenvalues : Tensor of shape (n,), float64
        Of ``target``, ascending.
    magnitude : float, default=1.0
        What the kernel's values were divided by: their largest where squares would overflow or
        vanish, 1 elsewhere.
    """

    x: Tensor
    target: Tensor
    held_out: Tensor
    held_target: Tensor
    eigenvalues: Tensor
    magnitude: float = 1.0

    @classmethod
    def of(cls, kernel: IndefiniteKernel, x: Tensor, held_out: Tensor) -> Sketch:
        """Compute the kernel matrices of normalised rows.

        Raises
        ------
        InputError
            A value is not finite; the kernel is not symmetric on the sketch, and the two rows are
            named; it is zero between all different rows.
        """
        values = _finite(kernel(x, x))
        held_values = _finite(kernel(held_out, held_out))
        largest = float(values.abs().max())
        magnitude = magnitude_of(largest)
        target = values / magnitude
        gap = (target - target.T).abs()
        if float(gap.max()) > 1e-6 * (float(target.abs().max()) + 1e-300):
            i, j = divmod(int(gap.argmax()), len(x))
            got = (
                f"k(x_{i}, x_{j}) = {float(values[i, j]):.6g} and k(x_{j}, x_{i}) = "
                f"{float(values[j, i]):.6g}"
            )
            do = (
                "give a symmetric function, for example lambda A, B: (k(A, B) + k(B, A).T) / 2"
            )
            raise InputError(message("a symmetric kernel", f"{got} in the sketch", do))
        # of a sum over the columns
        zero = torch.finfo(torch.float64).eps * max(1, x.shape[1]) * largest / magnitude
        if not _largest_between(target) > zero:
            got = f"one that is zero between all {len(x)} rows of the sketch"
            do = "widen the kernel, by a larger tau, say, or give rows of which some are alike"
            raise InputError(message("a kernel that is not zero between all rows", got, do))
        target = 0.5 * (target + target.T)
        held_target = held_values / magnitude
        # no error is relative to a kernel of zeros
        n_held = len(held_out) if _largest_between(held_target) > zero else 0
        return cls(
            x,
            target,
            held_out[:n_held],
            held_target[:n_held, :n_held],
            torch.linalg.eigvalsh(target.double()),
            magnitude,
        )

    @property
    def negative_mass(self) -> float:
        """Sum of negative over sum of all absolute eigenvalues; 0 where rounding explains the
        negative ones.
        """
        if not _indefinite(self.eigenvalues):
            return 0.0
        return float((-self.eigenvalues).clamp(min=0.0).sum() / self.eigenvalues.abs().sum())

    def mean_residual(self, kernel: Callable[[Tensor, Tensor], Tensor]) -> float:
        """Return the mean of ``target`` without another kernel over pairs of different rows, at
        most 256 of them: the constant that is best beside that kernel.
        """
        some = self.x[:_FEW]
        n = len(some)
        residual = self.target[:n, :n] - kernel(some, some)
        return float(residual.sum() - torch.diagonal(residual).sum()) / (n * (n - 1))

    def distances(self, most: int) -> Tensor:
        """Return the distances between at most so many rows, without those of equal rows."""
        x = self.x[:most]
        apart = torch.pdist(x)
        # rows that are equal but for rounding: no feature tells them apart
        return apart[apart > _EQUAL * x.norm(dim=1).max()]

    @property
    def unit(self) -> float:
        """A typical distance of two rows of the sketch; their largest norm where all are equal."""
        far = self.distances(1000)
        return float(far.median()) if len(far) else float(self.x.norm(dim=1).max()) or 1.0

    @property
    def scale(self) -> float:
        """Root mean square of ``target`` over pairs of different rows."""
        n = len(self.x)
        square = self.target.square().sum() - torch.diagonal(self.target).square().sum()
        return float((square / (n * (n - 1))).sqrt())


def _finite(values: Tensor) -> Tensor:
    """Return kernel values, or refuse those of which one is not finite."""
    if not bool(torch.isfinite(values).all()):
        do = "lower the kernel's degree or coefficients, or check it on these rows"
        raise InputError(message("finite kernel values", "NaN or infinity", do))
    return values


def _largest_between(values: Tensor) -> float:
    """Return the largest absolute value between different rows; 0 where there are none."""
    off = values.abs().fill_diagonal_(0.0)
    return float(off.max()) if off.numel() else 0.0
