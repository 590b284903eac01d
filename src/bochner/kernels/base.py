"""What a kernel is: its closed form and, where it has one, its spectral density."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from bochner._typing import Numbers, Sampling
from bochner.errors import InputError, message, shown
from bochner.kernels.parameters import HasParameters

# Of features without covariates.
_NO_FACTORS = torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True)
class Frequencies:
    """Spectral points of a kernel, ready for the one Fourier feature map.

    Attributes
    ----------
    first : Tensor of shape (P, D)
        Angular frequencies, radians per unit of latent.
    second : Tensor of shape (P, D) or None
        The partners; None when the kernel is stationary (second = first).
    amplitude : Tensor of shape (P,)
        Factor of ``[cos(first x) + cos(second x); sin(first x) + sin(second x)]``; of ``[cos;
        sin]`` when there is no second.
    linear : Tensor of shape (L,)
        Factors of L covariates, which stand beside x and are features themselves; L = 0 without
        any. In the precision of the amplitude.
    """

    first: Tensor
    second: Tensor | None
    amplitude: Tensor
    linear: Tensor = _NO_FACTORS

    def __post_init__(self) -> None:
        object.__setattr__(self, "linear", self.linear.to(self.amplitude))

    @property
    def stationary(self) -> bool:
        """Whether points have no partners."""
        return self.second is None

    @property
    def partners(self) -> Tensor:
        """The second frequency of every pair; that of a single point is the first."""
        return self.first if self.second is None else self.second

    @property
    def fastest(self) -> float:
        """The largest norm of a spectral point; 0 where there are none."""
        points = (w for w in (self.first, self.second) if w is not None and w.numel())
        return max((float(w.detach().norm(dim=-1).amax()) for w in points), default=0.0)

    @property
    def pair_squares(self) -> Tensor:
        """How large the squares of a cosine and its sine are together at the most, (..., P)."""
        waves = 1.0 if self.second is None else 4.0
        return waves * self.amplitude.detach().square()

    @property
    def largest_square(self) -> Tensor:
        """About the largest square that a feature has, scalar: covariates have about unit
        variance.
        """
        of_waves = 0.5 * self.pair_squares.max()
        return torch.cat([of_waves[None], self.linear.detach().square()]).max()

    @property
    def n_features(self) -> int:
        """K = 2 P + L."""
        return 2 * self.first.shape[-2] + self.n_linear

    @property
    def n_linear(self) -> int:
        """L."""
        return int(self.linear.shape[0])

    def covariates(self, x: Tensor) -> Tensor:
        """Return the covariates that stand beside latents times their factors, (n, D + L) -> (n,
        L).

        Parameters
        ----------
        x : Tensor of shape (n, D + L), or (n, D) for covariates of 0

        Returns
        -------
        Tensor of shape (n, L)
        """
        given = x[:, self.first.shape[1] :]
        if not given.shape[1]:
            return x.new_zeros(x.shape[0], self.n_linear)
        return given * self.linear

    def latents(self, x: Tensor) -> Tensor:
        """Return the latents without the covariates beside them, (n, D + L) -> (n, D).

        Parameters
        ----------
        x : Tensor of shape (n, D + L) or (n, D)

        Returns
        -------
        Tensor of shape (n, D)
        """
        return x[..., : self.first.shape[-1]]

    def paired(self) -> Frequencies:
        """Return pairs with the same features: a single point is its own partner, and as cos + cos
        doubles its amplitude halves.

        Returns
        -------
        Frequencies
        """
        if self.second is not None:
            return self
        return replace(self, second=self.partners, amplitude=0.5 * self.amplitude)

    def to(self, dtype: torch.dtype) -> Frequencies:
        """Return the same points in another precision.

        Parameters
        ----------
        dtype : torch.dtype

        Returns
        -------
        Frequencies
        """
        return self.each(lambda part: part.to(dtype))

    def detach(self) -> Frequencies:
        """Return the same points without their history.

        Returns
        -------
        Frequencies
        """
        return self.each(Tensor.detach)

    def each(self, function: Callable[[Tensor], Tensor]) -> Frequencies:
        """Return the same points after a function of every tensor.

        Parameters
        ----------
        function : callable

        Returns
        -------
        Frequencies
        """
        second = None if self.second is None else function(self.second)
        amplitude = function(self.amplitude)
        linear = function(self.linear)
        return Frequencies(function(self.first), second, amplitude, linear)

    @staticmethod
    def stacked(several: Sequence[Frequencies]) -> Frequencies:
        """Return points of several kernels, of one shape and without covariates, along a leading
        axis.

        Parameters
        ----------
        several : sequence of Frequencies

        Returns
        -------
        Frequencies
        """
        first = torch.stack([f.first for f in several])
        seconds = [f.second for f in several if f.second is not None]
        second = torch.stack(seconds) if seconds else None
        amplitude = torch.stack([f.amplitude for f in several])
        return Frequencies(first, second, amplitude, several[0].linear)

    def alike(self, other: Frequencies) -> bool:
        """Return whether other points have the shape of these, and neither covariates.

        Parameters
        ----------
        other : Frequencies

        Returns
        -------
        bool
        """
        paired = (self.second is None) == (other.second is None)
        plain = not self.n_linear and not other.n_linear
        return plain and paired and self.first.shape == other.first.shape

    def widened(self, dims: Sequence[int] | None, n_components: int) -> Frequencies:
        """Return the same points among more latents, those numbered ``dims`` (None: all), with no
        phase along others.

        phi of all latents is then phi of those: a view that sees some of them is one that sees all.

        Parameters
        ----------
        dims : sequence of int or None
        n_components : int
            Of all latents.

        Returns
        -------
        Frequencies
        """
        if dims is None:
            return self
        index = torch.tensor(list(dims), device=self.first.device)

        def wide(w: Tensor) -> Tensor:
            return w.new_zeros(w.shape[0], n_components).index_copy(1, index, w)

        second = None if self.second is None else wide(self.second)
        return replace(self, first=wide(self.first), second=second)


class Kernel(HasParameters, nn.Module, ABC):
    """A positive definite function of two points.

    Subclasses pass every constructor argument to ``super().__init__``: ``get_params`` returns those
    very objects, so that scikit-learn can clone and search over kernels.
    """

    stationary: bool = False

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._params = params

    @property
    def without_values(self) -> list[str]:
        """Names of the arguments that have to have values before the kernel has any."""
        return [name for name, value in self._params.items() if value is None]

    def extra_repr(self) -> str:
        """Show the constructor's arguments: ``repr`` of an estimator must not hide them.

        Returns
        -------
        str
        """
        return ", ".join(
            f"{name}={value!r}" for name, value in self._params.items() if name != "kernels"
        )

    def values(self) -> dict[str, Tensor]:
        """Return the current parameters in natural units: ``log_x``, ``atanh_x`` and ``logit_x`` as
        x.

        Returns
        -------
        dict of str to Tensor
        """
        undo = {"log_": torch.exp, "atanh_": torch.tanh, "logit_": torch.sigmoid}
        out = {}
        for name, parameter in self.named_parameters():
            stem = name
            value = parameter.detach()
            for prefix, inverse in undo.items():
                if name.split(".")[-1].startswith(prefix):
                    stem = name.replace(prefix, "")
                    value = inverse(value)
            out[stem] = value
        return out

    def __call__(self, x: Numbers, y: Numbers | None = None) -> Tensor:
        """Return `forward` of arrays and lists too; points of two spaces would broadcast."""
        left = points(x)
        matrix: Tensor = super().__call__(left, None if y is None else points(y, left))
        return matrix

    @abstractmethod
    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return k(x_i, y_j): shapes (N, D), (N', D) -> (N, N'); y = None means y = x.

        Parameters
        ----------
        x : Tensor of shape (N, D)
        y : Tensor of shape (N', D), optional
            Left out, it is x.

        Returns
        -------
        Tensor of shape (N, N')
        """


class SpectralKernel(Kernel, ABC):
    """A kernel with a spectral density that can be drawn from, differentiably.

    ``noise`` is free of parameters, ``frequencies`` turns it into spectral points differentiably:
    keeping the noise freezes the features, drawing it anew redraws them, with the same code.
    """

    # Whether ``frequencies`` takes parameters and noise with a leading axis, of several models.
    stackable: bool = False

    @property
    def n_mixtures(self) -> int:
        """Q, the number of groups of H spectral points."""
        return 1

    @abstractmethod
    def noise(
        self,
        n_frequencies: int,
        n_components: int,
        source: torch.Generator,
        sampling: Sampling,
    ) -> Tensor:
        """Draw the base noise of H points per mixture component, shape (Q, H, number of noise
        columns).

        Parameters
        ----------
        n_frequencies : int
            H.
        n_components : int
            D.
        source : torch.Generator
        sampling : {"iid", "orthogonal", "sobol"}

        Returns
        -------
        Tensor of shape (Q, H, number of noise columns)
            Usually standard normal, by `bochner.random.normal`.
        """

    @abstractmethod
    def frequencies(self, noise: Tensor) -> Frequencies:
        """Turn base noise into P = Q H spectral points (pairs), differentiably in the parameters.

        Parameters
        ----------
        noise : Tensor of shape (Q, H, number of noise columns)
            As ``noise`` drew it.

        Returns
        -------
        Frequencies
            Whose features have the closed form as their mean: the squares of the amplitudes add up
            to k(x, x).
        """

    @property
    def has_posterior(self) -> bool:
        """Whether the kernel has a posterior of its own, which block updates move between steps."""
        return False

    @property
    def has_free_components(self) -> bool:
        """Whether a fit may look for the components' places in the spectrum of its data."""
        return False

    @property
    def has_distinct_points(self) -> bool:
        """Whether a model's points are told apart, so that each of its steps needs all of them."""
        return False

    def prepared(self, n_frequencies: int) -> Self:  # noqa: ARG002 - most kernels take any number
        """Return what the kernel of a model with H points per component is like.

        Parameters
        ----------
        n_frequencies : int

        Returns
        -------
        SpectralKernel
        """
        return self

    @abstractmethod
    def initial(self, n_mixtures: int, n_components: int, source: torch.Generator) -> Self:
        """Return a kernel of this kind to start training from, for latents of about unit variance.

        Arguments the user gave are kept; those left at None are chosen.

        Parameters
        ----------
        n_mixtures, n_components : int
            Q and D.
        source : torch.Generator

        Returns
        -------
        SpectralKernel
        """


def positive(name: str, values: Tensor) -> Tensor:
    """Return the logarithm of values that must be positive and finite.

    Raises
    ------
    InputError
        A value is not; it is named.
    """
    bad = ~(torch.isfinite(values) & (values > 0))
    if bool(bad.any()):
        got = float(values[bad].flatten()[0])
        raise InputError(f"{name} must be positive and finite, got {got}.")
    return values.log()


def as_tensor(values: object) -> Tensor:
    """Copy numbers, sequences or arrays to a float64 tensor.

    Raises
    ------
    InputError
        They are no numbers.
    """
    try:
        return torch.as_tensor(values, dtype=torch.float64).detach().clone()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        do = "pass a number or an array of them"
        raise InputError(message("numbers", shown(values), do)) from error


def points(given: Numbers, others: Tensor | None = None) -> Tensor:
    """Return points as a tensor of shape (n, d), of as many dimensions as others, or refuse
    them.
    """
    values = given if isinstance(given, Tensor) else as_tensor(given)
    if values.is_complex():
        raise InputError(message("real points", f"points of {values.dtype}", "pass .real"))
    if values.ndim != 2:
        do = "pass rows of shape (n, d), of a single point x[None]"
        raise InputError(message("points of shape (n, d)", f"shape {tuple(values.shape)}", do))
    if others is not None and values.shape[1] != others.shape[1]:
        got = f"points of {others.shape[1]} and of {values.shape[1]} dimensions"
        raise InputError(message("points of one space", got, "give both the same columns"))
    # whole numbers would round a kernel's parameters
    own = values if values.is_floating_point() else values.double()
    return own if others is None else own.to(others)


def check_components(name: str, values: Tensor, n_components: int) -> None:
    """Raise InputError unless the last axis of values, if there is one, is ``n_components``
    long.
    """
    if values.ndim and values.shape[-1] != n_components:
        given = _dimensions(values.shape[-1])
        raise InputError(
            f"{name} is for {given}, got points of {n_components}. "
            f"Give {name} for {_dimensions(n_components)}."
        )


def _dimensions(count: int) -> str:
    return "1 dimension" if count == 1 else f"{count} dimensions"
