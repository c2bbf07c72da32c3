"""Questions about parameters: fibers, identifiability, canonical forms, actions, simplification, dimension, roles."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import fiberscope as fs
from fuzz import bridge, draw
from fuzz.areas.equality import acted, chain_of, layers, numbers
from fuzz.areas.points import sizes
from fuzz.case import Area, Disagreement, Skipped, Undecided, expect, float_of
from fuzz.oracle import parameters as judge
from fuzz.oracle.cells import Domain, largest_difference, leaves_on, same_function, start_of
from fuzz.oracle.program import Program, at

NEAR = Fraction(1, 10**8)
"""What a function may change by moves that round, relative to the sizes of all terms."""


MEMBER = Fraction(1, 2**38)
"""What a function may change along its fiber: a few thousand roundings."""


def around(n: int, reach: float = 2.0) -> Domain:
    """A box around the origin."""
    return ("box", (-reach,) * n, (reach,) * n)


def same_up_to_rounding(
    a: Program, b: Program, what: str, near: Fraction = NEAR, given: Sequence[Program] = (), reach: float = 2.0
) -> None:
    """Whether two functions differ by no more than rounding explains, on a box.

    Rounding is measured by the terms that make the outputs of the given programs, the two by default: a network that
    was made from others has no right to larger terms.
    """
    gap = largest_difference(a, b, around(a.inputs, reach))
    corner = [reach] * a.inputs
    allowed = near * sum(sizes(one, corner) for one in given or (a, b)) + Fraction(1, 2**900)
    expect(gap is not None and gap <= allowed, f"{what} changes the function by {float_of(gap or Fraction(0))}")


# -- identifiability


def make_identifiability(rng: Random) -> tuple[Any, ...]:
    if rng.random() < 0.6:
        n, hidden, out = rng.choice((1, 1, 1, 2)), rng.choice((1, 2, 3, 4, 6, 11, 12)), rng.choice((1, 1, 2))
        program = draw.chain(
            rng, (n, hidden, out), kind=rng.choice(("integer", "integer", "wide integer")), twins=False
        )
        weights, biases = layers(program)
        if rng.random() < 0.5:  # different hyperplanes: then everything is decided
            biases[0] = [k / 4 - 1 for k in range(hidden)]
        if rng.random() < 0.5:
            weights[0] = [[float(rng.choice((-1, 1, 1, 2))) for _ in row] for row in weights[0]]
        if rng.random() < 0.5:
            weights[1] = [[float(rng.choice((1, 1, -1, 2))) for _ in row] for row in weights[1]]
        return (chain_of(weights, biases),)
    return (make_bottleneck(rng),)


def make_bottleneck(rng: Random) -> Program:
    """Two hidden layers, the first not wider than the input, often with a column that cancels behind it."""
    n = rng.choice((2, 2, 3))
    first, second = rng.randint(1, n), rng.randint(1, 3)
    program = draw.chain(rng, (n, first, second, 1), kind=rng.choice(("integer", "wide integer")), twins=False)
    weights, biases = layers(program)
    if rng.random() < 0.5:
        weights[0] = [[float(i == k) for i in range(n)] for k in range(first)]
        biases[0] = [0.0] * first
    if second == 2 and rng.random() < 0.7:
        j, p, q = rng.randrange(first), float(rng.randint(1, 3)), float(rng.choice((-2, -1, 1, 2)))
        sign = rng.choice((-1, 1))
        weights[2] = [[q, -p]]
        weights[1][0][j], weights[1][1][j] = sign * p, sign * q
    return chain_of(weights, biases)


def check_identifiability(program: Program) -> None:
    net = bridge.network(program)
    found = fs.identifiability(net)
    _check_fiber_dimension(program, found.fiber_dimension)
    if len(program.nodes) == 3:
        truth = judge.one_layer_identifiable(program)
        if truth is not None and found.identifiable is not None:
            expect(found.identifiable is truth, f"identifiable {found.identifiable} ({found.theorem}), exactly {truth}")
    elif found.identifiable is not False or found.rigid.any():
        moved = _moved_hyperplane(program)
        if moved is not None:
            expect(found.identifiable is not True, f"identifiable, but hyperplane {moved} can be moved")
            expect(not found.rigid[moved], f"neuron {moved} is called rigid and can be moved")
    if found.identifiable is None:
        raise Undecided(found.theorem)


def _check_fiber_dimension(program: Program, dimension: int | None) -> None:
    """Along the fiber no output changes: its dimension, with rescalings, is at most the nullity of the Jacobian."""
    if not dimension:
        return
    weights, biases = layers(program)
    scaled = 0
    for k, bias in enumerate(biases[:-1]):
        for i in range(len(bias)):
            scaled += any(weights[k][i]) or bias[i] != 0 or any(row[i] for row in weights[k + 1])
    total = sum(len(w) * len(w[0]) + len(w) for w in weights)
    free = total - scaled - judge.full_ranks(program, Random(0))[0]
    if dimension > free:
        free = total - scaled - judge.full_ranks(program, Random(0), judge.rank)[0]
    expect(dimension <= free, f"fiber_dimension {dimension}, at most {free} by exact rank")


def _moved_hyperplane(program: Program) -> int | None:
    """A first-layer neuron whose bias can be moved, with the second biases, while the function stays."""
    weights, biases = layers(program)
    planes = {_plane(w, b) for w, b in zip(weights[0], biases[0], strict=True)}
    for j in range(len(biases[0])):
        for t in (0.5, 1.0, -0.25):
            moved = [list(b) for b in biases]
            moved[0][j] += t
            for i, row in enumerate(weights[1]):
                moved[1][i] -= row[j] * t
            if not any(weights[0][j]) or _plane(weights[0][j], moved[0][j]) in planes:
                continue
            other = chain_of(weights, moved)
            near = around(program.inputs)
            if same_function(program, other, near) and same_function(program, other, ("space", program.inputs)):
                return j
    return None


def _plane(row: Sequence[float], bias: float) -> tuple[Fraction, ...]:
    lead = next((abs(Fraction(x)) for x in row if x), Fraction(1))
    return tuple(Fraction(x) / lead for x in (*row, bias))


# -- fibers


def make_fibers(rng: Random) -> tuple[Any, ...]:
    kind = rng.random()
    if kind < 0.35:
        program = make_bottleneck(rng)
    elif kind < 0.45:
        n = rng.choice((1, 2))
        extra = rng.randint(1, 3)
        eye = [[float(i == k) for i in range(n)] for k in range(n)] + [[0.0] * n] * extra
        bias = [-1.0] * (n + extra)
        program = chain_of([eye, [[1.0] * (n + extra)]], [bias, [0.5]])
    else:
        kinds = ("integer", "one decimal", "normal", "float32")
        program = draw.chain(rng, draw.widths(rng, rng.choice((1, 2))), kind=rng.choice(kinds))
    seed, reach = rng.randrange(1 << 16), 2.0
    if rng.random() < 0.3:
        program, reach = in_other_units(rng, program)
    return program, seed, reach


def in_other_units(rng: Random, program: Program) -> tuple[Program, float]:
    """The chain with inputs, activations and outputs in units that are other powers of two, and how far inputs go."""
    weights, biases = layers(program)
    inputs = rng.choice((-40, 0, 0, 40))
    unit = 0
    for k, (matrix, bias) in enumerate(zip(weights, biases, strict=True)):
        step = rng.choice((-60, 0, 60))
        unit += step
        weights[k] = [[math.ldexp(x, step + (0 if k else inputs)) for x in row] for row in matrix]
        biases[k] = [math.ldexp(x, unit) for x in bias]
    return chain_of(weights, biases), math.ldexp(2.0, -inputs)


def check_fibers(program: Program, seed: int, reach: float = 2.0) -> None:
    net = bridge.network(program)
    fiber = fs.fiber(net)
    samples = fiber.sample(1 + seed % 2, seed)
    joined = True
    for other in samples:
        expect(other.widths == net.widths, "a sample has other widths")
        same_up_to_rounding(program, bridge.program(other), "a sample", MEMBER, [program], reach)
        link = fiber.connection(other)
        denied = link.connected is False and link.reason.startswith("not a member")
        expect(not denied, f"a sample is not contained: {link.reason}")
        path = link.path
        joined = joined and path is not None
        if path is not None:
            for s in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0):
                ends = [program, bridge.program(other)]
                same_up_to_rounding(program, bridge.program(path(s)), f"path({s})", MEMBER, ends, reach)
    _check_size(fiber)
    _check_fiber_dimension(program, fiber.identifiability.fiber_dimension)
    if not joined:
        raise Undecided("no path to a sample")


def _check_size(fiber: Any) -> None:
    """No listed assignment is larger than what is called the dimension of the fiber."""
    dimension = fiber.dimension
    if dimension is None:
        return
    expect(all(c.dimension <= dimension for c in fiber.components), "a component is larger than the fiber")
    if not getattr(fiber, "dimension_exact", True):
        return  # called a lower bound
    with contextlib.suppress(fs.FiberscopeError):
        largest = max((cell.dimension for cell in fiber.assignments(2000)), default=0)
        expect(largest <= dimension, f"dimension {dimension}, an assignment has {largest}")


# -- canonical forms and actions


def make_canonical(rng: Random) -> tuple[Any, ...]:
    if rng.random() < 0.3:
        # regular ties: all neurons are alike to their neighbours, and yet not all exchanged by a symmetry
        n = rng.randint(3, 7)
        inner = [[0.0] * n for _ in range(n)]
        for _ in range(rng.randint(1, 3)):
            for i, j in enumerate(rng.sample(range(n), n)):
                inner[i][j] += 1.0
        program = chain_of([[[1.0]] * n, inner, [[1.0] * n]], [[0.5] * n, [0.0] * n, [0.0]])
    else:
        kind = rng.choice(("integer", "integer", "one decimal", "normal"))
        program = draw.chain(rng, draw.widths(rng, rng.choice((1, 2, 3)), most=4), kind=kind)
    return program, rng.randrange(1 << 30)


def check_canonical(a: Program, seed: int) -> None:
    rng = Random(seed)
    b, c = acted(rng, a, rng.choice((0, 2, 8))), acted(rng, a, 2)
    if any(0 < abs(x) < 1e-300 for p in (a, b, c) for x in numbers(p)):
        raise Skipped("the copies are not exact")
    forms = [fs.canonical(bridge.network(p)) for p in (a, b, c)]
    expect(fs.identical(forms[0], fs.canonical(forms[0])), "canonical is not idempotent")
    expect(
        all(fs.identical(forms[0], f) for f in forms[1:]), "canonical differs on a permuted and dyadically scaled copy"
    )
    same_up_to_rounding(a, bridge.program(forms[0]), "canonical", Fraction(1, 10**12))
    match = fs.same_up_to_symmetry(bridge.network(a), bridge.network(b))
    expect(match.same is not False, "same_up_to_symmetry denies a permuted and dyadically scaled copy")


def make_actions(rng: Random) -> tuple[Any, ...]:
    program = draw.chain(rng, draw.widths(rng, rng.choice((1, 2)), depth=3), extreme=0.1)
    _, biases = layers(program)
    orders = [rng.sample(range(len(b)), len(b)) for b in biases[:-1]]
    reach = rng.choice((2, 8, 50, 300, 1000))
    scales = [[math.ldexp(1.0, rng.randint(-reach, reach)) for _ in b] for b in biases[:-1]]
    return program, orders, scales


def check_actions(program: Program, orders: list[list[int]], scales: list[list[float]]) -> None:
    """Permutations and scales that are powers of two change nothing, or are refused."""
    net = bridge.network(program)
    permuted = fs.permute(net, orders)
    expect(same_function(program, bridge.program(permuted), ("space", program.inputs)), "permute changes the function")
    scaled = bridge.program(fs.rescale(net, scales))
    expect(same_function(program, scaled, ("space", program.inputs)), "rescale by powers of two changes the function")


# -- simplification


def make_simplify(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((1, 2))
    program = draw.chain(rng, draw.widths(rng, n, most=4, depth=3), extreme=0.1)
    kind = rng.random()
    domain = draw.box(rng, n) if kind < 0.5 else ("orthant", n) if kind < 0.65 else ("space", n)
    return program, domain


def check_simplify(program: Program, domain: Domain) -> None:
    found = fs.simplify(bridge.network(program), bridge.domain(domain))
    small = bridge.program(found.network)
    if found.exact:
        expect(same_function(program, small, domain), "simplify calls a different function exact")
    elif found.verdict is None or found.verdict.equal is None:
        raise Undecided("not compared")
    elif found.verdict.equal:
        gap = largest_difference(program, small, domain if domain[0] == "box" else around(program.inputs))
        corner = [4.0] * program.inputs
        allowed = NEAR * (sizes(program, corner) + sizes(small, corner)) + Fraction(1, 2**900)
        if domain[0] != "orthant":
            expect(
                gap is not None and gap <= allowed, f"simplify changes the function by {float_of(gap or Fraction(0))}"
            )


# -- functional dimension


def make_dimension(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((1, 2, 2))
    kind = rng.choice(("integer", "one decimal", "normal", "float32", None))
    program = draw.chain(rng, draw.widths(rng, n, most=3), kind=kind, extreme=0.05)
    points = None if rng.random() < 0.35 else tuple(draw.point(rng, n) for _ in range(rng.randint(1, 6)))
    return program, points, rng.randrange(1 << 16)


def check_dimension(program: Program, points: Sequence[Sequence[float]] | None, seed: int) -> None:
    try:
        _check_dimension(program, points, seed, judge.quick_rank)
    except Disagreement:
        _check_dimension(program, points, seed, judge.rank)


def _check_dimension(program: Program, points: Sequence[Sequence[float]] | None, seed: int, rank: Any) -> None:
    net = bridge.network(program)
    if points is None:
        found = fs.functional_dimension(net)
        truth, most = judge.full_ranks(program, Random(seed), rank)
    else:
        smooth = [x for x in points if 0 not in at(program, x).signs]
        try:
            found = fs.functional_dimension(net, [list(x) for x in points])
        except fs.NotGenericError:
            _expect_kinks(program, points, seed)
            raise
        kept = [x for k, x in enumerate(points) if k not in found.on_boundary]
        _expect_kinks(program, [points[k] for k in found.on_boundary], seed)
        for x in kept:
            if x not in smooth:
                expect(judge.differentiable(program, x, Random(seed)), f"not differentiable at {x}, but not left out")
        truth = most = judge.batch_rank(program, kept, rank)
    text = f"exact {found.exact}, lower {found.lower}, upper {found.upper}; truth {truth} (or {most})"
    expect(found.lower is None or found.lower <= most, text)
    expect(found.upper >= truth, text)
    expect(found.exact is None or found.exact in (truth, most), text)
    for bound in found.bounds:
        expect(
            not (bound.holds and bound.proven) or bound.value >= truth, f"bound {bound.name} is {bound.value}; {text}"
        )
    if found.exact is None:
        raise Undecided("no exact rank")


def _expect_kinks(program: Program, points: Sequence[Sequence[float]], seed: int) -> None:
    """Points that are left out must not be differentiable; hundreds of directions say so or not."""
    for x in points:
        wrong = 0 not in at(program, x).signs or judge.differentiable(program, x, Random(seed), 200)
        expect(not wrong, f"left out as a kink, but differentiable at {x}")


# -- roles


def make_roles(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((1, 2, 2, 3))
    program = draw.program(rng, n, kinds="ccprt", width=3, extreme=0.1)
    kind = rng.random()
    if kind < 0.6:
        return program, draw.box(rng, n)
    return program, draw.polytope(rng, n) if kind < 0.7 else (rng.choice(("orthant", "space")), n)


def check_roles(program: Program, domain: Domain) -> None:
    if not start_of(domain):
        raise Skipped("no interior")
    found = fs.roles(bridge.network(program), bridge.domain(domain))
    neurons = [k for k, slope in enumerate(_slopes(program)) if slope is not None]
    slopes = [s for s in _slopes(program) if s is not None]
    seen: list[set[int]] = [set() for _ in neurons]
    for leaf in leaves_on(program, domain):
        for own, k in zip(seen, neurons, strict=True):
            own.add(leaf.signs[k])
    for i, (signs, slope) in enumerate(zip(seen, slopes, strict=True)):
        text = f"neuron {i} has the signs {sorted(signs)} and slope {slope}"
        if slope == 1:
            expect(not found.dead[i] and not found.switching[i], f"{text}: not called linear")
            continue
        expect(not found.nonnegative[i] or -1 not in signs, f"{text}: called nonnegative")
        expect(not found.nonpositive[i] or 1 not in signs, f"{text}: called nonpositive")
        expect(not found.switching[i] or {-1, 1} <= signs, f"{text}: called switching")
        expect(not found.dead[i] or (1 not in signs and slope == 0), f"{text}: called dead")
        expect(not found.linear[i] or not {-1, 1} <= signs, f"{text}: called linear")
    if found.undecided.any():
        raise Undecided("a role")


def _slopes(program: Program) -> list[float | None]:
    """Slopes of the entries of the sign vector, None for those of pooling windows."""
    found: list[float | None] = []
    for node in program.nodes:
        if node[0] == "relu":
            found += node[2]
        elif node[0] == "pool":
            found += [None] * (node[2] * ((program.sizes[node[1]] - node[2]) // node[3] + 1))
    return found


AREAS = (
    Area("identifiability", make_identifiability, check_identifiability),
    Area("fibers", make_fibers, check_fibers),
    Area("canonical", make_canonical, check_canonical),
    Area("actions", make_actions, check_actions),
    Area("simplify", make_simplify, check_simplify),
    Area("dimension", make_dimension, check_dimension),
    Area("roles", make_roles, check_roles),
)
