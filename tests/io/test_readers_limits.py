"""Files whose headers promise more than they hold, or than there is memory for."""

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

from bochner.errors import InputError
from bochner.io import annotated
from bochner.io.readers import read
from bochner.memory import Memory, memory_of, size_text


def promised(shape, dtype="<f8", content=b""):
    """An npy file that says it has this shape."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


def test_headers_that_promise_terabytes(tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(promised((10**6, 10**6)))
    match = (
        r"a readable npy file, got .*cut short: 7.3 TiB for the shape 1,000,000 × 1,000,000"
    )
    with pytest.raises(InputError, match=match):
        read(path)
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", promised((10**6, 10**6)))
    with pytest.raises(InputError, match=r"a readable npz file, got .*cut short: 7.3 TiB"):
        read(path)


def test_a_compressed_array_of_zeros_is_refused_before_it_is_there(tmp_path):
    path = tmp_path / "z.npz"
    shape = (2**16, 2**10 + 1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("X.npy", promised(shape, "<f4", bytes(4 * shape[0] * shape[1])))
    assert path.stat().st_size < 2**21
    match = r"at most 256.0 MiB when decompressed, got more from array 'X' of .*--memory"
    with pytest.raises(InputError, match=match):
        read(path)
    np.testing.assert_array_equal(read(path, memory=memory_of(1)).X[0, :3], 0)


def test_the_limit_is_of_the_matrix(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((1000, 1000), np.uint8))
    match = r"at most 4.0 MiB, got 7.6 MiB for 1,000 × 1,000 numbers in .*x.npy.*--memory 1\."
    with pytest.raises(InputError, match=match):
        read(path, memory=memory_of(2**-8))
    assert read(path).X.shape == (1000, 1000)


def test_what_else_an_archive_holds_is_left_out(tmp_path):
    path = tmp_path / "o.npz"
    np.savez(path, X=np.eye(2))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README.txt", "a note")
        archive.writestr("folder/", "")
    np.testing.assert_array_equal(read(path).X, np.eye(2))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["npy", "npz"]), st.binary(max_size=60), st.integers(0, 200), st.booleans()
)
def test_damaged_arrays_are_read_or_refused(tmp_path_factory, kind, patch, place, cut):
    path = tmp_path_factory.mktemp("d") / f"a.{kind}"
    (np.save if kind == "npy" else np.savez)(path, np.arange(6.0).reshape(3, 2))
    raw = path.read_bytes()
    path.write_bytes(raw[:place] + patch + (b"" if cut else raw[place + len(patch) :]))
    try:
        table = read(path)
    except InputError:
        return
    assert table.X.ndim == 2


def test_sizes():
    assert [size_text(n) for n in (5, 2048, 3 * 2**20, 2**30, 2**43)] == [
        "5 bytes",
        "2.0 KiB",
        "3.0 MiB",
        "1.0 GiB",
        "8.0 TiB",
    ]
    assert Memory().expanded(10**7) == 10**9
    assert memory_of(2).expanded(1) == 2**31
    with pytest.raises(InputError, match=r"memory in GiB above 0, got 0"):
        memory_of(0)


def test_annotated_data_that_become_large_are_refused_before_they_are_read(tmp_path):
    anndata = pytest.importorskip("anndata")
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "small.h5ad"
    anndata.AnnData(np.zeros((2, 2))).write_h5ad(path)
    assert read(path).X.shape == (2, 2)
    with h5py.File(path, "a") as file:
        kept = dict(file["X"].attrs)
        del file["X"]
        options = {"dtype": "f4", "chunks": (1000, 1000), "compression": "gzip"}
        stored = file.create_dataset("X", shape=(20_000, 10_000), **options)
        stored.attrs.update(kept)
    assert path.stat().st_size < 2**16
    match = r"at most 256.0 MiB when decompressed, got more from .*small.h5ad.*--memory 8"
    with pytest.raises(InputError, match=match):
        read(path)


def test_a_file_at_which_the_hdf5_library_crashes_is_refused(tmp_path):
    pytest.importorskip("mudata")
    path = tmp_path / "damaged.h5mu"
    stored = Path(__file__).parent / "damaged" / "crash.h5mu.gz"
    path.write_bytes(gzip.decompress(stored.read_bytes()))
    with pytest.raises(
        InputError, match=r"a readable h5mu file, got .*damaged\.h5mu \(.*complete"
    ):
        read(path)


def test_a_whole_annotated_file_survives_the_reading_before(tmp_path):
    anndata = pytest.importorskip("anndata")
    path = tmp_path / "whole.h5ad"
    anndata.AnnData(np.eye(3)).write_h5ad(path)
    annotated.check_survives(path)
    assert read(path).X.shape == (3, 3)
