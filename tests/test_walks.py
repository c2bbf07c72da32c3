"""The walks of ``docs/architecture.md``, followed in the running program; and every path that the page names exists."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.test_layering import ORDER

import fiberscope as fs
from fiberscope.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "fiberscope"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATH = re.compile(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py|[a-z_]+(?:/[a-z_0-9]+)+)`")


def entered(call: Callable[[], Any]) -> dict[str, set[str]]:
    """The files of the package in whose functions a call comes, in the order of the first time; imports apart.

    Each with those that it calls; what is called through a foreign library counts as called by ours before it.
    """
    begin, seen = str(SOURCE) + "/", dict[str, set[str]]()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(begin) or frame.f_code.co_name == "<module>":
            return
        above, caller = frame.f_back, None
        while above is not None:
            if above.f_code.co_filename.startswith(begin):
                if above.f_code.co_name == "<module>":
                    return  # what a module does while it is loaded
                caller = caller or above.f_code.co_filename
            above = above.f_back
        seen.setdefault(name.removeprefix(begin), set())
        if caller is not None and caller != name:
            seen[caller.removeprefix(begin)].add(name.removeprefix(begin))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("walks"), np.random.default_rng(0)
    net = fs.Network.random((2, 8, 8, 1), 0)
    orders, scales = [rng.permutation(8) for _ in range(2)], [2.0 ** rng.integers(-3, 4, 8) for _ in range(2)]
    fs.save(net, place / "net.onnx")
    fs.save(net, place / "a.onnx")
    fs.save(fs.rescale(fs.permute(net, orders), scales), place / "b.onnx")
    np.save(place / "X.npy", rng.normal(size=(20, 2)))
    return place


def walks() -> dict[str, tuple[list[str], list[str]]]:
    """From the page: title of each walk, its command, and the modules in the order of the numbered lines."""
    found = {}
    for part in PAGE.split("## Three walks")[1].split("\n## ")[0].split("### ")[1:]:
        command = re.search(r"^\$ fiberscope (.*)$", part, re.MULTILINE)
        assert command is not None
        steps = re.findall(r"^\d+\. (.*(?:\n {3,}.*)*)", part, re.MULTILINE)
        found[part.splitlines()[0]] = (command[1].split(), [name for step in steps for name in PATH.findall(step)[:1]])
    return found


MOST = {"A count of regions": 40, "A verdict of equality, with its certificate": 50, "A functional dimension": 49}
"""Modules that each walk enters, down to the last check of an array."""

HAND_ON = {"A count of regions": 29, "A verdict of equality, with its certificate": 36, "A functional dimension": 35}
"""Those of them that call others: a reader has to follow these. The rest are leaves, read one by one or not at all."""

BOTH_WAYS = {"A count of regions": 0, "A verdict of equality, with its certificate": 0, "A functional dimension": 4}
"""Pairs of modules that call each other. The ranks of a dimension are asked with callbacks, by modules that are called
back."""


@pytest.mark.parametrize("title", walks())
def test_the_walk_is_as_the_page_says(title: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, steps = walks()[title]
    monkeypatch.chdir(folder)
    app(args=command, standalone_mode=False)  # compiles what is not in the cache, which enters modules of its own
    calls = entered(lambda: app(args=command, standalone_mode=False))
    order = list(calls)
    assert [step for step in steps if step not in order] == []
    assert [order.index(step) for step in steps] == sorted(order.index(step) for step in steps)
    assert len(order) <= MOST[title], " ".join(order)
    assert sum(map(bool, calls.values())) <= HAND_ON[title], [name for name in order if calls[name]]
    circles = {frozenset({one, two}) for one in order for two in calls[one] if one in calls[two]}
    assert len(circles) <= BOTH_WAYS[title], circles


def test_there_are_three_walks() -> None:
    assert walks().keys() == MOST.keys()
    assert all(len(steps) >= 7 for _, steps in walks().values())


def test_paths_on_the_page_exist() -> None:
    names = PATH.findall(PAGE)
    assert len(names) > 50
    missing = [name for name in names if not (SOURCE / name).exists() and not (ROOT / name).exists()]
    assert missing == []


def test_the_picture_shows_every_room() -> None:
    spec = spec_from_file_location("make_house", ROOT / "docs" / "make_house.py")
    assert spec is not None and spec.loader is not None
    house = module_from_spec(spec)
    spec.loader.exec_module(house)
    rooms = [room for floor in reversed(house.FLOORS) for room in floor]
    assert [name for name, _, _ in rooms] == list(ORDER)
    for name, _, inside in rooms:
        for part in inside.split():
            assert (SOURCE / name / part).is_dir() or (SOURCE / name / f"{part}.py").is_file(), (name, part)
    drawn = (ROOT / "docs" / "_static" / "house.svg").read_text(encoding="utf-8")
    assert drawn == house.picture(), "run python docs/make_house.py"
