"""Models that a page can ask about: those of the command line, and files that were dropped."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from fiberscope.errors import FiberscopeError, InputError, TooLargeError
from fiberscope.network.border import loaded
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray

ENDINGS = (".onnx", ".npz", ".safetensors")
"""Files that hold numbers and no code."""

MOST_BYTES = 64 << 20
"""Of a dropped file."""

UNPACKED = 4
"""How many times larger than the limit an archive may be when it is unpacked."""

MOST_MODELS = 32


@dataclass(frozen=True, eq=False)
class Item:
    """A model with the name that the page shows, and data for slices if there are some."""

    name: str
    net: Network
    X: FloatArray | None = None
    labels: IntArray | None = None


@dataclass(eq=False)
class Shelf:
    """All models of a server; dropped files are written under names of our own into ``folder``, read, and removed."""

    folder: Path
    items: list[Item] = field(default_factory=list)
    most_bytes: int = MOST_BYTES
    _dropped: int = 0
    _lock: Any = field(default_factory=Lock, repr=False)

    def add(self, item: Item) -> int:
        """Put a model on the shelf; returns its place."""
        with self._lock:
            if len(self.items) >= MOST_MODELS:
                raise TooLargeError(f"expected at most {MOST_MODELS} models in one page; start another one")
            self.items.append(item)
            return len(self.items) - 1

    def check_name(self, name: str) -> tuple[str, str]:
        """What to show, and the ending; only the last part of a path is looked at."""
        shown = "".join(c for c in name.replace("\\", "/").rsplit("/", 1)[-1] if c.isprintable())[-80:]
        ending = Path(shown).suffix.lower()
        if ending not in ENDINGS:
            raise InputError(
                f"{shown or 'file'}: expected {', '.join(ENDINGS)}; files of torch hold pickled objects and are not "
                "opened here (fiberscope explore FILE reads them safely, or fs.save(net, 'net.npz'))"
            )
        return shown, ending

    def drop(self, name: str, content: bytes) -> int:
        """A dropped file as a model on the shelf; returns its place."""
        shown, ending = self.check_name(name)
        if len(content) > self.most_bytes:
            raise TooLargeError(f"{shown}: expected at most {self.most_bytes:,} bytes, got {len(content):,}")
        with self._lock:
            self._dropped += 1
            path = self.folder / f"dropped-{self._dropped}{ending}"
        try:
            path.write_bytes(content)
            self._check_archive(shown, path)
            return self.add(Item(shown, loaded(path, None, shown)))
        except FiberscopeError as error:
            raise type(error)(str(error).replace(str(path), shown)) from None
        finally:
            path.unlink(missing_ok=True)

    def _check_archive(self, shown: str, path: Path) -> None:
        if path.suffix != ".npz" or not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > UNPACKED * self.most_bytes:
            raise TooLargeError(
                f"{shown}: it would be {size:,} bytes when unpacked, above {UNPACKED * self.most_bytes:,}"
            )


def small_network() -> Network:
    """What is there to play with where no model was named: a network for which every question has an answer.

    >>> small_network().widths
    (2, 2, 5, 1)
    """
    rng = np.random.default_rng(7)
    first = np.array([[1.0, 0.35], [-0.4, 1.0]])
    second = np.array([[1.2, -0.7], [-0.8, 1.1], [0.9, 0.6], [-0.5, -0.9], [0.3, -1.2]])
    return Network([first, second, rng.normal(size=(1, 5))], [[0.35, 0.3], [-0.25, 0.1, -0.6, 0.7, 0.2], [0.0]])
