"""Maps in two dimensions beside their peers, quality beside time: ``python benchmarks/peers.py``.

Processor seconds of one thread, every fit in a process of its own after a warm-up: NG-MVLVM with
defaults, principal components, t-SNE by scikit-learn and by openTSNE, UMAP, PaCMAP (each with its
defaults), and on tables of up to twenty columns the Bayesian GPLVM of GPy (30 inducing points,
L-BFGS until it stops) and of GPyTorch (25 inducing points, batches of 100 rows, 10,000 steps of
Adam at 0.01, as its tutorial has them). ``trust`` is trustworthiness of 12 neighbours. ``density``
is the log density of a withheld fifth of the rows under a second fit to the others, nats a row, of
methods that have one. CIFAR are 2,000 images of five classes. BOCHNER_DATA names the folder with
the data. No label is used for any choice.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from digits import accuracies
from digits import data_of as images
from harness import Job, Store, Value, apart, arguments, table
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE, trustworthiness
from sklearn.model_selection import train_test_split
from times import data_of, processor_seconds

import bochner as bo

Array = NDArray[np.float64]
COLUMNS = {
    "cpu": ".1f",
    "knn1": ".3f",
    "knn10": ".3f",
    "trust": ".3f",
    "density": ".2f",
    "elbo": ".0f",
}
NAMES = (
    "iris",
    "made",
    "oil",
    "MNIST 1,000",
    "digits",
    "CIFAR",
    "MNIST 5,000",
    "MNIST 10,000",
)
# Those of the library that a method needs, and the most rows and columns that it is given.
METHODS: dict[str, tuple[str, int, int]] = {
    "NG-MVLVM": ("bochner", 10_000, 784),
    "PCA": ("sklearn", 10_000, 784),
    "t-SNE": ("sklearn", 10_000, 784),
    "openTSNE": ("openTSNE", 10_000, 784),
    "UMAP": ("umap", 10_000, 784),
    "PaCMAP": ("pacmap", 10_000, 784),
    "BGPLVM, GPy": ("GPy", 1_000, 20),
    "BGPLVM, GPyTorch": ("gpytorch", 1_000, 20),
}
# Fits to fewer rows tell of density; beyond, one fit a row of the table is enough.
MOST_FOR_DENSITY = 2_000


def data(name: str, seed: int) -> tuple[Array, NDArray[Any]]:
    """Return rows and labels; subsets are drawn by the seed."""
    if name == "CIFAR":
        return images(name, seed)
    bunch = data_of(name, seed)
    return np.asarray(bunch.data, float), np.asarray(bunch.target)


def ours(X: Array, seed: int, quick: bool) -> Any:
    """Fit NG-MVLVM."""
    return bo.NGMVLVM(random_state=seed, max_iter=60 if quick else "auto").fit(X)


def by_name(method: str, X: Array, seed: int, quick: bool) -> Array:
    """Return a map by a method that is not ours."""
    if method == "PCA":
        return np.asarray(PCA(2, random_state=seed).fit_transform(X))
    if method == "t-SNE":
        return np.asarray(TSNE(random_state=seed).fit_transform(X))
    if method == "openTSNE":
        import openTSNE

        return np.asarray(openTSNE.TSNE(random_state=seed, n_jobs=1).fit(X))
    if method == "UMAP":
        from umap import UMAP

        return np.asarray(UMAP(random_state=seed).fit_transform(X))
    if method == "PaCMAP":
        from pacmap import PaCMAP

        return np.asarray(PaCMAP(random_state=seed).fit_transform(X.astype(np.float32)))
    return gpy(X, seed, quick) if method == "BGPLVM, GPy" else gpytorch_map(X, seed, quick)


def gpy(X: Array, seed: int, quick: bool) -> Array:
    """Return the latents of GPy's model, data in units of one standard deviation."""
    import GPy

    np.random.seed(seed)  # GPy draws from NumPy's own generator
    model = GPy.models.BayesianGPLVM((X - X.mean(0)) / X.std(), 2, num_inducing=30)
    model.optimize("lbfgs", max_iters=20 if quick else 1000)
    return np.asarray(model.X.mean)


def gpytorch_map(X: Array, seed: int, quick: bool) -> Array:
    """Return the latents of GPyTorch's model, one Gaussian process per column."""
    import torch
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.kernels import RBFKernel, ScaleKernel
    from gpytorch.likelihoods import GaussianLikelihood
    from gpytorch.means import ZeroMean
    from gpytorch.mlls import VariationalELBO
    from gpytorch.models.gplvm.bayesian_gplvm import BayesianGPLVM
    from gpytorch.models.gplvm.latent_variable import VariationalLatentVariable
    from gpytorch.priors import NormalPrior
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    torch.manual_seed(seed)  # in a process of its own
    Y = torch.as_tensor((X - X.mean(0)) / X.std(), dtype=torch.float32)
    n, m = Y.shape

    class Model(BayesianGPLVM):
        def __init__(self) -> None:
            of_columns = torch.Size([m])
            inducing = torch.randn(m, 25, 2)
            q_u = CholeskyVariationalDistribution(25, batch_shape=of_columns)
            q_f = VariationalStrategy(self, inducing, q_u, learn_inducing_locations=True)
            start = torch.nn.Parameter(torch.as_tensor(PCA(2).fit_transform(Y)).float())
            prior = NormalPrior(torch.zeros(n, 2), torch.ones(n, 2))
            super().__init__(VariationalLatentVariable(n, m, 2, start, prior), q_f)
            self.mean_module = ZeroMean(ard_num_dims=2)
            self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=2))

        def forward(self, latents: Any) -> Any:
            return MultivariateNormal(self.mean_module(latents), self.covar_module(latents))

    model, likelihood = Model(), GaussianLikelihood(batch_shape=torch.Size([m]))
    loss = VariationalELBO(likelihood, model, num_data=n)
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.01)
    source = np.random.default_rng(seed)
    for _ in range(20 if quick else 10_000):
        rows = np.sort(source.choice(n, min(100, n), replace=False))
        optimiser.zero_grad()
        output = model(model.sample_latent_variable()[rows])
        (-loss(output, Y[rows].T).sum()).backward()
        optimiser.step()
    return model.X.q_mu.detach().double().numpy()


def measure_here(name: str, method: str, seed: int, quick: bool) -> dict[str, Value]:
    """Fit a method in this process, after a warm-up on few rows."""
    X, labels = data(name, seed)
    fit: Callable[[Array, bool], Any]
    fit = (
        partial(ours, seed=seed)
        if method == "NG-MVLVM"
        else lambda rows, quick: by_name(method, rows, seed, quick)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not method.startswith("BGPLVM"):  # minutes, to save what is less than a second
            fit(X[:150], quick=True)
        done, seconds = processor_seconds(lambda: fit(X, quick=quick))
        Z = done.embedding_ if method == "NG-MVLVM" else done
        row: dict[str, Value] = {"cpu": seconds, **accuracies(Z, labels)}
        row["trust"] = float(trustworthiness(X, Z, n_neighbors=12))
        if method == "NG-MVLVM":
            row["elbo"] = float(done.elbo_)
        if len(X) <= MOST_FOR_DENSITY and method in ("NG-MVLVM", "PCA"):
            known, new = train_test_split(X, test_size=0.2, random_state=seed)
            model = ours(known, seed, quick) if method == "NG-MVLVM" else PCA(2).fit(known)
            row["density"] = float(model.score(new))
    return row


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all data and who can be asked there, seed by seed."""
    for seed in seeds:
        for name in NAMES[:1] if quick else NAMES:
            X, _ = data(name, seed)
            for method, (package, most_rows, most_columns) in METHODS.items():
                missing = importlib.util.find_spec(package) is None
                if missing or len(X) > most_rows or X.shape[1] > most_columns:
                    continue
                work = partial(apart, measure_here, name, method, seed, quick)
                yield Job(name, method, seed, work)


def main() -> None:
    options = arguments(__doc__, seeds=1)
    store = Store("peers", tuple(COLUMNS), options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
