"""Several chains, in parallel processes where that is asked for: progress, checkpoints, Ctrl-C.

Chains advance together by a few sweeps at a time. What they drew lies in the calling process
after each round, so that an interruption keeps it; randomness is keyed by chain and sweep, so
that neither rounds nor processes nor a stop between them change a draw.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from bochner.errors import InputError, StorageError, StorageWarning, message, warn_user
from bochner.io import files
from bochner.io.extensions import chain_file
from bochner.io.schema import MismatchError, parse, whole
from bochner.mcmc.chain import Chain, Header, Schedule, chain_from_tensors, chain_to_tensors
from bochner.mcmc.model import Model, State
from bochner.progress import part

_LOG = logging.getLogger("bochner")
# Grows when what files hold changes.
SCHEMA = 1
# Sweeps of a round: few enough that progress is seen, many enough that sending data to processes
# costs little beside them.
SWEEPS_A_ROUND = 20

OnRound = Callable[[Sequence[Chain]], None]


@dataclass(frozen=True)
class ChainFiles:
    """One checkpoint per chain beside the path that the caller names.

    Attributes
    ----------
    path : Path
    fingerprint : str
        Of data and settings.
    """

    path: Path
    fingerprint: str

    def _of(self, number: int) -> Path:
        return chain_file(self.path, number)

    def write(self, chain: Chain) -> None:
        """Write a chain, whole or not at all."""
        tensors, header = chain_to_tensors(chain)
        kind = {"kind": "chain", "schema": SCHEMA, "fingerprint": self.fingerprint}
        try:
            files.write(self._of(chain.number), tensors, {**header, **kind})
        except (
            StorageError
            # no reason to lose the run: the last checkpoint is whole
        ) as error:
            warn_user(f"No checkpoint: {error} Sampling goes on.", StorageWarning)

    def read(self, number: int, model: Model, start: State) -> Chain | None:
        """Return a chain of an earlier run, None when there is none; it has the model's shapes.

        Raises
        ------
        InputError
            It belongs to other data or settings.
        ModelFileError
            It is damaged, or its parts are not those of a chain.
        """
        path = self._of(number)
        if not path.exists():
            return None
        tensors, header = files.read(path, "chain", SCHEMA)
        if header.get("fingerprint") != self.fingerprint:
            got = f"{path.name}, which belongs to other data or settings"
            do = "delete it or name another checkpoint; bochner fit starts anew with --force"
            raise InputError(message("the checkpoint of this very model", got, do))
        with whole(path.name, "chain"):
            of_chain = parse(Header, header, "the file")
            if of_chain.number != number:
                raise MismatchError(f"number is {of_chain.number} in place of {number}")
            return chain_from_tensors(tensors, of_chain, model, start)


@dataclass(frozen=True)
class Run:
    """Chains and why they ended.

    Attributes
    ----------
    chains : tuple of Chain
    interrupted : bool
    """

    chains: tuple[Chain, ...]
    interrupted: bool


def run(
    model: Model,
    starts: Sequence[State],
    schedule: Schedule,
    seed: int,
    *,
    n_jobs: int | None = None,
    shown: bool = False,
    checkpoint: ChainFiles | None = None,
) -> Run:
    """Run chains to the end of the schedule.

    Parameters
    ----------
    model : Model
    starts : sequence of State
        One per chain.
    schedule : Schedule
    seed : int
    n_jobs : int, optional
        Processes, as joblib counts them; None: one.
    shown : bool
        Whether a progress bar is wanted.
    checkpoint : ChainFiles, optional
        Where chains are written after each round, and continue from.

    Returns
    -------
    Run
    """
    chains = tuple(_begin(c, model, state, checkpoint) for c, state in enumerate(starts))
    interrupted = False
    with progress(schedule, shown) as on_round:
        on_round(chains)
        try:
            while any(chain.index < schedule.n_sweeps for chain in chains):
                chains = _advance(model, chains, schedule, seed, n_jobs)
                on_round(chains)
                for chain in chains if checkpoint is not None else ():
                    checkpoint.write(chain)  # type: ignore[union-attr]
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        drawn = min(chain.n_draws for chain in chains)
        warn_user(
            f"Interrupted: the {drawn} draws of each chain so far are kept.", UserWarning
        )
    return Run(chains, interrupted)


def _begin(number: int, model: Model, state: State, checkpoint: ChainFiles | None) -> Chain:
    earlier = None if checkpoint is None else checkpoint.read(number, model, state)
    return Chain.start(number, state) if earlier is None else earlier


def _advance(
    model: Model,
    chains: Sequence[Chain],
    schedule: Schedule,
    seed: int,
    n_jobs: int | None,
) -> tuple[Chain, ...]:
    if n_jobs in (None, 1) or len(chains) == 1:
        return tuple(chain.advance(model, schedule, seed, SWEEPS_A_ROUND) for chain in chains)
    # what was drawn before stays here: only states and moments travel
    bare = [Chain(c.number, c.index, c.state, {}, (), c.missing) for c in chains]
    advanced = Parallel(n_jobs=n_jobs)(
        delayed(Chain.advance)(chain, model, schedule, seed, SWEEPS_A_ROUND) for chain in bare
    )
    return tuple(old.joined(new) for old, new in zip(chains, advanced, strict=True))


@contextmanager
def progress(schedule: Schedule, shown: bool) -> Iterator[OnRound]:
    """Yield a function to call after every round: a bar on a terminal, lines for a log."""
    with part("sampling", schedule.n_sweeps, shown) as move:

        def update(chains: Sequence[Chain]) -> None:
            words = _described(chains, schedule)
            if move is None:
                _LOG.info("sampling: %s", words)
            else:
                move(min(chain.index for chain in chains), words, schedule.n_sweeps)

        yield update


def _described(chains: Sequence[Chain], schedule: Schedule) -> str:
    """Say where the chains are."""
    index = min(chain.index for chain in chains)
    phase = "warm-up" if index < schedule.n_warmup else "draws"
    text = f"{phase}, sweep {index}, {len(chains)} chains"
    # none before the first sweep, or where latents are not sampled
    rate = np.mean([chain.state.acceptance.get("latents", np.nan) for chain in chains])
    if np.isfinite(rate):
        text += f", acceptance {rate:.2f}"
    if all(chain.n_draws for chain in chains):
        last = np.mean([chain.traces["log_joint"][-1] for chain in chains])
        text += f", log joint {last:,.0f}"
    return text
