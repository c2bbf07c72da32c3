"""The border: what public functions take for a network, and what becomes of it.

A network passes as it is. Anything else is loaded, by ``network/io``, which stands on networks and brings the formats;
so nothing that asks about networks stands on readers of files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from fiberscope.errors import InputError
from fiberscope.extras import import_module
from fiberscope.network.network import Network

NetworkLike = Network | str | os.PathLike[str] | Any
"""Whatever :func:`~fiberscope.network.io.load` takes: a network, a model in memory, or the path of a file."""


def as_network(source: NetworkLike, name: str = "net", points: Any = None) -> Network:
    """The border of every public function that asks about a network: a network itself, else what ``load`` makes.

    Parameters
    ----------
    source
        Whatever ``load`` takes.
    name
        What the caller's user calls it, for the message where it is something else.
    points
        A batch that the question is asked on. Its shape tells a torch module the shape of one input, where it has
        more axes than one.

    Examples
    --------
    >>> net = Network.random((2, 3, 1), seed=0)
    >>> as_network(net) is net
    True
    >>> as_network(3)
    Traceback (most recent call last):
    fiberscope.errors.InputError: net: expected a Network, a torch module, a scikit-learn MLP or the path of a model
    file, got int
    """
    if isinstance(source, Network):
        return source
    shape = tuple(getattr(points, "shape", ()))[1:] if library_of(source) == "torch" else ()
    return loaded(source, shape if len(shape) > 1 else None, name)


def loaded(source: NetworkLike, shape: tuple[int, ...] | None, name: str = "net") -> Network:
    """What ``load`` makes of a source with inputs of this shape, None where it tells the shape itself.

    >>> net = Network.random((4, 3, 1), seed=0)
    >>> loaded(net, (2, 2)).input_shape
    (2, 2)
    """
    found: Network = import_module("fiberscope.network.io").load_plain(source, shape, name)
    return found


def as_networks(sources: Sequence[NetworkLike], name: str = "networks") -> list[Network]:
    """As :func:`as_network`, for every entry of a list.

    >>> len(as_networks([Network.random((2, 3, 1), seed) for seed in (0, 1)]))
    2
    """
    if isinstance(sources, Network | str | os.PathLike) or not isinstance(sources, Iterable):
        raise InputError(f"{name}: expected a list of networks, got {type(sources).__name__}")
    return [as_network(source, f"{name}, entry {index}") for index, source in enumerate(sources)]


def as_model(source: Any, name: str = "net") -> Any:
    """The border where a live torch module is meant as it stands; anything else becomes a network.

    >>> import torch
    >>> module = torch.nn.Linear(2, 1)
    >>> as_model(module) is module
    True
    """
    return source if library_of(source) == "torch" else as_network(source, name)


def as_torch(source: Any, name: str = "net") -> Any:
    """The border where a torch module is needed: a live one as it stands, anything else as a module in float64.

    >>> as_torch(Network([[[2.0]]], [[0.0]]))
    Sequential(
      (0): Linear(in_features=1, out_features=1, bias=True)
    )
    """
    found = as_model(source, name)
    return found.to_torch() if isinstance(found, Network) else found


def library_of(source: Any) -> str | None:
    """Whose model this is. It is imported already; looking at names keeps the other libraries out."""
    found = {f"{base.__module__}.{base.__qualname__}" for base in type(source).__mro__}
    if "torch.nn.modules.module.Module" in found:
        return "torch"
    return "sklearn" if any(name.startswith("sklearn.") for name in found) else None
