"""Files that appear whole or not at all, with the permissions of other files, through links."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file that takes the place of `path` where the block ends well.

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
    OSError
        The target is a folder, or the file system refuses.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if target.exists() and not target.is_file():
        yield target
        return
    part = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        mode = stat.S_IMODE((target if target.exists() else part).stat().st_mode)
        yield part
        part.chmod(mode)  # some writers put a file of their own there
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
