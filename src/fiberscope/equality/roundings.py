"""Inputs of programs that stand for the rounding of quantised models, and what a claim says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box, Domain
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.results import Result

QUANTISERS, OUTPUTS = "quantisers", "outputs"
"""Where roundings stand: at every quantised number, half a step each; or all of a model at its outputs."""


@dataclass(frozen=True, slots=True)
class RoundingInputs(Result):
    """The last inputs of two programs, between -1 and 1: first those of ``a``, then those of ``b``.

    For every input of a model there are values of these at which its program gives what the model gives. That holds for
    the two models at once since each program reads its own ones only.
    """

    inputs: tuple[int, int]
    where: str

    @classmethod
    def from_dict(cls, found: Any) -> RoundingInputs:
        """From a claim that nobody has looked at."""
        told = found if isinstance(found, dict) and set(found) == {"inputs", "where"} else {"inputs": [], "where": None}
        counts = told["inputs"] if isinstance(told["inputs"], list) else []
        whole = len(counts) == 2 and all(type(k) is int and k >= 0 for k in counts) and sum(counts) > 0
        if not whole or told["where"] not in (QUANTISERS, OUTPUTS):
            raise InputError("certificate: expected the inputs that stand for rounding, and where")
        return cls((counts[0], counts[1]), told["where"])

    def box(self, domain: Box) -> Box:
        """The domain of the programs."""
        ones = np.ones(sum(self.inputs))
        return Box(np.concatenate([domain.low, -ones]), np.concatenate([domain.high, ones]))

    def inner(self, domain: Domain) -> Box:
        """The domain of the models, out of that of the programs; :class:`InputError` where roundings may be smaller."""
        count = sum(self.inputs)
        if not isinstance(domain, Box) or not count < domain.ambient:
            raise InputError("certificate: expected a box with inputs for rounding behind those of the models")
        if not ((domain.low[-count:] == -1).all() and (domain.high[-count:] == 1).all()):
            raise InputError("certificate: expected inputs for rounding between -1 and 1")
        return Box(domain.low[:-count], domain.high[:-count])

    def check(self, a: Network, b: Network) -> None:
        """Raise :class:`InputError` if one of the programs may read a rounding of the other."""
        n = a.in_size - sum(self.inputs)
        middle = n + self.inputs[0]
        for net, others in ((a, slice(middle, None)), (b, slice(n, middle))):
            for node in net.nodes:
                if 0 not in node.sources:
                    continue
                first = node.operator.stages()[0].sparse() if isinstance(node, Affine) else None
                if first is None or abs(first).sum(axis=0)[others].any():
                    raise InputError("certificate: expected programs that read no rounding of each other")
