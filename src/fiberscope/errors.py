"""The failures that fiberscope names: one base class, and below it what a caller may want to tell apart."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FiberscopeError(Exception):
    """Base of every error raised on purpose; its message fits on one line and says what to do."""


class InputError(FiberscopeError, ValueError):
    """The input is not what the question needs: says what was expected and what came."""


class UnsupportedModelError(FiberscopeError):
    """The model has a part that is not piecewise linear or not known: names the node."""


class NotGenericError(FiberscopeError):
    """The question makes no sense for this degenerate parameter: names the neurons at fault."""


class TooLargeError(FiberscopeError):
    """The answer would exceed the memory or the count allowed: gives the estimate and the limit.

    ``times`` is by how many times, where that is known.
    """

    def __init__(self, *args: object, times: float = 2.0) -> None:
        super().__init__(*args)
        self.times = times


class MissingExtraError(FiberscopeError, ImportError):
    """The question needs a library that is not installed: names the extra that brings it."""


class OutOfTimeError(FiberscopeError):
    """The time that was given is up, and nothing that was found so far is an answer."""


def hint(given: str, known: Iterable[str]) -> str:
    """A question that offers the closest known names, or nothing.

    >>> hint("f_1", ["f1", "f2", "mnist"])
    '; did you mean f1?'
    """
    close = difflib.get_close_matches(str(given), list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
