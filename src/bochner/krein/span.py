"""A search for frequencies among rows that are fewer than their columns.

Phases of rows depend on what a frequency has in the rows' span: it is searched in coordinates of
the span, in a time that the number of columns does not enter. Beside the span, where other rows
reach, nothing is known of a frequency: it has a normal distribution, as wide in every direction as
the frequency is within.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.krein.frequencies import KreinFit
from bochner.krein.growth import fit_grown
from bochner.krein.signed_frequencies import GaussianFrequencies, SignedFrequencies
from bochner.krein.sketch import Sketch


@dataclass(frozen=True)
class SpanFrequencies(SignedFrequencies):
    """w_h = basis u_h + v_h with u_h Gaussian and v_h ~ N(0, beside_h^2) in every direction
    orthogonal to the basis.

    Attributes
    ----------
    within : GaussianFrequencies
        u_h; its weights are not used.
    basis : Tensor of shape (d, r), float64
        Orthonormal columns.
    beside : Tensor of shape (H,), float64
    """

    within: GaussianFrequencies
    basis: Tensor
    beside: Tensor

    @classmethod
    def of(cls, within: GaussianFrequencies, basis: Tensor) -> SpanFrequencies:
        """Return frequencies that are as wide beside the span as within."""
        beside = (within.mean.square() + within.factor.square()).mean(1).sqrt()
        return cls(within.weight, within.sign, within, basis, beside)

    def draw(self, source: torch.Generator) -> Tensor:
        """Draw the frequencies."""
        inside = self.within.draw(source)
        shape = (len(self.basis), len(inside))
        noise = torch.randn(shape, generator=source, dtype=torch.float64, device=source.device)
        noise = noise.to(inside.device)
        noise = noise - self.basis @ (self.basis.T @ noise)
        return inside @ self.basis.T + self.beside[:, None] * noise.T

    def kernel(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the fitted kernel, (n, d), (m, d) -> (n, m)."""
        places = self._places(x, y)
        total = x.new_zeros(x.shape[0], y.shape[0])
        for h, factor in enumerate((self.weight * self.sign).tolist()):
            total = total + factor * self._expected(h, *places)
        return total

    def expected_cosine(self, h: int, x: Tensor, y: Tensor) -> Tensor:
        """Return E cos(u.delta) within the span times exp(-1/2 beside^2 delta^2) beside it."""
        return self._expected(h, *self._places(x, y))

    def _places(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return both sets of rows within the span, and their squared distances beside it."""
        basis = self.basis.to(x)
        left = x @ basis
        right = y @ basis
        beside = torch.cdist(x - left @ basis.T, y - right @ basis.T).square()
        return left, right, beside

    def _expected(self, h: int, left: Tensor, right: Tensor, beside: Tensor) -> Tensor:
        shrink = (-0.5 * float(self.beside[h]) ** 2 * beside).exp()
        return self.within.expected_cosine(h, left, right) * shrink


def search(
    sketch: Sketch, n_frequencies: int, n_mixtures: int, max_iter: int, source: torch.Generator
) -> tuple[SignedFrequencies, KreinFit]:
    """Search for frequencies, in the span of the rows where they are fewer than their columns.

    Parameters
    ----------
    sketch, n_frequencies, n_mixtures, max_iter, source
        As in `fit_grown`.

    Returns
    -------
    SignedFrequencies
        Of all columns.
    KreinFit
        Of the columns, or of the coordinates of the span.
    """
    rows = torch.cat([sketch.x, sketch.held_out])
    if rows.shape[1] <= len(rows):
        fit = fit_grown(sketch, n_frequencies, n_mixtures, max_iter, source)
        return fit.frequencies, fit
    basis = torch.linalg.qr(rows.T)[0]
    within = replace(sketch, x=sketch.x @ basis, held_out=sketch.held_out @ basis)
    fit = fit_grown(within, n_frequencies, n_mixtures, max_iter, source)
    return SpanFrequencies.of(fit.frequencies, basis), fit
