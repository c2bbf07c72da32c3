"""The entry function: what changed between two models?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fiberscope.equality.diff.changes import Difference
from fiberscope.equality.diff.networks import by_layers
from fiberscope.errors import FiberscopeError, InputError, TooLargeError
from fiberscope.extras import import_module
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.run import Run


def diff(a: NetworkLike, b: NetworkLike, time_limit: float | None = None) -> Difference:
    """What changed from ``a`` to ``b``, modulo the order and the scale of neurons, which change nothing.

    Two programs are compared layer by layer: a layer is what one activation reads, so that folded batch normalisation
    and fused maps are no difference; channels are matched first, and the relative change is that of matched ones.
    Checkpoints that are no program by themselves (state dicts, folders of ``.safetensors`` shards, modules that are
    not piecewise linear) are compared tensor by tensor, by name, one of each in memory at a time; rows and columns are
    matched by their sorted numbers. A difference says what happened to the numbers; whether the functions are equal is
    the question of :func:`fiberscope.equivalent`.

    Parameters
    ----------
    a, b
        Whatever :func:`fiberscope.load` takes; mappings of names to arrays; ``.safetensors``, ``.pt`` or ``.ckpt``
        files; folders with ``model.safetensors.index.json``.
    time_limit
        Seconds after which to give up; 60 for None.

    Examples
    --------
    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0], [2.0]], [[1.0, 3.0]]], [[1.0, 0.0], [0.0]])
    >>> other = Network([[[2.0], [4.0]], [[3.0, 0.25]]], [[0.0, 4.0], [0.0]])  # swapped, the first times 4
    >>> found = diff(net, other)
    >>> found.same, found.layers[0].reordered, found.layers[0].rescaled
    (True, 2, 1)
    """
    try:
        left, right = as_network(a, "a"), as_network(b, "b")
    except FiberscopeError as error:
        return _tensors(a, b, time_limit, error)
    if (left.in_size, left.out_size) != (right.in_size, right.out_size):
        raise InputError(
            f"networks: expected the same inputs and outputs, got {left.in_size} -> {left.out_size} and "
            f"{right.in_size} -> {right.out_size}"
        )
    try:
        return by_layers(left, right, time_limit)
    except TooLargeError as error:
        return _tensors(a, b, time_limit, error)


def _tensors(a: Any, b: Any, time_limit: float | None, error: FiberscopeError) -> Difference:
    """By tensors, where there are some; else what kept the programs from being compared."""
    for source in (a, b):
        if isinstance(source, str | Path) and not Path(source).exists():
            raise error
    names = import_module("fiberscope.equality.diff.by_name", "comparing checkpoints by their tensors")
    left, right = names.tensors_of(a), names.tensors_of(b)
    if left is None or right is None:
        if left is not None or right is not None:
            program, other = (a, b) if left is None else (b, a)
            as_network(program)  # what is no program either says so itself
            if isinstance(other, str | Path) and Path(other).is_dir():
                raise InputError(
                    f"{other}: expected two programs or two sets of tensors, got tensors beside a program"
                ) from error
        raise error
    found: Difference = names.by_tensors(left, right, Run.begin(time_limit=60.0 if time_limit is None else time_limit))
    return found
