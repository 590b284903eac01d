"""Files whose checksum is right and whose parts are not: each is refused, and names the part."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save

import bochner as bo
from bochner.errors import ModelFileError
from bochner.io import files
from bochner.io.schema import Tensors
from bochner.training.checkpoint import LastingPath

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bochner.errors.CollapseWarning"),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.bochner"
    X = np.sin(np.random.default_rng(0).normal(size=(20, 5)))
    views = {"a": slice(0, 3), "b": slice(3, 5)}
    options = {
        "n_frequencies": 4,
        "n_mixtures": 1,
        "max_iter": 3,
        "init": "pca",
        "views": views,
    }
    bo.NGMVLVM(**options, random_state=0).fit(X).save(path)
    return files.read(path, "model", 1)


def refusal(tmp_path, tensors, header):
    """What loading says of a file with a checksum that fits."""
    text = json.dumps(header)
    changed = {name: part.contiguous().clone() for name, part in tensors.items()}
    path = tmp_path / "my.model"
    path.write_bytes(
        save(changed, {"bochner": text, "blake2b": files.checksum(changed, text)})
    )
    with pytest.raises(ModelFileError) as caught:
        bo.load(path)
    return str(caught.value)


def edited(header, path, value):
    """The header with one value replaced; the path leads to it."""
    whole = json.loads(json.dumps(header))
    place = whole
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return whole


HEADERS = {
    "unknown": (["harm"], 1, "the file has the unknown key 'harm'"),
    "missing": (["collapse"], KeyError, "the file lacks the key 'collapse'"),
    "an attribute": (
        ["attributes", "transform"],
        1,
        "attributes has the unknown key 'transform'",
    ),
    "kind": (["fit", "views", 0, "n_draws"], "2", "n_draws is '2' in place of a whole number"),
    "true is no number": (
        ["attributes", "n_iter_"],
        True,
        "n_iter_ is True in place of a whole",
    ),
    "not finite": (
        ["fit", "elbo"],
        float("nan"),
        "fit.elbo is nan in place of a finite number",
    ),
    "more draws": (
        ["fit", "views", 0, "n_draws"],
        10**12,
        "the tensor '0.2.first' is missing",
    ),
    "no draws": (["fit", "views", 0, "n_draws"], 0, "the view 'a' has no draws"),
    "dimensions": (["fit", "views", 1, "dims"], [7], "'b' sees dimensions that are not there"),
    "columns": (["columns", "b"], [3, 99], "columns of the view 'b' are not there"),
    "fewer columns": (["columns", "b"], [3], "the view 'b' has weights for other columns"),
    "views": (["columns"], {"x": [0]}, "columns is about ['x'] in place of ['a', 'b']"),
    "names": (["feature_names"], ["c"], "feature_names are not 5"),
    "a parameter": (["params", "max_iter"], 0, "The 'max_iter' parameter of NGMVLVM must be"),
    "an unknown parameter": (["params", "harm"], 0, "params is about ["),
    "objects": (
        ["params", "init"],
        {"type": "array", "dtype": "O", "values": [1]},
        "an array of object is no parameter",
    ),
    "sizes": (
        ["fit", "views", 0, "kernel_params", "correlations"],
        10**9,
        "the parameters of NextGenSpectralMixture.correlations is 1000000000 in place of a whole",
    ),
    "a history of text": (
        ["fit", "history"],
        ["x"],
        "fit.history[0] is 'x' in place of a number",
    ),
    "an end": (["fit", "stopped"], "__class__", "fit.stopped or fit.dropped is none"),
    "a weight": (["fit", "views", 0, "weight"], -1.0, "a weight or a noise of the view 'a'"),
    "a weight that is far too large": (
        ["fit", "views", 0, "weight"],
        1e308,
        "fit.views[0].weight is 1e+308 in place of a number up to 1e+100",
    ),
    "a noise that is far too large": (
        ["fit", "views", 0, "likelihood_params", "least"],
        [0.0, 1e308, 0.0],
        "fit.views[0].likelihood_params.least is 1e+308 in place of a number up to 1e+100",
    ),
}


@pytest.mark.parametrize("what", HEADERS)
def test_a_header_that_says_something_else_is_refused(tmp_path, saved, what):
    tensors, header = saved
    path, value, text = HEADERS[what]
    said = refusal(tmp_path, tensors, edited(header, path, value))
    assert said.startswith(
        "Expected a whole bochner model file, got my.model, which does not fit"
    )
    assert text in said
    assert said.endswith("Save it again.")


TENSORS = {
    "missing": ("1.0.amplitude", lambda t: None, "the tensor '1.0.amplitude' is missing"),
    "unknown": ("harm", lambda t: torch.ones(2), "the tensor 'harm' is unknown"),
    "shape": ("0.0.mean", lambda t: t.T, "'0.0.mean' has the shape (3, 8) in place of (8, 3)"),
    "empty": ("0.group_of", lambda t: t[:0], "the view 'a' has no draws or no columns"),
    "precision": ("0.0.first", lambda t: t.int(), "'0.0.first' is of the type torch.int32"),
    "not finite": ("latents", lambda t: t / 0.0, "the tensor 'latents' is not finite"),
    "far too large": (
        "0.0.amplitude",
        lambda t: t + 1e150,
        "the tensor '0.0.amplitude' holds 1e+150, beyond 1e+100",
    ),
    "no variance": (
        "0.likelihood.log_noise_variance",
        lambda t: t - 1e30,
        "the tensor '0.likelihood.log_noise_variance' holds 1e+30, beyond 230",
    ),
    "groups": ("0.group_of", lambda t: t + 5, "'0.group_of' names groups that are not there"),
    "a kernel": ("0.kernel.means", lambda t: t[..., :1], "size mismatch for means"),
    "units": ("scaling.scale", lambda t: -t, "Expected a finite centre and a positive scale"),
    "an attribute of a class": (
        "0.likelihood.__class__",
        lambda t: torch.ones(2),
        "the tensors of Gaussian are not ['__class__', 'log_noise_variance']",
    ),
}


@pytest.mark.parametrize("what", TENSORS)
def test_tensors_that_do_not_fit_are_refused(tmp_path, saved, what):
    tensors, header = dict(saved[0]), saved[1]
    name, change, text = TENSORS[what]
    changed = change(tensors.get(name))
    if changed is None:
        del tensors[name]
    else:
        tensors[name] = changed
    assert text in refusal(tmp_path, tensors, header)


def test_a_tensor_is_taken_once():
    tensors = Tensors({"a": torch.ones(2, dtype=torch.float64)})
    assert "a" in tensors
    tensors.take("a", 2)
    assert "a" not in tensors
    assert tensors.take_if_there("a", 2) is None
    tensors.finish()


CHECKPOINTS = {
    "no state": (lambda t, h: h.pop("state"), "the file lacks the key 'state'"),
    "a step": (
        lambda t, h: h["state"].update(step="1"),
        "state.step is '1' in place of a whole",
    ),
    "a moment": (
        lambda t, h: t.update(
            {"optimiser.0.step": torch.tensor(1), "optimiser.0.exp_avg": torch.ones(2)}
        ),
        "the tensor 'optimiser.0.exp_avg' has the shape (2,) in place of",
    ),
    "a parameter": (
        lambda t, h: t.pop("module.latents.mean"),
        'Missing key(s) in state_dict: "latents.mean"',
    ),
    "unknown": (lambda t, h: t.update(harm=torch.ones(1)), "the tensor 'harm' is unknown"),
    "the race": (
        lambda t, h: h["extra"].update(decided=1),
        "extra.decided is 1 in place of true",
    ),
}


@pytest.mark.parametrize("what", CHECKPOINTS)
def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path, stopped, what):
    X, options, tensors, header = stopped
    tensors, header = dict(tensors), json.loads(json.dumps(header))
    change, text = CHECKPOINTS[what]
    change(tensors, header)
    path = tmp_path / "fit.ckpt"
    files.write(path, tensors, header)
    with pytest.raises(ModelFileError) as caught:
        bo.NGMVLVM(**options, checkpoint=path).fit(X)
    assert "Expected a whole bochner checkpoint file, got " in str(caught.value)
    assert text in str(caught.value)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped after its first step."""
    path = tmp_path_factory.mktemp("stopped") / "fit.ckpt"
    X = np.sin(np.random.default_rng(0).normal(size=(20, 5)))
    options = {"n_frequencies": 4, "n_mixtures": 1, "max_iter": 3, "init": "pca"}
    options |= {"random_state": 0}
    # as a command does that has yet to write what the fit found
    bo.NGMVLVM(**options, checkpoint=LastingPath(path)).fit(X)
    return X, options, *files.read(path, "checkpoint", 1)
