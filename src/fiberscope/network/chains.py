"""The part of a network on which permutations and rescalings act: its chain of dense layers.

Affine maps in front of the first dense layer (a mean that is subtracted, a change of units) are kept as they are: they
see no hidden neuron.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fiberscope.errors import UnsupportedModelError
from fiberscope.network.convolutions import Convolving
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, behind
from fiberscope.numerics.floats import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A network as affine maps ``prefix`` followed by the chain ``tail``."""

    prefix: tuple[Node, ...]
    tail: Network
    input_shape: tuple[int, ...]

    def joined(self, tail: Network) -> Network:
        """The network with another chain behind the same prefix."""
        if not self.prefix:
            return tail
        return Network.from_nodes(
            [*self.prefix, *behind(tail.nodes, len(self.prefix))], self.input_shape, tail.source.derived
        )


def split(net: Network) -> Split:
    """The affine prefix and the chain behind it; raises where hidden neurons are not those of dense layers.

    >>> split(Network.random((2, 3, 1), seed=0)).tail.widths
    (2, 3, 1)
    """
    found = try_split(net)
    if found is not None:
        return found
    if any(isinstance(stage, Convolving) for stage in net.layout.stages):
        raise UnsupportedModelError(
            "a question about parameters: the neurons of a convolution share their weights, so they cannot be permuted "
            "or rescaled one by one, and those of net.as_mlp() are not parameters of the model"
        )
    raise UnsupportedModelError(
        f"expected a chain of dense layers and activations, got {net.architecture[:80]}; net.as_mlp() gives the dense "
        "chain with the same function, whose numbers are not the parameters of the model"
    )


def try_split(net: Network) -> Split | None:
    """As :func:`split`, None where there is no such chain."""
    if net.is_chain:
        return Split((), net, net.input_shape)
    found = _split_before(net)
    if found is None and net.composed is not net:
        found = _split_before(net.composed)
    return found


def _split_before(net: Network) -> Split | None:
    if net.is_chain:
        return Split((), net, net.input_shape)
    if any(node.sources != (index,) for index, node in enumerate(net.nodes)):
        return None
    first = next((i for i, node in enumerate(net.nodes) if not isinstance(node, Affine)), len(net.nodes))
    if first < 2:
        return None
    cut = first - 1
    tail = Network.from_nodes(behind(net.nodes[cut:], -cut), net.shapes[cut], net.source.derived)
    return Split(net.nodes[:cut], tail, net.input_shape) if tail.is_chain else None


def slopes_of(chain: Network) -> tuple[FloatArray, ...]:
    """Slopes of the activation of every hidden layer."""
    return tuple(place.node.slopes for place in chain.layout.places)


def with_arrays(chain: Network, weights: Sequence[FloatArray], biases: Sequence[FloatArray]) -> Network:
    """A chain with the same names and activations and other numbers of the same shapes."""
    nodes: list[Node] = []
    layer = 0
    for node in chain.nodes:
        if isinstance(node, Affine):
            bias = biases[layer]
            absent = node.bias is None and not bias.any()
            nodes.append(
                Affine(
                    node.source,
                    node.operator.with_coefficients(weights[layer]),
                    None if absent else bias,
                    node.weight_name,
                    node.bias_name,
                )
            )
            layer += 1
        else:
            nodes.append(node)
    return Network.from_nodes(nodes, chain.input_shape, chain.source.derived)


def rows_of(chain: Network) -> list[FloatArray]:
    """``(W_l | b_l)`` of every layer."""
    return [np.column_stack([w, b]) for w, b in zip(chain.weights, chain.biases, strict=True)]
