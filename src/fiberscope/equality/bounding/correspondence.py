"""Which parts of two programs correspond to each other, so that their difference can be carried along.

Exporters fold batch normalisation into the map before it, or leave it where it is. Affine maps of which each alone
reads the one before are taken as one *run*, and a run of one program corresponds to a run of the other between the same
values, whatever either is made of. Everything else corresponds node by node.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import NamedTuple

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Gather, Operator, Sparse


class AffineRuns(NamedTuple):
    """Affine maps of ``a``, one behind the other, and those of ``b`` between the corresponding values."""

    one: tuple[Affine, ...]
    two: tuple[Affine, ...]

    @property
    def alike(self) -> bool:
        """Whether both are made of the same stages, so that numbers can be compared with numbers."""
        stages = [[stage for node in run for stage in node.operator.stages()] for run in self]
        shifts = [[k for k, node in enumerate(run) for _ in node.operator.stages()] for run in self]
        return len(stages[0]) == len(stages[1]) and shifts[0] == shifts[1] and all(map(_same_stage, *stages))


class _Part(NamedTuple):
    """A node, or a run of affine ones, and the parts that it reads; 0 is the input."""

    sources: tuple[int, ...]
    places: list[int]


def corresponding(a: Network, b: Network) -> dict[int, AffineRuns] | None:
    """For the last node of every run of ``a`` both runs; None where the programs do not correspond.

    >>> from fiberscope.network.operators import Dense
    >>> maps = [Affine(0, Dense([[2.0]]), [1.0]), Affine(1, Dense([[3.0]]), [0.5])]  # 3 (2 x + 1) + 1/2
    >>> runs = corresponding(Network.from_nodes(maps, (1,)), Network([[[6.0]]], [[3.5]]))
    >>> {last: (len(run.one), len(run.two)) for last, run in runs.items()}
    {1: (2, 1)}
    """
    (left, last), (right, end) = _parts(a), _parts(b)
    if len(left) != len(right) or last != end:
        return None
    runs: dict[int, AffineRuns] = {}
    for ours, theirs in zip(left, right, strict=True):
        one, two = ([net.nodes[k] for k in part.places] for net, part in ((a, ours), (b, theirs)))
        if ours.sources != theirs.sources or prod(one[-1].shape) != prod(two[-1].shape):
            return None
        maps = [tuple(node for node in run if isinstance(node, Affine)) for run in (one, two)]
        if maps[0] and maps[1]:
            runs[ours.places[-1]] = AffineRuns(maps[0], maps[1])
        elif not _same_kind(one[0], two[0]):
            return None
    return runs


def _parts(net: Network) -> tuple[list[_Part], int]:
    """The parts in the order of their first nodes, and the number of the one that makes the output."""
    readers = Counter(s for node in net.nodes for s in node.sources)
    parts, part_of = list[_Part](), [0]
    for k, node in enumerate(net.nodes):
        before = node.sources[0]
        follows = isinstance(node, Affine) and before > 0 and isinstance(net.nodes[before - 1], Affine)
        if follows and readers[before] == 1:
            parts[part_of[before] - 1].places.append(k)
            part_of.append(part_of[before])
        else:
            parts.append(_Part(tuple(part_of[s] for s in node.sources), [k]))
            part_of.append(len(parts))
    return parts, part_of[-1]


def _same_kind(one: Node, two: Node) -> bool:
    match one, two:
        case PiecewiseLinear(), PiecewiseLinear():
            return np.array_equal(one.slopes, two.slopes)
        case MaxPool(), MaxPool():
            return np.array_equal(one.windows, two.windows)
        case Concat(), Concat():
            return one.shapes == two.shapes and one.axis == two.axis
        case Add(), Add():
            return True
        case _:
            return False


def _same_stage(one: Operator, two: Operator) -> bool:
    if type(one) is not type(two) or one.in_shape != two.in_shape or one.out_shape != two.out_shape:
        return False
    if isinstance(one, Gather) and isinstance(two, Gather):
        return np.array_equal(one.index, two.index)
    if isinstance(one, Sparse) and isinstance(two, Sparse):
        ours, theirs = one.matrix, two.matrix
        return np.array_equal(ours.indptr, theirs.indptr) and np.array_equal(ours.indices, theirs.indices)
    return one.coefficients.shape == two.coefficients.shape and repr(one) == repr(two)
