"""The random feature latent variable model by Markov chain Monte Carlo."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bochner.data.accepted import COUNT, COUNT_OR_NONE
from bochner.data.arrays import Float64Array
from bochner.errors import InputError, message, warn_user
from bochner.estimators.base import LatentVariableEstimator
from bochner.estimators.docstrings import described_by, shares_parameters
from bochner.estimators.lvm import NGMVLVM
from bochner.estimators.settings import constraints
from bochner.fitting.data import FitData
from bochner.fitting.plan import Fit, Plan
from bochner.kernels.base import SpectralKernel
from bochner.kernels.dirichlet_process import DirichletProcessMixture
from bochner.mcmc import diagnostics
from bochner.mcmc.chain import Schedule, trace_from_tensor, trace_to_tensor
from bochner.mcmc.sampled import Options, model_of, sample
from bochner.memory import Memory
from bochner.prediction.completion import Mixture, MixtureOfChains
from bochner.processes.isolation import transactional

# States whose weights predictions average over, all chains together.
_SNAPSHOTS = 12


@described_by(NGMVLVM)
class RFLVM(LatentVariableEstimator):
    """The latent variable model with Dirichlet process mixture kernels, sampled by Markov chains.

    What `SRFLVM` approximates is sampled: latents, frequencies, their assignments, components and
    concentration, noise and dispersions. Three to fifteen times slower on 60 rows, for data of some
    hundred rows; its chains say how well they have converged.

    Parameters
    ----------
    n_chains : int, default=4
        Chains, which start near a variational fit, each at a place of its own.
    n_warmup : int, default=300
        Sweeps of each chain that are dropped; step sizes are adapted during these only.
    n_draws : int, default=200
        Draws of each chain that are kept.
    thin : int, default=2
        Every ``thin``-th sweep is kept.
    latents : {"sample", "map"}, default="sample"
        Sample the latents, or set them to the mode of their conditional density in every sweep, as
        published: spreads of the latents are then too small.
    frequency_kernel : {"slice", "metropolis"}, default="slice"
        Elliptical slice sampling of each frequency under its component, or Metropolis steps with
        the component as the proposal, as published.
    n_jobs : int, optional
        Processes for the chains, as joblib counts them; None is one.
    n_mixtures : int or "auto", default="auto"
        Components of the variational fit where chains start; the sampler has no limit. "auto": 20.
    n_frequencies : int or "auto", default="auto"
        H, all spectral points of a view: K = 2 H features. "auto": 50, and 32 with views that are
        not Gaussian.
    likelihood : str, Likelihood, or dict of view to one of these, default="gaussian"
        As `NGMVLVM` takes them, but for "poisson": the sampler needs Polya-gamma variables, and
        those of a negative binomial describe such counts, too.
    max_iter : int or "auto", default="auto"
        Training steps of the variational fit at the most.
    view_weight : None, default=None
        A posterior has no weights of views: others are refused.
    checkpoint : path, optional
        File that the variational fit writes now and then; chains write beside it, with the suffix
        ".chainN". A fit continues from them when they are there, and draws what it would have
        drawn without the stop. Removed at the end.

    Attributes
    ----------
    latent_mean_, latent_std_ : ndarray of shape (N, D)
        Mean and standard deviation of the training rows' latents over the draws of all chains,
        rotated and reflected to the first one. ``embedding_`` places the rows as new ones are.
    missing_mean_, missing_std_ : dict of str to ndarray of shape (missing entries,)
        Of each view, of the linear predictor of its missing entries, row by row, over the draws of
        all chains; scaled data. Draws of single ones are kept of at most 500: R-hat and effective
        sample sizes are of these.
    log_joint_ : ndarray of shape (chains, draws)
        Log density of data and parameters, up to a constant.
    diagnostics_ : dict of str to dict
        The largest R-hat ("r_hat") and the smallest effective sample size ("ess") of each
        quantity, of at most 500 of its entries, evenly spread; empty without ArviZ.
    advice_ : list of str
        What is wrong with the chains, in words; empty when nothing is.
    acceptance_ : dict of str to float
        Of the joint moves of the latents and of the frequencies; NaN where there are none, as of
        latents with ``latents="map"``.
    converged_ : bool
        Whether chains are long enough for R-hat, and every one is at most 1.1.
    n_iter_ : int
        Sweeps of each chain.
    elbo_, elbo_se_, elbo_history_, starts_
        Of the variational fit where chains start, the history one draw of each of its steps: the
        sampler has no bound.
    kernels_ : dict of str to dict
        Spectrum per view of the draw with the highest joint density among those that predict, the
        largest component first: ``proportions`` (C,), ``means`` (C, D), ``scales`` (C, D; standard
        deviations along the axes), ``variance``, ``concentration``.

    Notes
    -----
    Gundersen, Zhang and Engelhardt (2021). Predictions average over some draws of all chains.
    """

    _trains_on_blocks: ClassVar[bool] = False
    _mixture_of: ClassVar[type[Mixture]] = MixtureOfChains
    _auto_mixtures: ClassVar[int] = 20
    _auto_frequencies: ClassVar[int] = 50
    _fewer_frequencies: ClassVar[int] = 50
    _local_frequencies: ClassVar[int] = 32
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **constraints.COMMON,
        "n_chains": [COUNT],
        "n_warmup": [COUNT_OR_NONE],
        "n_draws": [COUNT],
        "thin": [COUNT],
        "latents": [StrOptions({"sample", "map"})],
        "frequency_kernel": [StrOptions({"slice", "metropolis"})],
        # -1: all processors; 0 is none
        "n_jobs": [COUNT, Interval(Integral, None, -1, closed="right"), None],
    }

    @shares_parameters(LatentVariableEstimator, without=["noise_variance"])
    def __init__(
        self,
        n_components: int = 2,
        *,
        n_chains: int = 4,
        n_warmup: int = 300,
        n_draws: int = 200,
        thin: int = 2,
        latents: str = "sample",
        frequency_kernel: str = "slice",
        n_jobs: int | None = None,
        **shared: object,
    ) -> None:
        super().__init__(n_components, **shared)  # type: ignore[arg-type]
        self.n_chains = n_chains
        self.n_warmup = n_warmup
        self.n_draws = n_draws
        self.thin = thin
        self.latents = latents
        self.frequency_kernel = frequency_kernel
        self.n_jobs = n_jobs

    _kernel: ClassVar[type[SpectralKernel]] = DirichletProcessMixture

    @transactional
    def fit(
        self,
        X: ArrayLike,
        y: object = None,
        *,
        size_factors: object = None,
        covariates: object = None,
    ) -> Self:
        """Fit the model: a variational fit first, then the chains.

        Parameters
        ----------
        X : array-like or scipy sparse matrix of shape (N, M)
            As in `SRFLVM`; a sparse X becomes dense for the chains.
        y : ignored
        size_factors : array-like of shape (N,), or dict of view to one, optional
            For views of counts: a row's mean is proportional to its factor.
        covariates : None
            Refused: chains do not draw their weights.

        Returns
        -------
        self

        Raises
        ------
        InputError
            As in `SRFLVM`; and for likelihoods without a sampler, weights of views, or the
            checkpoint of another model.
        KeyboardInterrupt
            Before each chain had a draw; later interruptions keep what was drawn.

        Warns
        -----
        ConvergenceWarning
            Chains are too short, disagree or are stuck.
        """
        if covariates is not None:
            do = "fit SRFLVM, or leave covariates out"
            raise InputError(message("no covariates for chains", "some", do))
        if self.view_weight is not None:
            do = "leave view_weight=None: a posterior has no weights of views"
            raise InputError(message("view_weight=None", repr(self.view_weight), do))
        super().fit(X, y, size_factors=size_factors)
        return self

    def _check_size(self, shape: tuple[int, ...]) -> None:
        super()._check_size(shape)
        # of every draw its latents and some ten numbers
        size = 8 * self.n_chains * self.n_draws * (10 + shape[0] * self.n_components)
        what = f"{self.n_chains:,} chains of {self.n_draws:,} draws"
        Memory().check(size, what, "lower n_chains or n_draws")

    def _infer(self, data: FitData, plan: Plan) -> Fit:
        n_snapshots = -(-_SNAPSHOTS // self.n_chains)
        schedule = Schedule(self.n_warmup, self.n_draws, self.thin, n_snapshots)
        kernels: Any = {"latents": self.latents, "frequency_kernel": self.frequency_kernel}
        options = Options(schedule, self.n_chains, self.n_jobs, **kernels)
        # before the variational fit: what cannot be sampled is refused at once
        model = model_of(data, plan, options)
        warm = super()._infer(data, plan)
        if warm.stopped == "interrupted":
            raise KeyboardInterrupt
        sampled = sample(model, warm, data, plan, options)
        self._draws = sampled.draws
        self._missing = {
            view: (moments.mean, moments.std) for view, moments in sampled.missing.items()
        }
        return replace(
            sampled.fit, stopped="interrupted" if sampled.interrupted else "plateau"
        )

    def _set_attributes(self, counts: Float64Array, plan: Plan) -> None:
        super()._set_attributes(counts, plan)
        self.n_iter_ = self.n_warmup + self.thin * int(self._draws["log_joint"].shape[1])
        self.diagnostics_, missing = self._diagnosed()
        sampled = self.latents == "sample"
        self.advice_ = diagnostics.advice(self.diagnostics_, self._draws, sampled) + missing
        self.converged_ = diagnostics.converged(self.diagnostics_, self._draws)
        if self.advice_:
            warn_user("\n".join(self.advice_), ConvergenceWarning)

    def _training_result(self) -> str:
        return f"{len(self.elbo_history_):,} steps of the variational fit where chains start"

    def _diagnosed(self) -> tuple[dict[str, dict[str, float]], list[str]]:
        try:
            return diagnostics.summary(self._draws), []
        except InputError as error:
            return {}, [str(error)]

    # -- draws

    @property
    def latent_mean_(self) -> NDArray[np.float64]:
        """Mean of the training rows' latents over all draws."""
        return np.asarray(self._draws["latents"].mean((0, 1)))

    @property
    def latent_std_(self) -> NDArray[np.float64]:
        """Standard deviation of the training rows' latents over all draws."""
        return np.asarray(self._draws["latents"].std((0, 1)))

    @property
    def missing_mean_(self) -> dict[str, NDArray[np.float64]]:
        """Mean of the linear predictor of missing entries over all draws, by view."""
        return {view: mean for view, (mean, _) in self._missing.items()}

    @property
    def missing_std_(self) -> dict[str, NDArray[np.float64]]:
        """Standard deviation of the linear predictor of missing entries over all draws."""
        return {view: std for view, (_, std) in self._missing.items()}

    @property
    def log_joint_(self) -> NDArray[np.float64]:
        """Log density of data and parameters, by chain and draw."""
        return self._draws["log_joint"]

    @property
    def acceptance_(self) -> dict[str, float]:
        """Mean acceptance of the latents' joint moves and of the frequencies."""
        names = ("latents", "frequencies")
        return {name: float(self._draws[f"accept.{name}"].mean()) for name in names}

    def to_arviz(self) -> Any:
        """Return the draws for ArviZ: its traces, rank plots, R-hat and effective sample sizes.

        Returns
        -------
        arviz.InferenceData
            ``posterior``: "latents" (chain, draw, N, D), and for each view NAME.points
            (frequencies: no identity from draw to draw), NAME.n_components, NAME.concentration,
            NAME.variance (of the kernel), NAME.noise_variance (Gaussian) or NAME.dispersion
            (negative binomial), and NAME.missing (psi of at most 500 missing entries, evenly
            spread, row by row), all of scaled data.
            ``sample_stats``: "lp" and "acceptance_rate".

        Raises
        ------
        InputError
            ArviZ is not installed.
        """
        check_is_fitted(self)
        return diagnostics.inference_data(self._draws)

    # -- files

    def _extra_state(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        finite = {
            name: {k: v if np.isfinite(v) else None for k, v in figures.items()}
            for name, figures in self.diagnostics_.items()
        }
        tensors = {
            f"draws.{name}": trace_to_tensor(name, values)
            for name, values in self._draws.items()
        }
        for view, (mean, std) in self._missing.items():
            tensors[f"mean.{view}"] = torch.from_numpy(mean)
            tensors[f"std.{view}"] = torch.from_numpy(std)
        return tensors, {"diagnostics": finite, "advice": self.advice_}

    def _restore_extra(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        kinds: dict[str, dict[str, Tensor]] = {"draws": {}, "mean": {}, "std": {}}
        for name, values in tensors.items():
            kind, _, rest = name.partition(".")
            kinds[kind][rest] = values
        self._draws = {
            name: trace_from_tensor(name, values) for name, values in kinds["draws"].items()
        }
        self._missing = {
            view: (mean.numpy(), kinds["std"][view].numpy())
            for view, mean in kinds["mean"].items()
        }
        self.advice_ = header["advice"]
        self.diagnostics_ = {
            name: {k: np.nan if v is None else v for k, v in figures.items()}
            for name, figures in header["diagnostics"].items()
        }
