"""What every method of the ladder is given: two networks, a domain, a kind of equality, and how much time is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fiberscope.equality.verdict import Verdict
from fiberscope.geometry.domains import Box, Domain, Orthant, Polytope, Space
from fiberscope.geometry.ranges.domain_roles import DomainRoles, domain_roles
from fiberscope.network.network import Network
from fiberscope.numerics.ulps import Rounding
from fiberscope.run import Run


@dataclass(slots=True, eq=False)
class Question:
    """Are ``a`` and ``b`` equal on ``place``? ``domain`` is what was asked about: a plane, where ``place`` is its box.

    ``tolerance`` is the kind of equality, ``rounding`` what it allows where it is None, ``run`` says when to give up.
    """

    a: Network
    b: Network
    place: Box | Orthant | Space | Polytope
    domain: Domain
    tolerance: float | None
    rounding: Rounding
    run: Run
    rng: np.random.Generator
    notes: list[str] = field(default_factory=list)
    _roles: tuple[DomainRoles, DomainRoles] | None = None

    @property
    def seconds_left(self) -> float:
        return self.run.seconds_left

    def roles(self) -> tuple[DomainRoles, DomainRoles]:
        """Roles of the neurons of both networks on the domain; computed once."""
        if self._roles is None:
            share = max(0.0, min(5.0, self.seconds_left / 4))
            first = domain_roles(self.a, self.place, share, run=self.run)
            self._roles = (first, domain_roles(self.b, self.place, share, run=self.run))
        return self._roles


Rung = Callable[[Question], Verdict | None]
"""One method: a verdict, or None if it cannot decide."""
