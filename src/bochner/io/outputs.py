"""Files that appear whole or not at all, with the permissions of other files, through links."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bochner.errors import InputError, StorageError, StorageWarning, message, shown, warn_user

# How temporary files end: the process, eight hexadecimal digits of its own, and the suffix.
_PART = re.compile(r"\.\d+-[0-9a-f]{8}\.part")
# The path is wrong, not the disk: another one helps.
_PLACE = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EROFS}
    | {errno.ENAMETOOLONG, errno.EINVAL, errno.EEXIST}
)


def real(path: str | os.PathLike[str]) -> Path:
    """Return a path without symbolic links.

    Raises
    ------
    InputError
        It holds a character that no path has.
    """
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:
        got = f"{shown(os.fspath(path))} ({error})"
        raise InputError(message("a place to write to", got, "choose another path")) from error


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is something at a path; nothing is at paths that cannot be."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file that takes the place of `path` where the block ends well.

    What an earlier process left half written for the same path, because it was killed, is removed.

    Parameters
    ----------
    path : path-like
        A symbolic link stays: the file that it leads to is replaced. What is no plain file (a
        pipe, ``/dev/stdout``) is written to as it is.

    Yields
    ------
    Path
        An empty file in the folder of the target, so that the final rename is one atomic step. It
        has the permissions of the file that is replaced, or those of any new file (the umask).

    Raises
    ------
    InputError
        The target is a folder, or its folder does not exist or cannot be written.
    StorageError
        The disk is full, or fails.
    OSError
        The block failed at another file.
    """
    target = real(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        if target.exists() and not target.is_file():
            yield target
            return
        sweep(target)
        with _part(target) as part:
            mode = stat.S_IMODE((target if target.exists() else part).stat().st_mode)
            yield part
            # some writers put a file of their own there
            part.chmod(mode)
            _sync(part)
            part.replace(target)
        _sync(target.parent)
    except OSError as error:
        if _is_about_another_file(error, target):
            raise
        raise refusal(path, error) from error


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a folder that is not there yet, and takes the place of `path` where the block ends
    well; what killed processes left is removed, as by `replacing`.

    Raises
    ------
    InputError
        The place cannot be written to.
    StorageError
        The disk is full, or fails.
    """
    target = real(path)
    try:
        sweep(target)
        with _part_folder(target) as part:
            new, old = part / "new", part / "old"
            yield new
            is_there = target.exists()
            if is_there:
                target.rename(old)
            try:
                new.rename(target)
            except BaseException:
                if is_there:
                    old.rename(target)
                raise
        _sync(target.parent)
    except OSError as error:
        if _is_about_another_file(error, target):
            raise
        raise refusal(path, error) from error


@contextmanager
def alone_in(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a folder for one run: another one that asks for it is refused. Ends with the process.

    Parameters
    ----------
    folder : path-like
        Must exist. Nothing is written there; where folders cannot be locked, nobody is refused.

    Raises
    ------
    InputError
        Another run holds it.
    """
    if sys.platform == "win32":
        yield  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not _lock(handle):
            got = f"{os.fspath(folder)}, where another run is writing"
            do = "wait until it has ended, or choose another folder"
            raise InputError(message("a folder of one's own", got, do))
        yield
    finally:
        os.close(handle)


def sweep(path: str | os.PathLike[str]) -> None:
    """Remove what killed processes left half written for a path; files of living ones stay."""
    target = Path(os.path.realpath(path))
    for name in os.listdir(target.parent):
        # hidden files of other programs end in .part, too
        begin = f".{target.name}"
        if name.startswith(begin) and _PART.fullmatch(name, len(begin)):
            _remove_if_abandoned(target.parent / name)


def _is_about_another_file(error: OSError, target: Path) -> bool:
    """Return whether the block failed at a file that it read."""
    if error.filename is None:
        return False
    place = Path(os.fsdecode(error.filename))
    begin = str(target.with_name(f".{target.name}."))
    return not (str(place).startswith(begin) or place in (target, target.parent))


def refusal(path: str | os.PathLike[str], error: OSError) -> InputError | StorageError:
    """Build the error for a path that could not be written to."""
    reason = error.strerror or str(error)
    if error.errno in _PLACE:
        got = f"{os.fspath(path)} ({reason})"
        return InputError(message("a place to write to", got, "choose another path"))
    do = "nothing half written is left: free some space, or choose another path"
    return StorageError(message(f"{os.fspath(path)} to be written", reason, do))


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, if it is there. A symbolic link stays, as where a file is replaced: the file
    that it leads to is removed.

    Raises
    ------
    InputError
        The folder allows no removal.
    StorageError
        The disk failed.
    """
    try:
        real(path).unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        do = "all else is on the disk: remove it by hand"
        kind = InputError if error.errno in _PLACE else StorageError
        raise kind(message(f"{os.fspath(path)} to be removed", reason, do)) from error


def leave(path: str | os.PathLike[str]) -> None:
    """Remove a file that is of no use any more.

    Warns
    -----
    StorageWarning
        It could not be removed: no reason to lose what is done.
    """
    try:
        remove(path)
    except (InputError, StorageError) as error:
        warn_user(str(error), StorageWarning)


@contextmanager
def _part(target: Path) -> Iterator[Path]:
    """Make an empty hidden file, locked for as long as this process may write to it."""
    while True:
        part = _hidden(target)
        handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        if _lock(handle) and os.fstat(handle).st_nlink:
            break
        # swept in the moment before it was locked
        os.close(handle)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def _part_folder(target: Path) -> Iterator[Path]:
    """Make a hidden folder, locked for as long as this process may write to it."""
    part = _hidden(target)
    part.mkdir()
    handle = os.open(part, os.O_RDONLY) if sys.platform != "win32" else None
    try:
        if handle is not None:
            _lock(handle)
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _hidden(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


def _remove_if_abandoned(part: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(part, os.O_RDONLY)
        try:
            if _lock(handle) and part.is_dir():
                shutil.rmtree(part)
            elif _lock(handle):
                part.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _lock(handle: int) -> bool:
    if sys.platform == "win32":
        # open files cannot be removed there, which is lock enough
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    if sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # a file system that cannot
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)
