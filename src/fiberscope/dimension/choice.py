"""Which ranks are asked for, and of which parameters; slopes that are learned are parameters too."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from fiberscope.errors import InputError, hint
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Given, PiecewiseLinear, moved
from fiberscope.network.operators import Scale

RANKS = ("exact", "numerical", "paper")


def asked_ranks(ranks: str | Iterable[str] | None, exact: bool | None) -> tuple[str, ...]:
    """The ranks to find, in the order of :data:`RANKS`; ``exact`` is the older way to ask for one of them.

    >>> asked_ranks("exact", None), asked_ranks(None, False)
    (('exact',), ('numerical', 'paper'))
    """
    if ranks is None:
        return RANKS[1:] if exact is False else RANKS
    wanted = (ranks,) if isinstance(ranks, str) else tuple(ranks)
    for name in wanted:
        if name not in RANKS:
            raise InputError(f"ranks: expected some of {', '.join(RANKS)}, got {name!r}")
    if not wanted:
        raise InputError(f"ranks: expected some of {', '.join(RANKS)}, got none")
    if exact is not None and exact != ("exact" in wanted):
        raise InputError(f"ranks: expected {'' if exact else 'no '}exact among them with exact={exact}, got {wanted}")
    return tuple(name for name in RANKS if name in wanted)


def chosen_names(
    names: Collection[str], parameters: str | Iterable[str] | None, frozen: Collection[str] | None = None
) -> tuple[str, ...] | None:
    """The parameters that are meant, in the order of ``names``; None for all of them.

    ``parameters`` are names or patterns such as ``"head.*"``; ``"requires_grad"`` means those that are not ``frozen``.

    >>> chosen_names(["a.weight", "a.bias", "b.weight"], "a.*")
    ('a.weight', 'a.bias')
    """
    if parameters is None:
        return None
    if isinstance(parameters, str) and parameters == "requires_grad":
        if frozen is None:
            raise InputError("parameters: 'requires_grad' is known of torch modules only, expected names or patterns")
        found = tuple(name for name in names if name not in frozen)
        if not found:
            raise InputError("parameters: all parameters are frozen, expected one that requires a gradient")
        return found
    patterns = (parameters,) if isinstance(parameters, str) else tuple(parameters)
    for pattern in patterns:
        if not isinstance(pattern, str) or not any(fnmatchcase(name, pattern) for name in names):
            few = ", ".join(list(names)[:8])
            raise InputError(
                f"parameters: expected names or patterns of {few}, got {pattern!r}{hint(str(pattern), names)}"
            )
    if not patterns:
        raise InputError("parameters: expected at least one name, got none")
    return tuple(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns))


def frozen_names(module: Any) -> frozenset[str]:
    """The parameters of a torch module that require no gradient."""
    return frozenset(name for name, value in module.named_parameters() if not value.requires_grad)


def restricted(net: Network, names: Collection[str] | None) -> Network:
    """The same network in which all parameters but the named ones are constants of the model.

    >>> net = Network.random((2, 3, 1), 0)
    >>> restricted(net, ["2.weight"]).num_parameters
    3
    """
    if names is None:
        return net

    def kept(name: str | None) -> str | None:
        return name if name in names else None

    nodes = [
        replace(node, weight_name=kept(node.weight_name), bias_name=kept(node.bias_name))
        if isinstance(node, Affine)
        else node
        for node in net.program
    ]
    return Network.from_nodes(nodes, net.input_shape, net.source)


def slopes_as_maps(net: Network) -> Network:
    """The same function with learned slopes as the factors of affine maps, where all other parameters are.

    ``relu(x) + a (x - relu(x))`` has one switch like the activation itself, and is differentiable at its kink exactly
    where the activation is: for ``a = 1``.

    >>> net = Network.from_nodes([PiecewiseLinear(0, 0.5, (3,), "slope")], (3,))
    >>> maps = slopes_as_maps(net)
    >>> maps(np.array([[1.0, -2.0, 0.0]])), maps.num_parameters, maps.num_signs
    (array([[ 1., -1.,  0.]]), 1, 3)
    """
    if not any(isinstance(node, PiecewiseLinear) and node.slope_name is not None for node in net.program):
        return net
    nodes: list[Given] = []
    places = [0]
    for given in net.program:
        node = moved(given, tuple(places[source] for source in given.sources))
        if isinstance(node, PiecewiseLinear) and node.slope_name is not None:
            nodes += _learned(node, len(nodes))
        else:
            nodes.append(node)
        places.append(len(nodes))
    return Network.from_nodes(nodes, net.input_shape, net.source)


def _learned(node: PiecewiseLinear, first: int) -> list[Given]:
    """The nodes that stand for an activation with learned slopes, as nodes ``first`` and on."""
    shape = node.shape
    return [
        PiecewiseLinear(node.source, np.zeros(()), shape),
        Affine(first + 1, Scale(-1.0, shape)),
        Add((node.source, first + 2), shape),
        Affine(first + 3, Scale(node.own_slopes, shape), None, node.slope_name),
        Add((first + 1, first + 4), shape),
    ]
