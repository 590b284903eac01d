"""Files are whole or not there: full disks, killed processes, links, permissions."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bochner import plots
from bochner.cli.data import write_matrices
from bochner.errors import InputError, ModelFileError, StorageError
from bochner.io import files, outputs
from bochner.io.csv.write import write_csv
from bochner.io.outputs import replacing, replacing_folder
from bochner.plots.figures import axes
from helpers.faults import fill, room_for, small_disk

HEADER = {"kind": "checkpoint", "schema": 1}


def _picture(path):
    plots.save(axes(2.0, 2.0)[0], path)


def _numbers(n):
    """Numbers that compression leaves as many bytes."""
    return np.random.default_rng(0).random((n, 1))


WRITERS = {
    "file.ckpt": lambda path, n: files.write(path, {"a": torch.ones(n)}, HEADER),
    "file.csv": lambda path, n: write_csv(path, np.full((n, 1), 1.25)),
    "file.npy": lambda path, n: write_matrices(path, {"X": np.ones((n, 1))}, None, None),
    "file.npz": lambda path, n: write_matrices(path, {"X": np.ones((n, 1))}, None, None),
    "file.parquet": lambda path, n: write_matrices(path, {"X": _numbers(n)}, None, None),
    "file.zarr": lambda path, n: write_matrices(path, {"X": _numbers(n)}, None, None),
    "file.png": lambda path, n: _picture(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_no_half_of_the_new_one(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"old")
    with (
        room_for(512),
        pytest.raises(
            StorageError, match=rf"Expected .*{name} to be written, got File too large"
        ),
    ):
        WRITERS[name](path, 10_000)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_without_room_is_said_with_the_systems_words(tmp_path, name):
    with small_disk(tmp_path, 2**20) as disk:
        fill(disk)
        with pytest.raises(StorageError, match=r"got No space left on device. Nothing half"):
            WRITERS[name](disk / name, 10_000)
        assert [path.name for path in disk.iterdir()] == ["filling"]


KILLED = """
import os, signal, sys
from bochner.io.outputs import replacing, replacing_folder
with replacing(sys.argv[1]) as part:
    part.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_swept_by_the_next_and_others_stay(tmp_path):
    path, other = tmp_path / "file", tmp_path / ".other.1.part"
    other.write_bytes(b"of another file")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = (p for p in tmp_path.iterdir() if p != other)
    assert left.read_bytes() == b"half"
    with replacing(path) as part:
        part.write_bytes(b"first")
        with replacing(path) as second:  # a living writer's file is no leftover
            second.write_bytes(b"second")
    assert path.read_bytes() == b"first"
    assert sorted(tmp_path.iterdir()) == [other, path]


@pytest.mark.parametrize("name", [".file.part", ".file.backup.part", ".file.12-part.part"])
def test_hidden_files_of_other_programs_stay(tmp_path, name):
    theirs = tmp_path / name
    theirs.write_bytes(b"of a download")
    with replacing(tmp_path / "file") as part:
        part.write_bytes(b"new")
    with replacing_folder(tmp_path / "file.zarr") as part:
        part.mkdir()
    assert theirs.read_bytes() == b"of a download"


KILLED_FOLDER = """
import os, signal, sys
from bochner.io.outputs import replacing_folder
with replacing_folder(sys.argv[1]) as part:
    part.mkdir()
    (part / "half").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_appears_whole_and_what_killed_processes_left_is_swept(tmp_path):
    path = tmp_path / "x.zarr"
    path.mkdir()
    (path / "old").touch()
    subprocess.run([sys.executable, "-c", KILLED_FOLDER, str(path)], check=False)
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(InputError, match="No such file"), replacing_folder(path) as part:
        (part / "too" / "deep").mkdir()
    # nothing is left but what was there
    assert [p.name for p in path.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [path]
    with replacing_folder(path) as part:
        part.mkdir()
        (part / "new").touch()
        with replacing_folder(path) as second:  # that of a living writer stays
            second.mkdir()
    assert [p.name for p in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_and_the_mode_is_that_of_any_new_file(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(path)
    with replacing(link) as part:
        part.write_bytes(b"through the link")
    assert link.is_symlink()
    assert path.read_bytes() == b"through the link"
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(
        (tmp_path / "plain").stat().st_mode
    )


def test_a_place_that_is_none_is_bad_input(tmp_path):
    with pytest.raises(InputError, match=r"Expected a place to write to, got .*No such file"):
        files.write(tmp_path / "no" / "file", {"a": torch.ones(1)}, HEADER)
    with pytest.raises(InputError, match=r"Expected a place to write to, got .*directory"):
        files.write(tmp_path, {"a": torch.ones(1)}, HEADER)


def test_the_same_is_written_as_the_same_bytes(tmp_path):
    tensors = {"b": torch.ones(3), "a": torch.zeros(2, dtype=torch.float64)}
    written = set()
    for _ in range(12):
        files.write(tmp_path / "file", tensors, {"kind": "model", "schema": 1, "name": "ä"})
        written.add((tmp_path / "file").read_bytes())
    assert len(written) == 1
    again, header = files.read(tmp_path / "file", "model", 1)
    assert header["name"] == "ä"
    assert torch.equal(again["a"], tensors["a"])


@pytest.mark.parametrize("name", [b"file", b"file\xff"])
def test_every_changed_byte_is_noticed(tmp_path, name):
    """Also under a name that is not UTF-8, which safetensors refuses to open."""
    path = tmp_path / os.fsdecode(name)
    tensors = {"a": torch.arange(3.0), "b": torch.tensor(2.5), "c": torch.zeros(0, 2)}
    files.write(path, tensors, HEADER)
    read, _ = files.read(path, "checkpoint", 1)
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(
            ModelFileError, match="Expected a bochner checkpoint file, got file"
        ):
            files.read(path, "checkpoint", 1)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(
            ModelFileError, match="Expected a bochner checkpoint file, got file"
        ):
            files.read(path, "checkpoint", 1)


def test_a_file_without_a_checksum_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, tmp_path / "file", metadata={"bochner": "{}"})
    with pytest.raises(ModelFileError, match="blake2b"):
        files.read(tmp_path / "file", "checkpoint", 1)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, StorageError), (errno.EACCES, InputError)]
)
def test_what_cannot_be_removed_is_named_as_a_failing_disk_or_a_place(
    tmp_path, monkeypatch, number, kind
):
    path = tmp_path / "checkpoint.ckpt"
    outputs.remove(path)  # nothing there, nothing to do
    path.write_text("x")

    def fail(*_, **__):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(kind, match=r"checkpoint\.ckpt to be removed.*[Rr]emove it by hand"):
        outputs.remove(path)
