"""Records that survive: plain data with exact floats, and files of JSON lines that a crash cannot spoil.

Every line is flushed to the disk before the writer goes on. A crash can at most cut the last line short; readers drop
such a line, and a writer that continues the file removes it first.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from fiberscope import results
from fiberscope.errors import InputError

_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def plain(value: Any) -> Any:
    """The same value as plain data: NumPy becomes Python, and what JSON has no number for becomes a word.

    >>> import numpy as np
    >>> plain({"a": np.float64(0.1), "b": np.array([1, 2]), "c": float("inf")})
    {'a': 0.1, 'b': [1, 2], 'c': 'inf'}
    """
    return results.plain(value, str, _refuse)


def _refuse(value: Any) -> Any:
    raise InputError(f"record: expected numbers, text, lists or mappings, got {type(value).__name__}")


def number(value: Any) -> Any:
    """Undo :func:`plain` on a single entry: the words nan, inf and -inf become floats again."""
    return _SPECIAL.get(value, value) if isinstance(value, str) else value


def dumps(value: Any) -> str:
    """One line of JSON with sorted keys: the same data are the same bytes."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


class LineFile:
    """A file of JSON lines, opened to append; what it held before is in ``existing``.

    With a ``header`` the file is new or empty, or begins with this very line (or what a crash left of it). Any other
    file is somebody else's: it is refused and left as it is. Without a header only a file that does not begin like a
    JSON object is known to be somebody else's.
    """

    def __init__(self, path: str | Path, header: Any = None) -> None:
        self.path = Path(path)
        self._failed = False
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
            _refuse_foreign(self.path, content, header)  # before anything is cut off
            self.existing, length = _whole(self.path, content)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
            self._file.truncate(length)
        except OSError as error:
            raise InputError(f"{self.path}: expected a file that can be written, got {error}") from error
        if header is not None and not self.existing:
            self.append(header)

    def append(self, value: Any) -> None:
        """Add one line; when this returns it is on the disk."""
        try:
            self._file.write(dumps(value).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._failed = True
            raise InputError(f"{self.path}: cannot be written ({error.strerror or error})") from error

    def close(self) -> None:
        # after a failure closing tries to write the rest once more; that it fails again has been said already
        with suppress(OSError) if self._failed else nullcontext():
            self._file.close()


def read_lines(path: str | Path) -> list[Any]:
    """All whole lines of a file; one cut short at the end is left out.

    A damaged line anywhere else raises: that is no crash of the writer.
    """
    try:
        return _whole(Path(path), Path(path).read_bytes())[0]
    except OSError as error:
        raise InputError(f"{path}: expected a readable file, got {error}") from error


def _refuse_foreign(path: Path, content: bytes, header: Any) -> None:
    expected = b'{"' if header is None else dumps(header).encode() + b"\n"
    if not content.startswith(expected) and not expected.startswith(content):
        what = "JSON lines" if header is None else f"one that begins with {dumps(header)}"
        first = content[:300].split(b"\n")[0].decode(errors="replace")
        raise InputError(f"{path}: expected a new file or {what}, got a first line {first!r}")


def _whole(path: Path, content: bytes) -> tuple[list[Any], int]:
    """The lines, and the length in bytes up to which the file is whole."""
    found, start = [], 0
    while (end := content.find(b"\n", start)) >= 0:
        try:
            found.append(json.loads(content[start:end]))
        except (ValueError, RecursionError) as error:
            if content.find(b"\n", end + 1) < 0 and end + 1 == len(content):
                break  # the last line: a crash may leave it damaged rather than short
            raise InputError(f"{path}: expected JSON in line {len(found) + 1}, got {error}") from error
        start = end + 1
    return found, start
