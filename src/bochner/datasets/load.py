"""Loaders: one table of recipes, one function that follows them, one name per data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from bochner.errors import InputError, message

VARIABLE = "BOCHNER_DATA"


@dataclass(frozen=True)
class Recipe:
    """Where the parts of a data set lie in its file.

    Attributes
    ----------
    file : str
        File name in the folder BOCHNER_DATA.
    description : str
        What the rows and columns are, and the origin.
    arrays : tuple of str
        Arrays of data; more than one are views. Sparse ones are stored as ``k__data``,
        ``k__indices``, ...
    target : str or None
        Array of labels.
    columns : dict of str to str
        Array of column names per array of data.
    image : tuple of int, optional
        Height and width where the rows are images with values 0 to 255.
    extras : tuple of str
        Further arrays to hand over under their own names.
    """

    file: str
    description: str
    arrays: tuple[str, ...] = ("X",)
    target: str | None = "y"
    columns: Mapping[str, str] = field(default_factory=dict)
    image: tuple[int, int] | None = None
    extras: tuple[str, ...] = ()


_TCGA_EXTRAS = ("mrna_test", "mirna_test", "y_test")
_OIL_EXTRAS = ("frac", "X_val", "y_val", "frac_val", "X_test", "y_test", "frac_test")

RECIPES: dict[str, Recipe] = {
    "mnist": Recipe(
        "mnist.npz",
        "70,000 handwritten digits (LeCun, Cortes, Burges).",
        image=(28, 28),
        extras=("n_train",),
    ),
    "cifar10": Recipe(
        "cifar10_sub.npz",
        "2,000 gray images of five CIFAR-10 classes (Krizhevsky).",
        image=(20, 20),
    ),
    "cifar10_full": Recipe(
        "cifar10_full20.npz",
        "60,000 gray images, CIFAR-10 (Krizhevsky).",
        image=(20, 20),
        extras=("n_train",),
    ),
    "brendan": Recipe(
        "brendan.npz",
        "1,965 Frey faces in video order (Frey, Roweis).",
        target=None,
        image=(28, 20),
    ),
    "oil": Recipe(
        "oil.npz", "Three-phase oil flow, 12 measurements (Bishop, James).", extras=_OIL_EXTRAS
    ),
    "bridges": Recipe(
        "bridges.npz", "Daily bicycle counts on four bridges; weekend or weekday.", ("Y",)
    ),
    "congress109": Recipe(
        "congress109.npz",
        "Phrase counts of 529 members of the 109th US congress.",
        ("Y",),
        columns={"Y": "phrases"},
    ),
    "pbmc3k": Recipe(
        "pbmc3k.npz",
        "UMI counts of 2,638 blood cells (10x Genomics).",
        columns={"X": "genes"},
        extras=("cells", "hvg"),
    ),
    "breast_tcga": Recipe(
        "mv_breast_tcga.npz",
        "Breast cancer: mRNA, miRNA and protein of 150 samples (TCGA, as in mixOmics); 70 test "
        "rows without protein.",
        ("mrna", "mirna", "protein"),
        columns={name: f"{name}_names" for name in ("mrna", "mirna", "protein")},
        extras=_TCGA_EXTRAS,
    ),
    "citeseer": Recipe(
        "mv_citeseer.npz", "3,312 papers: words and citations.", ("content", "cites")
    ),
    "movies617": Recipe(
        "mv_movies617.npz",
        "617 films: keywords and actors; 17 genres.",
        ("keywords", "actors"),
    ),
    "handwritten": Recipe(
        "mv_handwritten.npz",
        "2,000 handwritten digits, six feature sets (UCI mfeat).",
        ("fac", "fou", "kar", "mor", "pix", "zer"),
    ),
    "three_sources": Recipe(
        "mv_3sources.npz",
        "169 news stories told by three sources.",
        ("bbc", "guardian", "reuters"),
    ),
    "skin": Recipe("skin.npz", "Blue, green, red of 245,057 pixels; 1 is skin (UCI)."),
    "eeg": Recipe(
        "eeg.npz",
        "14 EEG channels in time order; eye state (UCI).",
        columns={"X": "feature_names"},
        extras=("outlier_rows",),
    ),
    "spambase": Recipe("spambase.npz", "57 frequencies of 4,601 messages; 1 is spam (UCI)."),
}


def load_digits_halves() -> Bunch:
    """Load scikit-learn's bundled digits as two views: the upper and the lower half of every image.

    Returns
    -------
    Bunch
        data (1797, 64) float64 in 0..16, target (1797,), views {"upper": columns 0-31, "lower":
        columns 32-63}, target_names, feature_names, image_shape (8, 8), DESCR.
    """
    digits = load_digits()
    return Bunch(
        data=digits.data.astype(np.float64),
        target=digits.target,
        views={"upper": slice(0, 32), "lower": slice(32, 64)},
        target_names=digits.target_names,
        feature_names=list(digits.feature_names),
        image_shape=(8, 8),
        DESCR="1,797 handwritten digits of 8×8 pixels, upper and lower half as views (UCI, shipped "
        "with scikit-learn).",
    )


def load_newsgroups(
    words: Literal["content", "with_stop", "raw", "large"] = "content",
) -> Bunch:
    """Load word counts of 2,752 newsgroup documents of three classes.

    Parameters
    ----------
    words : {"content", "with_stop", "raw", "large"}
        20 frequent content words; 111 with stop words; 183 without any stripping; 3,035 words
        (sparse).

    Returns
    -------
    Bunch
        data, target, target_names, feature_names, is_train, DESCR.
    """
    suffixes = {"content": "", "with_stop": "_withstop", "raw": "_raw", "large": "_large"}
    if words not in suffixes:
        raise InputError(
            message(f"words as one of {', '.join(suffixes)}", repr(words), "choose one")
        )
    array = f"X{suffixes[words]}"
    vocabulary = f"vocab{suffixes[words]}"
    text = "Word counts of 2,752 documents of three newsgroups (20 newsgroups, bydate split)."
    return _follow(
        Recipe(
            "newsgroups.npz", text, (array,), columns={array: vocabulary}, extras=("is_train",)
        )
    )


def _loader(name: str) -> Callable[[], Bunch]:
    recipe = RECIPES[name]

    def load() -> Bunch:
        return _follow(recipe)

    return _named(load, name, recipe, "")


def _image_loader(name: str) -> Callable[..., Bunch]:
    recipe = RECIPES[name]

    def load(*, scale: bool = True) -> Bunch:
        return _follow(recipe, scale)

    parameters = (
        "\n\n    Parameters\n    ----------\n    scale : bool\n        Divide by 255 to "
        "float32 in [0, 1]."
    )
    return _named(load, name, recipe, parameters)


def _named(
    load: Callable[..., Bunch], name: str, recipe: Recipe, parameters: str
) -> Callable[..., Bunch]:
    load.__name__ = load.__qualname__ = f"load_{name}"
    load.__doc__ = f"""{recipe.description}

    From {recipe.file} in the folder BOCHNER_DATA.{parameters}

    Returns
    -------
    Bunch
        data, target, views where there are several, names where the file has them, DESCR.
    """
    return load


def _follow(recipe: Recipe, scale: bool = False) -> Bunch:
    stored = _open(recipe.file)
    blocks = {name: _array(stored, name) for name in recipe.arrays}
    data: Any = (
        next(iter(blocks.values())) if len(blocks) == 1 else _beside(list(blocks.values()))
    )
    if scale:
        data = data.astype(np.float32) / np.float32(255)
    bunch = Bunch(
        data=data,
        target=None if recipe.target is None else stored[recipe.target],
        DESCR=recipe.description,
    )
    if len(blocks) > 1:
        stops = np.cumsum([block.shape[1] for block in blocks.values()]).tolist()
        bunch.views = {
            n: slice(stop - blocks[n].shape[1], stop)
            for n, stop in zip(blocks, stops, strict=True)
        }
    if recipe.columns:
        bunch.feature_names = [
            str(name) for array in recipe.arrays for name in stored[recipe.columns[array]]
        ]
    if "class_names" in stored:
        bunch.target_names = stored["class_names"]
    if recipe.image:
        bunch.image_shape = recipe.image
    for extra in recipe.extras:
        bunch[extra] = stored[extra] if stored[extra].ndim else stored[extra].item()
    return bunch


def _beside(blocks: list[Any]) -> Any:
    return (
        sp.hstack(blocks, format="csr")
        if any(sp.issparse(block) for block in blocks)
        else np.hstack(blocks)
    )


def _array(stored: Mapping[str, NDArray[np.generic]], name: str) -> Any:
    if name in stored:
        return stored[name]
    values, indices, pointers, shape = (
        stored[f"{name}__{part}"] for part in ("data", "indices", "indptr", "shape")
    )
    index = (indices.astype(np.int32), pointers.astype(np.int32))
    return sp.csr_matrix((values, *index), shape=(int(shape[0]), int(shape[1])))


def _open(file: str) -> dict[str, NDArray[np.generic]]:
    folder = os.environ.get(VARIABLE)
    if not folder:
        do = f"set {VARIABLE} to the folder that holds {file}"
        raise InputError(message(f"the environment variable {VARIABLE}", "none", do))
    path = Path(folder) / file
    if not path.is_file():
        do = f"put {file} there, or set {VARIABLE} to the folder that holds it"
        raise InputError(
            message(f"the file {file} in {VARIABLE}={folder}", "no such file", do)
        )
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


load_mnist = _image_loader("mnist")
load_cifar10 = _image_loader("cifar10")
load_cifar10_full = _image_loader("cifar10_full")
load_brendan = _image_loader("brendan")
load_oil = _loader("oil")
load_bridges = _loader("bridges")
load_congress109 = _loader("congress109")
load_pbmc3k = _loader("pbmc3k")
load_breast_tcga = _loader("breast_tcga")
load_citeseer = _loader("citeseer")
load_movies617 = _loader("movies617")
load_handwritten = _loader("handwritten")
load_three_sources = _loader("three_sources")
load_skin = _loader("skin")
load_eeg = _loader("eeg")
load_spambase = _loader("spambase")
