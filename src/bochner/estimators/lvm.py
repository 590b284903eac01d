"""The latent variable models of the papers, as configurations of one estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sklearn.utils._param_validation import StrOptions

from bochner.errors import InputError, message
from bochner.estimators.base import LatentVariableEstimator
from bochner.estimators.docstrings import described_by, shares_parameters
from bochner.estimators.settings import constraints
from bochner.kernels.base import SpectralKernel
from bochner.kernels.nonstationary import SpectralSum
from bochner.kernels.periodic import Periodic
from bochner.kernels.spectral_mixture import NextGenSpectralMixture, SpectralMixture
from bochner.kernels.stationary import RBF, Matern

_KERNELS: dict[str, Callable[[], SpectralKernel]] = {
    "ng-sm": NextGenSpectralMixture,
    "sm": SpectralMixture,
    "rbf": RBF,
    "matern": Matern,
    # two standard deviations of the prior: not quite two periods over the rows
    "periodic": lambda: Periodic(period=2.0),
    "rbf+periodic": lambda: SpectralSum([RBF(), Periodic(period=2.0)]),
}


class NGMVLVM(LatentVariableEstimator):
    """One latent representation of several views, with non-stationary next-gen spectral mixture
    kernels.

    Parameters
    ----------
    n_components : int, default=2
        D, latent dimensions.
    views : dict of str to slice, names or column numbers, optional
        Column groups of X; None is one view.
    likelihood : str, Likelihood, or dict of view to one of these, default="gaussian"
        "gaussian", "bernoulli", "binomial", "negative_binomial", "poisson", "categorical", or one
        of `bochner.likelihoods` with its own arguments; "auto" chooses by the values of each view,
        logs why, and prints it when ``verbose``. Views that a dict leaves out are Gaussian. A
        DataFrame with columns of several kinds (fractions, whole numbers, booleans, categories,
        texts) is a mixed table to "auto": each kind is a view, "numbers", "binary", "ordered" or
        "categories", and numbers have a scale and a noise variance per column.
    n_mixtures : int or "auto", default="auto"
        Q, mixture components of a view's kernel. "auto": 2; `SRFLVM` says its own.
    n_frequencies : int or "auto", default="auto"
        H, spectral points per component: K = 2 Q H features. "auto": 100 up to 1,000 rows, 50
        beyond, 32 with non-conjugate views; 1.25 D where that is more.
    sampling : {"auto", "iid", "orthogonal", "sobol"}, default="auto"
        How spectral points are drawn; "auto": "sobol" in up to 10 dimensions, "orthogonal" in more.
    init : str, array of shape (N, D), or list of these, default="auto"
        "pca", "fold", "laplacian", "isomap", "tsne", "random", "laplacian-2", "tsne-2" or "auto".
        Starts; several are raced and the one with the best bound on fresh draws goes on. "fold"
        begins with one principal component more than D and folds it away under RBF kernels;
        "laplacian-2" and "tsne-2" begin with two dimensions and the others near 0, where the bound
        leaves those that the data do not need. "auto" races "pca", "fold", "laplacian" and, in up
        to 3 dimensions, "tsne", in more than 2 also those two ("tsne-2" of up to 1,000 rows); of
        more than 6,000 rows "pca" and "laplacian"; in more than 12 dimensions, or with private
        ones, no starts of two, and in more than 12 "pca" alone. An array is taken as it is: its
        columns should have a standard deviation of about 1, as the latents have under their prior.
    n_init : int or "auto", default="auto"
        How many starts are raced, going round ``init``. "auto": one for every name.
    max_iter : int or "auto", default="auto"
        Training steps at the most. "auto": 3,000.
    tol : float or "auto", default="auto"
        Training ends when the bound rises by less than this many nats per observed entry in a
        window of steps, beyond its noise. "auto": 3e-4 in 30 steps; 1e-4 in 50 for Dirichlet
        process kernels, more than 12 dimensions, and non-conjugate views beside others or whose
        steps take some of their columns.
    learning_rate : float or "auto", default="auto"
        Of Adam, at most 1. "auto": 0.2 (Dirichlet process kernels, or more than 12 dimensions:
        0.1), and a quarter of it for the means of the latents; 0.06 for a non-conjugate view with
        a Dirichlet process kernel, or whose steps take some of its columns (more than 3e7 rows
        times columns times features).
    landmarks : int, "auto" or None, default="auto"
        Train on so many rows, place the others, then take a few steps over all (where every view is
        Gaussian); None trains on all rows throughout. "auto": 2,000 of more than 6,000 rows.
    truncation : float or "auto", default="auto"
        Share of a complete view's squares (singular values, smallest first) that training may leave
        out; the bound stays a bound, and ``elbo_`` is that of all columns. Views of up to 256
        columns keep all: there is little to gain. "auto": 0.05, 0 in more than 10 dimensions.
    latent : "shared" or dict, default="shared"
        {"shared": d, "private": {"view": d_v}}: d dimensions that all views see and d_v more that
        one view alone sees, in this order. The dict says D; ``n_components`` is then left out, or
        counts the shared dimensions where "shared" is not given. Private latents of a view that a
        row lacks stay at the prior.
    view_weight : None, "balanced" or dict of view to number, default=None
        Factors of the views' terms in training and placement, so that views of many columns do not
        drown small ones; "balanced": M / (V M_v), all views together weigh what they did. ``elbo_``
        is the bound without them, ``starts_`` and ``elbo_history_`` have what training maximises.
    noise : {"view", "column"}, default="view"
        One noise variance per Gaussian view, or one per column. Per column, training sees all
        columns: nothing is rotated away or truncated, and a step takes one eigendecomposition of
        the Gram matrix in place of a Cholesky factor. Not for kernels with a Dirichlet process.
    noise_variance : None, float or dict of view to float, default=None
        Of Gaussian views, in original units squared, kept as it is: where the error of measurement
        is known, or to see latents collapse as it grows (Li et al. 2024a). None, and views that a
        dict leaves out: learned.
    device : str, default="auto"
        A torch device for training; what is fitted lies on the processor. "auto" is the processor:
        fits of some thousand rows are small operations, which take a GPU several times as long.
    dtype : {"float32", "float64"}, default="float32"
        Of products over rows; factorisations are float64 always, and so are products of counts
        beyond 10,000.
    checkpoint : path, optional
        File that training writes now and then, and continues from when it is there; removed at the
        end.
    random_state : int, RandomState instance or None, default=None
        Same seed, same result; None draws afresh.
    verbose : int, default=0
        1 shows a progress bar where standard error is a terminal, and in notebooks that have
        ipywidgets. The log "bochner" (INFO) has a line as a phase begins and every 30 seconds,
        whatever ``verbose``.

    Attributes
    ----------
    embedding_ : ndarray of shape (N, D)
        ``transform`` of the training rows.
    embedding_std_ : ndarray of shape (N, D)
        Standard deviations of the latents. Of more than 5,000 rows they are found when they are
        first asked for, or the model is saved or copied; until then it holds X.
    elbo_, elbo_se_ : float
        The bound on log p(X) over 32 fresh draws (8 of more than 10,000 rows, or where a view is
        not Gaussian or has scattered holes) and its standard error, nats, original units.
    elbo_history_ : ndarray of shape (n_iter_,)
        One draw a step. Until the learning rate decays, steps take half of the frequencies, in
        tables of fewer than 10 H rows one for every 20 rows, at least 16 and 1.25 D, and the bound
        rises when they become H; non-conjugate views have H throughout.
    n_iter_ : int
    converged_ : bool
        Whether the bound had converged before ``max_iter``.
    interrupted_ : bool
        Whether Ctrl-C ended training; the best state was kept.
    views_ : dict of str to ndarray of shape (M_v,)
        Numbers of the columns of X that every view has.
    likelihood_ : dict of str to str
        Name of the likelihood of every view.
    noise_variance_ : dict of str to float, or to ndarray of shape (M_v,) with ``noise="column"``
        Per Gaussian view, original units squared.
    predictive_noise_variance_ : dict of str to float or ndarray of shape (M_v,)
        That of predictions: larger where entries of scattered views that training went without say
        so.
    dispersion_, dispersion_moment_ : dict of str to number or ndarray of shape (M_v,)
        Per negative binomial view: r as learned, and as estimated by moments about the fitted
        means.
    kernels_ : dict of str to dict
        Learned kernel parameters per view, original units squared and radians per unit of latent.
    n_mixtures_, n_frequencies_ : int
        What "auto" became.
    starts_ : list of dict
        Name and bound of every start that raced, before and after its race, with as many
        frequencies as the race has. ``settled``: it began after training under the simplest
        kernels, and not where its embedding was. ``handicap``: nats by which its bound had to lead
        the others'.
    completion_ : dict of str to float or None
        How a row that lacks the view is completed, chosen on training rows: the exponent of its
        likelihood over the training latents, or None: by the row's own modes. Empty when there is
        one view.
    landmarks_ : dict or None
        n, the landmarks; elbo_placed and elbo_joint, the bound of all rows before and after the
        joint steps, on the columns of training.
    dropped_ : dict of str to float
        Share of the view's squares that training left out.
    withheld_ : dict of str to int
        Observed entries of the view that training went without, to see what noise predictions need;
        ``elbo_`` counts them, ``starts_`` and ``elbo_history_`` do not.
    relevance_ : ndarray of shape (V, D)
        Share of each view's variation along each dimension; rows sum to 1, 0 where a view does not
        see it.
    variance_explained_ : ndarray of shape (V, D)
        Share of the training data's variance that a view's prediction loses when the dimension is
        integrated out under its prior; of up to 5,000 rows, and of psi where a view is not
        Gaussian; 0 where a view has no variance.
    latent_dims_ : dict of str to tuple of int
        Dimensions that each view sees.
    collapse_ : CollapseReport
        Prints itself.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (M,)
        Where X has names.

    Notes
    -----
    Yang et al. (2025); docs/math.md, section 2. The views' kernels differ, the latents are shared.

    Examples
    --------
    >>> import bochner as bo
    >>> digits = bo.datasets.load_digits_halves()
    >>> model = bo.NGMVLVM(views=digits.views, max_iter=50, tol=1.0, random_state=0)
    >>> model = model.fit(digits.data[:100])
    >>> model.transform(digits.data[100:103]).shape
    (3, 2)
    """

    _kernel: ClassVar[type[SpectralKernel]] = NextGenSpectralMixture


@described_by(NGMVLVM)
class AdvisedRFLVM(LatentVariableEstimator):
    """The stationary sibling: spectral mixture kernels and a learned noise variance, which makes
    collapse rare.

    With ``views`` it is MV-ARFLVM.

    Notes
    -----
    Li et al. (2024a); docs/math.md, sections 2 and 6.
    """

    _kernel: ClassVar[type[SpectralKernel]] = SpectralMixture


@described_by(NGMVLVM)
class RandomFeatureLVM(LatentVariableEstimator):
    """The general model, of which the others are configurations: any kernel with a spectral density
    per view.

    Parameters
    ----------
    kernel : name, SpectralKernel, or dict of view to one of these, default="ng-sm"
        Names: "ng-sm", "sm", "rbf", "matern", "periodic", "rbf+periodic" (a sum;
        `bochner.kernels.SpectralSum` makes others). Parameters the kernel was given are where its
        training starts; those left at None are chosen.
    inference : {"variational"}, default="variational"
        How the model is fitted.
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **constraints.COMMON,
        "kernel": [StrOptions(set(_KERNELS)), SpectralKernel, dict],
        "inference": [StrOptions({"variational"})],
    }

    @shares_parameters(LatentVariableEstimator)
    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: object = "ng-sm",
        inference: str = "variational",
        **shared: object,
    ) -> None:
        super().__init__(n_components, **shared)  # type: ignore[arg-type]
        self.kernel = kernel
        self.inference = inference

    def _kernel_for(self, view: str) -> SpectralKernel:
        kernel = self.kernel
        if isinstance(kernel, dict):
            if view not in kernel:
                raise InputError(
                    message(
                        f"a kernel for view {view!r}",
                        f"kernels for {sorted(kernel)}",
                        "add it",
                    )
                )
            kernel = kernel[view]
        if isinstance(kernel, SpectralKernel):
            return kernel
        if kernel not in _KERNELS:
            raise InputError(
                message(f"kernel from {sorted(_KERNELS)}", repr(kernel), "correct it")
            )
        return _KERNELS[kernel]()
