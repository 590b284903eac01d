"""A fit on another device is the fit on the processor, to the last bit where its noise is."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

import bochner as bo
from bochner.errors import InputError
from bochner.linalg import device_named
from helpers.second_device import There, second_device

RNG = np.random.default_rng(1)
Y = np.sin(RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 6))) + 0.1 * RNG.normal(size=(60, 6))
HOLES = np.where(RNG.random(Y.shape) < 0.2, np.nan, Y)
COUNTS = RNG.poisson(np.exp(Y)).astype(float)
VIEWS = {"views": {"a": slice(0, 6), "b": slice(6, 12)}}
TWO = np.hstack([Y, COUNTS])
LACKING = np.vstack([np.hstack([Y, Y[:, ::-1]]), np.full((1, 12), 0.1)])
LACKING[:9, 6:] = np.nan

# Starts that race, beside views of each kind of sites; what a fit does after it begins from one.
RACE = {"init": ["pca", "fold"]}

FITS = {
    "complete": (bo.NGMVLVM, Y, {"init": "auto"}),
    "scattered holes": (bo.NGMVLVM, HOLES, RACE),
    "stationary": (bo.AdvisedRFLVM, Y, {}),
    "negative binomial": (bo.NGMVLVM, COUNTS, {"likelihood": "negative_binomial", **RACE}),
    "bernoulli": (bo.AdvisedRFLVM, (Y > 0).astype(float), {"likelihood": "bernoulli"}),
    "binomial": (bo.NGMVLVM, COUNTS.clip(max=4), {"likelihood": bo.likelihoods.Binomial(4)}),
    "categorical": (bo.NGMVLVM, COUNTS[:, :2].clip(max=2), {"likelihood": "categorical"}),
    # two sweeps over the blocks of the mixture
    "Dirichlet process": (bo.SRFLVM, Y, {"max_iter": 20, **RACE}),
    "Dirichlet process, holes": (bo.SRFLVM, HOLES, {}),
    "Dirichlet process, counts": (bo.SRFLVM, COUNTS, {"likelihood": "poisson"}),
    "two kinds of views": (
        bo.NGMVLVM,
        TWO,
        {**VIEWS, "likelihood": {"a": "gaussian", "b": "poisson"}},
    ),
    "a private latent, a view lacking": (
        bo.NGMVLVM,
        LACKING,
        {**VIEWS, "latent": {"shared": 1, "private": {"b": 1}}, **RACE},
    ),
    "landmarks": (bo.NGMVLVM, Y, {"landmarks": 40}),
    "landmarks, counts": (bo.NGMVLVM, COUNTS, {"landmarks": 40, "likelihood": "poisson"}),
    "stored sparsely": (bo.NGMVLVM, csr_matrix(Y.clip(min=0.0)), {}),
    "noise by column": (bo.NGMVLVM, HOLES, {"noise": "column"}),
    "double precision": (bo.NGMVLVM, Y, {"dtype": "float64"}),
}


def _fitted(kind, device, **more):
    cls, X, settings = FITS[kind]
    quick = {"init": "pca", "max_iter": 8, "n_frequencies": 8, "random_state": 0}
    settings = {**quick, **settings, **more}
    return cls(2, device=device, **settings).fit(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", FITS)
def test_a_fit_there_is_the_fit_here(kind, few_draws):
    here = _fitted(kind, "cpu")
    with second_device() as name:
        there = _fitted(kind, name)
    # on the processor, where all of the model has to be by then
    X = FITS[kind][1][:5]
    placed, std = there.transform(X, return_std=True)
    assert np.isfinite(there.score_samples(X)).all()
    there.inverse_transform(placed)
    assert there.elbo_ == here.elbo_
    np.testing.assert_array_equal(there.embedding_, here.embedding_)
    np.testing.assert_array_equal(placed, here.transform(X))
    assert np.isfinite(std).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_there_can_be_saved_and_read_here(tmp_path, few_draws):
    with second_device():
        there = _fitted("complete", "cuda", init="pca")
    there.save(tmp_path / "model")
    np.testing.assert_array_equal(
        bo.load(tmp_path / "model").transform(Y[:5]), there.transform(Y[:5])
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_tensor_there_is_taken_as_rows(few_draws):
    with second_device():
        X = torch.as_tensor(Y, device="cuda")
        assert isinstance(X, There)
        there = bo.NGMVLVM(2, init="pca", max_iter=5, n_frequencies=4, random_state=0).fit(X)
        assert there.transform(X).shape == (60, 2)


@pytest.mark.parametrize(
    "features",
    [
        bo.FourierFeatures(n_components=16, random_state=0),
        bo.KreinFeatures("tl1", 16, inference="gradient", random_state=0, max_iter=3),
        bo.KreinFeatures("tl1", 16, inference="spectral", random_state=0),
        bo.KreinFeatures("polynomial", 16, inference="taylor", random_state=0),
        bo.RandomMaclaurin(n_components=16, random_state=0),
        bo.SphericalFeatures(n_components=16, random_state=0),
    ],
    ids=repr,
)
def test_features_there_are_the_features_here(features):
    X = RNG.random((40, 5))
    here = features.set_params(device="cpu").fit(X).transform(X)
    with second_device() as name:
        there = features.set_params(device=name).fit(X)
        np.testing.assert_array_equal(there.transform(X), here)
        rows = there.transform(torch.as_tensor(X, device=name))
        assert isinstance(rows, There)
        np.testing.assert_array_equal(rows.cpu().numpy(), here)


def test_auto_is_the_processor_also_where_there_is_a_gpu():
    with second_device():
        assert device_named("auto") == torch.device("cpu")
        assert device_named("cuda") == torch.device("cuda", 0)


def test_a_device_without_numbers_is_refused():
    with pytest.raises(InputError, match=r"got 'meta', which holds no numbers\. Use 'auto'"):
        device_named("meta")


class TestTheSecondDevice:
    """The simulation refuses what CUDA refuses."""

    @pytest.mark.parametrize(
        "mix",
        [
            lambda x: x + torch.ones(3),
            lambda x: torch.cat([x, torch.ones(3)]),
            lambda x: x @ torch.ones(3),
            lambda x: torch.ones(3)[x > 0],
            lambda x: torch.ones(3).index_put_((torch.arange(3),), x),
            lambda x: torch.randn(3, generator=torch.Generator(), device=x.device),
        ],
    )
    def test_two_devices_are_refused(self, mix):
        with second_device(), pytest.raises(RuntimeError, match="Expected"):
            mix(torch.ones(3, device="cuda"))

    def test_arrays_are_made_here_alone(self):
        with second_device(), pytest.raises(TypeError, match="can't convert cuda"):
            torch.ones(3, device="cuda").numpy()

    def test_what_cuda_takes_is_taken(self):
        with second_device():
            x = torch.ones(3, device="cuda")
            x[torch.tensor([True, False, False])] = torch.tensor(2.0)
            x[[1, 2]] = 3.0
            assert (x * torch.tensor(2.0)).cpu().tolist() == [4.0, 6.0, 6.0]
            assert float(x.sum()) == 8.0
