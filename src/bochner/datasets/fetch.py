"""Download a data set's file and check it: whole and right, or not at all."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bochner.data.columns import listing
from bochner.datasets.load import RECIPES, VARIABLE
from bochner.datasets.originals import ORIGINALS, Original
from bochner.errors import InputError, message
from bochner.io.outputs import replacing

SERVER = "BOCHNER_DATA_URL"
# Seconds that a server may be silent, and bytes that are read at once.
TIMEOUT = 60.0
_CHUNK = 1 << 20

# SHA-256 of the files that the loaders read. No public server has them in this form: the caller
# names one that does, or they are built from what is public (originals.py).
CHECKSUMS: dict[str, str] = {
    "brendan.npz": "7d46496ce4b919a8831ba4fa1a5d6b595b7d624c022e11fdf30468fae3ada250",
    "bridges.npz": "d0a932794e0ece6202b3956ca67f40fe2de332642a423bd8bc64be4edc942709",
    "cifar10_full20.npz": "5cc045e4fd943d5d706adba4232ac0f0f4a57af3bead8b81f948cdd5ea48aecf",
    "cifar10_sub.npz": "5a8113ddb4ed72497a6df7bc6aad9fca06d14c95ec4d961503d5151e92904fd6",
    "congress109.npz": "6c33b6489db46f268b26c25eb706bf5a678f2c24786dc9faba69d724a2979812",
    "eeg.npz": "16423c12c30b5db9479be1e1c1df7fba4105c97f537d1d18b136fb6df3c96d3f",
    "mnist.npz": "c7b204b9bf8d4cbf1f60997c3d5e4e18647f07fe0114da744000099412c49239",
    "mv_3sources.npz": "8d63458a95f0fca69f76e1f77ae6d4b5d1946ffe3ab773f92d8165b800a13828",
    "mv_breast_tcga.npz": "d70889b3be9ac9312dc23b13f2a5f543ef4459490242667f6a9be4eb8a68f0e7",
    "mv_citeseer.npz": "a35a5bc29c3e24ad198d54f4ca5259a5d1c21dfc6b30fbe88fa0184d2aaa8525",
    "mv_handwritten.npz": "9e5852f8fcdd9e49e8643afec2a868359b2bd6e705374c22a854491726e882ad",
    "mv_movies617.npz": "d298068f1a81120e604908c2229b261bb16de2e0198adfe1b842c6c5a54fb81e",
    "newsgroups.npz": "850c6b67496c83aac6e59c686da619c36d396a6605088d50b1ec3e8c735ce7c9",
    "oil.npz": "23a37259ac845bec10e3193acaea225728481f6449a9d5c0f1f555ac10808cdd",
    "pbmc3k.npz": "28ad99c2a6fcb2669fd03f117a65da4400d751fd0782010bead0c512741122f6",
    "skin.npz": "000f2acc4263aa2653b72489dd14141df5af470ffc43f879686c168233c2e7d8",
    "spambase.npz": "9ca0789c33a486422a34ffe226148dcca2e546b0eecaae07a93bf07d29e34c87",
}


@dataclass(frozen=True)
class Source:
    """Where a file is and what it must be.

    Attributes
    ----------
    file : str
        Name of the file to write.
    url : str
    sha256 : str
        Of the file; of its arrays where it is built from public ones.
    original : Original, optional
        How it is built.
    """

    file: str
    url: str
    sha256: str
    original: Original | None = None

    def checksum_in(self, path: Path) -> str:
        """Return the checksum of a file that is there."""
        return _digest(path) if self.original is None else self.original.digest_of_file(path)

    def write(self, path: Path) -> str:
        """Download, and build what is to be built; return the checksum."""
        if self.original is None:
            return _download(self.url, path)
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / str(i) for i in range(len(self.original.urls))]
            for url, file in zip(self.original.urls, files, strict=True):
                _download(url, file)
            return self.original.rebuild(files, path)


def known() -> dict[str, str]:
    """Return the files of the data sets that have a loader, by name of the data set."""
    return {
        "newsgroups": "newsgroups.npz",
        **{name: recipe.file for name, recipe in RECIPES.items()},
    }


def source_of(name: str, server: str | None = None, manifest: Path | None = None) -> Source:
    """Find out what to download.

    Parameters
    ----------
    name : str
        A data set with a loader, or an entry of the manifest.
    server : str, optional
        URL of the folder with the files; default: the environment variable BOCHNER_DATA_URL, and
        without it the public original, where a data set can be built from one.
    manifest : Path, optional
        JSON: ``{"name": {"url": ..., "sha256": ..., "file": ...}}``; a url without ``://`` is below
        the server.

    Raises
    ------
    InputError
        An unknown name, no server, or a manifest that cannot be used.
    """
    entries = (
        _entries(manifest)
        if manifest
        else {n: {"url": f, "sha256": CHECKSUMS[f]} for n, f in known().items()}
    )
    if name not in entries:
        do = f"choose from {', '.join(sorted(entries))}"
        raise InputError(message("the name of a data set", repr(name), do))
    server = server or os.environ.get(SERVER)
    if name in ORIGINALS and not manifest and not server:
        original = ORIGINALS[name]
        return Source(RECIPES[name].file, original.urls[0], original.sha256, original)
    entry = entries[name]
    url = entry["url"]
    sha256 = entry["sha256"].lower()
    if "://" not in url:
        if not server:
            do = f"give --from URL, or set {SERVER}, to the folder of a server that has {url}"
            raise InputError(message("a server to download from", "none", do))
        url = f"{server.rstrip('/')}/{url}"
    if not url.startswith(("http://", "https://", "file://")):
        raise InputError(message("a URL with http, https or file", url, "correct it"))
    return Source(Path(entry.get("file") or url.rsplit("/", 1)[-1]).name, url, sha256)


def fetch(
    source: Source, folder: Path | None = None, force: bool = False
) -> tuple[Path, bool]:
    """Download a file unless it is there already.

    Parameters
    ----------
    source : Source
    folder : Path, optional
        Default: the folder named by BOCHNER_DATA.
    force : bool
        Replace a file of this name with another content.

    Returns
    -------
    path : Path
    downloaded : bool
        False when a file with the right checksum was there.

    Raises
    ------
    InputError
        No folder, a server that does not answer or has no such file, a download that was cut, or
        another checksum: then nothing is left behind, and what was there before stays.
    """
    folder = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if folder is None or not folder.is_dir():
        got = "none" if folder is None else str(folder)
        raise InputError(
            message(
                "an existing folder to write to", got, f"give --out DIR, or set {VARIABLE}"
            )
        )
    target = folder / source.file
    if target.exists():
        if source.checksum_in(target) == source.sha256:
            return target, False
        if not force:
            got = f"{target} with another content"
            raise InputError(
                message(
                    "no file of this name, or the right one", got, "add --force to replace it"
                )
            )
    with replacing(target) as part:
        digest = source.write(part)
        if digest != source.sha256:
            do = (
                "the file on the server is another one, or was changed on the way: nothing was "
                "kept"
            )
            raise InputError(
                message(
                    f"a file with SHA-256 {source.sha256} at {source.url}", f"{digest}", do
                )
            )
    return target, True


def _download(url: str, part: Path) -> str:
    digest = hashlib.sha256()
    received = 0
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, part.open("wb") as file:
            length = answer.headers.get("Content-Length")
            while block := answer.read(_CHUNK):
                digest.update(block)
                received += file.write(block)
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        reason = (
            f"{error.code} {error.reason}"
            if isinstance(error, urllib.error.HTTPError)
            else error
        )
        raise InputError(
            message(f"an answer from {url}", str(reason), "check the address and the network")
        ) from error
    if length is not None and received != int(length):
        got = f"{received:,}, then the end"
        raise InputError(
            message(
                f"{int(length):,} bytes from {url}", got, "the download was cut: run it again"
            )
        )
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _entries(manifest: Path) -> Mapping[str, Mapping[str, str]]:
    try:
        entries = json.loads(manifest.read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            message("a manifest in JSON", f"{manifest} ({error})", "correct the file")
        ) from error
    if not isinstance(entries, dict):
        raise InputError(
            message(
                "a manifest of names", f"{manifest} with a list", "write {name: {url, sha256}}"
            )
        )
    for name, entry in entries.items():
        fields = entry if isinstance(entry, dict) else {}
        if not isinstance(fields.get("url"), str) or not re.fullmatch(
            "[0-9a-fA-F]{64}", str(fields.get("sha256"))
        ):
            got = f"{listing([repr(key) for key in fields]) or 'none of them'} for {name!r}"
            do = "write both: no file is taken without its checksum"
            raise InputError(
                message(f"url and sha256 (64 hexadecimal digits) in {manifest}", got, do)
            )
    return entries
