"""Run the campaign: ``python -m campaign fits --trials 100 --seed 0``."""

import argparse
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
DOCS = Path(__file__).parents[3] / "docs"


def main():
    """Run parts, print their faults and counts; with --record add them to docs/campaign.*."""
    from campaign import PARTS, counts

    parser = argparse.ArgumentParser(prog="python -m campaign", description=main.__doc__)
    parser.add_argument("part", choices=[*PARTS, "all", "page"])
    parser.add_argument("--trials", type=int, help="how many; all of the part when left out")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    n_faults = 0
    for name in PARTS if given.part == "all" else [given.part] if given.part in PARTS else []:
        part = _run(name, PARTS[name], given)
        n_faults += part.faults
        if given.record:
            counts.record(DOCS, name, part)
    counts.write_page(DOCS) if given.record or given.part == "page" else None
    return 1 if n_faults else 0


def _run(name, kind, given):
    from campaign import counts

    part = counts.Part()
    with suppress(KeyboardInterrupt):  # what was run until then is counted
        for seed in range(given.seed, given.seed + (given.trials or kind.n_trials())):
            trial = kind.trial(seed)
            part.add(trial)
            part.seeds = [[given.seed, seed]]
            for fault in trial.faults:
                print(f"FAULT {name} --seed {seed}: {fault}", flush=True)
    seconds = f"{part.seconds:.0f} processor seconds"
    print(
        f"{name} seeds {part.seeds} {dict(part.kinds)}, {part.faults} faults, {seconds}", flush=True
    )
    return part


if __name__ == "__main__":
    sys.exit(main())
