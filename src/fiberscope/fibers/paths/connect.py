"""Paths inside a fiber between two of its members, up to the order of neurons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fiberscope.fibers.canonical.form import balancing, is_normal
from fiberscope.fibers.canonical.matching import match_chains
from fiberscope.fibers.components import Connection, FiberPath
from fiberscope.fibers.hidden_hyperplanes import lower_bound
from fiberscope.fibers.one_layer.layer import DEAD, OneLayer
from fiberscope.fibers.paths.deformed_paths import matched
from fiberscope.fibers.paths.layer_paths import REVERSED, Core, join_layers
from fiberscope.fibers.paths.strata_paths import APART, walk
from fiberscope.fibers.theorems import Setting, setting_of
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.chains import rows_of, split, with_arrays
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.ulps import ROWS

if TYPE_CHECKING:
    from fiberscope.fibers.row_family import Deformation

Move = Callable[[float], Network]
"""A part of a path, from 0 to 1: a chain each."""


def connect(
    setting: Setting, other: Network, families: Sequence[Deformation] = (), complete: bool = False
) -> Connection:
    """A path from the network of ``setting`` to a member of its fiber, whose neurons are put into an order for it.

    Rescalings are joined through powers of the scales, translations of hidden hyperplanes through shorter ones, the
    last hidden layer as :mod:`~fiberscope.fibers.paths.layer_paths` says. Members of different components are not
    joined, nor are those of networks that no theorem covers, but for rescalings and the ``families`` of deformed rows.
    ``complete`` says that a theorem lists all generic members: only then is a reversed neuron of a bottleneck a proof
    that there is no path.
    """
    chain, tail = setting.chain, split(other).tail
    match = match_chains(chain, tail)
    if match.symmetry is not None:
        orders = [np.argsort(p) for p in match.symmetry.permutations]
        scales = [s[p] for s, p in zip(match.symmetry.scales, orders, strict=True)]
        if not (is_normal(chain) and is_normal(tail)) and not all((x == 1).all() for x in scales):
            return Connection(None, None, "no path is known: numbers between would lose digits below the normal floats")
        return _path(setting, [_rescaling(chain, scales)], tail, orders, "rescaling of neurons")
    if families and (along := _deformed(setting, tail, families)) is not None:
        return along
    if setting.kind not in ("one layer", "bottleneck"):
        return Connection(None, None, "no theorem covers the network, and the members are not rescaled copies")
    mine, theirs = balancing(chain), balancing(tail)
    even = Setting(replace(setting.parts, tail=mine(chain)), setting.kind)
    with np.errstate(over="ignore", invalid="ignore"):  # what leaves the range of floats agrees with nothing
        found = (_one_layer if setting.kind == "one layer" else _bottleneck)(even, theirs(tail))
    if isinstance(found, str):
        strata = _by_strata(setting, tail) if setting.kind == "one layer" else found
        if strata is found and complete and _apart(setting, other, found):
            return Connection(False, None, f"{found}: that is another component, among generic parameters")
        if isinstance(strata, str):
            apart = strata == APART
            return Connection(False if apart else None, None, APART if apart else f"no path is known: {strata}")
        return _path(setting, strata.moves, tail, strata.orders, strata.text)
    # rows of one size are joined: a mean of a small and of a large number forgets the small one
    there, back = (_rescaling(net, element.scales) for net, element in ((chain, mine), (tail, theirs)))
    turned = _ordered(lambda s: back(1 - s), found.orders)
    return _path(setting, [there, *found.moves, turned], tail, found.orders, found.text)


def _apart(setting: Setting, other: Network, reason: str) -> bool:
    """Whether a neuron that is reversed shows two members of a bottleneck to be apart, among generic parameters.

    A theorem says that first-layer rows of generic members are multiples of those given, and that each nonlinear neuron
    behind them has a hyperplane of its own. Rows of generic parameters do not vanish, nor do their entries. So along a
    path of generic members no neuron changes its role, its hyperplane, or the side of it that it looks to.
    """
    if not reason.endswith(REVERSED) or setting.generic.holds is not True:
        return False
    theirs = setting_of(other)
    return theirs.kind == "bottleneck" and theirs.generic.holds is True


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Moves one after the other, the order of the other's neurons at the end, and what the moves are."""

    moves: list[Move]
    orders: list[IntArray]
    text: str


def _ordered(move: Move, orders: Sequence[IntArray]) -> Move:
    element = Symmetry(orders, [np.ones(len(p)) for p in orders])
    return lambda s: element(move(s))


def _path(setting: Setting, moves: Sequence[Move], tail: Network, orders: Sequence[IntArray], text: str) -> Connection:
    """The moves one after the other; the ends are the two members themselves."""
    ends = _ordered(lambda s: tail, orders), lambda s: setting.chain
    count = len(moves)

    def at(s: float) -> Network:
        k = min(int(s * count), count - 1)
        move = ends[0] if s == 1 else ends[1] if s == 0 else moves[k]
        return setting.parts.joined(move(s * count - k))

    moved = any((p != np.arange(len(p))).any() for p in orders)
    reason = f"joined by {text}" + (", up to a permutation of neurons" if moved else "")
    return Connection(True, FiberPath(at, text, tuple(orders)), reason)


def _rescaling(chain: Network, scales: Sequence[FloatArray]) -> Move:
    return lambda s: Symmetry([np.arange(len(x)) for x in scales], [x**s for x in scales])(chain)


def _deformed(setting: Setting, tail: Network, families: Sequence[Deformation]) -> Connection | None:
    """Rows go straight to those that do the same on the image, then neurons are rescaled."""
    chain, found = setting.chain, matched(setting.chain, tail, families)
    if found is None:
        return None
    orders, scales = found
    ordered = _ordered(lambda s: tail, orders)(1.0)
    goal = _rescaling(ordered, [1 / x for x in scales])(1.0)

    def straight(s: float) -> Network:
        weights, biases = (
            [(1 - s) * x + s * y for x, y in zip(one, two, strict=True)]
            for one, two in ((chain.weights, goal.weights), (chain.biases, goal.biases))
        )
        return with_arrays(chain, weights, biases)

    return _path(setting, [straight, _rescaling(goal, scales)], tail, orders, "deformed rows and rescaling of neurons")


def _one_layer(setting: Setting, tail: Network) -> Joined | str:
    found = join_layers(setting.layer, OneLayer.of(tail, False))
    if isinstance(found, str):
        return found
    moves = [_behind(setting.chain, part) for part in (found.gather, found.move, found.spread)]
    return Joined(moves, [found.order], "sharing of weights and free rows")


def _by_strata(setting: Setting, tail: Network) -> Joined | str:
    """Through sets of other assignments."""
    found = walk(setting.layer, OneLayer.of(tail, False))
    if isinstance(found, str):
        return found
    moves = [_behind(setting.chain, part) for part in found.moves]
    return Joined(moves, [found.order], f"a walk through {found.strata} strata")


def _behind(chain: Network, part: Callable[[float], OneLayer]) -> Move:
    """The chain with another last hidden layer."""

    def move(s: float) -> Network:
        layer = part(s)
        weights, biases = [*chain.weights[:-2], layer.W, layer.V], [*chain.biases[:-2], layer.b, layer.c]
        return with_arrays(chain, weights, biases)

    return move


def _bottleneck(setting: Setting, tail: Network) -> Joined | str:
    """Weights are gathered, the first layer is brought to that of the other member, and then the layers behind."""
    chain, layer = setting.chain, setting.layer
    free = np.arange(layer.d), np.ones(layer.d), np.zeros(layer.d)
    found = _first_layer(setting, tail) if setting.alive else free
    if isinstance(found, str):
        return found
    order, scale, shift = found
    core = Core(layer)  # dead neurons must not be read while the first layer moves
    theirs = OneLayer(tail.weights[1][:, order], tail.biases[1], tail.weights[2], tail.biases[2], True)
    joined = join_layers(_carried(core.gathered, scale, shift), theirs)
    if isinstance(joined, str):
        return joined
    start, goal = rows_of(chain)[0], rows_of(tail)[0][order]

    def first(s: float) -> Network:
        now = start.copy()
        now[:, -1] += s * shift
        now = now * (scale**s)[:, None] if setting.alive else (1 - s) * start + s * goal
        behind = _carried(core.gathered, scale**s, s * shift)
        return with_arrays(chain, [now[:, :-1], behind.W, behind.V], [now[:, -1], behind.b, behind.c])

    there = with_arrays(chain, [goal[:, :-1], *chain.weights[1:]], [goal[:, -1], *chain.biases[1:]])
    moves = [_behind(chain, core.gathering), first, _behind(there, joined.move), _behind(there, joined.spread)]
    text = "translation of hidden hyperplanes, then " if shift.any() else ""
    return Joined(moves, [order, joined.order], f"{text}rescaling and mixing of neurons")


def _carried(layer: OneLayer, scale: FloatArray, shift: FloatArray) -> OneLayer:
    """The layer behind first-layer neurons whose biases grew by ``shift`` and whose rows were then scaled.

    Neurons without outgoing weights do not follow: they keep their role.
    """
    return OneLayer(
        layer.W / scale, layer.b - np.where(layer.V.any(axis=0), layer.W @ shift, 0.0), layer.V, layer.c, True
    )


def _first_layer(setting: Setting, tail: Network) -> tuple[IntArray, FloatArray, FloatArray] | str:
    """The order of the other first layer, its scales, and how far hyperplanes moved; or why they cannot be matched.

    Rows of a matrix of full rank are not parallel, so weights alone tell which neuron is which.
    """
    (mine, bias), (theirs, other) = ((n.weights[0], n.biases[0]) for n in (setting.chain, tail))
    size, their_size = (np.abs(w).max(axis=1) for w in (mine, theirs))
    units, their_units = mine / size[:, None], theirs / their_size[:, None]
    gaps = {sign: np.abs(their_units[:, None] - sign * units[None]).max(axis=2) for sign in (1.0, -1.0)}
    along, back = (gaps[sign].min(axis=1) <= ROWS for sign in (1.0, -1.0))
    if (back & ~along).any():
        turned = int(gaps[-1.0][int(np.flatnonzero(back & ~along)[0])].argmin())
        return f"neuron {turned} of layer 1 {REVERSED}"
    if not along.all():
        return "the first layers do not match"
    order = np.argsort(gaps[1.0].argmin(axis=1))
    scale = their_size[order] / size
    shift = other[order] / scale - bias
    small = np.abs(shift) <= ROWS * np.abs(bias)
    shift = np.where(small, 0.0, shift)
    for k in np.flatnonzero(~small).tolist():
        if not any(i == k and low < shift[k] < high for i, low, high in _movable(setting)):
            return f"the hyperplane of neuron {k} of layer 1 lies elsewhere, and is not known to be movable to there"
    layer = setting.layer
    read = (layer.W[:, ~small] != 0).any(axis=1) & (layer.roles != DEAD) & layer.V.any(axis=0)
    if (np.sign(layer.b - layer.W @ shift) != np.sign(layer.b))[read].any():
        return "hyperplanes of layer 1 that can be moved one by one do not move together"
    return order, scale, shift


def _movable(setting: Setting) -> list[tuple[int, float, float]]:
    """First-layer hyperplanes that can be translated, and how far."""
    found = list(setting.cancelled)
    if setting.hidden is not None:
        layer, alive = setting.layer, setting.alive
        found.append((setting.hidden, lower_bound(layer.W[alive], layer.b[alive], setting.hidden), np.inf))
    return found
