"""Two networks written over one table of hyperplanes: if they come out the same, they are the same function."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fiberscope.errors import TooLargeError
from fiberscope.fibers.normal_form.program_forms import normal_form
from fiberscope.fibers.normal_form.row import Row, combine
from fiberscope.fibers.normal_form.table import Table
from fiberscope.geometry.domains import Box, Domain, Orthant
from fiberscope.network.network import Network
from fiberscope.numerics.floats import IntArray
from fiberscope.numerics.ulps import DOUBLE, FEW, Rounding
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.geometry.ranges.domain_roles import DomainRoles

Signs = tuple[IntArray | None, IntArray | None]
"""Proven signs of the neurons of two networks on the domain, as entries of their sign vectors."""


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """What the normal forms of two networks prove: ``equal`` True, or None for undecided, with the reason.

    ``ulps`` is 0 if they agree exactly over ``hyperplanes`` hyperplanes, with the ``signs`` that were used. ``exactly``
    says whether only exact agreement counted.
    """

    equal: bool | None
    reason: str
    exactly: bool
    signs: tuple[IntArray, IntArray] | None = field(default=None, repr=False)
    hyperplanes: int = 0
    ulps: int = 0
    residual: float = 0.0
    depth: int = 0

    @property
    def exact(self) -> bool:
        """Whether the two are proven to be the same real function."""
        return self.equal is True and not self.ulps


def table_for(
    net: Network, domain: Domain, ulps: int = 0, deadline: float = float("inf"), rounding: Rounding = DOUBLE
) -> Table:
    """An empty table for networks on a domain; ``ulps`` counts units of the rounding."""
    nonnegative: list[bool] = []
    if isinstance(domain, Orthant):
        nonnegative = [True] * net.in_size
    elif isinstance(domain, Box):
        nonnegative = (domain.low >= 0).tolist()
    return Table(net.in_size, nonnegative, ulps, deadline, rounding.unit)


def forms_agree(a: Network, b: Network, table: Table, signs: Signs) -> tuple[bool, list[Row]]:
    """Whether the normal forms agree, and the rows of the difference where they do not."""
    left, right = normal_form(a, table, signs[0]), normal_form(b, table, signs[1])
    gaps = [combine([(1, 0, p), (-1, 0, q)], False) for p, q in zip(left, right, strict=True)]
    same = [table.same(p, q) for p, q in zip(left, right, strict=True)]
    return all(same), [gap for gap, ok in zip(gaps, same, strict=True) if not ok]


def agreement_of(a: Network, b: Network, table: Table, signs: Signs, exactly: bool) -> Agreement:
    """The record of normal forms that agree."""
    p, q = (np.zeros(net.num_signs, dtype=np.int64) if s is None else s for net, s in zip((a, b), signs, strict=True))
    reason = f"both are the same sum over {len(table.rows)} hyperplanes"
    return Agreement(True, reason, exactly, (p, q), len(table.rows), table.ulps, table.residual, table.depth)


def compare_forms(a: Network, b: Network, domain: Domain, signs: Signs, exactly: bool, run: Run = ENDLESS) -> Agreement:
    """Compare by normal forms alone: exactly, and if that is not asked, up to rounding."""
    for ulps in (0,) if exactly else (0, FEW):
        table = table_for(a, domain, ulps, run.deadline)
        try:
            same, _ = forms_agree(a, b, table, signs)
        except TooLargeError as error:
            return Agreement(None, str(error), exactly)
        if same:
            return agreement_of(a, b, table, signs, exactly)
    return Agreement(None, "the normal forms differ, which proves nothing for more than one hidden layer", exactly)


def entries_of(net: Network, roles: DomainRoles) -> IntArray:
    """Proven signs of neurons as entries of the sign vector, which has entries of pooling windows as well."""
    found = np.zeros(net.num_signs, dtype=np.int64)
    found[~net.layout.pooled] = roles.signs
    return found
