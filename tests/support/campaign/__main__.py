"""Run the campaign: ``python -m campaign fits --trials 100 --seed 0``."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
DOCS = Path(__file__).parents[3] / "docs"


# Counts are added after so many trials: what ends a campaign loses no more.
PIECE = 5


def main():
    """Run parts, print their faults and counts; with --record add them to docs/campaign.*."""
    from campaign import PARTS, counts

    parser = argparse.ArgumentParser(prog="python -m campaign", description=main.__doc__)
    parser.add_argument("part", choices=[*PARTS, "all", "page"])
    parser.add_argument("--trials", type=int, help="how many; all of the part when left out")
    parser.add_argument(
        "--seed", type=int, help="of the first trial; left out: after the last one recorded"
    )
    parser.add_argument("--record", nargs="?", const=DOCS, type=Path, help="the folder; docs")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    n_faults = 0
    if given.record:
        given.record.mkdir(parents=True, exist_ok=True)
    try:
        for name in (
            PARTS if given.part == "all" else [given.part] if given.part in PARTS else []
        ):
            n_faults += _run(name, PARTS[name], given)
    except KeyboardInterrupt:
        print("interrupted: what was recorded stays", flush=True)
    counts.write_page(given.record or DOCS) if given.record or given.part == "page" else None
    return 1 if n_faults else 0


def _run(name, kind, given):
    """Run the trials of a part piece by piece; return how many were wrong."""
    from campaign import counts

    whole, commit = counts.Part(), _commit()
    earlier = counts.read(given.record / "campaign.json").get(name) if given.record else None
    first = given.seed if given.seed is not None else earlier.next_seed() if earlier else 0
    seeds = range(first, first + (given.trials or kind.n_trials()))
    for piece in (seeds[i : i + PIECE] for i in range(0, len(seeds), PIECE)):
        part = counts.Part()
        for seed in kind.within(piece):
            trial = kind.trial(seed)
            part.add(seed, commit, trial)
            for fault in trial.faults:
                print(f"FAULT {name} --seed {seed}: {fault}", flush=True)
        if given.record:
            counts.record(given.record, name, part)
        whole.merge(part)
    for run in whole.runs:
        print(f"{name} {vars(run)}", flush=True)
    print(f"{name} {dict(whole.kinds)}, {whole.total('faults')} faults", flush=True)
    return whole.total("faults")


def _commit():
    """The commit of this checkout; with a plus where its code was changed since."""

    def said(*words):
        command = ["git", "-C", str(DOCS.parent), *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=False
        ).stdout.strip()

    changed = said("status", "--porcelain", "--", "src", "tests/support")
    return (said("rev-parse", "--short=7", "HEAD") or "unknown") + ("+" if changed else "")


if __name__ == "__main__":
    sys.exit(main())
