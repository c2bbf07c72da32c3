"""The walk against plain fractions: forward in every algebra, backward against exact differences."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.dimension.spans import Spans
from fiberscope.network.layout import Layout
from fiberscope.network.nodes import Add, Affine, Clip, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Composition, Dense
from fiberscope.network.walk import (
    affine_values,
    all_values,
    backward,
    choices_of,
    compared,
    cross,
    decided,
    output,
    smooth,
    step,
    switch_values,
    traced,
    walk,
)
from fiberscope.numerics.algebra.ball import EXACT, EXACT_ROWS, BallAlgebra
from fiberscope.numerics.algebra.base import Constant
from fiberscope.numerics.algebra.bits import BitAlgebra
from fiberscope.numerics.algebra.bounded import BOUNDED, BOUNDED_ROWS
from fiberscope.numerics.algebra.floating import FLOAT, FLOAT_ROWS, FloatAlgebra
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.testing import CASES, fraction_map, fraction_signs, fraction_values
from fiberscope.testing.hostile import TAME, hostile_batches, programs

PRIME = (1 << 61) - 1


@st.composite
def questions(draw, **kinds):
    """A program and a batch; sometimes one of the fixed cases, which have convolutions and compositions."""
    net = draw(st.one_of(programs(**kinds), st.sampled_from([CASES["residual"](), CASES["leaky"]()])))
    return net, draw(hostile_batches(net, **kinds))


def exact(ball) -> Fraction:
    assert ball.is_exact()
    mantissa, exponent = ball.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def residue(x: Fraction) -> int:
    return x.numerator * pow(x.denominator, -1, PRIME) % PRIME


def signs_of(net, X):
    return np.array([fraction_signs(net, x) for x in X], dtype=np.int8).reshape(len(X), net.num_signs)


# -- forward -----------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(questions())
def test_exact_balls_are_the_fractions_and_bounds_contain_them(question):
    net, X = question
    balls = BallAlgebra(EXACT)
    with np.errstate(all="ignore"):
        bounded, plain = all_values(net.layout, BOUNDED.take(X), BOUNDED), all_values(net.layout, X, FLOAT)
    with balls.working():
        found = all_values(net.layout, balls.take(X), balls)
    for row, x in enumerate(X):
        for value, ball, floats, truth in zip(bounded, found, plain, fraction_values(net, x), strict=True):
            assert [exact(b) for b in ball[row]] == truth
            known = np.isfinite(floats[row])  # behind an overflow the bounded value may know more
            assert np.array_equal(value.value[row][known], floats[row][known])
            for v, e, t in zip(value.value[row], value.error[row], truth, strict=True):
                assert not np.isfinite(e) or abs(Fraction(float(v)) - t) <= Fraction(float(e))


@settings(max_examples=60, deadline=None)
@given(questions())
def test_balls_of_few_bits_contain_the_fractions(question):
    net, X = question
    balls = BallAlgebra(64)
    with balls.working():
        found = output(net.layout, balls.take(X), balls)
    with BallAlgebra(EXACT).working():
        for row, x in enumerate(X):
            for ball, t in zip(found[row], fraction_values(net, x)[-1], strict=True):
                # by the ends of the ball: a fraction of floats is dyadic, and so are they
                low, high = ball.lower(), ball.upper()
                assert not ball.is_finite() or exact(low) <= t <= exact(high)


@settings(max_examples=100, deadline=None)
@given(questions())
def test_residues_with_given_signs_are_those_of_the_fractions(question):
    net, X = question
    ring = ModularAlgebra(PRIME)
    found = all_values(net.layout, ring.take(X), ring, choices_of(net.layout, signs_of(net, X)))
    for row, x in enumerate(X):
        for value, truth in zip(found, fraction_values(net, x), strict=True):
            assert value[row].tolist() == [residue(t) for t in truth]


@settings(max_examples=100, deadline=None)
@given(questions())
def test_affine_maps_of_many_cells_are_the_values_at_their_points(question):
    net, X = question
    signs = signs_of(net, X)
    with EXACT_ROWS.working():
        single = [affine_values(net.layout, net.in_size, row, EXACT_ROWS) for row in signs]
        together = affine_values(net.layout, net.in_size, signs, EXACT_ROWS)
    with np.errstate(all="ignore"):
        bounded = affine_values(net.layout, net.in_size, signs, BOUNDED_ROWS)
    for row, x in enumerate(X):
        point = [*(Fraction(float(v)) for v in x), Fraction(1)]
        for k, truth in enumerate(fraction_values(net, x)):
            forms = [[exact(b) for b in column] for column in single[row][k].T]
            assert [sum(a * b for a, b in zip(form, point, strict=True)) for form in forms] == truth
            cell = row if len(together[k]) > 1 else 0  # one block stands for all cells before the first switch
            assert [[exact(b) for b in column] for column in together[k][cell].T] == forms
            value, error = bounded[k].value[cell], bounded[k].error[cell]
            for v, e, t in zip(value.T.ravel(), error.T.ravel(), chain.from_iterable(forms), strict=True):
                assert not np.isfinite(e) or abs(Fraction(float(v)) - t) <= Fraction(float(e))
        assert [[exact(b) for b in column] for column in single[row][-1].T] == [
            list(form) for form in fraction_map(net, signs[row])
        ]


@pytest.mark.parametrize("name", CASES)
def test_float_rows_are_the_affine_map_at_a_point(name):
    net = CASES[name]()
    x = np.random.default_rng(0).normal(size=net.in_size)
    signs = net.signs(x[None]).signs
    rows = affine_values(net.layout, net.in_size, signs[0], FLOAT_ROWS)
    many = affine_values(net.layout, net.in_size, signs, FLOAT_ROWS)
    for value, block, truth in zip(rows, many, all_values(net.layout, x[None], FLOAT), strict=True):
        np.testing.assert_allclose(x @ value[:-1] + value[-1], truth[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(block[0], value, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(questions())
def test_spans_hold_every_value(question):
    net, X = question
    for row in range(len(X)):
        found = traced(net.layout, Spans().take(X[row]), Spans()).values
        for k, truth in enumerate(fraction_values(net, X[row])):
            low, high = found[k]
            for t in truth:
                assert t == 0 or ((t / Fraction(2) ** low).denominator == 1 and abs(t) < Fraction(2) ** high)


@settings(max_examples=60, deadline=None)
@given(questions())
def test_bits_that_are_off_prove_that_nothing_changes(question):
    net, X = question
    signs = signs_of(net, X[:1])[0]
    bits = BitAlgebra()
    rows = all_values(net.layout, bits.take(np.eye(net.in_size)), bits, choices_of(net.layout, signs))
    with EXACT_ROWS.working():
        truth = affine_values(net.layout, net.in_size, signs, EXACT_ROWS)
    for value, form in zip(rows, truth, strict=True):
        for bit, slope in zip(value.ravel(), form[:-1].ravel(), strict=True):
            assert bit or slope.is_zero()


@settings(max_examples=60, deadline=None)
@given(questions())
def test_values_that_decide_take_the_pieces_of_their_signs(question):
    net, X = question
    balls = BallAlgebra(EXACT)
    with balls.working():
        compared_values = switch_values(net.layout, balls.take(X), balls)
        values = all_values(net.layout, balls.take(X), balls)
    truth = signs_of(net, X)
    assert len(compared_values) == len(net.layout.places)
    for place, found in zip(net.layout.places, compared_values, strict=True):
        linear = place.node.linear if isinstance(place.node, PiecewiseLinear) else np.zeros(found.shape[1], bool)
        own = np.array([[int(v > 0) - int(v < 0) for v in row] for row in found], dtype=np.int8)
        assert np.array_equal(np.where(linear, 1, own), truth[:, place.columns])
        with balls.working():
            passed = cross(place.node, values[place.source], balls, place.node.chosen(truth[:, place.columns]))
            assert all((a - b).is_zero() for a, b in zip(passed.ravel(), values[place.index + 1].ravel(), strict=True))


# -- backward ----------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(questions())
def test_gradients_of_outputs_are_those_of_the_fractions(question):
    net, X = question
    ring = ModularAlgebra(PRIME)
    signs = signs_of(net, X)
    seeds = {len(net.nodes): ring.take(np.eye(net.out_size))[None]}
    *_, last = backward(net.layout, choices_of(net.layout, signs), seeds, ring)
    assert last.value == 0
    for row in range(len(X)):
        truth = [[residue(g) for g in form[:-1]] for form in fraction_map(net, signs[row])]
        assert last.delta[row if len(last.delta) > 1 else 0].tolist() == truth


@settings(max_examples=60, deadline=None)
@given(questions(), st.randoms(use_true_random=False))
def test_gradients_may_begin_at_another_switch_for_every_point(question, random):
    net, X = question
    if not net.layout.places:
        return
    signs = signs_of(net, X)
    chosen = [random.choice(net.layout.places) for _ in X]
    entries = [random.randrange(int(np.prod(net.shapes[place.source]))) for place in chosen]
    ring = ModularAlgebra(PRIME)
    seeds = {}
    for row, (place, entry) in enumerate(zip(chosen, entries, strict=True)):
        seed = seeds.setdefault(place.source, ring.take(np.zeros((len(X), int(np.prod(net.shapes[place.source]))))))
        seed[row, entry] = 1
    found = {at.value: at.delta for at in backward(net.layout, choices_of(net.layout, signs), seeds, ring)}
    for row, (place, entry) in enumerate(zip(chosen, entries, strict=True)):
        with EXACT_ROWS.working():
            form = affine_values(net.layout, net.in_size, signs[row], EXACT_ROWS)[place.source][:-1, entry]
        assert found[0][row].tolist() == [residue(exact(g)) for g in form]


@settings(max_examples=60, deadline=None)
@given(questions(styles=TAME))
def test_derivatives_behind_stages_are_exact_differences(question):
    # With the signs held fixed an output is affine in every single coefficient: a difference is a derivative.
    net, X = question
    x, signs = X[0], fraction_signs(net, X[0])
    ring = ModularAlgebra(PRIME)
    trace = traced(net.layout, ring.take(x[None]), ring, choices_of(net.layout, signs))
    seeds = {len(net.nodes): ring.take(np.eye(net.out_size))}
    base = at_point(fraction_map(net, signs), x)
    asked = 0
    for value, stage, delta in backward(net.layout, trace.choices, seeds, ring, first=1):
        node = net.nodes[value - 1]
        if not isinstance(node, Affine) or not isinstance(node.operator, Dense):
            continue
        matrix = np.array(node.operator.matrix)
        i, j = (k % n for k, n in zip((asked, 3 * asked + 1), matrix.shape, strict=True))
        asked += 1
        before = matrix[i, j]
        matrix[i, j] = before + 1.0
        step_size = Fraction(float(matrix[i, j])) - Fraction(float(before))
        other = replace(node, operator=Dense(matrix), weight_name=None)
        moved = fs.Network.from_nodes([*net.nodes[: value - 1], other, *net.nodes[value:]], net.input_shape)
        change = [a - b for a, b in zip(at_point(fraction_map(moved, signs), x), base, strict=True)]
        found = [int(d) * int(trace.inputs[value - 1][stage][0, j]) * residue(step_size) % PRIME for d in delta[:, i]]
        assert found == [residue(c) for c in change]
    assert asked


def at_point(forms, x):
    point = [*(Fraction(float(v)) for v in x), Fraction(1)]
    return [sum(a * b for a, b in zip(form, point, strict=True)) for form in forms]


def test_between_the_stages_of_a_first_layer_there_is_a_derivative_too():
    parts = [Dense(np.array([[1.0, 2.0]])), Dense(np.array([[3.0], [5.0]]))]
    net = fs.Network.from_nodes([Affine(0, Composition(parts))], (2,))
    found = [(at.value, at.stage, at.delta.tolist()) for at in backward(net.layout, {}, {1: np.eye(2)}, FLOAT, first=1)]
    assert found == [(1, 1, [[1.0, 0.0], [0.0, 1.0]]), (1, 0, [[3.0], [5.0]])]


@pytest.mark.parametrize("name", ["convolutional", "residual", "leaky"])
def test_floats_go_back_as_residues_do(name):
    net = CASES[name]()
    X = np.random.default_rng(0).normal(size=(4, net.in_size))
    trace = traced(net.layout, X, FLOAT)
    again = choices_of(net.layout, net.signs(X).signs)
    for place in net.layout.places:
        kept = slice(None) if isinstance(place.node, MaxPool) else ~place.node.linear  # a linear one has no choice
        assert np.array_equal(trace.choices[place.index][:, kept], again[place.index][:, kept])
    rows = affine_values(net.layout, net.in_size, net.signs(X).signs, FLOAT_ROWS)
    seeds = {len(net.nodes): np.eye(net.out_size)[None]}
    found = {at.value: at.delta for at in backward(net.layout, trace.choices, seeds, FLOAT)}
    np.testing.assert_allclose(found[0], rows[-1][:, :-1].swapaxes(1, 2), rtol=1e-9, atol=1e-9)


def test_what_is_not_asked_is_not_computed():
    net = CASES["residual"]()

    class Counting(FloatAlgebra):
        def adjoint(self, stage, value):
            seen.append(stage.in_size)
            return super().adjoint(stage, value)

    algebra, seen = Counting(), []
    choices = choices_of(net.layout, np.ones(net.num_signs, dtype=np.int8))
    seeds = {len(net.nodes): np.eye(net.out_size)}
    values = [at.value for at in backward(net.layout, choices, seeds, algebra, first=1)]
    assert 0 not in values and values == sorted(values, reverse=True)
    assert len(seen) == 5  # the first layer is not gone through


# -- the walk itself ---------------------------------------------------------------------------------------------------


def test_a_caller_sees_values_in_front_of_switches_and_may_refine_them():
    net = CASES["residual"]()
    X = np.random.default_rng(0).normal(size=(3, 4))
    values, seen = {0: X[:1]}, []
    for index in walk(net.layout, values, FLOAT):
        if index in net.layout.of_node:
            seen.append(index)
            if index == 1:  # more points behind the first switch: all live values grow
                values.update({0: X, 1: np.concatenate([values[1], smooth(net.nodes[0], {0: X[1:]}, FLOAT)])})
    assert seen == [place.index for place in net.layout.places]
    np.testing.assert_allclose(values[len(net.nodes)], net(X), rtol=1e-12)
    assert set(values) == {len(net.nodes)}


def test_a_walk_goes_on_where_it_stopped():
    net = CASES["convolutional"]()
    X = np.random.default_rng(0).normal(size=(3, net.in_size))
    values, first = {0: X}, 0
    while True:
        stop = next((k for k in walk(net.layout, values, FLOAT, first=first) if k in net.layout.of_node), None)
        if stop is None:
            break
        values[stop + 1] = cross(net.layout.of_node[stop].node, values[net.layout.of_node[stop].source], FLOAT)
        first = stop + 1
    np.testing.assert_array_equal(values[len(net.nodes)], net(X))


def test_a_value_that_the_caller_puts_in_place_stays():
    net = fs.Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    values = {0: np.ones((1, 1))}
    for index in walk(net.layout, values, FLOAT):
        if index == 1:
            values[2] = np.full((1, 1), 7.0)
    assert values[3].item() == 7.0


@pytest.mark.parametrize("algebra", [FLOAT, BOUNDED, ModularAlgebra(PRIME)], ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("given", [False, True])
def test_a_value_put_inside_of_a_composite_node_reaches_its_result(algebra, given):
    """As if there were only the plain nodes that it means, wherever the value is put and whether choices are given."""
    if isinstance(algebra, ModularAlgebra) and not given:
        return  # residues have no order
    net = fs.Network.from_nodes([Clip(0, [0.0], [6.0], (1,)), Affine(1, Dense([[2.0]]), [1.0])], (1,))
    choices = choices_of(net.layout, np.array([1, 1])) if given else None
    for place in range(len(net.nodes)):
        results = []
        for layout in (net.layout, Layout(net.nodes)):
            values = {0: algebra.take(np.array([[3.0]]))}
            for index in walk(layout, values, algebra, choices):
                if index == place:
                    values[index + 1] = algebra.take(np.array([[2.0]]))
            results.append(str(values[len(net.nodes)]))
        assert results[0] == results[1]


def test_only_live_values_are_held():
    net = fs.Network.random((3, 4, 4, 4, 2), 0)
    values = {0: np.zeros((1, 3))}
    assert max(len(values) for _ in walk(net.layout, values, FLOAT)) == 1
    kept = {0: np.zeros((1, 3))}
    for _ in walk(net.layout, kept, FLOAT, keep={0, 3}):
        pass
    assert sorted(kept) == [0, 3, len(net.nodes)]


def test_derivatives_have_no_biases():
    net = fs.Network([[[2.0]], [[3.0]]], [[5.0], [7.0]])
    linear = FloatAlgebra(constant=Constant.NOWHERE)
    assert output(net.layout, np.ones((1, 1)), linear, choices_of(net.layout, np.array([1]))).item() == 6.0


def test_a_prefix_of_a_program_has_signs_of_a_prefix():
    net = CASES["residual"]()
    signs = np.ones(net.num_signs, dtype=np.int8)
    whole = affine_values(net.layout, 4, signs, FLOAT_ROWS)
    for found, value in zip(affine_values(Layout(net.nodes[:5]), 4, signs, FLOAT_ROWS), whole, strict=False):
        np.testing.assert_array_equal(found, value)


def test_an_unknown_kind_of_node_is_refused():
    class Other:
        source, sources = 0, (0,)

    with pytest.raises(AssertionError):
        step(Other(), [np.zeros((1, 1))], FLOAT)  # type: ignore[arg-type]
    for function in (cross, compared, decided):
        with pytest.raises(AssertionError):
            function(Other(), np.zeros((1, 1)), FLOAT)  # type: ignore[operator]


def test_the_same_value_read_twice_adds_up_on_the_way_back():
    nodes = [
        Affine(0, Dense(np.array([[1.0, 2.0]]))),
        Add((1, 1), (1,)),
        Concat((2, 1, 2), ((1,), (1,), (1,))),
        MaxPool(3, (1, 1, 3), (1, 2), (1, 1)),
    ]
    net = fs.Network.from_nodes(nodes, (2,))
    signs = fraction_signs(net, [1.0, 1.0])
    choices = choices_of(net.layout, signs)
    assert choices[3].tolist() == [0, 2]  # both windows hold 6 and 3
    found = {at.value: at.delta.tolist() for at in backward(net.layout, choices, {4: np.ones((1, 2))}, FLOAT)}
    assert found[3] == [[1.0, 0.0, 1.0]] and found[1] == [[4.0]] and found[0] == [[4.0, 8.0]]
