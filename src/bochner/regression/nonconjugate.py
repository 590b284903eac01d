"""The bound of a view whose likelihood is not Gaussian, with q(A) and its sites in closed-form
blocks.

sum_nm bound of E_q log p(y_nm | psi_nm) - sum_m KL(q(A_m) || N(0, I)), psi_nm = intercept_m +
offset_n + phi_n^T a_m.

q(A) comes from sites that are held from step to step; new ones, where the bound of each entry
touches at the new q, go back to the caller. For Polya-gamma and Böhning this is coordinate ascent
and never lowers the bound; at its fixed point the value is the collapsed bound of docs/math.md,
section 3. By the envelope theorem the gradient takes q(A) as given; where sites of another draw of
latents and spectra are far from those of this one it takes the sites as given, and q(A) follows
(``likelihood.beyond_sites``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bochner.features.fourier import Trace, evaluate, pull_back
from bochner.kernels.base import Frequencies
from bochner.likelihoods.nonconjugate import NonConjugateLikelihood
from bochner.linalg import closed_form
from bochner.memory import chunks
from bochner.models.sites import DENSE, INTERCEPT_STD, Sites, SiteUpdate
from bochner.regression.conjugate_gradients import group_sums, precondition
from bochner.regression.evidence import CHUNK_ROWS
from bochner.regression.observations import EncodedBlock, Rows
from bochner.regression.site_entries import (
    Entries,
    Pass,
    RowSample,
    swept,
    swept_until_settled,
)
from bochner.regression.site_steps import poor

# Relative error of a column's means. A thousandth of a nat an entry, which they could lose before,
# was too much: sites of zeros and ones that latents separate settled where the bound is hundreds of
# nats lower, and the slope in the kernel's variance had the wrong sign.
_TOLERANCE = 1e-3
# Newton on an intercept, which may be far from a count: no further at once than e times its mean.
_LARGEST_INTERCEPT_STEP = 1.0


@dataclass(frozen=True)
class NonConjugateValue:
    """A view's bound and what it asks of its sites.

    Attributes
    ----------
    value : Tensor, scalar float64
        In nats. Of some columns, an unbiased estimate if every column has its own covariance; with
        groups it is a little larger than the whole, since fewer columns share one.
    update : SiteUpdate
    gap : Tensor, scalar float64
        Of the likelihood, summed: value + gap is a bound that does not loosen as parameters are
        learned.
    """

    value: Tensor
    update: SiteUpdate
    gap: Tensor


def nonconjugate_evidence(
    x: Tensor,
    frequencies: Frequencies,
    likelihood: NonConjugateLikelihood,
    sites: Sites,
    block: EncodedBlock,
    *,
    columns: Tensor | None = None,
    n_sweeps: int = 1,
    tol: float = _TOLERANCE,
    sample: RowSample | None = None,
) -> NonConjugateValue:
    """Evaluate the bound of a view, differentiable once in x, the frequencies and the likelihood's
    parameters.

    Parameters
    ----------
    x : Tensor of shape (N, D)
        Latents of all rows.
    frequencies : Frequencies
    likelihood : NonConjugateLikelihood
    sites : Sites
        Left alone; the update is returned.
    block : EncodedBlock
        Encoded data of the rows that have any, 0 where an entry is missing.
    columns : Tensor of shape (m,), int64, optional
        A mini-batch; the value is then scaled to all columns.
    n_sweeps : int
        Times that q(A) and its sites are brought up to date before the bound is taken.
    tol : float
        Relative error of the means of q(A).
    sample : RowSample, optional
        The rows from which the gradient in the likelihood's parameters and the gap are
        estimated; None: all rows.

    Returns
    -------
    NonConjugateValue
    """
    if columns is None and block.Y.numel() > DENSE and not torch.is_grad_enabled():
        whole = functools.partial(
            nonconjugate_evidence,
            x,
            frequencies,
            likelihood,
            sites,
            block,
            n_sweeps=n_sweeps,
            tol=tol,
        )
        whole = functools.partial(whole, sample=sample)
        # for memory
        cuts = sites.column_chunks(block.Y.shape[0])
        return _joined([whole(columns=cut) for cut in cuts])
    f = frequencies.to(x.dtype)
    entries = Entries.of(sites, block, columns)
    parameters = [p for p in likelihood.parameters() if p.requires_grad]
    holder: list[_Touch] = []

    def compute(wanted: bool) -> tuple[Tensor, Sequence[Tensor | None]]:
        rows = block.rows.take(x)
        traces = [evaluate(rows[part], f) for part in chunks(rows.shape[0], CHUNK_ROWS)]
        features, basis = _reduced(joined_features(traces))
        given = (features, likelihood, entries, tol, n_sweeps)
        if wanted:
            # a step bears what a bound that is stated does not
            solution, used = swept(*given, factors_in=features.dtype)
        else:
            sweeps = swept_until_settled if n_sweeps > 1 else swept
            solution, used = sweeps(*given)
        precision, shift = solution.sites(used, likelihood.site)
        mask = used.mask
        slopes = solution.slopes
        scale = used.scale
        bound = mask.apply(slopes.value).sum(0, dtype=torch.float64) - solution.weights.kl()
        asked = parameters if wanted else []
        gap, of_parameters = learned(likelihood, solution, used, asked, sample)
        slope = mask.apply(slopes.d_mean).sum(0)
        holder.append(_Touch(precision, shift, slope, bound, gap))
        if not wanted:
            return scale * bound.sum(), ()
        followed = solution
        if poor(group_sums(bound[None], used.sizes)[0], len(used.y), used.sizes):
            # q(A) has not settled: single entries would outweigh all others
            followed = replace(solution, slopes=likelihood.followed(used.y, slopes))
        upstream = scale * _feature_gradient(followed, used)
        left = used.shift - used.precision * solution.latent
        beyond = likelihood.beyond_sites(slopes, used.precision, left)
        if beyond is not None:
            upstream += scale * _through_posterior(features, solution, used, left, *beyond)
        upstream = upstream if basis is None else basis @ upstream
        carried = carried_back(x, block.rows, traces, f, upstream)
        return scale * bound.sum(), (
            *carried,
            *(scale * gradient for gradient in of_parameters),
        )

    value = closed_form(compute, x, f.first, f.second, f.amplitude, f.linear, *parameters)
    prior = entries.scale * sites.log_prior(entries.columns).sum()
    return NonConjugateValue(
        value + prior,
        _update(holder[0], entries.columns, sites),
        entries.scale * holder[0].gap.sum(),
    )


def _joined(parts: list[NonConjugateValue]) -> NonConjugateValue:
    """Put parts of the columns together; a group that was cut has a covariance for each part."""
    updates = [part.update for part in parts]
    of_columns = ("columns", "intercept", "worth")
    columns, intercept, worth = (
        torch.cat([getattr(u, name) for u in updates]) for name in of_columns
    )
    precision, shift = (
        torch.cat([getattr(u, name) for u in updates], dim=1)
        for name in ("precision", "shift")
    )
    shares = [len(update.columns) / len(columns) for update in updates]
    value = torch.stack(
        [share * part.value for share, part in zip(shares, parts, strict=True)]
    ).sum()
    gap = torch.stack(
        [share * part.gap for share, part in zip(shares, parts, strict=True)]
    ).sum()
    return NonConjugateValue(
        value, SiteUpdate(columns, precision, shift, intercept, worth), gap
    )


@dataclass(frozen=True)
class _Touch:
    """Sites where each entry's bound touches at q, (n, m), the bound's slope in the intercepts, its
    value, its gap.

    The last three by column, (m,).
    """

    precision: Tensor
    shift: Tensor
    slope: Tensor
    value: Tensor
    gap: Tensor


def _update(touch: _Touch, columns: Tensor, sites: Sites) -> SiteUpdate:
    """Step to the intercepts that maximise the touching quadratic and their prior; the sites move
    along.
    """
    now = sites.intercept[columns]
    centre = sites.centre[columns]
    slope = touch.slope - (now - centre) / INTERCEPT_STD**2
    step = slope / (touch.precision.sum(0) + 1.0 / INTERCEPT_STD**2)
    step = step.clamp(-_LARGEST_INTERCEPT_STEP, _LARGEST_INTERCEPT_STEP)
    worth = touch.value + touch.gap + sites.log_prior(columns)
    return SiteUpdate(
        columns, touch.precision, touch.shift - touch.precision * step, now + step, worth
    )


def joined_features(traces: list[Trace]) -> Tensor:
    """Put the features of consecutive rows together, (K, n)."""
    parts = [trace.features for trace in traces]
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]


def _reduced(features: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return coordinates of few rows in their span, (n, n), and its orthonormal basis, (K, n); the
    features (K, n) and None where rows are many.

    Across the span q(A) is the prior, which costs nothing: the bound is the same.
    """
    n_features, n = features.shape
    # with more rows the factorisation costs what it saves
    if 2 * n > n_features:
        return features, None
    basis, coordinates = torch.linalg.qr(features)
    return coordinates, basis


def _feature_gradient(solution: Pass, entries: Entries) -> Tensor:
    """Return sum_m m_m g_nm + 2 sum_g (sum_{m in g} g'_nm) S_g phi_n with g, g' the slopes in mean
    and variance.
    """
    weights = solution.weights
    on_variance = 2.0 * weights.gather(entries.mask.apply(solution.slopes.d_variance))
    through = solution.forms.gradient(on_variance)
    return torch.addmm(through, weights.mean, entries.mask.apply(solution.slopes.d_mean).T)


def _through_posterior(
    features: Tensor,
    solution: Pass,
    used: Entries,
    left: Tensor,
    on_mean: Tensor,
    on_variance: Tensor,
) -> Tensor:
    """Return what the bound changes by as q(A) follows the features, the sites given, (K, n).

    Exact where every column has its own covariance. With l_nm = (b - lambda psi)_nm the slope of
    the sites, r_nm and t_nm those in mean and variance that the bound has beyond them, u_m = S Phi
    r_m and M = Phi diag(t) Phi^T, each row has
    sum_m u_m l_nm - lambda_nm (phi_n^T u_m) m_m - 2 lambda_n S M S phi_n.
    """
    weights = solution.weights
    mask = used.mask
    u = precondition(weights.covariance, features @ mask.apply(on_mean), used.sizes)
    out = torch.addmm(
        u @ left.T, weights.mean, (used.precision * (features.T @ u)).T, alpha=-1
    )
    beside = weights.gather(mask.apply(on_variance))
    precision = weights.average(used.precision)
    for covariance, t, p in zip(weights.covariance, beside.T, precision.T, strict=True):
        s = covariance.to(features.dtype)
        spread = s @ ((features * t) @ features.T) @ s
        out -= 2.0 * p * (spread @ features)
    return out


def learned(
    likelihood: NonConjugateLikelihood,
    solution: Pass,
    entries: Entries,
    parameters: Sequence[Tensor],
    sample: RowSample | None,
) -> tuple[Tensor, list[Tensor]]:
    """Return the gap of every column's bound, (m,) float64, and the gradients in the likelihood's
    parameters, both estimated from some rows: they share a quadrature at every entry.
    """
    n, m = entries.y.shape
    rows, k = (slice(None), 1) if sample is None else sample.of(n, m)
    mask = entries.mask.rows(rows)
    mean = (entries.total[rows] + solution.latent[rows]).detach()
    moments = (entries.y[rows], mean, solution.variance[rows], entries.columns)
    expected = None
    gradients: list[Tensor] = []
    if parameters:
        with torch.enable_grad():
            expected = likelihood.parameter_value(*moments)
            total = mask.apply(expected).sum() * k
            gradients = list(torch.autograd.grad(total, parameters))
        expected = expected.detach()
    with torch.no_grad():
        gap = likelihood.gap_beside(*moments, expected)
    if gap is None:
        return mean.new_zeros(m, dtype=torch.float64), gradients
    return mask.apply(gap).sum(0, dtype=torch.float64) * k, gradients


def carried_back(
    x: Tensor, rows: Rows, traces: list[Trace], f: Frequencies, upstream: Tensor
) -> list[Tensor | None]:
    """Carry the features' gradient back to the latents, the spectral points and the factors of
    covariates.
    """
    sizes = [trace.features.shape[1] for trace in traces]
    parts = [
        pull_back(trace, f, up.contiguous())
        for trace, up in zip(traces, torch.split(upstream, sizes, dim=1), strict=True)
    ]
    d_rows = torch.cat([part[0] for part in parts])
    d_x = rows.scatter(d_rows, x)
    first = torch.stack([part[1] for part in parts]).sum(0)
    amplitude = torch.stack([part[3] for part in parts]).sum(0)
    seconds = [part[2] for part in parts if part[2] is not None]
    second = torch.stack(seconds).sum(0) if seconds else None
    linear = torch.stack([part[4] for part in parts]).sum(0)
    return [d_x, first, second, amplitude, linear]
