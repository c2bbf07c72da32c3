"""The Jacobian of all outputs on a batch with respect to all parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope import modules
from fiberscope.dimension.choice import slopes_as_maps
from fiberscope.dimension.use_gradients import add_block, size_of
from fiberscope.dimension.uses import Use, uses
from fiberscope.errors import InputError, TooLargeError, UnsupportedModelError
from fiberscope.network.border import as_model, loaded
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.numerics.algebra.base import Ring
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.floats import SignArray
from fiberscope.run import ENDLESS, Progress, Run

MEMORY = 1 << 33
"""Bytes that a Jacobian or a kernel may take unless the caller says otherwise."""


def jacobian(
    net: Any, X: Any, *, memory: int = MEMORY, progress: Progress | None = None, time_limit: float | None = None
) -> Any:
    r"""Derivatives of all outputs with respect to all parameters, :math:`J(X) = \partial f_\theta(X) / \partial\theta`.

    Row ``i * out_size + o`` belongs to output ``o`` at point ``i``. Columns follow ``net.parameters``: one parameter
    after the other in the order of that mapping, each flattened in C order. A parameter that is used several times
    (a shared layer, a convolution) has the sum over its uses; constants of the model have no column. Learned slopes
    have columns too, at the place of their activation.

    Signs of preactivations are those of the float evaluation, and at a kink the slope of the inactive side is taken, as
    torch does; :func:`functional_dimension` certifies the signs first.

    Parameters
    ----------
    net
        A :class:`Network`, or any ``torch.nn.Module`` (columns then follow ``named_parameters()``, the answer is a
        tensor of the module's dtype, dropout and batch normalisation are in evaluation mode).
    X
        The batch, ``(points, in_size)``.
    memory
        Bytes that the answer may take; above, :class:`TooLargeError` says how many it needs.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Returns
    -------
    ``(points * out_size, num_parameters)``.

    Examples
    --------
    ``f(x) = v relu(w x + b) + c`` at ``x = 3`` with ``w, b, v = 2, 1, 5``; the columns are ``w, b, v, c``.

    >>> net = Network([[[2.0]], [[5.0]]], [[1.0], [0.0]])
    >>> jacobian(net, [[3.0]])
    array([[15.,  5.,  7.,  1.]])
    """
    net = as_model(net)
    check_memory(memory)
    run = Run.begin(progress, time_limit)
    if not isinstance(net, Network):
        return modules.derivatives.jacobian(net, X, memory, run=run)
    net = with_own_parameters(net)
    X = batch(X, net.in_size)
    check_size(len(X) * net.out_size, net.num_parameters, memory)
    return assemble(net, uses(net, X, FLOAT), len(X), FLOAT, run)


def rows_in_ring(net: Network, X: Any, ring: Ring, signs: SignArray | None, run: Run = ENDLESS) -> Any:
    """The Jacobian in a ring, the signs given; arguments are taken as checked."""
    return assemble(net, uses(net, X, ring, signs), len(X), ring, run)


def assemble(net: Network, found: list[Use], points: int, ring: Ring, run: Run = ENDLESS) -> Any:
    """Uses side by side in the order of the parameters, those of one parameter added up."""
    starts = offsets(net)
    result = ring.empty((points, net.out_size, net.num_parameters))
    written: set[tuple[str, int]] = set()
    for done, use in enumerate(found):
        run.step(done, len(found), "blocks of parameters")
        first = starts[use.name] + use.start
        part = result[:, :, first : first + size_of(use)]
        add_block(use, part, ring, fresh=(use.name, use.start) not in written)
        written.add((use.name, use.start))
    _clear_unused(net, found, result, starts)
    return result.reshape(points * net.out_size, net.num_parameters)


def _clear_unused(net: Network, found: list[Use], result: Any, starts: dict[str, int]) -> None:
    """Zero the columns of parameters that no output depends on."""
    reached = {use.name for use in found}
    for name, value in net.parameters.items():
        if name not in reached:
            result[:, :, starts[name] : starts[name] + value.size] = 0


def offsets(net: Network) -> dict[str, int]:
    """First column of every parameter."""
    ends = np.cumsum([0, *(value.size for value in net.parameters.values())])
    return {name: int(start) for name, start in zip(net.parameters, ends, strict=False)}


def own_network(module: Any, X: Any) -> Network:
    """A torch module as a network with the very parameters of the module; the batch ``X`` tells the shape of inputs.

    :class:`UnsupportedModelError` where it is not piecewise linear, or where a parameter enters in another form
    (a weight that is normalised first): derivatives would be those of something else.
    """
    shape = None if X is None else tuple(np.shape(X)[1:])
    net = slopes_as_maps(loaded(module, shape or None))
    names = {name for name, _ in module.named_parameters()}
    if names != set(net.parameters):
        missing = sorted(names.symmetric_difference(net.parameters))[0]
        raise UnsupportedModelError(f"parameter {missing}: enters the loaded network in another form")
    return net


def with_own_parameters(net: Network) -> Network:
    """The network with all of the model's parameters in affine maps, learned slopes too, or an error that says why."""
    net = slopes_as_maps(net)
    check_parameters(net)
    return net


def check_parameters(net: Network) -> None:
    """Refuse networks whose numbers are not the model's own parameters, and those with parameters of another kind."""
    for node in net.nodes:
        if isinstance(node, PiecewiseLinear) and node.slope_name is not None:
            raise UnsupportedModelError(
                f"parameter {node.slope_name}: a learned slope; questions about parameters are not asked of networks "
                "that have one, since the slopes would count as constants"
            )
    unrolled = net.is_chain and any(node.weight_name is None for node in net.layout.affine)
    if not net.parameters or unrolled:
        raise UnsupportedModelError(
            "questions about parameters are only asked of networks whose parameters are the model's own, "
            "never of an unrolled view such as as_mlp()"
        )


def check_memory(memory: float) -> None:
    """Refuse limits that limit nothing; not-a-number is one."""
    if not memory > 0:
        raise InputError(f"memory: expected a positive number of bytes, got {memory}")


def check_size(rows: int, columns: int, memory: int, copies: int = 1) -> None:
    """Raise :class:`TooLargeError` with the estimate and the way around it."""
    need = 8 * rows * columns * copies
    check_memory(memory)
    if not need <= memory:
        raise TooLargeError(
            f"a {rows} x {columns} Jacobian needs {need / 2**30:.1f} GiB here, the limit is {memory / 2**30:.1f} GiB; "
            "take fewer points, raise memory=, or ask kernel_spectrum(net, X), which never forms it"
        )
