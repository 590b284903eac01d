import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from bochner import datasets, metrics
from bochner.datasets.load import RECIPES
from bochner.datasets.make import KERNELS
from bochner.errors import InputError

needs_data = pytest.mark.skipif(
    "BOCHNER_DATA" not in os.environ, reason="BOCHNER_DATA names no folder of data sets"
)


def test_s_curve_shapes_and_seed():
    one = datasets.make_s_curve(
        60, [3, 5, 2], ("rbf", "gibbs", "rbf+periodic"), noise=0.1, random_state=0
    )
    assert one.data.shape == (60, 10)
    assert one.views == {"view_0": slice(0, 3), "view_1": slice(3, 8), "view_2": slice(8, 10)}
    assert len(one.feature_names) == 10
    np.testing.assert_allclose(one.latent.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(one.latent.std(0), 1)
    again = datasets.make_s_curve(
        60, [3, 5, 2], ("rbf", "gibbs", "rbf+periodic"), noise=0.1, random_state=0
    )
    np.testing.assert_array_equal(one.data, again.data)
    assert not np.array_equal(
        datasets.make_s_curve(60, 2).data, datasets.make_s_curve(60, 2).data
    )
    assert "noise standard deviation 0.1" in one.DESCR


def test_s_curve_takes_kernel_objects():
    from bochner.kernels import RBF, Periodic, Sum

    named = datasets.make_s_curve(30, 4, ("rbf+periodic",), random_state=0)
    built = datasets.make_s_curve(30, 4, (Sum([RBF(), Periodic(2.0)]),), random_state=0)
    np.testing.assert_allclose(
        built.kernel_matrices["view_0"], named.kernel_matrices["view_0"], atol=1e-12
    )
    np.testing.assert_allclose(built.data, named.data, atol=1e-6)
    assert "kernels Sum, noise" in built.DESCR


def test_s_curve_follows_the_position():
    made = datasets.make_s_curve(300, 2, random_state=1)
    # scikit-learn's curve is (sin t, sign(t)(cos t − 1)): a smooth function of the position
    t = made.target
    assert metrics.aligned_r2(
        made.latent, np.column_stack([np.sin(t), np.sign(t) * (np.cos(t) - 1)])
    ) == pytest.approx(1)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_what_they_say(kernel):
    made = datasets.make_s_curve(40, 4000, (kernel,), noise=0.3, random_state=2)
    K, X = made.kernel_matrices["view_0"], made.latent
    np.testing.assert_allclose(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-10
    # the formula for one pair, written out
    x, y = X[3], X[17]
    a, b, r2 = (
        np.exp(-np.linalg.norm(x) / 2),
        np.exp(-np.linalg.norm(y) / 2),
        np.sum((x - y) ** 2),
    )
    rbf, gibbs = np.exp(-r2 / 2), 2 * a * b / (a**2 + b**2) * np.exp(-r2 / (a**2 + b**2))
    periodic = np.exp(-2 * np.sum(np.sin(np.pi * (x - y) / 2) ** 2))
    assert K[3, 17] == pytest.approx(
        {"rbf": rbf, "gibbs": gibbs, "periodic": periodic, "rbf+periodic": rbf + periodic}[
            kernel
        ]
    )
    # 4,000 draws have this covariance: every entry within 5 standard errors and a little more for
    # the 820 looked at
    C = K + 0.09 * np.eye(40)
    error = np.sqrt((C**2 + np.outer(np.diag(C), np.diag(C))) / 4000)
    assert np.abs((made.data @ made.data.T / 4000 - C) / error).max() < 5


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"kernels": "rbf"},
            "kernels from 'rbf', 'gibbs', 'periodic', 'rbf.periodic', or of bochner.kernels, one "
            "per",
        ),
        ({"kernels": ("rbf", "cosine")}, r"got \('rbf', 'cosine'\)"),
        ({"kernels": ()}, r"one per view, got \(\)"),
        ({"n_samples": 1}, "n_samples of at least 2, got 1"),
        ({"noise": -1}, "a noise standard deviation of at least 0, got -1"),
        (
            {"n_columns": [3]},
            r"one positive number, or one per kernel, got \[3\] for 2 kernels",
        ),
        ({"n_columns": 0}, "got 0 for 2 kernels"),
    ],
)
def test_s_curve_of_wrong_parameters(arguments, text):
    with pytest.raises(InputError, match=text):
        datasets.make_s_curve(**arguments)


def test_digits_in_two_halves():
    digits = datasets.load_digits_halves()
    assert digits.data.shape == (1797, 64)
    assert digits.data.dtype == np.float64
    assert digits.views == {"upper": slice(0, 32), "lower": slice(32, 64)}
    assert digits.target.max() == 9
    assert "upper and lower half" in digits.DESCR


def test_absent_folder_and_file(monkeypatch, tmp_path):
    monkeypatch.delenv("BOCHNER_DATA", raising=False)
    with pytest.raises(
        InputError,
        match=r"BOCHNER_DATA, got none. Set BOCHNER_DATA to the folder that holds oil.npz",
    ):
        datasets.load_oil()
    monkeypatch.setenv("BOCHNER_DATA", str(tmp_path))
    with pytest.raises(
        InputError,
        match=r"the file mnist.npz in BOCHNER_DATA=.*, got no such file. Put mnist.npz",
    ):
        datasets.load_mnist()
    with pytest.raises(
        InputError, match="words as one of content, with_stop, raw, large, got 'all'"
    ):
        datasets.load_newsgroups("all")


def test_loaders_on_small_files(monkeypatch, tmp_path):
    monkeypatch.setenv("BOCHNER_DATA", str(tmp_path))
    images = np.array([[0, 255]] * 3, dtype=np.uint8)
    np.savez(tmp_path / "mnist.npz", X=images, y=np.arange(3), n_train=2)
    result = datasets.load_mnist()
    assert result.data.dtype == np.float32
    assert result.data[0].tolist() == [0, 1]
    assert (result.n_train, result.image_shape) == (2, (28, 28))
    assert datasets.load_mnist(scale=False).data.dtype == np.uint8
    content, cites = (
        sp.random(4, 6, 0.5, format="csr", random_state=0),
        sp.eye(4, format="csr"),
    )
    parts = {}
    for name, view in {"content": content, "cites": cites}.items():
        parts |= {
            f"{name}__{part}": getattr(view, part)
            for part in ("data", "indices", "indptr", "shape")
        }
    np.savez(tmp_path / "mv_citeseer.npz", y=np.arange(4), **parts)
    result = datasets.load_citeseer()
    assert sp.issparse(result.data)
    assert result.data.format == "csr"
    assert result.views == {"content": slice(0, 6), "cites": slice(6, 10)}
    np.testing.assert_array_equal(result.data.toarray(), sp.hstack([content, cites]).toarray())


def test_loaders_are_named_documented_and_pickle():
    for name in [*RECIPES, "newsgroups"]:
        loader = getattr(datasets, f"load_{name}")
        assert loader.__name__ == f"load_{name}"
        assert "Returns" in loader.__doc__
        if name != "newsgroups":
            assert RECIPES[name].file in loader.__doc__
        assert pickle.loads(pickle.dumps(loader)) is loader


SHAPES = {
    "brendan": (1965, 560),
    "oil": (1000, 12),
    "bridges": (214, 4),
    "congress109": (529, 1000),
    "breast_tcga": (150, 526),
    "citeseer": (3312, 7015),
    "movies617": (617, 3276),
    "handwritten": (2000, 649),
    "three_sources": (169, 10259),
    "skin": (245057, 3),
    "eeg": (14980, 14),
    "spambase": (4601, 57),
    "cifar10": (2000, 400),
    "pbmc3k": (2638, 13714),
    "newsgroups": (2752, 20),
}


@needs_data
@pytest.mark.parametrize(("name", "shape"), SHAPES.items())
def test_real_data(name, shape):
    result = getattr(datasets, f"load_{name}")()
    assert result.data.shape == shape
    assert result.target is None if name == "brendan" else result.target.shape == shape[:1]
    if "feature_names" in result:
        assert len(result.feature_names) == shape[1]
    if "views" in result:
        assert list(result.views.values())[-1].stop == shape[1]
    if "image_shape" in result:
        assert result.data.dtype == np.float32
        assert result.data.max() <= 1
    assert result.DESCR


@needs_data
def test_real_newsgroups_large_is_sparse():
    assert sp.issparse(datasets.load_newsgroups("large").data)
    assert len(datasets.load_newsgroups("raw").feature_names) == 183


def test_bunches_pickle():
    made = datasets.make_s_curve(20, 2, random_state=0)
    assert pickle.loads(pickle.dumps(made)).views == made.views
