"""Where the numbers of a network came from: the precision in which they were stored, and the file, if there was one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fiberscope.errors import InputError
from fiberscope.results import Result, hidden

PRECISIONS = ("bfloat16", "float16", "float32", "float64")
"""The precisions that parameters are stored in, coarsest first."""


@dataclass(frozen=True, slots=True)
class Interface:
    """How an ONNX file shows its model to a runtime: what a file that takes its place has to keep.

    ``batch`` is the size or the name of the batch axis, None where there is none; ``shape`` is that of the input
    without it. The output has the shape ``out_shape``, behind a batch axis if ``out_batched``. ``dtype`` is the type of
    the numbers that go in and out.
    """

    input: str
    output: str
    batch: int | str | None
    shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    out_batched: bool
    dtype: str
    opset: int
    ir_version: int


@dataclass(frozen=True, slots=True)
class Source(Result):
    """What a loader knew about a model besides its numbers; it never changes what the network computes.

    ``precision`` is the coarsest precision in which a parameter was stored on its way here. Values alone do not tell
    it: the weight 0.5 fits into every one. ``path`` and ``sha256`` (of the bytes) belong to a model that was read from
    a file, ``interface`` to one from an ONNX file, ``data`` to one whose numbers stand in other files: their names
    beside it, each with its SHA-256. A network that is made from another one (permuted, rescaled,
    simplified, ...) keeps its precision, since the rounding of the numbers it was made from does not go away, and the
    interface, and loses its file.

    >>> coarsest(["float32", "float16"])
    'float16'
    """

    precision: str = "float64"
    path: Path | None = None
    sha256: str | None = None
    interface: Interface | None = field(default=None, metadata=hidden())
    data: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError(f"precision: expected one of {', '.join(PRECISIONS)}, got {self.precision!r}")

    def at(self, path: Path, sha256: str) -> Source:
        """The same, read from a file."""
        return replace(self, path=path, sha256=sha256)

    @property
    def derived(self) -> Source:
        """The source of a network that is made from this one: another program, numbers of the same origin."""
        return Source(self.precision, interface=self.interface)


MEMORY = Source()
"""A network that was made from float64 numbers in memory."""


def coarsest(names: Any) -> str:
    """The coarsest of some precisions, given by the names of types; float64 where there is none of ours."""
    known = [PRECISIONS.index(name) for name in names if name in PRECISIONS]
    return PRECISIONS[min(known, default=len(PRECISIONS) - 1)]


def precision_of(*arrays: Any) -> str:
    """The coarsest precision of some arrays or tensors; numbers without a type are Python's, which are float64.

    >>> import numpy as np
    >>> precision_of(np.zeros(2, np.float32), [0.5]), precision_of([0.5])
    ('float32', 'float64')
    """
    return coarsest(str(getattr(array, "dtype", "")).removeprefix("torch.") for array in arrays)
