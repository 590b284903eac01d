"""``--batch``, ``--covariate``, ``--size-factors`` and ``--mask-var``: what is not data."""

import numpy as np
import pytest

import bochner as bo
from helpers.cli import refused, replied, run

pytest.importorskip("pandas")
pytestmark = pytest.mark.usefixtures("no_pictures", "rough_estimates")
SMALL = [
    part
    for name in ("n_components=1", "max_iter=40", "n_frequencies=8", "init=pca", "tol=1.0")
    for part in ("--set", name)
]


@pytest.fixture
def table(tmp_path):
    """A csv with rows in two plates, numbered, and an age; and its numbers."""
    rng = np.random.default_rng(0)
    latent, plate, age = rng.normal(size=40), rng.integers(1, 3, 40), rng.integers(20, 60, 40)
    X = (
        np.outer(latent, [1.0, -1.0, 0.5])
        + 5.0 * plate[:, None]
        + 0.1 * rng.normal(size=(40, 3))
    )
    path = tmp_path / "data.csv"
    rows = [
        ",".join([f"r{i}", *map(str, X[i].round(4)), str(plate[i]), str(age[i])])
        for i in range(40)
    ]
    path.write_text("\n".join(["id,a,b,c,plate,age", *rows]) + "\n")
    return path, latent, plate


def test_columns_beside_the_data(table, tmp_path):
    path, latent, plate = table
    out = tmp_path / "run"
    beside = ("--batch", "plate", "--covariate", "age")
    replied("fit", path, *beside, "--out", out, "--seed", 0, *SMALL, "--report")
    model = bo.load(out / "model.bochner")
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert set(model.covariate_std_["x"]) == {"plate", "age"}
    z = model.embedding_[:, 0]
    assert abs(np.corrcoef(z, latent)[0, 1]) > 0.9
    assert abs(np.corrcoef(z, plate)[0, 1]) < 0.3
    # the same columns are found in the rows of other commands
    replied("transform", out, path, "--out", tmp_path / "z.npy")
    np.testing.assert_allclose(np.load(tmp_path / "z.npy")[:, :1], model.embedding_, atol=1e-6)
    replied("impute", out, path, "--out", tmp_path / "full.csv")
    replied("calibrate", out, path, "--seed", 0, "--n-draws", 20)
    replied("report", out, path, "--out", tmp_path / "page.html")
    far = []
    for value in ("1", "2"):
        drawn = tmp_path / f"drawn{value}.npy"
        replied(
            "sample", out, "--n", 200, "--at", f"plate={value}", "--seed", 0, "--out", drawn
        )
        far.append(np.load(drawn).mean(0))
    np.testing.assert_allclose(far[1] - far[0], 5.0, atol=0.5)


def test_what_is_wrong_is_named(table, tmp_path):
    path, *_ = table
    text = refused("fit", path, "--batch", "plat", "--out", tmp_path / "run", *SMALL)
    assert "no 'plat': did you mean 'plate'?" in text
    np.save(tmp_path / "x.npy", np.eye(5))
    (tmp_path / "cells.zarr").mkdir()
    (tmp_path / "cells.h5mu").write_text("x")
    advice = {
        "x.npy": "Save the rows as one",
        "cells.h5mu": "Call bochner.fit_mudata from Python, which takes columns of obs",
        "cells.zarr": "Call bochner.fit_anndata from Python",
    }
    for name, do in advice.items():
        for option in ("--batch", "--covariate", "--size-factors"):
            text = refused("fit", tmp_path / name, option, "plate", "--out", tmp_path / "run")
            assert "a csv, parquet or h5ad file with --batch" in text
            assert f"{name}. {do}" in text
    beside = ("--batch", "plate", "--size-factors", "age")
    about = replied("info", path, *beside, "--set", "n_frequencies=8")
    assert about["columns"] == 3
    out = tmp_path / "run"
    replied(
        "fit", path, "--batch", "plate", "--drop", "age", "--out", out, "--seed", 0, *SMALL
    )
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("a,b,c\n1,2,3\n4,5,6\n")
    text = refused("transform", out, fewer, "--out", tmp_path / "z.csv")
    assert "no 'plate'" in text
    other = tmp_path / "other.csv"
    other.write_text("a,b,c,plate\n1,2,3,1\n4,5,6,7\n")
    text = refused("transform", out, other, "--out", tmp_path / "z.csv")
    assert "'plate' among '1', '2', as in training, got '7' in row 1" in text
    text = refused("sample", out, "--at", "plait=1", "--out", tmp_path / "s.csv")
    assert "choose from plate=VALUE" in text.lower().replace("value", "VALUE")
    twice = ["--at", "plate=1", "--at", "plate=2", "--out", tmp_path / "s.csv"]
    text = refused("sample", out, *twice)
    assert text == "Expected every covariate once, got --at plate=... twice. Write one value."
    assert not (tmp_path / "s.csv").exists()


@pytest.fixture
def counts():
    """Counts of rows that were seen for unequal times, and those times."""
    rng = np.random.default_rng(0)
    times = rng.uniform(0.2, 5.0, 40)
    rates = np.exp(np.outer(rng.normal(size=40), [0.5, -0.5, 0.3]) + 2.0)
    return rng.poisson(rates * times[:, None]).astype(float), times


def test_size_factors_from_a_column(counts, tmp_path):
    X, times = counts
    path, out = tmp_path / "counts.csv", tmp_path / "run"
    rows = [
        ",".join(map(repr, map(float, (*values, time))))
        for values, time in zip(X, times, strict=True)
    ]
    path.write_text("\n".join(["a,b,c,time", *rows]) + "\n")
    beside = ("--size-factors", "time")
    replied("fit", path, *beside, "--likelihood", "poisson", "--out", out, "--seed", 0, *SMALL)
    model = bo.load(out / "model.bochner")
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    replied("transform", out, path, *beside, "--out", tmp_path / "z.npy")
    reply = run("transform", out, path, "--out", tmp_path / "typical.npy")
    assert reply.exit_code == 0
    assert " ".join(reply.stderr.split()).count("these rows are taken for typical ones") == 1
    reply = run("calibrate", out, path, "--n-draws", 20)
    assert "these rows are taken for typical ones" in " ".join(reply.stderr.split())
    placed = model.transform(X, size_factors=times)
    np.testing.assert_allclose(np.load(tmp_path / "z.npy")[:, :1], placed, atol=1e-6)
    replied("impute", out, path, *beside, "--out", tmp_path / "full.csv")
    replied("calibrate", out, path, *beside, "--seed", 0, "--n-draws", 20)
    page = (out, path, *beside, "--held-out", path, "--out", tmp_path / "page.html")
    reply = run("report", *page)
    assert reply.exit_code == 0
    assert "typical" not in reply.stderr
    # columns that are known
    reply = run("report", out, path, "--out", tmp_path / "other.html")
    assert " ".join(reply.stderr.split()).count("these rows are taken for typical ones") == 1
    text = refused(
        "transform", out, path, "--size-factors", "tim", "--out", tmp_path / "y.npy"
    )
    assert "no 'tim': did you mean 'time'?" in text
    path.write_text(path.read_text().replace(repr(float(times[1])), "long"))
    text = refused("transform", out, path, *beside, "--out", tmp_path / "y.npy")
    assert "numbers in the column 'time', got 'long' in row 1" in text


def test_variables_and_size_factors_of_cells(counts, tmp_path):
    anndata = pytest.importorskip("anndata")
    X, times = counts
    cells = anndata.AnnData(X, obs={"time": times}, var={"variable": [True, False, True]})
    cells.obs_names, cells.var_names = [f"cell{i}" for i in range(40)], ["a", "b", "c"]
    path, out = tmp_path / "cells.h5ad", tmp_path / "run"
    cells.layers["logs"] = np.log1p(X) + 0.25
    cells.write_h5ad(path)
    fit = ("--likelihood", "poisson", "--size-factors", "time", "--out", out, "--seed", 0)
    replied("fit", path, "--mask-var", "variable", *fit, *SMALL)
    model = bo.load(out / "model.bochner")
    assert list(model.feature_names_in_) == ["a", "c"]
    # the variables of the model are found again
    replied("transform", out, path, "--size-factors", "time", "--out", tmp_path / "z.npy")
    placed = model.transform(X[:, [0, 2]], size_factors=times)
    np.testing.assert_allclose(np.load(tmp_path / "z.npy")[:, :1], placed, atol=1e-6)
    about = replied("info", path, "--drop", "b", "--set", "n_frequencies=8")
    assert about["columns"] == 2
    # a description refuses what a fit refuses
    for option in ("--size-factors", "--batch", "--covariate"):
        assert "got no 'tim'. Choose from 'time'" in refused("info", path, option, "tim")
    for option in ("--layer", "--mask-var"):
        text = refused("info", path, option, "x=logs")
        assert "for cells.h5ad, an AnnData, got x=logs. Write its name alone." in text
    cells.X = cells.layers["logs"]
    cells.write_h5ad(path)  # the counts are where the fit did not read them
    text = refused("transform", out, path, "--out", tmp_path / "y.npy")
    assert "Expected counts" in text
    assert f"X of {path} was read: if the fit read a layer, add its --layer." in text
    text = refused("fit", path, "--mask-var", "varible", *fit, "--force")
    assert "'varible' in cells.h5ad.var" in text
    np.save(tmp_path / "x.npy", X)
    text = refused(
        "fit", tmp_path / "x.npy", "--mask-var", "variable", "--out", tmp_path / "other"
    )
    assert "mask_var only for h5ad and h5mu files" in text


def test_names_with_commas_stand_in_quotes(tmp_path):
    rng = np.random.default_rng(100)
    data, out = tmp_path / "t.csv", tmp_path / "run"
    rows = [f"{rng.normal()},{rng.normal()},{rng.normal()},p{i % 2}" for i in range(20)]
    data.write_text("\n".join(['a,"b,c",d,"plate, no"', *rows]))
    replied(
        "fit",
        data,
        "--batch",
        "plate, no",
        "--drop",
        '"b,c"',
        "--out",
        out,
        "--seed",
        0,
        *SMALL,
    )
    assert list(bo.load(out / "model.bochner").feature_names_in_) == ["a", "d"]
    view = ("--view", 'v="b,c",d', "--view", "w=a")
    replied("fit", data, *view, "--drop", '"plate, no"', "--out", tmp_path / "v", *SMALL)
    assert list(bo.load(tmp_path / "v" / "model.bochner").views_) == ["v", "w"]
