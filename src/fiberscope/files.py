"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fiberscope.errors import InputError

LEFTOVERS = ".*.part-*"


@contextmanager
def atomic_path(path: Path | str, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path beside ``path``, which takes its place when the block ends well and is removed when it does not.

    With ``durable`` the content and the name are on the disk when the block has ended: whenever the machine stops, the
    file is the old one or the new one. What a killed process leaves behind matches ``LEFTOVERS``.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(Path(folder) / "a.txt") as part:
    ...         _ = part.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target}: expected a file to write, got a folder")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.part-", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror})") from error
    os.close(handle)
    part = Path(name)
    try:
        yield part
        os.chmod(part, 0o666 & ~_umask())
        if durable:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        os.replace(part, target)
        if durable:
            _sync_folder(target.parent)
    except OSError as error:  # a full disk, most often: the block writes, and does nothing else that can fail so
        raise InputError(f"{target}: cannot be written ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path | str, content: bytes | str, *, durable: bool = False) -> None:
    """Write a whole file or nothing; ``durable`` as in :func:`atomic_path`."""
    with atomic_path(path, durable=durable) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def _sync_folder(folder: Path) -> None:
    """The new name itself must be on the disk too; Windows has no such call."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
