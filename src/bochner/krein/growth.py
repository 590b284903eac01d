"""Frequencies by gradient where the sketch is small: fits of few of them grow into fits of many.

A search for many frequencies at once ends no lower on a small sketch than one for a few of them:
each of many has little weight, and all are drawn to the same place. So few are fitted first, others
are added with little weight, and the search goes on from there. Copies of the fewer are one of the
candidates: more frequencies are never worse on the rows held out than the fewer.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bochner import random
from bochner.krein.frequencies import KreinFit, fit_gradient
from bochner.krein.radial import search_start
from bochner.krein.signed_frequencies import GaussianFrequencies
from bochner.krein.sketch import Sketch

# Sketches of fewer rows, where a fit costs little.
_FEW_ROWS = 500
# Least frequencies of a fit, and the most of one that begins anew.
_FEWEST = 4
_ANEW = 32
# What the others weigh when they are added.
_ADDED = 0.1


def fit_grown(
    sketch: Sketch,
    n_frequencies: int,
    n_mixtures: int,
    max_iter: int,
    source: torch.Generator,
) -> KreinFit:
    """Fit the posterior of the frequencies to a sketch, by way of fewer where its rows are few.

    Parameters
    ----------
    sketch : Sketch
    n_frequencies : int
        H.
    n_mixtures : int
        T of each part.
    max_iter : int
        L-BFGS iterations of every fit.
    source : torch.Generator

    Returns
    -------
    KreinFit
        History and mixtures are those of the fit that was kept.
    """
    if len(sketch.x) >= _FEW_ROWS or n_frequencies < 2 * _FEWEST:
        start = search_start(sketch, n_frequencies, source)
        return fit_gradient(sketch, start, n_mixtures, max_iter, source)
    # a fit of so many frequencies is the same one, however many there will be
    seed = int(torch.randint(2**62, (), generator=source, device=source.device))

    def fitted(count: int) -> KreinFit:
        noise = random.generator(seed, "krein growth", count, device=source.device)
        fits = []
        starts = []
        if count <= _ANEW:
            starts.append(search_start(sketch, count, noise))
        if count >= 2 * _FEWEST:
            fewer = fitted(-(-count // 2))
            starts.append(_enlarged(fewer.frequencies, sketch, count, noise))
            fits.append(replace(fewer, frequencies=copied(fewer.frequencies, count)))
        fits += [fit_gradient(sketch, start, n_mixtures, max_iter, noise) for start in starts]
        return min(fits, key=lambda fit: _error(fit.frequencies, sketch))

    return fitted(n_frequencies)


def copied(frequencies: GaussianFrequencies, count: int) -> GaussianFrequencies:
    """Return as many frequencies with the same kernel: the heaviest twice, each with half its
    weight.

    Parameters
    ----------
    frequencies : GaussianFrequencies
        At least half of the count.
    count : int
    """
    repeats = torch.ones_like(frequencies.weight, dtype=torch.int64)
    more = count - len(repeats)
    repeats[frequencies.weight.argsort(descending=True, stable=True)[:more]] = 2
    index = torch.arange(len(repeats), device=repeats.device).repeat_interleave(repeats)
    return GaussianFrequencies(
        (frequencies.weight / repeats)[index],
        frequencies.sign[index],
        frequencies.mean[index],
        frequencies.factor[index],
    )


def _enlarged(
    fitted: GaussianFrequencies, sketch: Sketch, count: int, source: torch.Generator
) -> GaussianFrequencies:
    """Return where a search for more begins: those that were found, and new ones of little
    weight.
    """
    new = search_start(sketch, count - len(fitted.weight), source)
    # the positive part comes first
    kept = [fitted.sign > 0, new.sign > 0, fitted.sign < 0, new.sign < 0]

    def beside(old: Tensor, other: Tensor) -> Tensor:
        return torch.cat(
            [part[which] for part, which in zip((old, other) * 2, kept, strict=True)]
        )

    mean = beside(fitted.mean, new.mean)
    weight = beside((1.0 - _ADDED) * fitted.weight, _ADDED * new.weight)
    sign = beside(fitted.sign, new.sign)
    return GaussianFrequencies(weight, sign, mean, torch.zeros_like(mean))


def _error(frequencies: GaussianFrequencies, sketch: Sketch) -> float:
    """Return the mean squared error of the fitted kernel over pairs of rows held out, of the sketch
    where there are none.
    """
    checked = len(sketch.held_out) > 1
    x = sketch.held_out if checked else sketch.x
    target = sketch.held_target if checked else sketch.target
    away = frequencies.kernel(x, x) - target
    away = away - torch.diag(torch.diagonal(away))
    return float(away.square().sum())
