"""Files of real data: where they are looked for, how they are fetched, and what proves that they are the right ones.

Order: the directory given, the one named by ``FIBERSCOPE_DATA``, our cache, and last the network. A download goes
to a ``.part`` file, continues where an earlier one stopped, is checked, and only then gets its name.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fiberscope.errors import InputError, TooLargeError
from fiberscope.files import gunzip
from fiberscope.run import Progress

ENVIRONMENT = "FIBERSCOPE_DATA"
TIMEOUT = 20.0
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a data set.

    ``sha256`` is of the file's content: for a ``.gz`` file (unless ``of_file``) of what it unpacks to, because the
    same data is distributed in several compressions. None: the reader checks the numbers instead.
    """

    name: str
    urls: tuple[str, ...]
    sha256: str | None
    folders: tuple[str, ...] = ("",)
    of_file: bool = False

    @property
    def unpacks(self) -> bool:
        return self.name.endswith(".gz") and not self.of_file


def cache_directory() -> Path:
    """Where downloads go when no directory is named."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fiberscope" / "data"


def search_path(directory: Path | None) -> list[Path]:
    """The directories in which files are looked for; a directory that was named must be there."""
    if directory is not None:
        if not directory.is_dir():
            raise InputError(f"directory: expected an existing directory, got {directory}")
        return [directory]
    named = os.environ.get(ENVIRONMENT)
    if named and not Path(named).is_dir():
        raise InputError(f"{ENVIRONMENT}: expected an existing directory, got {named}")
    return [*([Path(named)] if named else []), cache_directory()]


def find(source: Source, directory: Path | None, extra: Sequence[Path] = ()) -> Path | None:
    """The first place at which the file lies, or None."""
    places = [
        place / folder / source.name
        for place in (*search_path(directory), *extra)
        for folder in dict.fromkeys((*source.folders, ""))
    ]
    return next((path for path in places if path.is_file()), None)


def fetch(
    source: Source,
    directory: Path | None,
    *,
    extra: Sequence[Path] = (),
    progress: Progress | None = None,
) -> bytes:
    """The checked content of a file, unpacked if it is a ``.gz``, downloaded if it is nowhere."""
    path = find(source, directory, extra)
    if path is not None:
        return checked(source, path)
    target = search_path(directory)[0] / source.folders[0] / source.name
    return download(source, target, progress or show_progress)


def checked(source: Source, path: Path) -> bytes:
    """The content of a file that is there; raises when it is damaged or not the file expected."""
    try:
        raw = path.read_bytes()
        content = gunzip(raw) if source.unpacks else raw
    except TooLargeError as error:
        raise TooLargeError(f"{path}: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: expected a readable file, got {type(error).__name__}: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if source.sha256 is not None and found != source.sha256:
        raise InputError(f"{path}: expected content with sha256 {source.sha256}, got {found}; remove it or replace it")
    return content


def download(source: Source, target: Path, progress: Progress) -> bytes:
    """Fetch a file into ``target`` from the first address that answers; see the module's text."""
    trouble = "no address is known"
    part = target.with_name(target.name + ".part")
    for url in source.urls:
        try:
            _receive(url, part, lambda done, total: progress(done, total, source.name))
        except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
            trouble = f"{url}: {getattr(error, 'reason', error)}"
            continue
        except OSError as error:
            raise InputError(f"{source.name}: expected to write the download to {part}, got {error}") from error
        try:
            content = checked(source, part)
        except InputError as error:
            part.unlink(missing_ok=True)  # a wrong file must not be continued
            trouble = f"{url}: {error}"
            continue
        os.replace(part, target)
        return content
    where = " or ".join(source.urls) or "its publisher"
    raise InputError(
        f"{source.name}: expected at {target}, not there and not downloaded ({trouble}); get it from {where}, "
        f"put it there, or name its directory by the option `directory` or the variable {ENVIRONMENT}"
    )


def _receive(url: str, part: Path, progress: Callable[[int, int | None], None]) -> None:
    """Append to ``part`` what is missing; start anew where the server does not continue."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "fiberscope"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # nothing is missing: the check decides whether it is the right file
            return
        raise
    with response:
        continued = start > 0 and response.status == 206
        done = start if continued else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length is not None else None
        # Only now: a directory that is merely read must not change because a file is missing and nobody answers.
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab" if continued else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:
        raise urllib.error.URLError(f"the connection ended after {done} of {total} bytes; run again to continue")


def show_progress(done: int, total: int | None, name: str) -> None:
    """A line on the terminal that is overwritten as bytes arrive; silent when nobody watches."""
    if not sys.stderr.isatty():
        return
    of = f" of {total / 1e6:.1f}" if total else ""
    end = "\n" if total and done >= total else ""
    sys.stderr.write(f"\r{name}: {done / 1e6:.1f}{of} MB{end}")
    sys.stderr.flush()
