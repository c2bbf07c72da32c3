"""What a gradient flow conserves: one number per neuron, a matrix per block of neurons that act linearly.

Let a loss depend on the outputs alone (no weight decay). Rescaling neuron ``i`` of layer ``l`` does not change them, so
the gradient is orthogonal to ``(W_l[i], b_l[i], -W_{l+1}[:, i])``, which is half the gradient of

    ``Q_{l,i} = |W_l[i]|^2 + b_l[i]^2 - |W_{l+1}[:, i]|^2``,

and the flow conserves it, always. On the set of parameters where the neurons ``S`` of a layer are active on all
training inputs, any invertible matrix may act on them, and the whole matrix

    ``Q_S = W_l[S] W_l[S]^T + b_l[S] b_l[S]^T - W_{l+1}[:, S]^T W_{l+1}[:, S]``

is conserved (paper on fibers, Theorem 6). A step of gradient descent, ``theta - h g``, changes a quadratic form ``Q``
by exactly ``h^2 Q(g)``: over a fixed time the drift is linear in ``h``. With weight decay ``d`` the flow gives
``Q(t) = exp(-2 d t) Q(0)``.

The translation of a hidden hyperplane is a symmetry, too, but its direction, ``1`` at ``b_1[i]`` and ``-W_2[:, i]`` at
``b_2``, is not the gradient of anything, whatever multiples of it and of the other symmetries are added (Proposition
37): it conserves nothing. :func:`translation_obstruction` shows it at a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.dimension.jacobian import jacobian, offsets
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.border import NetworkLike, as_network, as_networks
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.results import Result


@dataclass(frozen=True, slots=True, eq=False)
class Block(Result):
    """The conserved matrix of the neurons of one layer that act as one linear map on the inputs.

    ``layer`` counts from 1; ``neurons`` are indices in the layer; ``matrix`` is ``Q_S``, of their number squared.
    """

    layer: int
    neurons: tuple[int, ...]
    matrix: FloatArray

    def __repr__(self) -> str:
        return f"Block(layer {self.layer}, neurons {list(self.neurons)})"


@dataclass(frozen=True, slots=True, eq=False)
class Conserved(Result):
    """What :func:`conserved_quantities` gives: ``neurons`` one array ``(n_l,)`` per hidden layer, and the blocks."""

    neurons: tuple[FloatArray, ...]
    blocks: tuple[Block, ...]

    def __repr__(self) -> str:
        count = sum(len(values) for values in self.neurons)
        return f"Conserved({count} neurons, {len(self.blocks)} blocks)"


def conserved_quantities(net: NetworkLike, X: Any = None) -> Conserved:
    """The quantities that the gradient flow of any loss of the outputs on ``X`` conserves at this network.

    Parameters
    ----------
    net
        A chain of dense layers. Its numbers must be the model's own parameters, none of them shared.
    X
        Training inputs ``(points, n_0)``. With them, the neurons of a layer that act linearly on all of them make a
        block: certified positive everywhere, or linear by their activation; or, behind a leaky one, certified negative
        everywhere, with one slope. Without, only neurons that are linear by their activation do.

    Examples
    --------
    ``3 relu(2 x + 1)``: ``2^2 + 1^2 - 3^2``. Both neurons of the second network are active on the input 1:

    >>> conserved_quantities(Network([[[2.0]], [[3.0]]], [[1.0], [0.0]])).neurons
    (array([-4.]),)
    >>> net = Network([[[2.0], [1.0]], [[3.0, 1.0]]], [[1.0, 0.0], [0.0]])
    >>> conserved_quantities(net, [[1.0]]).blocks[0].matrix
    array([[-4., -1.],
           [-1.,  0.]])
    """
    net = as_network(net, points=X)
    _check(net)
    slopes = _acting_slopes(net, X)
    neurons, blocks = [], []
    for layer, slope in enumerate(slopes, start=1):
        form = _form(net, layer)
        neurons.append(np.diag(form).copy())
        for value in np.unique(slope[~np.isnan(slope) & (slope != 0)]).tolist():
            own = np.flatnonzero(slope == value)
            blocks.append(Block(layer, tuple(own.tolist()), form[np.ix_(own, own)]))
    return Conserved(tuple(neurons), tuple(blocks))


def _check(net: Network) -> None:
    """The numbers of the chain must be free parameters."""
    net.weights  # noqa: B018  # raises with a reason if this is no chain
    names = [name for node in net.layout.affine for name in _names(node)]
    if None in names or len(set(names)) < len(names):
        what = "constants or products" if None in names else "shared parameters"
        raise UnsupportedModelError(f"conserved quantities: expected layers with parameters of their own, got {what}")


def _names(node: Affine) -> list[str | None]:
    return [node.weight_name] if node.bias is None else [node.weight_name, node.bias_name]


def _form(net: Network, layer: int) -> FloatArray:
    """``W_l W_l^T + b_l b_l^T - W_{l+1}^T W_{l+1}`` of a hidden layer, from 1."""
    before = np.column_stack([net.weights[layer - 1], net.biases[layer - 1]])
    after = net.weights[layer]
    with np.errstate(over="ignore", invalid="ignore"):
        form = np.asarray(before @ before.T - after.T @ after)
    if not np.isfinite(form).all():
        raise InputError(f"conserved quantities: squares of the weights around layer {layer} leave the range of floats")
    return form


def _acting_slopes(net: Network, X: Any) -> list[FloatArray]:
    """For every hidden layer the slope with which each neuron acts on all inputs; NaN where there is no such."""
    layout = net.layout
    found = np.where(layout.linear, 1.0, np.nan)
    if X is not None and layout.size:
        signs = net.signs(batch(X, net.in_size)).signs
        found[(signs > 0).all(axis=0)] = 1.0
        negative = (signs < 0).all(axis=0) & ~layout.linear
        found[negative] = layout.slopes[negative]
    return [found[place.columns] for place in layout.places]


# -- along a training ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Drift(Result):
    """How far the quantities moved along a trajectory; made by :func:`conservation_drift`.

    Parameters
    ----------
    neurons
        Largest change of ``Q_{l,i}`` from the first network, over neurons and moments.
    blocks, off_diagonal
        Largest change of an entry of the block matrices, and of one off the diagonal, over the neurons that act
        linearly *at every moment*; None without any.
    others
        Largest change of an entry that is in no block, off the diagonal: these need not be conserved. None without any.
    moved
        Largest change of ``|W_l[i]|^2 + b_l[i]^2``: what there was to be compensated.
    final
        ``Q_{l,i}`` at the end over that at the beginning, median over the neurons where that is not zero (None if it
        is zero for all); 1 if conserved.
    active
        Neurons in blocks, per layer.
    moments
        Networks in the trajectory.
    """

    neurons: float
    blocks: float | None
    off_diagonal: float | None
    others: float | None
    moved: float
    final: float | None
    active: tuple[int, ...]
    moments: int

    def __repr__(self) -> str:
        blocks = "" if self.blocks is None else f", blocks {self.blocks:.3g}"
        return f"Drift(neurons {self.neurons:.3g}{blocks}; parts moved {self.moved:.3g} in {self.moments} moments)"


def conservation_drift(trajectory: Sequence[NetworkLike], X: Any = None) -> Drift:
    """The drift of the conserved quantities along a training.

    Parameters
    ----------
    trajectory
        The network at several moments, the beginning first; at least two, all of the same widths.
    X
        Training inputs, for the blocks. A neuron counts as active if it is at every moment given.

    Examples
    --------
    One step of gradient descent on ``relu(w) v`` from ``(w, v) = (2, 1)`` with gradient ``(1, 2)`` and step 1/4 moves
    ``w^2 - v^2`` by ``(1 - 4) / 16``:

    >>> first, second = (Network([[[w]], [[v]]], [[0.0], [0.0]]) for w, v in [(2.0, 1.0), (1.75, 0.5)])
    >>> conservation_drift([first, second]).neurons
    0.1875
    """
    nets = as_networks(trajectory, "trajectory")
    if len(nets) < 2:
        raise InputError(f"trajectory: expected at least two networks, got {len(nets)}")
    if any(net.widths != nets[0].widths for net in nets):
        raise InputError(f"trajectory: expected networks of widths {nets[0].widths}, got others too")
    if len(nets[0].widths) < 3:
        raise InputError("trajectory: expected networks with a hidden layer, got none")
    for net in nets:
        _check(net)
    slopes = [_acting_slopes(net, X) for net in nets]
    depth = len(nets[0].widths) - 2
    masks = [_same_block(np.stack([slope[k] for slope in slopes])) for k in range(depth)]
    forms = [np.stack([_form(net, k + 1) for net in nets]) for k in range(depth)]
    changes = [np.abs(form - form[0]).max(axis=0) for form in forms]
    own = [np.eye(len(mask), dtype=bool) for mask in masks]
    norms = [np.stack([_incoming(net, k) for net in nets]) for k in range(depth)]
    first, last = (np.concatenate([np.diag(form[k]) for form in forms]) for k in (0, -1))
    return Drift(
        neurons=max(float(np.diag(change).max()) for change in changes),
        blocks=_largest(changes, masks),
        off_diagonal=_largest(changes, [mask & ~eye for mask, eye in zip(masks, own, strict=True)]),
        others=_largest(changes, [~mask & ~eye for mask, eye in zip(masks, own, strict=True)]),
        moved=max(float(np.abs(norm - norm[0]).max()) for norm in norms),
        final=float(np.median(last[first != 0] / first[first != 0])) if first.any() else None,
        active=tuple(int(np.diag(mask).sum()) for mask in masks),
        moments=len(nets),
    )


def _incoming(net: Network, layer: int) -> FloatArray:
    return np.asarray((net.weights[layer] ** 2).sum(axis=1) + net.biases[layer] ** 2)


def _same_block(slopes: FloatArray) -> BoolArray:
    """Pairs of neurons that act with one slope, not zero, at every moment; ``slopes`` is ``(moments, n)``."""
    steady = (slopes == slopes[0]).all(axis=0) & (slopes[0] != 0)
    return np.asarray(steady[:, None] & steady & (slopes[0][:, None] == slopes[0]))


def _largest(changes: list[FloatArray], masks: list[BoolArray]) -> float | None:
    found = [float(change[mask].max()) for change, mask in zip(changes, masks, strict=True) if mask.any()]
    return max(found) if found else None


@dataclass(frozen=True, slots=True)
class DriftOrder(Result):
    """A power law fitted to drifts: ``drift = constant * step^slope``, by least squares of logarithms.

    ``local`` are the slopes between consecutive steps, the largest step first; their last entry is the one that counts
    as the step goes to zero.
    """

    slope: float
    constant: float
    local: tuple[float, ...]


def drift_order(drifts: Mapping[float, float]) -> DriftOrder:
    """The order at which a drift vanishes with the step size; 1 for gradient descent over a fixed time.

    >>> order = drift_order({0.1: 0.02, 0.05: 0.01, 0.025: 0.005})
    >>> round(order.slope, 9), [round(x, 9) for x in order.local]
    (1.0, [1.0, 1.0])
    """
    steps = sorted(drifts, reverse=True)
    values = [drifts[step] for step in steps]
    if len(steps) < 2 or not all(step > 0 and np.isfinite(step) for step in steps):
        raise InputError(f"drifts: expected at least two positive step sizes, got {steps}")
    if not all(value > 0 and np.isfinite(value) for value in values):
        raise InputError(f"drifts: expected positive numbers to take logarithms of, got {values}")
    x, y = np.log(steps), np.log(values)
    slope, intercept = np.polyfit(x, y, 1)
    local = np.diff(y) / np.diff(x)
    return DriftOrder(float(slope), float(np.exp(intercept)), tuple(local.tolist()))


# -- a symmetry that conserves nothing ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Obstruction(Result):
    """Why the translation of a hidden hyperplane conserves nothing; made by :func:`translation_obstruction`.

    Parameters
    ----------
    neuron
        First-layer neuron whose hyperplane is hidden.
    along
        Largest ``|v . g|`` over gradients ``g`` of outputs at the inputs, over ``|v| |g|``: zero, ``v`` is a symmetry.
    curl
        Largest ``|dv(g, g')|`` over pairs of them, over ``|g| |g'|``. Were ``u = m v + (multiples of the gradients of
        conserved quantities)`` the gradient of a function with ``m`` not zero, it would vanish.
    """

    neuron: int
    along: float
    curl: float


def translation_obstruction(net: NetworkLike, neuron: int, X: Any) -> Obstruction:
    """Whether the translation of a first-layer hyperplane is a symmetry at a network, and what keeps it from a law.

    The form ``v = db_1[i] - sum_j W_2[j, i] db_2[j]`` vanishes on all gradients of outputs if it is a symmetry, and has
    ``dv = -sum_j dW_2[j, i] ^ db_2[j]``. The forms of rescalings vanish on gradients, too, and are closed. So on two
    gradients ``g, g'`` the derivative of ``m v + sum c_k s_k`` is ``m dv(g, g')``, for any functions ``m`` and ``c``.

    Parameters
    ----------
    net
        A chain with at least two hidden layers.
    neuron
        ``i``, a neuron of the first layer.
    X
        Inputs ``(points, n_0)`` whose outputs the loss may see.

    Examples
    --------
    >>> net = Network([np.eye(2), [[1.0, -1.0]], [[1.0]]], [[0.0, 0.0], [-0.25], [0.0]])
    >>> found = translation_obstruction(net, 0, [[1.0, 0.5], [2.0, 0.5]])
    >>> found.along, found.curl > 0.01
    (0.0, True)
    """
    net = as_network(net, points=X)
    _check(net)
    if len(net.widths) < 4:
        raise InputError(f"translation: expected at least two hidden layers, got widths {net.widths}")
    if not 0 <= neuron < net.widths[1]:
        raise InputError(f"neuron: expected 0 to {net.widths[1] - 1}, got {neuron}")
    gradients = np.asarray(jacobian(net, X))
    b1, w2, b2 = _columns(net, neuron)
    v = np.zeros(gradients.shape[1])
    v[b1], v[b2] = 1.0, -net.weights[1][:, neuron]
    size = np.linalg.norm(gradients, axis=1)
    g = gradients[size > 0] / size[size > 0, None]
    if not len(g):
        raise InputError("X: expected inputs at which an output depends on a parameter, got none")
    one = g[:, w2] @ g[:, b2].T
    return Obstruction(int(neuron), float(np.abs(g @ v).max() / np.linalg.norm(v)), float(np.abs(one.T - one).max()))


def _columns(net: Network, neuron: int) -> tuple[int, IntArray, IntArray]:
    """Columns of the Jacobian for ``b_1[i]``, ``W_2[:, i]`` and ``b_2``."""
    first, second = net.layout.affine[:2]
    if first.bias_name is None or second.bias_name is None or second.weight_name is None:
        raise InputError("translation: expected biases in the first two layers, got a layer without")
    start, (m, n) = offsets(net), net.weights[1].shape
    return (
        start[first.bias_name] + neuron,
        start[second.weight_name] + neuron + n * np.arange(m),
        start[second.bias_name] + np.arange(m),
    )
