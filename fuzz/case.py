"""What an area of the fuzzer is, and how one case of it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any


class Disagreement(Exception):
    """The library claims something that the judge knows to be false."""


class Undecided(Exception):
    """The library does not claim anything here; that is counted, and no fault."""


class Skipped(Exception):
    """The judge cannot tell, or the case makes no sense; it is not counted."""


class TooSlow(BaseException):
    """A case takes too long. Not an ``Exception``, so that nobody on the way takes it for his own."""


@dataclass(frozen=True)
class Area:
    """``make`` draws the arguments of one case, ``check`` judges them: it returns, or raises one of the above.

    Arguments are plain data with a ``repr`` that is Python source. An exception that is not the library's own is a
    disagreement as well.
    """

    name: str
    make: Callable[[Random], tuple[Any, ...]]
    check: Callable[..., None]


def expect(condition: bool, text: str) -> None:
    """Raise a :class:`Disagreement` unless the condition holds."""
    if not condition:
        raise Disagreement(text)


def float_of(x: Fraction) -> str:
    """Short, whatever its size."""
    try:
        return repr(float(x))
    except OverflowError:
        return f"about 2^{x.numerator.bit_length() - x.denominator.bit_length()}"


def case(area: Area, seed: int) -> tuple[Any, ...]:
    """The arguments of one case; the same ones always."""
    return area.make(Random(f"{area.name} {seed}"))
