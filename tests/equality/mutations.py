"""Every way to change a piece of JSON a little: numbers nudged, swapped, removed, of a wrong kind, lists reordered."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

Path = tuple[Any, ...]

STRANGE: tuple[Any, ...] = (None, True, "NaN", "Infinity", "", [], {}, -1, 10**400, 1.5, float("nan"), float("inf"))
"""Values of other kinds; those that are not numbers are written as JSON writes them in Python."""


def leaves(found: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of everything inside, the containers too."""
    yield path
    if isinstance(found, dict):
        for key, part in found.items():
            yield from leaves(part, (*path, key))
    elif isinstance(found, list):
        for k, part in enumerate(found):
            yield from leaves(part, (*path, k))


def at(found: Any, path: Path) -> Any:
    """What stands at a path."""
    for key in path:
        found = found[key]
    return found


def changed(value: Any) -> Iterator[Any]:
    """Other values for one place."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, -value, value + 0.5)
    elif isinstance(value, float):
        yield from (math.nextafter(value, math.inf), math.nextafter(value, -math.inf), -value, 2 * value, 1e308)
    elif isinstance(value, str):
        yield from (value + "x", value[:-1], value.upper() if value.upper() != value else value.lower())
    elif isinstance(value, list) and value:
        yield from (value[:-1], [*value, value[-1]], value[::-1], [value[-1], *value[:-1]])
    elif isinstance(value, dict) and value:
        yield from ({**value, "more": 0}, dict(list(value.items())[:-1]))
    yield from (strange for strange in STRANGE if type(strange) is not type(value) or strange != value)


def mutants(found: Any, skip: tuple[str, ...] = (), most: int = 10**9) -> Iterator[tuple[Path, Any]]:
    """Changed copies with the path of the change; ``most`` places inside of any one list are tried, ends included."""
    for path in leaves(found):
        if not path or path[0] in skip or any(isinstance(k, int) and k >= most for k in path[1:]):
            continue
        if path:
            made = copy.deepcopy(found)
            del at(made, path[:-1])[path[-1]]
            yield path, made
        for value in changed(at(found, path)):
            if _same(value, at(found, path)):
                continue
            made = copy.deepcopy(found)
            at(made, path[:-1])[path[-1]] = value
            yield path, made


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, bool) == isinstance(b, bool) and a == b
