"""What the settings of the indefinite features change: ``python benchmarks/krein_settings.py``.

Section V-F of Liu et al. (2020) varies the truncation of the mixture and the size of the sketch on
ijcnn1, which is not among the data; here it is EEG, the polynomial and the TL1 kernel, 2d features,
gradient inference; and the fits of its table III at 32d with a sketch of five rows, whose seconds
the paper prints, on EEG and spambase. Relative error over pairs of test rows, accuracy of a linear
SVM (C = 1 on standardised features) on the half of the rows that no fit saw, processor seconds of
the fit, and the rounds until its bound moved no more. "sketch of n": of so many rows, the
truncation at 5.
BOCHNER_DATA names the folder with the files.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

from harness import Job, Protocol, Value, timed
from krein import errors, halves
from linear_svm import SquaredHinge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bochner as bo
from bochner.errors import DataWarning

KERNELS = ("polynomial", "tl1")
WIDTH, WIDE = 2, 32
PUBLISHED = "sketch of 5"
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"T = {t}": {"n_mixtures": t} for t in (1, 5, 10)},
    **{f"sketch of {n}": {"sketch_size": n} for n in (5, 20, 100)},
}
COLUMNS = {
    "error": ".4f",
    "centred": ".4f",
    "accuracy": ".4f",
    "rounds": ".0f",
    "fit_seconds": ".1f",
}


def measure(name: str, kernel: str, width: int, setting: str, seed: int) -> dict[str, Value]:
    """Measure one setting."""
    X, y, X_test, y_test = halves(name, seed)
    model = bo.KreinFeatures(
        kernel,
        width * X.shape[1],
        inference="gradient",
        random_state=seed,
        **SETTINGS[setting],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        _, seconds = timed(lambda: model.fit(X))
        result = errors(model, "KreinFeatures", kernel, X_test[:1000])
    svm = make_pipeline(StandardScaler(), SquaredHinge()).fit(model.transform(X), y)
    score = float(svm.score(model.transform(X_test), y_test))
    return {**result, "accuracy": score, "rounds": len(model.history_), "fit_seconds": seconds}


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    """Yield all settings, seed by seed."""
    for seed in seeds:
        for kernel in KERNELS[:1] if quick else KERNELS:
            for setting in SETTINGS:
                run = partial(measure, "eeg", kernel, WIDTH, setting, seed)
                yield Job(f"eeg {kernel} {WIDTH}d", setting, seed, run)
        for name in () if quick else ("eeg", "spambase"):
            run = partial(measure, name, "polynomial", WIDE, PUBLISHED, seed)
            yield Job(f"{name} polynomial {WIDE}d", PUBLISHED, seed, run)


PROTOCOL = Protocol("krein_settings", tuple(COLUMNS), jobs)


if __name__ == "__main__":
    PROTOCOL.main(__doc__, COLUMNS)
