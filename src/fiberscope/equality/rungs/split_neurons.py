"""The same class on a box with many inputs, by branch and bound over the signs of neurons.

**The certificate.** Evidence of the kind ``split_neurons`` names the class ``own`` that both networks have on the whole
box, and for each network and every other class, in their order, a tree that shows that the class is not ahead. A tree
is a list in preorder of splits ``[layer, neuron]``, behind which come first the part where the neuron is at least zero
and then the one where it is at most zero, and of leaves ``[slopes, factors]``, both lists of ``[layer, neuron,
number]``. Layers are counted by their activations. Slopes are those of lines below activations that are not the piece
that covers more of the interval, and factors belong to the signs above.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fiberscope.equality.bounding.attack import crossings
from fiberscope.equality.bounding.chains import MOST_INPUTS, Layer, layers_of
from fiberscope.equality.bounding.phases import Chain, Leaf, Numbers, SignSearch, Split, Tree, worst_leaf
from fiberscope.equality.evidence import Check, Evidence, number
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import refuted
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import Run

_SHARE = 0.7
"""Part of the time that is left which the search may take."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitNeurons(Evidence):
    """On all of the box ``own`` is the class of both networks, or ties with it; see the top of this module."""

    kind: ClassVar[str] = "split_neurons"

    own: int
    trees: tuple[tuple[Tree, ...], tuple[Tree, ...]]

    def check(self, question: Question) -> Check:
        box = question.place
        if question.margin is None:
            return Check(False, "a class that both have says nothing of values")
        if not isinstance(box, Box):
            return Check(False, "the domain is no box")
        if not 0 <= self.own < question.a.out_size or any(len(t) != question.a.out_size - 1 for t in self.trees):
            raise InputError("certificate: expected a class, and a tree for every other class")
        for net, trees in zip((question.a, question.b), self.trees, strict=True):
            layers = dense_layers(net)
            if layers is None:
                return Check(False, "signs of neurons are split in dense chains only")
            chain = Chain(layers, box.low, box.high, question.run)
            for row, tree in zip(rivals(question.a.out_size, self.own), trees, strict=True):
                question.run.check()
                if not worst_leaf(chain, row, tree) <= 0:
                    return Check(False, f"another class than {self.own} is not excluded")
        return Check(True, self.text)

    @property
    def text(self) -> str:
        """In words."""
        leaves = sum(isinstance(entry, Leaf) for trees in self.trees for tree in trees for entry in tree)
        return f"both have class {self.own} on the whole box, shown in {leaves} parts by the signs of neurons"

    def _answer(self) -> Iterator[tuple[str, Any]]:
        yield "own", self.own
        yield "trees", [[[_written(entry) for entry in tree] for tree in trees] for trees in self.trees]

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> SplitNeurons:
        trees = found["trees"]
        if type(found["own"]) is not int or not isinstance(trees, list) or len(trees) != 2:
            raise InputError("certificate: expected a class, and trees for two networks")
        left, right = (tuple(tuple(_read(entry) for entry in tree) for tree in part) for part in trees)
        return cls(found["own"], (left, right))


def _written(entry: Split | Leaf) -> list[Any]:
    return list(entry) if isinstance(entry, Split) else [[list(each) for each in part] for part in entry]


def _read(entry: Any) -> Split | Leaf:
    if not isinstance(entry, list) or len(entry) != 2:
        raise InputError("certificate: expected a split or a leaf of a tree of signs")
    if all(type(part) is int for part in entry):
        return Split(*entry)
    return Leaf(_numbers(entry[0]), _numbers(entry[1]))


def _numbers(found: Any) -> Numbers:
    whole = isinstance(found, list) and all(isinstance(each, list) and len(each) == 3 for each in found)
    if not whole or any(type(k) is not int or type(j) is not int or type(v) is not float for k, j, v in found):
        raise InputError("certificate: expected numbers of neurons")
    return tuple((k, j, number(v, "a neuron")) for k, j, v in found)


def rivals(count: int, own: int) -> FloatArray:
    """Rows of weights of the outputs: every other class minus this one."""
    rows = np.delete(np.eye(count), own, axis=0)
    rows[:, own] = -1.0
    return rows


def dense_layers(net: Network) -> list[Layer] | None:
    """The layers of a dense chain whose last one has no activation."""
    layers = layers_of(net)
    return None if layers is None or layers[-1].slopes is not None else layers


def by_split_neurons(question: Question) -> Verdict | None:
    """The search: a look along the boundaries between classes first, then for a proof."""
    box = question.place
    if question.margin is None or not isinstance(box, Box) or question.a.in_size <= MOST_INPUTS:
        return None
    if dense_layers(question.a) is None or dense_layers(question.b) is None:
        return None
    if question.margin == 0:
        found = refuted(question, crossings(question, box), "boundaries between classes")
        if found is not None:
            return found
    evidence = searched(question, box, question.run.within(_SHARE * question.seconds_left))
    if evidence is None:
        return None
    return answered(question, "branch and bound over signs of neurons", evidence, Check(True, evidence.text))


def searched(question: Question, box: Box, run: Run) -> SplitNeurons | None:
    """Trees for the class that ``a`` has in the middle of the box, if both have it on all of it."""
    middle = np.clip(0.5 * box.low + 0.5 * box.high, box.low, box.high)
    own = int(question.a(middle[None])[0].argmax())
    made: list[tuple[Tree, ...]] = []
    for net in (question.a, question.b):
        layers = dense_layers(net)
        if layers is None:
            return None
        chain, trees = Chain(layers, box.low, box.high, run), list[Tree]()
        for row in rivals(question.a.out_size, own):
            search, done = SignSearch(chain, row), None
            while done is None and not run.is_over:
                done = search.go()
                run.report(len(search.tree), None, f"{len(search.tree)} signs of neurons")
            if not done:
                question.notes.append(f"signs of neurons: {len(search.tree)} parts did not suffice")
                return None
            trees.append(search.preorder())
        made.append(tuple(trees))
    return SplitNeurons(own, (made[0], made[1]))


RUNG: Rung = Rung(by_split_neurons, (SplitNeurons,))
