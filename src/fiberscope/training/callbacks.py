"""A tracker in other people's training loops and logbooks: Lightning, the trainer of transformers, TensorBoard, W&B.

None of these libraries is needed by fiberscope. A callback is made from a tracker, and calls it after every update; a
logger is a function of a record, for ``track(..., log=...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from fiberscope.errors import MissingExtraError
from fiberscope.extras import import_module

if TYPE_CHECKING:
    from fiberscope.training.track import Record, Tracker

Log = Callable[["Record"], None]
"""What ``track(..., log=)`` takes: a function that is handed every record when it is made."""


def scalars(record: Record) -> dict[str, float]:
    """The plain numbers of a record by name; those inside of a quantity under its name and theirs.

    >>> from fiberscope.training.track import Record
    >>> scalars(Record(5, 0, {"loss": 0.5, "neurons": {"dead": 2, "names": ["a"]}, "rank": {"error": "too large"}}))
    {'loss': 0.5, 'neurons/dead': 2.0}
    """
    return dict(_numbers("", record.values))


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(f"{name}/{key}" if name else str(key), inner)
    elif not isinstance(value, bool) and isinstance(value, Real):
        yield name, float(value)


def tensorboard_log(writer: Any, prefix: str = "fiberscope/") -> Log:
    """A logger that hands every number to a ``SummaryWriter`` (its ``add_scalar``), at the record's step.

    >>> from fiberscope.training.track import Record
    >>> class Writer:
    ...     def add_scalar(self, *entry):
    ...         print(*entry)
    >>> tensorboard_log(Writer())(Record(3, 0, {"regions_sampled": 7}))
    fiberscope/regions_sampled 7.0 3
    """

    def log(record: Record) -> None:
        for name, value in scalars(record).items():
            writer.add_scalar(prefix + name, value, record.step)

    return log


def wandb_log(run: Any, prefix: str = "fiberscope/") -> Log:
    """A logger that hands all numbers of a record at once to a run of Weights & Biases (its ``log``).

    >>> from fiberscope.training.track import Record
    >>> class Run:
    ...     def log(self, data, step):
    ...         print(data, step)
    >>> wandb_log(Run())(Record(3, 0, {"regions_sampled": 7}))
    {'fiberscope/regions_sampled': 7.0} 3
    """

    def log(record: Record) -> None:
        run.log({prefix + name: value for name, value in scalars(record).items()}, step=record.step)

    return log


def lightning_callback(tracker: Tracker) -> Any:
    """A callback for Lightning's ``Trainer(callbacks=[...])``: the tracker sees every update, and is closed at the end.

    Steps are Lightning's ``global_step``; the first record is made before the first update.

    >>> trainer = lightning.Trainer(callbacks=[lightning_callback(tracker)])  # doctest: +SKIP
    """
    base = _first(("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"), "lightning_callback", "lightning")

    class FiberscopeCallback(base.Callback):  # type: ignore[name-defined, misc]
        """Records the tracker's quantities."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            tracker(trainer.global_step)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *results: Any) -> None:
            tracker(trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            tracker.close()

    return FiberscopeCallback()


def trainer_callback(tracker: Tracker) -> Any:
    """A callback for the ``Trainer(callbacks=[...])`` of transformers: as :func:`lightning_callback`.

    >>> trainer = transformers.Trainer(model, callbacks=[trainer_callback(tracker)])  # doctest: +SKIP
    """
    base = _first(("transformers",), "trainer_callback", "transformers")

    class FiberscopeCallback(base.TrainerCallback):  # type: ignore[name-defined, misc]
        """Records the tracker's quantities."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            tracker(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            tracker(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            tracker.close()

    return FiberscopeCallback()


def _first(names: Sequence[str], asked: str, package: str) -> Any:
    for name in names:
        try:
            return import_module(name, asked)
        except ImportError:
            continue
    raise MissingExtraError(f"{asked} needs {package}, which is not installed: pip install {package}")
