"""A comparison that proves something refuses what is not a number: ``not x <= bound``, never ``x > bound``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fiberscope

ROOT = Path(fiberscope.__file__).parent
LIMITS = {"tolerance", "bound", "few", "ulps", "near", "allowed", "ROWS", "FEW", "share", "room"}
"""What a quantity has to stay below to prove something."""


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _refuses(body: list[ast.stmt]) -> bool:
    """Whether a branch gives up: it returns None or False, continues or raises."""
    last = body[-1]
    if isinstance(last, ast.Return):
        return last.value is None or (isinstance(last.value, ast.Constant) and last.value.value in (None, False))
    return isinstance(last, ast.Continue | ast.Raise)


def passes_nan(source: str) -> list[int]:
    """Lines with ``if x > limit: refuse``, where a number that is none goes on as proven."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.If) or not _refuses(node.body):
            continue
        for part in ast.walk(node.test):
            if not isinstance(part, ast.Compare) or len(part.ops) != 1:
                continue
            over = isinstance(part.ops[0], ast.Gt | ast.GtE) and _name(part.comparators[0]) in LIMITS
            under = isinstance(part.ops[0], ast.Lt | ast.LtE) and _name(part.left) in LIMITS
            negated = any(isinstance(n, ast.UnaryOp) and part in ast.walk(n) for n in ast.walk(node.test))
            if (over or under) and not negated:
                found.append(node.lineno)
    return found


PROVING = ("numerics", "network", "geometry/ranges", "fibers", "equality")


@pytest.mark.parametrize("path", [path for name in PROVING for path in sorted((ROOT / name).rglob("*.py"))])
def test_nothing_goes_on_with_what_is_not_a_number(path):
    assert passes_nan(path.read_text(encoding="utf-8")) == []


def test_the_pattern_is_seen():
    assert passes_nan("def f(x, bound):\n    if x > bound:\n        return None\n    return True\n") == [2]
    assert passes_nan("def f(x, bound):\n    if not x <= bound:\n        return None\n    return True\n") == []
