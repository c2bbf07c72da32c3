"""What the theorem on chains of bends asks of generality, for the activities that occur on the domain alone.

*General* is about every pattern of activity, ``2^N`` of them, whether it occurs or not. The proof of Phuong and Lampert
(Theorem A.1) looks at the networks that are left when the first layers are taken away, each on the interior of the
image of these layers, and at the function at points of the domain. Of the network it uses only that

1. no preactivation has a local optimum of value zero (that of the network implies that of what is left of it);
2. the weight matrices have full row rank;
3. in each network that is left, two pairs of a unit and an activity of its layers before it, which occurs, do not give
   affine functions that are multiples of each other, and none is constant (Lemmas A.13, A.15 and A.18);
4. no weight ``W_L I_{L-1} ... W_{l+1} e_i`` from a unit to the output vanishes under activities that occur: that tells
   on which side of its fold a unit is active.

The third is not inherited by what is left (Lemma A.14 needs all patterns), so it is looked at there. The other network
of the theorem is general in the full sense. Distinct modulo a prime is distinct; what agrees modulo the
prime is not told apart, and the answer is then undecided.
"""

from __future__ import annotations

import numpy as np

from fiberscope.geometry.folds.conditions import Condition, passing_patterns
from fiberscope.geometry.folds.hyperplanes import neuron_name
from fiberscope.network.network import Network
from fiberscope.numerics.floats import BoolArray, SignArray
from fiberscope.numerics.modular import residues
from fiberscope.numerics.rank import exact_rank
from fiberscope.run import ENDLESS, Run

PRIME = 2**61 - 1
"""Any prime will do: what it does not tell apart is called undecided."""

Rows = list[list[int]]
"""A matrix of residues."""


def general_where_it_occurs(net: Network, signs: SignArray, run: Run = ENDLESS) -> Condition:
    """Conditions 2 to 4 for a plain ReLU chain with one output, under the sign vectors that occur.

    >>> net = Network.random((2, 2, 2, 1), seed=0)
    >>> signs = np.array([[1, 1, 1, 1], [1, -1, 1, 1], [1, 1, 1, -1]], dtype=np.int8)
    >>> general_where_it_occurs(net, signs)
    Condition(holds=True, coverage='all truncated networks under 3 activities that occur', exhaustive=True, reasons=())
    """
    patterns = passing_patterns(net, signs)
    coverage = f"all truncated networks under {len(patterns)} activities that occur"
    low = [k for k, weight in enumerate(net.weights, 1) if exact_rank(weight).rank < len(weight)]
    if low:
        return Condition(False, coverage, True, (f"the weights of layer {low[0]} are not of full row rank",))
    for first in range(len(net.weights) - 1):
        reason = _alike(net, first, patterns, run)
        if reason:
            return Condition(None, coverage, False, (reason,))
    reason = _silent(net, patterns, run)
    return Condition(None, coverage, False, (reason,)) if reason else Condition(True, coverage, True)


def _residues(net: Network) -> list[Rows]:
    """``(W | b)`` of every layer."""
    rows = [np.column_stack([weight, bias]) for weight, bias in zip(net.weights, net.biases, strict=True)]
    return [residues(part, PRIME).tolist() for part in rows]


def _alike(net: Network, first: int, patterns: BoolArray, run: Run) -> str:
    """Two functions of units of the network behind ``first`` layers that are not told apart, in words; or nothing."""
    layers, starts, inputs = _residues(net)[first:], net.layout.starts[first:], net.widths[first]
    own = np.unique(patterns[:, starts[0] :], axis=0)
    offset = starts[0]
    one = [[int(i == j) for j in range(inputs + 1)] for i in range(inputs)]
    maps: dict[bytes, Rows] = {b"": one}
    seen: dict[tuple[int, ...], int] = {}
    for k, rows in enumerate(layers):
        values = {key: _behind(rows, before, inputs) for key, before in maps.items()}
        run.check()
        for value in values.values():
            for unit, row in enumerate(value):
                entry = int(starts[k]) + unit
                key = _direction(row)
                if key is None or key in seen:
                    other = "a constant" if key is None else _name(net, seen[key])
                    return f"behind {first} layers {_name(net, entry)} is not told from {other}, under some activity"
                seen[key] = entry
        if k + 1 < len(layers):
            maps = {}
            for row in np.unique(own[:, : starts[k + 1] - offset], axis=0):
                before, active = row[: starts[k] - offset].tobytes(), row[starts[k] - offset :]
                maps[row.tobytes()] = [
                    value if on else [0] * (inputs + 1) for value, on in zip(values[before], active, strict=True)
                ]
    return ""


def _behind(rows: Rows, before: Rows, inputs: int) -> Rows:
    """``W a + b`` for activations ``a = before (x, 1)``."""
    found = []
    for *weights, bias in rows:
        total = [sum(w * a[j] for w, a in zip(weights, before, strict=True)) % PRIME for j in range(inputs + 1)]
        total[-1] = (total[-1] + bias) % PRIME
        found.append(total)
    return found


def _direction(row: list[int]) -> tuple[int, ...] | None:
    """The row up to a factor; None where its weights vanish modulo the prime."""
    lead = next((v for v in row[:-1] if v), None)
    if lead is None:
        return None
    inverse = pow(lead, -1, PRIME)
    return tuple(v * inverse % PRIME for v in row)


def _silent(net: Network, patterns: BoolArray, run: Run) -> str:
    """A unit whose weight to the output vanishes modulo the prime under some activity, in words; or nothing."""
    layers, starts = _residues(net), net.layout.starts
    outputs = {b"": layers[-1][0][:-1]}
    for k in range(len(layers) - 1, 0, -1):
        run.check()
        if not all(all(row) for row in outputs.values()):
            return f"the weight of a unit of layer {k} to the output vanishes, under some activity"
        found = {}
        for row in np.unique(patterns[:, starts[k - 1] :], axis=0):
            active, rest = row[: starts[k] - starts[k - 1]], row[starts[k] - starts[k - 1] :]
            out = [w if on else 0 for w, on in zip(outputs[rest.tobytes()], active, strict=True)]
            columns = zip(*(weights[:-1] for weights in layers[k - 1]), strict=True)
            found[row.tobytes()] = [sum(a * b for a, b in zip(out, column, strict=True)) % PRIME for column in columns]
        outputs = found
    return ""


def _name(net: Network, entry: int) -> str:
    return neuron_name(net, entry) if entry < net.num_signs else "the output"
