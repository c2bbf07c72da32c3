"""Where tasks run: one after the other, in processes here, on a dask or ray cluster, or on any joblib backend.

Tasks come back in any order, each as an :class:`Outcome`. A task that raises is one bad outcome. A worker that dies
takes its pool with it; the pool is then made anew, and after the second death tasks run alone, so that the one at
fault is found.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, TypeVar

import joblib
from joblib.parallel import BACKENDS, EXTERNAL_BACKENDS

from fiberscope import __version__
from fiberscope.errors import InputError, hint
from fiberscope.extras import import_module

try:  # not a dependency of ours, but of many libraries that people have
    import threadpoolctl  # type: ignore[import-untyped, unused-ignore]
except ImportError:
    threadpoolctl = None

DASK, RAY = "dask://", "ray://"
CONNECT_SECONDS = 5.0
ATTEMPTS = 2


class Task(Protocol):
    """A piece of work that needs nothing from the others, with a name of its own; it travels to a worker."""

    @property
    def key(self) -> str: ...


T = TypeVar("T", bound=Task)

Work = Callable[[Any], Any]
"""What is done to a task. It travels too, so it must be such that pickle can name it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one attempt at a task: its value, or the error's text. ``final``: it is not tried again."""

    task: Any
    value: Any
    error: str
    seconds: float
    attempt: int = 1
    final: bool = True


@dataclass(frozen=True, slots=True)
class Backend:
    """Where to run; ``jobs`` is how many tasks at a time (-1: as many as the cluster has places)."""

    name: str
    jobs: int
    address: str | None = None

    def __str__(self) -> str:
        return f"{self.name}, {self.jobs} at a time" if self.address is None else f"{self.name}://{self.address}"


def choose_backend(jobs: int | None, cluster: str | None) -> Backend:
    """``cluster``: None or ``"local"``, ``"dask://HOST:PORT"``, ``"ray"`` (started here), ``"ray://HOST:PORT"``, or the
    name of a joblib backend.
    """
    if jobs is not None and (isinstance(jobs, bool) or int(jobs) != jobs or (jobs < 1 and jobs != -1)):
        raise InputError(f"jobs: expected a positive integer, or -1 for all cores, got {jobs!r}")
    cores = os.cpu_count() or 1
    count = cores if jobs is None or jobs == -1 else int(jobs)
    if cluster in (None, "local", "loky"):
        return Backend("sequential" if count == 1 else "loky", count)
    name = str(cluster)
    if name.startswith(DASK):
        return Backend("dask", -1 if jobs is None else int(jobs), name.removeprefix(DASK).rstrip("/"))
    if name == "ray" or name.startswith(RAY):
        return Backend("ray", count, name.removeprefix(RAY).rstrip("/") if name.startswith(RAY) else None)
    others = (set(BACKENDS) | set(EXTERNAL_BACKENDS)) - {"dask", "ray"}
    known = ["local", f"{DASK}HOST:PORT", "ray", f"{RAY}HOST:PORT", *sorted(others)]
    if name not in known:
        raise InputError(f"cluster: expected one of {', '.join(known)}, got {name!r}{hint(name, known)}")
    return Backend(name, count)


def outcomes(work: Work, tasks: Sequence[T], backend: Backend, client: Any = None) -> Iterator[Outcome]:
    """Run all tasks; a bad one is tried a second time. ``client``: a cluster's, if the caller is connected already."""
    tries: Counter[str] = Counter()
    waiting = list(tasks)
    deaths = 0
    with ExitStack() as stack:
        if client is None:
            client = stack.enter_context(connected(backend))
        while waiting:
            # After two deaths alone: then it is clear whose fault the third is.
            now, later = (waiting, []) if deaths < 2 else (waiting[:1], waiting[1:])
            seen: set[str] = set()
            again: list[T] = []
            try:
                for found in _pool(work, now, backend, client):
                    seen.add(found.task.key)
                    tries[found.task.key] += 1
                    final = not found.error or tries[found.task.key] >= ATTEMPTS
                    yield _numbered(found, tries[found.task.key], final)
                    if not final:
                        again.append(found.task)
            except InputError:
                raise
            except Exception as error:  # the pool's own failure; tasks' errors come back as outcomes
                _still_there(backend, error)
                deaths += 1
                lost = [task for task in now if task.key not in seen]
                if len(now) == 1 and lost:
                    tries[lost[0].key] += 1
                    final = tries[lost[0].key] >= ATTEMPTS
                    text = f"the worker died: {type(error).__name__}: {_first_line(error)}"
                    yield Outcome(lost[0], None, text, 0.0, tries[lost[0].key], final)
                    lost = [] if final else lost
                again += lost
            waiting = again + later


def execute(work: Work, task: Task) -> Outcome:
    """Run one task here; whatever it raises comes back as text."""
    begin = time.perf_counter()
    value, error = None, ""
    try:
        with one_thread():
            value = work(task)
    except Exception as caught:
        error = f"{type(caught).__name__}: {_first_line(caught)} ({_place(caught)})"
    return Outcome(task, value, error, time.perf_counter() - begin)


def _execute_there(work: Work, task: Task, version: str, parent: int | None) -> Outcome:
    """As :func:`execute`, on a worker: its fiberscope must be ours, or the results would mix two versions."""
    if parent is not None:
        _leave_with(parent)
    if version != __version__:
        return Outcome(task, None, f"the worker has fiberscope {__version__}, expected {version}", 0.0)
    return execute(work, task)


@cache
def _leave_with(parent: int) -> None:
    """End this worker soon after its parent: one that was killed cannot say goodbye, and its tasks are nobody's."""
    if os.getppid() != parent:  # not its child, so there is nothing to watch
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _pool(work: Work, tasks: Sequence[Task], backend: Backend, client: Any) -> Iterator[Outcome]:
    """One pass over the tasks; raises when the pool breaks."""
    if backend.name == "sequential":
        for task in tasks:
            yield execute(work, task)
        return
    if backend.name == "ray":
        yield from _ray_pool(work, tasks, client)
        return
    settings: dict[str, Any] = {"backend": backend.name, "n_jobs": backend.jobs}
    if backend.name == "loky":
        # A pool of one would be no pool: joblib runs it in this process, where a dying task takes everything along.
        settings |= {"inner_max_num_threads": 1, "n_jobs": max(2, backend.jobs)}
    if client is not None:
        settings["client"] = client
    with joblib.parallel_config(**settings):
        parent = os.getpid() if backend.name in {"loky", "multiprocessing"} else None
        calls = [joblib.delayed(_execute_there)(work, task, __version__, parent) for task in tasks]
        try:
            parallel = joblib.Parallel(batch_size=1, return_as="generator_unordered")
        except ValueError:  # a backend that can only give everything back at once: small portions then
            portion = 4 * max(1, abs(backend.jobs))
            for start in range(0, len(calls), portion):
                yield from joblib.Parallel(batch_size=1)(calls[start : start + portion])
            return
        yield from parallel(calls)


# -- clusters ------------------------------------------------------------------------------------------------------


def connected(backend: Backend) -> AbstractContextManager[Any]:
    """A client of the cluster for as long as it is needed; nothing for the other backends."""
    if backend.address is not None:
        _reach(backend.address)
    if backend.name == "ray":
        return _ray(backend)
    return nullcontext(None) if backend.address is None else _dask(backend.address)


@contextmanager
def _ray(backend: Backend) -> Iterator[Any]:
    """Ray, started here with so many places or asked at ``HOST:PORT``, for as long as it is needed."""
    ray = import_module("ray", "cluster=")
    where = {"num_cpus": backend.jobs, "include_dashboard": False} if backend.address is None else {}
    address = None if backend.address is None else f"{RAY}{backend.address}"
    try:
        ray.init(address, log_to_driver=False, **where)
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"cluster: expected ray at {address or 'this machine'}, got {_first_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _ray_pool(work: Work, tasks: Sequence[Task], ray: Any) -> Iterator[Outcome]:
    """One pass over the tasks; a worker that dies raises here, and ``outcomes`` finds out whose fault it is."""
    execute_there = ray.remote(max_retries=0, num_cpus=1)(_execute_there)
    waiting = [execute_there.remote(work, task, __version__, None) for task in tasks]
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        yield from ray.get(done)


@contextmanager
def _dask(address: str) -> Iterator[Any]:
    """A client of the scheduler at ``HOST:PORT``; a cluster without a worker is refused, for nothing would be done."""
    distributed = import_module("distributed", "cluster=")
    try:
        client = distributed.Client(f"tcp://{address}", timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"cluster: expected a dask scheduler at {address}, got {type(error).__name__}") from error
    try:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            raise InputError(f"cluster: expected at least one worker at {address}, got none") from error
        yield client
    finally:
        client.close()


def _reach(address: str) -> None:
    """A quick knock at the door, because a client would wait half a minute before it says the same."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"cluster: expected {DASK}HOST:PORT, got {DASK}{address}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"cluster: expected a dask scheduler at {address}, got no answer ({error})") from error


def _still_there(backend: Backend, error: Exception) -> None:
    if backend.address is None:
        return
    try:
        _reach(backend.address)
    except InputError as gone:
        raise InputError(f"{gone}; finished tasks are kept, run the same again to go on") from error


# -- the same numbers everywhere -------------------------------------------------------------------------------------


@contextmanager
def one_thread() -> Iterator[None]:
    """Numerical libraries on one thread: sums split over threads depend on how many there are."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 1
    limits = nullcontext() if threadpoolctl is None else threadpoolctl.threadpool_limits(1)
    with limits:
        if torch is not None:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


def _numbered(found: Outcome, attempt: int, final: bool) -> Outcome:
    return replace(found, attempt=attempt, final=final)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "unknown place"
