"""Three laws that count their examples, run by test_profiles.py in a process of its own."""

from __future__ import annotations

import ast
import os

from hypothesis import given, settings
from hypothesis import strategies as st

DRAWN = [0, 0, 0]


@settings(max_examples=7)
@given(st.integers())
def test_few_of_its_own(_: int) -> None:
    DRAWN[0] += 1


@settings(max_examples=300)
@given(st.integers())
def test_many_of_its_own(_: int) -> None:
    DRAWN[1] += 1


@given(st.integers())
def test_as_the_profile_says(_: int) -> None:
    DRAWN[2] += 1


def test_how_many_were_drawn() -> None:
    assert ast.literal_eval(os.environ["EXPECTED"]) == tuple(DRAWN)
