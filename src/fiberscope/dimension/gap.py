"""What lies between the bound by regions and the rank: three bounds that the paper does not have.

*Position*: on a region the rows of the Jacobian are affine in the point, so a region adds no more than the affine rank
of its points. *Silent layers*: where a whole layer is off the function is constant, and the rows depend on nothing but
the signs behind the last such layer: all points with the same signs there have one and the same row. *Adjacent layers*:
a change of the parameters of layers ``l`` and ``l + 1`` that leaves the preactivations of layer ``l + 1`` as they are,
at every point of the batch at which their neurons are active, changes no output. These changes form the kernel of the
Jacobian of a network of two layers. Always-active neurons and rescalings are the cases that the paper counts; on a
finite batch there are many more. The first two are proven. The third rests on null spaces modulo primes and is too
small with a tiny probability, which is reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fiberscope.dimension.bounds import Bound
from fiberscope.dimension.exact_rank import Sampled, spanning_points
from fiberscope.dimension.jacobian import assemble, offsets
from fiberscope.dimension.row_space import RowSpace, streaming_loss
from fiberscope.dimension.spans import multiplied, span, summed, united
from fiberscope.dimension.uses import uses_behind
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.walk import choices_of, traced
from fiberscope.numerics.algebra.base import Ring
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import rank_mod
from fiberscope.numerics.floats import FloatArray, SignArray
from fiberscope.numerics.modular import Residues, random_primes, residues
from fiberscope.numerics.rank import exact_rank, failure_bound, null_rows


def position_bound(found: Sampled) -> int:
    """Sum over the sampled regions of the affine rank of their points; every output can add so many.

    >>> points = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])  # three on a line: two count
    >>> none = np.zeros(0, int)
    >>> one = Sampled(points, np.ones((3, 1), np.int8), np.zeros(3, int), np.array([3]), none)
    >>> position_bound(one)
    2
    """
    return sum(_affine_ranks(found))


def _affine_ranks(found: Sampled) -> list[int]:
    """For every region the affine rank of its points, proven: modulo a prime it could be too small."""
    prime = random_primes(1, 0)[0]
    lifted = np.column_stack([found.X, np.ones(len(found.X))])
    table = residues(lifted, prime)
    order = np.argsort(found.region, kind="stable")
    ranks = []
    for part in np.split(order, np.cumsum(found.counts)[:-1]):
        rank = rank_mod(table[part], prime)
        full = min(len(part), lifted.shape[1])
        ranks.append(rank if rank == full else exact_rank(lifted[part], method="rational").rank)
    return ranks


def silent_layers_bound(net: Network, found: Sampled) -> int:
    """As :func:`position_bound`, with one for all regions that share the signs behind their last silent layer.

    A network that is off to the left of zero, in two regions that differ before the silent layer:

    >>> from fiberscope.dimension.exact_rank import sample
    >>> net = Network([[[1.0], [1.0]], [[1.0, 1.0]], [[1.0]]], [[1.0, 2.0], [-9.0], [0.0]])
    >>> points = sample(net, np.array([[-1.2], [-1.5], [0.0], [1.0]]))
    >>> position_bound(points), silent_layers_bound(net, points)
    (4, 1)
    """
    ranks = _affine_ranks(found)
    _, first = np.unique(found.region, return_index=True)
    layers = net.layout.parts(found.signs[first])
    total, seen = 0, set()
    for region, rank in enumerate(ranks):
        silent = [k for k, layer in enumerate(layers) if (layer[region] < 0).all()]
        if silent:
            seen.add((silent[-1], *(layer[region].tobytes() for layer in layers[silent[-1] + 1 :])))
        else:
            total += rank
    return total + len(seen)


def adjacent_layers_bound(net: Network, found: Sampled) -> Bound:
    """``D`` minus the dimension of all changes of two adjacent layers that are not seen behind them, for a chain.

    A null space modulo a prime is too large if the prime divides a certain minor. Then the bound is too small. So it
    is not called proven. Two primes are drawn and the larger value is taken, which is wrong only if both are unlucky.

    One neuron that is active on the batch, ``v (w x + b) + c``: a line, so two of the four parameters are too many.

    >>> from fiberscope.dimension.exact_rank import sample
    >>> net = Network([[[2.0]], [[3.0]]], [[1.0], [0.0]])
    >>> bound = adjacent_layers_bound(net, sample(net, np.array([[1.0], [2.0], [3.0]])))
    >>> bound.value, bound.proven, bound.failure_probability < 1e-25
    (2, False, True)
    """
    primes = random_primes(2, 0)
    value = max(_adjacent_layers(net, found, prime) for prime in primes)
    tested = streaming_loss(len(found.X) * sum(net.widths))(min(primes))
    failure = min(1.0, sum(_failures(net, found.X)) + tested) ** len(primes)
    return Bound("adjacent layers", value, "none of two random primes divides certain minors", True, False, failure)


def _adjacent_layers(net: Network, found: Sampled, prime: int) -> int:
    return net.num_parameters - rank_mod(pair_kernels(net, found, ModularAlgebra(prime)), prime)


def pair_kernels(net: Network, found: Sampled, ring: ModularAlgebra) -> Residues:
    """Changes of two adjacent layers of a chain that are not seen behind them, as rows."""
    blocks = [np.zeros((0, net.num_parameters), np.uint64)]
    for rows, columns in _pairs(net, found, ring):
        kernel = _spanned(rows, ring.prime).kernel()
        block = np.zeros((len(kernel), net.num_parameters), np.uint64)
        block[:, columns] = kernel
        blocks.append(block)
    return np.concatenate(blocks)


def _spanned(rows: Residues, prime: int) -> RowSpace:
    """The space of many rows: few of them, in any order, span it, and the others are only tested."""
    rng = np.random.default_rng(0)
    space = RowSpace(rows.shape[1], prime, rng)
    space.extend(np.ascontiguousarray(rows)[rng.permutation(len(rows))])
    return space


def float_pair_kernels(net: Network, found: Sampled) -> FloatArray:
    """As :func:`pair_kernels` in floats, orthonormal for every pair; their number is the exact one."""
    prime = random_primes(1, 0)[0]
    blocks = [np.zeros((0, net.num_parameters))]
    exact = _pairs(net, found, ModularAlgebra(prime))
    for (rows, columns), (residue_rows, _) in zip(_pairs(net, found, FLOAT), exact, strict=True):
        kernel = null_rows(rows, rows.shape[1] - _spanned(residue_rows, prime).rank)
        block = np.zeros((len(kernel), net.num_parameters))
        block[:, columns] = kernel
        blocks.append(block)
    return np.concatenate(blocks)


def _pairs(net: Network, found: Sampled, ring: Ring) -> Iterator[tuple[Any, slice]]:
    """For every pair of adjacent layers the derivatives and the columns they belong to."""
    keep = spanning_points(found)
    signs = net.layout.parts(found.signs[keep])
    values = traced(net.layout, ring.take(found.X[keep]), ring, choices_of(net.layout, found.signs[keep])).values
    starts = offsets(net)
    for l in range(len(net.weights) - 1):
        # Nodes alternate between affine maps and activations, so values[2 l] feeds affine map l.
        rows = _pair_rows(net, l, values[2 * l], signs, ring)
        layers = [_columns(net, starts, k) for k in (l, l + 1)]
        yield rows, slice(layers[0].start, layers[1].stop)


def _columns(net: Network, starts: dict[str, int], k: int) -> slice:
    """The columns of a layer's parameters, which stand side by side."""
    node = net.layout.affine[k]
    sizes = {name: net.parameters[name].size for name in (node.weight_name, node.bias_name) if name is not None}
    first = min(starts[name] for name in sizes)
    return slice(first, first + sum(sizes.values()))


def _failures(net: Network, X: FloatArray) -> list[float]:
    """For every pair of layers a bound of the probability that a random prime divides a minor of its Jacobian."""
    result = []
    value = span(X)
    layers = list(zip(net.weights, net.biases, strict=True))
    for (weight, bias), (after, _) in itertools.pairwise(layers):
        hidden = summed([multiplied(span(weight), value, weight.shape[1]), span(bias)])
        entries = united([multiplied(span(after), value, 1), span(after), hidden, (0, 1)])
        size = weight.size + bias.size + after.size + len(after)
        result.append(failure_bound(size * (entries[1] - entries[0] + size.bit_length()), 1))
        value = hidden
    return result


def _pair_rows(net: Network, l: int, inputs: Any, signs: list[SignArray], ring: Ring) -> Any:
    """Derivatives of what layers ``l`` and ``l + 1`` give, at the points and neurons where it is used."""
    own = ModularAlgebra(ring.prime) if isinstance(ring, ModularAlgebra) else ring  # a ring knows one network's maps
    first, second = net.layout.affine[l : l + 2]
    between = net.layout.places[l].node
    assert isinstance(between, PiecewiseLinear)  # a chain
    nodes: list[Affine | PiecewiseLinear] = [
        replace(first, source=0),
        replace(between, source=1),
        replace(second, source=2),
    ]
    pair = Network.from_nodes(nodes, net.shapes[2 * l])
    eye = own.take(np.eye(pair.out_size))[None]
    found = uses_behind(pair, traced(pair.layout, inputs, own, choices_of(pair.layout, signs[l])), own, eye)
    rows = assemble(pair, found, len(inputs), own)
    if l + 1 == len(signs):
        return rows
    # Behind a neuron that is off nothing is seen, unless it leaks.
    reader = net.layout.places[l + 1].node
    assert isinstance(reader, PiecewiseLinear)
    seen = (signs[l + 1] > 0) | (reader.slopes != 0)
    return rows[seen.reshape(-1)]
