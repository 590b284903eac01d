"""Processes that begin with everything imported: forks of one that waits, for tests of what a
process of its own does. They end as any process does, except that they do not take their modules
apart, and cost a tenth of one.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

MAIN = "from bochner.__main__ import main; main()"
IMPORTS = """
import bochner.__main__, bochner.cli.fit, bochner.cli.info, bochner.estimators, bochner.plots
"""
# Seconds after which the system ends a process that waits for ever.
LONGEST = 300


@dataclass(frozen=True)
class Ended:
    """What became of a process."""

    returncode: int
    stdout: str
    stderr: str


class Forks(ExitStack):
    """Starts processes."""

    def __enter__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", __file__]
        self._server = self.enter_context(
            subprocess.Popen(command, env=environment, text=True, **pipes)
        )
        return self

    def run(self, code, *words, folder=".", stdout=None, stderr=None):
        """Run code with words as its arguments; streams go to a file, to a pipe that nobody reads
        ("closed"), or are returned.
        """
        return self._ended(code, words, folder, [(stdout, stderr)], joined=False)[0]

    def group(self, code, *words, count):
        """Run code in processes that find each other as those of torchrun do; return when all have
        ended.
        """
        return self._ended(code, words, ".", [(None, None)] * count, joined=True)

    def _ended(self, code, words, folder, given, joined):
        with tempfile.TemporaryDirectory() as said:
            own = [
                [str(Path(said) / f"{kind}{i}") for kind in "oe"] for i in range(len(given))
            ]
            streams = [
                [place or file for place, file in zip(*pair, strict=True)]
                for pair in zip(given, own, strict=True)
            ]
            asked = [code, [str(word) for word in words], str(folder), streams, joined]
            self._server.stdin.write(json.dumps(asked) + "\n")
            self._server.stdin.flush()
            codes = json.loads(self._server.stdout.readline())
            texts = [
                [path.read_text() if path.exists() else "" for path in map(Path, pair)]
                for pair in own
            ]
        return [Ended(code, *pair) for code, pair in zip(codes, texts, strict=True)]


def serve():
    """Fork until nobody asks any more."""
    for line in sys.stdin:
        code, words, folder, streams, joined = json.loads(line)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        children = []
        for rank, pair in enumerate(streams):
            child = os.fork()
            if not child:
                become(words, folder, pair)
                if joined:
                    join(rank, len(streams), port)
                end(run(code))
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), flush=True)


def become(words, folder, streams):
    """Be a process of one's own."""
    signal.alarm(LONGEST)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, place in enumerate(streams, 1):
        os.dup2(opened(place), number)
    os.chdir(folder)
    sys.argv[:] = ["bochner", *words]


def opened(place):
    """Open where a stream goes."""
    if place != "closed":
        return os.open(place, os.O_WRONLY | os.O_CREAT)
    read, write = os.pipe()
    os.close(read)
    return write


def join(rank, count, port):
    """Set what torchrun sets."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count))


def run(code):
    """Run the code of a process; return its exit code."""
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    else:
        return 0
    return 1


def end(code):
    """End as Python does: threads, then what was registered, then streams."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120
    os._exit(code)


if __name__ == "__main__":
    exec(IMPORTS)
    serve()
