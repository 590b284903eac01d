"""The report page: its size, and how soon a browser shows it: ``python benchmarks/report.py``.

Every row makes one page: MNIST digits (1,000 and 10,000, two dimensions), the digits of
scikit-learn as two views (eight dimensions, 28 planes), and breast TCGA from a file to a page by
one command, ``bochner fit FILE --report``, in a process of its own (a .h5mu file where the reader
of those is installed, .npz otherwise). Fits are short: the page is measured, not the model. With
playwright and Chromium (BOCHNER_CHROMIUM names one) the page is opened three times: milliseconds to
the first paint and until the map answers, medians; messages on the console that are errors are
counted.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import Job, Store, Value, arguments, table, timed

import bochner as bo

COLUMNS = {
    "fit_s": ".1f",
    "report_s": ".1f",
    "megabytes": ".2f",
    "first_paint_ms": ".0f",
    "ready_ms": ".0f",
    "console_errors": ".0f",
    "peak_mb": ".0f",
}
SETTINGS: dict[str, Any] = {"n_mixtures": 2, "n_frequencies": 50, "init": "pca", "max_iter": 60}
OPENED = 3


def opened(page: Path) -> dict[str, Value]:
    """First paint and readiness of a page in Chromium, or nothing where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    browser = (
        os.environ.get("BOCHNER_CHROMIUM")
        or shutil.which("chromium")
        or shutil.which("google-chrome")
    )
    if browser is None:
        return {}
    paints, readies, errors = [], [], []
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for _ in range(OPENED):
            tab = started.new_page(viewport={"width": 1400, "height": 950})
            tab.on(
                "console", lambda said: errors.append(said.text) if said.type == "error" else None
            )
            tab.on("pageerror", lambda error: errors.append(str(error)))
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
            paints.append(
                tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            )
            readies.append(
                tab.evaluate("performance.getEntriesByName('bochner:ready')[0].startTime")
            )
            tab.close()
        started.close()
    return {
        "first_paint_ms": float(statistics.median(paints)),
        "ready_ms": float(statistics.median(readies)),
        "console_errors": len(errors),
    }


def fitted(X: Any, d: int, seed: int, **options: Any) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return timed(lambda: bo.NGMVLVM(d, **SETTINGS, random_state=seed, **options).fit(X))


def measured(model: Any, fit_s: float, X: Any, labels: Any, **options: Any) -> dict[str, Value]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        _, seconds = timed(lambda: bo.report(model, X, labels, path=path, **options))
        size = path.stat().st_size / 1e6
        return {
            "fit_s": fit_s,
            "report_s": seconds,
            "megabytes": size,
            "peak_mb": peak(),
            **opened(path),
        }


def peak(who: int = resource.RUSAGE_SELF) -> float:
    return resource.getrusage(who).ru_maxrss / 1e3


def measure_mnist(n_rows: int, seed: int) -> dict[str, Value]:
    bunch = bo.datasets.load_mnist(scale=False)
    rows = np.sort(np.random.default_rng(seed).permutation(len(bunch.data))[:n_rows])
    X = np.asarray(bunch.data[rows], dtype=np.float32)
    model, seconds = fitted(X, 2, seed)
    return measured(model, seconds, X, bunch.target[rows])


def measure_digits(seed: int) -> dict[str, Value]:
    bunch = bo.datasets.load_digits_halves()
    model, seconds = fitted(bunch.data, 8, seed, views=bunch.views)
    return measured(
        model, seconds, bunch.data, bunch.target, shapes={"upper": (4, 8), "lower": (4, 8)}
    )


def measure_command(seed: int) -> dict[str, Value]:
    """Breast TCGA from file to page in one command."""
    bunch = bo.datasets.load_breast_tcga()
    with tempfile.TemporaryDirectory() as folder:
        file = written(bunch, Path(folder))
        settings = [
            part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")
        ]
        command = [
            sys.executable,
            "-m",
            "bochner",
            "fit",
            str(file),
            "--out",
            f"{folder}/o",
            "--seed",
            str(seed),
        ]
        run = partial(
            subprocess.run, [*command, *settings, "--report"], check=True, capture_output=True
        )
        _, seconds = timed(run)
        page = Path(folder) / "o" / "report.html"
        size, memory = page.stat().st_size / 1e6, peak(resource.RUSAGE_CHILDREN)
        return {"fit_s": seconds, "megabytes": size, "peak_mb": memory, **opened(page)}


def written(bunch: Any, folder: Path) -> Path:
    """Write the views as the modalities of one MuData file."""
    import anndata
    import mudata
    import pandas as pd

    with pd.option_context(
        "future.infer_string", False
    ):  # anndata cannot write the strings that pandas 3 makes
        parts = {
            name: anndata.AnnData(np.asarray(bunch.data[:, own], float))
            for name, own in bunch.views.items()
        }
        mudata.MuData(parts).write(folder / "tcga.h5mu")
    return folder / "tcga.h5mu"


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    for seed in seeds:
        yield Job("digits halves, D = 8", "report", seed, partial(measure_digits, seed))
        for n_rows in (300,) if quick else (1000, 10_000):
            yield Job(f"MNIST {n_rows:,}", "report", seed, partial(measure_mnist, n_rows, seed))
        if not quick:
            yield Job("breast TCGA", "fit --report", seed, partial(measure_command, seed))


def main() -> None:
    options = arguments(__doc__, seeds=1)
    store = Store("report", list(COLUMNS), options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
