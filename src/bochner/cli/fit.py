"""``bochner fit``: read, fit, write; an interrupted run leaves what is needed to continue it."""

from __future__ import annotations

import json
import math
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from bochner import progress
from bochner.cli.apply import working_on
from bochner.cli.data import Reading, frame, load_model, names_of_views, write_embedding
from bochner.cli.mixed_tables.whole import covariates_to_fit, size_factors_in, table_to_fit
from bochner.cli.parse import (
    ELSEWHERE,
    EMBEDDING,
    PAGE,
    PICTURES,
    SEED_FILE,
    check_earlier_run,
    check_writable,
    parse_by_view,
    parse_settings,
    parse_views,
)
from bochner.cli.session import in_job, one_thread_if_small, say
from bochner.data.covariates import of_rows
from bochner.data.row_sources import share
from bochner.data.validation import check_shared_rows
from bochner.errors import InputError, StorageError, message
from bochner.io.extensions import CHECKPOINT, MODEL_FILE, checkpoints
from bochner.io.on_disk import StoredTable, evenly
from bochner.io.outputs import alone_in, remove, replacing
from bochner.io.table import Table
from bochner.page.report import report
from bochner.processes import ALONE, Processes, current, distributed, in_all_rows, local_part
from bochner.training.checkpoint import LastingPath

if TYPE_CHECKING:
    from bochner.estimators.base import LatentVariableEstimator

T = TypeVar("T")
# Rows on the page of a table that is not in memory.
_SHOWN = 5000


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of ``bochner fit``; see its help."""

    data: Path
    out: Path
    model: str
    views: Sequence[str] = ()
    likelihood: Sequence[str] = ()
    settings: Sequence[str] = ()
    index: str | None = None
    seed: int | None = None
    resume: bool = False
    force: bool = False
    layer: Sequence[str] = ()
    report: bool = False
    reading: Reading = field(default_factory=Reading)
    batch: Sequence[str] = ()
    covariates: Sequence[str] = ()
    size_factors: str | None = None

    def read(self) -> Table:
        """Read the data: of views by name only their columns."""
        known = names_of_views(self.views)
        auto = not self.views and self.likelihood in (["auto"], ("auto",))
        reading = self.reading.without(
            self.data, [*self.batch, *self.covariates, self.size_factors]
        )
        asked = (self.data, self.index, self.layer)
        if not auto:
            stored = reading.open(*asked, known) or reading.open_text(*asked, known)
            if stored is not None:
                return stored
        table = table_to_fit(*asked, reading, known, auto)
        # here, where rows have names; a fit looks again
        check_shared_rows(table.X, table.views or {}, table.row_names)
        return table

    def read_beside(self) -> dict[str, object]:
        """Read what is known of the rows beside the data: what ``fit`` takes."""
        named = (self.batch, self.covariates)
        covariates = covariates_to_fit(self.data, *named, self.index, self.reading)
        factors = size_factors_in(self.data, self.size_factors, self.index, self.reading)
        return {"covariates": covariates, "size_factors": factors}


def run(options: FitOptions) -> tuple[dict[str, object], bool]:
    """Fit and write ``model.bochner``, ``embedding.csv`` and, where matplotlib is there, two
    pictures.

    Returns
    -------
    result : dict
        model, elbo, elbo_se, n_iter, converged, seconds, seed, files.
    interrupted : bool
        Ctrl-C or SIGTERM ended training; the files hold the best state until then.

    Raises
    ------
    InputError
        The data or the options cannot be used; nothing is left behind in ``out``.
    """
    started = time.perf_counter()
    with ExitStack() as held:
        if in_job():
            with distributed() as among:
                estimator, table, beside, seed = _fit_all(options, held, among)
                estimator.set_params(checkpoint=None)
                # rows that changed end the run here, with its checkpoint
                _ = estimator.embedding_std_
                with _checkpoint_said(options.out):
                    estimator.save(options.out / MODEL_FILE)
            if among.rank > 0:
                return {}, False
            # of the rows of all
            estimator = load_model(options.out)
        else:
            estimator, table, beside, seed = _fit_all(options, held, ALONE)
        files = _write_all(options, estimator, table, beside)
        # only now: all that the run found is on the disk
        if not estimator.interrupted_:
            for path in (*checkpoints(options.out), options.out / SEED_FILE):
                remove(path)
    result = {
        "model": options.model,
        "elbo": estimator.elbo_,
        "elbo_se": estimator.elbo_se_,
        "n_iter": estimator.n_iter_,
        "converged": estimator.converged_,
        "seconds": round(time.perf_counter() - started, 3),
        "seed": seed,
        "files": [str(path) for path in files],
    }
    return result, estimator.interrupted_


def _fit_all(
    options: FitOptions, held: ExitStack, among: Processes
) -> tuple[LatentVariableEstimator, Table, dict[str, object], int]:
    """Read and fit; return the estimator, what was read and the seed. Of several processes the
    first one has the folder, and each fits its part of the rows.
    """

    def first(work: Callable[[], T]) -> T | None:
        return among.together(lambda: work() if among.rank == 0 else None)

    def hold() -> None:
        held.enter_context(alone_in(options.out))
        _check_earlier_run(options)

    is_there = options.out.is_dir()
    first(hold if is_there else lambda: _check_earlier_run(options))
    table, beside = among.together(lambda: (options.read(), options.read_beside()))
    progress.say("looking at the data")
    estimator = among.together(lambda: estimator_of(options, table))
    created = bool(first(lambda: _prepare(options.out)))
    # another run may have come first
    if not is_there:
        first(hold)
    try:
        seed = among.first(first(lambda: _begin(options))) or 0
        _fit(options, estimator, table, beside, seed)
    except BaseException:  # Ctrl-C before there is anything to keep
        if among.rank == 0:
            _clean(options.out, created)
        raise
    return estimator, table, beside, seed


def _begin(options: FitOptions) -> int:
    """Leave earlier runs behind where that is asked for; return the seed."""
    if options.force:
        for path in checkpoints(options.out):
            remove(path)
    return _seed(options)


def _fit(
    options: FitOptions,
    estimator: LatentVariableEstimator,
    table: Table,
    beside: dict[str, object],
    seed: int,
) -> None:
    """Fit the rows of this process."""
    estimator.set_params(
        random_state=seed, checkpoint=LastingPath(options.out / CHECKPOINT), verbose=1
    )
    with warnings.catch_warnings():
        # said by the command
        warnings.filterwarnings("ignore", message="Interrupted", category=UserWarning)
        rows = frame(table)
        with one_thread_if_small(math.prod(rows.shape)):
            if in_job():
                part = local_part(rows.shape[0])
                here = np.arange(part.start, part.stop)
                beside = {what: of_rows(given, here) for what, given in beside.items()}
                rows = share(rows)
            among = current()
            starts = [among.part(table.shape[0], rank).start for rank in range(among.size)]
            with in_all_rows(starts):
                estimator.fit(rows, **beside)
    if table.column_names is not None:
        # without pandas they are not there
        estimator.feature_names_in_ = np.array(table.column_names, dtype=object)


def estimator_of(options: FitOptions, table: Table) -> LatentVariableEstimator:
    """Build the estimator that the options describe, not fitted."""
    from bochner.estimators.annotated import MODELS

    cls: Callable[..., LatentVariableEstimator] = MODELS[options.model]
    settings = parse_settings(
        options.settings, sorted(cls().get_params(deep=False)), ELSEWHERE
    )
    views = parse_views(options.views, table.column_names) or table.views
    likelihood = parse_by_view(options.likelihood, "--likelihood")
    return cls(
        **settings, views=views, **({} if likelihood is None else {"likelihood": likelihood})
    )


def _prepare(out: Path) -> bool:
    """Make the folder; True when it was not there."""
    created = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    return created


def _clean(out: Path, created: bool) -> None:
    """Leave no trace of a fit that did not begin."""
    if not checkpoints(out):
        (out / SEED_FILE).unlink(missing_ok=True)
    if created and not any(out.iterdir()):
        out.rmdir()


def _check_earlier_run(options: FitOptions) -> None:
    """Refuse to replace an earlier run; say where there is none to continue."""
    check_earlier_run(options.data, options.out, options.resume, options.force)
    if options.resume and not options.force and not checkpoints(options.out):
        say(f"No interrupted run in {options.out}: starting from the beginning.")


def _seed(options: FitOptions) -> int:
    """Take the seed of the option, or of the run to continue, or a fresh one; a run to come can
    find it again.
    """
    path = options.out / SEED_FILE
    # then the file stays as it is: a checkpoint is of no use without its seed
    begun = bool(checkpoints(options.out))
    stored = _stored_seed(path) if options.resume else None
    if begun and options.seed is not None and stored not in (None, options.seed):
        got, do = f"--seed {options.seed}", "leave out --seed, or start anew with --force"
        raise InputError(message(f"the seed of the interrupted run, {stored}", got, do))
    seed = stored if options.seed is None else options.seed
    if seed is None and (begun or (options.resume and path.is_file())):
        got = f"a damaged {path}" if path.is_file() else f"no {path}"
        raise InputError(message("the seed of the interrupted run", got, "give --seed"))
    if seed is None:
        seed = secrets.randbelow(2**31)
    if not begun:
        with replacing(path) as part:
            part.write_text(json.dumps({"seed": seed}) + "\n")
    return seed


def _stored_seed(path: Path) -> int | None:
    """Return the seed of an interrupted run; None where the file is not there or damaged."""
    try:
        return int(json.loads(path.read_text())["seed"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_all(
    options: FitOptions,
    estimator: LatentVariableEstimator,
    table: Table,
    beside: dict[str, object],
) -> list[Path]:
    with _checkpoint_said(options.out):
        files = _write(options.out, estimator, table)
        return [*files, _page(options, estimator, table, beside)] if options.report else files


@contextmanager
def _checkpoint_said(out: Path) -> Iterator[None]:
    """Say, where results cannot be written, that the run can go on from its checkpoint."""
    try:
        yield
    except StorageError as error:
        if not (out / CHECKPOINT).exists():
            raise
        do = "The checkpoint is kept: free some space and run the command again with --resume."
        raise StorageError(f"{error} {do}") from error


def _write(out: Path, estimator: LatentVariableEstimator, table: Table) -> list[Path]:
    files = [out / MODEL_FILE, out / EMBEDDING]
    # a path of this run has no place in a file that travels
    estimator.set_params(checkpoint=None)
    # first: rows on disk are placed here, once for all files
    std = estimator.embedding_std_
    progress.say("writing")
    estimator.save(files[0])
    write_embedding(files[1], (estimator.embedding_, std), table)
    try:
        return [*files, *_pictures(out, estimator, table)]
    except ImportError as error:
        say(f"No pictures: {error}")
        return files


def _page(
    options: FitOptions,
    estimator: LatentVariableEstimator,
    table: Table,
    beside: dict[str, object],
) -> Path:
    if isinstance(table, StoredTable):
        some = evenly(table.rows.n_rows, _SHOWN)
        table = table.sampled(_SHOWN)
        beside = {what: of_rows(given, some) for what, given in beside.items()}
    X = frame(replace(table, X=table.X.astype(estimator.embedding_.dtype)))
    path = options.out / PAGE
    title = options.out.resolve().name
    with working_on(X.shape):
        return report(
            estimator,
            X,
            table.labels,
            path=path,
            row_names=table.row_names,
            title=title,
            overwrite=True,
            size_factors=beside["size_factors"],
            covariates=beside["covariates"],
        )


def _pictures(out: Path, estimator: LatentVariableEstimator, table: Table) -> list[Path]:
    from bochner import plots

    bound, latent = (out / name for name in PICTURES)
    return [
        plots.save(plots.bound_trace(estimator), bound),
        plots.save(plots.latent_map(estimator, labels=table.labels), latent),
    ]
