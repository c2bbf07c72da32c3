"""Branch and bound shared out: open boxes go to workers as tasks, and their subtrees come back; and a search that was
killed goes on from its open boxes.

A box is split if and only if its bound is above the goal, whoever does it. So the tree of a proof, and with it the
verdict and the certificate, is the same on every backend.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fiberscope.backends import Backend, outcomes
from fiberscope.equality.bounding.branching import Exactly, Search
from fiberscope.equality.bounding.trees import Cut, tree_of
from fiberscope.equality.certificates.claims import content_hash, domain_to_dict
from fiberscope.equality.question import Question, Record
from fiberscope.equality.refutation import excess
from fiberscope.errors import InputError
from fiberscope.files import write_atomically
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.run import ENDLESS

if TYPE_CHECKING:
    from fiberscope.equality.bounding.pairs import Pairing

SECONDS = 5.0
"""How long a worker stays at one box, and how often the state is written."""

PORTION = 4
"""Boxes for every place of a backend in one round: so that none waits long for the last one."""

STATE = "fiberscope open boxes 1"


@dataclass(frozen=True, slots=True, eq=False)
class OpenBox:
    """One open box, with all that a worker needs to go on with it."""

    key: str
    question: Question
    pairing: Pairing
    low: FloatArray
    high: FloatArray
    goal: float
    seconds: float


class Subtree(NamedTuple):
    """What a worker made of a box: its tree, the bounds of the leaves, and the best point that it saw."""

    tree: list[Cut | None]
    high: FloatArray
    dimension: IntArray
    opened: IntArray
    boxes: int
    x: FloatArray | None
    gap: float


def explored(task: OpenBox) -> Subtree:
    """What a worker does."""
    question = replace(task.question, run=ENDLESS, record=Record())
    bounder = task.pairing.bounder(question)
    assert bounder is not None  # it fitted where the task was made
    search = Search(bounder, task.low, task.high)

    def look(points: FloatArray) -> bool:
        return bool(excess(question, points).max(initial=-np.inf) > task.goal)

    search.go(task.goal, ENDLESS.within(task.seconds), look)
    left = {node: (-bound, d, opened) for bound, node, _, _, d, opened in search.heap}
    leaves = search.tree.graft_order()
    # what is proven is in the heap too; what is not there could not be split any more, and is open for ever
    kept = [left.get(node, (search.stuck, -1, 1)) for node in leaves]
    return Subtree(
        search.tree.preorder(),
        np.array([bound for bound, _, _ in kept]),
        np.array([d for _, d, _ in kept], dtype=np.int64),
        np.array([opened for _, _, opened in kept], dtype=np.int64),
        search.boxes,
        question.record.x,
        question.record.gap,
    )


def share_out(
    question: Question, pairing: Pairing, search: Search, goal: float, backend: Backend, exactly: Exactly | None
) -> bool:
    """Rounds of tasks until the goal is reached (true), a point passes it, or the time is up (false).

    After a round the state is written, if that is wanted.
    """
    run, number, written = question.run, 0, -math.inf
    bare = replace(question, run=ENDLESS, record=Record(), notes=[])
    places = max(1, backend.jobs) if backend.jobs != -1 else 8
    if not search.go(goal, run, None, exactly, most=search.boxes + 2 * PORTION * places) and not run.is_over:
        while not search.bound <= goal and not run.is_over and not search.spent(goal):
            taken = search.take(PORTION * places, goal, exactly)
            seconds = max(0.1, min(SECONDS, run.seconds_left))
            tasks = [
                OpenBox(f"{number + k}", bare, pairing, low, high, goal, seconds)
                for k, (_, _, low, high, _, _) in enumerate(taken)
            ]
            waiting = {task.key: entry for task, entry in zip(tasks, taken, strict=True)}
            number += len(tasks)
            for found in outcomes(explored, tasks, backend):
                if not found.final:
                    continue
                entry = waiting.pop(found.task.key)
                if found.error:
                    raise InputError(f"a worker failed: {found.error}")
                _joined(question, search, entry, found.value)
            run.report(search.boxes, None, f"bound {search.bound:.4g}, {len(search.heap)} boxes open")
            if question.state is not None and time.monotonic() - written > SECONDS:
                save_state(question.state, question, pairing, search)
                written = time.monotonic()
            if question.record.gap > goal:
                return False
    return search.bound <= goal


def _joined(question: Question, search: Search, entry: Any, part: Subtree) -> None:
    """The subtree of a worker in the place of its box."""
    _, node, low, high, _, _ = entry
    search.put(node, low, high, part.tree, part.high, part.dimension, part.opened)
    search.boxes += part.boxes
    if part.x is not None:
        question.record.see(part.x[None], np.array([part.gap]))


# -- killed and begun again ----------------------------------------------------------------------------------------


def _mark(question: Question) -> dict[str, Any]:
    """What a state belongs to."""
    return {
        "format": STATE,
        "models": [content_hash(question.a), content_hash(question.b)],
        "domain": domain_to_dict(question.domain),
        "tolerance": question.tolerance,
        "margin": question.margin,
    }


def save_state(path: Path, question: Question, pairing: Pairing, search: Search) -> None:
    """Write the tree so far; its leaves are the boxes that are open, or closed already."""
    matching = pairing.matching
    found = {
        **_mark(question),
        "method": pairing.method,
        "matching": None if matching is None else matching.to_dict(),
        "tree": search.tree.preorder(),
        "x": None if question.record.x is None else question.record.x.tolist(),
    }
    write_atomically(path, json.dumps(found) + "\n")


def load_state(path: Path, question: Question) -> tuple[dict[str, Any], tuple[Cut | None, ...]] | None:
    """The state of an earlier run on the same question; None where there is none. Bounds are computed again."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected the state of a search, got something else") from error
    mark = json.loads(json.dumps(_mark(question)))
    if not isinstance(found, dict) or any(found.get(name) != value for name, value in mark.items()):
        raise InputError(f"{path}: expected the state of a search on this question, got that of another")
    return found, tree_of(found.get("tree"))
