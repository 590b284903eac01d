"""Faults of disks, as the system raises them."""

import gc
import os
import resource
import signal
import subprocess
from contextlib import contextmanager, suppress

import pytest


@contextmanager
def room_for(n_bytes):
    """Let no file grow beyond so many bytes: writes then raise OSError (File too large), as on a
    full disk.
    """
    # files that other tests left to the collector would be written to their end inside
    gc.collect()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)


@contextmanager
def small_disk(folder, n_bytes):
    """Mount a disk of so many bytes on a folder; skips the test where that is not allowed."""
    options = f"size={n_bytes}"
    command = ["mount", "-t", "tmpfs", "-o", options, "bochner-test", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def fill(folder):
    """Write until there is no room left; returns the file to remove for room."""
    path = folder / "filling"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert os.statvfs(folder).f_bavail == 0
    return path
