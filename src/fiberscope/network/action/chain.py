"""The symmetries every ReLU chain has: hidden neurons may be permuted, and rescaled by positive factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.action.element import Monomial, permutation, positive, random_scales
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.chains import split
from fiberscope.network.network import Network, Seed
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import TINY, FloatArray, IntArray
from fiberscope.results import Result


@dataclass(frozen=True, eq=False)
class Symmetry(Result):
    """One permutation and one vector of positive scales per hidden layer.

    Applied to a chain, new neuron ``i`` of layer ``l`` is old neuron ``permutations[l][i]``; its row of ``(W_l | b_l)``
    is multiplied by ``scales[l][i]`` and its column of ``W_{l+1}`` divided by it. ``(g @ h)(net) = g(h(net))``. With
    scales that are powers of two all laws hold bit for bit, otherwise up to the rounding of the scales.

    >>> g = Symmetry([[1, 0]], [[2.0, 4.0]])
    >>> (g @ g.inverse()).is_identity
    True
    >>> net = Network([[[1.0], [3.0]], [[1.0, 8.0]]], [[0.0, 0.0], [0.0]])
    >>> g(net).weights
    (array([[6.],
           [4.]]), array([[4.  , 0.25]]))
    """

    permutations: tuple[IntArray, ...]
    scales: tuple[FloatArray, ...]

    def __init__(self, permutations: Sequence[Any], scales: Sequence[Any]) -> None:
        if len(permutations) != len(scales):
            raise InputError(f"symmetry: expected as many scales as permutations, got {len(scales)}")
        pairs = enumerate(zip(permutations, scales, strict=True), start=1)
        layers = [Monomial.single(p, s, f"hidden layer {k}") for k, (p, s) in pairs]
        object.__setattr__(self, "permutations", tuple(part.orders[0] for part in layers))
        object.__setattr__(self, "scales", tuple(part.scales[0] for part in layers))

    @classmethod
    def of(cls, layers: Sequence[Monomial]) -> Symmetry:
        """From what happens to each hidden layer."""
        return cls([part.orders[0] for part in layers], [part.scales[0] for part in layers])

    @classmethod
    def identity(cls, widths: Sequence[int]) -> Symmetry:
        """Of a chain with the given widths ``(n_0, ..., n_L)``."""
        return cls.of([Monomial.identity(n) for n in widths[1:-1]])

    @classmethod
    def random(cls, widths: Sequence[int], seed: Seed, spread: int = 8, dyadic: bool = True) -> Symmetry:
        """A random element; scales are powers of two, or any number, between ``2^-spread`` and ``2^spread``.

        >>> Symmetry.random((2, 3, 1), seed=0).widths
        (3,)
        """
        rng = np.random.default_rng(seed)
        scales = [random_scales(rng, (n,), spread, dyadic) for n in widths[1:-1]]
        return cls([rng.permutation(n) for n in widths[1:-1]], scales)

    @property
    def layers(self) -> tuple[Monomial, ...]:
        """What happens to each hidden layer."""
        return tuple(Monomial.single(p, s) for p, s in zip(self.permutations, self.scales, strict=True))

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the hidden layers."""
        return tuple(p.size for p in self.permutations)

    @property
    def is_identity(self) -> bool:
        return all(part.is_identity for part in self.layers)

    @property
    def is_dyadic(self) -> bool:
        """Whether all scales are powers of two: then nothing is rounded, short of overflow and underflow."""
        return all(part.is_dyadic for part in self.layers)

    def __call__(self, net: Network) -> Network:
        """The network with its neurons permuted and rescaled; the function is the same."""
        parts = split(net)
        if parts.tail.widths[1:-1] != self.widths:
            raise InputError(f"symmetry: expected hidden widths {self.widths}, got {parts.tail.widths[1:-1]}")
        return parts.joined(_act(parts.tail, self))

    def __matmul__(self, other: Symmetry) -> Symmetry:
        if self.widths != other.widths:
            raise InputError(f"symmetry: expected elements for the same widths, got {self.widths}, {other.widths}")
        return Symmetry.of([g @ h for g, h in zip(self.layers, other.layers, strict=True)])

    def inverse(self) -> Symmetry:
        """The element that undoes this one."""
        return Symmetry.of([part.inverse() for part in self.layers])

    def __eq__(self, other: object) -> bool:
        return self.layers == other.layers if isinstance(other, Symmetry) else NotImplemented

    @classmethod
    def from_dict(cls, found: Any) -> Symmetry:
        """What :meth:`to_dict` gave, checked.

        >>> Symmetry.from_dict({"permutations": [[1, 0]], "scales": [[1.0, 0.5]]})
        Symmetry(hidden widths 2, powers of two)
        """
        lists = [found.get(key) if isinstance(found, dict) else None for key in ("permutations", "scales")]
        if not all(isinstance(one, list) for one in lists):
            raise InputError("symmetry: expected an object with lists of permutations and scales")
        return cls(*lists)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        kind = "powers of two" if self.is_dyadic else "any scales"
        return f"Symmetry(hidden widths {'-'.join(map(str, self.widths))}, {kind})"


def permute(net: NetworkLike, permutations: Sequence[Any]) -> Network:
    """Reorder the hidden neurons of a chain: new neuron ``i`` of layer ``l`` is old neuron ``permutations[l][i]``.

    One permutation per hidden layer, None for none. The function does not change; only the order of its sums does.

    >>> net = Network([[[1.0], [2.0]], [[3.0, 4.0]]], [[0.0, 5.0], [0.0]])
    >>> permute(net, [[1, 0]]).weights[0].tolist()
    [[2.0], [1.0]]
    """
    net = as_network(net)
    given = _per_layer(permutations, net, "permutations")
    orders = [np.arange(n) if p is None else permutation(p, n, f"permutation of {at}") for p, n, at in given]
    return _act(net, Symmetry(orders, [np.ones(n) for _, n, _ in given]))


def rescale(net: NetworkLike, scales: Sequence[Any]) -> Network:
    """Multiply row ``i`` of ``(W_l, b_l)`` by ``scales[l][i] > 0`` and divide column ``i`` of ``W_{l+1}`` by it.

    One vector per hidden layer, None for none. Powers of two change no bit of the function; other factors round every
    product once. A product beyond the normal floats would lose its digits, and is refused.

    >>> net = Network([[[1.0]], [[3.0]]], [[0.5], [0.0]])
    >>> rescale(net, [[2.0]]).weights
    (array([[2.]]), array([[1.5]]))
    """
    net = as_network(net)
    given = _per_layer(scales, net, "scales")
    factors = [np.ones(n) if s is None else positive(s, n, f"scales of {at}") for s, n, at in given]
    return _act(net, Symmetry([np.arange(n) for _, n, _ in given], factors))


def _per_layer(given: Sequence[Any], net: Network, name: str) -> list[tuple[Any, int, str]]:
    """What is given for each hidden layer, with its width and its name."""
    widths = net.widths[1:-1]
    if len(given) != len(widths):
        raise InputError(f"{name}: expected {len(widths)}, one per hidden layer, got {len(given)}")
    return [(one, n, f"hidden layer {k}") for k, (one, n) in enumerate(zip(given, widths, strict=True), start=1)]


def _act(net: Network, element: Symmetry) -> Network:
    """A chain with its neurons permuted, then rescaled."""
    orders, scales = element.permutations, element.scales
    nodes: list[Node] = []
    for index, node in enumerate(net.nodes):
        layer = index // 2
        if isinstance(node, PiecewiseLinear):
            nodes.append(PiecewiseLinear(node.source, node.slopes[orders[layer]], node.shape))
        elif isinstance(node, Affine):
            matrix, bias = node.operator.dense(), node.offset
            if layer > 0:
                matrix = _times(matrix[:, orders[layer - 1]], scales[layer - 1], False, node)
            if layer < len(orders):
                matrix = _times(matrix[orders[layer]], scales[layer][:, None], True, node)
                bias = None if bias is None else _times(bias[orders[layer]], scales[layer], True, node)
            nodes.append(
                Affine(node.source, Dense(matrix, node.operator.in_shape), bias, node.weight_name, node.bias_name)
            )
    return Network.from_nodes(nodes, net.input_shape, net.source.derived)


def _times(array: FloatArray, scales: FloatArray, up: bool, node: Affine) -> FloatArray:
    """The product, or the quotient, where it loses no more than one rounding; refused where it leaves the floats."""
    with np.errstate(over="ignore", under="ignore"):
        found = array * scales if up else array / scales
        back = found / scales if up else found * scales
    # between the normal floats every product is off by one rounding; below, digits are gone unless they come back
    lost = ~np.isfinite(found) | ((np.abs(found) < TINY) & (back != array))
    if lost.any():
        value, scale = float(array[lost][0]), float(np.broadcast_to(scales, array.shape)[lost][0])
        word, name = "times" if up else "over", node.weight_name or "a weight"
        raise InputError(f"scales: expected products within the floats, got {value:g} {word} {scale:g} in {name}")
    return np.asarray(found)
