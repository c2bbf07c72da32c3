"""Branch and bound on boxes: verdicts, intervals, evidence, classes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality.bounding.branching import Search
from fiberscope.equality.bounding.chains import Bounds, ChainPair
from fiberscope.equality.bounding.form_kernels import shared
from fiberscope.equality.bounding.pairs import Pairing
from fiberscope.equality.bounding.trees import Growing, leaves, tree_of
from fiberscope.equality.counterexample import exact_outputs
from fiberscope.equality.question import Question
from fiberscope.equality.rungs import split_boxes
from fiberscope.equality.rungs.split_boxes import SplitBoxes, by_split_boxes
from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.network.network import Network
from fiberscope.run import Run

BOX = fs.Box.cube(3)


def noisy(net, scale, seed=0):
    rng = np.random.default_rng(seed)
    weights = [w + scale * rng.normal(size=w.shape) for w in net.weights]
    return Network(weights, [b + scale * rng.normal(size=b.shape) for b in net.biases])


NET = Network.random((3, 8, 8, 2), seed=0)
OTHER = noisy(NET, 1e-3)


def test_a_tolerance_above_the_maximum_is_proven_and_one_below_refuted():
    found = by_split_boxes(Question.of(NET, OTHER, BOX, 0.05, 20.0))
    assert found.equal is True and found.bound <= 0.05
    points = BOX.sample(4000, 1)
    most = float(np.abs(NET(points) - OTHER(points)).max())
    assert most <= found.bound
    below = fs.equivalent(NET, OTHER, BOX, 0.9 * most, 20.0)
    assert below.equal is False and below.counterexample.difference > 0.9 * most


def test_the_interval_holds_the_maximum_whatever_the_answer():
    points = BOX.sample(4000, 1)
    most = float(np.abs(NET(points) - OTHER(points)).max())
    for tolerance in (0.0, None, 1e-4, 0.05):
        verdict = fs.equivalent(NET, OTHER, BOX, tolerance, 5.0)
        known = verdict.interval
        assert 0 < known.low <= known.high and known.high >= most
        gaps = [abs(p - q) for p, q in zip(exact_outputs(NET, known.x), exact_outputs(OTHER, known.x), strict=True)]
        assert known.low <= max(gaps) and known.low >= float(max(gaps)) * (1 - 1e-12)


def test_a_leaf_that_only_the_tight_bound_proves_is_accepted():
    """Older searches went back to the input on every box; the search of today halves the box instead."""
    low, high = BOX.low[None], BOX.high[None]
    net = Network.random((3, 12, 12, 12, 12, 1), seed=1)
    other = noisy(net, 1e-3)
    pair = ChainPair.of(net, other)
    tight, quick = (float(p.bounds(low, high).high[0]) for p in (pair, pair.quick()))
    assert tight < quick
    question = Question.of(net, other, BOX, 0.5 * (tight + quick), 20.0)
    assert SplitBoxes((None,), Pairing()).check(question).ok
    assert len(by_split_boxes(question).evidence.tree) > 1
    assert not SplitBoxes((None,), Pairing()).check(replace(question, tolerance=0.9 * tight)).ok


def test_evidence_is_checked_by_computing_the_bounds_of_its_leaves_again():
    question = Question.of(NET, OTHER, BOX, 0.02, 20.0)
    evidence = by_split_boxes(question).evidence
    assert isinstance(evidence, SplitBoxes) and evidence.check(question).ok
    again = SplitBoxes.from_dict(json.loads(json.dumps(evidence.to_dict())))
    assert again.to_dict() == evidence.to_dict() and again.check(question).ok
    assert not replace(evidence, tree=(None,)).check(question).ok  # the root alone is not small enough
    assert not evidence.check(Question.of(NET, OTHER, BOX, 1e-4)).ok
    assert not evidence.check(Question.of(NET, OTHER, fs.Space(3), 0.02)).ok


@pytest.mark.parametrize("tree", [[], [None, None], [[0, 0.5], None], [[7, 0.5], None, None], [[0, 9.0], None, None]])
def test_a_tree_that_does_not_cover_the_box_is_refused(tree):
    with pytest.raises(InputError):
        leaves(tree_of(tree), np.zeros(2), np.ones(2))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1), st.floats(0, 1)), max_size=8))
def test_leaves_cover_the_box(steps):
    tree, box = Growing(), (np.zeros(2), np.ones(2))
    open_ = [(0, *box)]
    for pick, d, share in steps:
        node, low, high = open_.pop(pick % len(open_))
        value = float(low[d] + share * (high[d] - low[d]))
        first = tree.split(node, (d, value))
        left, right = high.copy(), low.copy()
        left[d] = right[d] = value
        open_ += [(first, low, left), (first + 1, right, high)]
    lows, highs = leaves(tree.preorder(), *box)
    assert np.isclose(np.prod(highs - lows, axis=1).sum(), 1.0) and len(lows) == len(steps) + 1
    again = Growing()
    again.graft(0, tree.preorder())
    assert again.preorder() == tree.preorder()


def test_equal_functions_are_equal_within_any_tolerance():
    a = Network([[[1.0, -1.0], [-1.0, 1.0]], [[0.5, 0.5]]], [[0.0, 0.0], [0.0]])  # |x - y| / 2
    b = Network([[[1.0, -1.0], [0.0, 1.0], [0.0, -1.0]], [[1.0, 0.0, 0.0]]], [[0.0, 0.0, 0.0], [0.0]])  # not it
    assert fs.equivalent(a, a, fs.Box.cube(2), 10.0).equal is True
    assert fs.equivalent(a, b, fs.Box.cube(2), 0.0).equal is False


# -- classes -----------------------------------------------------------------------------------------------------------


def test_the_same_class_is_proven_and_another_one_found():
    a = Network([[[1.0], [0.0]]], [[0.0, 0.0]])  # class 0 for x > 0
    b = Network([[[2.0], [0.0]]], [[0.0, 0.0]])
    c = Network([[[1.0], [0.0]]], [[-0.25, 0.0]])  # class 0 for x > 1/4
    assert fs.equivalent(a, b, fs.Box([0.5], [1.0]), criterion="argmax").equal is True
    found = fs.equivalent(a, c, fs.Box([-1.0], [1.0]), criterion="argmax")
    assert found.equal is False and 0 < found.counterexample.x[0] < 0.25
    sure = fs.equivalent(a, c, fs.Box([-1.0], [1.0]), criterion="argmax", margin=0.3)
    assert sure.equal is True and sure.criterion == "argmax"


def test_claims_about_classes_are_written_and_verified(tmp_path):
    a = Network.random((2, 6, 3), seed=1)
    b = noisy(a, 1e-4)
    x = next(x for x in fs.Box.cube(2).sample(100, 0) if np.ptp(np.sort(a(x[None])[0])[-2:]) > 0.2)
    box = fs.Box(x - 0.01, x + 0.01)
    verdict = fs.equivalent(a, b, box, criterion="argmax", margin=0.05)
    assert verdict.equal is True
    verdict.save(tmp_path / "proof.json")
    replay = fs.verify(tmp_path / "proof.json", a, b)
    assert replay.ok and replay.margin == 0.05 and "class" in replay.claim
    text = json.loads((tmp_path / "proof.json").read_text())
    del text["claim"]["criterion"], text["claim"]["margin"]
    (tmp_path / "other.json").write_text(json.dumps(text))  # now it claims equality up to rounding
    assert not fs.verify(tmp_path / "other.json").ok


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 1.0]))
@settings(max_examples=20)
def test_verdicts_about_classes_agree_with_dense_sampling(seed, margin):
    a = Network.random((2, 5, 3), seed=seed)
    b = noisy(a, [1e-3, 0.1, 1.0][seed % 3], seed)
    box = fs.Box.cube(2, -0.5, 0.5)
    verdict = fs.equivalent(a, b, box, criterion="argmax", margin=margin, time_limit=3.0)
    points = box.sample(3000, seed)
    left, right = np.sort(a(points), axis=1), b(points)
    own = a(points).argmax(axis=1)
    sure = left[:, -1] - left[:, -2] > margin + 1e-9
    beaten = right.max(axis=1) - right[np.arange(len(points)), own] > 1e-9
    if verdict.equal is True:
        assert not (sure & beaten).any()
    elif verdict.equal is False:
        x = verdict.counterexample.x
        p, q = exact_outputs(a, x), exact_outputs(b, x)
        k = max(range(3), key=lambda i: p[i])
        assert p[k] - max(v for i, v in enumerate(p) if i != k) >= margin and max(q) > q[k]
    else:
        assert verdict.reason


@pytest.mark.parametrize(
    "options",
    [{"criterion": "top"}, {"criterion": "values"}, {"margin": 1.0}, {"criterion": "argmax", "margin": -1.0},
     {"criterion": "argmax", "margin": float("nan")}, {"criterion": "argmax", "tolerance": 0.1}],
)  # fmt: skip
def test_questions_about_classes_are_checked(options):
    with pytest.raises(InputError):
        fs.equivalent(NET, OTHER, BOX, **options)


def test_classes_with_many_inputs_are_kept_or_told_apart_at_a_boundary():
    net = Network.random((40, 12, 12, 3), 0)
    other = Network([w * (1 + 2.0**-12) for w in net.weights], net.biases)
    rng = np.random.default_rng(0)
    answers = []
    for x in rng.normal(size=(12, 40)):
        for radius in (0.01, 0.2):
            found = fs.equivalent(net, other, fs.Box(x - radius, x + radius), criterion="argmax", time_limit=5)
            answers.append(found.equal)
            if found.equal:
                points = x + radius * rng.uniform(-1, 1, (200, 40))
                assert (net(points).argmax(axis=1) == other(points).argmax(axis=1)).all()
    assert answers.count(True) >= 12 and answers.count(False) >= 1 and answers.count(None) <= 4


@pytest.mark.parametrize("tolerance", [None, 0.0, 1e-3])
def test_no_box_is_begun_that_takes_longer_than_the_time_that_is_left(monkeypatch, tolerance):
    """The kernels cannot be interrupted: one box of 1500 x 600 neurons takes a second and more."""
    net = fs.Network.random((8, 1500, 600, 1), 0)
    other = fs.Network([net.weights[0] + 1e-7, *net.weights[1:]], net.biases)
    large, small = ChainPair.of(net, other), ChainPair.of(NET, NET)
    assert large.seconds > 1 and small.seconds < 1e-4

    def refuse(*_):
        raise AssertionError("a box was begun")

    monkeypatch.setattr(ChainPair, "bounds", refuse)
    assert fs.equivalent(net, other, fs.Box.cube(8), tolerance, time_limit=0.2).equal is not True


def test_inputs_count_through_the_neurons_that_they_open():
    """``|x| + y / 100`` has no coefficient of ``x`` to see, and moves with it all the same."""
    forms = np.array([[0.5, 0.0, 0.01, 0.5, -0.5], [3.0, 0.0, 0.0, 0.0, 0.0]])  # centre, x, y, relu(x), relu(-x)
    known, found = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), np.full((2, 2), -1.0)
    for row in (0, 1):
        getattr(shared, "py_func", shared)(forms, row, known, found, row)  # compiled for kernels alone
    assert np.allclose(found, [[1 / 1.01, 0.01 / 1.01], [0.0, 0.0]])


def test_boxes_that_take_long_come_in_small_batches():
    """Nothing looks at the clock while boxes are bounded."""

    class Slow:
        def __init__(self, seconds):
            self.seconds, self.counts = seconds, []

        def bounds(self, low, high):
            self.counts.append(len(low))
            ones = np.ones(len(low))
            return Bounds(ones, np.zeros(len(low), dtype=int), np.zeros(len(low), dtype=int), low)

    for seconds, most in ((0.1, 6), (100.0, 2)):
        bounder = Slow(seconds)
        Search(bounder, np.zeros(1), np.ones(1)).go(0.5, Run.begin(), most=200)
        assert max(bounder.counts) == most


def test_a_look_that_runs_out_of_time_costs_no_bound(monkeypatch):
    """What was bounded until then is told; it was lost, and the interval as wide as at the start."""
    a, b = (Network.random((4, 16, 16, 1), seed) for seed in (0, 1))
    question = Question.of(a, b, fs.Box.cube(4), 1e-3, 5.0)
    question.record.attacked = True

    def late(asked, points):
        raise OutOfTimeError("the time is up")

    monkeypatch.setattr(split_boxes, "excess", late)
    assert by_split_boxes(question, 0.0) is None
    search = question.record.search[1]
    assert question.record.proven == search.bound < search.first


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_boxes_whose_bounds_ran_out_of_time_stay_open(calls):
    """The bound of everything holds when a batch is interrupted, and the search can go on from there."""
    pair = ChainPair.of(NET, OTHER)

    class Late:
        left = calls

        def bounds(self, low, high):
            self.left -= 1
            if self.left < 0:
                raise OutOfTimeError("the time is up")
            return pair.bounds(low, high)

    points = BOX.sample(4000, 1)
    most = float(np.abs(NET(points) - OTHER(points)).max())
    goal = 1.02 * most
    bounder = Late()
    search, whole = Search(bounder, BOX.low, BOX.high), Search(pair, BOX.low, BOX.high)
    assert search.go(goal, Run.begin()) is False
    assert most <= search.bound <= search.first
    assert len(search.heap) == sum(node is None for node in search.tree.preorder())
    lows, highs = leaves(list(search.tree.preorder()), BOX.low, BOX.high)
    known = {(low.tobytes(), high.tobytes()) for _, _, low, high, _, _ in search.heap}
    assert known == {(low.tobytes(), high.tobytes()) for low, high in zip(lows, highs, strict=True)}
    bounder.left = 10**9
    assert search.go(goal, Run.begin()) and whole.go(goal, Run.begin()) and search.bound <= goal
