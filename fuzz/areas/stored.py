"""Equality up to the rounding of stored parameters: models with normalisations, and copies with these folded in."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import torch
from torch.nn.utils.fusion import fuse_linear_bn_eval

import fiberscope as fs
from fuzz import bridge, draw
from fuzz.areas.equality import layers, verdict_on
from fuzz.areas.points import absolute, sizes
from fuzz.case import Area, expect, float_of
from fuzz.oracle.cells import Domain, largest_difference
from fuzz.oracle.program import Program, at

UNITS = {
    "float32": (Fraction(1, 2**24), Fraction(1, 2**126)),
    "float16": (Fraction(1, 2**11), Fraction(1, 2**14)),
    "bfloat16": (Fraction(1, 2**8), Fraction(1, 2**126)),
}
"""Largest relative error of one rounding, and the smallest normal number."""

SLACK = Fraction(1, 2**40)
"""What evaluating in float64 may lose, as a part of all terms."""

FEW = 8
"""Roundings that a parameter may have been through."""

Norm = tuple[tuple[float, ...], ...]
"""Weight, bias, mean and variance of a batch normalisation."""


def make_stored(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((1, 1, 2))
    widths = draw.widths(rng, n)
    kind = rng.choice(("float32", "float32", "one decimal", "integer"))
    program = draw.singles(draw.chain(rng, widths, kind=kind))
    norms = tuple(_norm(rng, width) if rng.random() < 0.7 else None for width in widths[1:-1])
    kept = rng.choice(("folded", "folded", "folded", "float16", "bfloat16"))
    change = None if rng.random() < 0.6 else (rng.randrange(1 << 16), rng.randint(2, 26))
    domain = draw.box(rng, n) if rng.random() < 0.7 else ("space", n)
    return program, norms, kept, change, domain


def _norm(rng: Random, width: int) -> Norm:
    """As after training, some channels hardly varying; sometimes with a shift that takes the mean away again."""
    weight = [rng.choice((rng.gauss(0, 1), 1.0)) for _ in range(width)]
    mean = [rng.choice((rng.gauss(0, 2), 0.0, rng.gauss(0, 50))) for _ in range(width)]
    variance = [rng.choice((rng.uniform(0.05, 3), 1e-3, 1e-6)) for _ in range(width)]
    taken = [w * m / math.sqrt(v + 1e-5) for w, m, v in zip(weight, mean, variance, strict=True)]
    bias = [rng.choice((rng.gauss(0, 1), 0.0, x)) for x in taken]
    return tuple(tuple(map(draw.single, values)) for values in (weight, bias, mean, variance))


def check_stored(
    program: Program, norms: Sequence[Norm | None], kept: str, change: tuple[int, int] | None, domain: Domain
) -> None:
    """A copy that was rounded in storage is never called different; what is called equal is no further apart than
    rounding allows; what is called different is further apart, at the point that is given."""
    program = draw.singles(program)
    one, two = _modules(program, norms)
    if kept != "folded":
        two = two.to(getattr(torch, kept))
    if change is not None and not _changed(two, *change):
        change = None
    precision = "float32" if kept == "folded" else kept
    nets = [fs.load(module, (program.inputs,)) for module in (one, two)]
    a, b = map(bridge.program, nets)
    verdict = verdict_on(nets[0], nets[1], domain, None)
    expect(verdict.precision == precision, f"precision {verdict.precision}, stored in {precision}")
    if verdict.equal:
        _check_equal(a, b, domain, precision, verdict)
        return
    expect(change is not None, f"a copy that was only rounded is called different: {verdict!r}")
    if verdict.counterexample is not None:
        x = [Fraction(v) for v in verdict.counterexample.x.tolist()]
        gaps = [abs(p - q) for p, q in zip(at(a, x).outputs, at(b, x).outputs, strict=True)]
        rooms = [p + q for p, q in zip(moved(a, x, precision), moved(b, x, precision), strict=True)]
        over = any(gap > room for gap, room in zip(gaps, rooms, strict=True))
        expect(over, f"called different at {x}, where rounding explains the differences {list(map(float_of, gaps))}")


def _check_equal(a: Program, b: Program, domain: Domain, precision: str, verdict: Any) -> None:
    place = domain if domain[0] == "box" else ("box", (-1.0,) * a.inputs, (1.0,) * a.inputs)
    truth = largest_difference(a, b, place)
    far = [max(abs(Fraction(p)), abs(Fraction(q))) for p, q in zip(*place[1:], strict=True)]
    rooms = zip(moved(absolute(a), far, precision), moved(absolute(b), far, precision), strict=True)
    allowed = 2 * max(map(sum, rooms)) + sum(SLACK * sizes(p, list(map(float, far))) for p in (a, b))
    text = f"equal by {verdict.method}, the difference is {float_of(truth or Fraction(0))}"
    expect(truth is not None and truth <= allowed, f"{text}, rounding explains {float_of(allowed)}")
    if verdict.bound is not None and domain[0] == "box":
        expect(truth is not None and truth <= Fraction(verdict.bound), f"{text}, the bound is {verdict.bound}")


def moved(program: Program, x: Sequence[Fraction], precision: str) -> list[Fraction]:
    """How far the outputs of a chain at a point move if every number is off by a few roundings."""
    unit, least = UNITS[precision]
    share = FEW * unit
    values, ways = list(x), [Fraction(0)] * len(x)
    for node in program.nodes:
        if node[0] == "relu":
            off = [v < -d for v, d in zip(values, ways, strict=True)]  # and stays so wherever it moves to
            ways = [Fraction(0) if o and not s else d for o, s, d in zip(off, node[2], ways, strict=True)]
            values = [v if v > 0 or s else Fraction(0) for v, s in zip(values, node[2], strict=True)]
            continue
        rows = [[Fraction(w) for w in row] for row in node[2]]
        reach = [(1 + share) * d + share * abs(v) for v, d in zip(values, ways, strict=True)]
        ways = [
            sum((max(abs(w), least) * r for w, r in zip(row, reach, strict=True)), share * max(abs(Fraction(c)), least))
            for row, c in zip(rows, node[3], strict=True)
        ]
        values = [
            sum((w * v for w, v in zip(row, values, strict=True)), Fraction(c))
            for row, c in zip(rows, node[3], strict=True)
        ]
    return ways


# -- models


def _modules(program: Program, norms: Sequence[Norm | None]) -> tuple[Any, Any]:
    """A model in float32 with normalisations, and the copy in which torch has folded them into the weights."""
    weights, biases = layers(program)
    parts, folded = [], []
    for W, b, norm in zip(weights, biases, (*norms, None), strict=True):
        layer = torch.nn.Linear(len(W[0]), len(W)).eval()
        layer.weight.data, layer.bias.data = torch.tensor(W), torch.tensor(b)
        parts.append(layer)
        if norm is None:
            folded.append(copy.deepcopy(layer))
        else:
            own = torch.nn.BatchNorm1d(len(W)).eval()
            own.weight.data, own.bias.data, own.running_mean, own.running_var = map(torch.tensor, norm)
            parts.append(own)
            folded.append(fuse_linear_bn_eval(layer, own))
        if len(folded) < 2 * len(weights) - 1:
            parts.append(torch.nn.ReLU())
            folded.append(torch.nn.ReLU())
    return torch.nn.Sequential(*parts), torch.nn.Sequential(*folded)


def _changed(module: Any, place: int, power: int) -> bool:
    """One number of a model moved by a part of itself; False if that rounds to nothing."""
    own = [p for p in module.parameters() if p.numel()]
    tensor = own[place % len(own)].data.view(-1)
    k = place // len(own) % len(tensor)
    before = tensor[k].item()
    tensor[k] += 2.0**-power * (tensor[k].abs().item() or 1.0)
    return bool(tensor[k].item() != before)


AREAS = (Area("stored", make_stored, check_stored),)
