"""The report page: its size, and how soon a browser shows it: ``python benchmarks/report.py``.

Every row makes one page: MNIST digits (1,000 and 10,000, two dimensions), the digits of
scikit-learn as two views (eight dimensions, 28 planes), made data of 100,000 rows, three dimensions
and 50 columns with row names, two labels and a layout, and breast TCGA from a file to a page by one
command, ``bochner fit FILE --report``, in a process of its own (a .h5mu file where the reader of
those is installed, .npz otherwise). Fits are short: the page is measured, not the model. With
playwright and Chromium (BOCHNER_CHROMIUM names one) the page is opened three times: milliseconds to
the first paint and until the map answers, and from the pointer's event to the second frame after
it (36 pointings), medians; messages on the console that are errors are counted, and, where
BOCHNER_AXE names axe-core's axe.min.js, its violations of the serious and critical kind.
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
    "pointer_ms": ".0f",
    "console_errors": ".0f",
    "violations": ".0f",
    "peak_mb": ".0f",
}
SETTINGS: dict[str, Any] = {
    "n_mixtures": 2,
    "n_frequencies": 50,
    "init": "pca",
    "max_iter": 60,
}
OPENED, POINTED = 3, 12
# Resolves with the milliseconds until a second frame is drawn.
POINT = """([x, y]) => new Promise(done => {
  const start = performance.now();
  const event = new PointerEvent(
    "pointermove", {clientX: x, clientY: y, bubbles: true, pointerType: "mouse"});
  document.elementFromPoint(x, y).dispatchEvent(event);
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""
VIOLATIONS = """async () => (await axe.run()).violations
  .filter(found => ["serious", "critical"].includes(found.impact)).length"""


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
    paints, readies, pointings, errors = [], [], [], []
    violations: dict[str, Value] = {}
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for _ in range(OPENED):
            # the policy of the page allows no script but its own, axe-core among those
            tab = started.new_page(viewport={"width": 1400, "height": 950}, bypass_csp=True)
            tab.on(
                "console",
                lambda said: errors.append(said.text) if said.type == "error" else None,
            )
            tab.on("pageerror", lambda error: errors.append(str(error)))
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
            paints.append(
                tab.evaluate(
                    "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                )
            )
            readies.append(
                tab.evaluate("performance.getEntriesByName('bochner:ready')[0].startTime")
            )
            box = tab.locator("#map").bounding_box()
            assert box is not None, "the map is not shown"
            for i in range(POINTED):
                at = [0.3 + 0.035 * i, 0.35 + 0.02 * i]
                x, y = box["x"] + at[0] * box["width"], box["y"] + at[1] * box["height"]
                pointings.append(tab.evaluate(POINT, [x, y]))
            if "BOCHNER_AXE" in os.environ:
                tab.evaluate(Path(os.environ["BOCHNER_AXE"]).read_text())
                violations["violations"] = tab.evaluate(VIOLATIONS)
            tab.close()
        started.close()
    return {
        **violations,
        "pointer_ms": float(statistics.median(pointings)),
        "first_paint_ms": float(statistics.median(paints)),
        "ready_ms": float(statistics.median(readies)),
        "console_errors": len(errors),
    }


def fitted(X: Any, d: int, seed: int, **options: Any) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return timed(lambda: bo.NGMVLVM(d, **SETTINGS, random_state=seed, **options).fit(X))


def measured(
    model: Any, fit_s: float, X: Any, labels: Any, **options: Any
) -> dict[str, Value]:
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


def measure_many(seed: int, n_rows: int = 100_000) -> dict[str, Value]:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 6, n_rows)
    Z = 1.5 * rng.normal(size=(6, 3))[group] + 0.4 * rng.normal(size=(n_rows, 3))
    X = np.sin(Z @ rng.normal(size=(3, 50))) + 0.5 * Z @ rng.normal(size=(3, 50))
    X += 0.1 * rng.normal(size=X.shape)
    model, seconds = fitted(X[:1000], 3, seed)
    labels = {"group": np.array(list("abcdef"))[group], "first": X[:, 0]}
    names = [f"row {i}" for i in range(n_rows)]
    beside: dict[str, Any] = {"row_names": names, "embedding": {"made": Z[:, :2]}}
    return measured(model, seconds, X, labels, **beside)


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
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        page = Path(folder) / "o" / "report.html"
        size, memory = page.stat().st_size / 1e6, peak(resource.RUSAGE_CHILDREN)
        return {"fit_s": seconds, "megabytes": size, "peak_mb": memory, **opened(page)}


def written(bunch: Any, folder: Path) -> Path:
    """Write the views as the modalities of one MuData file."""
    import anndata
    import mudata
    import pandas as pd

    # anndata cannot write the strings that pandas 3 makes
    with pd.option_context("future.infer_string", False):
        parts = {
            name: anndata.AnnData(np.asarray(bunch.data[:, columns], float))
            for name, columns in bunch.views.items()
        }
        mudata.MuData(parts).write(folder / "tcga.h5mu")
    return folder / "tcga.h5mu"


def jobs(seeds: range, quick: bool) -> Iterator[Job]:
    for seed in seeds:
        yield Job("digits halves, D = 8", "report", seed, partial(measure_digits, seed))
        for n_rows in (300,) if quick else (1000, 10_000):
            yield Job(
                f"MNIST {n_rows:,}", "report", seed, partial(measure_mnist, n_rows, seed)
            )
        if not quick:
            yield Job("made 100,000, D = 3", "report", seed, partial(measure_many, seed))
            yield Job("breast TCGA", "fit --report", seed, partial(measure_command, seed))


def main() -> None:
    options = arguments(__doc__, seeds=1)
    store = Store("report", list(COLUMNS), options.quick)
    store.collect(jobs(options.seeds, options.quick))
    print(table(store.rows(), COLUMNS))


if __name__ == "__main__":
    main()
