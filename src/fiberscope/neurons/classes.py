"""The function classes of a layer's neurons on their inputs: what each can compute, and at what cost.

Reference: sections 3 and C of :cite:`neuronidentifiability`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fiberscope.errors import InputError, TooLargeError
from fiberscope.network.action.element import permutation
from fiberscope.neurons.coherence import Concentration, checked_basis, coherence, concentration
from fiberscope.neurons.gaps import Gap, gap_in, gap_out
from fiberscope.neurons.gram_forms import Points
from fiberscope.neurons.layers import LayerArrays, from_arrays, layer_arrays
from fiberscope.neurons.projected import ProjectedLayer
from fiberscope.neurons.reindexing import (
    JointCost,
    ReindexingCosts,
    joint_cost,
    reindexing_cost,
    transpositions,
)
from fiberscope.neurons.sensitivity import (
    Sensitivity,
    Smallest,
    output_sensitivity,
    sensitivity,
    smallest_input,
    smallest_output,
    swap_sensitivities,
)
from fiberscope.neurons.subspace import Moments, Subspace, moments, subspace
from fiberscope.neurons.swaps import (
    CheapestPermutation,
    CostMatrix,
    SwapTerms,
    cheapest_permutation,
    cost_matrix,
    permutation_cost,
    swap_costs,
    swap_terms,
)
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Pictured, hidden
from fiberscope.run import Progress, Run

GRAM_LIMIT = 1 << 30
"""Bytes of all Gram matrices together, above which they are only given one by one."""


@dataclass(frozen=True, eq=False)
class NeuronClasses(Pictured):
    """What the neurons of a layer ``W_eff = F + D * W`` can compute on a subspace of inputs, and what it costs them.

    All costs refer to the inputs projected onto ``basis``. They are the smallest norms of trained weights that give the
    *preactivation* on the subspace. That is the cost of the *function* where the inputs determine the preactivation
    (Assumption C.2): for injective activations whenever they span the subspace; for ReLU, GELU and their like if the
    inputs on which the function is active span it, which :func:`fiberscope.neurons.exactness.exactness` checks.
    Otherwise the costs are upper bounds; on non-negative inputs, as after a ReLU, the paper's own assumption never
    holds.

    >>> classes = NeuronClasses.from_arrays([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]] * 2, [[0.0, 0.0]] * 2, np.eye(2))
    >>> classes.swap_costs().tolist(), round(classes.gap_out, 12)
    ([[0.0, 4.0], [4.0, 0.0]], 2.0)
    """

    layer: LayerArrays = field(repr=False, metadata=hidden())
    subspace: Subspace = field(repr=False)
    projected: ProjectedLayer = field(repr=False, metadata=hidden())

    told = (
        "layer=name",
        "neurons=num_neurons",
        "inputs=layer.width",
        "coherence",
        "mu",
        "gap_out=_gap_out",
        "gap_in=_gap_in",
        "ranks",
        "realization_costs",
    )
    picture = "swap_costs"

    @classmethod
    def from_arrays(cls, F: Any, D: Any, W: Any, basis: Any, *, name: str = "layer") -> NeuronClasses:
        """From the three matrices ``(m, d)`` and an orthonormal basis ``(d, k)`` of the input subspace."""
        layer, columns = from_arrays(F, D, W, name), checked_basis(basis)
        if len(columns) != layer.width:
            raise InputError(f"{name}: expected a basis with {layer.width} rows, got shape {columns.shape}")
        unit = np.ones(columns.shape[1])
        space = Subspace(frozen(columns), unit, 0.0, 1.0, 0, None)
        return cls.of(layer, space)

    @classmethod
    def of(cls, layer: LayerArrays, space: Subspace) -> NeuronClasses:
        """From a layer and the subspace of its inputs."""
        return cls(layer, space, ProjectedLayer.of(layer.F, layer.D, layer.W, space.basis))

    # --- the layer on the subspace

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.layer.name

    @property
    def num_neurons(self) -> int:
        """``m``."""
        return len(self.projected)

    @property
    def rank(self) -> int:
        """Dimension ``k`` of the subspace."""
        return self.projected.rank

    @property
    def basis(self) -> FloatArray:
        """``(d, k)``: ``U``."""
        return self.subspace.basis

    @property
    def centers(self) -> FloatArray:
        """``(m, k)``: ``v_i = U^T f_i``."""
        return self.projected.centers

    @property
    def trained(self) -> FloatArray:
        """``(m, k)``: ``r_i = U^T (d_i * w_i)``."""
        return self.projected.trained

    @property
    def coefficients(self) -> FloatArray:
        """``(m, k)``: ``a_i = v_i + r_i``, the function of neuron ``i``."""
        return self.projected.coefficients

    @property
    def grams(self) -> FloatArray:
        """``(m, k, k)``: all ``S_i = U^T Diag(d_i)^2 U``; :meth:`gram` gives one."""
        need = 8 * self.num_neurons * self.rank**2
        if need > GRAM_LIMIT:
            raise TooLargeError(f"{self.name}: all Gram matrices need {need / 2**30:.1f} GiB; ask for them one by one")
        return np.stack([self.gram(i) for i in range(self.num_neurons)])

    def gram(self, i: int) -> FloatArray:
        """``(k, k)``: ``S_i``."""
        return self.projected.grams.gram(i)

    @property
    def tail_energy(self) -> float:
        """``tau_k``: mean squared distance of the inputs from the subspace."""
        return self.subspace.tail_energy

    @cached_property
    def coherence(self) -> float:
        """``nu(U)`` in ``[k/d, 1]``."""
        return coherence(self.basis)

    @cached_property
    def mu(self) -> float:
        """``mu_D``: the mean of the squared scales."""
        return float((self.projected.scales**2).mean())

    # --- gaps

    @property
    def gaps(self) -> tuple[Gap, Gap]:
        """``gamma_out`` and ``gamma_in``, each with its pair and the predicted rate."""
        return self._gap_out, self._gap_in

    @cached_property
    def _gap_out(self) -> Gap:
        return gap_out(self.projected)

    @cached_property
    def _gap_in(self) -> Gap:
        return gap_in(self.projected)

    @property
    def gap_out(self) -> float:
        """``gamma_out``: ``sqrt(2)`` times the smallest distance of two centres."""
        return self._gap_out.value

    @property
    def gap_in(self) -> float:
        """``gamma_in``: the smallest displacement of the centres by a transposition of inputs."""
        return self._gap_in.value

    # --- realisation costs

    @cached_property
    def costs(self) -> CostMatrix:
        """Squared costs of all functions at all neurons, with the ranks of the Gram matrices."""
        return cost_matrix(self.projected)

    @property
    def ranks(self) -> np.ndarray:
        """``(m,)``: ranks of the ``S_i``, decided by singular values; ``costs.gaps`` says how clearly."""
        return self.costs.ranks

    @property
    def realization_costs(self) -> FloatArray:
        """``(m,)``: smallest norm of weights with which each neuron computes its own function."""
        return np.sqrt(self.costs.own)

    def realization_cost(self, coefficient: Any, neuron: int) -> float:
        """Smallest norm of weights with which ``neuron`` computes the function with this coefficient ``(k,)``; may be
        infinite.
        """
        a = real_array(coefficient, "coefficient", ndim=1)
        if a.shape != (self.rank,):
            raise InputError(f"coefficient: expected shape ({self.rank},), got {a.shape}")
        if not 0 <= neuron < self.num_neurons:
            raise InputError(f"neuron: expected 0..{self.num_neurons - 1}, got {neuron}")
        metric = self.projected.grams.metric(neuron)
        vector = (a - self.centers[neuron])[None]
        size = float(np.linalg.norm(a)) + float(self.projected.sizes[neuron])
        if not metric.realisable(vector, size)[0]:
            return float(np.inf)
        transformed = metric.transformed(Points.of(vector, self.basis))
        square = (transformed**2).sum() + (vector**2).sum() * metric.euclidean
        return float(np.sqrt(square))

    # --- permutations of the neurons

    def swap_costs(self) -> FloatArray:
        """``(m, m)``: what exchanging the functions of two neurons adds to the squared costs, for all pairs."""
        return swap_costs(self.costs)

    def swap_terms(self) -> SwapTerms:
        """The swap costs as the sum of a centre, a cross and a metric-mismatch term (Lemma C.8)."""
        return swap_terms(self.projected, self.costs)

    def permutation_cost(self, order: Any) -> float:
        """What it adds to the squared costs if neuron ``i`` takes the function of neuron ``order[i]``."""
        return permutation_cost(self.costs, permutation(order, self.num_neurons, "permutation"))

    def cheapest_permutation(self) -> CheapestPermutation:
        """The permutation other than the identity that costs least; negative if the neurons sit in costly places."""
        return cheapest_permutation(self.costs)

    # --- permutations of the inputs

    def reindexing_cost(self, order: Any) -> float:
        """What it adds to the squared costs if input ``order[a]`` comes in at place ``a``."""
        return reindexing_cost(self.projected, self.costs.own, self._inputs(order))

    def reindexing_costs(
        self, pairs: Any = None, *, progress: Progress | None = None, time_limit: float | None = None
    ) -> ReindexingCosts:
        """Costs of transpositions of inputs: all pairs, or the given ``(n, 2)``."""
        return transpositions(self.projected, self.costs.own, self.mu, pairs, Run.begin(progress, time_limit))

    def joint_cost(self, outputs: Any, inputs: Any) -> JointCost:
        """Cost of permuting neurons and inputs together, and its split (9)."""
        order, reindexing = permutation(outputs, self.num_neurons, "outputs"), self._inputs(inputs)
        after = cost_matrix(self.projected.reindexed(reindexing))
        return joint_cost(self.projected, self.costs.own, order, reindexing, after)

    def _inputs(self, order: Any) -> np.ndarray:
        return permutation(order, self.layer.width, "inputs")

    # --- leading terms beside exact costs

    def concentration(self, delta: float = 0.05) -> Concentration:
        """``|S_i - mu I|`` beside the bound of Theorem C.6."""
        return concentration(self.projected, delta)

    @cached_property
    def epsilon(self) -> float:
        """``max_i |S_i - mu I|``."""
        return self.concentration().epsilon

    def swap_sensitivities(self) -> Sensitivity:
        """Theorem C.10 for all transpositions of neurons: exact cost, leading term and error bound, ``(m, m)`` each."""
        return swap_sensitivities(self.projected, self.swap_costs(), self.epsilon, self.mu)

    def output_sensitivity(self, order: Any) -> Sensitivity:
        """Theorem C.10 for one permutation of neurons."""
        checked = permutation(order, self.num_neurons, "permutation")
        exact = permutation_cost(self.costs, checked)
        return output_sensitivity(self.projected, checked, exact, self.epsilon, self.mu)

    def input_sensitivity(self, order: Any) -> Sensitivity:
        """Theorem C.13 for one permutation of inputs; ``epsilon`` covers the Gram matrices before and after."""
        checked = self._inputs(order)
        exact = reindexing_cost(self.projected, self.costs.own, checked)
        after = concentration(self.projected.reindexed(checked), mu=self.mu).epsilon
        delta = float(np.linalg.norm(self.projected.displacement(checked)))
        total = float(np.linalg.norm(self.trained))
        return sensitivity(exact, delta, total, total, max(self.epsilon, after), self.mu)

    def smallest_output_cost(self) -> Smallest:
        """Corollary C.11: the least cost over all permutations of neurons, beside ``gamma_out^2 / mu``."""
        return smallest_output(self.projected, self.cheapest_permutation().cost, self.epsilon, self.mu)

    def smallest_input_cost(self, *, progress: Progress | None = None, time_limit: float | None = None) -> Smallest:
        """Corollary C.14: the least cost over all transpositions of inputs, beside ``gamma_in^2 / mu``."""
        exact = self.reindexing_costs(progress=progress, time_limit=time_limit).smallest[0]
        return smallest_input(self.projected, exact, self.epsilon, self.mu)

    # --- summary

    def __repr__(self) -> str:
        d = self.layer.width
        return (
            f"NeuronClasses({self.name}: {self.num_neurons} neurons, {d} inputs, rank {self.rank} "
            f"at {self.subspace.energy:.1%} of the energy, coherence {self.coherence:.4f}, gap_out {self.gap_out:.4g})"
        )


def neuron_classes(
    layer: Any,
    inputs: Any,
    energy: float = 0.9,
    *,
    rank: int | None = None,
    bias: bool = False,
    centred: bool = False,
    name: str | None = None,
    parameter: str = "weight",
) -> NeuronClasses:
    """The function classes of a layer's neurons on the principal subspace of its inputs.

    Parameters
    ----------
    layer
        A torch ``Linear`` or ``Conv2d``, symmetry-broken (its weight parametrised by a module with the buffers ``F``
        and ``D``) or plain (``F = 0``, ``D = 1``); or the matrices ``(F, D, W)``, or a mapping with these keys.
    inputs
        What the layer was run on: ``(points, d)``, for a convolution images or patches; an iterable of batches; or
        streamed moments with ``second_moment`` and ``count``. They are read in chunks; memory does not grow with their
        number.
    energy
        The subspace is the smallest principal one (second moments, not centred) that holds this share of the energy.
    rank
        Or its dimension.
    bias
        Count the bias as the weight of a constant input. The paper has none, so the default leaves it out.
    centred
        Take the principal subspace of the covariance instead. The theory speaks of subspaces that hold the inputs,
        hence of second moments; the paper's number of 87 directions for MNIST belongs to the covariance.
    name
        How the result and errors call the layer.
    parameter
        Which parameter of the layer holds the weights, as ``"in_proj_weight"`` of an attention.

    >>> rng = np.random.default_rng(0)
    >>> F, W = rng.normal(size=(5, 6)), 0.1 * rng.normal(size=(5, 6))
    >>> X = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 6))  # three directions of six
    >>> classes = neuron_classes((F, np.ones((5, 6)), W), X, energy=1.0)
    >>> classes.rank, bool(np.allclose(classes.swap_costs(), classes.swap_terms().total))
    (3, True)
    >>> bool(abs(classes.permutation_cost([1, 0, 2, 3, 4]) - classes.swap_costs()[0, 1]) < 1e-12)
    True
    """
    arrays = layer_arrays(layer, name, parameter)
    found: Moments = moments(inputs, arrays.width, name=arrays.name, bias=bias, rows=arrays.rows)
    space = subspace(found, energy=energy, rank=rank, centred=centred, name=arrays.name)
    return NeuronClasses.of(arrays.with_bias() if bias else arrays, space)
