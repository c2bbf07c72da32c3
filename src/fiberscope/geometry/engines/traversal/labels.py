"""Sign vectors as labels of two bits per neuron, and the set of the labels seen, which is most of a traversal's memory.

Labels are kept in full and compared in full: two regions are never mistaken for one.

A label is a row of ``words`` 64-bit words: first the bits of the positive entries, then those of the zeros, then
nothing. The set is ``table (size, words)`` with ``used (size,)``, its size a power of two, at most 60 % full; a label
stands at the slot of its hash or, where others stand there, at the next free one, so a search ends at the first slot
not used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fiberscope.geometry.engines.traversal.kernels import SKIP, WANTED
from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import BoolArray, IntArray, SignArray

Words = npt.NDArray[np.uint64]


def pack(signs: SignArray) -> Words:
    """Sign vectors ``(count, N)`` in two bits per entry, ``(count, words)``: which are positive, which are zero.

    >>> unpack(pack(np.array([[1, 0, -1]], dtype=np.int8)), 3)
    array([[ 1,  0, -1]], dtype=int8)
    """
    bits = np.concatenate([np.packbits(signs > 0, axis=1), np.packbits(signs == 0, axis=1)], axis=1)
    words = np.zeros((len(signs), max(1, -(-bits.shape[1] // 8)) * 8), dtype=np.uint8)
    words[:, : bits.shape[1]] = bits
    return words.view(np.uint64)


def unpack(words: Words, size: int) -> SignArray:
    """The sign vectors ``(count, size)`` again."""
    half = -(-size // 8)
    raw = np.ascontiguousarray(words).view(np.uint8)
    positive = np.unpackbits(raw[:, :half], axis=1, count=size).astype(np.int8)
    zero = np.unpackbits(raw[:, half : 2 * half], axis=1, count=size).astype(np.int8)
    return np.asarray(2 * positive + zero - 1, dtype=np.int8)


class Labels:
    """A set of labels, kept in full in one open-addressed table."""

    def __init__(self, words: int) -> None:
        self.arrays = (np.zeros((1024, words), dtype=np.uint64), np.zeros(1024, dtype=np.bool_))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def add(self, labels: Words) -> BoolArray:
        """Put labels in; gives which were new (the first of equal ones)."""
        table, used = self.arrays
        size = len(used)
        while self._count + len(labels) > 0.6 * size:
            size *= 2
        if size > len(used):
            self.arrays = (np.zeros((size, table.shape[1]), dtype=np.uint64), np.zeros(size, dtype=np.bool_))
            _look_up(table[used], *self.arrays, np.empty(self._count, dtype=np.bool_), True)
        found = np.empty(len(labels), dtype=np.bool_)
        _look_up(labels, *self.arrays, found, True)
        self._count += len(found) - int(np.count_nonzero(found))
        return np.asarray(~found)

    def contain(self, labels: Words) -> BoolArray:
        """Which labels are in."""
        found = np.empty(len(labels), dtype=np.bool_)
        _look_up(labels, *self.arrays, found, False)
        return found


def distinct(words: Words) -> IntArray:
    """Indices of the first of equal rows."""
    if not len(words):
        return np.zeros(0, dtype=np.int64)
    keys = np.ascontiguousarray(words).view([("", words.dtype)] * words.shape[1]).ravel()
    return np.asarray(np.unique(keys, return_index=True)[1])


# --- kernels --------------------------------------------------------------------------------------------------------


@inner
def _slot(labels: Any, r: int, table: Any, used: Any) -> Any:
    """Where label r is, or the empty slot where it would go."""
    size = used.size
    h = np.uint64(0x9E3779B97F4A7C15)
    for w in range(labels.shape[1]):
        h ^= labels[r, w]
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(29)
        h *= np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(32)
    slot = np.int64(h & np.uint64(size - 1))
    while used[slot]:
        same = True
        for w in range(labels.shape[1]):
            if table[slot, w] != labels[r, w]:
                same = False
                break
        if same:
            return slot
        slot = (slot + 1) & (size - 1)
    return slot


@kernel
def _look_up(labels: Any, table: Any, used: Any, found: Any, put: bool) -> None:
    """Which labels ``(count, words)`` are in; ``put`` those in that are not."""
    for r in range(labels.shape[0]):
        slot = _slot(labels, r, table, used)
        found[r] = used[slot]
        if put and not used[slot]:
            used[slot] = True
            for w in range(table.shape[1]):
                table[slot, w] = labels[r, w]


def known_neighbours(labels: Words, flips: Words, kinds: SignArray, table: Words, used: BoolArray) -> None:
    """Turn WANTED rows into SKIP if the cell with that row flipped, ``label ^ flips[row]``, was seen."""
    _known_neighbours(labels, flips, kinds, table, used, np.empty((1, labels.shape[1]), dtype=np.uint64))


@kernel
def _known_neighbours(labels: Any, flips: Any, kinds: Any, table: Any, used: Any, other: Any) -> None:
    for r in range(labels.shape[0]):
        for k in range(flips.shape[0]):
            if kinds[r, k] == WANTED:
                for w in range(labels.shape[1]):
                    other[0, w] = labels[r, w] ^ flips[k, w]
                if used[_slot(other, np.int64(0), table, used)]:
                    kinds[r, k] = SKIP
