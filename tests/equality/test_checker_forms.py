"""The packed arithmetic of the standalone checker against fractions, on hostile numbers and hostile networks."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.equality import checker
from fiberscope.equality.certificates.claims import plain_program
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.testing import fraction_values

WIDTH, BITS = 96, 30
EDGE = 2 ** (WIDTH - 1) - 1


def packed(parts):
    return sum(p << WIDTH * k for k, p in enumerate(parts))


def apart(total, count):
    """The parts of an integer, lowest first: each is what is nearest to zero."""
    found = []
    for _ in range(count):
        part = (total + 2 ** (WIDTH - 1)) % 2**WIDTH - 2 ** (WIDTH - 1)
        found.append(part)
        total = (total - part) >> WIDTH
    assert total == 0
    return found


def arithmetic(count):
    """On a box of one input fewer than there are parts."""
    return on([(-1.0, 1.0)] * (count - 1))


def on(box, width=WIDTH):
    return checker.Zonotopes(BITS, width, box, checker.Bounding([], [], []))


numbers = st.lists(st.integers(-(2**45), 2**45), min_size=3, max_size=3)
parts = st.one_of(st.sampled_from([0, 1, -1, 2**28, -(2**28), 2**28 - 1, EDGE, -EDGE]), st.integers(-EDGE, EDGE))


@given(st.lists(parts, min_size=1, max_size=9))
def test_parts_at_the_edge_are_rounded_down_one_by_one(numbers):
    found = arithmetic(len(numbers))
    kept = found.rounded(packed(numbers), EDGE)
    assert apart(kept, len(numbers)) == [v >> BITS for v in numbers]


@given(st.lists(parts, min_size=1, max_size=9), st.integers(0, 5))
def test_ends_are_the_sums_of_sizes(numbers, error):
    """With carries out of negative parts, and sums right below the room of a part."""
    share = [int(v) // len(numbers) for v in numbers]
    seen = arithmetic(len(share))
    size = sum(map(abs, share)) + error
    if size > EDGE:
        return
    reach = sum(map(abs, share[1:])) + error
    assert seen.span((packed(share), error, max(size, 1))) == (share[0] - reach, share[0] + reach)


def test_parts_that_look_like_none_are_seen():
    """Two parts, one beyond its room, whose integer is zero."""
    seen = on([(0.0, 1.0)])
    seen.forms |= {(1, 0): (2 ** (WIDTH - 2), 0, 2 ** (WIDTH - 2)), (1, 1): (-(1 << WIDTH), 0, 1)}
    with pytest.raises(OverflowError):
        seen.of([checker.line(((1, 0), (1, 1)), [4, 1], 0, 0)])


@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.integers(0, 99), numbers), max_size=3))
def test_a_mixture_is_off_by_its_error_at_most(terms):
    """Every form is off by its error, and every part was rounded."""
    seen = arithmetic(3)
    forms = [(w, (packed(v), error, sum(map(abs, v)) + error)) for w, error, v in terms]
    total, error, size = seen.mixed(*forms)
    got = apart(total, 3)
    assert sum(map(abs, got)) + error <= size
    for sign in (1, -1):
        for e in ((1, 1, 1), (1, -1, 1), (1, 1, -1)):
            values = [sum(p * q for p, q in zip(v, e, strict=True)) + sign * off for _, off, v in terms]
            exact = sum((w * v for (w, _, _), v in zip(terms, values, strict=True)), Fraction(0)) / 2**BITS
            assert abs(exact - sum(p * q for p, q in zip(got, e, strict=True))) <= error


def test_a_slope_that_is_nearly_one_is_not_one():
    """Its weight is that of one, and was rounded."""
    seen = on([(-1.0, -0.5)])
    form = seen.forms[(0, 1)]
    node = checker.Node("piecewise", (0,), 1, slopes=[Fraction(1) + Fraction(1, 2**52)])
    link = seen.bends(node, [form], [seen.span(form)], [], [])[0][0]
    assert link[1] == seen.whole and link[4:6] == (0, 0) and link[6] > 0
    assert seen.linked((1, 0), link, [form], [], checker.ZERO)[1] > form[1]


def test_what_does_not_fit_is_refused():
    seen = on([(0.0, 1.0)])
    for size in (EDGE + 1, 2 * EDGE):
        with pytest.raises(OverflowError):
            seen.span((0, 0, size))
        with pytest.raises(OverflowError):
            seen.rounded(0, size)
        with pytest.raises(OverflowError):
            seen.mixed((1, (0, 0, size)))
        with pytest.raises(OverflowError):
            seen.spread((1, 0), (0, 0, size), -1, 1)
        seen.forms[(1, 0)] = (0, 0, size)
        with pytest.raises(OverflowError):
            seen.of([checker.line(((1, 0),), [1], 0, 0)])
    with pytest.raises(OverflowError):
        on([(0.0, 2.0 ** (WIDTH - 30))])


hostile = st.one_of(
    st.sampled_from([0.0, 5e-324, -5e-324, 2.0**-24, 2.0**-29, 1 / 3, -1e6, 1e-200, 3e7]), st.floats(-2.0, 2.0)
)


@settings(max_examples=60)
@given(st.lists(st.lists(hostile, min_size=4, max_size=4), min_size=1, max_size=3), st.integers(0, 10**6))
def test_combinations_hold_for_every_choice_of_the_generators(weights, seed):
    """A row at an input of the box: of the value at the same generators it is off by the error at most."""
    rng = np.random.default_rng(seed)
    box = [(-1.0, 5e-324), (0.3, 0.7), (-2.5e5, 1e5)]
    rows = [
        {atom: Fraction(w) for atom, w in zip([checker.ONE, (0, 1), (0, 2), (0, 3)], row, strict=True) if w}
        for row in weights
    ]
    seen = on(box, 160)
    forms, spans = seen.of(checker.lines(rows, BITS))
    for row, (total, error, size), (low, high) in zip(rows, forms, spans, strict=True):
        values = _apart(total, len(seen.reaches), 160)
        assert sum(map(abs, values)) + error <= size
        for _ in range(5):
            t = [Fraction(float(v)) for v in rng.choice([-1.0, 1.0, 0.0, 0.375], 3)]
            atoms = {checker.ONE: Fraction(1)}
            for k in (1, 2, 3):
                c, g = (_apart(seen.forms[(0, k)][0], len(seen.reaches), 160)[j] for j in (0, k))
                atoms[(0, k)] = (c + g * t[k - 1]) / Fraction(2**BITS)
            exact = sum((w * atoms[a] for a, w in row.items()), Fraction(0)) * 2**BITS
            told = values[0] + sum(v * e for v, e in zip(values[1:], t, strict=True))
            assert abs(exact - told) <= error
            assert low <= exact <= high


def _apart(total, count, width):
    found = []
    for _ in range(count):
        part = (total + 2 ** (width - 1)) % 2**width - 2 ** (width - 1)
        found.append(part)
        total = (total - part) >> width
    return found


SLOPES = [0.0, 0.0, 0.01, 0.1, 1.0, -0.5, 1.5]


def networks(rng, pool):
    """Two networks of one shape that differ a little: slopes of all kinds, dead neurons, equal rows, maxima."""
    sizes = [3, 5, 4, 2]
    nodes: list = [[], []]
    noise = 2.0 ** -rng.integers(1, 20)
    for k, (n, m) in enumerate(pairwise(sizes)):
        w, b = rng.normal(size=(m, n)), rng.normal(0, 0.5, m)
        if rng.random() < 0.4:
            b[0] -= 9.0  # dead on the box
        if rng.random() < 0.4:
            w[-1], b[-1] = w[0], b[0]
        if rng.random() < 0.3:
            w[0] = 0.0
        shifts = rng.normal(0, noise, w.shape) * (rng.random() < 0.8), rng.normal(0, noise, m) * (rng.random() < 0.8)
        slopes = rng.choice(SLOPES, m)
        for side, made in enumerate(nodes):
            made.append(Affine(len(made), Dense(w + side * shifts[0]), b + side * shifts[1]))
            if m == sizes[-1]:
                continue
            if pool and k == 0:
                table = np.array([[0, 1, -1], [1, 2, 3], [4, -1, -1], [0, 4, 3], [2, -1, -1]])
                made.append(MaxPool(len(made), (1, 1, 5), (1, 1), (1, 1), table=table))
            else:
                made.append(PiecewiseLinear(len(made), slopes, (m,)))
    return [Network.from_nodes(made, (3,)) for made in nodes]


def asked(nets, low, high, tolerance):
    checker._Meter.left = checker.WORK
    programs = [checker.program_of(json.loads(json.dumps(plain_program(net)))) for net in nets]
    place = checker.place_of({"kind": "box", "low": low.tolist(), "high": high.tolist()}, len(low))
    case = checker.Case(*programs, place, True, Fraction(tolerance), Fraction(1, 2**53), Fraction(0), 16, {})
    gates = [checker.gates(case, program, True) for program in programs]
    return case, checker.paired(checker.Matched(*gates, checker.in_place(case, None, True))), checker.unpaired(case)


def gap_at(nets, x):
    both = (fraction_values(net, x)[-1] for net in nets)
    return [Fraction(p) - Fraction(q) for p, q in zip(*both, strict=True)]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from([2.0**-20, 0.1, 1e3]), st.integers(0, 40))
def test_what_is_written_anew_says_the_same(seed, pool, pairs, tolerance, more):
    """Rows after one and after two reductions contain the exact difference at points of the smaller boxes."""
    rng = np.random.default_rng(seed)
    nets = networks(rng, pool)
    low = rng.uniform(-1, 0.5, 3)
    high = low + 2.0 ** -rng.integers(0, 7, 3)
    case, both, single = asked(nets, low, high, tolerance)
    cover = checker.Cover(case, both if pairs else single, more)
    box, program = case.place.box(), cover.program
    for _ in range(3):
        seen = cover.look(box, program)[1]
        assert seen is not None
        unit = Fraction(1, 2**seen.bits)
        spans = [(p * unit, q * unit) for p, q in seen.spans]
        for x in rng.uniform([a for a, _ in box], [b for _, b in box], (6, 3)):
            assert all(p <= gap <= q for (p, q), gap in zip(spans, gap_at(nets, x), strict=True))
        left = sum(len(step.atoms) for step in program.steps)
        program = seen.reduced()
        assert sum(len(step.atoms) for step in program.steps) <= left
        k = int(rng.integers(3))
        box = checker.halves(box, k, (box[k][0] + box[k][1]) / 2)[int(rng.integers(2))]


quarters = st.integers(-12, 12).map(lambda v: v / 4)


@settings(deadline=None, max_examples=150)
@given(
    quarters,
    st.integers(1, 12),
    quarters,
    st.sampled_from([1.0, 0.5, -1.0, 2.0]),
    st.sampled_from(SLOPES),
    st.sampled_from([1.0, 1e-7]),
)
def test_one_neuron_and_its_partner(low, width, shift, factor, slope, size):
    """``f(x) - f(factor x - shift)`` at the ends of a box and where the two bend, for all cases of signs."""

    def net(factor, shift):
        nodes = [
            Affine(0, Dense([[factor]]), [shift]),
            PiecewiseLinear(1, np.array([slope]), (1,)),
            Affine(2, Dense([[1.0]])),
        ]
        return Network.from_nodes(nodes, (1,))

    low, high, shift = low * size, (low + width / 4) * size, shift * size
    nets = [net(1.0, 0.0), net(factor, -shift)]
    case, both, single = asked(nets, np.array([low]), np.array([high]), size)
    points = np.array([low, high, *(v for v in (0.0, shift / factor) if low <= v <= high)])
    for found in (both, single):
        cover = checker.Cover(case, found, 0)
        seen = cover.look(case.place.box(), cover.program)[1]
        unit = Fraction(1, 2**seen.bits)
        ((least, most),) = seen.spans
        for x in points:
            assert least * unit <= gap_at(nets, np.array([x]))[0] <= most * unit


def test_a_box_on_which_all_is_linear_needs_no_neurons():
    rng = np.random.default_rng(0)
    nets = networks(rng, False)
    case, both, _ = asked(nets, np.full(3, 0.25), np.full(3, 0.25 + 2.0**-12), 0.5)
    cover = checker.Cover(case, both, 0)
    seen = cover.look(case.place.box(), cover.program)[1]
    program = seen.reduced()
    assert not program.steps and len(program.ends) == 2


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 4), st.integers(0, 2))
def test_no_bound_is_below_a_difference(seed, pool, few, every):
    """However often the tree is looked at: what is accepted holds at points, what is below one is not accepted."""
    rng = np.random.default_rng(seed)
    nets = networks(rng, pool)
    low = rng.uniform(-1, 0.5, 3)
    high = low + 0.5
    most = max(max(map(abs, gap_at(nets, x))) for x in rng.uniform(low, high, (20, 3)))
    tree: list = [None]
    for _ in range(4):
        k = int(rng.integers(3))
        tree = [[k, 0.0], *tree, *tree]  # split where the box is cut below
    tree = placed(tree, [*zip(low.tolist(), high.tolist(), strict=True)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checker, "FEW", few)
        patch.setattr(checker, "EVERY", every)
        for factor in (3.0, 1.25, 1.0 - 2.0**-40):
            tolerance = float(most) * factor
            case, both, single = asked(nets, low, high, tolerance)
            for found in (both, single):
                checker._Meter.left = 10_000
                try:
                    checker.within(case, found, tree)
                except (checker.Fails, checker.TooLarge):
                    continue
                assert Fraction(tolerance) >= most


def placed(tree, box):
    """A tree of coordinates with every split in the middle of its box."""
    made, todo = [], [box]
    for entry in tree:
        box = todo.pop()
        if entry is None:
            made.append(None)
            continue
        k, (low, high) = entry[0], box[entry[0]]
        made.append([k, (low + high) / 2])
        todo += reversed(checker.halves(box, k, (low + high) / 2))
    return made


@pytest.mark.parametrize("size", [1.0, 3.0, 1e-9, 1e9, 0.1])
@pytest.mark.parametrize("slope", [0.0, 0.25, 0.1])
def test_one_rounding_below_the_largest_difference_is_not_accepted(size, slope):
    """``f(x) - f(x - size)`` is ``size`` at the end of the box and nowhere more."""

    def net(shift):
        nodes = [
            Affine(0, Dense([[1.0]]), [shift]),
            PiecewiseLinear(1, np.array([slope]), (1,)),
            Affine(2, Dense([[1.0]])),
        ]
        return Network.from_nodes(nodes, (1,))

    nets = [net(0.0), net(-size)]
    low, high = np.array([-2.0 * size]), np.array([2.0 * size])
    exact = max(abs(v) for v in gap_at(nets, high))
    assert exact == Fraction(size)
    for tolerance, fine in ((math.nextafter(size, 0.0), False), (size * (1 + 2.0**-20), True)):
        case, both, single = asked(nets, low, high, tolerance)
        for found in (both, single):
            for tree in (
                [None],
                [[0, 0.0], None, None],
                placed([[0, 0.0], [0, 0.0], None, None, [0, 0.0], None, None], case.place.box()),
            ):
                if fine:
                    checker.within(case, found, tree)
                else:
                    with pytest.raises((checker.Fails, checker.TooLarge)):
                        checker.within(case, found, tree)


@given(st.lists(st.tuples(st.integers(1, 2**200), st.integers(1, 2**70)), min_size=1, max_size=30))
def test_sums_of_errors_are_rounded_up(pairs):
    """The error of a row is at least the sum of those of its atoms, which is taken in floats."""
    seen, room = on([], 2048), 2**300
    for k, (_, error) in enumerate(pairs):
        seen.forms[(1, k)] = (0, error, room)
    row = checker.line(tuple((1, k) for k in range(len(pairs))), [w for w, _ in pairs], 0, 0)
    exact = sum(w * error for w, error in pairs) >> BITS
    assert exact <= seen.of([row])[0][0][1] <= exact + (exact >> 18) + 5


def test_errors_that_a_later_layer_enlarges_are_made_small_first(monkeypatch):
    def net(weight):
        nodes = [
            Affine(0, Dense([[2.0**-24 * weight], [-(2.0**-24) * 1.3]]), [0.1 * 2.0**-24, 0.0]),
            PiecewiseLinear(1, np.zeros(2), (2,)),
            Affine(2, Dense([[2.0**24 * 1.1, 2.0**24 * 0.9]]), [0.0]),
        ]
        return Network.from_nodes(nodes, (1,))

    nets, box = [net(0.7), net(0.71)], [(-1.0, 1.0)]
    case, both, _ = asked(nets, np.array([-1.0]), np.array([1.0]), 0.0115)
    tree = placed([[0, 0.0], None, None], box)
    assert checker.Cover(case, both, 0).lacking(box) > 0
    walks, walk = [], checker.Cover.walk
    monkeypatch.setattr(checker.Cover, "walk", lambda self, *rest: [walks.append(self.bits), walk(self, *rest)])
    assert checker.within(case, both, tree).endswith("on each of 2 boxes")
    assert len(walks) == 1
