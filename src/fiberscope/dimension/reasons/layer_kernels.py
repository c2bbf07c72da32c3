"""Changes of one layer, or of two adjacent ones, that no output sees: kernels of parts of the Jacobian.

With the signs held fixed outputs are affine in the parameters of one layer that is used once. So a change of that layer
alone which does nothing to first order does nothing at all, until a sign changes. Of two layers this is not so: what
cancels to first order has a product of the two changes left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fiberscope.dimension.exact_rank import Sampled, spanning_points
from fiberscope.dimension.jacobian import offsets, rows_in_ring
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import echelon_mod
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.modular import Residues
from fiberscope.numerics.rank import null_rows
from fiberscope.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class ParameterLayer:
    """An affine node with parameters: their columns, and whether they are used once."""

    node: int
    columns: IntArray
    alone: bool


def layers_of(net: Network) -> list[ParameterLayer]:
    """The layers of a program in order."""
    owned = {index: node for index, node in enumerate(net.nodes) if isinstance(node, Affine)}
    uses = Counter(name for node in owned.values() for name in _names(node))
    starts = offsets(net)
    result = []
    for index, node in owned.items():
        names = _names(node)
        if names:
            columns = [starts[name] + np.arange(net.parameters[name].size) for name in names]
            # Maps in a row that are one parameter are multiplied with each other.
            alone = all(uses[name] == 1 for name in names) and len(node.operator.stages()) == 1
            result.append(ParameterLayer(index, np.concatenate(columns), alone))
    return result


def _names(node: Affine) -> list[str]:
    names = [node.weight_name, None if node.bias is None else node.bias_name]
    return [name for name in dict.fromkeys(names) if name is not None]


def adjacent(net: Network, layers: list[ParameterLayer]) -> list[tuple[ParameterLayer, ParameterLayer]]:
    """Pairs of a layer and one that reads it, with no other layer in between.

    >>> net = Network.random((2, 3, 3, 1), 0)
    >>> [(a.node, b.node) for a, b in adjacent(net, layers_of(net))]
    [(0, 2), (2, 4)]
    """
    own = {layer.node: layer for layer in layers}
    before: list[set[int]] = [set()]
    pairs = []
    for index, node in enumerate(net.nodes):
        feeding = set().union(*(before[source] for source in node.sources))
        if index in own:
            pairs += [(own[a], own[index]) for a in sorted(feeding)]
            feeding = {index}
        before.append(feeding)
    return pairs


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of the Jacobian that span all of them: modulo a prime, and the same ones in floats."""

    residues: Residues
    floats: FloatArray
    prime: int

    @classmethod
    def of(cls, net: Network, found: Sampled, prime: int, run: Run) -> Rows:
        keep = spanning_points(found, run)
        X, signs = found.X[keep], found.signs[keep]
        table: Residues = rows_in_ring(net, X, ModularAlgebra(prime), signs, run)
        echelon = echelon_mod(table.copy(), prime, run)
        chosen = np.sort(np.asarray(echelon.order[: echelon.rank]))
        floats = rows_in_ring(net, X, FLOAT, signs, run)[chosen]
        return cls(np.ascontiguousarray(table[chosen]), floats, prime)

    @property
    def silent(self) -> IntArray:
        """Columns of zeros: parameters that no output depends on here."""
        return np.flatnonzero(~self.residues.any(axis=0))

    def kernels(self, blocks: Iterable[IntArray], run: Run) -> Residues:
        """The kernel of every block of columns, as rows over all parameters."""
        D = self.residues.shape[1]
        result = [np.zeros((0, D), np.uint64)]
        for columns in blocks:
            run.check()
            kernel = self._kernel(columns)
            rows = np.zeros((len(kernel), D), np.uint64)
            rows[:, columns] = kernel
            result.append(rows)
        return np.concatenate(result)

    def float_kernels(self, blocks: Iterable[IntArray]) -> FloatArray:
        """The same in floats, orthonormal for every block; as many as there are exactly."""
        D = self.residues.shape[1]
        result = [np.zeros((0, D))]
        for columns in blocks:
            kernel = null_rows(self.floats[:, columns], len(self._kernel(columns)))
            rows = np.zeros((len(kernel), D))
            rows[:, columns] = kernel
            result.append(rows)
        return np.concatenate(result)

    def _kernel(self, columns: IntArray) -> Residues:
        if len(self.residues) == 0:
            return np.eye(len(columns), dtype=np.uint64)
        return echelon_mod(np.ascontiguousarray(self.residues[:, columns]), self.prime).kernel()
