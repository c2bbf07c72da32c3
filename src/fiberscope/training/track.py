"""Trackers: what a network is like at chosen moments of anybody's training loop, kept in memory and in a file."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fiberscope import __version__
from fiberscope.errors import FiberscopeError, InputError, UnsupportedModelError
from fiberscope.network.border import loaded
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.live import LiveModule
from fiberscope.training.quantities import OF_MODULES, State, distance_from_start, find_quantity
from fiberscope.training.records import LineFile, number, plain, read_lines

DEFAULT_QUANTITIES = ("loss", "regions_sampled", "fixed_neurons")


@dataclass(frozen=True, slots=True)
class Record(Result):
    """The quantities of one run at one step; one that could not be computed is ``{"error": reason}``."""

    step: int
    run: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Overhead(Result):
    """What tracking cost: seconds in the tracker, and their fraction of all time since it began."""

    seconds: float
    fraction: float
    records: int

    def __repr__(self) -> str:
        return f"Overhead({self.seconds:.3g} s, {self.fraction:.1%} of the time, {self.records} records)"


class Tracker:
    """Made by :func:`track`. Call it after every step; or give an optimiser and use it as a context."""

    def __init__(
        self,
        source: Any,
        data: Any,
        every: int,
        quantities: Sequence[str],
        file: str | Path | None,
        optimizer: Any,
        log: Callable[[Record], Any] | None = None,
    ) -> None:
        self._began = time.perf_counter()
        if int(every) != every or every < 1:
            raise InputError(f"every: expected a positive integer, got {every!r}")
        if isinstance(quantities, str) or not quantities:
            raise InputError(f"quantities: expected a list of names, got {quantities!r}")
        self.every = int(every)
        self.quantities = {name: find_quantity(name) for name in quantities}
        self._source = source
        self._optimizer = optimizer
        self._log = log
        self._hook: Any = None
        self._data = _data(data)
        self._steps = 0
        self._start: dict[int, Network | LiveModule] = {}
        self._saved: dict[int, dict[str, FloatArray]] = {}  # first parameters of the runs in a continued file
        self._keeps_start = any(_may_need_start(quantity) for quantity in self.quantities.values())
        self._records: list[Record] = []
        self._file: LineFile | None = None
        if source is not None:
            _check_quantities(_network(source, self._data), self.quantities)  # refuse now what could never be recorded
        if file is not None:
            self._open(Path(file), data)
        self._seconds = time.perf_counter() - self._began
        self._ended: float | None = None

    def _open(self, path: Path, data: Any) -> None:
        header = plain(
            {
                "tracker": {
                    "fiberscope": __version__,
                    "every": self.every,
                    "quantities": list(self.quantities),
                    "data": data.sha256 if isinstance(data, Dataset) else None,
                    "start": self._keeps_start,
                }
            }
        )
        file = LineFile(path, header)
        try:
            self._records, self._saved = _recorded(file.existing), _starts(file.existing)
            if self._source is not None and 0 in self._saved:
                _with_saved(_network(self._source, self._data), self._saved[0])  # refuse another architecture now
        except FiberscopeError:
            file.close()
            raise
        self._file = file
        self._steps = max((record.step + 1 for record in self._records), default=0)

    # -- during training -------------------------------------------------------------------------------------------

    def wants(self, step: int) -> bool:
        """Whether this step is one to be recorded."""
        return step % self.every == 0

    def __call__(self, step: int | None = None, loss: float | None = None) -> Record | None:
        """The callback: records if the step is a multiple of ``every``; without a step it counts its calls."""
        step = self._steps if step is None else int(step)
        self._steps = step + 1
        if not self.wants(step):
            return None
        return self.record(step, loss=None if loss is None else float(loss))

    def record(
        self,
        step: int,
        *,
        run: int = 0,
        network: Network | None = None,
        data: tuple[FloatArray, npt.NDArray[Any] | None] | None = None,
        loss: float | None = None,
    ) -> Record:
        """Record now. ``network`` and ``data`` stand in for the tracker's own, as in a training of many runs."""
        begin = time.perf_counter()
        inputs, targets = self._data or data or (None, None)
        if inputs is None:
            raise InputError("track: expected data, got None")
        values: dict[str, Any] = {}
        try:
            net = network if network is not None else _network(self._source, (inputs, targets))
        except FiberscopeError as error:  # diverged weights end a record, not somebody's training
            values = {name: {"error": str(error)} for name in self.quantities}
        else:
            points = inputs if isinstance(net, LiveModule) else batch(inputs, net.in_size)
            values = self._values(step, run, net, points, targets, loss)
        record = Record(int(step), int(run), values)
        self._records.append(record)
        if self._file is not None:
            self._file.append(record)
        if self._log is not None:
            self._log(record)
        self._seconds += time.perf_counter() - begin
        return record

    def _values(
        self,
        step: int,
        run: int,
        network: Network | LiveModule,
        inputs: FloatArray,
        targets: npt.NDArray[Any] | None,
        loss: float | None,
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        try:
            state = State(step, run, network, inputs, targets, self._first(run, network), loss)
        except FiberscopeError as error:
            return {name: {"error": str(error)} for name in self.quantities}
        for name, quantity in self.quantities.items():
            try:
                values[name] = plain(quantity(state))
            except FiberscopeError as error:
                values[name] = {"error": str(error)}
        return values

    def _first(self, run: int, network: Network | LiveModule) -> Network | LiveModule:
        """The first recorded network of a run: from memory, from the file that is continued, or this one."""
        if run not in self._start:
            if run in self._saved:
                self._start[run] = _with_saved(network, self._saved[run])
            else:
                self._start[run] = network
                if self._file is not None and self._keeps_start:
                    self._file.append({"start": {"run": run, "parameters": _packed(network.parameters)}})
        return self._start[run]

    # -- as a context ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._optimizer is not None:
            if not hasattr(self._optimizer, "register_step_post_hook"):
                name = type(self._optimizer).__name__
                raise InputError(f"optimizer: expected a torch.optim.Optimizer, got {name}")
            if not self._records:
                self()  # step 0: before the first update; a continued file has that moment already
            self._hook = self._optimizer.register_step_post_hook(lambda *_: self() and None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, write down the overhead, close the file. Closing twice is harmless."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if self._ended is None:
            self._ended = time.perf_counter()
        if self._file is not None:
            self._file.append({"overhead": self.overhead})
            self._file.close()
            self._file = None

    # -- afterwards ------------------------------------------------------------------------------------------------

    @property
    def records(self) -> tuple[Record, ...]:
        """By run and step; where a step was recorded twice (a training taken up again), the later record."""
        return _in_order(self._records)

    @property
    def overhead(self) -> Overhead:
        """What tracking has cost so far."""
        end = time.perf_counter() if self._ended is None else self._ended
        total = max(end - self._began, self._seconds, 1e-12)
        return Overhead(self._seconds, self._seconds / total, len(self._records))

    def series(self, quantity: str, run: int = 0) -> tuple[list[int], list[Any]]:
        """Steps and values of one quantity of one run."""
        if quantity not in self.quantities:
            raise InputError(f"quantity: expected one of {', '.join(self.quantities)}, got {quantity!r}")
        chosen = [record for record in self.records if record.run == run]
        return [record.step for record in chosen], [number(record.values[quantity]) for record in chosen]

    def __repr__(self) -> str:
        return f"Tracker({', '.join(self.quantities)}; every {self.every}; {self.overhead!r})"


def track(
    source: Any,
    data: Any = None,
    every: int = 1,
    quantities: Sequence[str] = DEFAULT_QUANTITIES,
    *,
    file: str | Path | None = None,
    optimizer: Any = None,
    log: Callable[[Record], Any] | None = None,
) -> Tracker:
    """Record named quantities of a network while somebody trains it.

    Parameters
    ----------
    source
        The torch module that is being trained; a :class:`Network`; or None for use inside ``train_many``. A module that
        is no piecewise linear network has the quantities that need derivatives only (kernels, numerical ranks with
        their warnings, norms, losses); others are refused.
    data
        A :class:`Dataset`, a pair ``(inputs, targets)``, or inputs ``(points, n_0)`` alone. None (only inside
        ``train_many``): every run's own data.
    every
        Record the steps that are multiples of this; a step is whatever the caller counts, epochs or updates.
    quantities
        Names from :func:`fiberscope.training.quantities.list_quantities`.
    file
        Append each record to this file as a line of JSON, flushed to the disk. A file of the same tracker is
        continued, and a line that a crash cut short is dropped; any other file is refused and left as it is. A
        continued tracker that counts by itself goes on at the last recorded step + 1: steps that were made but not
        recorded are counted again, so pass the step where that matters. The first network of each run is kept in the
        file where a quantity may need it, so ``distance_from_start`` counts from the very first record.
    optimizer
        With one, ``with track(...)`` records by itself: before the first update (step 0) and after every
        ``every``-th ``optimizer.step()``. Where a file is continued nothing is recorded before the first update,
        which is the last recorded step + 1.
    log
        Called with every new record, such as :func:`fiberscope.tensorboard_log` or :func:`fiberscope.wandb_log`.

    Examples
    --------
    As a callback on a network that does not move:

    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> tracker = track(net, np.array([[-2.0], [-1.0], [3.0]]), every=10, quantities=["regions_sampled"])
    >>> for step in range(21):
    ...     record = tracker(step)
    >>> tracker.series("regions_sampled")
    ([0, 10, 20], [2, 2, 2])
    """
    if source is not None and data is None:
        raise InputError("data: expected inputs to look at the network on, got None")
    return Tracker(source, data, every, quantities, file, optimizer, log)


def read_track(path: str | Path) -> tuple[Record, ...]:
    """The records of a tracker's file, as :attr:`Tracker.records`; also of one whose writer crashed.

    >>> import tempfile
    >>> net = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tracker = track(net, np.array([[1.0]]), quantities=["regions_sampled"], file=f"{folder}/run.jsonl")
    ...     _ = tracker(0)
    ...     read_track(f"{folder}/run.jsonl")[0].values
    {'regions_sampled': 1}
    """
    lines = read_lines(path)
    if not lines or not isinstance(lines[0], dict) or "tracker" not in lines[0]:
        raise InputError(f"{path}: expected a tracker's file, got another first line")
    return _in_order(_recorded(lines))


def _recorded(lines: Sequence[Any]) -> list[Record]:
    return [Record(line["step"], line["run"], line["values"]) for line in lines if "step" in line]


def _starts(lines: Sequence[Any]) -> dict[int, dict[str, FloatArray]]:
    """The first parameters of each run. A crash may come between them and their record: then they do not count."""
    pending: dict[int, Any] = {}
    found: dict[int, Any] = {}
    for line in lines:
        if "start" in line:
            pending[line["start"]["run"]] = line["start"]["parameters"]
        elif "step" in line and line["run"] in pending:
            found.setdefault(line["run"], pending[line["run"]])
    return {run: {name: _unpacked(value) for name, value in packed.items()} for run, packed in found.items()}


def _packed(parameters: Mapping[str, FloatArray]) -> dict[str, Any]:
    """Arrays as shape and bytes: exact, and half as long as decimals."""
    return {
        name: {"shape": list(value.shape), "float64": base64.b64encode(value.astype("<f8").tobytes()).decode()}
        for name, value in parameters.items()
    }


def _unpacked(value: Mapping[str, Any]) -> FloatArray:
    try:
        flat = np.frombuffer(base64.b64decode(value["float64"], validate=True), dtype="<f8").astype(np.float64)
        return flat.reshape(value["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"track: expected parameters of a shape and their bytes, got damaged ones ({error})"
        ) from error


def _with_saved(network: Network | LiveModule, saved: Mapping[str, FloatArray]) -> Network | LiveModule:
    shapes = {name: value.shape for name, value in network.parameters.items()}
    before = {name: value.shape for name, value in saved.items()}
    if shapes != before:
        raise InputError(f"track: expected the architecture of the continued file, {before}, got {shapes}")
    return network.with_parameters(saved)


def _may_need_start(quantity: Any) -> bool:
    """Of our own quantities one looks at the first network; of somebody else's any may."""
    return quantity is distance_from_start or getattr(quantity, "__module__", "") != distance_from_start.__module__


def _in_order(records: Sequence[Record]) -> tuple[Record, ...]:
    last = {(record.run, record.step): record for record in records}
    return tuple(last[key] for key in sorted(last))


def _data(data: Any) -> tuple[FloatArray, npt.NDArray[Any] | None] | None:
    if data is None:
        return None
    if isinstance(data, Dataset):
        return data.inputs.astype(np.float64), data.targets
    inputs, targets = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    if targets is None:
        return inputs, None
    whole = Dataset("tracked", _numpy(inputs), _numpy(targets))
    return whole.inputs.astype(np.float64), whole.targets


def _numpy(value: Any) -> npt.NDArray[Any]:
    return np.asarray(value.detach().cpu()) if hasattr(value, "detach") else np.asarray(value)


def _network(source: Any, data: tuple[Any, Any] | None) -> Network | LiveModule:
    """The network; of a torch module that is none, the module itself with the reason."""
    if isinstance(source, Network):
        return source
    shape = None if data is None else tuple(data[0].shape[1:])
    try:
        return loaded(source, shape)
    except UnsupportedModelError as error:
        if not hasattr(source, "named_parameters"):
            raise
        return LiveModule.of(source, str(error))


def _check_quantities(net: Network | LiveModule, names: Iterable[str]) -> None:
    if isinstance(net, LiveModule):
        # What somebody registered may know what to do with a module.
        own = distance_from_start.__module__
        bad = [name for name in names if name not in OF_MODULES and find_quantity(name).__module__ == own]
        if bad:
            raise UnsupportedModelError(
                f"quantity {bad[0]}: expected a piecewise linear network ({net.reason}); of other modules there are "
                f"{', '.join(sorted(OF_MODULES))}"
            )
