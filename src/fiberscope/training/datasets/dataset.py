"""What a data set is: read-only arrays, their provenance, and a checksum of what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from fiberscope.errors import InputError
from fiberscope.results import Result, hidden

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Dataset(Result):
    """Inputs and targets of one task.

    Parameters
    ----------
    name
        The name under which it was loaded.
    inputs
        ``(points, ...)``, floating: vectors ``(points, n_0)``, or images ``(points, channels, height, width)``.
    targets
        ``(points, outputs)`` floating for a regression, ``(points,)`` integers for class labels.
    test_inputs, test_targets
        The held-out part, where there is one; both or none.
    provenance
        Where the numbers come from, as plain data: the seed and options of a synthetic task, the files and their
        checksums of a real one.

    Examples
    --------
    >>> data = Dataset("line", np.array([[0.0], [1.0]]), np.array([[1.0], [3.0]]))
    >>> data
    Dataset(line: 2 points of shape (1,), regression onto 1 output; sha256 ebca1b2efd5f...)
    >>> data.inputs.flags.writeable
    False
    """

    name: str
    inputs: Array = field(metadata=hidden())
    targets: Array = field(metadata=hidden())
    test_inputs: Array | None = field(default=None, metadata=hidden())
    test_targets: Array | None = field(default=None, metadata=hidden())
    provenance: Mapping[str, Any] = field(default_factory=dict)

    told = (
        "points=__len__",
        "test_points=_test_points",
        "input_shape=_input_shape",
        "num_outputs",
        "classification=is_classification",
        "sha256",
    )

    def __post_init__(self) -> None:
        if (self.test_inputs is None) != (self.test_targets is None):
            raise InputError(f"dataset {self.name}: expected test inputs and test targets together, got one of them")
        for part, inputs, targets in (
            ("", self.inputs, self.targets),
            ("test ", self.test_inputs, self.test_targets),
        ):
            if inputs is None or targets is None:
                continue
            _check(self.name, part, inputs, targets)
        for attribute in ("inputs", "targets", "test_inputs", "test_targets"):
            array = getattr(self, attribute)
            if array is not None:
                object.__setattr__(self, attribute, _read_only(array))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))

    @property
    def flat_inputs(self) -> Array:
        """The inputs as ``(points, features)``."""
        return self.inputs.reshape(len(self.inputs), -1)

    @property
    def is_classification(self) -> bool:
        """Whether the targets are class labels."""
        return self.targets.dtype.kind in "iu"

    @property
    def num_outputs(self) -> int:
        """Outputs a network needs: coordinates of the target, or classes (the largest label plus one)."""
        if self.is_classification:
            largest = int(self.targets.max())
            return 1 + (largest if self.test_targets is None else max(largest, int(self.test_targets.max())))
        return int(self.targets.shape[1])

    @cached_property
    def sha256(self) -> str:
        """Checksum over types, shapes and bytes of all arrays; equal checksums mean equal numbers.

        The bytes are taken in little-endian order, so that the checksum does not depend on the machine.
        """
        digest = hashlib.sha256()
        for array in (self.inputs, self.targets, self.test_inputs, self.test_targets):
            if array is None:
                digest.update(b"none;")
                continue
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{little.dtype.str}{little.shape};".encode())
            digest.update(np.ascontiguousarray(little).tobytes())
        return digest.hexdigest()

    def split(self, fractions: Sequence[float], seed: int) -> tuple[Dataset, ...]:
        """Random disjoint parts of *all* points, held-out ones included, as in an 80/10/10 split.

        >>> data = Dataset("line", np.arange(10.0)[:, None], np.arange(10.0)[:, None])
        >>> [len(part.inputs) for part in data.split((0.8, 0.1, 0.1), seed=0)]
        [8, 1, 1]
        """
        shares = np.asarray(fractions, dtype=float)
        if shares.ndim != 1 or (shares <= 0).any() or shares.sum() > 1 + 1e-9:
            raise InputError(f"fractions: expected positive numbers with a sum of at most 1, got {tuple(fractions)}")
        inputs, targets = self.inputs, self.targets
        if self.test_inputs is not None and self.test_targets is not None:
            inputs = np.concatenate([inputs, self.test_inputs])
            targets = np.concatenate([targets, self.test_targets])
        order = np.random.default_rng(seed).permutation(len(inputs))
        ends = np.rint(np.cumsum(shares) * len(inputs)).astype(int)
        starts = [0, *ends[:-1]]
        if any(end <= start for start, end in zip(starts, ends, strict=True)):
            raise InputError(
                f"fractions: expected parts of at least one of {len(inputs)} points, got {tuple(fractions)}"
            )
        return tuple(
            Dataset(
                f"{self.name}[{index}]",
                inputs[np.sort(order[start:end])],
                targets[np.sort(order[start:end])],
                provenance={
                    **self.provenance,
                    "split": {"fractions": shares.tolist(), "seed": seed, "part": index},
                },
            )
            for index, (start, end) in enumerate(zip(starts, ends, strict=True))
        )

    def astype(self, dtype: str) -> Dataset:
        """The same data with floating arrays of another type; labels stay integers."""

        def cast(array: Array) -> Array:
            return array.astype(dtype) if array.dtype.kind == "f" else array

        return replace(
            self,
            inputs=cast(self.inputs),
            targets=cast(self.targets),
            test_inputs=None if self.test_inputs is None else cast(self.test_inputs),
            test_targets=None if self.test_targets is None else cast(self.test_targets),
        )

    def __len__(self) -> int:
        return len(self.inputs)

    def _test_points(self) -> int:
        return 0 if self.test_inputs is None else len(self.test_inputs)

    def _input_shape(self) -> tuple[int, ...]:
        return self.inputs.shape[1:]

    def __repr__(self) -> str:
        count = self.num_outputs
        kind = f"{count} classes" if self.is_classification else f"regression onto {count} output" + "s" * (count > 1)
        test = "" if self.test_inputs is None else f" and {len(self.test_inputs)} held out"
        shape = tuple(self.inputs.shape[1:])
        return f"Dataset({self.name}: {len(self)} points{test} of shape {shape}, {kind}; sha256 {self.sha256[:12]}...)"


def _check(name: str, part: str, inputs: Array, targets: Array) -> None:
    if inputs.ndim < 2 or inputs.dtype.kind != "f":
        raise InputError(
            f"dataset {name}: expected {part}inputs (points, ...) of a float type, got {inputs.shape} {inputs.dtype}"
        )
    labels = targets.dtype.kind in "iu" and targets.ndim == 1
    if not labels and not (targets.dtype.kind == "f" and targets.ndim == 2):
        raise InputError(
            f"dataset {name}: expected {part}targets (points, outputs) floating or (points,) integer, "
            f"got {targets.shape} {targets.dtype}"
        )
    if len(inputs) != len(targets) or len(inputs) == 0:
        raise InputError(
            f"dataset {name}: expected as many {part}targets as inputs, at least one, got {len(inputs)}, {len(targets)}"
        )
    if labels and targets.min() < 0:
        raise InputError(f"dataset {name}: expected labels from 0, got {targets.min()}")
    for what, array in (("inputs", inputs), ("targets", targets)):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"dataset {name}: expected finite {part}{what}, got NaN or infinity")


def _read_only(array: Array) -> Array:
    """The array itself if nobody can write to it, else a read-only copy (the caller may keep the original)."""
    if not array.flags.writeable and array.flags.c_contiguous:
        return array
    copy = np.array(array, order="C", copy=True)
    copy.setflags(write=False)
    return copy
