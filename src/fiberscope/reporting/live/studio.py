"""What one page does: its own copies of the models, the edits made there, and the answers that follow them.

A message is taken in two steps. What it changes (a weight, a corner) is changed at once, so that no edit is lost. What
it asks for is returned as work: a function that gives answers one by one, the picture first. When a newer message
comes, the older work is told by ``Ticket.stale`` and ends at its next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from threading import Event
from time import perf_counter
from typing import Any

import numpy as np

import fiberscope as fs
from fiberscope.errors import FiberscopeError, InputError, TooLargeError
from fiberscope.explorer.payload import MOST_REGIONS, Marks, encode_quickly
from fiberscope.explorer.slices import middle_part
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box, Domain
from fiberscope.network.compose import difference_network
from fiberscope.network.network import Network
from fiberscope.reporting.live import lessons
from fiberscope.reporting.live.edits import LineTurn, move_line, set_number, turn_line
from fiberscope.reporting.live.messages import integer, integers, number, one_of, pair
from fiberscope.reporting.live.planes import Corners
from fiberscope.reporting.live.shelf import Item, Shelf

MOST_PARAMETERS = 2_000_000
"""Of a model in a live picture; above it an answer takes too long to follow a hand."""

SECONDS = 20.0
"""For one picture."""

SHRINKS = 4
"""How often a slice with too many regions is made smaller by half."""

SHOWN_PARAMETERS = 1_500
"""Up to so many the numbers themselves are shown and can be dragged."""

LIVE_PARAMETERS, RESTING_PARAMETERS = 150, 1_500
"""Parameters up to which the functional dimension follows a drag, and is asked when the hand rests."""

MOST_HIDDEN = 64
"""Hidden neurons up to which identifiability is asked."""

Answer = dict[str, Any] | bytes


class Superseded(Exception):
    """Newer work has come."""


@dataclass(eq=False)
class Ticket:
    """Of one piece of work; ``stale`` is set when newer work has come."""

    stale: Event = field(default_factory=Event)

    def progress(self, *_: Any) -> None:
        """As a progress callback: end the work if it is stale."""
        if self.stale.is_set():
            raise Superseded


Work = Callable[[Ticket], Iterator[Answer]]


class Studio:
    """The state of one page over the models of a shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.nets: dict[int, Network] = {}
        self.corners: dict[int, Corners] = {}
        self.turn: LineTurn | None = None
        self.lesson: Network | None = None

    def take(self, message: dict[str, Any]) -> Work:
        """Change what the message changes, and return the work that it asks for."""
        handlers: dict[str, Callable[[dict[str, Any]], Work]] = {
            "hello": self._hello,
            "shape": self._shape,
            "weight": self._weight,
            "line": self._line,
            "reset": self._reset,
            "slice": self._slice,
            "corner": self._corner,
            "paint": self._paint,
            "train": self._train,
            "keep": self._keep,
            "compare": self._compare,
            "stop": lambda message: lambda ticket: iter(()),
        }
        return handlers[one_of(message, "do", list(handlers))](message)

    # -- models

    def _hello(self, message: dict[str, Any]) -> Work:
        def work(ticket: Ticket) -> Iterator[Answer]:
            yield self._models()
            _warm_up()

        return work

    def _models(self) -> dict[str, Any]:
        return {
            "kind": "models",
            "models": [
                {
                    "name": item.name,
                    "architecture": item.net.architecture[:120],
                    "inputs": item.net.in_size,
                    "outputs": item.net.out_size,
                    "parameters": item.net.num_parameters,
                }
                for item in self.shelf.items
            ],
        }

    def _item(self, message: dict[str, Any], name: str = "model") -> tuple[int, Item]:
        place = integer(message, name, 0, len(self.shelf.items) - 1)
        return place, self.shelf.items[place]

    def _net(self, place: int) -> Network:
        return self.nets.get(place, self.shelf.items[place].net)

    def _check_size(self, net: Network) -> None:
        if net.num_parameters > MOST_PARAMETERS:
            raise TooLargeError(
                f"{net.num_parameters:,} parameters are above the {MOST_PARAMETERS:,} that a live picture follows; "
                "fiberscope report answers what takes no dragging, or says what to try instead"
            )

    # -- a network with two inputs

    def _planar(self, message: dict[str, Any]) -> tuple[int, Network]:
        place, item = self._item(message)
        if item.net.in_size != 2:
            raise InputError(f"{item.name}: expected two inputs here, got {item.net.in_size}; look at a slice instead")
        self._check_size(item.net)
        return place, self._net(place)

    def _editable(self, message: dict[str, Any]) -> tuple[int, Network]:
        place, net = self._planar(message)
        if not net.is_chain:
            raise InputError("only chains of dense layers can be dragged; this one can be looked at")
        return place, net

    def _shape(self, message: dict[str, Any]) -> Work:
        place, _ = self._planar(message)
        box = _window(message)
        return lambda ticket: self._follow(place, box, ticket, resting=True)

    def _weight(self, message: dict[str, Any]) -> Work:
        place, net = self._editable(message)
        layer = integer(message, "layer", 0, len(net.weights) - 1)
        row = integer(message, "row", 0, net.weights[layer].shape[0] - 1)
        column = integer(message, "column", -1, net.weights[layer].shape[1] - 1)
        self.nets[place] = set_number(net, layer, row, column, number(message, "value", 1e6))
        return self._after_edit(place, message)

    def _line(self, message: dict[str, Any]) -> Work:
        place, net = self._editable(message)
        neuron = integer(message, "neuron", 0, net.num_signs - 1)
        start, to = pair(message, "from"), pair(message, "to")
        if message.get("turn") is True:
            self.turn = LineTurn.of(self.turn, net, neuron, start)
            self.nets[place] = turn_line(net, self.turn, to)
        else:
            self.nets[place] = move_line(net, neuron, to)
        return self._after_edit(place, message)

    def _reset(self, message: dict[str, Any]) -> Work:
        place, _ = self._planar(message)
        self.nets.pop(place, None)
        return self._after_edit(place, {**message, "done": True})

    def _after_edit(self, place: int, message: dict[str, Any]) -> Work:
        box, resting = _window(message), message.get("done") is True
        return lambda ticket: self._follow(place, box, ticket, resting)

    def _follow(self, place: int, box: Box, ticket: Ticket, resting: bool) -> Iterator[Answer]:
        net = self._net(place)
        begin = perf_counter()
        item = self.shelf.items[place]
        marks = Marks(item.X, item.labels) if item.X is not None else None
        found = _complex(net, box, ticket)
        yield encode_quickly(found, marks, kind="frame", view="shape")
        facts: dict[str, Any] = {
            "kind": "facts",
            "regions": found.num_regions,
            "milliseconds": 1000 * (perf_counter() - begin),
            "slope": float(found.lipschitz.max()),
        }
        if net.is_chain and net.num_parameters <= SHOWN_PARAMETERS:
            facts["weights"] = [w.tolist() for w in net.weights]
            facts["biases"] = [b.tolist() for b in net.biases]
        yield facts
        yield _dimension(net, ticket, resting)
        yield _identifiable(net, ticket)

    # -- a slice through many inputs

    def _slice(self, message: dict[str, Any]) -> Work:
        place, corners = self._corners(message)
        if message.get("again") is True:
            self.corners.pop(place)
            place, corners = self._corners(message)
        return lambda ticket: self._cut(place, corners, ticket)

    def _corners(self, message: dict[str, Any]) -> tuple[int, Corners]:
        place, item = self._item(message)
        if item.net.in_size < 3:
            raise InputError(f"{item.name}: expected three inputs or more for a slice, got {item.net.in_size}")
        self._check_size(item.net)
        if place not in self.corners:
            self.corners[place] = Corners.of(item.net, item.X, item.labels)
        return place, self.corners[place]

    def _corner(self, message: dict[str, Any]) -> Work:
        place, corners = self._corners(message)
        which = integer(message, "corner", 0, 2)
        if message.get("another") is True:
            corners.another(which)
        else:
            corners.move(which, pair(message, "move", 100.0), message.get("done") is True)
        return lambda ticket: self._cut(place, corners, ticket)

    def _paint(self, message: dict[str, Any]) -> Work:
        place, corners = self._corners(message)
        which = integer(message, "corner", 0, 2)
        pixels = integers(message, "pixels", 0, self.shelf.items[place].net.in_size - 1, 400)
        corners.paint(which, pixels, number(message, "ink", 1.0))
        return lambda ticket: self._cut(place, corners, ticket)

    def _cut(self, place: int, corners: Corners, ticket: Ticket) -> Iterator[Answer]:
        net = self._net(place)
        begin = perf_counter()
        pictures = corners.pictures()
        found, shrinks = _small_enough(net, corners.plane(), ticket)
        yield encode_quickly(found, Marks(pictures=pictures), kind="frame", view="slice")
        values = net(corners.points)
        yield {
            "kind": "slice",
            "part": 2**shrinks,
            "regions": found.num_regions,
            "milliseconds": 1000 * (perf_counter() - begin),
            "slope": float(found.lipschitz.max()),
            "corners": corners.told(),
            "outputs": np.where(np.isfinite(values), values, 0.0)[:, :10].tolist(),
            "largest": values.argmax(axis=1).tolist(),
            "paintable": corners.shape is not None and corners.shape[0] == 1,
        }

    # -- a training

    def _train(self, message: dict[str, Any]) -> Work:
        name = one_of(message, "data", list(lessons.CLOUDS))
        hidden = integers(message, "hidden", 1, 64, 4)
        epochs, seed = integer(message, "epochs", 1, 2_000), integer(message, "seed", 0, 10**6)
        lr = number(message, "lr", 1.0)
        if not lr > 0:
            raise InputError(f"lr: expected a positive number, got {lr}")
        return lambda ticket: self._learn(name, hidden, epochs, lr, seed, ticket)

    def _learn(
        self, name: str, hidden: tuple[int, ...], epochs: int, lr: float, seed: int, ticket: Ticket
    ) -> Iterator[Answer]:
        yield {"kind": "status", "text": "training …"}
        lesson = lessons.train(name, hidden, epochs, lr, seed, ticket.progress)
        self.lesson = lesson.networks[-1]
        yield {"kind": "training", "losses": lesson.losses, "epochs": lesson.epochs}
        reach = 1.15 * np.abs(lesson.X).max()
        box, marks = Box.cube(2, -reach, reach), Marks(lesson.X, lesson.labels)
        for index, net in enumerate(lesson.networks):
            found = _complex(net, box, ticket)
            yield encode_quickly(found, marks, kind="frame", view="train", index=index, epoch=lesson.epochs[index])

    def _keep(self, message: dict[str, Any]) -> Work:
        if self.lesson is None:
            raise InputError("there is no training yet")
        self.shelf.add(Item(f"trained {self.lesson.architecture} ({len(self.shelf.items)})", self.lesson))
        return lambda ticket: iter([self._models()])

    # -- two networks

    def _compare(self, message: dict[str, Any]) -> Work:
        (one, first), (two, second) = self._item(message, "first"), self._item(message, "second")
        a, b = self._net(one), self._net(two)
        if (a.in_size, a.out_size) != (b.in_size, b.out_size):
            raise InputError(
                f"{second.name}: expected {a.in_size} inputs and {a.out_size} outputs as {first.name} has, got "
                f"{b.in_size} and {b.out_size}"
            )
        self._check_size(a)
        self._check_size(b)
        domain: Domain = _window(message)
        if a.in_size != 2:
            domain = self._corners({"model": one})[1].plane()
        return lambda ticket: _side_by_side(a, b, domain, ticket)


def _side_by_side(a: Network, b: Network, domain: Domain, ticket: Ticket) -> Iterator[Answer]:
    for name, net in (("first", a), ("second", b), ("difference", difference_network(a, b))):
        yield encode_quickly(_complex(net, domain, ticket), kind="frame", view="compare", side=name)
    yield {"kind": "status", "text": "asking whether they are equal …"}
    where = domain if isinstance(domain, Box) else None
    found = fs.equivalent(a, b, where, time_limit=SECONDS, progress=ticket.progress)
    word = {True: "Yes", False: "No", None: "Undecided"}[found.equal]
    yield {
        "kind": "verdict",
        "equal": found.equal,
        "text": f"{word}: {found.reason}." if found.reason else f"{word}.",
        "where": str(found.domain),
        "method": found.method,
        "difference": None if found.counterexample is None else float(found.counterexample.difference),
    }


@cache
def _warm_up() -> None:
    """Let what is compiled on its first use be compiled, so that no picture's time contains it."""
    tiny = Network.random((2, 2, 1), seed=0)
    encode_quickly(fs.regions(tiny, Box.cube(2)))
    fs.functional_dimension(tiny, [[0.5, 0.25]])


def _window(message: dict[str, Any]) -> Box:
    reach = number(message, "reach", 1e6) if "reach" in message else 1.0
    if not reach > 0:
        raise InputError(f"reach: expected a positive number, got {reach}")
    return Box.cube(2, -reach, reach)


def _small_enough(net: Network, plane: Domain, ticket: Ticket) -> tuple[Complex, int]:
    """The complex on the slice or on a middle part of it that has few enough regions, and how often it was halved."""
    for shrinks in range(SHRINKS):
        found = fs.regions(net, plane, limit=MOST_REGIONS, time_limit=SECONDS / SHRINKS, progress=ticket.progress)
        if found.complete:
            return found, shrinks
        plane = middle_part(plane)
    return _complex(net, plane, ticket), SHRINKS


def _complex(net: Network, domain: Domain, ticket: Ticket) -> Complex:
    ticket.progress()
    found = fs.regions(net, domain, limit=MOST_REGIONS, time_limit=SECONDS, progress=ticket.progress)
    if not found.complete:
        raise TooLargeError(
            f"more than {MOST_REGIONS:,} regions, or more than {SECONDS:.0f} s: look at a smaller window"
        )
    return found


def _dimension(net: Network, ticket: Ticket, resting: bool) -> dict[str, Any]:
    ticket.progress()
    most = RESTING_PARAMETERS if resting else LIVE_PARAMETERS
    if net.num_parameters > most:
        later = net.num_parameters <= RESTING_PARAMETERS
        return {"kind": "dimension", "value": None, "later": later, "parameters": net.num_parameters}
    try:
        found = fs.functional_dimension(net, progress=ticket.progress, time_limit=SECONDS)
    except FiberscopeError as error:
        return {"kind": "dimension", "value": None, "later": False, "reason": str(error)}
    return {
        "kind": "dimension",
        "value": found.lower if found.exact is None else found.exact,
        "exact": found.exact is not None,
        "parameters": net.num_parameters,
    }


def _identifiable(net: Network, ticket: Ticket) -> dict[str, Any]:
    ticket.progress()
    if net.num_hidden > MOST_HIDDEN:
        return {
            "kind": "identifiable",
            "value": None,
            "reasons": [f"not asked: more than {MOST_HIDDEN} hidden neurons"],
        }
    try:
        found = fs.identifiability(net)
    except FiberscopeError as error:
        return {"kind": "identifiable", "value": None, "reasons": [str(error)]}
    return {
        "kind": "identifiable",
        "value": found.identifiable,
        "theorem": found.theorem,
        "reasons": [str(reason) for reason in found.reasons[:4]],
    }
