"""Quantised graphs as plain programs with more inputs, each of which stands for the rounding of one number.

A quantiser gives its clipped value plus half a step times some number between -1 and 1. With these numbers as inputs a
quantised file is a plain program: for every input there are values of the others at which the program gives what the
file gives, its quantisers taken in real arithmetic. What is shown of two programs for *all* values of these inputs
holds for the files. The two models have numbers of their own: nothing is said about how their roundings go together.

Where there are too many quantised numbers, the rounding of a whole model stands at its outputs: half a step of every
quantiser, passed on by Lipschitz constants.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fiberscope.equality.bounding.correspondence import corresponding
from fiberscope.equality.roundings import OUTPUTS, QUANTISERS, RoundingInputs
from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box
from fiberscope.geometry.ranges.intervals import ranges
from fiberscope.network.border import as_network
from fiberscope.network.formats.onnx.quantised import Quantised, is_quantised, load_quantised
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Clip, Given, Node, moved
from fiberscope.network.operators import Gather, Sparse
from fiberscope.network.source import Source
from fiberscope.numerics.floats import FloatArray

MOST_ROUNDINGS = 3000
"""Quantised numbers of both models together that get inputs of their own."""


class Noise(NamedTuple):
    """What takes the place of a value behind a quantiser: the value plus ``half`` times roundings from ``first`` on."""

    source: int
    half: FloatArray
    first: int = 0


Step = Given | Noise


def rounded_pair(a: Any, b: Any, box: Box) -> tuple[Network, Network, RoundingInputs]:
    """Two models, of which one at least is a quantised file, as plain programs on a box with inputs for rounding."""
    models = [_read(source, box, name) for source, name in ((a, "a"), (b, "b"))]
    steps: list[list[Step]] = [[*net.nodes] if isinstance(net, Network) else steps_on(net, box) for net in models]
    where = QUANTISERS
    if sum(map(_roundings, steps)) > MOST_ROUNDINGS:
        steps, where = [_at_the_end(net, part) for net, part in zip(models, steps, strict=True)], OUTPUTS
    counts = _roundings(steps[0]), _roundings(steps[1])
    left, right = _numbered(steps[0], 0), _numbered(steps[1], counts[0])
    if isinstance(models[0], Network):
        left = _alike(models[0], right)
    elif isinstance(models[1], Network):
        right = _alike(models[1], left)
    nets = [net if isinstance(net, Network) else net.network for net in models]
    made = [
        _extended(net, box, sum(counts), *each) for net, each in zip(nets, ((left, right), (right, left)), strict=True)
    ]
    return made[0], made[1], RoundingInputs(counts, where)


def _noises(steps: Sequence[Step]) -> list[Noise]:
    return [step for step in steps if isinstance(step, Noise)]


def _roundings(steps: Sequence[Step]) -> int:
    return sum(noise.half.size for noise in _noises(steps))


def _numbered(steps: Sequence[Step], first: int) -> list[Step]:
    """Every rounding with inputs of its own."""
    made: list[Step] = []
    for step in steps:
        made.append(step._replace(first=first) if isinstance(step, Noise) else step)
        first += step.half.size if isinstance(step, Noise) else 0
    return made


def _read(source: Any, box: Box, name: str) -> Network | Quantised:
    found = load_quantised(source) if is_quantised(source) else as_network(source, name)
    net = found if isinstance(found, Network) else found.network
    if net.in_size != box.ambient:
        raise InputError(f"domain: expected {net.in_size} coordinates, got {box.ambient}")
    return found


def steps_on(found: Quantised, box: Box) -> list[Step]:
    """The program on a box, where clips that no value passes are left out, with the places where it rounds."""
    net = found.network
    seen = _ranges_with_rounding(found, box)
    idle = set[int]()
    for index, node in enumerate(net.program):
        if isinstance(node, Clip):
            low, high = seen[node.source]
            if (low >= node.low).all() and (high <= node.high).all():
                idle.add(index)
    steps, value = _steps_without(found, idle)
    if value[-1] != len(steps):  # the last node was left out: the output is an earlier value
        steps.append(_output(net, value[-1]))
    return steps


def _steps_without(found: Quantised, idle: Set[int]) -> tuple[list[Step], list[int]]:
    """The program with the places where it rounds, some clips left out, and where every value has gone."""
    steps, value = list[Step](), [0]
    for index, node in enumerate(found.network.program):
        if index not in idle:
            steps.append(moved(node, tuple(value[s] for s in node.sources)))
        value.append(value[node.sources[0]] if index in idle else len(steps))
        if index in found.halves:
            steps.append(Noise(value[-1], np.broadcast_to(found.halves[index], (int(np.prod(node.shape)),))))
            value[-1] = len(steps)
    return steps, value


def _ranges_with_rounding(found: Quantised, box: Box) -> list[tuple[Any, Any]]:
    """Ranges of all values of the file on a box: what was rounded before may take a value beyond a clip."""
    steps, value = _steps_without(found, set())
    count = _roundings(steps)
    whole = _extended(found.network, box, count, _numbered(steps, 0), ())
    seen = _program_ranges(whole, RoundingInputs((count, 0), QUANTISERS).box(box))
    nodes = [1]  # behind the one that takes the inputs of the model
    for step in steps:
        nodes.append(nodes[-1] + (2 if isinstance(step, Noise) else 1))
    return [seen[nodes[v]] for v in value]


def _output(net: Network, value: int) -> Affine:
    """A value as the last one."""
    shape = net.program[-1].shape
    return Affine(value, Gather(np.arange(int(np.prod(shape))).reshape(shape), shape))


def _program_ranges(net: Network, box: Box) -> list[tuple[Any, Any]]:
    """Ranges of the values of the program as it was given, whose composite nodes stand for several."""
    plain = ranges(net, box)
    found, at = [plain[0]], 0
    last = {first: detour.last for first, detour in net.layout.detours.items()}
    while at < len(net.nodes):
        at = last.get(at, at) + 1
        found.append(plain[at])
    return [(value.low, value.high) for value in found]


def _at_the_end(net: Network | Quantised, steps: list[Step]) -> list[Step]:
    """All rounding of a model at its outputs."""
    if isinstance(net, Network):
        return steps
    plain, value = _without_noise(steps)
    if value[-1] != len(plain):
        plain.append(_output(net.network, value[-1]))
    return [*plain, Noise(len(plain), net.drift)]


def _without_noise(steps: Sequence[Step]) -> tuple[list[Given], list[int]]:
    """The nodes alone, and where every value has gone."""
    plain: list[Given] = []
    value = [0]
    for step in steps:
        if not isinstance(step, Noise):
            plain.append(moved(step, tuple(value[s] for s in step.sources)))
        value.append(value[step.source] if isinstance(step, Noise) else len(plain))
    return plain, value


def _alike(net: Network, steps: Sequence[Step]) -> list[Step]:
    """A float model with nothing added where the other one rounds, so that their nodes correspond; or as it is."""
    plain, _ = _without_noise(steps)
    fits = len(plain) == len(net.nodes) and all(isinstance(node, Node) for node in plain)
    runs = corresponding(net, Network.from_nodes(plain, net.input_shape)) if fits else None
    if runs is None or not all(both.alike for both in runs.values()):
        return list(net.nodes)
    own, made = iter(net.nodes), list[Step]()
    for step in steps:
        if isinstance(step, Noise):
            made.append(step._replace(half=np.zeros_like(step.half)))
        else:
            made.append(moved(next(own), step.sources))
    return made


def _extended(net: Network, box: Box, count: int, steps: Sequence[Step], others: Sequence[Step]) -> Network:
    """The program that reads the inputs of the model first and roundings behind them.

    Where the other model rounds at the same places, its roundings are read and multiplied by zero: the nodes of the two
    correspond if they read the same.
    """
    n, size = box.ambient, box.ambient + count
    nodes: list[Given] = [Affine(0, Gather(np.arange(n).reshape(net.input_shape), (size,)))]
    value, shapes = [1], [tuple(net.input_shape)]
    theirs = _noises(others)
    if [noise.half.shape for noise in theirs] != [noise.half.shape for noise in _noises(steps)]:
        theirs = []
    for step in steps:
        if isinstance(step, Noise):
            shapes.append(shapes[step.source])
            parts = {theirs.pop(0).first: np.zeros_like(step.half)} if theirs else {}
            matrix = _side_by_side(parts | {step.first: step.half}, n, size)
            nodes.append(Affine(0, Sparse(matrix, (size,), shapes[-1])))
            nodes.append(Add((value[step.source], len(nodes)), shapes[-1]))
        else:
            shapes.append(tuple(step.shape))
            nodes.append(moved(step, tuple(value[s] for s in step.sources)))
        value.append(len(nodes))
    known = net.source
    return Network.from_nodes(nodes, (size,), Source(known.precision, known.path, known.sha256, None, known.data))


def _side_by_side(parts: dict[int, FloatArray], n: int, size: int) -> Any:
    """Diagonal blocks from given columns on, in their order; entries of zero are kept."""
    blocks = sorted(parts.items())
    rows = len(blocks[0][1])
    columns = np.stack([n + first + np.arange(rows) for first, _ in blocks], axis=1).ravel()
    numbers = np.stack([half for _, half in blocks], axis=1).ravel()
    return sp.csr_array((numbers, columns, len(blocks) * np.arange(rows + 1)), shape=(rows, size))
