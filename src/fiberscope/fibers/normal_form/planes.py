"""Hyperplanes by name, whether their rows are written in integers of any size or packed from arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

from fiberscope.fibers.normal_form.row import Plain
from fiberscope.fibers.normal_form.sums import Packed, pack, unpack


@dataclass(slots=True, eq=False)
class Planes:
    """A number for every hyperplane that was entered; each is kept as it came, and rewritten where both kinds meet.

    >>> planes = Planes()
    >>> planes.enter(((0, 3), (4, -6)), 7)
    >>> planes.find(((0, 3), (4, -6))), planes.find(((0, 3), (4, 6)))
    (7, None)
    """

    _plain: dict[Plain, int] = field(default_factory=dict)
    _packed: dict[Packed, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._plain or self._packed)

    def enter(self, plane: Plain, number: int) -> None:
        self._plain[plane] = number

    def enter_packed(self, plane: Packed, number: int) -> None:
        self._packed[plane] = number

    def find(self, plane: Plain) -> int | None:
        found = self._plain.get(plane)
        if found is None and self._packed:
            short = pack(plane)
            found = None if short is None else self._packed.get(short)
        return found

    def find_packed(self, plane: Packed) -> int | None:
        found = self._packed.get(plane)
        return self._plain.get(unpack(plane)) if found is None and self._plain else found
