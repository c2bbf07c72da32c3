"""Every public function shows an example; pytest itself runs them (``--doctest-modules`` on ``src``)."""

from __future__ import annotations

import doctest
import inspect

import pytest

import fiberscope


def shows_example(value: object) -> bool:
    """Whether a docstring holds at least one prompt."""
    return bool(doctest.DocTestParser().get_examples(inspect.getdoc(value) or ""))


@pytest.mark.parametrize("name", sorted(fiberscope._NAMES))
def test_public_function_shows_an_example(name: str) -> None:
    value = getattr(fiberscope, name)
    if inspect.isfunction(value):
        assert shows_example(value), f"fs.{name}: the docstring has no example"


def test_network_shows_an_example() -> None:
    assert shows_example(fiberscope.Network)


def test_src_is_among_the_collected_paths(pytestconfig: pytest.Config) -> None:
    assert "src" in pytestconfig.getini("testpaths")
    assert pytestconfig.getoption("doctestmodules")


def test_shows_example_can_say_no() -> None:
    def without() -> None:
        """No prompt here."""

    assert not shows_example(without)
