"""What a page may ask: messages are checked here, field by field, before anything is done."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fiberscope.errors import InputError

MOST_TEXT = 200_000
"""Characters of one message."""


def parse(text: str) -> dict[str, Any]:
    """A message as a dictionary with a string under ``do``.

    >>> parse('{"do": "hello"}')
    {'do': 'hello'}
    >>> parse('[1]')
    Traceback (most recent call last):
    fiberscope.errors.InputError: message: expected an object with a field "do", got list
    """
    if len(text) > MOST_TEXT:
        raise InputError(f"message: expected at most {MOST_TEXT:,} characters, got {len(text):,}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("message: expected JSON") from error
    if not isinstance(found, dict) or not isinstance(found.get("do"), str):
        raise InputError(f'message: expected an object with a field "do", got {type(found).__name__}')
    return found


def integer(message: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``, both included."""
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name}: expected a whole number from {low} to {high}, got {_short(value)}")
    return value


def number(message: Mapping[str, Any], name: str, reach: float = 1e9) -> float:
    """A finite number of at most this size."""
    return _number(message.get(name), name, reach)


def pair(message: Mapping[str, Any], name: str, reach: float = 1e9) -> tuple[float, float]:
    """Two finite numbers."""
    value = message.get(name)
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{name}: expected two numbers, got {_short(value)}")
    return _number(value[0], name, reach), _number(value[1], name, reach)


def one_of(message: Mapping[str, Any], name: str, known: Sequence[str]) -> str:
    """One of some words."""
    value = message.get(name)
    if value not in known:
        raise InputError(f"{name}: expected one of {', '.join(known)}, got {_short(value)}")
    return str(value)


def integers(message: Mapping[str, Any], name: str, low: int, high: int, most: int) -> tuple[int, ...]:
    """At least one and at most so many whole numbers."""
    value = message.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise InputError(f"{name}: expected 1 to {most} whole numbers, got {_short(value)}")
    return tuple(integer({name: entry}, name, low, high) for entry in value)


def _number(value: Any, name: str, reach: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > reach:
        raise InputError(f"{name}: expected a number of size at most {reach:g}, got {_short(value)}")
    return float(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
