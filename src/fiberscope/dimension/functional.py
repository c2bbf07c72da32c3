"""Functional dimension: how many independent things the parameters can do to the outputs on a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope import modules
from fiberscope.dimension.active_sets import active_directions
from fiberscope.dimension.blocks import blocked_rank
from fiberscope.dimension.bounds import Bound, bounds
from fiberscope.dimension.choice import RANKS, asked_ranks, chosen_names, frozen_names, restricted, slopes_as_maps
from fiberscope.dimension.decisive import DecisiveSet, decide
from fiberscope.dimension.exact_rank import WIDE, Sampled, exact_jacobian_rank, sample, way_of
from fiberscope.dimension.jacobian import check_memory, check_size, own_network, rows_in_ring, with_own_parameters
from fiberscope.dimension.symmetries import HiddenSymmetry, hidden_symmetry, signs_anywhere
from fiberscope.errors import InputError, NotGenericError, UnsupportedModelError
from fiberscope.network.border import as_model
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.floating import FloatAlgebra
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.cutoffs import MEANINGLESS
from fiberscope.numerics.floats import FloatArray, SignArray
from fiberscope.numerics.rank import ExactRank, NumericalRank, numerical_rank, rank_cutoff
from fiberscope.results import Pictured, Tabular
from fiberscope.run import ENDLESS, Progress, Run

MEMORY = 1 << 31
"""Bytes that all Jacobians of one question may take together unless the caller says otherwise."""

FLOAT_WORK = 10**10
"""Products that the singular values of a decisive set may cost where they were not asked for by name."""


@dataclass(frozen=True, slots=True, eq=False)
class FunctionalDimension(Tabular, Pictured):
    """The rank of the Jacobian on a batch, three times, with evidence.

    ``exact`` is the rank over the rationals, wrong with probability at most ``failure_probability`` (over the draw of
    primes); ``lower`` is proven. ``certified`` means that a proven upper bound meets it: nothing is left to chance.
    Of a question about all inputs that was answered on samples ``decisive`` is False: then only ``lower`` is known,
    and ``exact`` is None unless ``certified``. ``batch`` says which points were used.

    ``numerical`` counts singular values of the float64 Jacobian above ``cutoff``; ``gap`` is the ratio of the last one
    kept to the first one dropped. ``paper`` is the rule of the literature: singular values of the float32 Jacobian
    above ``max(rows, D) * sigma_max * eps32``. A Jacobian that exceeds the range of its floats has neither: None.

    ``on_boundary`` lists the points on kinks: a preactivation is exactly zero, or inputs of a pooling window tie, and
    the sides have different derivatives in the outputs (see :func:`fiberscope.dimension.kinks.kinks`; a point that is
    left in is proven to be none). They are left out of everything else; ``reasons`` says of each which neuron is at
    fault. ``regions_sampled`` counts sign vectors. ``exact``, ``lower``, ``regions_sampled``
    and ``symmetry`` are None where the model is not a :class:`Network`. ``ranks`` says which ranks were asked for, the
    others are None; ``warnings`` are sentences about those that mean little.
    """

    exact: int | None
    lower: int | None
    failure_probability: float | None
    numerical: int | None
    paper: int | None
    certified: bool
    bounds: tuple[Bound, ...]
    regions_sampled: int | None
    num_points: int
    num_outputs: int
    num_parameters: int
    on_boundary: tuple[int, ...]
    symmetry: HiddenSymmetry | None
    batch: str
    decisive: bool
    singular_values: FloatArray = field(repr=False)
    cutoff: float = field(repr=False)
    gap: float = field(repr=False)
    paper_singular_values: FloatArray = field(repr=False)
    paper_cutoff: float = field(repr=False)
    primes: tuple[int, ...] = field(repr=False, default=())
    reasons: tuple[str, ...] = field(repr=False, default=())
    ranks: tuple[str, ...] = RANKS
    warnings: tuple[str, ...] = ()

    told = ("upper",)
    frame = "bounds"
    picture = "spectrum"

    @property
    def upper(self) -> int:
        """The smallest proven upper bound whose assumptions are met."""
        return min(bound.value for bound in self.bounds if bound.holds and bound.proven)

    def bound(self, name: str) -> Bound:
        """The bound of that name."""
        for bound in self.bounds:
            if bound.name == name:
                return bound
        raise InputError(f"bound: expected one of {', '.join(b.name for b in self.bounds)}, got {name!r}")

    def __repr__(self) -> str:
        values = {"exact": "exact unknown" if self.lower is None else f"at least {self.lower} (sampled)"}
        if self.exact is not None:
            values["exact"] = f"exact {self.exact}{' certified' if self.certified else ''}"
        for name in RANKS[1:]:
            values[name] = f"{name} {_said(getattr(self, name))}"
        regions = "" if self.regions_sampled is None else f", {self.regions_sampled} regions"
        left_out = f", {len(self.on_boundary)} points on kinks left out" if self.on_boundary else ""
        return (
            f"FunctionalDimension({', '.join(values[name] for name in self.ranks)}; at most {self.upper}; "
            f"{self.num_parameters} parameters, {self.num_points} points{regions}{left_out})"
        )


def _said(rank: int | None) -> str:
    return "beyond floats" if rank is None else str(rank)


def functional_dimension(
    net: Any,
    X: Any = None,
    *,
    ranks: str | Iterable[str] | None = None,
    parameters: str | Iterable[str] | None = None,
    exact: bool | None = None,
    rtol: float | None = None,
    seed: int = 0,
    memory: int = MEMORY,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> FunctionalDimension:
    r"""Rank of the Jacobian :math:`\partial f_\theta(X) / \partial \theta`, which is that of the tangent kernel.

    Parameters
    ----------
    net
        A :class:`Network`, or any torch module. A module that can be loaded with all of its parameters is treated as
        a network; for others ``exact`` is None and the signs are those of floats.
    X
        The batch ``(points, in_size)``. None asks for the functional dimension of the parameter itself, the largest
        value over all batches: on ``n_0 + 1`` points in every region of the input space where these can be listed (up
        to three inputs, as far as the memory goes; see :func:`decisive_set`). Else regions are explored until the rank
        stops growing: then ``batch`` says so, ``lower`` holds what was found, and ``exact`` is None unless a proven
        upper bound meets it.
    ranks
        Some of ``"exact"``, ``"numerical"``, ``"paper"``: only these are computed. By default all of them; without
        ``X`` the two of floats only where they take about a second. With thousands of rows they cost far more than the
        exact one.
    parameters
        Names, or patterns such as ``"head.*"``, of the parameters to differentiate by; the others are constants. Of a
        torch module ``"requires_grad"`` means those that are not frozen. All by default.
    exact
        None: exact if possible. True: exact, or an error that says why not. False: the ranks of floats only.
    rtol
        Relative cut-off of ``numerical``; ``max(rows, D) * eps`` by default.
    seed
        Seed of the primes and of samples.
    memory
        Bytes; above, :class:`TooLargeError` gives the estimate.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised. One
        decomposition of a matrix of floats is not interrupted.

    References
    ----------
    J. E. Grigsby, K. Lindsey, R. Meyerhoff, C. Wu: Functional dimension of feedforward ReLU neural networks. 2022.

    Examples
    --------
    ``f(x) = v relu(w x + b) + c`` has four parameters and one symmetry, the rescaling of its neuron:

    >>> net = Network([[[1.0]], [[2.0]]], [[0.5], [0.0]])
    >>> functional_dimension(net)
    FunctionalDimension(exact 3 certified, numerical 3, paper 3; at most 3; 4 parameters, 4 points, 2 regions)
    >>> functional_dimension(net, [[-2.0], [-3.0]]).exact  # the neuron is off: only c is left
    1
    """
    net = as_model(net)
    check_memory(memory)
    run = Run.begin(progress, time_limit)
    asked = asked_ranks(ranks, exact)
    if not isinstance(net, Network):
        found = _loaded(net, X, asked, exact)
        names = chosen_names([name for name, _ in net.named_parameters()], parameters, frozen_names(net))
        if found is None:
            return _of_module(net, X, names, asked, rtol, memory, run)
        net = found
    else:
        names = chosen_names(slopes_as_maps(net).parameters, parameters)
    net = with_own_parameters(net)
    net = restricted(net, names)
    points = (
        decide(net, None, seed, memory, run) if X is None else DecisiveSet(batch(X, net.in_size), True, "given batch")
    )
    run.step(0, 3, "signs of the points")
    sampled = sample(net, points.X, run)
    if len(sampled.X) == 0:
        which = "all points that were tried" if X is None else f"all {len(points.X)} points"
        raise NotGenericError(f"{which} lie on kinks of the outputs; {sampled.reasons[0]}")
    rows, D = len(sampled.X) * net.out_size, net.num_parameters
    if X is None and ranks is None and exact is not False and rows * D * min(rows, D) > FLOAT_WORK:
        asked = ("exact",)
    floats_asked = asked != ("exact",)
    wide = floats_asked and _needs_blocks(rows, D, memory)
    if "exact" in asked:
        way_of(rows, D, memory)
    symmetry = hidden_symmetry(net, sampled.signs if points.complete else signs_anywhere(net), run=run)
    known = bounds(net, sampled, symmetry)
    if X is None and points.complete and "exact" in asked:
        known = (*known, *active_sets_bound(net, sampled, run))
    if not points.complete:
        # What was not sampled is not bounded by the samples.
        known = tuple(b for b in known if b.name in ("parameters", "rescaling", "fixed neurons", "orbit"))
    upper = min(b.value for b in known if b.holds and b.proven)
    run.step(1, 3, "exact rank")
    rank = _exact_rank(net, points, sampled, upper, seed, run, memory) if "exact" in asked else None
    run.step(2, 3, "singular values")
    floats = _numerical_ranks(net, sampled, rtol, wide, asked, run)
    return _result(net, sampled, (points, symmetry, known), rank, floats, asked)


def active_sets_bound(net: Network, found: Sampled, run: Run = ENDLESS) -> Iterator[Bound]:
    """The bound of :mod:`fiberscope.dimension.active_sets` where it is looked for."""
    more = active_directions(net, found.signs, run=run)
    if more is not None:
        what = "none (what a neuron reads where it is on: neurons that are off there, and too many that are on)"
        yield Bound("active sets", net.num_parameters - more, what, True, True)


def _exact_rank(
    net: Network, points: DecisiveSet, sampled: Sampled, upper: int, seed: int, run: Run, memory: int
) -> ExactRank:
    """Of samples only what was found on the way is known: nothing bounds the rank of what was not met."""
    if points.rank is None or points.prime is None:
        return exact_jacobian_rank(net, sampled, upper, seed, run, memory)
    failure = 0.0 if points.rank == upper else 1.0
    shape = (len(sampled.X) * net.out_size, net.num_parameters)
    return ExactRank(points.rank, points.rank, failure, (points.prime,), "modular", shape)


def _needs_blocks(rows: int, columns: int, memory: int) -> bool:
    """Whether the Jacobian is so wide that it is not formed; :class:`TooLargeError` if neither way fits the memory."""
    # A triangular factor, a block of four times its width, and their decomposition.
    if columns > WIDE * rows and 8 * 16 * rows * rows <= memory:
        return True
    check_size(rows, columns, memory, copies=3)
    return False


def _numerical_ranks(
    net: Network, found: Sampled, rtol: float | None, wide: bool, asked: tuple[str, ...], run: Run
) -> tuple[NumericalRank | None, NumericalRank | None]:
    """In float64 with certified signs, and in float32; None where the Jacobian exceeds the range of its floats."""

    def rank(ring: FloatAlgebra, signs: SignArray | None, relative: float | None) -> NumericalRank | None:
        run.check()
        with np.errstate(over="ignore", invalid="ignore"):
            if wide:
                return blocked_rank(net, found.X, ring, signs, relative, run)
            rows = rows_in_ring(net, found.X, ring, signs, run)
        return _ranked(rows, relative)

    return (
        rank(FloatAlgebra(), found.signs, rtol) if "numerical" in asked else None,
        rank(FloatAlgebra(np.float32), None, None) if "paper" in asked else None,
    )


def _result(
    net: Network,
    found: Sampled,
    context: tuple[DecisiveSet, HiddenSymmetry | None, tuple[Bound, ...]],
    rank: ExactRank | None,
    floats: tuple[NumericalRank | None, NumericalRank | None],
    asked: tuple[str, ...],
) -> FunctionalDimension:
    points, symmetry, known = context
    shape = (len(found.X) * net.out_size, net.num_parameters)
    upper = min(b.value for b in known if b.holds and b.proven)
    certified = rank is not None and rank.lower == upper
    claimed = rank if points.complete or certified else None
    return FunctionalDimension(
        exact=None if claimed is None else claimed.rank,
        lower=None if rank is None else rank.lower,
        failure_probability=None if claimed is None else claimed.failure_probability,
        certified=certified,
        bounds=known,
        regions_sampled=found.regions,
        num_points=len(found.X),
        num_outputs=net.out_size,
        num_parameters=net.num_parameters,
        on_boundary=tuple(found.on_boundary.tolist()),
        symmetry=symmetry,
        batch=points.text,
        decisive=points.complete,
        **_spectra(*floats),
        primes=() if rank is None else rank.primes,
        reasons=found.reasons,
        ranks=asked,
        warnings=_warnings(shape, asked),
    )


def _spectra(numerical: NumericalRank | None, paper: NumericalRank | None) -> dict[str, Any]:
    none = np.zeros(0)
    return {
        "numerical": None if numerical is None else numerical.rank,
        "singular_values": none if numerical is None else numerical.singular_values,
        "cutoff": np.nan if numerical is None else numerical.cutoff,
        "gap": np.nan if numerical is None else numerical.gap,
        "paper": None if paper is None else paper.rank,
        "paper_singular_values": none if paper is None else paper.singular_values,
        "paper_cutoff": np.nan if paper is None else paper.cutoff,
    }


def _warnings(shape: tuple[int, int], asked: tuple[str, ...]) -> tuple[str, ...]:
    """Where the rule of the literature cuts off so much that its rank says little."""
    relative = rank_cutoff(shape, 1.0, np.dtype(np.float32))
    if "paper" not in asked or not relative > MEANINGLESS:
        return ()
    return (
        f"paper: the rule max(rows, parameters) * eps of float32 cuts off at {relative:.2g} of the largest singular "
        f"value of a {shape[0]} x {shape[1]} Jacobian; this rank says little",
    )


def _loaded(module: Any, X: Any, asked: tuple[str, ...], exact: bool | None) -> Network | None:
    """The module as a network if all of its parameters are the network's; None where that fails and may."""
    if "exact" not in asked:
        return None
    try:
        return own_network(module, X)
    except UnsupportedModelError as error:
        if exact or X is None or asked == ("exact",):
            raise UnsupportedModelError(f"an exact rank needs a piecewise linear network: {error}") from error
        return None


def _of_module(
    module: Any,
    X: Any,
    names: tuple[str, ...] | None,
    asked: tuple[str, ...],
    rtol: float | None,
    memory: int,
    run: Run,
) -> FunctionalDimension:
    if X is None:
        raise InputError("X: expected a batch for a torch module in floats, got None")
    precisions = {"numerical": "float64", "paper": "float32"}
    tables = {
        rank: _module_rows(module, X, memory // 3, name, run, names)
        for rank, name in precisions.items()
        if rank in asked
    }
    found = {rank: _ranked(table, rtol if rank == "numerical" else None) for rank, table in tables.items()}
    rows, columns = next(iter(tables.values())).shape
    points = len(X)
    known = (
        Bound("parameters", columns, "none", True, True),
        Bound("outputs", min(rows, columns), "none", True, True),
    )
    return FunctionalDimension(
        exact=None,
        lower=None,
        failure_probability=None,
        certified=False,
        bounds=known,
        regions_sampled=None,
        num_points=points,
        num_outputs=rows // points,
        num_parameters=columns,
        on_boundary=(),
        symmetry=None,
        batch="given batch",
        decisive=True,
        **_spectra(found.get("numerical"), found.get("paper")),
        ranks=asked,
        warnings=_warnings((rows, columns), asked),
    )


def _module_rows(
    module: Any, X: Any, memory: int, precision: str, run: Run, names: tuple[str, ...] | None
) -> FloatArray:
    """The Jacobian of a module in a precision; in the module's own where its code insists on it and NumPy has it."""
    try:
        found = modules.derivatives.jacobian(module, X, memory, precision, run, names)
    except (InputError, UnsupportedModelError):
        found = modules.derivatives.jacobian(module, X, memory, None, run, names)
        if found.element_size() < 4:
            raise
    return np.asarray(found.cpu().numpy())


def _ranked(rows: FloatArray, rtol: float | None) -> NumericalRank | None:
    """None where the rows, or their singular values, exceed the range of floats."""
    if not np.isfinite(rows).all():
        return None
    found = numerical_rank(rows, rtol=rtol)
    return found if np.isfinite(found.singular_values).all() else None
