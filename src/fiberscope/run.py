"""How a long piece of work is watched: progress, limit, deadline and interruption as one object that is handed on.

Every loop that can take longer than a second calls :meth:`Run.step` (or :meth:`Run.check`, where there is nothing to
report) at least once a second. Ctrl-C arrives there as ``KeyboardInterrupt``, a deadline as :class:`OutOfTimeError`;
``except STOPPED`` catches both where a part of the answer is worth returning, marked as incomplete.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from types import FrameType
from typing import Any

from fiberscope.errors import InputError, OutOfTimeError

Progress = Callable[[int, int | None, str], Any]
"""Called as ``progress(done, total, text)``; may raise ``KeyboardInterrupt`` to stop. The total may be unknown."""

STOPPED = (KeyboardInterrupt, OutOfTimeError)
"""What ends a run early."""


@dataclass(frozen=True, slots=True)
class Run:
    """Who is told of the progress, the moment of :func:`time.monotonic` at which to give up, and the most to find.

    ``guard`` is called once by what is built, when it becomes large, and raises where it would become too large.

    >>> run = Run.begin(time_limit=60.0)
    >>> run.step(1, 10, "first of ten")
    >>> run.within(0.0).is_over
    True
    """

    progress: Progress | None = None
    deadline: float = math.inf
    limit: int | None = None
    guard: Callable[[], None] | None = None

    @classmethod
    def begin(cls, progress: Progress | None = None, time_limit: float | None = None, limit: int | None = None) -> Run:
        """A run that starts now; ``time_limit`` is in seconds, None for as long as it takes."""
        if time_limit is not None and not time_limit > 0:
            raise InputError(f"time_limit: expected a positive number of seconds, got {time_limit}")
        if limit is not None and not limit >= 1:
            raise InputError(f"limit: expected a positive number, got {limit}")
        return cls(progress, math.inf if time_limit is None else time.monotonic() + time_limit, limit)

    @property
    def seconds_left(self) -> float:
        """Until the deadline; negative behind it."""
        return self.deadline - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return not self.seconds_left > 0

    def within(self, seconds: float) -> Run:
        """The same run with at most so many seconds from now on, for one of several attempts."""
        return replace(self, deadline=min(self.deadline, time.monotonic() + seconds))

    def quietly(self) -> Run:
        """The same run without reports, for a part whose steps are not those that were announced."""
        return replace(self, progress=None)

    def check(self) -> None:
        """Raise :class:`OutOfTimeError` behind the deadline."""
        if self.is_over:
            raise OutOfTimeError("the time is up; give a longer time limit or a smaller question")

    def report(self, done: int, total: int | None = None, text: str = "") -> None:
        """Tell that ``done`` of ``total`` is done."""
        if self.progress is not None:
            self.progress(done, total, text)

    def step(self, done: int, total: int | None = None, text: str = "") -> None:
        """Report, and look at the clock."""
        self.report(done, total, text)
        self.check()


def show_progress(label: str = "", every: float = 0.2) -> Progress:
    """A bar to be given as ``progress=``: in a notebook below the cell, elsewhere one line on standard error.

    It is drawn at most once in ``every`` seconds, so that showing it costs nothing.

    >>> from fiberscope.network.network import Network
    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.regions import regions
    >>> regions(Network.random((2, 3, 1), seed=0), Box.cube(2), progress=show_progress("regions")).num_regions
    2
    """
    draw = _drawn_below_the_cell() if in_notebook() else _drawn_on_one_line
    last = [-math.inf]

    def progress(done: int, total: int | None, text: str = "") -> None:
        now = time.monotonic()
        if now - last[0] >= every or done == total:
            last[0] = now
            draw(done, total, ": ".join(part for part in (label, text) if part))

    return progress


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook, whose output is HTML."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def _drawn_on_one_line(done: int, total: int | None, text: str) -> None:
    if sys.stderr.isatty():
        of = "" if total is None else f" of {total}"
        print(f"\r\x1b[K{text} {done}{of}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _drawn_below_the_cell() -> Callable[[int, int | None, str], None]:
    """One element that is replaced; it is made when there is something to show."""
    show = import_module("IPython.display")
    handle: list[Any] = []

    def draw(done: int, total: int | None, text: str) -> None:
        share = "" if total is None else f' value="{done}" max="{total}"'
        of = "" if total is None else f" of {total}"
        page = show.HTML(f"<label>{escape(text)} <progress{share}></progress> {done}{of}</label>")
        if handle:
            handle[0].update(page)
        else:
            handle.append(show.display(page, display_id=True))

    return draw


@contextmanager
def noticed_interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed inside, also where it only ended a part whose incomplete answer was returned."""
    pressed: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.getsignal(signal.SIGINT)

    def notice(number: int, frame: FrameType | None) -> None:
        pressed.append(True)
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, notice)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


ENDLESS = Run()
"""A run without a deadline that nobody watches."""
