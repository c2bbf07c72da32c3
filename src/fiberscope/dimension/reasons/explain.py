"""What the kernel of the Jacobian is made of: every direction that changes no output on a batch, by its reason.

The reasons are asked in this order, and each counts what the ones before it leave open: weights of *dead* neurons;
*rescalings* of neurons; mixtures of *linear* neurons (``GL`` of the block); *translations* of linear neurons; mixtures
of neurons of a layer that switch together on the batch (*equal patterns*); changes of *one layer* that no output sees;
changes of two *adjacent layers* that cancel to first order. What is left is *unexplained*. Of programs that are no
chains (convolutions, residual connections) *dead* are the parameters that no output depends on, rescaled are neurons
and channels, shifts and scales in front of a *normalisation* are taken back behind it, and neurons are mixed and
translated between two dense layers in a row only: other mixtures are found among the adjacent layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from fiberscope.dimension.bounds import Bound, program_symmetry
from fiberscope.dimension.decisive import decide
from fiberscope.dimension.exact_rank import Sampled, sample
from fiberscope.dimension.functional import active_sets_bound, functional_dimension
from fiberscope.dimension.gap import (
    adjacent_layers_bound,
    position_bound,
    silent_layers_bound,
)
from fiberscope.dimension.jacobian import check_memory, check_size, with_own_parameters
from fiberscope.dimension.reasons.directions import KINDS, ChainReasons, ProgramReasons, chain_directions
from fiberscope.dimension.reasons.layer_kernels import Rows
from fiberscope.dimension.reasons.paths import algebraic_bound
from fiberscope.dimension.symmetries import (
    activity,
    acts_freely_on,
    signs_nearby,
)
from fiberscope.errors import InputError, NotGenericError
from fiberscope.network.border import as_network
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.elimination import echelon_mod, rank_mod
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.modular import Residues, random_primes
from fiberscope.numerics.rank import null_rows
from fiberscope.results import Pictured, Result, Tabular, hidden
from fiberscope.run import Progress, Run

MEMORY = 1 << 31
"""Bytes that all directions may take unless the caller says otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelPart(Result):
    """Directions of one reason: ``dimension`` counts those that no reason before it gives.

    ``integrates`` says whether one can go along them for a while without changing any output on the batch (True), or
    is known to first order only (None). ``everywhere`` counts those among them whose reason holds on
    all inputs: they lie in the fiber of the network. There may be more: a neuron that is off on the batch only can be
    rescaled too. ``directions`` are independent modulo the kinds before, as rows.
    """

    kind: str
    dimension: int
    integrates: bool | None
    everywhere: int
    meaning: str
    directions: FloatArray = field(repr=False, metadata=hidden())


@dataclass(frozen=True, slots=True, eq=False)
class KernelDecomposition(Tabular, Pictured):
    """The kernel of the Jacobian on a batch, by reasons; :attr:`sentence` says it in words.

    ``parts`` add up to ``nullity``, the number of parameters minus the exact ``rank``. Counts are modulo a random
    prime: those of reasons are lower bounds of what a reason gives, and the rank is wrong with probability at most
    ``failure_probability``. ``bounds`` are upper bounds of the rank that come from these reasons and from the place of
    the points.

    ``fiber`` is a proven lower bound of the dimension of the fiber at this parameter: the rank of all directions along
    which the function stays the same on all inputs. On any batch ``rank + fiber <= D``; on a decisive set, where the
    rank is the functional dimension ``d``, the fiber has at most ``D - d`` dimensions. So where ``gap`` is 0 there,
    ``D = d + s`` with ``s`` the dimension of the fiber.
    """

    num_parameters: int
    num_points: int
    rank: int
    nullity: int
    failure_probability: float
    parts: tuple[KernelPart, ...]
    bounds: tuple[Bound, ...]
    batch: str
    fiber: int = 0
    decisive: bool = False

    told = ("sentence", "explained", "gap", "certified")
    frame = "parts"
    picture = "kernel_parts"

    @property
    def explained(self) -> int:
        """Dimensions of the kernel that have a reason."""
        return sum(part.dimension for part in self.parts if part.kind != "unexplained")

    @property
    def gap(self) -> int:
        """Dimensions of the kernel that are not known to be directions of the fiber: ``D - rank - fiber``."""
        return self.nullity - self.fiber

    @property
    def certified(self) -> bool:
        """Whether a proven upper bound meets the rank."""
        return any(bound.value == self.rank for bound in self.bounds if bound.holds and bound.proven)

    def part(self, kind: str) -> KernelPart:
        """The part of that kind."""
        for part in self.parts:
            if part.kind == kind:
                return part
        raise InputError(f"kind: expected one of {', '.join(p.kind for p in self.parts)}, got {kind!r}")

    @property
    def sentence(self) -> str:
        """The decomposition in words."""
        some = [f"{part.dimension} {part.meaning}" for part in self.parts if part.dimension]
        made = f": {', '.join(some)}" if some else ""
        moves = sum(part.dimension for part in self.parts if part.integrates)
        return (
            f"{self.rank} of {self.num_parameters} directions change the outputs on these {self.num_points} points, "
            f"{self.nullity} do not{made}; along {moves} of them one can go on, "
            f"at least {self.everywhere} of these on all inputs{self._balance}"
        )

    @property
    def _balance(self) -> str:
        if not self.decisive:
            return ""
        D, d = self.num_parameters, self.rank
        if self.gap == 0:
            return f"; {D} = {d} + {self.fiber}: functional dimension and dimension of the fiber"
        return f"; the fiber has {self.fiber} to {self.nullity} dimensions"

    @property
    def everywhere(self) -> int:
        """At least so many dimensions change the function on no input."""
        return sum(part.everywhere for part in self.parts)

    def __repr__(self) -> str:
        return f"KernelDecomposition({self.sentence})"


_MEANINGS = {
    "dead": ("weights of dead neurons", True),
    "rescaling": ("rescalings of neurons", True),
    "normalisation": ("shifts and scales that a normalisation takes back", True),
    "linear": ("mixtures of linear neurons", True),
    "translation": ("translations of linear neurons", True),
    "equal patterns": ("mixtures of neurons that switch together", True),
    "one layer": ("changes of one layer that no output sees", True),
    "adjacent layers": ("changes of adjacent layers that cancel to first order", None),
    "unexplained": ("unexplained", None),
}


def explain(
    net: Any,
    X: Any = None,
    *,
    seed: int = 0,
    memory: int = MEMORY,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> KernelDecomposition:
    """What is the kernel of the Jacobian made of? A basis of it, every vector with its reason.

    Parameters
    ----------
    net
        A network of any kind with its own parameters (a :class:`Network` or what :func:`fiberscope.load` takes).
    X
        The batch ``(points, in_size)``; None asks a decisive set, and :class:`NotGenericError` where there is none.
    seed
        Seed of primes and samples.
    memory
        Bytes; above, :class:`TooLargeError` gives the estimate.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Examples
    --------
    ``v relu(w x + b) + c`` where the neuron is always on: a line has two parameters, the network four. Of the others
    one is the rescaling of the neuron and one its translation.

    >>> net = Network([[[2.0]], [[3.0]]], [[1.0], [0.0]])
    >>> found = explain(net, [[1.0], [2.0], [3.0]])
    >>> [(part.kind, part.dimension) for part in found.parts if part.dimension]
    [('rescaling', 1), ('translation', 1)]
    """
    net = as_network(net)
    check_memory(memory)
    net = with_own_parameters(net)
    run = Run.begin(progress, time_limit)
    if X is None:
        points = decide(net, None, seed, memory, run)
        if not points.complete:
            raise NotGenericError(f"X: expected a batch, since no decisive set is known ({points.text})")
        text, given = points.text, points.X
    else:
        text, given = "given batch", batch(X, net.in_size)
    check_size(net.num_parameters, net.num_parameters, memory, copies=6)
    check_size(len(given) * net.out_size, net.num_parameters, memory, copies=3)
    found = sample(net, given, run)
    if len(found.X) == 0:
        raise NotGenericError(f"all {len(given)} points lie on kinks of the outputs; {found.reasons[0]}")
    whole = functional_dimension(net, found.X, ranks="exact", seed=seed, memory=memory)
    assert whole.exact is not None and whole.failure_probability is not None
    parts = _parts(net, found, whole.exact, seed, run)
    fiber = _fiber_dimension(net, seed, run)
    what = "none (directions along which the function stays the same on all inputs)"
    bounds = (
        *whole.bounds,
        Bound("fiber", net.num_parameters - fiber, what, True, True),
        *_more_bounds(net, found, run),
    )
    return KernelDecomposition(
        num_parameters=net.num_parameters,
        num_points=len(found.X),
        rank=whole.exact,
        nullity=net.num_parameters - whole.exact,
        failure_probability=whole.failure_probability,
        parts=parts,
        bounds=bounds,
        batch=text,
        fiber=fiber,
        decisive=X is None,
    )


def _fiber_dimension(net: Network, seed: int, run: Run) -> int:
    """The rank of all directions along which the function stays on all inputs; modulo a prime it can only be less."""
    if not _is_chain(net):
        return program_symmetry(net)
    prime = random_primes(1, seed)[0]
    always = activity(net, signs_nearby(net))
    none = np.zeros((0, net.num_hidden), np.int8)
    rows = [chain_directions(net, kind, always, none, ModularAlgebra(prime)) for kind in KINDS[:4]]
    return rank_mod(np.concatenate(rows), prime, run)


def _is_chain(net: Network) -> bool:
    """Whether the group acts on the hidden layers: then mixtures of neurons are reasons too."""
    return acts_freely_on(net) and len(net.layout.places) > 0


def _more_bounds(net: Network, found: Sampled, run: Run) -> Iterator[Bound]:
    what = "none (the affine rank of the points of every region)"
    yield Bound("position", net.out_size * position_bound(found), what, True, True)
    if not _is_chain(net):
        return
    yield from active_sets_bound(net, found, run)
    if net.out_size == 1 and bool((net.layout.slopes == 0).all()):
        what = "none (regions that share the signs behind a silent layer count once)"
        yield Bound("silent layers", silent_layers_bound(net, found), what, True, True)
    algebraic = algebraic_bound(net, found, run)
    if algebraic is not None:
        yield algebraic
    yield adjacent_layers_bound(net, found)


def _parts(net: Network, found: Sampled, rank: int, seed: int, run: Run) -> tuple[KernelPart, ...]:
    """Kind by kind: how many of its directions are new, over all inputs and on the batch."""
    prime = random_primes(1, seed)[0]
    rows = Rows.of(net, found, prime, run)
    reasons: ChainReasons | ProgramReasons = (
        ChainReasons(net, found, rows) if _is_chain(net) else ProgramReasons(net, rows)
    )
    known: list[Residues] = [np.zeros((0, net.num_parameters), np.uint64)]
    result: list[KernelPart] = []
    for done, kind in enumerate(reasons.kinds):
        run.step(done, len(reasons.kinds), kind)
        directions = reasons.residues(kind, run)
        fresh = _new(known, directions, prime, run)
        # Of these some are directions of the fiber itself: their reason holds on all inputs.
        sure = len(_new(known, reasons.everywhere(kind), prime, run))
        known.append(directions[fresh])
        generators = reasons.floats(kind)
        if kind in reasons.row_by_row:
            floats = generators[fresh]
        else:
            floats = _furthest(generators, len(fresh), [part.directions for part in result])
        meaning, integrates = _MEANINGS[kind]
        result.append(KernelPart(kind, len(fresh), integrates, sure, meaning, floats))
    left = net.num_parameters - rank - sum(part.dimension for part in result)
    rest = null_rows(rows.floats, net.num_parameters - rank)
    meaning, integrates = _MEANINGS["unexplained"]
    others = _furthest(rest, left, [part.directions for part in result])
    return (*result, KernelPart("unexplained", left, integrates, 0, meaning, others))


def _new(known: list[Residues], rows: Residues, prime: int, run: Run) -> IntArray:
    """Which rows are independent of the known ones and of each other."""
    before = np.concatenate(known)
    table = np.concatenate([before, rows])
    pivots = np.array(echelon_mod(np.ascontiguousarray(table.T), prime, run).pivots, dtype=np.int64)
    return pivots[pivots >= len(before)] - len(before)


def _furthest(candidates: FloatArray, count: int, known: list[FloatArray]) -> FloatArray:
    """So many of the candidates, those that are furthest from the span of the ``known`` ones, as they are."""
    if count == 0:
        return np.zeros((0, candidates.shape[1]))
    before = np.concatenate(known)
    basis = scipy.linalg.orth(before.T).T if len(before) else before
    rest = candidates - (candidates @ basis.T) @ basis
    # Candidates as they are: a change of one layer stays one.
    chosen = scipy.linalg.qr(rest.T, mode="r", pivoting=True)[1][:count]
    return np.ascontiguousarray(candidates[np.sort(chosen)])
