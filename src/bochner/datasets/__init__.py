"""Data sets: generators, scikit-learn's digits in two halves, and loaders of files in the folder
BOCHNER_DATA.
"""

from bochner.datasets.channel import make_channel
from bochner.datasets.load import (
    load_breast_tcga,
    load_brendan,
    load_bridges,
    load_cifar10,
    load_cifar10_full,
    load_citeseer,
    load_congress109,
    load_digits_halves,
    load_eeg,
    load_handwritten,
    load_mnist,
    load_movies617,
    load_newsgroups,
    load_oil,
    load_pbmc3k,
    load_skin,
    load_spambase,
    load_three_sources,
)
from bochner.datasets.make import make_s_curve

__all__ = [
    "load_breast_tcga",
    "load_brendan",
    "load_bridges",
    "load_cifar10",
    "load_cifar10_full",
    "load_citeseer",
    "load_congress109",
    "load_digits_halves",
    "load_eeg",
    "load_handwritten",
    "load_mnist",
    "load_movies617",
    "load_newsgroups",
    "load_oil",
    "load_pbmc3k",
    "load_skin",
    "load_spambase",
    "load_three_sources",
    "make_channel",
    "make_s_curve",
]
