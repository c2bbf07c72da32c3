"""Progress, limit, deadline and interruption as one object."""

from __future__ import annotations

import math
import time

import pytest

from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.run import ENDLESS, STOPPED, Run


def test_a_step_reports_and_then_looks_at_the_clock() -> None:
    seen: list[tuple[int, int | None, str]] = []
    run = Run(lambda *args: seen.append(args), deadline=time.monotonic() - 1)
    with pytest.raises(OutOfTimeError, match="time is up"):
        run.step(3, 10, "three")
    assert seen == [(3, 10, "three")]


def test_without_a_deadline_time_never_ends() -> None:
    assert ENDLESS.seconds_left == math.inf
    assert not ENDLESS.is_over
    ENDLESS.check()


def test_an_attempt_never_outlives_its_run() -> None:
    run = Run.begin(time_limit=1.0)
    assert run.within(100.0).deadline == run.deadline
    assert run.within(0.0).is_over
    assert run.quietly().progress is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_a_time_limit_is_a_positive_number(seconds: float) -> None:
    with pytest.raises(InputError, match="time_limit: expected a positive number"):
        Run.begin(time_limit=seconds)


def test_a_deadline_that_is_not_a_number_is_over() -> None:
    assert Run(deadline=math.nan).is_over


def test_both_ways_to_stop_are_caught_together() -> None:
    def interrupt(done: int, total: int | None, text: str) -> None:
        raise KeyboardInterrupt

    for run in (Run(interrupt), Run(deadline=0.0)):
        with pytest.raises(STOPPED):
            run.step(1)
