"""From files to results, as three users go: a biologist, an analyst, an engineer."""

import csv
import os
import warnings

import numpy as np
import pandas as pd
import pytest

import bochner as bo
from helpers.cli import replied, write

SMALL = [
    "--set",
    "n_components=2",
    "--set",
    "n_frequencies=10",
    "--set",
    "n_init=1",
    "--set",
    "max_iter=15",
]


@pytest.mark.skipif(
    not os.environ.get("BOCHNER_DATA"),
    reason="BOCHNER_DATA names no folder with the real files",
)
@pytest.mark.usefixtures("few_draws", "two_folds")
def test_a_biologist_with_a_mudata_file(tmp_path):
    """Breast TCGA: 150 samples with three views, 70 without protein."""
    anndata = pytest.importorskip(
        "anndata", reason="anndata is not installed: pip install 'bochner[anndata]'"
    )
    mudata = pytest.importorskip(
        "mudata", reason="mudata is not installed: pip install 'bochner[anndata]'"
    )
    data = bo.datasets.load_breast_tcga()
    rows = [f"s{i}" for i in range(150)]
    columns = np.array(data.feature_names)
    with pd.option_context("future.infer_string", False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = {}
        for view, columns_of_view in data.views.items():
            more = data.get(
                f"{view}_test", np.empty((0, columns_of_view.stop - columns_of_view.start))
            )
            named = pd.DataFrame(index=[*rows, *(f"t{i}" for i in range(len(more)))])
            X = np.vstack([data.data[:, columns_of_view], more])
            parts[view] = anndata.AnnData(
                X, obs=named, var=pd.DataFrame(index=columns[columns_of_view])
            )
        mudata.MuData(parts).write(tmp_path / "tcga.h5mu")
    reply = replied(
        "fit",
        tmp_path / "tcga.h5mu",
        "--model",
        "ng-mvlvm",
        "--out",
        tmp_path / "run",
        "--seed",
        0,
        *SMALL,
    )
    assert reply["n_iter"] == 15
    model = bo.load(tmp_path / "run" / "model.bochner")
    assert {view: columns_of_view.size for view, columns_of_view in model.views_.items()} == {
        "mrna": 200,
        "mirna": 184,
        "protein": 142,
    }
    full, std = tmp_path / "full.csv", tmp_path / "std.csv"
    assert (
        replied(
            "impute", tmp_path / "run", tmp_path / "tcga.h5mu", "--out", full, "--std", std
        )["rows"]
        == 220
    )
    completed, deviation = (pd.read_csv(path, index_col=0) for path in (full, std))
    assert completed.index.tolist()[148:152] == ["s148", "s149", "t0", "t1"]
    assert not completed.isna().any().any()
    np.testing.assert_allclose(completed.iloc[:150], data.data, rtol=1e-12)
    assert (deviation.iloc[150:, 384:] > 0).all().all()
    assert (deviation.iloc[150:, :384] == 0).all().all()


@pytest.mark.usefixtures("few_draws", "two_folds")
def test_an_analyst_with_three_csv_files(tmp_path):
    source = np.random.default_rng(0)
    X = np.sin(source.normal(size=(30, 1)) + np.arange(9))
    folder, rows = tmp_path / "tables", np.array([f"c{i}" for i in range(30)])
    folder.mkdir()
    for j, (name, some) in enumerate(
        {"shop": slice(0, 30), "web": slice(5, 30), "mail": slice(0, 20)}.items()
    ):
        part = source.permutation(np.arange(30)[some])
        write(
            folder / f"{name}.csv",
            [f"{name}{i}" for i in range(3)],
            rows[part],
            X[part, 3 * j : 3 * j + 3],
            "client",
        )
    replied("fit", folder, "--index", "client", "--out", tmp_path / "run", *SMALL)
    replied(
        "impute", tmp_path / "run", folder, "--index", "client", "--out", tmp_path / "full.csv"
    )
    with (tmp_path / "full.csv").open() as file:
        table = list(csv.reader(file))
    assert sorted(row[0] for row in table[1:]) == sorted(rows)
    assert table[0][1:] == [f"{name}{i}" for name in ("mail", "shop", "web") for i in range(3)]
    assert all(cell for row in table[1:] for cell in row)


@pytest.mark.usefixtures("few_draws", "two_folds")
def test_an_engineer_with_complex_channels():
    """Half of the antennas are not measured in the last rows: they are completed, complex again."""
    source = np.random.default_rng(0)
    angle = source.uniform(-1, 1, size=(120, 1))
    H = np.exp(1j * 2 * angle * np.arange(6)) + 0.02 * source.normal(size=(120, 6))
    X, views = bo.stack({"near": H[:, :3], "far": H[:, 3:]})
    assert list(views) == ["near.real", "near.imag", "far.real", "far.imag"]
    observed = X.copy()
    observed[100:, views["far.real"]] = observed[100:, views["far.imag"]] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(
            n_components=1,
            views=views,
            n_frequencies=20,
            init="pca",
            n_init=1,
            max_iter=200,
            random_state=0,
        )
        completed = bo.unstack(model.fit(observed).impute(observed), views)
    np.testing.assert_array_equal(completed["far"][:100], H[:100, 3:])
    error = np.abs(completed["far"][100:] - H[100:, 3:]).mean()
    assert error < 0.5 * np.abs(H[100:, 3:] - H[:100, 3:].mean(axis=0)).mean()


def test_one_row_of_another_order_leaves_the_bound_above_that_of_noise_alone():
    """It was that of rounding, where noise had no least variance."""
    X = np.random.default_rng(5).normal(size=(100, 5))
    X[-1] = 1e5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(init="pca", random_state=3).fit(X)
    variance = X.var()
    alone = -0.5 * X.size * (np.log(2.0 * np.pi * variance) + 1.0)
    assert alone < model.elbo_ < 0.0


@pytest.mark.usefixtures("few_draws", "two_folds")
def test_one_row_of_another_order_beside_scattered_holes_is_fitted():
    source = np.random.default_rng(31)
    X = source.normal(size=(90, 6))
    X[3] = 1e7
    X[source.random(X.shape) < 0.1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bo.NGMVLVM(init="pca", random_state=1).fit(X)
        full = model.impute(X)
    assert np.isfinite(full).all()
    assert np.isfinite(model.score(X))
