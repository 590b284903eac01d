"""The letter table and aliases of types: one letter, one meaning, everywhere.

==========  ==============================================================================
letter      meaning
==========  ==============================================================================
N           rows (samples)
V           views
M           columns of a view
D           latent dimensions (``n_components``)
Q           mixture components of a kernel (``n_mixtures``)
H           spectral points per mixture component (``n_frequencies``)
P           frequency pairs of a kernel, P = Q H
K           random features, K = 2 P; feature matrices are feature-major, (K, N)
S           draws
X           latents (N, D); in the estimators' public methods X is the data (N, sum of M)
Y           observed data of a view (N, M)
G, C        the additive statistics of a view: Phi Phi^T (K, K) and Phi Y (K, M)
==========  ==============================================================================

Frequencies are angular (radians per unit of latent); no 2 pi appears in any feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from torch import Tensor

Sampling = Literal["iid", "orthogonal", "sobol"]


class _Array(Protocol):
    """What numpy's arrays and what behaves like them have."""

    def __array__(self) -> object: ...


class Context(Protocol):
    """What torch's autograd hands from forward to backward."""

    needs_input_grad: tuple[bool, ...]

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...


# A parameter of numbers: one, one per dimension or column, or a row of them per mixture component.
Numbers = float | Sequence[float] | Sequence[Sequence[float]] | Tensor | _Array
