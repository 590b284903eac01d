"""Model files: the same predictions from any of the models, a message for anything else, never
rows, never code.
"""

import copy
import functools
import math
import os
import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import bochner as bo
from bochner import NGMVLVM, SRFLVM, AdvisedRFLVM, RandomFeatureLVM, kernels, likelihoods
from bochner.errors import InputError, ModelFileError
from bochner.estimators import saving
from bochner.fitting import plan
from bochner.io import files
from bochner.training.trainer import Options
from helpers.models import spec_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]

SMALL = {"n_frequencies": 5, "n_mixtures": 1, "max_iter": 8, "init": "pca", "random_state": 0}
VIEWS = {"a": slice(0, 4), "b": [4, 5, 6]}
N_ROWS = 37


@pytest.fixture(autouse=True)
def _fewer_draws(few_draws, quick_choice, monkeypatch):
    monkeypatch.setattr(plan, "POSTERIOR_DRAWS", 2)


def _data(n: int = N_ROWS, m: int = 7, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return 3.0 + np.sin(x @ rng.normal(size=(2, m))) + 0.1 * rng.normal(size=(n, m))


CASES = {
    "NGMVLVM": lambda: NGMVLVM(**SMALL),
    "NGMVLVM, views": lambda: NGMVLVM(**SMALL, views=VIEWS),
    "AdvisedRFLVM": lambda: AdvisedRFLVM(**SMALL),
    "ng-sm": lambda: RandomFeatureLVM(**SMALL, kernel="ng-sm"),
    "sm": lambda: RandomFeatureLVM(**SMALL, kernel="sm"),
    "rbf": lambda: RandomFeatureLVM(**SMALL, kernel="rbf"),
    "matern": lambda: RandomFeatureLVM(**SMALL, kernel="matern"),
    "Dirichlet process": lambda: SRFLVM(**{**SMALL, "n_mixtures": 4, "max_iter": 21}),
    "periodic": lambda: RandomFeatureLVM(**SMALL, kernel="periodic"),
    "rbf+periodic": lambda: RandomFeatureLVM(**SMALL, kernel="rbf+periodic"),
    "RBF object": lambda: RandomFeatureLVM(
        **SMALL, kernel=kernels.RBF(lengthscale=[0.5, 2.0])
    ),
    "Matern object": lambda: RandomFeatureLVM(
        **SMALL, kernel=kernels.Matern(nu=2.5, variance=np.float64(2.0))
    ),
    "SM object": lambda: RandomFeatureLVM(
        **SMALL, kernel=kernels.SpectralMixture(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)))
    ),
    "sum": lambda: RandomFeatureLVM(
        **SMALL, kernel=kernels.SpectralSum([kernels.RBF(), kernels.Matern(nu=0.5)])
    ),
    "one per view": lambda: RandomFeatureLVM(
        **SMALL, views=VIEWS, kernel={"a": "rbf", "b": kernels.Matern()}
    ),
    "float64 and an array start": lambda: NGMVLVM(
        **{
            **SMALL,
            "dtype": "float64",
            "init": np.random.default_rng(1).normal(size=(N_ROWS, 2)),
        }
    ),
}


@functools.cache
def _fitted(in_views=False):
    """A model of two views or of one; not to be changed."""
    return NGMVLVM(**SMALL, **({"views": VIEWS} if in_views else {})).fit(_data())


def _predictions(model, X):
    Z = model.transform(X)
    return [
        *model.transform(X, return_std=True),
        *model.impute(X, return_std=True),
        model.impute(X, n_draws=2),
        *model.inverse_transform(Z, return_std=True),
        model.score_samples(X),
        model.sample(3, random_state=1),
        *(
            model.kernel_matrix(Z, view, exact)
            for view in model.views_
            for exact in (True, False)
        ),
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_model_predicts_exactly_what_the_saved_one_did(tmp_path, case):
    model, new = CASES[case]().fit(_data()), _data(3, seed=1)
    new[0, :4], new[2, 5] = np.nan, np.nan
    model.save(tmp_path / "model")
    loaded = bo.load(tmp_path / "model")
    assert type(loaded) is type(model)
    wanted = _predictions(model, new)
    loaded.save(tmp_path / "again")  # and it can be saved again
    for other in (loaded, bo.load(str(tmp_path / "again"))):
        for one, expected in zip(_predictions(other, new), wanted, strict=True):
            np.testing.assert_array_equal(one, expected)


def test_a_loaded_model_has_every_attribute_of_the_saved_one(tmp_path):
    model = _fitted(in_views=True)
    model.save(tmp_path / "model")
    loaded = bo.load(tmp_path / "model")
    attributes = {
        name for name in vars(model) if name.endswith("_") and not name.startswith("_")
    }
    assert attributes == {
        name for name in vars(loaded) if name.endswith("_") and not name.startswith("_")
    }
    for name in attributes - {"kernels_", "collapse_"}:
        np.testing.assert_equal(getattr(loaded, name), getattr(model, name), err_msg=name)
        assert type(getattr(loaded, name)) is type(getattr(model, name)), name
    np.testing.assert_equal(loaded.kernels_, model.kernels_)
    assert str(loaded.collapse_) == str(model.collapse_)
    assert loaded.get_params() == model.get_params()
    assert loaded.embedding_.dtype == model.embedding_.dtype


def test_whole_numbers_stay_whole_and_a_loaded_model_is_saved_as_the_same_bytes(tmp_path):
    kernel = bo.kernels.RBF()
    model = bo.RandomFeatureLVM(kernel=kernel, landmarks=20, **SMALL).fit(_data())
    model.save(tmp_path / "model")
    loaded = bo.load(tmp_path / "model")
    assert repr(loaded.landmarks_) == repr(model.landmarks_)
    assert repr(loaded.kernels_) == repr(model.kernels_)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_names_of_columns_survive(tmp_path):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(_data(), columns=[f"c{j}" for j in range(7)])
    model = NGMVLVM(
        **SMALL, views={"a": ["c0", "c2"], "b": ["c1", "c3", "c4", "c5", "c6"]}
    ).fit(X)
    model.save(tmp_path / "model")
    loaded = bo.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.feature_names_in_, X.columns)
    np.testing.assert_array_equal(loaded.transform(X), model.embedding_)
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(X.rename(columns={"c0": "other"}))


def test_a_loaded_model_can_be_fitted_again(tmp_path):
    X = _data()
    model = _fitted(in_views=True)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        bo.load(tmp_path / "model").fit(X).embedding_, model.embedding_
    )


@pytest.mark.parametrize("n_rows", [37, 41])
def test_the_file_holds_no_training_rows(tmp_path, n_rows):
    X = _data(n_rows)
    # scaling-proof marks: no affine image of a row or a column of X may be found in any tensor
    model = NGMVLVM(**SMALL, views=VIEWS).fit(X)
    model.save(tmp_path / "model")
    for name, tensor in load_file(tmp_path / "model").items():
        assert not {n_rows, 7} <= set(tensor.shape), name
        array = tensor.double().numpy()
        for axis in [a for a, size in enumerate(array.shape) if size == n_rows]:
            columns = np.moveaxis(array, axis, 0).reshape(n_rows, -1)
            for column in columns.T[columns.std(axis=0) > 0]:
                similarity = [abs(np.corrcoef(column, X[:, j])[0, 1]) for j in range(7)]
                assert max(similarity) < 1 - 1e-6, name
    assert {
        t.shape for n, t in load_file(tmp_path / "model").items() if n == "candidates"
    } == {(n_rows, 2)}


# -- what is no model file
# ---------------------------------------------------------------------------------------


@functools.cache
def _saved(folder: Path) -> Path:
    _fitted().save(folder / "fitted.model")
    return folder / "fitted.model"


@pytest.fixture
def path(tmp_path, tmp_path_factory):
    return shutil.copy(_saved(tmp_path_factory.getbasetemp()), tmp_path / "my.model")


def _rewrite(path: Path, **changes: object) -> None:
    tensors, header = files.read(path, "model", saving.SCHEMA)
    files.write(path, tensors, {**header, **changes})


def test_a_file_without_permission_is_no_damaged_one(path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(
        ModelFileError, match=r"a model file to read, got .* without permission"
    ):
        bo.load(path)


def test_a_file_names_no_place_that_a_fit_would_write_to(path):
    _, header = files.read(path, "model", saving.SCHEMA)
    _rewrite(path, params={**header["params"], "checkpoint": "../../notes.txt"})
    with pytest.raises(ModelFileError, match=r"params\.checkpoint is a path"):
        bo.load(path)


def test_a_file_cut_short_anywhere_is_refused(path):
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(
            ModelFileError,
            match=r"Expected a bochner model file, got my\.model, which is not one or",
        ):
            bo.load(path)


@pytest.mark.parametrize(
    "content",
    [b"hello, world\n" * 100, b"PK\x03\x04" + bytes(500), b'{"kind": "model"}', bytes(99)],
)
def test_a_file_of_another_kind_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(
        ModelFileError, match=r"Expected a bochner model file, got my\.model.*Save it again"
    ):
        bo.load(path)


def test_tensors_of_another_program_are_refused(path):
    save_file({"weight": load_file(path)["latents"]}, path)
    with pytest.raises(ModelFileError, match=r"Expected a bochner model file, got my\.model"):
        bo.load(path)


def test_a_newer_schema_says_upgrade(path):
    _rewrite(path, schema=2)
    with pytest.raises(
        ModelFileError,
        match=r"Expected schema 1, got schema 2 in my\.model\. Upgrade bochner",
    ):
        bo.load(path)


def test_an_unknown_model_and_an_unknown_kernel_say_upgrade(path):
    _rewrite(path, estimator="GrandUnifiedLVM")
    with pytest.raises(
        ModelFileError,
        match=r"needs the model 'GrandUnifiedLVM', unknown here\. Upgrade bochner",
    ):
        bo.load(path)
    for name in (
        "load",
        "LatentVariableEstimator",
        "np",
    ):  # names of the package, and no models
        _rewrite(path, estimator=name)
        with pytest.raises(ModelFileError, match=f"needs the model '{name}'"):
            bo.load(path)


def test_an_unknown_kernel_says_upgrade(path):
    fit = files.read(path, "model", saving.SCHEMA)[1]["fit"]
    fit["views"][0]["kernel"] = "Wavelet"
    _rewrite(path, fit=fit)
    with pytest.raises(
        ModelFileError,
        match=r"needs the kernel 'Wavelet', which this release does not have\. Upgrade",
    ):
        bo.load(path)


def test_a_checkpoint_is_no_model(path):
    _rewrite(path, kind="checkpoint")
    with pytest.raises(
        ModelFileError,
        match=r"Expected a bochner model file, got a checkpoint file\. Pass the other",
    ):
        bo.load(path)


def test_a_damaged_model_is_refused(path):
    tensors, header = files.read(path, "model", saving.SCHEMA)
    del tensors["0.1.mean"]
    files.write(path, tensors, header)
    with pytest.raises(
        ModelFileError,
        match=r"Expected a whole bochner model file, got my\.model, which does not fit together "
        r"\(the tensor '0\.1\.mean' is missing\)\. Save it again",
    ):
        bo.load(path)


def test_a_likelihood_for_another_number_of_columns_is_refused(tmp_path):
    counts = np.random.default_rng(0).poisson(3.0, (20, 4))
    path = tmp_path / "my.model"
    RandomFeatureLVM(**SMALL, likelihood="negative_binomial").fit(counts).save(path)
    tensors, header = files.read(path, "model", saving.SCHEMA)
    name = next(name for name in tensors if name.startswith("0.likelihood."))
    files.write(path, {**tensors, name: tensors[name].new_ones(3)}, header)
    match = rf"Expected .*the tensor '{name}' has 3 numbers for 4 columns"
    with pytest.raises(ModelFileError, match=match):
        bo.load(path)


@pytest.mark.parametrize("name", ["nothing", "no/where", "."])
def test_a_missing_file_is_said(tmp_path, name):
    with pytest.raises(
        ModelFileError, match=r"Expected a model file, got no file at .*Check the path"
    ):
        bo.load(tmp_path / name)


@pytest.mark.parametrize(
    "columns",
    [
        lambda names: names.to_numpy(),
        lambda names: names.to_numpy().astype(str),
        lambda names: names,
        lambda names: names.to_series(),
        set,
        lambda names: dict.fromkeys(names).keys(),
        lambda names: np.isin(list("abcd"), names),
    ],
)
def test_views_of_any_kind_are_loaded_again(tmp_path, columns):
    """A file that no one can load was written of names in an array."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(_data()[:, :4], columns=list("abcd"))
    views = {"u": columns(table.columns[:2]), "v": columns(table.columns[2:])}
    model = NGMVLVM(**{**SMALL, "max_iter": 2, "views": views}).fit(table)
    model.save(tmp_path / "model")
    again = bo.load(tmp_path / "model")
    np.testing.assert_array_equal(again.transform(table), model.transform(table))
    assert {name: set(map(str, chosen)) for name, chosen in again.views.items()} == {
        name: set(map(str, chosen)) for name, chosen in views.items()
    }


# -- what cannot be saved
# ----------------------------------------------------------------------------------------


class RBF(kernels.RBF):
    """A user's kernel with the name of a kernel of the package."""


class Poisson(likelihoods.Poisson):
    """A user's likelihood with the name of a likelihood of the package."""


def _refused(expected: str, name: str) -> str:
    return re.escape(
        f"Expected a {expected}, got one of the class {__name__}.{name}, and a model file holds "
        "no code. Pickle the estimator instead."
    )


@pytest.mark.parametrize("kernel", [RBF(), kernels.SpectralSum([kernels.RBF(), RBF()])])
def test_a_users_kernel_is_refused_whatever_its_name_and_leaves_no_file(tmp_path, kernel):
    model = RandomFeatureLVM(**SMALL, kernel=kernel).fit(_data())
    with pytest.raises(InputError, match=_refused("kernel of bochner.kernels", "RBF")):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_users_likelihood_is_refused_whatever_its_name(tmp_path):
    counts = np.random.default_rng(0).poisson(3.0, (N_ROWS, 7))
    model = RandomFeatureLVM(**SMALL, likelihood=Poisson()).fit(counts)
    expected = _refused("likelihood of bochner.likelihoods", "Poisson")
    with pytest.raises(InputError, match=expected):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_users_model_is_refused_whatever_its_name(tmp_path):
    users = type("NGMVLVM", (NGMVLVM,), {"__module__": __name__})
    model = users(**SMALL).fit(_data())
    with pytest.raises(InputError, match=_refused("model of bochner", "NGMVLVM")):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_a_users_kernel_is_not_that_of_the_packages():
    def digest(kernel):
        spec = spec_of([kernels.SpectralSum([kernel])])
        settings = plan.Plan(spec, ("pca",), math.inf, Options(), 0)
        return settings.digest(())

    assert digest(RBF()) != digest(kernels.RBF())
    assert digest(kernels.RBF()) == digest(kernels.RBF())


@pytest.mark.parametrize("parameter", ["verbose", "device"])
def test_a_callable_raises(tmp_path, parameter):
    model = copy.copy(_fitted())
    model.set_params(**{parameter: print})
    with pytest.raises(
        InputError,
        match=f"{parameter}=<built-in function print> cannot be saved.*never code. Pickle",
    ):
        model.save(tmp_path / "model")


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        NGMVLVM().save(tmp_path / "model")


def test_a_folder_that_is_not_there_is_said(tmp_path):
    model = _fitted()
    with pytest.raises(
        InputError, match=r"Expected a place to write to, got .*no/where.*Choose another path"
    ):
        model.save(tmp_path / "no" / "where")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    model = _fitted()
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(
            InputError, match=r"Expected a place to write to, got .*Permission denied"
        ):
            model.save(tmp_path / "model")
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_a_folder_in_the_files_place_is_said(tmp_path):
    model = _fitted()
    with pytest.raises(InputError, match="Expected a place to write to"):
        model.save(tmp_path)


def test_a_random_state_object_is_left_out_and_its_seed_kept(tmp_path):
    model = NGMVLVM(**{**SMALL, "random_state": np.random.RandomState(0)}).fit(_data())
    model.save(tmp_path / "model")
    loaded = bo.load(tmp_path / "model")
    assert loaded.random_state is None
    assert loaded.seed_ == model.seed_


def test_a_model_file_has_the_permissions_of_its_neighbours_and_links_stay(tmp_path):
    neighbour, link = tmp_path / "neighbour", tmp_path / "link.bochner"
    neighbour.write_text("")
    link.symlink_to(neighbour)
    model = _fitted()
    model.save(tmp_path / "new.bochner")
    assert (tmp_path / "new.bochner").stat().st_mode == neighbour.stat().st_mode
    model.save(link)
    assert link.is_symlink()
    np.testing.assert_array_equal(bo.load(neighbour).embedding_, model.embedding_)
