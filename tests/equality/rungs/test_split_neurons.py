"""Branch and bound over signs of neurons: every bound holds in fractions, whatever slopes and factors are told."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from evidence_laws import check_evidence
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality import checker
from fiberscope.equality.bounding.attack import _left
from fiberscope.equality.bounding.chains import layers_of
from fiberscope.equality.bounding.lines import first_turns
from fiberscope.equality.bounding.phases import Chain, Leaf, SignSearch, Split, worst_leaf
from fiberscope.equality.certificates.claims import plain_program
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.split_neurons import SplitNeurons, by_split_neurons, rivals, searched
from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense

SLOPES = (0.0, 0.0, 0.25, 1.0, -1.0)


def chain_of(rng, widths, scale, steep=False):
    """A chain with activations of all kinds, and numbers of all sizes."""
    nodes = []
    for k, (n, m) in enumerate(pairwise(widths)):
        weight = rng.normal(size=(m, n)) * scale
        weight[rng.random((m, n)) < 0.2] = 0.0
        nodes.append(Affine(len(nodes), Dense(weight), rng.normal(size=m) * scale))
        if k + 2 < len(widths):
            kinds = (*SLOPES, 1.5) if steep else SLOPES
            nodes.append(PiecewiseLinear(len(nodes), rng.choice(kinds, m), (m,)))
    return Network.from_nodes(nodes, (widths[0],))


def exact(net, x):
    """The preactivations and the outputs, in fractions, by hand."""
    value, seen = [Fraction(v) for v in x], []
    for node in net.nodes:
        if isinstance(node, Affine):
            rows = zip(node.operator.dense().tolist(), node.offset.tolist(), strict=True)
            value = [sum((Fraction(w) * v for w, v in zip(row, value, strict=True)), Fraction(c)) for row, c in rows]
        else:
            seen.append(value)
            value = [v if v > 0 else Fraction(s) * v for v, s in zip(value, node.slopes.tolist(), strict=True)]
    return seen, value


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1.0, 1.0, 1e-160, 1e-100, 1e60, 1e150]),
    size=st.sampled_from([1.0, 1e-310, 1e-150, 1e100, 1e300]),
    steep=st.booleans(),
)
def test_bounds_hold_for_every_leaf(seed, scale, size, steep):
    rng = np.random.default_rng(seed)
    net = chain_of(rng, (2, 4, 3, 2), scale, steep)
    low = rng.normal(size=2) * size
    high = low + rng.random(2) * size
    chain = Chain(layers_of(net), low, high)
    row = rng.choice([0.0, 1.0, -1.0, 0.5], 2)
    signs = {(k, j): rng.choice([-1, 1]) for k in range(2) for j in range((4, 3)[k]) if rng.random() < 0.3}
    slopes = {(k, j): float(rng.uniform(-2, 2)) for k in range(2) for j in range((4, 3)[k]) if rng.random() < 0.7}
    factors = {at: float(rng.exponential() * rng.choice([0.0, 1.0, scale, 1e20])) for at in signs}
    # a tree that holds the leaf, whose other leaves are cut off before they are bounded
    leaf = Leaf(tuple((*at, v) for at, v in slopes.items()), tuple((*at, v) for at, v in factors.items()))
    bound = leaf_bound(chain, row, signs, leaf)
    mine = checker_bound(_case(net, low, high), row, signs, slopes, factors)
    for t in rng.random((20, 2)):
        x = np.clip(low + t * (high - low), low, high)
        seen, out = exact(net, x.tolist())
        if any(seen[k][j] * int(sign) < 0 for (k, j), sign in signs.items()):
            continue
        value = sum((Fraction(w) * v for w, v in zip(row.tolist(), out, strict=True)), Fraction(0))
        for found in (bound, mine):
            assert found is None or found == np.inf or value <= Fraction(found), (value, found)


def leaf_bound(chain, row, signs, leaf):
    turns, phases = first_turns(chain.layers, chain.known, 1), chain.free(1)
    for (k, j), sign in signs.items():
        phases[k].signs[0, j] = sign
    for k, j, v in leaf.factors:
        phases[k].factors[0, j] = v
    for k, j, v in leaf.slopes:
        s = chain.layers[k].slopes[j]
        turns[k][0, j] = min(max(v, min(s, 1.0)), max(s, 1.0))
    with np.errstate(all="ignore"):
        found = float(chain.bounds(row, turns, phases)[0])
    return np.inf if np.isnan(found) else found


def _case(net, low, high):
    program = checker.program_of(json.loads(json.dumps(plain_program(net))))
    place = checker.place_of({"kind": "box", "low": low.tolist(), "high": high.tolist()}, 2)
    return checker.Case(program, program, place, True, Fraction(0), Fraction(1), Fraction(1), 1, {}, Fraction(0))


def checker_bound(case, row, signs, slopes, factors):
    checker._Meter.left = checker.WORK
    try:
        known = checker.Lines(case, case.a)
        terms = {}
        for w, out in zip(row.tolist(), known.outputs, strict=True):
            for atom, c in out.items():
                terms[atom] = terms.get(atom, 0.0) + w * c
        return known.upper(terms, ({at: int(s) for at, s in signs.items()}, slopes, factors)) + 4 * checker.U * sum(
            abs(c) * known.reach[atom] for out in known.outputs for atom, c in out.items()
        )
    except (checker.Fails, checker.TooLarge, OverflowError):
        return None


def noisy(net, scale):
    rng = np.random.default_rng(5)
    return Network([w + scale * rng.normal(size=w.shape) for w in net.weights], net.biases)


def hard(count=40, radius=0.15):
    """A ball of many inputs on which lines alone do not show the class."""
    for seed in range(40):
        net = Network.random((count, 12, 8, 3), seed=seed)
        other = noisy(net, 1e-4)
        box = fs.Box.cube(count, -radius, radius)
        question = Question.of(net, other, box, None, 5.0, margin=0.0)
        found = by_split_neurons(question)
        if found is not None and found.equal and any(len(t) > 3 for trees in found.evidence.trees for t in trees):
            return net, other, box, found
    raise AssertionError("no such ball")


NET, OTHER, BALL, FOUND = hard()


def asked():
    return Question.of(NET, OTHER, BALL, margin=0.0)


def test_a_ball_is_proven_and_its_certificate_holds(tmp_path):
    assert isinstance(FOUND.evidence, SplitNeurons)
    check_evidence(FOUND.evidence, asked())
    points = BALL.sample(3000, 0)
    assert {*NET(points).argmax(axis=1), *OTHER(points).argmax(axis=1)} == {FOUND.evidence.own}
    verdict = fs.equivalent(NET, OTHER, BALL, criterion="argmax", time_limit=10)
    assert verdict.equal is True and verdict.method == "branch and bound over signs of neurons"
    verdict.save(tmp_path / "proof.json")
    assert fs.verify(tmp_path / "proof.json").ok
    found = json.loads((tmp_path / "proof.json").read_text())
    assert "signs of neurons" in checker.check(found)[2]
    for change in (
        lambda e: e.update(own=(e["own"] + 1) % 3),
        lambda e: e.update(own=3),
        lambda e: e["trees"][0][0].pop(),
        lambda e: e["trees"][0][0].append([[], []]),
        lambda e: e["trees"][1].pop(),
        lambda e: e["trees"][1][0].__setitem__(-1, [[], [[0, 0, -1.0]]]),
        lambda e: e["trees"][1][0].__setitem__(-1, [[[0, 99, 1.0]], []]),
        lambda e: e["trees"][1][0].__setitem__(-1, [[[2, 0, 1.0]], []]),
        lambda e: e["trees"][1][0].__setitem__(-1, [[[0, 0, 1]], []]),
        lambda e: e["trees"][1][0].__setitem__(0, [7, 0]),
    ):
        made = json.loads(json.dumps(found))
        change(made["evidence"])
        with pytest.raises((checker.Malformed, checker.Fails)):
            checker.check(made)
        (tmp_path / "changed.json").write_text(json.dumps(made))
        with suppress(InputError):
            assert not fs.verify(tmp_path / "changed.json")
    values = json.loads(json.dumps(found))
    values["claim"] |= {"tolerance": 0.5}
    del values["claim"]["criterion"], values["claim"]["margin"]
    with pytest.raises((checker.Malformed, checker.Fails)):
        checker.check(values)


def test_a_class_that_changes_is_not_proven():
    """Between the middle and a corner of another class there is no proof, whatever is split."""
    box = fs.Box.cube(40, -3.0, 3.0)
    points = box.sample(2000, 0)
    assert len({*NET(points).argmax(axis=1)}) > 1
    question = Question.of(NET, NET, box, None, 0.5, margin=1.0)
    assert searched(question, box, question.run) is None


def test_not_a_number_proves_nothing():
    net = Network([np.full((2, 2), 1e200), np.full((2, 2), 1e200)], [np.zeros(2), np.zeros(2)])
    chain = Chain(layers_of(net), np.full(2, -1e200), np.full(2, 1e200))
    for row in rivals(2, 0):
        assert not worst_leaf(chain, row, (Leaf((), ()),)) <= 0
        assert SignSearch(chain, row).go() is not True
    for wrong in (Leaf((), ((0, 0, np.nan),)), Leaf(((0, 0, np.inf),), ()), Split(0, 5), Leaf((), ((0, 0, -1.0),))):
        with pytest.raises(InputError):
            worst_leaf(chain, rivals(2, 0)[0], (wrong,))


def test_questions_that_it_is_not_made_for():
    assert by_split_neurons(Question.of(NET, OTHER, BALL, 0.5)) is None
    assert by_split_neurons(replace(asked(), place=fs.Space(40))) is None
    small = Network.random((3, 4, 2), 0)
    assert by_split_neurons(Question.of(small, small, fs.Box.cube(3), margin=0.0)) is None
    assert not FOUND.evidence.check(Question.of(NET, OTHER, BALL, 0.5)).ok


def test_where_a_way_leaves_a_class():
    """By false position, against a close look at all of the way."""
    rng = np.random.default_rng(0)
    close = np.linspace(0, 1, 20001)
    for seed in range(20):
        net = fs.Network.random((3, 8, 8, 3), seed=seed)
        middle, ends = rng.uniform(-1, 1, 3), rng.uniform(-3, 3, (6, 3))
        own = int(net(middle[None])[0].argmax())
        for end, share in zip(ends, _left(net, middle, ends, own), strict=True):
            inside = net(middle + close[:, None] * (end - middle)).argmax(axis=1) == own
            if inside[-1]:
                assert share == 1.0
            else:  # one of the places, where there are several
                places = close[1:][inside[1:] != inside[:-1]]
                assert np.abs(places - share).min() < 1e-3
