"""Files: written so that a reader never sees half of one, and read so that a small one cannot fill the memory.

Packed files say how much they unpack to before anything is unpacked: a zip archive in its directory, an array in its
header. These sizes are asked first, and what is read is held to them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fiberscope.errors import FiberscopeError, InputError, TooLargeError

LEFTOVERS = ".*.part-*"

UNPACKED = 1 << 28
"""Bytes that any file may unpack to, however small it is."""

RATIO = 100
"""Times its own size that a larger file may unpack to. Pruned weights and signs of regions stay below 40; zeros, which
deflate packs best, reach 1030."""

Arrays = dict[str, npt.NDArray[Any]]

_CHUNK = 1 << 20
_UNIX = 3  # the number of the system whose file modes a zip archive holds
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


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


def sha256_of(path: Path | str) -> str:
    """The SHA-256 of the bytes of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_targets(targets: Sequence[Path | None], sources: Sequence[Path | None] = ()) -> None:
    """Refuse files that could not be written, one file twice, and one that is read, before work is done for them.

    >>> check_targets([Path("a.json"), None], [Path("a.json")])
    Traceback (most recent call last):
    fiberscope.errors.InputError: a.json: expected a file of its own to write, got one that is read too
    """
    read = {path.resolve() for path in sources if path is not None}
    written: set[Path] = set()
    for target in targets:
        if target is None:
            continue
        place = target.resolve()
        for others, word in ((read, "read"), (written, "written")):
            if place in others:
                raise InputError(f"{target}: expected a file of its own to write, got one that is {word} too")
        written.add(place)
        if target.is_dir():
            raise InputError(f"{target}: expected a file to write, got a folder")
        try:
            with tempfile.TemporaryFile(dir=target.parent):
                pass
        except OSError as error:
            raise InputError(f"{target}: cannot be written ({error.strerror})") from error


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


# -- reading what is packed --------------------------------------------------------------------------------------------


def unpack_limit(packed: int) -> int:
    """Bytes that a file of ``packed`` bytes may unpack to.

    >>> unpack_limit(1000) == UNPACKED, unpack_limit(10**8)
    (True, 10000000000)
    """
    return max(UNPACKED, RATIO * packed)


def check_unpacked(packed: int, unpacked: int) -> None:
    """Raise :class:`TooLargeError` if a file says that it holds far more than it could pack by honest means."""
    limit = unpack_limit(packed)
    if not unpacked <= limit:
        raise TooLargeError(
            f"{packed} bytes that unpack to {unpacked / 2**30:.3g} GiB, more than the {limit / 2**30:.3g} GiB allowed; "
            "if you trust the file, store its content uncompressed"
        )


def check_archive(path: Path | str) -> None:
    """Ask the directory of a zip archive what it unpacks to; other files pass."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            check_unpacked(os.path.getsize(path), sum(info.file_size for info in archive.infolist()))


def dated_member(name: str) -> zipfile.ZipInfo:
    """A packed member of a zip archive with a fixed date: the same content gives the same bytes.

    >>> dated_member("a.txt").date_time
    (1980, 1, 1, 0, 0, 0)
    """
    info = zipfile.ZipInfo(name)  # this date is the oldest that the format has, and its default
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    info.external_attr = 0o644 << 16
    return info


def read_arrays(path: Path | str, names: Sequence[str] | None = None) -> Arrays:
    """Plain arrays of an ``.npz`` file, all or those named; pickled objects and archives that lie are refused.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", x=np.arange(3.0))
    ...     read_arrays(f"{folder}/a.npz")
    {'x': array([0., 1., 2.])}
    """
    try:
        with open(path, "rb") as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise InputError("expected a NumPy archive of several arrays, got a single array")
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in names or () if name not in members]
            if missing:
                raise InputError(f"expected the array {missing[0]}, got {', '.join(members)}")
            chosen = {name: members[name] for name in (members if names is None else names)}
            check_unpacked(os.path.getsize(path), sum(info.file_size for info in chosen.values()))
            return {name: _member(archive, info) for name, info in chosen.items()}
    except (FiberscopeError, OSError):
        raise
    except Exception as error:  # on damaged bytes the parsers of zip and of array headers raise anything
        raise InputError(
            "expected a NumPy archive (.npz) of plain arrays, got something else or a damaged file"
        ) from error


def read_array(path: Path | str) -> npt.NDArray[Any]:
    """The plain array of an ``.npy`` file, which must be as long as its header says."""
    try:
        with open(path, "rb") as file:
            return _read_array(file, os.path.getsize(path))
    except (FiberscopeError, OSError):
        raise
    except Exception as error:  # as above
        raise InputError("expected an .npy file with numbers, got something else or a damaged file") from error


def gunzip(content: bytes) -> bytes:
    """What a ``.gz`` file unpacks to; the format's own size is of no use, so reading stops at the limit.

    >>> gunzip(gzip.compress(b"text"))
    b'text'
    """
    limit = unpack_limit(len(content))
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        found = file.read(limit)
        if file.read(1):
            check_unpacked(len(content), limit + 1)
    return found


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(info) as stream:  # gives no more bytes than the directory says
        return _read_array(stream, info.file_size)


def _read_array(stream: IO[bytes], size: int) -> npt.NDArray[Any]:
    """An array from a stream of ``size`` bytes: the header first, then exactly the bytes that it describes."""
    version = np.lib.format.read_magic(stream)
    shape, fortran, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise InputError("expected plain arrays, got pickled objects, which are never read")
    need = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or need != size - stream.tell():
        raise InputError(f"expected {need} bytes for an array {shape} of {dtype}, got {size - stream.tell()}")
    if need == 0:
        return np.zeros(shape, dtype)
    array = np.empty(prod(shape), dtype)
    rest = array.view(np.uint8)
    while rest.size:
        chunk = stream.read(min(_CHUNK, len(rest)))
        if not chunk:
            raise InputError("expected more bytes, got a file that is cut short")
        rest[: len(chunk)] = np.frombuffer(chunk, np.uint8)
        rest = rest[len(chunk) :]
    return array.reshape(shape, order="F" if fortran else "C")


def check_folder(folder: Path) -> None:
    """Make a folder and refuse one that cannot be written, before work is done whose results would have no place.

    >>> check_folder(Path("/dev/null/results"))
    Traceback (most recent call last):
    fiberscope.errors.InputError: /dev/null/results: expected a folder that can be written (Not a directory)
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{folder}: expected a folder that can be written ({error.strerror})") from error
