"""What changed, as data: one row for every layer or tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fiberscope.numerics.grids import Grid
from fiberscope.results import Pictured, Result, Tabular

SAME, ROUNDED, CHANGED, ADDED, REMOVED = "same", "rounded", "changed", "added", "removed"


@dataclass(frozen=True, slots=True)
class Change(Result):
    """A layer of ``a`` beside the one of ``b`` that stands for it, after its neurons or channels are matched.

    ``status`` is *same* (no number differs), *rounded* (every number within a few units of the coarser of the stored
    precisions, an offset counting as no smaller than the largest coefficient of its neuron), *changed*, *added* or
    *removed*. ``change`` is the norm of the difference over the norm in ``a``,
    ``largest`` the largest difference of a number. ``pruned`` neurons of ``a`` have none in ``b`` (or only zeros),
    ``new`` ones of ``b`` have none in ``a``; ``reordered`` and ``rescaled`` ones do not change the function. ``maps``
    are the affine maps that the layer is made of in ``a`` and in ``b``. ``grid`` is what the numbers of ``b`` lie on
    where those of ``a`` do not: they are quantised; ``grids`` is how many rows have a grid of their own. ``zeroed``
    numbers are zero in ``b`` alone.
    """

    name: str
    status: str
    neurons: tuple[int, int]
    change: float | None = None
    largest: float | None = None
    pruned: int = 0
    new: int = 0
    reordered: int = 0
    rescaled: int = 0
    maps: tuple[int, int] = (1, 1)
    grid: Grid | None = None
    grids: int = 0
    zeroed: int = 0

    @property
    def remarks(self) -> str:
        """In words what happened besides the change of numbers."""
        found = []
        for count, word in ((self.pruned, "pruned"), (self.new, "new"), (self.reordered, "reordered")):
            if count:
                found.append(f"{count} {word}")
        if self.rescaled:
            found.append(f"{self.rescaled} rescaled")
        if self.maps[0] != self.maps[1]:
            word = "fused" if self.maps[1] < self.maps[0] else "split"
            found.append(f"{word} {self.maps[0]} -> {self.maps[1]} maps")
        if self.zeroed and self.grid is None:  # on a grid small numbers are zero
            found.append(f"{self.zeroed} numbers set to zero")
        if self.grid is not None:
            where = f"{self.grids} rows on grids, the first of" if self.grids else "on a grid of"
            zero = "" if self.grid.zero is None else f", zero point {self.grid.zero}"
            found.append(f"{where} step {self.grid.step:.4g}, {self.grid.levels} levels{zero}")
        return ", ".join(found)


@dataclass(frozen=True, slots=True)
class Difference(Tabular, Pictured):
    """What changed from ``a`` to ``b``; true in conditions where something did.

    ``by`` says what was compared: *layers* of two programs, in terms of matched channels, or *tensors* by name.
    """

    by: str
    precision: str
    layers: tuple[Change, ...]

    frame: ClassVar[str] = "layers"
    picture: ClassVar[str] = "difference"
    told = ("same", "remarks")

    @property
    def same(self) -> bool:
        """Whether nothing changed but the order and the scale of neurons, and how maps are split; up to rounding."""
        return all(layer.status in (SAME, ROUNDED) and not layer.pruned and not layer.new for layer in self.layers)

    @property
    def remarks(self) -> list[str]:
        """One line for every layer that is not the same."""
        return [
            f"{layer.name}: {layer.status}" + (f", {layer.remarks}" if layer.remarks else "")
            for layer in self.layers
            if layer.status != SAME or layer.remarks
        ]

    def __bool__(self) -> bool:
        return not self.same
