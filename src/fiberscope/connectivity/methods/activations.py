"""Matching by activations: neurons that do the same on data are partners.

``S_ij`` is the correlation of the activations of neuron ``i`` of ``a`` and neuron ``j`` of ``b`` on the same data, with
its sign, at the layers that read them; the matching maximises ``sum_i S_{i p(i)}`` (Li et al. 2015; Ainsworth et al.
2023). A pixel of an image or a token of a sequence is a sample; the readers of a residual stream are seen together.
Heads are seen where their output is projected, as blocks of features. What no layer is seen to read (queries and keys,
whose products are all that counts) is matched by weights afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from fiberscope.connectivity.methods.families import Family, best, element_of, families
from fiberscope.errors import UnsupportedModelError
from fiberscope.modules.action import Axis, Group, act, members
from fiberscope.modules.moments import CrossMoments
from fiberscope.modules.recording import cross_moments
from fiberscope.network.action.element import Element
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.run import Run

Places = tuple[tuple[str, Axis], ...]
"""Where the groups of a family stand among the features that a layer reads, by name."""


@dataclass(frozen=True)
class Grams:
    """Similarities of the features of two models, and where groups stand among them; see :class:`Problem`.

    >>> group, whole = Group("h", 2, ()), Axis("", 0)
    >>> Grams((np.array([[0.0, 1.0], [4.0, 0.0]]),), ({"h": whole},)).gains(group)
    array([[[0., 1.],
            [4., 0.]]])
    """

    matrices: tuple[FloatArray, ...]
    """``(features, features)``; those of ``b`` are the columns."""
    places: tuple[Mapping[str, Axis], ...]

    def gains(self, group: Group) -> FloatArray:
        total = np.zeros((group.copies, group.size, group.size))
        for k, index in self.indices(group):
            total += self.matrices[k][index[:, :, None], index[:, None, :]].sum(axis=-1)
        return total

    def scores(self, group: Group) -> FloatArray:
        total = np.zeros((group.copies, group.size))
        for k, index in self.indices(group):
            total += self.matrices[k][index, index].sum(axis=-1)
        return total

    def moved(self, element: Element) -> Self:
        matrices = []
        for matrix, places in zip(self.matrices, self.places, strict=True):
            order = {"": torch.arange(len(matrix))}
            for name in (name for name in places if name in element):  # parents first
                order = act(element[name], [places[name]], order)
            matrices.append(matrix[:, order[""].numpy()])
        return replace(self, matrices=tuple(matrices))

    def features(self, group: Group) -> int:
        """How many features a group is seen at, over all layers."""
        return sum(index.size for _, index in self.indices(group))

    def indices(self, group: Group) -> Iterator[tuple[int, IntArray]]:
        """For every matrix with a group its number and the places, ``(copies, members, what moves along)``."""
        for k, (matrix, places) in enumerate(zip(self.matrices, self.places, strict=True)):
            if group.name in places:
                seen = members(torch.arange(len(matrix)), places[group.name], group.size, group.copies)
                yield k, seen.reshape(group.copies, group.size, -1).numpy()


@dataclass(frozen=True)
class Seen:
    """What the data showed: an element of the groups that are seen, and the similarities of each of their families."""

    element: Element
    grams: Mapping[str, Grams]
    constant: Mapping[str, tuple[int, int]]
    samples: int


def by_activations(a: nn.Module, b: nn.Module, groups: Sequence[Group], data: Any, batch_size: int, run: Run) -> Seen:
    """The best element of the groups that some layer reads."""
    trees = {tree: readers for tree in families(groups) if (readers := _readers(a, tree))}
    wanted = {
        f"{k}:{i}": layers for k, readers in enumerate(trees.values()) for i, layers in enumerate(readers.values())
    }
    if not wanted:
        raise UnsupportedModelError("module: expected a layer that reads neurons that can be permuted, found none")
    moments = cross_moments(a, b, wanted, data, inputs=True, batch_size=batch_size, run=run)
    element, grams, constant = Element({}), {}, {}
    for k, (tree, readers) in enumerate(trees.items()):
        found = [moments[f"{k}:{i}"] for i in range(len(readers))]
        problem = Grams(tuple(one.correlation for one in found), tuple(dict(places) for _, places in readers))
        seen = _observed(tree, {name for places in problem.places for name in places})
        element = element_of(seen, best(seen, problem, run)) @ element
        for group in seen.groups:
            grams[group.name], constant[group.name] = problem, _constant(problem, found, group)
    first = moments["0:0"]
    return Seen(element, grams, constant, first.count // len(wanted["0:0"]))  # each reader sees every sample


def _readers(module: nn.Module, tree: Family) -> dict[tuple[int, Places], tuple[str, ...]]:
    """Layers that read the root of a family, by how many features they read and where its groups stand among them."""
    found: dict[tuple[int, Places], tuple[str, ...]] = {}
    named = dict(module.named_modules())
    for axis in tree.group.axes:
        layer, _, kind = axis.tensor.rpartition(".")
        read = layer in tree.group.readers and axis.axis == _input_axis(named.get(layer))
        if kind != "weight" or not read:
            continue
        places = [
            (group.name, _along(one))
            for group in tree.groups
            for one in group.axes
            if (one.tensor, one.axis) == (axis.tensor, axis.axis)
        ]
        if len({name for name, _ in places}) == len(places) and all(one is not None for _, one in places):
            features = int(module.get_parameter(axis.tensor).shape[axis.axis])
            key = features, tuple((name, one) for name, one in places if one is not None)
            found[key] = (*found.get(key, ()), layer)
    return found


def _input_axis(layer: nn.Module | None) -> int | None:
    """The axis of a layer's weight that is summed over with what the layer is given; None where it is not known."""
    if isinstance(layer, nn.Linear):
        return 1
    if isinstance(layer, _ConvTransposeNd):
        return 0 if layer.groups == 1 else None
    if isinstance(layer, _ConvNd):
        return 1 if layer.groups == 1 else None
    # the layer of this name in transformers is a linear one with its weight the other way round
    return 0 if type(layer).__name__ == "Conv1D" and hasattr(layer, "nf") else None


def _along(axis: Axis) -> Axis | None:
    """The place of a group on the axis by itself; None if its copies stand on another."""
    if any(loop.axis != axis.axis for loop in axis.copies):
        return None
    one = [tuple(replace(loop, axis=0) for loop in part if loop.axis == axis.axis) for part in (axis.copies, axis.rest)]
    return Axis("", 0, axis.start, axis.stride, one[0], one[1])


def _observed(tree: Family, names: set[str]) -> Family:
    """A family without the groups inside that are not seen."""
    return Family(tree.group, tuple(_observed(one, names) for one in tree.inside if one.group.name in names))


def _constant(problem: Grams, moments: Sequence[CrossMoments], group: Group) -> tuple[int, int]:
    """Neurons of ``a`` and ``b`` that are constant on the data wherever they are seen."""
    counts = []
    for side in range(2):
        still = np.ones(group.copies * group.size, dtype=bool)
        for k, index in problem.indices(group):
            still &= moments[k].constant[side][index].all(axis=-1).ravel()
        counts.append(int(still.sum()))
    return counts[0], counts[1]
