"""``load_dataset``: one entry for every data set, and the list of what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fiberscope.training.datasets import real, synthetic  # noqa: F401  (each registers what it can load)
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.registry import Entry, entries, load


def load_dataset(name: str, directory: str | Path | None = None, **options: Any) -> Dataset:
    """A data set by name.

    Parameters
    ----------
    name
        See :func:`list_datasets`: ``f1 .. f3``, ``g1 .. g3``, ``circle``, ``tractrix``, ``gaussian_mixture``,
        ``coherence``, ``energy``, ``mnist``, ``fashion_mnist``, ``cifar10``, ``digits``, ...
    directory
        Where the files of a real data set lie. Otherwise the variable ``FIBERSCOPE_DATA`` names it; otherwise files
        are downloaded once into our cache. Synthetic data sets need none.
    options
        The data set's own options, such as ``seed``, ``points`` or ``noise``; an unknown one is refused.

    Examples
    --------
    >>> data = load_dataset("f1", points=5, noise=0.0)
    >>> data.inputs.ravel().tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> data.targets.ravel()[[1, 3]].tolist()
    [2.5, 0.5]
    >>> load_dataset("f4")
    Traceback (most recent call last):
    fiberscope.errors.InputError: data set: expected one of ..., got 'f4'; did you mean f3 or f2 or f1?
    """
    return load(name, directory, options)


def list_datasets() -> tuple[Entry, ...]:
    """Every data set that can be loaded: ``.name``, ``.summary``, ``.options``, ``.needs_files``.

    >>> "mnist" in [entry.name for entry in list_datasets()]
    True
    """
    return entries()
