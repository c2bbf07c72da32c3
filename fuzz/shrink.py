"""Make a failing case smaller: fewer and shorter numbers, as long as it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .oracle.program import Program


def shrunk(arguments: tuple[Any, ...], fails: Callable[[tuple[Any, ...]], bool], seconds: float) -> tuple[Any, ...]:
    """Greedy: take the first simpler case that still fails, again and again."""
    end = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for candidate in _simpler(arguments):
            if time.monotonic() > end:
                return arguments
            if fails(candidate):
                arguments, progress = candidate, True
                break
    return arguments


def _simpler(arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for k, value in enumerate(arguments):
        if isinstance(value, Program):
            for program in _simpler_programs(value):
                yield (*arguments[:k], program, *arguments[k + 1 :])


def _simpler_programs(program: Program) -> Iterator[Program]:
    clipped = {first + k for first, *_ in program.clips for k in range(6)}
    for index, node in enumerate(program.nodes):
        if node[0] != "affine" or index in clipped:
            continue
        rows = [*node[2], node[3]]
        for i, row in enumerate(rows):
            for j, x in enumerate(row):
                for y in _simpler_numbers(x):
                    new = [list(r) for r in rows]
                    new[i][j] = y
                    changed = ("affine", node[1], tuple(map(tuple, new[:-1])), tuple(new[-1]))
                    yield replace(program, nodes=(*program.nodes[:index], changed, *program.nodes[index + 1 :]))


def _simpler_numbers(x: float) -> list[float]:
    if x == 0:
        return []
    found = [0.0] + [y for y in (1.0, -1.0) if abs(x) != 1 and (y > 0) == (x > 0)]
    short = round(x, 1)
    return [*found, short] if short not in (x, 0.0) and abs(x) < 1e6 else found
