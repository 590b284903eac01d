"""The laws of kernels: what a matrix is, and that features have the closed form as their mean."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable
from typing import get_args

import torch
from sklearn.base import clone
from torch import Tensor, nn

from bochner import random
from bochner._typing import Sampling
from bochner.errors import InputError, message, shown
from bochner.features.fourier import fourier_features
from bochner.kernels.base import Frequencies, Kernel, SpectralKernel
from bochner.testing.compare import close, holds

# Draws of features: standard errors are then some hundredths of k(x, x).
_DRAWS = 120
_FREQUENCIES = 16
# Bounds of the ratio of errors with 16 times as many features, 4 in the limit; 150 draws of it.
_RATIO = (3.3, 4.8)
_MORE_DRAWS = 150


def check_kernel(kernel: Kernel, dimensions: Iterable[int] = (1, 2, 3)) -> None:
    """Check the laws that the package's own kernels obey on a kernel of one's own.

    Of any kernel: the matrix is symmetric and positive semi-definite, rows of one value are one
    row, shifts change nothing where ``stationary`` says so, gradients are those of finite
    differences and finite where points coincide, the rows' precision decides, and copies are equal
    and independent. Of a kernel with a spectrum: features are unbiased for the closed form within
    five standard errors, for three ways of sampling, their error falls with the root of their
    number, noise and frequencies have the shapes that are promised, features are differentiable in
    every parameter, and ``initial`` keeps what was given.

    Parameters
    ----------
    kernel : Kernel
        With all its arguments given, in float64 (the default of parameters).
    dimensions : iterable of int, default=(1, 2, 3)
        Numbers D of latents to check it with. A kernel with one lengthscale per latent has one.

    Raises
    ------
    AssertionError
        A law is broken: the law, the number of dimensions and the worst entry.

    Examples
    --------
    >>> from bochner.kernels import RBF
    >>> from bochner.testing import check_kernel
    >>> check_kernel(RBF(0.7), dimensions=[2])
    """
    given: object = kernel
    if not isinstance(given, Kernel):
        do = "pass an object, such as RBF(0.7)"
        raise InputError(message("a kernel with all its arguments", shown(given), do))
    chosen = list(dimensions)
    if not chosen:
        do = "leave dimensions out, or give some"
        raise InputError(message("numbers of dimensions to check the kernel with", "none", do))
    for d in chosen:
        for law in KERNEL_LAWS:
            law(kernel, d)
        if isinstance(kernel, SpectralKernel):
            for spectral_law in SPECTRAL_LAWS:
                spectral_law(kernel, d)


def points(n: int, d: int, seed: int = 0) -> Tensor:
    """Return n rows of d latents to check a kernel at, float64."""
    source = torch.Generator().manual_seed(seed)
    return 0.8 * torch.randn(n, d, generator=source, dtype=torch.float64) + 0.3


def matrix(kernel: Kernel, x: Tensor, y: Tensor | None = None) -> Tensor:
    """Return the closed form without its history."""
    with torch.no_grad():
        values: Tensor = kernel(x, y)
        return values


def grams(
    kernel: SpectralKernel,
    x: Tensor,
    n_frequencies: int,
    n_draws: int,
    sampling: Sampling = "iid",
) -> Tensor:
    """Return inner products of independently drawn features, (n_draws, N, N)."""
    source = random.generator(0, "law", n_frequencies)
    out = []
    with torch.no_grad():
        for _ in range(n_draws):
            noise = kernel.noise(n_frequencies, x.shape[1], source, sampling)
            features = fourier_features(x, kernel.frequencies(noise))
            out.append(features.T @ features)
    return torch.stack(out)


# -- the closed form
# ---------------------------------------------------------------------------


def symmetric_and_positive(kernel: Kernel, d: int) -> None:
    """k(x, y) = k(y, x), no eigenvalue is below 0, and rows of one value are one row."""
    x = points(40, d)
    y = points(7, d, seed=1)
    where = _where(kernel, d)
    x[1] = x[0]
    values = matrix(kernel, x)
    across = matrix(kernel, x, y)
    holds(
        values.shape == (40, 40), f"{where}: forward must return (N, N), got {values.shape}."
    )
    close(values, values.T, f"{where}: k(x, x') must be k(x', x)", rtol=0.0, atol=1e-12)
    close(
        values,
        matrix(kernel, x, x),
        f"{where}: y = None must mean y = x",
        rtol=1e-7,
        atol=1e-7,
    )
    other = matrix(kernel, y, x).T
    close(across, other, f"{where}: k(x, y) must be k(y, x)^T", rtol=1e-7, atol=1e-7)
    both = matrix(kernel, torch.cat([x, y]))[:40, 40:]
    close(both, across, f"{where}: an entry must depend on its two rows", rtol=1e-7, atol=1e-7)
    least = float(torch.linalg.eigvalsh(values).min())
    holds(
        least > -1e-10 * 40,
        f"{where}: not positive semi-definite, an eigenvalue is {least:.3g}",
    )
    holds((values[0] == values[1]).all(), f"{where}: equal points must have equal rows.")


def shifts_change_stationary_kernels_never(kernel: Kernel, d: int) -> None:
    """A stationary kernel sees differences alone; one that does not say so sees more."""
    x = points(6, d)
    same = torch.allclose(matrix(kernel, x), matrix(kernel, x + 0.37), atol=1e-10)
    says = "stationary = True" if kernel.stationary else "stationary = False"
    changes = "nothing" if same else "values"
    holds(
        same is kernel.stationary,
        f"{_where(kernel, d)} says {says}, but shifts change {changes}.",
    )


def closed_form_is_differentiable(kernel: Kernel, d: int) -> None:
    """Gradients are those of finite differences, and finite where points coincide."""
    where = _where(kernel, d)
    kernel = copy.deepcopy(kernel)
    x = points(3, d).requires_grad_()
    y = points(2, d, 1)
    names, values = zip(*kernel.named_parameters(), strict=True)

    def closed_form(x: Tensor, *parameters: Tensor) -> Tensor:
        replaced = dict(zip(names, parameters, strict=True))
        out: Tensor = torch.func.functional_call(kernel, replaced, (x, y))
        return out

    _gradcheck(closed_form, (x, *values), f"{where}: gradients of forward")
    same = torch.zeros(3, d, dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(kernel(same).sum())
    for name, part in (("x", same), *kernel.named_parameters()):
        finite = part.grad is not None and bool(torch.isfinite(part.grad).all())
        holds(finite, f"{where}: the gradient in {name} must be finite where points coincide.")


def precision_is_that_of_the_rows(kernel: Kernel, d: int) -> None:
    """Rows in float32 give float32, to its rounding."""
    x = points(5, d)
    where = _where(kernel, d)
    single = matrix(kernel, x.float())
    holds(
        single.dtype == torch.float32, f"{where}: float32 rows must give float32: .to(x.dtype)"
    )
    close(single, matrix(kernel, x), f"{where}: float32 against float64", rtol=1e-5, atol=1e-5)


def copies_are_equal_and_independent(kernel: Kernel, d: int) -> None:
    """Clones, deep copies and pickles say the same, and changing one changes no other."""
    x = points(4, d)
    where = _where(kernel, d)
    before = matrix(kernel, x)
    made = {
        "sklearn.base.clone": clone(kernel),
        "copy.deepcopy": copy.deepcopy(kernel),
        "pickle": pickle.loads(pickle.dumps(kernel)),
    }
    for way, copied in made.items():
        holds(type(copied) is type(kernel), f"{where}: {way} gave a {type(copied).__name__}.")
        text = f"{where}: {way} must give the same kernel (pass every argument to super().__init__)"
        close(matrix(copied, x), before, text, rtol=0.0, atol=0.0)
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.add_(0.5)
        changed = not torch.allclose(matrix(copied, x), before)
        holds(changed, f"{where}: parameters must change the values; nothing did.")
        text = f"{where}: changing what {way} gave must not change the kernel"
        close(matrix(kernel, x), before, text, rtol=0.0, atol=0.0)


# -- the spectrum
# ---------------------------------------------------------------------------


def noise_has_the_promised_shape(kernel: SpectralKernel, d: int) -> None:
    """(Q, H, columns) gives Q H points; the same noise gives the same points."""
    where = _where(kernel, d)
    noise = kernel.noise(6, d, random.generator(0, "n"), "iid")
    holds(
        noise.ndim == 3 and noise.shape[:2] == (kernel.n_mixtures, 6),
        f"{where}: noise must have shape (n_mixtures, n_frequencies, columns) = "
        f"({kernel.n_mixtures}, 6, ...), got {tuple(noise.shape)}.",
    )
    frequencies = kernel.frequencies(noise)
    n = 6 * kernel.n_mixtures
    shapes = (tuple(frequencies.first.shape), tuple(frequencies.amplitude.shape))
    holds(
        shapes == ((n, d), (n,)),
        f"{where}: frequencies must be of shape {(n, d)} with amplitudes {(n,)}, got {shapes}.",
    )
    holds(
        frequencies.stationary is kernel.stationary,
        f"{where}: a stationary kernel has no second frequencies, any other has.",
    )
    again = kernel.frequencies(kernel.noise(6, d, random.generator(0, "n"), "iid"))
    same = torch.equal(frequencies.first, again.first)
    holds(same, f"{where}: the same generator must give the same frequencies.")


def features_are_unbiased(kernel: SpectralKernel, d: int) -> None:
    """Means of feature products are the closed form within five standard errors."""
    x = points(5, d)
    expected = matrix(kernel, points(5, d))
    for sampling in get_args(Sampling):
        draws = grams(kernel, x, _FREQUENCIES, _DRAWS, sampling)
        error = draws.mean(0) - expected
        standard_error = draws.std(0) / _DRAWS**0.5
        # the diagonal of a stationary kernel has no variance at all: only rounding remains there
        excess = error.abs() - (5 * standard_error + 1e-12)
        i, j = divmod(int(excess.argmax()), 5)
        holds(
            excess.max() <= 0.0,
            f"{_where(kernel, d)}: features are not unbiased for the closed form with sampling="
            f"{sampling!r}: k = {expected[i, j]:.6g}, their mean is {draws.mean(0)[i, j]:.6g} "
            f"± {standard_error[i, j]:.2g}.",
        )
        largest = float((standard_error / expected.diagonal().max()).max())
        holds(
            largest < 0.06,
            f"{_where(kernel, d)}: draws scatter too much to tell, ± {largest:.2g}",
        )


def error_falls_with_the_root_of_the_features(kernel: SpectralKernel, d: int) -> None:
    """16 times the features: a quarter of the error."""
    x = points(5, d)
    expected = matrix(kernel, x)
    errors = [grams(kernel, x, h, _MORE_DRAWS) - expected for h in (16, 256)]
    few, many = (float(error.square().mean().sqrt()) for error in errors)
    holds(
        _RATIO[0] < few / many < _RATIO[1],
        f"{_where(kernel, d)}: 16 times the features must leave about a quarter of the error: it "
        f"falls from {few:.3g} to {many:.3g}.",
    )


class _Points(nn.Module):
    """Spectral points as a forward pass, so that functional_call can replace a kernel's
    parameters.
    """

    def __init__(self, kernel: SpectralKernel) -> None:
        super().__init__()
        self._modules = kernel._modules
        self._parameters = kernel._parameters
        # in a list: no submodule, whose names would have a prefix
        self._kernel = [kernel]

    def forward(self, noise: Tensor) -> Frequencies:
        return self._kernel[0].frequencies(noise)


def features_are_differentiable(kernel: SpectralKernel, d: int) -> None:
    """Gradients of features are those of finite differences, and every parameter has one."""
    where = _where(kernel, d)
    kernel = copy.deepcopy(kernel)
    x = points(4, d)
    noise = kernel.noise(3, d, random.generator(0, "n"), "iid")
    names, values = zip(*kernel.named_parameters(), strict=True)

    def features(*parameters: Tensor) -> Tensor:
        replaced = dict(zip(names, parameters, strict=True))
        spectrum = torch.func.functional_call(_Points(kernel), replaced, (noise,))
        return fourier_features(x, spectrum)

    _gradcheck(features, values, f"{where}: gradients of features")
    change = features(*values).square()[:, :2].sum(0).diff()
    gradients = torch.autograd.grad(change, values, allow_unused=True)
    for name, gradient in zip(names, gradients, strict=True):
        holds(gradient is not None, f"{where}: features do not depend on {name}.")


def start_keeps_what_was_given(kernel: SpectralKernel, d: int) -> None:
    """``initial`` returns another kernel with the arguments that the user gave."""
    changed = copy.deepcopy(kernel)
    where = _where(kernel, d)
    x = points(4, d)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(0.5)
    start = changed.initial(3, d, random.generator(0, "start"))
    holds(start is not changed, f"{where}: initial must return another kernel.")
    text = f"{where}: initial must keep the arguments that were given"
    close(matrix(start, x), matrix(kernel, x), text, rtol=1e-7, atol=1e-7)


KERNEL_LAWS: tuple[Callable[[Kernel, int], None], ...] = (
    symmetric_and_positive,
    shifts_change_stationary_kernels_never,
    closed_form_is_differentiable,
    precision_is_that_of_the_rows,
    copies_are_equal_and_independent,
)
SPECTRAL_LAWS: tuple[Callable[[SpectralKernel, int], None], ...] = (
    noise_has_the_promised_shape,
    features_are_unbiased,
    error_falls_with_the_root_of_the_features,
    features_are_differentiable,
    start_keeps_what_was_given,
)


def _where(kernel: Kernel, d: int) -> str:
    return f"{type(kernel).__name__}, {d} {'dimension' if d == 1 else 'dimensions'}"


def _gradcheck(f: Callable[..., Tensor], inputs: tuple[Tensor, ...], message: str) -> None:
    try:
        torch.autograd.gradcheck(f, inputs)
    except (RuntimeError, ValueError) as error:
        raise AssertionError(
            f"{message} are not those of finite differences: {error}"
        ) from error
