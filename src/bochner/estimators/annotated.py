"""Fit to AnnData and MuData, and write what was found beside the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bochner.data.accepted import FLAG, checked, in_order_of
from bochner.data.arrays import FloatArray
from bochner.data.columns import listing
from bochner.data.validation import check_shared_rows
from bochner.errors import InputError, message
from bochner.estimators.base import LatentVariableEstimator
from bochner.estimators.lvm import NGMVLVM, AdvisedRFLVM, RandomFeatureLVM
from bochner.estimators.rflvm import RFLVM
from bochner.estimators.srflvm import SRFLVM
from bochner.extras import require, versions
from bochner.io.annotated import check_anndata, check_mudata, from_anndata, from_mudata
from bochner.io.table import Table

if TYPE_CHECKING:
    from anndata import AnnData
    from mudata import MuData

MODELS: dict[str, type[LatentVariableEstimator]] = {
    "ng-mvlvm": NGMVLVM,
    "advised-rflvm": AdvisedRFLVM,
    "random-feature-lvm": RandomFeatureLVM,
    "srflvm": SRFLVM,
    "rflvm": RFLVM,
}


_KEYS: dict[str, list[object]] = {
    "covariate_keys": [str, "array-like", None],
    "key_added": [str],
    "overwrite": [FLAG],
}


@checked(**_KEYS)
def fit_anndata(
    adata: object,
    estimator: LatentVariableEstimator | str | None = None,
    *,
    layer: str | None = None,
    mask_var: object = None,
    use_rep: str | None = None,
    likelihood: object = None,
    size_factors: object = None,
    batch_key: str | None = None,
    covariate_keys: Sequence[str] | None = (),
    key_added: str = "bochner",
    overwrite: bool = False,
    **params: object,
) -> LatentVariableEstimator:
    """Fit a latent variable model to an AnnData and write the latents into it.

    Parameters
    ----------
    adata : AnnData
        Dense or sparse, in memory or backed. A subset (a view of another AnnData) becomes a copy
        when it is written to, as AnnData has it, and the whole stays as it was.
    estimator : estimator, name or None
        An estimator of this package, fitted in place; "ng-mvlvm", "advised-rflvm",
        "random-feature-lvm", "srflvm" or "rflvm"; None is "ng-mvlvm".
    layer : str, optional
        Layer to fit instead of ``adata.X``, such as the one with counts.
    mask_var : str or array of bool, optional
        Variables to fit: a column of ``adata.var``, such as ``"highly_variable"``, or a mask.
    use_rep : str, optional
        Key of ``adata.obsm`` to fit instead of variables.
    likelihood : str, Likelihood or dict of view to one, optional
        As in the estimators.
    size_factors : str or array-like of shape (N,), or dict of view to one, optional
        A column of ``adata.obs``, or the factors.
    batch_key : str, optional
        A column of ``adata.obs`` with labels, numbers among them, whose effects are kept out of the
        latents.
    covariate_keys : sequence of str, optional
        Further columns of ``adata.obs``: numbers are continuous, categories and texts are labels.
    key_added : str
        Writes ``obsm["X_" + key_added]`` (N, D), ``obsm["X_" + key_added + "_std"]`` (N, D) and
        ``uns[key_added]``.
    overwrite : bool
        Replace these keys where they exist.
    **params
        Parameters of the estimator, such as ``n_components=10``.

    Returns
    -------
    estimator
        Fitted; ``transform`` takes a DataFrame with the same columns: ``new.to_df(layer)``.

    Raises
    ------
    InputError
        A key that exists (said before the fit), no such layer, column or parameter, or data that
        cannot be fitted.

    Notes
    -----
    ``uns[key_added]``: model, settings (JSON text), elbo, elbo_se, n_iter, converged, views,
    likelihoods, relevance (V, D) and versions; it survives ``write_h5ad``.
    """
    check_anndata(adata)
    _check_keys(adata, key_added, overwrite, "adata")
    table = from_anndata(adata, layer, mask_var, use_rep)
    size_factors = _factors(adata, size_factors, table.row_names, "adata")
    model = _model(estimator, likelihood, params)
    source = {
        "layer": layer,
        "use_rep": use_rep,
        "mask_var": mask_var if isinstance(mask_var, str) else None,
    }
    covariates = covariates_in(adata, batch_key, covariate_keys, table.row_names)
    return _fit_and_write(adata, model, table, (size_factors, covariates), key_added, source)


@checked(**_KEYS, modalities=[str, "array-like", None])
def fit_mudata(
    mdata: object,
    estimator: LatentVariableEstimator | str | None = None,
    *,
    layer: object = None,
    mask_var: object = None,
    modalities: Sequence[str] | None = None,
    likelihood: object = None,
    size_factors: object = None,
    batch_key: str | None = None,
    covariate_keys: Sequence[str] | None = (),
    key_added: str = "bochner",
    overwrite: bool = False,
    **params: object,
) -> LatentVariableEstimator:
    """Fit a latent variable model to a MuData, modalities as views, and write the latents into it.

    Parameters
    ----------
    mdata : MuData
        Rows may be absent from modalities: they are placed by what they have, with the standard
        deviation that remains.
    estimator : estimator, name or None
        As in `fit_anndata`.
    layer, mask_var : as in `fit_anndata`, or dict of modality to one, optional
    modalities : sequence of str, optional
        Which to fit; all by default.
    likelihood : str, Likelihood or dict of modality to one, optional
    size_factors : str or array-like of shape (N,), or dict of modality to one, optional
        A column of ``mdata.obs``, or the factors in the row order of ``mdata``.
    batch_key : str, optional
        A column of ``mdata.obs`` with labels, numbers among them, whose effects are kept out of the
        latents.
    covariate_keys : sequence of str, optional
        Further columns of ``mdata.obs``: numbers are continuous, categories and texts are labels.
    key_added, overwrite, **params : as in `fit_anndata`
        The keys are written to ``mdata.obsm`` and ``mdata.uns``, in the row order of ``mdata``; NaN
        where none of the modalities has a row.

    Returns
    -------
    estimator
        Fitted; its views are the modalities.

    Raises
    ------
    InputError
        As `fit_anndata`, and when modalities share no row.
    """
    check_mudata(mdata)
    _check_keys(mdata, key_added, overwrite, "mdata")
    modalities = [modalities] if isinstance(modalities, str) else modalities
    table = from_mudata(mdata, layer, mask_var, modalities)
    # here, where rows have names; a fit looks again
    check_shared_rows(table.X, table.views or {}, table.row_names)
    model = _model(estimator, likelihood, params)
    model.set_params(views=table.views)
    size_factors = _factors(mdata, size_factors, table.row_names, "mdata")
    source = {
        "layer": layer,
        "modalities": modalities,
        "mask_var": mask_var if isinstance(mask_var, str) else None,
    }
    covariates = covariates_in(mdata, batch_key, covariate_keys, table.row_names, "mdata")
    return _fit_and_write(mdata, model, table, (size_factors, covariates), key_added, source)


def covariates_in(
    container: AnnData | MuData,
    batch_key: str | None,
    covariate_keys: Sequence[str] | None,
    rows: Sequence[str] | None,
    place: str = "adata",
) -> object:
    """Return columns of obs as covariates of some rows, the first of them as labels; None where
    none is asked for.

    Parameters
    ----------
    container : AnnData or MuData
    batch_key : str or None
    covariate_keys : sequence of str or None
    rows : sequence of str, optional
        Names; None: all rows.
    place : str
        What the container is called in messages.

    Raises
    ------
    InputError
        No such column.
    """
    given = () if covariate_keys is None else covariate_keys
    keys = [given] if isinstance(given, str) else [*given]
    keys = [*([] if batch_key is None else [batch_key]), *keys]
    if not keys:
        return None
    for number, key in enumerate(keys):
        _check_column(container, key, "batch_key and covariate_keys", place)
        if key in keys[:number]:
            do = "name it once, as batch_key if its numbers are labels"
            raise InputError(message("every column of obs once", f"{key!r} twice", do))
    frame = _obs(container, rows)[keys]
    return frame if batch_key is None else frame.astype({batch_key: "category"})


def _check_keys(container: AnnData | MuData, key: str, overwrite: bool, place: str) -> None:
    if not key or "/" in key:
        do = "choose one such as 'bochner'"
        raise InputError(message("key_added without a slash, not empty", repr(key), do))
    if overwrite:
        return
    taken = [f"obsm[{name!r}]" for name in _keys(key) if name in container.obsm]
    taken += [f"uns[{key!r}]"] if key in container.uns else []
    if taken:
        do = "write overwrite=True to replace it, or another key_added"
        raise InputError(message(f"free keys in {place}", f"{listing(taken)} from before", do))


def _keys(key: str) -> tuple[str, str]:
    return f"X_{key}", f"X_{key}_std"


def _check_column(
    container: AnnData | MuData, column: str, option: str, place: str = "adata"
) -> None:
    if not isinstance(column, Hashable) or column not in container.obs:
        known = listing([repr(str(name)) for name in container.obs.columns]) or "no columns"
        do = f"choose {option} from them, or pass an array"
        do = do if option == "size_factors" else f"choose {option} from them"
        raise InputError(message(f"{column!r} in {place}.obs", known, do))


def _obs(container: AnnData | MuData, rows: Sequence[str] | None) -> Any:
    """Return rows of obs under their names as text: where obs has numbers for names, too."""
    obs = container.obs.set_axis([str(name) for name in container.obs.index])
    return obs if rows is None else obs.loc[list(rows)]


def _factors(
    container: AnnData | MuData, given: object, rows: Sequence[str] | None, place: str
) -> object:
    """Return size factors of some rows: columns of obs where they are named."""
    if isinstance(given, Mapping):
        return {view: _factors(container, one, rows, place) for view, one in given.items()}
    obs = _obs(container, rows)
    if isinstance(given, str):
        _check_column(container, given, "size_factors", place)
        return obs[given]
    return in_order_of(obs.index, "size_factors", given, f"{place}.obs_names")


def _model(
    estimator: object, likelihood: object, params: Mapping[str, object]
) -> LatentVariableEstimator:
    if isinstance(estimator, str) and estimator.lower() not in MODELS:
        raise InputError(
            message(
                f"an estimator, or one of {', '.join(MODELS)}", repr(estimator), "choose one"
            )
        )
    model: Any = estimator
    if estimator is None or isinstance(estimator, str):
        model = MODELS[(estimator or "ng-mvlvm").lower()]()
    if not isinstance(model, LatentVariableEstimator):
        got = f"an object of type {type(model).__name__}"
        raise InputError(
            message(
                f"an estimator, or one of {', '.join(MODELS)}",
                got,
                "pass bochner.NGMVLVM(...)",
            )
        )
    given = dict(params) if likelihood is None else {**params, "likelihood": likelihood}
    unknown = [repr(name) for name in given if name not in model.get_params(deep=False)]
    if unknown:
        known = listing(sorted(model.get_params(deep=False)))
        got = f"unknown {listing(unknown)}"
        raise InputError(
            message(f"parameters of {type(model).__name__}", got, f"choose from {known}")
        )
    return model.set_params(**given)  # type: ignore[no-any-return]


def _fit_and_write(
    container: AnnData | MuData,
    model: LatentVariableEstimator,
    table: Table,
    known: tuple[object, object],
    key: str,
    source: Mapping[str, object],
) -> LatentVariableEstimator:
    pandas = require("pandas", "names the columns of AnnData")
    X = pandas.DataFrame(table.X, index=table.row_names, columns=table.column_names)
    model.fit(X, size_factors=known[0], covariates=known[1])
    place = _in_order(table.row_names or [], [str(name) for name in container.obs_names])
    for name, values in zip(_keys(key), (model.embedding_, model.embedding_std_), strict=True):
        container.obsm[name] = place(values)
    container.uns[key] = summary(model, source)
    return model


def _in_order(rows: list[str], wanted: list[str]) -> Callable[[FloatArray], FloatArray]:
    """Return a function that puts results in the row order of a container."""
    position = {name: i for i, name in enumerate(rows)}
    index = np.array([position.get(name, -1) for name in wanted])

    def place(values: FloatArray) -> FloatArray:
        out: FloatArray = values[index]
        out[index < 0] = np.nan
        return out

    return place


def summary(model: LatentVariableEstimator, source: Mapping[str, object]) -> dict[str, object]:
    """Describe a fitted model in plain values: no key is a name of the user's, for HDF5 reads "/"
    as a folder.
    """
    settings = {
        name: value if _plain(value) else repr(value)
        for name, value in model.get_params(deep=False).items()
    }
    return {
        "model": type(model).__name__,
        "settings": json.dumps(settings),
        "source": json.dumps(
            {name: value for name, value in source.items() if value is not None}, default=str
        ),
        "elbo": float(model.elbo_),
        "elbo_se": float(model.elbo_se_),
        "n_iter": int(model.n_iter_),
        "converged": bool(model.converged_),
        "n_components": int(model.embedding_.shape[1]),
        "views": list(model.views_),
        "likelihoods": [model.likelihood_[view] for view in model.views_],
        "relevance": model.relevance_.astype(float).tolist(),
        "seed": int(model.seed_),
        "versions": versions(),
    }


def _plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _plain(item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return all(_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
