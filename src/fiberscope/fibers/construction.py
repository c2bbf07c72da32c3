"""A network that its function determines: for non-increasing widths among all general networks of the architecture
(Phuong & Lampert, ICLR 2020, Lemma A.17), for other widths among its neighbours (:mod:`~fiberscope.fibers.local`).

The lemma asks for a transparent general network in which unit 1 of every layer crosses, where all units of the earlier
layers are active, the hyperplane of every unit of the layer below (equation 53). It then bends there, and the bends
make the chains in the dependency graph that tell the layers apart.

The construction here is explicit. A layer sees ``z >= 0`` (for the first layer, the box moved into the orthant), and
knows ``d`` points ``p_j``, with ``p_j`` on the hyperplane of unit ``j`` below and on the active side of all others, and
an *apex* where all are active. With the hyperplane ``alpha z = 1`` through all ``p_j``, and ``alpha > 0``:

- unit 1 is ``alpha z - 1``, positive at the apex;
- unit 2 is ``1 - beta z`` with ``beta < alpha`` in every entry, so that ``unit 1 + unit 2 >= 0`` wherever ``z >= 0``:
  they are never negative together, and the layer is transparent whatever lies before it;
- unit ``i >= 3`` is a bound on the weight of ``p_i`` in barycentric coordinates of the simplex of apex and ``p``.

For each new unit a point of that simplex is chosen on which it vanishes and the other new units do not. Their values
there are the points ``p`` of the next layer, and ``alpha > 0`` again (with off-diagonal entries ``B, C_3, ...`` of row
2 and ones in the other rows: ``alpha_2 = 1 / (B + sum C)``, ``alpha_i = C_i alpha_2``, ``alpha_1 = 1 - sum alpha_i``).
So it goes on for any depth. The set where all units are active shrinks by a digit or two with every layer, and inputs
in it are told in fractions (:mod:`~fiberscope.fibers.witnesses`). The paper takes unit 2 as a margin minus unit 1,
slightly perturbed: a perturbation that is small enough for the whole image gets smaller from layer to layer, and here
none is needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from fiberscope.errors import InputError, NotGenericError
from fiberscope.fibers.local import LocalIdentifiability, local_identifiability
from fiberscope.fibers.witnesses import Trail, exact_witnesses
from fiberscope.geometry.domains import Box, Domain
from fiberscope.geometry.engines.limits import MOST_FACES
from fiberscope.geometry.folds.bend_chains import Chains, chains_of, with_output
from fiberscope.geometry.folds.genericity import genericity
from fiberscope.geometry.regions import regions
from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import fractions
from fiberscope.numerics.floats import FloatArray, ObjectArray
from fiberscope.results import Result, hidden

_TRIES = 20

SMALL = 100
"""Inputs times hidden neurons up to which the complex is built; these networks have few regions: 1,943 for 7-7-7-1,
which takes four seconds."""

_SAMPLES = 512
"""Inputs at which a draw looks where neurons are on."""


@dataclass(frozen=True, eq=False)
class Construction(Result):
    """A network made by :func:`identifiable_construction`, and what was proven of it.

    Parameters
    ----------
    network, domain
        The network, and the box on which its function determines it.
    witnesses
        For every hidden layer ``l`` one input per unit, ``(n_l, n_0)``, in fractions: the unit vanishes there, all
        others of layers up to ``l`` are positive, and unit 0 of the next layer vanishes. So that unit bends there. That
        was decided exactly; floats do not hold these inputs beyond some ten layers.
    margin
        The smallest preactivation, of those that are positive, at the witnesses.
    chains
        One entry per hidden layer if the complex was built, else None.
    general, transparent
        True where decided exactly on the complex (see :func:`fiberscope.genericity` for what that covers). Where it was
        not built, ``general`` is None; ``transparent`` is proven by the signs of the first two rows of every layer.
    local
        For widths that the lemma does not cover: the exact rank which proves that near the network only its rescalings
        have its function on the domain. There are no witnesses then, and ``margin`` is zero.
    seed, tries
        The seed, and how many draws were needed.
    """

    network: Network = field(metadata=hidden())
    domain: Box
    witnesses: tuple[ObjectArray, ...] = field(metadata=hidden())
    margin: float
    chains: tuple[Chains, ...] | None
    general: bool | None
    transparent: bool | None
    seed: int
    tries: int
    local: LocalIdentifiability | None = None

    told = ("network=network.architecture", "checked")

    @property
    def checked(self) -> bool:
        """Whether the dependency graphs were computed; if not, the chains rest on the witnesses alone."""
        return self.chains is not None

    def __repr__(self) -> str:
        if self.local is not None:
            return f"Construction({self.network.architecture}: {self.local!r})"
        how = "dependency graphs computed" if self.checked else "chains by witnesses, graphs not computed"
        return f"Construction({self.network.architecture} on {self.domain}: {how}; general={self.general})"


def identifiable_network(widths: Sequence[int], domain: Domain, seed: int = 0) -> Network:
    """A network that every general network of its architecture with its function equals up to ``~``.

    That is for widths that do not increase. Several outputs are as good as one: the first of them tells the hidden
    layers, and the others follow (among networks that are general with the first output alone). For other widths, two
    or more, the network is determined among its neighbours only: near it no other has its function on the domain, but
    for rescalings, which an exact rank proves.

    Where inputs times hidden neurons are above 100, or inputs above 8, the first rests on the construction: the network
    itself is not checked to be general, nor are its dependency graphs computed. :func:`identifiable_construction` says
    what was proven.

    Parameters
    ----------
    widths
        ``(d_0, ..., d_{L-1}, d_L)``, all but the last at least 2; with ``d_0 >= d_1 >= ... >= d_{L-1}`` for the lemma.
    domain
        A box.
    seed
        The free choices of the construction.

    Examples
    --------
    >>> net = identifiable_network((3, 3, 2, 1), Box.cube(3), seed=0)
    >>> net.widths
    (3, 3, 2, 1)

    The same with the evidence:

    >>> identifiable_construction((3, 3, 2, 1), Box.cube(3), seed=0)
    Construction(3-3-2-1 on Box([-1, 1] x [-1, 1] x [-1, 1]): dependency graphs computed; general=True)

    Widths that increase:

    >>> identifiable_construction((2, 3, 3, 1), Box.cube(2), seed=0)
    Construction(2-3-3-1: LocalIdentifiability(locally identifiable: rank 19 of 19 on Box([-1, 1] x [-1, 1])))
    """
    return identifiable_construction(widths, domain, seed).network


def identifiable_construction(widths: Sequence[int], domain: Domain, seed: int = 0) -> Construction:
    """As :func:`identifiable_network`, with what was proven.

    Up to 8 inputs, and 100 inputs times hidden neurons, the complex is built, and generality, transparency and the
    dependency graph of every truncated network are decided on it; a draw that fails is drawn again. Above that the
    answer says that the graphs were not computed; transparency and the bends at the witnesses are checked in any size.

    >>> identifiable_construction((2, 2, 2, 2, 1), Box.cube(2), seed=0).chains[0]
    Chains(layer=1, needed=2, units=(0, 1), starts=2, width=2)
    """
    sizes, box = _checked_input(widths, domain)
    if any(a < b for a, b in itertools.pairwise(sizes[:-1])):
        return _locally(sizes, box, seed)
    reason = None
    for attempt in range(_TRIES):
        rng = np.random.default_rng([seed, attempt])
        net, trails = _draw(sizes, box, rng)
        if not _covers(net, box):
            continue
        exact = exact_witnesses(net, trails)
        if not all(found.least > 0 and _inside(found.inputs, box) for found in exact):
            continue
        witnesses, margin = tuple(found.inputs for found in exact), float(min(found.least for found in exact))
        if sizes[0] > MOST_FACES or sizes[0] * net.num_hidden > SMALL:
            return Construction(net, box, witnesses, margin, None, None, True, seed, attempt + 1)
        complex = regions(with_output(net, 0), box)
        found = genericity(complex)
        chains = chains_of(complex)
        if found.general and found.transparent and all(chain.enough for chain in chains):
            return Construction(net, box, witnesses, margin, chains, True, True, seed, attempt + 1)
        reason = "; ".join(found.reasons) or f"chains {[chain.to_dict() for chain in chains if not chain.enough]}"
    if reason is None:
        raise NotGenericError(f"identifiable network: expected a box that floats can cut, got {box}: no draw covers it")
    raise NotGenericError(f"identifiable network: expected one of {_TRIES} draws to pass, the last failed: {reason}")


def _locally(sizes: tuple[int, ...], box: Box, seed: int) -> Construction:
    """For widths that the lemma does not cover: a draw whose Jacobian has the largest rank, exactly."""
    worst = None
    for attempt in range(_TRIES):
        net = _spread(sizes, box, np.random.default_rng([seed, attempt]))
        found = local_identifiability(net, box, seed)
        if found.identifiable:
            return Construction(net, box, (), 0.0, None, None, None, seed, attempt + 1, found)
        worst = found
    raise NotGenericError(f"identifiable network: expected one of {_TRIES} draws to pass, the last failed: {worst}")


def _spread(sizes: tuple[int, ...], box: Box, rng: np.random.Generator) -> Network:
    """Random weights, and biases such that every neuron is on for a part of the box and off for another."""
    a = rng.uniform(box.low, box.high, (_SAMPLES, sizes[0]))
    weights, biases = [], []
    for m, n in itertools.pairwise(sizes):
        W = rng.normal(size=(n, m)) / np.sqrt(m)
        z = a @ W.T
        share = rng.uniform(0.25, 0.6, n)
        weights.append(W)
        biases.append(-np.array([np.quantile(z[:, j], share[j]) for j in range(n)]))
        a = np.maximum(z + biases[-1], 0.0)
    biases[-1] = rng.normal(size=sizes[-1])
    return Network(weights, biases)


# -- the draw ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Simplex:
    """Apex and points ``p_j``, ``(d + 1, d)``, in the space that a layer sees, and in all spaces before it."""

    vertices: FloatArray
    inputs: tuple[FloatArray, ...]


def _checked_input(widths: Sequence[int], domain: Domain) -> tuple[tuple[int, ...], Box]:
    shape = "of at least 2, and any number of outputs behind at least one hidden layer"
    if len(widths) < 3 or any(isinstance(n, bool) or int(n) != n for n in widths):
        raise InputError(f"widths: expected integers {shape}, got {tuple(widths)}")
    sizes = tuple(int(n) for n in widths)
    if sizes[-1] < 1 or min(sizes[:-1]) < 2:
        raise InputError(f"widths: expected {shape}, got {sizes}")
    if not isinstance(domain, Box):
        raise InputError(f"domain: expected a box, got {domain}")
    if domain.dimension != sizes[0]:
        raise InputError(f"domain: expected a box in {sizes[0]} dimensions, got {domain}")
    return sizes, domain


def _draw(sizes: tuple[int, ...], box: Box, rng: np.random.Generator) -> tuple[Network, tuple[Trail, ...]]:
    """One network, and where the witnesses of every hidden layer are, up to rounding."""
    simplex = _first_simplex(box, rng)
    weights, biases, trails = [], [], []
    for width in sizes[1:-1]:
        weight, bias, simplex = _layer(simplex, width, rng)
        weights.append(weight)
        biases.append(bias)
        trails.append(Trail(simplex.vertices[1:], tuple(points[1:] for points in simplex.inputs)))
    span = box.high - box.low
    trails = [Trail(t.values, (box.low + t.inputs[0] * span, *t.inputs[1:])) for t in trails]
    biases[0] = biases[0] - (weights[0] / span) @ box.low
    weights[0] = weights[0] / span
    last = sizes[-1], sizes[-2]
    weights.append(rng.uniform(0.5, 1.5, last) * rng.choice([-1.0, 1.0], last))
    biases.append(rng.normal(size=sizes[-1]))
    return Network(weights, biases), tuple(trails)


def _first_simplex(box: Box, rng: np.random.Generator) -> _Simplex:
    """Inside of the unit cube, which the box becomes: the apex far from the origin, ``p_j`` near the side j."""
    d = box.dimension
    apex = rng.uniform(0.7, 0.9, d)
    points = apex - np.diag(apex - rng.uniform(0.1, 0.2, d))
    vertices = np.vstack([apex, points])
    return _Simplex(vertices, ())


def _layer(simplex: _Simplex, width: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, _Simplex]:
    """Weights and biases of a layer, and the simplex that the next one sees."""
    vertices = simplex.vertices
    d = vertices.shape[1]
    alpha = np.linalg.solve(vertices[1:], np.ones(d))
    new = _new_points(d, width, rng)  # barycentric coordinates: a point where all units are active, then one for each
    points = new @ vertices
    barycentric = np.linalg.inv(np.column_stack([vertices, np.ones(d + 1)]))  # (z, 1) -> weights of the vertices
    rows = np.zeros((width, d + 1))
    rows[0] = [*alpha, -1.0]
    # beta = alpha (1 - s): s is largest at coordinate 1, which vanishes at p_1, so that the unit vanishes near it.
    height = alpha @ points[2] - 1.0
    lean = np.asarray(rng.uniform(0.9, 1.1, d))
    lean[1] += 2.0 / (alpha[1] * points[1, 1])
    scale = height / ((alpha * lean) @ points[2])
    rows[1] = [*(alpha * (scale * lean - 1.0)), 1.0]
    for unit in range(2, width):
        mixture = rng.uniform(0.0, 0.05, d + 1)
        mixture[unit + 1] = 1.0
        rows[unit] = -barycentric @ mixture
        rows[unit, -1] -= rows[unit] @ [*points[unit + 1], 1.0]
    values = points @ rows[:, :-1].T + rows[:, -1]
    size = values[1:].sum(axis=0) / (width - 1) * rng.uniform(0.8, 1.25, width)
    values[np.arange(1, width + 1), np.arange(width)] = 0.0
    inputs = (*(new @ earlier for earlier in simplex.inputs), points)
    return rows[:, :-1] / size[:, None], rows[:, -1] / size, _Simplex(values / size, inputs)


def _new_points(d: int, width: int, rng: np.random.Generator) -> FloatArray:
    """Weights of apex and ``p`` for the points of the next layer: all but that of unit 0 at one height."""
    height, lean = rng.uniform(0.25, 0.35), rng.uniform(0.8, 0.9)
    base = rng.uniform(0.8, 1.2, d)
    base /= base.sum()
    found = np.zeros((width + 1, d + 1))
    found[:, 0], found[:, 1:] = height, (1 - height) * base
    found[1, 0] = 0.0
    found[1, 1] += height
    for unit in range(1, width):
        found[unit + 1, 1:] = (1 - height) * ((1 - lean) * base + lean * np.eye(d)[unit])
    return found


# -- the checks that work in any size --------------------------------------------------------------------------------


def _inside(points: ObjectArray, box: Box) -> bool:
    """Whether all rows lie inside of the box, in exact arithmetic."""
    low, high = fractions(box.low), fractions(box.high)
    return bool(all((low < row).all() and (row < high).all() for row in points))


def _covers(net: Network, box: Box) -> bool:
    """Whether in every hidden layer units 0 and 1 are never negative together, in exact arithmetic.

    A layer sees ``z >= 0``, the first one ``x - low``. Where ``w_0 > 0`` and ``b_0 < 0``, unit 0 is not positive on the
    simplex of the origin and the points ``-b_0 / w_0[i] e_i`` at most: unit 1 must be positive at these.
    """
    start = [Fraction(x) for x in box.low.tolist()]
    for layer, (weight, bias) in enumerate(zip(net.weights[:-1], net.biases[:-1], strict=True)):
        one, two = ([Fraction(x) for x in row] for row in weight[:2].tolist())
        b, c = (Fraction(x) for x in bias[:2].tolist())
        if layer == 0:
            b += sum((w * x for w, x in zip(one, start, strict=True)), Fraction(0))
            c += sum((w * x for w, x in zip(two, start, strict=True)), Fraction(0))
        if b >= 0 or c <= 0 or any(w <= 0 or c * w <= b * v for w, v in zip(one, two, strict=True)):
            return False
    return True
