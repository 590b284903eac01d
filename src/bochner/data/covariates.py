"""What is known of rows beside their data, as numbers: covariates that shift a view's columns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.linalg import cholesky


def with_covariates(x: Tensor, covariates: Tensor) -> Tensor:
    """Return places of rows with the rows' covariates beside them, (n, ..., D) and (n, L) -> (n,
    ..., D + L).
    """
    if not covariates.shape[1]:
        return x
    between = (1,) * (x.ndim - 2)
    beside = covariates.to(x).reshape(x.shape[0], *between, -1)
    return torch.cat([x, beside.expand(*x.shape[:-1], -1)], dim=-1)


def columns_beside(covariates: Tensor | None, n_rows: int) -> Tensor:
    """Return the covariates of rows, (n, L): no columns where none are given."""
    return torch.zeros(n_rows, 0, dtype=torch.float64) if covariates is None else covariates


# Prior precision of the effects that are taken out of the data that starts are made of, in units of
# the noise: scaled covariates have about unit variance, and the data as well.
_RIDGE = 1.0


@dataclass(frozen=True)
class Covariates:
    """Columns that stand beside the latents of rows.

    Attributes
    ----------
    values : Tensor of shape (N, L)
        Centred over the rows of training; 0 stands for their average.
    groups : tuple of L int
        The covariate that each column belongs to: a categorical one has a column per category.
        Empty where nothing is known of the rows.
    """

    values: Tensor
    groups: tuple[int, ...]

    @classmethod
    def none(cls, n_rows: int) -> Covariates:
        """Return no columns."""
        return cls(columns_beside(None, n_rows), ())

    def take(self, index: Tensor) -> Covariates:
        """Return those of some rows, (l,), int64."""
        return Covariates(self.values[index.to(self.values.device)], self.groups)

    def effects(self, Y: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the linear effects on columns, by ridge regression on what is observed.

        Parameters
        ----------
        Y : Tensor of shape (n, m)
            NaN where missing.
        rows : Tensor of shape (n,), int64, optional
            Which rows these are; None: all.

        Returns
        -------
        Tensor of shape (n, m), float64
            What the covariates add to every entry.
        """
        values = self.values if rows is None else self.values[rows.to(self.values.device)]
        design = values.double().to(Y.device)
        observed = (~Y.isnan()).double()
        cross = design.T @ torch.nan_to_num(Y.double())
        if bool(observed.all()):
            gram = (design.T @ design)[None]
        else:
            gram = torch.einsum("nm,nk,nl->mkl", observed, design, design)
        gram.diagonal(dim1=-2, dim2=-1).add_(_RIDGE)
        if gram.shape[0] == 1:
            return design @ cholesky(gram[0]).solve(cross)
        return design @ cholesky(gram).solve(cross.T[..., None])[..., 0].T
