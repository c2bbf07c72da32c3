"""The network: a frozen program of typed nodes, and the plain chain as its simplest case."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod, sqrt
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.extras import import_module
from fiberscope.network.layout import Layout, expanded
from fiberscope.network.nodes import Add, Affine, Composite, Concat, Given, MaxPool, Node, PiecewiseLinear, Switch
from fiberscope.network.operators import Dense, Shape
from fiberscope.network.source import MEMORY, Source, coarsest, precision_of
from fiberscope.network.walk import affine_output, output, switch_values
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.arrays import batch, frozen, real_array
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.numerics.signs import CertifiedSigns, certified_signs
from fiberscope.results import Result

if TYPE_CHECKING:
    import torch

Seed = int | np.random.Generator


@dataclass(frozen=True, slots=True)
class AffineMap(Result):
    """``x -> matrix @ x + offset``, the network on the region of a point; unpacks as ``matrix, offset``.

    ``boundary`` lists the entries of the sign vector that are exactly zero at the point: if it is not empty, the
    point lies on the border of its region, and the slope of the inactive side was taken there.
    """

    matrix: FloatArray
    offset: FloatArray
    boundary: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[FloatArray]:
        return iter((self.matrix, self.offset))

    def __call__(self, X: Any) -> FloatArray:
        return np.asarray(batch(X, self.matrix.shape[1]) @ self.matrix.T + self.offset)


class Network:
    """A piecewise linear network as data.

    ``Network(weights, biases)`` is the chain ``z_l = W_l a_{l-1} + b_l``, ``a_l = relu(z_l)``, with no activation on
    the last layer; :meth:`from_nodes` builds any program. A network never changes: its arrays are read-only copies,
    and every operation on it gives a new one. ``program`` is what the model was made of, ``nodes`` what it means in
    plain nodes; they differ only where there are composite ones.

    Parameters
    ----------
    weights, biases
        One ``(n_l, n_{l-1})`` matrix and one ``(n_l,)`` vector per layer.
    activation
        ``"relu"`` or ``"leaky_relu"``.
    slope
        Slope of the leaky ReLU for negative inputs.
    linear
        One mask per hidden layer: True makes a neuron linear (no activation). None for no mask.

    Examples
    --------
    The absolute value, as ``relu(x) + relu(-x)``:

    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> net(np.array([[-3.0], [2.0]]))
    array([[3.],
           [2.]])
    >>> net.widths
    (1, 2, 1)
    """

    def __init__(
        self,
        weights: Sequence[Any],
        biases: Sequence[Any],
        activation: str = "relu",
        *,
        slope: float = 0.01,
        linear: Sequence[Any] | None = None,
    ) -> None:
        nodes = _chain_nodes(weights, biases, _negative_slope(activation, slope), linear)
        source = Source(precision_of(*weights, *biases))
        self._set(nodes, nodes[0].operator.in_shape if isinstance(nodes[0], Affine) else (0,), source)

    @classmethod
    def from_nodes(cls, nodes: Sequence[Given], input_shape: Sequence[int], source: Source = MEMORY) -> Network:
        """A network from a program; ``input_shape`` is without the batch axis, ``source`` says where it came from."""
        net = cls.__new__(cls)
        net._set(tuple(nodes), tuple(int(n) for n in input_shape), source)
        return net

    def with_source(self, source: Source) -> Network:
        """The same program that says to have come from somewhere else."""
        return Network.from_nodes(self.program, self.input_shape, source)

    @classmethod
    def random(cls, widths: Sequence[int], seed: Seed, init: str = "he") -> Network:
        """A random chain ``(n_0, ..., n_L)``, drawn layer by layer, the weights before the biases.

        ``init`` is ``"he"`` (normal weights *and* biases of standard deviation ``sqrt(2 / fan_in)``), or, with zero
        biases, ``"he_uniform"``, ``"xavier"``, ``"xavier_uniform"``, ``"lecun"``, ``"orthogonal"``, or ``"torch"``
        (uniform weights and biases in ``+-1/sqrt(fan_in)``).

        >>> Network.random((2, 3, 1), seed=0).num_parameters
        13
        """
        if init not in _INITS:
            raise InputError(f"init: expected one of {', '.join(sorted(_INITS))}, got {init!r}")
        if len(widths) < 2 or any(int(n) != n or n < 1 for n in widths):
            raise InputError(f"widths: expected at least two positive integers, got {tuple(widths)}")
        if not isinstance(seed, np.random.Generator) and (not isinstance(seed, int | np.integer) or seed < 0):
            raise InputError(f"seed: expected a non-negative integer or a numpy Generator, got {seed!r}")
        rng = np.random.default_rng(seed)
        drawn = [_INITS[init](rng, n, m) for m, n in itertools.pairwise(widths)]
        return cls([w for w, _ in drawn], [b for _, b in drawn])

    def _set(self, program: tuple[Given, ...], input_shape: Shape, source: Source = MEMORY) -> None:
        if not program:
            raise InputError("network: expected at least one node, got none")
        for index, given in enumerate(program):
            if not given.sources or max(given.sources) > index or min(given.sources) < 0:
                raise InputError(f"node {index}: expected sources among values 0 to {index}, got {given.sources}")
        self.program = program
        self.nodes, self._detours = expanded(program)
        shapes: list[Shape] = [input_shape]
        for node in self.nodes:
            node.check(shapes)
            shapes.append(node.shape)
        self.input_shape = input_shape
        self.source = source
        self.shapes = tuple(shapes)
        self.parameters  # noqa: B018  # raises now if two nodes give one name different values
        object.__setattr__(self, "_frozen", True)

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_frozen", False):
            raise AttributeError(f"a Network is frozen: {name} cannot be set; build a new one")
        super().__setattr__(name, value)

    # -- size and structure ------------------------------------------------------------------------------------

    @property
    def output_shape(self) -> Shape:
        return self.shapes[-1]

    @property
    def in_size(self) -> int:
        return prod(self.input_shape)

    @property
    def out_size(self) -> int:
        return prod(self.output_shape)

    @cached_property
    def parameters(self) -> Mapping[str, FloatArray]:
        """The model's own numbers by name, in order of first use; constants of the model are not among them."""
        found: dict[str, FloatArray] = {}
        for node in self.layout.affine:
            for name, value in ((node.weight_name, node.operator.coefficients), (node.bias_name, node.bias)):
                if name is None or value is None:
                    continue
                if name in found and not np.array_equal(found[name], value):
                    raise InputError(f"parameter {name}: shared by nodes with different values")
                found.setdefault(name, value)
        return found

    def with_parameters(self, parameters: Mapping[str, Any]) -> Network:
        """The same program with some parameters replaced, by name."""
        unknown = sorted(set(parameters) - set(self.parameters))
        if unknown:
            raise InputError(f"parameter {unknown[0]}: expected one of {', '.join(self.parameters)}")
        new = {name: self._fitting(name, value) for name, value in parameters.items()}
        nodes: list[Given] = []
        for node in self.program:
            if isinstance(node, Affine):
                operator, bias = node.operator, node.bias
                if node.weight_name in new:
                    operator = operator.with_coefficients(new[node.weight_name])
                if node.bias_name in new:
                    bias = new[node.bias_name]
                nodes.append(replace(node, operator=operator, bias=bias))
            else:
                nodes.append(node)
        kept = [] if new.keys() == self.parameters.keys() else [self.source.precision]
        source = Source(coarsest([precision_of(*parameters.values()), *kept]), interface=self.source.interface)
        return Network.from_nodes(nodes, self.input_shape, source)

    def _fitting(self, name: str, value: Any) -> FloatArray:
        array = real_array(value, name)
        if array.shape != self.parameters[name].shape:
            raise InputError(f"{name}: expected shape {self.parameters[name].shape}, got {array.shape}")
        return array

    @property
    def num_parameters(self) -> int:
        """``D``: how many numbers of its own the model has; a shared one counts once."""
        return sum(value.size for value in self.parameters.values())

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """The nodes with a kink, in order; their entries make up the sign vector."""
        return tuple(place.node for place in self.layout.places)

    @cached_property
    def layout(self) -> Layout:
        """Which entries of a sign vector belong to which switch."""
        return Layout(self.nodes, self._detours)

    @property
    def num_hidden(self) -> int:
        """``N``: the neurons of activation layers, linear ones included; max pooling has none, a clip two per entry."""
        return int((~self.layout.pooled).sum())

    @property
    def num_signs(self) -> int:
        """Length of a sign vector: one entry per neuron and one per input of every pooling window."""
        return self.layout.size

    @cached_property
    def is_chain(self) -> bool:
        """Whether this is a plain chain: dense affine maps in turn with activations, beginning and ending affine."""
        alternate = all(
            isinstance(node, PiecewiseLinear)
            if index % 2
            else isinstance(node, Affine) and isinstance(node.operator, Dense)
            for index, node in enumerate(self.nodes)
        )
        in_a_row = all(node.sources == (index,) for index, node in enumerate(self.nodes))
        return alternate and in_a_row and len(self.nodes) % 2 == 1

    @cached_property
    def _layers(self) -> tuple[Affine, ...]:
        if not self.is_chain:
            raise UnsupportedModelError(
                f"expected a plain chain of dense layers and activations, got {self.architecture}; "
                "net.as_mlp() gives a dense chain with the same function up to rounding"
            )
        return self.layout.affine

    @property
    def widths(self) -> tuple[int, ...]:
        """``(n_0, ..., n_L)`` of a chain."""
        return (self.in_size, *(layer.operator.out_size for layer in self._layers))

    @property
    def weights(self) -> tuple[FloatArray, ...]:
        """``W_1, ..., W_L`` of a chain."""
        return tuple(layer.operator.coefficients for layer in self._layers)

    @cached_property
    def biases(self) -> tuple[FloatArray, ...]:
        """``b_1, ..., b_L`` of a chain; zeros where a layer has none."""
        return tuple(
            frozen(np.zeros(layer.operator.out_size) if layer.offset is None else layer.offset)
            for layer in self._layers
        )

    @property
    def architecture(self) -> str:
        """One line for people.

        >>> Network.random((2, 3, 3, 1), seed=0).architecture
        '2-3-3-1'
        """
        if self.is_chain:
            widths = (self.in_size, *(node.operator.out_size for node in self.nodes[::2]))  # type: ignore[union-attr]
            return "-".join(map(str, widths))
        shape = "x".join(map(str, self.input_shape))
        names = [_describe(node) for node in self.program]
        return " ".join([shape, *names])

    def __repr__(self) -> str:
        text = self.architecture
        text = text if len(text) <= 100 else text[:97] + "..."
        return f"Network({text}; {self.num_parameters} parameters, {self.num_hidden} hidden neurons)"

    # -- evaluation --------------------------------------------------------------------------------------------

    def __call__(self, X: Any) -> FloatArray:
        """Outputs ``(points, out_size)`` of a batch ``(points, in_size)`` or ``(points, *input_shape)``."""
        return np.asarray(output(self.layout, batch(X, self.in_size), FLOAT))

    def preactivations(self, X: Any) -> list[FloatArray]:
        """Values before every activation, ``(points, n_l)`` each; for max pooling, the margins of the inputs."""
        return switch_values(self.layout, batch(X, self.in_size), FLOAT)

    def signs(self, X: Any) -> CertifiedSigns:
        """Certified sign of every hidden preactivation, floats taken as exact; see :class:`CertifiedSigns`.

        A linear neuron has no kink; its sign is reported as +1 (always active).

        >>> net = Network([[[1.0]], [[1.0]]], [[-0.1], [0.0]])
        >>> net.signs([[0.1], [np.nextafter(0.1, 1)]]).signs.tolist()
        [[0], [1]]
        """
        X = batch(X, self.in_size)
        found = certified_signs(lambda algebra, x: switch_values(self.layout, x, algebra), X)
        if self.linear_entries.any():
            signs = np.where(self.linear_entries, np.int8(1), found.signs)
            found = replace(found, signs=signs)
        return found

    @property
    def linear_entries(self) -> BoolArray:
        """Mask over the sign vector of the neurons that are linear by their activation."""
        return self.layout.linear

    def pattern(self, X: Any) -> BoolArray:
        """Activation pattern ``(points, num_signs)``: where the certified sign is positive."""
        return self.signs(X).signs > 0

    def affine_at(self, x: Any) -> AffineMap:
        """The affine map that the network is on the region of the point ``x``, a vector of ``in_size`` entries.

        The signs are certified, the coefficients rounded to float64: one beyond its range is infinite, none is NaN.

        >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
        >>> matrix, offset = net.affine_at([-3.0])
        >>> matrix, offset
        (array([[-1.]]), array([0.]))
        """
        point = real_array(x, "x")
        if point.size != self.in_size:
            raise InputError(f"x: expected one point of {self.in_size} coordinates, got shape {point.shape}")
        signs = self.signs(point.reshape(1, -1)).signs[0]
        rows = affine_output(self.layout, self.in_size, signs)
        zeros = np.flatnonzero(signs == 0)
        return AffineMap(rows[:-1].T.copy(), rows[-1].copy(), tuple(zeros.tolist()))

    # -- other views: they stand on this module, so they are loaded when asked for ------------------------------

    def as_mlp(self, memory: int = 1 << 31) -> Network:
        """The dense chain with the same function up to rounding; see :func:`fiberscope.network.mlp.as_mlp`."""
        chain: Network = import_module("fiberscope.network.mlp").as_mlp(self, memory)
        return chain

    @cached_property
    def composed(self) -> Network:
        """The same real function, dense maps in a row multiplied out where that is exact."""
        short: Network = import_module("fiberscope.network.compose").composed(self)
        return short

    def to_torch(self) -> torch.nn.Module:
        """A torch module in float64 with the same function; a chain becomes ``nn.Sequential``."""
        module: torch.nn.Module = import_module("fiberscope.network.to_torch", "to_torch").to_torch(self)
        return module


def _negative_slope(activation: str, slope: float) -> float:
    if activation == "relu":
        return 0.0
    if activation == "leaky_relu":
        return float(real_array(slope, "slope", ndim=0))
    raise InputError(f"activation: expected 'relu' or 'leaky_relu', got {activation!r}")


def _chain_nodes(
    weights: Sequence[Any], biases: Sequence[Any], slope: float, linear: Sequence[Any] | None
) -> tuple[Node, ...]:
    for name, given in (("weights", weights), ("biases", biases)):
        if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
            raise InputError(f"{name}: expected a list of arrays, one per layer, got {type(given).__name__}")
    if len(weights) == 0 or len(weights) != len(biases):
        raise InputError(f"weights: expected as many as biases, at least one, got {len(weights)}, {len(biases)}")
    if linear is not None and len(linear) != len(weights) - 1:
        raise InputError(f"linear: expected {len(weights) - 1} masks, one per hidden layer, got {len(linear)}")
    nodes: list[Node] = []
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        matrix = real_array(weight, f"weight {index + 1}", ndim=2)
        vector = real_array(bias, f"bias {index + 1}", ndim=1)
        if nodes and matrix.shape[1] != prod(nodes[-1].shape):
            raise InputError(f"weight {index + 1}: expected {prod(nodes[-1].shape)} columns, got shape {matrix.shape}")
        if min(matrix.shape) == 0 or len(vector) != len(matrix):
            raise InputError(f"bias {index + 1}: expected {len(matrix)} entries (at least one), got {vector.shape}")
        names = (f"{2 * index}.weight", f"{2 * index}.bias")
        nodes.append(Affine(len(nodes), Dense(matrix), vector, *names))
        if index + 1 < len(weights):
            slopes = np.full(len(matrix), slope)
            if linear is not None and linear[index] is not None:
                slopes[_mask(linear[index], len(matrix))] = 1.0
            nodes.append(PiecewiseLinear(len(nodes), slopes, (len(matrix),)))
    return tuple(nodes)


def _mask(mask: Any, size: int) -> BoolArray:
    array = np.asarray(mask)
    if array.dtype != bool or array.shape != (size,):
        raise InputError(f"linear: expected a boolean mask of {size} entries, got {array.dtype} of shape {array.shape}")
    return array


def _describe(node: Given) -> str:
    match node:
        case Affine():
            return f"{type(node.operator).__name__.lower()}({'x'.join(map(str, node.shape))})"
        case PiecewiseLinear():
            return "relu" if node.leak is None else "activation"
        case Add():
            return "add"
        case Concat():
            return "concat"
        case MaxPool():
            return f"maxpool({'x'.join(map(str, node.shape))})"
        case Composite():
            return type(node).__name__.lower()
        case _:
            assert_never(node)


def _normal(scale: Any, bias: bool = False) -> Any:
    def draw(rng: np.random.Generator, n: int, m: int) -> tuple[FloatArray, FloatArray]:
        weight = rng.normal(0, scale(n, m), (n, m))
        return weight, rng.normal(0, scale(n, m), n) if bias else np.zeros(n)

    return draw


def _uniform(scale: Any, bias: bool = False) -> Any:
    def draw(rng: np.random.Generator, n: int, m: int) -> tuple[FloatArray, FloatArray]:
        weight = rng.uniform(-scale(n, m), scale(n, m), (n, m))
        return weight, rng.uniform(-scale(n, m), scale(n, m), n) if bias else np.zeros(n)

    return draw


def _orthogonal(rng: np.random.Generator, n: int, m: int) -> tuple[FloatArray, FloatArray]:
    q, r = np.linalg.qr(rng.normal(size=(max(n, m), min(n, m))))
    q = q * np.sign(np.diag(r))
    return (q if n >= m else q.T), np.zeros(n)


_INITS: dict[str, Any] = {
    "he": _normal(lambda n, m: sqrt(2 / m), bias=True),
    "he_uniform": _uniform(lambda n, m: sqrt(6 / m)),
    "xavier": _normal(lambda n, m: sqrt(2 / (n + m))),
    "xavier_uniform": _uniform(lambda n, m: sqrt(6 / (n + m))),
    "lecun": _normal(lambda n, m: sqrt(1 / m)),
    "torch": _uniform(lambda n, m: sqrt(1 / m), bias=True),
    "orthogonal": _orthogonal,
}
