"""Random data in random containers, and random estimators: all of a case follows from its seed."""

import importlib.util
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch

import bochner as bo
from bochner import kernels

MODELS = ("NGMVLVM", "AdvisedRFLVM", "RandomFeatureLVM", "SRFLVM", "RFLVM")
MAPS = ("FourierFeatures", "KreinFeatures", "RandomMaclaurin", "SphericalFeatures")
LIKELIHOODS = (
    "gaussian",
    "bernoulli",
    "poisson",
    "negative_binomial",
    "binomial",
    "categorical",
)
# Containers that hold every value, and those that round, or that hold no holes.
ANY = ("float64", "fortran", "strided", "readonly", "big-endian", "list", "object", "frame",
       "reversed", "decimals", "two-level frame", "repeated index")  # fmt: skip
FRAMES = ("frame", "nullable frame", "two-level frame", "repeated index", "polars")
SPARSE = ("csr", "csc", "coo", "bsr", "lil", "dok")
# What tables of one order lack: parts of another order of magnitude, and shapes of their own.
STRANGE = ("row", "rows", "column", "entry", "flat", "one value", "copies")
# Rows of the few large tables: more than placement and training take at once.
LARGE = (2_100, 8_300)


@dataclass
class Case:
    """One trial.

    Attributes
    ----------
    name : str
        Of the estimator.
    options : dict
        Its parameters.
    values : ndarray of shape (N, M)
        The data, NaN where missing.
    container : str
        How they are handed over.
    words : dict
        What was drawn, for the line that reports a fault.
    """

    name: str
    options: dict
    values: np.ndarray
    container: str
    words: dict = field(default_factory=dict)

    def estimator(self):
        """Return it, not fitted."""
        return getattr(bo, self.name)(**self.options)

    def pack(self, values):
        """Return values in the case's container."""
        return CONTAINERS[self.container](values)


def _strided(values):
    wide = np.full((2 * values.shape[0], 3 * values.shape[1]), -7.0)
    wide[::2, ::3] = values
    return wide[::2, ::3]


def _readonly(values):
    copied = values.copy()
    copied.flags.writeable = False
    return copied


def _frame(values):
    return pd.DataFrame(values, columns=[f"c{j}" for j in range(values.shape[1])])


def _masked(values):
    hidden = np.isnan(values)
    return np.ma.masked_array(np.where(hidden, -999.0, values), hidden)


def _decimals(values):
    return [[Decimal(repr(value)) for value in row] for row in values.tolist()]


def _two_levels(values):
    names = [("odd" if j % 2 else "even", j) for j in range(values.shape[1])]
    return pd.DataFrame(values, columns=pd.MultiIndex.from_tuples(names))


def _repeated_index(values):
    return _frame(values).set_axis(np.arange(len(values)) // 2)


def _polars(values):
    import polars

    return polars.DataFrame({f"c{j}": column for j, column in enumerate(values.T.copy())})


CONTAINERS = {
    "float64": lambda values: values.copy(),
    "float32": lambda values: values.astype(np.float32),
    "fortran": np.asfortranarray,
    "strided": _strided,
    "readonly": _readonly,
    "big-endian": lambda values: values.astype(">f8"),
    "list": lambda values: values.tolist(),
    "object": lambda values: values.astype(object),
    "frame": _frame,
    "nullable frame": lambda values: _frame(values).convert_dtypes(),
    "masked": _masked,
    "csr": sp.csr_matrix,
    "csc": sp.csc_array,
    "coo": sp.coo_array,
    "bsr": sp.bsr_array,
    "lil": sp.lil_matrix,
    "dok": sp.dok_array,
    "reversed": lambda values: values[::-1, ::-1].copy()[::-1, ::-1],
    "decimals": _decimals,
    "two-level frame": _two_levels,
    "repeated index": _repeated_index,
    "polars": _polars,
    "float16": lambda values: values.astype(np.float16),
    "uint8": lambda values: values.astype(np.uint8),
    "bool": lambda values: values.astype(bool),
    "int64": lambda values: values.astype(np.int64),
    "torch": lambda values: torch.from_numpy(values.copy()),
}


def _one(source, words, p=None):
    return str(source.choice(words, p=p))


def _signal(source, n, m):
    latents = source.normal(size=(n, 2))
    noise = 10.0 ** source.uniform(-4, 0)
    values = np.sin(latents @ source.normal(size=(2, m))) + noise * source.normal(size=(n, m))
    kind = _one(source, ["smooth", "heavy", "constant column", "repeated rows", "outlier", "zero"],
                [0.6, 0.1, 0.1, 0.08, 0.08, 0.04])  # fmt: skip
    if kind == "heavy":
        values = source.standard_cauchy(size=(n, m))
    elif kind == "constant column":
        values[:, source.integers(m)] = source.normal()
    elif kind == "repeated rows":
        values = values[source.integers(0, max(1, n // 3), n)]
    elif kind == "outlier":
        values[source.integers(n), source.integers(m)] = 1e6
    elif kind == "zero":
        values = np.zeros((n, m))
    return values, kind


def _real(source, n, m):
    values, kind = _signal(source, n, m)
    scale = 10.0 ** (
        source.uniform(-30, 30) if source.random() < 0.5 else source.uniform(-3, 3)
    )
    shift = source.choice([0.0, 1.0, 1e3]) * scale
    return values * scale + shift, f"{kind}, scale {scale:.1e}, shift {shift:.1e}"


def _of_likelihood(source, name, n, m):
    """Draw data that a likelihood takes."""
    if name == "gaussian":
        return _real(source, n, m)
    values, kind = _signal(source, n, m)
    rate = np.exp(np.clip(values, -5, 5)) * 10.0 ** source.uniform(-1.5, 6 * source.random())
    if name == "bernoulli":
        return (values > np.quantile(values, source.uniform(0.05, 0.95))).astype(float), kind
    if name == "categorical":
        return np.clip(np.round(values * 1.5 + 2), 0, 5).astype(float), kind
    if name == "binomial":
        return source.binomial(10, 1 / (1 + np.exp(-np.clip(values, -30, 30)))).astype(
            float
        ), kind
    if name == "negative_binomial":
        rate = rate * source.gamma(2.0, 0.5, size=rate.shape)
    return source.poisson(np.minimum(rate, 1e9)).astype(
        float
    ), f"{kind}, rate {rate.mean():.1e}"


def _strange(source, values, likelihood):
    """Change a view to what random tables are not; return it and what was done."""
    kind = _one(source, STRANGE, [0.3, 0.15, 0.15, 0.2, 0.07, 0.05, 0.08])
    n, m = values.shape
    if kind == "one value":
        return np.tile(values[:1], (n, 1)), kind
    if kind == "copies":
        return values[np.arange(n) // 2], kind
    if kind == "flat" and likelihood == "gaussian":
        wide = np.linalg.qr(source.normal(size=(max(n, m), min(n, m))))[0]
        return (wide if n >= m else wide.T) * max(np.abs(values).max(), 1e-30), kind
    if kind == "flat" or likelihood not in ("gaussian", "poisson", "negative_binomial"):
        return values, ""
    return _of_another_order(source, values, kind, counts=likelihood != "gaussian")


def _of_another_order(source, values, kind, counts):
    """Multiply a part of a view by 1e4 to 1e12, or divide it."""
    n, m = values.shape
    part = {
        "row": np.ix_([source.integers(n)], np.arange(m)),
        "rows": np.ix_(source.integers(0, n, 3), np.arange(m)),
        "column": np.ix_(np.arange(n), [source.integers(m)]),
        "entry": np.ix_([source.integers(n)], [source.integers(m)]),
    }[kind]
    size = 10.0 ** source.uniform(4, 12)
    # numbers stay within the range that is documented
    if not counts and (source.random() < 0.3 or np.abs(values).max() > 1e18):
        size = 1.0 / size
    values[part] *= size
    values = np.minimum(np.round(values), 1e12) if counts else values
    return values, f"{kind} times {size:.0e}"


def _holes(source, values, views, kind=""):
    kind = kind or _one(source, ["none", "few", "many", "empty rows", "views", "pattern"],
                [0.4, 0.2, 0.1, 0.1, 0.1, 0.1])  # fmt: skip
    n, m = values.shape
    whole = values.copy()
    if kind in ("few", "many"):
        values[source.random((n, m)) < (0.05 if kind == "few" else 0.4)] = np.nan
    elif kind == "empty rows":
        values[source.random(n) < 0.1] = np.nan
    elif kind == "views" and views:
        for columns in views.values():
            values[np.ix_(source.random(n) < 0.3, np.arange(m)[columns])] = np.nan
    elif kind == "pattern":
        values[: n // 2, : m // 3] = np.nan
    if kind != "empty rows":  # which are placed at the prior
        kept = np.isnan(values).all(axis=1), source.integers(m)
        values[kept] = whole[kept]
    return kind


def case_of(seed):
    """Return the case of a seed."""
    source = np.random.default_rng([40, seed])
    if source.random() < 0.16:
        return _map_case(source)
    name = _one(source, MODELS, [0.36, 0.18, 0.24, 0.18, 0.04])
    n = int(source.choice([source.integers(2, 8), source.integers(8, 25)], p=[0.15, 0.85]))
    n_views = int(source.choice([1, 2, 3], p=[0.7, 0.22, 0.08]))
    size = np.random.default_rng([41, seed])
    large = size.random() < 0.03
    if large:
        n, n_views = int(size.integers(*LARGE)), int(size.integers(1, 4))
        name = "NGMVLVM" if name == "RFLVM" else name
    widths = [int(source.integers(1, 6)) for _ in range(n_views)]
    odd = np.random.default_rng([42, seed])
    if odd.random() < 0.04 and not large:
        n, widths = int(odd.integers(2, 6)), [int(odd.integers(30, 150)) for _ in widths]
    edges = np.cumsum([0, *widths])
    names = ["a", "b", "c"][:n_views]
    views = {view: slice(int(edges[v]), int(edges[v + 1])) for v, view in enumerate(names)}
    likelihoods, parts, words = {}, [], {}
    for view, width in zip(names, widths, strict=True):
        likelihoods[view] = _one(source, LIKELIHOODS, [0.72, 0.08, 0.08, 0.05, 0.035, 0.035])
        part, words[view] = _of_likelihood(source, likelihoods[view], n, width)
        if odd.random() < 0.35:
            part, how = _strange(odd, part, likelihoods[view])
            words[view] += f", {how}" * bool(how)
        parts.append(part)
    values = np.hstack(parts)
    of_views = large and n_views > 1 and size.random() < 0.6
    words["holes"] = _holes(source, values, views if n_views > 1 else None, "views" * of_views)
    options = _options(source, name, values, names, likelihoods)
    if large:
        options |= {
            "max_iter": int(size.integers(1, 4)),
            "n_frequencies": int(size.integers(1, 4)),
        }
        options |= {"landmarks": int(size.integers(10, 600))} if size.random() < 0.5 else {}
    if odd.random() < 0.12 and "latent" not in options:
        options["n_components"] = 5
    if n_views > 1:
        options["views"] = views
    gaussian = set(likelihoods.values()) == {"gaussian"}
    options["likelihood"] = "gaussian" if gaussian else likelihoods
    if n_views == 1 and not gaussian:
        options["likelihood"] = likelihoods["a"]
        if source.random() < 0.1:
            options["likelihood"] = "auto"
    container = _container(source, values)
    return Case(name, options, values, container, {**words, "shape": values.shape,
                                                   "container": container})  # fmt: skip


def _container(source, values):
    if source.random() < 0.35:
        return "float64"
    known = [*ANY, "nullable frame", "masked"]
    known += ["polars"] if importlib.util.find_spec("polars") else []
    largest = np.nanmax(np.abs(values), initial=0.0)
    if np.isfinite(values).all():
        known += [*SPARSE, "torch"]
        if (values == np.round(values)).all() and largest < 2**53:
            known.append("int64")
            known += ["uint8"] if values.min() >= 0 and largest < 256 else []
            known += ["bool"] if values.min() >= 0 and largest < 2 else []
    if largest < 1e37:
        known.append("float32")
    if 1e-3 < largest < 6e4:
        known.append("float16")
    return _one(source, known)


def _options(source, name, values, names, likelihoods):
    long = source.random() < 0.72
    options = {
        "n_components": int(source.choice([1, 2, 3, 4], p=[0.25, 0.45, 0.2, 0.1])),
        "max_iter": int(source.integers(100, 102) if long else source.integers(1, 12)),
        "tol": float(source.choice([0.0, 1e-4]))
        if long and source.random() < 0.85
        else "auto",
        "n_frequencies": int(source.integers(1, 9)),
        "n_mixtures": int(source.integers(1, 4)),
        "sampling": _one(source, ["auto", "iid", "orthogonal", "sobol"]),
        "init": _one(source, ["pca", "random", "auto"], [0.7, 0.25, 0.05]),
        "dtype": _one(source, ["float32", "float64"], [0.7, 0.3]),
        "noise": _one(source, ["view", "column"], [0.8, 0.2]),
        "random_state": int(source.integers(2**31)),
    }
    if source.random() < 0.3:
        options["learning_rate"] = float(10.0 ** source.uniform(-4, 0))
    if source.random() < 0.15:
        options["landmarks"] = int(source.integers(2, 30))
    if source.random() < 0.2:
        options["truncation"] = float(source.choice([0.0, 0.01, 0.2]))
    if len(names) > 1 and source.random() < 0.3:
        options["view_weight"] = "balanced"
    if len(names) > 1 and source.random() < 0.25:
        options["latent"] = {"shared": 1, "private": {names[0]: 1}}
        options["n_components"] = 2
    if name in ("SRFLVM", "RFLVM") and source.random() < 0.9:
        options["noise"] = "view"
    if name == "RandomFeatureLVM":
        options["kernel"] = KERNELS[_one(source, sorted(KERNELS))]
    if name == "RFLVM":
        options |= {"n_chains": 1, "n_warmup": 3, "n_draws": 4, "thin": 1, "max_iter": 10}
        options |= {"n_frequencies": 4}
        options.pop("landmarks", None)
    return options


KERNELS = {
    **{name: name for name in ("ng-sm", "sm", "rbf", "matern", "periodic", "rbf+periodic")},
    "RBF object": kernels.RBF(lengthscale=0.7),
    "Matern object": kernels.Matern(nu=0.5),
}


def _map_case(source):
    name = _one(source, MAPS)
    n, m = int(source.integers(1, 60)), int(source.integers(1, 12))
    values, words = _real(source, n, m)
    options = {
        "n_components": int(2 * source.integers(1, 30)),
        "random_state": int(source.integers(2**31)),
    }
    if name == "FourierFeatures":
        chosen = _one(source, ["rbf", "RBF object", "Matern object"])
        options["kernel"] = KERNELS[chosen]
        options["sampling"] = _one(source, ["iid", "orthogonal", "sobol"])
    elif name == "KreinFeatures":
        options["kernel"] = _one(source, ["polynomial", "tl1", "tanh", "hellinger"])
        options["inference"] = _one(source, ["best", "gradient", "taylor", "spectral"])
        options["max_iter"] = int(source.choice([5, 100]))
        if options["kernel"] == "hellinger":
            values = np.abs(values)
        if options["kernel"] == "tl1" and source.random() < 0.9:
            values = source.uniform(size=values.shape)
    container = _one(source, [*ANY, "torch"])
    return Case(name, options, values, container, {"values": words, "shape": (n, m),
                                                   "container": container})  # fmt: skip
