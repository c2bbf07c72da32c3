"""Answers about a fiber: components and paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.numerics.floats import IntArray
from fiberscope.results import Result, hidden

if TYPE_CHECKING:
    from fiberscope.fibers.one_layer.realisations import Cell
    from fiberscope.fibers.row_family import Deformation

TURNS = "the image of the layers before does not span what a neuron reads (appendix G of the paper on fibers)"

ComponentKind = Literal[
    "orbit", "orientation", "translation", "reflection", "constant", "known", "assignment", "deformation"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Component(Result):
    """One piece of a fiber, up to permutation and positive rescaling of neurons.

    ``theorem`` is where it comes from; ``complete`` whether the listed components are all, among generic parameters.
    ``dimension`` is modulo rescaling. ``flipped`` are the neurons whose orientation is reversed, of the last hidden
    layer for an orientation, of the first one for a translation. ``cell`` is the set of Definition 22, for an
    assignment; ``families`` are the rows that can be deformed, for a deformation.
    """

    kind: ComponentKind
    theorem: str
    complete: bool
    dimension: int
    flipped: tuple[int, ...] = ()
    text: str = ""
    cell: Cell | None = field(default=None, repr=False, metadata=hidden())
    families: tuple[Deformation, ...] = field(default=(), repr=False, metadata=hidden())


@dataclass(frozen=True, slots=True, eq=False)
class FiberPath:
    """A path inside the fiber: ``path(0)`` is the network itself, ``path(1)`` the other one up to a permutation.

    Neuron ``i`` of hidden layer ``l`` of ``path(1)`` is neuron ``permutations[l][i]`` of the other one, bit for bit.
    """

    at: Callable[[float], Network] = field(repr=False)
    text: str
    permutations: tuple[IntArray, ...] = field(default=(), repr=False)

    def __call__(self, s: float) -> Network:
        if not 0 <= s <= 1:
            raise InputError(f"s: expected a number from 0 to 1, got {s}")
        return self.at(float(s))

    def networks(self, count: int = 11) -> list[Network]:
        """Equally spaced members along the path, ends included."""
        if count < 2:
            raise InputError(f"count: expected at least 2, got {count}")
        return [self(s) for s in np.linspace(0, 1, count)]


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """Whether two members of a fiber are joined inside it, up to the order of neurons.

    True comes with a path; False says that the other network is no member, or that it is shown to lie in another
    connected component (of all members, or of the generic ones: ``reason`` says which); None that no path is known.
    ``reason`` says which moves join them, or what stands in the way. True in conditions only where there is a path.
    """

    connected: bool | None
    path: FiberPath | None
    reason: str

    def __bool__(self) -> bool:
        return self.connected is True
