"""Compiled loops that can be stopped: they run in threads of their own, and who waits for them looks at the run.

A compiled function does not notice Ctrl-C, and while it runs in the main thread Python does not either. So it is given
a flag, which it looks at now and then, and the main thread stays free to see an interruption or the deadline and to set
the flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import threads
from fiberscope.run import ENDLESS, STOPPED, Run

_LOOK = 0.1
"""Seconds between two looks at the run."""


class Workers:
    """Threads for compiled functions whose last argument is the flag ``stop``; to be used as a context.

    >>> def kernel(out, stop):
    ...     out[0] = not stop[0]
    >>> with Workers() as workers:
    ...     workers.call(kernel, done := np.zeros(1))
    >>> done
    array([1.])
    """

    def __init__(self, run: Run = ENDLESS) -> None:
        self.run = run
        self.count = threads()
        self.stop = np.zeros(1, dtype=np.bool_)
        self._pool = ThreadPoolExecutor(self.count)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop[0] = True
        self._pool.shutdown(cancel_futures=True)

    def call(self, kernel: Callable[..., Any], *arguments: Any, short: bool = False) -> None:
        """Run a kernel, stopped with the run; one that is ``short`` at once: handing it over would cost as much."""
        if short:
            self.run.check()
            kernel(*arguments, self.stop)
        else:
            self.all(kernel, [arguments])

    def all(self, kernel: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
        """Run a kernel for many arguments, as many at a time as there are threads."""
        tasks = [self._pool.submit(kernel, *arguments, self.stop) for arguments in calls]
        try:
            self._wait(tasks)
        except STOPPED:
            self.stop[0] = True
            wait(tasks)
            raise
        for task in tasks:
            task.result()

    def _wait(self, tasks: list[Future[Any]]) -> None:
        self.run.check()
        while wait(tasks, timeout=_LOOK).not_done:
            self.run.check()
