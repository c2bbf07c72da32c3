"""Hidden hyperplanes moved and reflected by name: the same function, or a refusal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.fibers.hidden_hyperplanes import hidden_hyperplane
from fiberscope.testing.assertions import fraction_values

GRID = st.integers(-8, 8).map(lambda k: k / 4)


def chain(first: list[list[float]], second: list[list[float]], biases: list[list[float]]) -> fs.Network:
    return fs.Network([first, second, [[2.0, -1.0][: len(second)]]], [*biases, [0.5]])


@st.composite
def chains(draw: st.DrawFn, rows: int) -> fs.Network:
    def matrix(m: int, n: int) -> list[list[float]]:
        return [[draw(GRID) for _ in range(n)] for _ in range(m)]

    return chain(matrix(3, 2), matrix(rows, 3), [matrix(1, 3)[0], matrix(1, rows)[0]])


def same(net: fs.Network, other: fs.Network) -> bool:
    """On a grid and far away, in fractions: biases and weights are dyadic, and so are the moves."""
    points = [[x / 4, y / 4] for x in range(-12, 13, 3) for y in range(-12, 13, 3)] + [[1e3, -7e2], [-1e3, 1e3]]
    return all(fraction_values(net, x)[-1] == fraction_values(other, x)[-1] for x in points)


@given(chains(2), st.integers(0, 2), st.sampled_from((-2.0, -0.25, 0.125, 1.0, 16.0)))
def test_a_move_is_the_same_function_or_refused(net: fs.Network, neuron: int, t: float) -> None:
    try:
        moved = fs.translate(net, 0, neuron, t)
    except fs.InputError:
        return
    assert same(net, moved)


@given(chains(1), st.integers(0, 2))
def test_a_reflection_is_the_same_function_or_refused(net: fs.Network, neuron: int) -> None:
    others = [k for k in range(3) if k != neuron]
    sizes = np.abs(net.weights[1][0])
    if (sizes == 0).any():
        return
    dyadic = fs.rescale(net, [np.abs(net.weights[1][0]), None])  # |W_2| = 1: nothing rounds
    try:
        turned = fs.flip(dyadic, 0, neuron, others)
    except fs.InputError:
        assert hidden_hyperplane(dyadic.weights[1], dyadic.biases[1]) != neuron
        return
    assert same(dyadic, turned)


LEAKY = fs.Network([np.eye(2), np.eye(2), np.eye(2)], np.zeros((3, 2)), "leaky_relu")
HIDING = chain([[1.0, 0.5], [-0.5, 1.0]], [[1.5, -1.0]], [[0.25, 0.125], [-0.5]])


def test_both_are_found_again_by_the_fiber() -> None:
    moved = fs.translate(fs.flip(HIDING, 0, 0, [1]), 0, 0, 0.5)
    assert same(HIDING, fs.translate(HIDING, 0, 0, 0.5))
    assert fs.fiber(HIDING).contains(moved).contained


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fs.translate(HIDING, 0, 1, 0.5), r"neuron: expected one of \[0\] .*, got 1"),
        (lambda: fs.translate(HIDING, 0, 0, -0.5), "t: expected a number between -0.333333 and inf, got -0.5"),
        (lambda: fs.translate(HIDING, 0, 0, float("nan")), "t: expected a number .*, got nan"),
        (
            lambda: fs.translate(HIDING, 1, 0, 0.5),
            "layer: expected a hidden layer with another .* of 2",
        ),
        (lambda: fs.flip(HIDING, 0, 0, [0]), "flips: expected neurons from 0 to 1 other than 0, got 0"),
        (lambda: fs.flip(fs.Network.random((2, 3, 3, 1), 0), 0, 0, [1]), "expected one living neuron"),
        (
            lambda: fs.translate(LEAKY, 0, 0, 1.0),
            "expected ReLUs",
        ),
    ],
)
def test_refusals(call: object, text: str) -> None:
    with pytest.raises(fs.InputError, match=text):
        call()  # type: ignore[operator]
