"""Rows in arrays against rows in integers of any size: the same normal form, the same hyperplanes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.fibers.normal_form import program_forms
from fiberscope.fibers.normal_form.planes import Planes
from fiberscope.fibers.normal_form.program_forms import normal_form
from fiberscope.fibers.normal_form.row import Row, combine
from fiberscope.fibers.normal_form.sums import Sums, layer_sums, pack, unpack
from fiberscope.fibers.normal_form.table import ONE, Table
from fiberscope.network.network import Network
from fiberscope.testing.strategies import chains

HOSTILE = [0.0, 1.0, -1.0, 0.5, 3.0, 6.0, -9.0, 0.1, 5e-324, 1e-310, 1e300, 2.0**53 - 1, float(np.float32(0.3))]


def told(net: Network, table: Table, signs: np.ndarray | None) -> tuple:
    rows = normal_form(net, table, signs)
    planes = [table.plane(k) for k in range(table.inputs + 1, table.inputs + 1 + len(table.rows))]
    return rows, planes, table.depths


def same(a: Row, b: Row) -> bool:
    return not combine([(1, 0, a), (-1, 0, b)], False).terms


@st.composite
def hostile_chains(draw) -> Network:
    """Doubled, opposite, tripled rows with dyadic, decimal, subnormal and huge numbers."""
    widths = draw(st.lists(st.integers(1, 4), min_size=3, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pool = HOSTILE if draw(st.booleans()) else HOSTILE[:7]
    weights, biases = [], []
    for before, after in itertools.pairwise(widths):
        rows = rng.choice(pool, (after, before + 1))
        with np.errstate(over="ignore"):
            for i in range(1, after):
                if rng.random() < 0.6:
                    rows[i] = rows[i - 1] * rng.choice([1.0, 2.0, -1.0, 3.0, -0.25])
        rows = np.where(np.isfinite(rows), rows, 1.0)
        weights.append(rows[:, :-1])
        biases.append(rows[:, -1])
    slope = draw(st.sampled_from([0.0, 0.25, 0.1]))
    return Network(weights, biases, "leaky_relu", slope=slope) if slope else Network(weights, biases)


@settings(max_examples=120, deadline=None)
@given(hostile_chains() | chains(), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_as_in_integers(net, seed, some_signs, orthant):
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1, 0, 0, 1], net.num_signs) if some_signs else None
    nonnegative = [True] * net.in_size if orthant else ()
    ways = {quick: repeatedly(net, nonnegative, signs, quick) for quick in itertools.product((True, False), repeat=2)}
    # a table that has met the one kind of row knows its hyperplanes in the other; what signs tell of equal neurons
    # may make the second form another one than the first, the same whatever the kinds are
    slow = ways[False, False]
    for forms in ways.values():
        for mine, other in zip(forms, slow, strict=True):
            assert mine[1:] == other[1:]
            assert all(map(same, mine[0], other[0]))
    assert some_signs or all(map(same, slow[0][0], slow[1][0]))


def repeatedly(net: Network, nonnegative, signs, kinds) -> list[tuple]:
    """The normal form in one table again and again, by rows in arrays or in integers."""
    found, table = [], Table(net.in_size, nonnegative)
    for quick in kinds:
        with pytest.MonkeyPatch.context() as patch:
            if not quick:
                patch.setattr(program_forms, "layer_sums", lambda *_: None)
            rows, planes, depths = told(net, table, signs)
            found.append((rows, planes, list(depths)))
    return found


def test_bits_that_do_not_fit_are_left_to_integers():
    one = [Row({1: 2**40 + 1}), Row({2: 1})]
    assert layer_sums(np.array([[2.0**40 + 1, 1.0]]), None, one, ONE) is None  # a product of 82 bits
    twice = [Row({1: 1}), Row({1: 1}, 80)]
    assert layer_sums(np.array([[1.0, 1.0]]), None, twice, ONE) is None  # a sum of 81 bits
    assert layer_sums(np.array([[1.0]]), None, [Row({1: 1, 2: 1})], ONE) is None  # two terms
    assert layer_sums(np.array([[1.0]]), None, [Row({1: 1}, 1 << 30)], ONE) is None  # an exponent beyond all


def test_cancelling_and_constants():
    rows = [Row({1: 3}), Row({1: 6}, -1), Row({ONE: 5}, -2), Row({})]
    found = layer_sums(np.array([[1.0, -1.0, 4.0, 7.0]]), np.array([-5.0]), rows, ONE)
    assert isinstance(found, Sums) and found[0].terms == {}
    assert found.packed() == [(b"", b"")]


@given(st.lists(st.integers(-(2**70), 2**70).filter(bool), min_size=1, max_size=4))
def test_packed_and_back(values):
    plane, _ = Row(dict(enumerate(values))).primitive()
    short = pack(plane)
    if short is not None:
        assert unpack(short) == plane
    planes = Planes()
    planes.enter(plane, 3)
    assert planes.find(plane) == 3 and (short is None or planes.find_packed(short) == 3)
