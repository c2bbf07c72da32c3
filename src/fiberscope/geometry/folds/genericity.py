"""Is a parameter generic, general, transparent? Every condition is checked, with its coverage and the neurons at fault.

*Generic* (paper on fibers): every cell of codimension k lies on exactly k bent hyperplanes, and every masked product of
weight matrices has the largest possible rank. *General* (Phuong & Lampert, ICLR 2020): no preactivation has a local
optimum of value zero; the masked products have the largest rank; no two pairs of a unit and an activity of the layers
before it, with a passing unit in each of these, give affine functions that are multiples of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fiberscope.errors import NotGenericError, TooLargeError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box, Domain
from fiberscope.geometry.folds.conditions import (
    Condition,
    cancels_nothing,
    distinct_functions,
    is_honest,
    is_supertransversal,
    is_transparent,
    no_zero_optimum,
    passing_patterns,
    ranks_are_maximal,
)
from fiberscope.geometry.folds.fold_set import as_complex
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.numerics.floats import SignArray
from fiberscope.results import Tabular
from fiberscope.run import Progress, Run

SAMPLES = 4096
"""Points at which a network is looked at where its complex is too large."""


@dataclass(frozen=True, slots=True)
class Genericity(Tabular):
    """The answers of :func:`genericity`.

    Every answer is True, False or None. False comes with a witness and is proven. True says that the condition holds
    for everything that ``coverage`` names, decided exactly; ``conditions[name].exhaustive`` says whether that is all of
    its definition (on the domain). None means undecided or not asked, and ``coverage`` says why.
    """

    conditions: Mapping[str, Condition]
    where: str

    told = ("generic", "general")
    frame = "conditions"

    @property
    def supertransversal(self) -> bool | None:
        """Whether every codimension-k cell lies on exactly k bent hyperplanes."""
        return self.conditions["supertransversal"].holds

    @property
    def masked_ranks(self) -> bool | None:
        """Whether the masked products of weight matrices have the largest possible ranks."""
        return self.conditions["masked_ranks"].holds

    @property
    def transparent(self) -> bool | None:
        """Whether at every input every hidden layer has a unit that is not negative."""
        return self.conditions["transparent"].holds

    @property
    def honest(self) -> bool | None:
        """Whether every ridge that does not bend lies on bent hyperplanes of a single layer."""
        return self.conditions["honest"].holds

    @property
    def cancellation_free(self) -> bool | None:
        """Whether a facet is invisible only where no active path leads from its neurons to the output."""
        return self.conditions["cancellation_free"].holds

    @property
    def generic(self) -> bool | None:
        """Supertransversal, with masked products of the largest rank."""
        return _all(self.supertransversal, self.masked_ranks)

    @property
    def general(self) -> bool | None:
        """No local optimum of value zero, masked products of the largest rank, no proportional units."""
        parts = ("no_zero_optimum", "masked_ranks", "distinct_functions")
        return _all(*(self.conditions[name].holds for name in parts))

    @property
    def coverage(self) -> dict[str, str]:
        """For every condition what was looked at."""
        return {name: condition.coverage for name, condition in self.conditions.items()}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why conditions fail, in sentences that name neurons."""
        return tuple(reason for condition in self.conditions.values() for reason in condition.reasons)

    def __repr__(self) -> str:
        names = ("generic", "general", "transparent", "honest", "cancellation_free")
        answers = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return f"Genericity({answers}; {len(self.reasons)} reasons)"


def genericity(
    source: NetworkLike | Complex,
    domain: Domain | None = None,
    *,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Genericity:
    """Check every condition of genericity on a domain, exactly.

    Parameters
    ----------
    source
        A network, or its complex. Masked ranks are asked of plain chains only, and nothing of max pooling and clips.
    domain
        For a network. Where the complex is too large, a box is sampled instead: that can refute, never confirm.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Examples
    --------
    Random parameters are generic and general; two equal neurons are neither:

    >>> from fiberscope.geometry.domains import Box
    >>> genericity(Network.random((2, 3, 2, 1), seed=0), Box.cube(2)).general
    True
    >>> net = Network([[[1.0, 0.5], [1.0, 0.5]], [[1.0, -2.0]]], [[0.25, 0.25], [0.0]])
    >>> found = genericity(net, Box.cube(2))
    >>> found.generic, found.general
    (False, False)
    >>> print(found.reasons[0])
    neuron 0 of layer 1 and neuron 1 of layer 1 vanish on a cell of codimension 1, near (-0.25, 0)
    """
    run = Run.begin(progress, time_limit)
    source = source if isinstance(source, Complex) else as_network(source, "source")
    try:
        complex = as_complex(source, domain, run)
    except TooLargeError as error:
        if isinstance(source, Complex) or not isinstance(domain, Box):
            raise
        return _sampled(source, domain, str(error), run)
    if not complex.complete:
        raise NotGenericError("genericity: expected a complete complex, got one that was interrupted")
    net, where = complex.net, f"{complex.num_regions} regions on {complex.domain}"
    if not _has_units(net):
        undecided = Condition(None, "not asked of networks with max pooling or clips; take net.as_mlp()")
        return Genericity(dict.fromkeys(_NAMES, undecided), where)
    signs = complex.sign_vectors
    asked: dict[str, Callable[[], Condition]] = {
        "supertransversal": lambda: is_supertransversal(complex),
        "masked_ranks": lambda: ranks_are_maximal(net, passing_patterns(net, signs), "occur in the complex", run),
        "no_zero_optimum": lambda: no_zero_optimum(complex),
        "distinct_functions": lambda: distinct_functions(complex.view.net, signs),
        "transparent": lambda: is_transparent(net, signs, f"all {len(signs)} regions", exhaustive=True),
        "honest": lambda: is_honest(complex),
        "cancellation_free": lambda: cancels_nothing(complex),
    }
    found = {}
    for done, (name, ask) in enumerate(asked.items()):
        run.step(done, len(asked), name)
        found[name] = ask()
    return Genericity(found, where)


_NAMES = (
    "supertransversal",
    "masked_ranks",
    "no_zero_optimum",
    "distinct_functions",
    "transparent",
    "honest",
    "cancellation_free",
)


def _sampled(net: Network, box: Box, why: str, run: Run) -> Genericity:
    """What certified signs at random points can say."""
    points = box.draw(np.random.default_rng(0), SAMPLES)
    signs: SignArray = np.unique(net.signs(points).signs, axis=0)
    text = f"{SAMPLES} random points, which meet {len(signs)} sign vectors ({why})"
    found = dict.fromkeys(_NAMES, Condition(None, f"not decided: {why}"))
    if _has_units(net):
        found["transparent"] = is_transparent(net, signs, text, exhaustive=False)
        found["masked_ranks"] = ranks_are_maximal(net, passing_patterns(net, signs), "occur at random points", run)
    return Genericity(found, text)


def _has_units(net: Network) -> bool:
    """Whether the switches are the units that the definitions speak of, and no windows or parts of a clip."""
    return not net.layout.detours and not net.layout.pooled.any()


def _all(*answers: bool | None) -> bool | None:
    if any(answer is False for answer in answers):
        return False
    return None if any(answer is None for answer in answers) else True
