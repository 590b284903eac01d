"""Files that are grown by what the readers' code does with them: atheris, where it is installed."""

import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from campaign.counts import Trial

KINDS = (
    *("X.csv", "X.tsv", "X.csv.gz", "X.npy", "X.npz"),
    *("labels.csv", "layout.csv", "model.bochner", "checkpoint.ckpt"),
)
RUNS = 500


def trial(seed):
    """Grow so many files of one kind, and read each."""
    if importlib.util.find_spec("atheris") is None:
        return Trial("atheris is not installed")
    kind = KINDS[seed % len(KINDS)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "campaign.guided", kind, str(seed + 1), folder],
            cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    faults = re.findall(r"FAULT (.*)", done.stderr)[:1]
    if not faults and f"Done {RUNS}" not in done.stderr:
        faults = [f"exit code {done.returncode}: {' '.join(done.stderr[-300:].split())}"]
    return Trial(f"{kind}, {RUNS} files", [f"{fault} ({kind})" for fault in faults], seconds)


def grow(kind, seed, folder):
    """Run libFuzzer in this process, which it ends."""
    import atheris

    with atheris.instrument_imports(
        include=["bochner.io", "bochner.page", "bochner.training"]
    ):
        from bochner.io import readers  # noqa: F401 - what is imported here is watched
        from bochner.page import labels, layouts  # noqa: F401
    from campaign.damage import whole

    corpus = folder / "corpus"
    corpus.mkdir()
    whole_file = whole() / ("stopped" if kind.endswith(".ckpt") else ".") / kind
    read = _reader(kind, whole_file)
    (corpus / "whole").write_bytes(read.start(whole_file))
    path = folder / f"own{kind[kind.index('.') :]}"

    def judge(content):
        from campaign.oracle import is_named, place_of

        path.write_bytes(read.packed(content))
        try:
            read(path)
        except Exception as error:
            if not is_named(error):
                print(
                    f"FAULT {place_of(error)}; {content[:200]!r}", file=sys.stderr, flush=True
                )
                os._exit(77)

    options = [f"-runs={RUNS}", f"-seed={seed}", "-max_len=20000", "-timeout=120",
               "-rss_limit_mb=6000"]  # fmt: skip
    atheris.Setup(["campaign", *options, str(corpus)], judge)
    atheris.Fuzz()


class _Data:
    """Tables: the file is what is grown."""

    def start(self, path):
        return path.read_bytes()

    def packed(self, content):
        return content

    def __call__(self, path):
        from bochner.io import readers

        readers.read(path)


class _Labels(_Data):
    def __call__(self, path):
        from bochner.page.labels import read_labels

        read_labels(path, [f"row{i}" for i in range(20)], 20)


class _Layout(_Data):
    def __call__(self, path):
        from bochner.page.layouts import read_layout

        read_layout(path, [f"row{i}" for i in range(20)], 20)


class _Checked:
    """Files with a checksum: the header is what is grown, and the checksum is right."""

    def __init__(self, kind, path):
        from bochner.io import files

        self.kind = kind
        self.tensors, self.header = files.read(path, kind, 1)
        self.tensors = {name: part.contiguous().clone() for name, part in self.tensors.items()}

    def start(self, path):
        return json.dumps(self.header).encode()

    def packed(self, content):
        from safetensors.torch import save

        from bochner.io import files

        text = content.decode(errors="replace")
        return save(
            self.tensors, {"bochner": text, "blake2b": files.checksum(self.tensors, text)}
        )

    def __call__(self, path):
        import bochner as bo
        from bochner.io import files

        if self.kind == "model":
            bo.load(path)
        else:
            files.read(path, self.kind, 1)


def _reader(kind, path):
    if kind in ("model.bochner", "checkpoint.ckpt"):
        return _Checked("model" if kind == "model.bochner" else "checkpoint", path)
    return {"labels.csv": _Labels, "layout.csv": _Layout}.get(kind, _Data)()


if __name__ == "__main__":
    grow(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
