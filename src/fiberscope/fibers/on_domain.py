"""What a domain says about a parameter: neurons that never switch there free it, chains of bends pin it down.

*No* is from section 7 of the paper on fibers: where bounds and linear programs show that the image of the layers before
keeps a neuron of any later layer dead or linear, or does not span what it reads, another parameter is the same function
on the domain. *Yes* is the theorem of Phuong and Lampert (2020): a general and transparent network of non-increasing
widths whose dependency graphs have a chain of bends from every unit is determined by its function on the domain, among
general networks. Of this network itself generality is asked for activities that occur there, as far as the proof does
(:mod:`~fiberscope.geometry.folds.truncations`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from fiberscope.errors import FiberscopeError
from fiberscope.fibers.canonical.matching import same_up_to_symmetry
from fiberscope.fibers.components import TURNS
from fiberscope.fibers.deformations import small_deformations
from fiberscope.fibers.row_family import Deformation, deformed
from fiberscope.geometry.domains import Box, Domain
from fiberscope.geometry.folds.bend_chains import chains_of, with_output
from fiberscope.geometry.folds.conditions import is_transparent, no_zero_optimum
from fiberscope.geometry.folds.truncations import general_where_it_occurs
from fiberscope.geometry.ranges.domain_roles import domain_roles
from fiberscope.geometry.regions import regions_within
from fiberscope.network.chains import slopes_of, with_arrays
from fiberscope.network.network import Network
from fiberscope.numerics.floats import BoolArray
from fiberscope.run import Run

EXACT_WEIGHTS = 20_000
"""Entries of a weight matrix up to which intervals are propagated in exact arithmetic."""

BENDS = "general and transparent, with chains of bends from every unit (Phuong and Lampert 2020)"
OUTPUTS = 4
"""Outputs that are tried, one after the other."""

REGIONS = 1000
"""Regions up to which chains of bends are looked for."""

SECONDS = 20.0
"""What that may take, for each output."""

IMAGES = "the image of the layers before keeps a neuron from switching (section 7 of the paper on fibers)"


@dataclass(frozen=True)
class DomainVerdict:
    """Whether a domain determines a parameter, by which theorem, and another parameter where it does not.

    ``dimension`` is a lower bound of that of the fiber, modulo rescaling: one for every neuron that can be shifted, or
    that of the ``families`` of rows that can be deformed.
    """

    identifiable: bool | None
    reasons: tuple[str, ...]
    theorem: str
    assumptions: tuple[str, ...] = ()
    dimension: int | None = None
    witness: Network | None = None
    families: tuple[Deformation, ...] = ()


def on_domain(net: Network, domain: Domain | None, time_limit: float = 5.0) -> DomainVerdict:
    """The verdict on a domain; None is all of space.

    >>> net = Network([[[1.0]], [[1.0]]], [[3.0], [0.0]])
    >>> on_domain(net, Box([-1], [1])).reasons
    ('neuron 0 of layer 1 is linear on the domain: its bias can be moved, and the next layer takes it back',)
    """
    if not net.is_chain or any((s != 0).any() for s in slopes_of(net)):
        return DomainVerdict(None, ("expected a plain chain of dense layers and ReLU",), "none")
    idle, families = _idle(net, domain, time_limit), small_deformations(net, domain)
    turned = _turned(net, families)
    if idle is None or turned is None:
        return idle or turned or _by_bends(net, domain)
    # the families of both may share directions: the outgoing weights of a dead neuron are rows that can be deformed
    most = max(idle.dimension or 0, turned.dimension or 0)
    return replace(idle, reasons=idle.reasons + turned.reasons, dimension=most, families=families)


def _turned(net: Network, families: tuple[Deformation, ...]) -> DomainVerdict | None:
    """Neurons whose rows can be deformed, and the other parameter that they allow."""
    if not families:
        return None
    witness = deformed(net, families, np.random.default_rng(0))
    if same_up_to_symmetry(net, witness).same is not False:
        return None  # rounded away
    size = sum(family.dimension for family in families)
    return DomainVerdict(False, tuple(f.text for f in families), TURNS, (), size, witness, families)


def _idle(net: Network, domain: Domain | None, time_limit: float) -> DomainVerdict | None:
    """Neurons that never switch on the domain, and the other parameter that they allow."""
    if domain is None:
        dead, active = _unbounded_images(net)
    else:
        roles = domain_roles(net, domain, time_limit)
        dead, active = roles.dead, roles.linear & roles.nonnegative
    reasons, witness, free = [], None, 0
    for k in np.flatnonzero(dead | active):
        layer = int(net.layout.switch[k]) + 1
        neuron = int(k - net.layout.starts[layer - 1])
        other = _moved(net, layer, neuron, bool(dead[k]))
        if other is None or same_up_to_symmetry(net, other).same is not False:
            continue
        witness = witness or other
        if dead[k]:
            still = not net.weights[layer - 1][neuron].any() and not net.biases[layer - 1][neuron]
            free += net.widths[layer + 1] - still  # a neuron of zeros is only scaled by its outgoing weights
            text = "dead on the domain: its outgoing weights are free"
        else:
            free += 1
            text = "linear on the domain: its bias can be moved, and the next layer takes it back"
        reasons.append(f"neuron {neuron} of layer {layer} is {text}")
    if witness is None:
        return None
    return DomainVerdict(False, tuple(reasons), IMAGES, (), free, witness)


def _unbounded_images(net: Network) -> tuple[BoolArray, BoolArray]:
    """Neurons that are never positive, and never negative, on all of space: intervals in exact arithmetic.

    The image of a layer lies in a box whose sides may be infinite; a layer of negative weights behind it is bounded
    above, and the next one may then be bounded below.
    """
    low: list[Fraction | None] = [None] * net.in_size
    high: list[Fraction | None] = [None] * net.in_size
    dead: list[bool] = []
    active: list[bool] = []
    for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
        if weight.size > EXACT_WEIGHTS:
            rest = net.num_hidden - len(dead)
            return np.array(dead + [False] * rest), np.array(active + [False] * rest)
        rows = [[Fraction(w) for w in row] for row in weight.tolist()]
        shifts = [Fraction(b) for b in bias.tolist()]
        above = [_most(row, b, low, high) for row, b in zip(rows, shifts, strict=True)]
        below = [_most([-w for w in row], -b, low, high) for row, b in zip(rows, shifts, strict=True)]
        dead += [top is not None and top <= 0 for top in above]
        active += [top is not None and top <= 0 for top in below]
        high = [None if top is None else max(top, Fraction(0)) for top in above]
        low = [Fraction(0) if top is None else max(-top, Fraction(0)) for top in below]
    return np.array(dead, dtype=bool), np.array(active, dtype=bool)


def _most(row: list[Fraction], b: Fraction, low: list[Fraction | None], high: list[Fraction | None]) -> Fraction | None:
    """The largest value of ``row a + b`` on a box, None for infinity."""
    total = b
    for w, bottom, top in zip(row, low, high, strict=True):
        end = top if w > 0 else bottom
        if w == 0:
            continue
        if end is None:
            return None
        total += w * end
    return total


def _moved(net: Network, layer: int, neuron: int, dead: bool) -> Network | None:
    """The same function on the domain, up to rounding: a dead neuron read otherwise, a linear one shifted.

    None where its numbers would be beyond the floats.
    """
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    out = weights[layer][:, neuron]
    if dead:
        weights[layer][:, neuron] = np.where(out != 0, -out, 1.0)
        return with_arrays(net, weights, biases)
    with np.errstate(over="ignore"):
        shift = 2.0 ** np.ceil(np.log2(1.0 + np.abs(biases[layer - 1][neuron])))
        biases[layer - 1][neuron] += shift
        biases[layer] = biases[layer] - out * shift
    if not all(np.isfinite(b).all() for b in biases):
        return None
    return with_arrays(net, weights, biases)


def _by_bends(net: Network, domain: Domain | None) -> DomainVerdict:
    """The theorem of Phuong and Lampert, where the complex is small enough to be looked at."""
    widths = net.widths
    shape = widths[-2] >= 2 and all(a >= b for a, b in itertools.pairwise(widths[:-1]))
    if not isinstance(domain, Box) or not shape:
        text = "no theorem applies: expected a box, and non-increasing widths of at least 2"
        return DomainVerdict(None, (f"{text}, got {'-'.join(map(str, widths))} on {domain or 'all of space'}",), "none")
    verdict = _by_output(net, domain, 0)
    for index in range(1, min(widths[-1], OUTPUTS)):
        if verdict.identifiable is True:
            break
        verdict = _by_output(net, domain, index)
    return verdict


def _by_output(net: Network, domain: Box, index: int) -> DomainVerdict:
    """By one output: it tells the hidden layers; each unit of the last one has a fold of its own, so that the rows of
    the other outputs follow."""
    single, run = with_output(net, index), Run.begin(None, SECONDS, REGIONS)
    try:
        complex = regions_within(single, domain, run)
        if not complex.complete:
            return DomainVerdict(None, (f"chains of bends are looked for up to {REGIONS} regions, got more",), "none")
        signs = complex.sign_vectors
        conditions = [
            is_transparent(single, signs, f"all {len(signs)} regions", exhaustive=True),
            no_zero_optimum(complex),
        ]
        if conditions[0].holds:  # behind a layer that is off everything is constant
            conditions.append(general_where_it_occurs(single, signs, run))
        chains = chains_of(complex)
    except FiberscopeError as error:
        return DomainVerdict(None, (f"the complex could not be looked at: {error}",), "none")
    lacking = [f"layer {c.layer}: {len(c.units)} of {c.width} units start a chain of {c.needed} bends" for c in chains
               if not c.enough]  # fmt: skip
    if all(condition.holds is True for condition in conditions) and not lacking:
        among = "among general networks of the architecture, on the domain"
        if net.widths[-1] > 1:
            among = f"among networks of the architecture that are general with output {index} alone, on the domain"
        return DomainVerdict(True, (), BENDS, (among,), 0)
    return DomainVerdict(None, (*(reason for c in conditions for reason in c.reasons), *lacking), "none")
