"""Where atoms stand in tensors, and which may be ordered for each member of another by itself.

An atom ``a`` has a *mate* ``p`` at an occurrence if the tensor has an index for every pair of members of the two: the
dimensions of a head and the heads, in the rows of a projection. If ``p`` is a mate at *every* occurrence in the trace,
and no operation mixes members of ``a`` along ``p``, then each member of ``p`` may have its own permutation of ``a``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fiberscope.modules.action import Loop
from fiberscope.modules.tracing.axes import Atom, Expr, Product, Sum, at, leaves, normal, size_of

Axes = tuple[Expr, ...]
"""The index sets of the axes of one tensor."""

Alone = tuple[tuple[Expr, ...], tuple[Expr, ...]]
"""Axes that an operation keeps, and axes along which it mixes: the first may not depend on the second."""


@dataclass(frozen=True)
class Occurrence:
    """One place of an atom in a tensor: its own loop, and those of all that is around it.

    Around are the other factors on the same axis and the factors of the other axes; an axis that is a sum, or whose
    loops are of no interest to anyone, has no entry and moves along whole.
    """

    atom: Atom
    loop: Loop
    around: tuple[tuple[Atom | None, Loop], ...]

    def mates(self) -> set[Atom]:
        """What is around it once; of two indices over one set, which would be meant?"""
        found = Counter(atom for atom, _ in self.around if atom is not None)
        return {atom for atom, count in found.items() if count == 1 and atom is not self.atom}


def occurrences(axes: Axes) -> Iterator[Occurrence]:
    """All places of all atoms in a tensor."""
    for fixed, variant in _variants(tuple(normal(e) for e in axes)):
        tops = [_top(k, e) for k, e in enumerate(variant)]
        for k, e in enumerate(variant):
            others = tuple(loop for j, top in enumerate(tops) if j != k for loop in top)
            picks = tuple((None, loop) for loop in fixed)
            for atom, loop, near in _walk(k, e, 0, 1, ()):
                yield Occurrence(atom, loop, (*near, *others, *picks))


def _variants(axes: Axes) -> Iterator[tuple[tuple[Loop, ...], Axes]]:
    """A tensor with families, taken apart by their indices; each with the places that are fixed for it."""
    for k, index in enumerate(axes):
        if isinstance(index, Atom) and any(
            leaf.family is not None and normal(leaf.family[0]) is index for e in axes for leaf in leaves(e)
        ):
            for i in range(index.size):
                # a fixed place is an axis without atoms: one loop of one step
                rest = tuple(Product() if j == k else at(e, index, i) for j, e in enumerate(axes))
                for fixed, variant in _variants(rest):
                    yield (Loop(k, 1, 1, i), *fixed), variant
            return
    yield (), axes


def _top(axis: int, e: Expr) -> tuple[tuple[Atom | None, Loop], ...]:
    """The loops of an axis whose factors are atoms; nothing for one that is a sum, or has one place."""
    factors = e.factors if isinstance(e, Product) else (e,)
    if not any(isinstance(f, Atom) for f in factors):
        return ()
    return tuple((f if isinstance(f, Atom) else None, Loop(axis, n, s)) for f, n, s in _strides(factors))


def _walk(
    axis: int, e: Expr, start: int, unit: int, near: tuple[tuple[Atom | None, Loop], ...]
) -> Iterator[tuple[Atom, Loop, tuple[tuple[Atom | None, Loop], ...]]]:
    if isinstance(e, Atom):
        yield e, Loop(axis, e.size, unit, start), near
    elif isinstance(e, Sum):
        for part in e.parts:
            yield from _walk(axis, part, start, unit, near)
            start += unit * size_of(part)
    else:
        loops = _strides(e.factors)
        for k, (f, _, stride) in enumerate(loops):
            others = tuple(
                (g if isinstance(g, Atom) else None, Loop(axis, n, s * unit))
                for j, (g, n, s) in enumerate(loops)
                if j != k
            )
            yield from _walk(axis, f, start, unit * stride, (*near, *others))


def _strides(factors: tuple[Expr, ...]) -> list[tuple[Expr, int, int]]:
    found: list[tuple[Expr, int, int]] = []
    stride = 1
    for f in reversed(factors):
        found.append((f, size_of(f), stride))
        stride *= size_of(f)
    return found[::-1]


def outside(index: Atom, tensors: Iterable[Axes]) -> set[Atom]:
    """Atoms that stand left of an index on an axis somewhere: they run slower than it, and so cannot depend on it."""
    found: set[Atom] = set()
    for axes in tensors:
        for e in map(normal, axes):
            if isinstance(e, Product) and index in e.factors:
                found |= {leaf for f in e.factors[: e.factors.index(index)] for leaf in leaves(f)}
    return found


def mates(tensors: Iterable[Axes], alone: Iterable[Alone]) -> dict[Atom, set[Atom]]:
    """For every atom the atoms whose members may have an order of it each."""
    found: dict[Atom, set[Atom]] = {}
    for axes in dict.fromkeys(tuple(map(normal, axes)) for axes in tensors):  # many have become the same
        for one in occurrences(axes):
            others = one.mates()
            found[one.atom] = found[one.atom] & others if one.atom in found else others
    for kept, mixed in alone:
        for leaf in {leaf for e in kept for leaf in leaves(e) if found.get(leaf)}:
            found[leaf] -= {other for e in mixed for other in leaves(e)}
    return found
