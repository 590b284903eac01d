"""What is known of rows beside their data, as numbers: covariates that shift a view's columns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bochner.linalg import cholesky

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
    """

    values: Tensor
    groups: tuple[int, ...]

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
        own = values.double().to(Y.device)
        seen = (~Y.isnan()).double()
        cross = own.T @ torch.nan_to_num(Y.double())
        if bool(seen.all()):
            gram = (own.T @ own)[None]
        else:
            gram = torch.einsum("nm,nk,nl->mkl", seen, own, own)
        gram.diagonal(dim1=-2, dim2=-1).add_(_RIDGE)
        if gram.shape[0] == 1:
            return own @ cholesky(gram[0]).solve(cross)
        return own @ cholesky(gram).solve(cross.T[..., None])[..., 0].T
