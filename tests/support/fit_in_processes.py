"""One process of several that fit one model, or several after one another: ``main`` with cases
between commas, and a folder.
"""

import functools
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

import bochner as bo
from bochner.errors import InputError
from bochner.fitting import fit as fit_module
from bochner.fitting import landmarks, row_selection
from bochner.fitting.row_passes import KeptPasses, Pace
from bochner.latent_inference.infer import Placer
from bochner.model_selection import calibrate
from bochner.processes import local_part
from helpers.second_device import second_device

SETTINGS = {
    "n_frequencies": 8,
    "init": "pca",
    "max_iter": 8,
    "landmarks": 70,
    "random_state": 0,
}
TWO = {"views": {"left": slice(0, 3), "right": slice(3, 6)}}


def data():
    """Three hundred rows of six columns about a surface."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 2))
    clean = np.sin(Z @ rng.normal(size=(2, 6)))
    return 2.0 * clean + 0.3 * rng.normal(size=clean.shape) + 4.0


def with_holes(X, case):
    """Hide entries: single ones, or whole views, of which the first process has none or all."""
    X = counted(X, case) if case in COUNTS else X.copy()
    if case == "covariates":
        batch = beside()[0]["batch"]
        X += 3.0 * (batch == "b")[:, None] - 2.0 * (batch == "c")[:, None]
    if case == "covariates_counts":
        return counted(X, "beside")
    if case in ("holes", "device"):
        X[:, :3][np.random.default_rng(1).random((len(X), 3)) < 0.15] = np.nan
    if case == "absent":
        X[:120, 3:] = np.nan
        X[200:260, :3] = np.nan
    return X


COUNTS = {
    "poisson": {"likelihood": bo.likelihoods.Poisson(size_factors="total")},
    "negative_binomial": {"likelihood": "negative_binomial"},
    "bernoulli": {"likelihood": "bernoulli"},
    "beside": {**TWO, "likelihood": {"left": "poisson"}},
}


def beside():
    """What is known of the rows: a batch that moves them, an age, and sizes."""
    rng = np.random.default_rng(4)
    batch = np.sort(rng.choice(["a", "b", "c"], 300, p=[0.5, 0.3, 0.2])).astype(object)
    batch[::50] = None
    age = rng.normal(40.0, 10.0, 300)
    age[::70] = np.nan
    return {"batch": batch, "age": age}, rng.uniform(0.3, 3.0, 300)


CALIBRATED = {
    "two": {"hide": "view"},
    "stored": {},
    "covariates": {"max_rows": 100},
    "covariates_counts": {"max_rows": 100},
}


def calibrated(model, X, case):
    """Calibrate on the rows here, in many small parts, and return the report as plain values."""
    calibrate._PLACED = 2**18
    here = local_part(300)
    known, factors = beside()
    more = {}
    if case.startswith("covariates"):
        more["covariates"] = {name: values[here] for name, values in known.items()}
    if case == "covariates_counts":
        more["size_factors"] = {"left": factors[here]}
    asked = {"n_draws": 20, "random_state": 3, **CALIBRATED[case]}
    report = bo.calibration(model, X, **asked, **more)
    views = {
        view: [*found.coverage.values(), *found.pit, found.log_likelihood, found.n_entries]
        for view, found in report.views.items()
    }
    return report.hidden, views


def refused_later(model, X, rank):
    """Return what is refused of calibrations that differ, and of what several cannot do."""
    known = beside()[0]
    given = {name: values[local_part(300)] for name, values in known.items()}
    short = given | {"age": given["age"][rank:]}
    calls = (
        lambda: bo.calibration(model, X, n_draws=20 + rank, covariates=given),
        lambda: bo.calibration(model, X[:, : 6 - rank], covariates=given),
        lambda: bo.calibration(model, X, covariates=short),
        lambda: bo.calibration(model, X, covariates=given, hide="left"),
        lambda: bo.select_n_components(model, X),
    )
    return [said_of(call) for call in calls]


FAULTS = {"killed": RuntimeError, "interrupted": KeyboardInterrupt}


def counted(X, case):
    """Turn numbers about 4 into counts, or into zeros and ones, of some columns or all."""
    if case == "bernoulli":
        return (X > 4.0).astype(float)
    rate = np.exp(0.5 * (X - 4.0)) * np.random.default_rng(2).gamma(5.0, 0.4, size=(len(X), 1))
    counts = np.random.default_rng(3).poisson(rate).astype(float)
    return np.hstack([counts[:, :3], X[:, 3:]]) if case == "beside" else counts


def with_covariates(X, rows):
    """Fit counts beside other columns, with all that ``fit`` takes beside rows."""
    known, factors = beside()
    model = bo.NGMVLVM(**COUNTS["beside"], **SETTINGS)
    given = {name: values[rows] for name, values in known.items()}
    return model.fit(X, covariates=given, size_factors={"left": factors[rows]})


def fitted(case, X):
    """Fit a model of a case."""
    if case.startswith("covariates"):
        here = local_part(300)
        rows = here if len(X) == here.stop - here.start else slice(None)
        if case == "covariates_counts":
            return with_covariates(X, rows)
        given = {name: values[rows] for name, values in beside()[0].items()}
        return bo.NGMVLVM(**SETTINGS).fit(X, covariates=given)
    if case in COUNTS:
        model = bo.SRFLVM if case == "bernoulli" else bo.NGMVLVM
        return model(**COUNTS[case], **SETTINGS).fit(X)
    if case == "dirichlet":
        return bo.SRFLVM(**SETTINGS).fit(X)
    if case == "device":
        with second_device() as name:
            return bo.NGMVLVM(**TWO, **SETTINGS, device=name).fit(X)
    noise = {"noise": "column"} if case == "columns" else {}
    views = {} if case in ("one", "columns") else TWO
    return (bo.AdvisedRFLVM if noise else bo.NGMVLVM)(**noise, **views, **SETTINGS).fit(X)


def cut_short(*_):
    """Fail where rows have been placed and passes over all of them begin."""
    raise RuntimeError("no luck")


def cut_after(count, plain):
    """Return the bound of the joint steps, which fails after so many of them."""

    def bound(*given, **options):
        bound.calls.append(0)
        if len(bound.calls) > count:
            raise RuntimeError("no luck")
        return plain(*given, **options)

    bound.calls = []
    return bound


def kept(rows, folder):
    """Fit with a checkpoint, or go on from it."""
    return bo.NGMVLVM(**SETTINGS, checkpoint=folder / "run.ckpt").fit(rows)


def work_of(shared, checkpoint=None):
    """Fit, and return how many trainings and placed rows the fit took in this process."""
    trained, placed, spread = [], [], []
    train, place = fit_module._train, Placer.place

    def counted(*given):
        trained.append(0)
        return train(*given)

    def watched(self, rows, *given, **more):
        if more.get("polish", True):
            placed.append(len(rows[0]))
        else:
            spread.append(len(rows[0]))
        return place(self, rows, *given, **more)

    fit_module._train, Placer.place = counted, watched
    model = bo.NGMVLVM(**SETTINGS, checkpoint=checkpoint).fit(shared)
    fit_module._train, Placer.place = train, place
    return model, {"trained": len(trained), "placed": sum(placed), "spread": sum(spread)}


def save(model, path, **more):
    """Write what tests compare."""
    np.savez(path, elbo=model.elbo_, embedding=model.embedding_, **more)


def blocks(folder):
    """Fail in one process, which lives on and keeps the error, and fit in blocks after it."""
    try:
        with bo.distributed() as processes:
            if processes.rank == 1:
                raise RuntimeError("no luck")
            fitted("one", bo.share(data()))
    except Exception as error:
        kept = error
        (folder / f"{processes.rank}.txt").write_text(str(error))
    # a process that waits for one that lives has no other end than the group's
    while not (folder / "0.txt").exists():
        time.sleep(0.05)
    random = np.random.RandomState(0)
    for number in range(2):
        with bo.distributed() as processes:
            model = bo.NGMVLVM(**SETTINGS | {"random_state": random}).fit(bo.share(data()))
        save(model, folder / f"block{number}{processes.rank}.npz")
    assert kept is not None


def refused(X, rank):
    """Return fits that one process or all of them refuse."""
    infinite, typed = X.copy(), X.astype(np.float32) if rank else X
    if rank:
        infinite[3, 2] = np.inf
    counts = {"likelihood": "poisson"} if rank else {}
    holes = X.copy()
    holes[7, 1] = np.nan
    named = pd.DataFrame(X, columns=[*"abcde", "g" if rank else "f"])
    mixed = pd.DataFrame(X, columns=[*"abcdef"]).assign(kind="u")
    array = {"init": np.zeros((300, 2))}

    def model(kind=bo.NGMVLVM, **settings):
        return kind(**SETTINGS | settings)

    counted, ones = np.round(np.abs(X)), np.ones(len(X))

    def sized(sizes):
        return model(likelihood="poisson").fit(counted, size_factors=sizes)

    fits = [
        (model(), infinite),
        (model(), X[:, : 6 - rank]),
        (model(landmarks=None), X),
        (model(), X[: 0 if rank else 9]),
        (model(), typed),
        (model(), named),
        (model(**counts), np.round(np.abs(X))),
        (model(likelihood="binomial"), X),
        (model(), csr_array(X)),
        (model(likelihood="auto"), mixed),
        (model(bo.AdvisedRFLVM, noise="column"), holes if rank else X),
        (bo.RFLVM(), X),
        (model(**array), X),
    ]
    fits = [functools.partial(kind.fit, rows) for kind, rows in fits]
    sizes = (None if rank else ones, -ones if rank else ones)
    return [*fits, *(functools.partial(sized, given) for given in sizes)]


def said_of(call):
    """Return the message with which something is refused."""
    try:
        call()
    except InputError as error:
        return str(error)
    return "done"


def killed_once(folder):
    """Fit as torchrun starts it: the first time a process is killed where all rows are placed."""
    with bo.distributed() as processes:
        again = (folder / "killed").exists()

        def killed(*_):
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

        if processes.rank == 1 and not again:
            landmarks.train_jointly = killed
        model, took = work_of(bo.share(data()), folder / "run.ckpt")
        save(model, folder / f"again{processes.rank}.npz", again=again, **took)


def main():
    """Run cases."""
    if sys.argv[1] == "killed_once":
        killed_once(Path(sys.argv[2]))
        return
    if sys.argv[1] == "blocks":
        blocks(Path(sys.argv[2]))
        return
    cases, folder = sys.argv[1].split(","), Path(sys.argv[2])
    with bo.distributed() as processes:
        for case in cases:
            run(case, folder, processes)


def stored(case, folder, rank):
    """Return rows on disk: a part of them, or shards of which one is smaller than the landmarks."""
    X = np.load(folder / f"{case}.npy", mmap_mode="r")
    return np.split(X, [30])[rank] if case == "shards" else bo.share(X)


def run(case, folder, processes):
    """Fit, and write what the test compares."""
    X = with_holes(data(), case)
    shared = bo.share(X)
    if case == "refused":
        said = [said_of(fit) for fit in refused(shared, processes.rank)]
        (folder / f"{processes.rank}.txt").write_text("\n".join(said))
        return
    if case in FAULTS:
        if processes.rank == 1:
            raise FAULTS[case]("no luck")
        try:
            fitted("one", shared)
        except BaseException as error:
            (folder / f"{processes.rank}.txt").write_text(type(error).__name__)
            raise
    if case == "cut":
        landmarks.train_jointly = cut_short
        kept(shared, folder)
    if case == "steps":
        row_selection.KeptPasses = functools.partial(KeptPasses, pace=Pace(0.0, 0.0))
        landmarks.elbo_at = cut_after(12, landmarks.elbo_at)
        kept(shared, folder)
    if case == "other":
        model = bo.NGMVLVM(**SETTINGS, checkpoint=folder / "run.ckpt")
        said = said_of(functools.partial(model.fit, shared + 1.0))
        (folder / f"{processes.rank}.txt").write_text(said)
        return
    if case == "resumed":
        landmarks.elbo_at = counted = cut_after(10**6, landmarks.elbo_at)
        model = kept(shared, folder)
        save(model, folder / f"{case}{processes.rank}.npz", steps=len(counted.calls))
        return
    if case == "work":
        model, took = work_of(shared)
        save(model, folder / f"{case}{processes.rank}.npz", **took)
        return
    if case in ("stored", "poisson", "shards"):
        shared = stored(case, folder, processes.rank)
    model = fitted("one" if case in ("stored", "shards") else case, shared)
    model.save(folder / f"{case}.bochner")
    save(model, folder / f"{case}{processes.rank}.npz")
    if case in CALIBRATED:
        found = calibrated(model, shared, case)
        (folder / f"{case}{processes.rank}.json").write_text(json.dumps(found))
    if case == "covariates":
        said = refused_later(model, shared, processes.rank)
        (folder / f"later{processes.rank}.txt").write_text("\n".join(said))


if __name__ == "__main__":
    main()
