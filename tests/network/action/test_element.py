"""Group laws of elements whose parts sit inside others, their JSON, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.action.element import Element, Monomial, random_scales

seeds = st.integers(0, 2**32 - 1)
DIMENSIONS = {
    "rows": (3, 1, []),
    "heads": (2, 3, ["rows"]),
    "dims": (4, 6, ["rows", "heads"]),
    "free": (5, 2, []),
}


def drawn(seed: int, leave: str | None = None) -> Element:
    rng = np.random.default_rng(seed)
    return Element(
        {
            name: Monomial(
                [rng.permutation(n) for _ in range(copies)], random_scales(rng, (copies, n), 3, True), parents
            )
            for name, (n, copies, parents) in DIMENSIONS.items()
            if name != leave
        }
    )


def applied(element: Element, x: np.ndarray) -> np.ndarray:
    """The oracle: numbers ``(3 rows, 2 heads, 4 dims)`` moved one by one, the outer index sets first."""
    old = x.copy()
    for name, inside in (("rows", 8), ("heads", 4), ("dims", 1)):
        part = element.get(name)
        if part is None:
            continue
        blocks, new = old.reshape(part.copies, part.size, inside), np.empty((part.copies, part.size, inside))
        for c in range(part.copies):
            for i in range(part.size):
                new[c, i] = part.scales[c, i] * blocks[c, part.orders[c, i]]
        old = new.ravel()
    return old


@given(seeds, seeds, seeds, st.sampled_from([None, "rows", "heads", "dims"]))
def test_composition_is_one_after_the_other(s: int, t: int, u: int, leave: str | None) -> None:
    g, h, k = drawn(s), drawn(t, leave), drawn(u)
    x = np.arange(24.0)
    assert np.array_equal(applied(g @ h, x), applied(g, applied(h, x)))
    assert np.array_equal(applied(h @ g, x), applied(h, applied(g, x)))
    assert (g @ h) @ k == g @ (h @ k)
    for one in (g, h):
        assert (one @ one.inverse()).is_identity and (one.inverse() @ one).is_identity
        assert np.array_equal(applied(one.inverse(), applied(one, x)), x)


@given(seeds)
def test_json_round_trip(seed: int) -> None:
    g = drawn(seed)
    assert Element.from_dict(json.loads(json.dumps(g.to_dict()))) == g
    one = Symmetry.random((2, 3, 4, 1), seed, dyadic=False)
    assert Symmetry.from_dict(json.loads(json.dumps(one.to_dict()))) == one


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (5, "expected an object"),
        ({"a": [1, 0]}, "group a: expected an object with permutations"),
        ({"a": {"permutations": [1, 0]}}, "group a: expected a list of permutations"),
        ({"a": {"permutations": [[1, 1]]}}, "group a: permutation: expected a permutation of 0 to 1"),
        ({"a": {"permutations": [[0.2, 1.9]]}}, "expected a permutation of 0 to 1"),
        ({"a": {"permutations": [[True, False]]}}, "expected a permutation of 0 to 1"),
        ({"a": {"permutations": [[0, 1], [0]]}}, "expected a permutation of 0 to 1"),
        ({"a": {"permutations": [[0, 1]], "scales": [[1.0, 0.0]]}}, "group a: scales: expected 2 positive"),
        ({"a": {"permutations": [[0, 1]], "scales": [[1.0, float("nan")]]}}, "finite"),
        ({"a": {"permutations": [[0, 1]], "scales": []}}, "as many scales"),
        ({"a": {"permutations": [[0]], "parents": 3}}, "parents by name"),
        ({"a": {"permutations": [[0]], "parents": ["a"]}}, "expected a inside nothing"),
        (
            {"a": {"permutations": [[0]], "parents": ["b"]}, "b": {"permutations": [[0]], "parents": ["a"]}},
            "expected b inside nothing",
        ),
        ({"a": {"permutations": [[0, 1]]}, "b": {"permutations": [[0]], "parents": ["a"]}}, "expected 2 copies of b"),
    ],
)
def test_hostile_json(found: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Element.from_dict(found)


@pytest.mark.parametrize("found", [None, {}, {"permutations": [[0.5, 1.2]], "scales": [[1.0, 1.0]]}])
def test_hostile_json_of_a_chain(found: object) -> None:
    with pytest.raises(InputError):
        Symmetry.from_dict(found)
