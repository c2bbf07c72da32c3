"""Certificates of verdicts about live modules: one program, and tensors that are the same up to an order.

A file holds the operations that both modules run on the example, the numbers of all tensors with their hashes, the
element that carries those of ``a`` onto those of ``b``, and what it does to every tensor as plain data: entry ``i`` of
the tensor of ``b`` is entry ``order[i]`` of that of ``a``. Numbers and orders can be compared by anybody. That the
modules run these operations, and that the orders are permutations of neurons which the operations do not see, is
checked by recording and tracing the modules again, where the caller has them; otherwise it is trusted, which is said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fiberscope.equality import checker
from fiberscope.errors import InputError
from fiberscope.files import write_atomically
from fiberscope.modules.action import Group, act
from fiberscope.modules.program import Program
from fiberscope.network.action.element import Element

if TYPE_CHECKING:
    from fiberscope.equality.verdict import Verdict

FORMAT = checker.MODULES
LARGEST = 2_000_000
"""Numbers of one module up to which they are written."""


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Two modules that run one program: their tensors by name, and the groups of neurons that may be permuted."""

    program: Program
    a: Mapping[str, Tensor]
    b: Mapping[str, Tensor]
    groups: tuple[Group, ...] = ()

    def carried(self, element: Element) -> dict[str, Tensor]:
        """The tensors of ``a`` behind an element."""
        return _carried(element, self.groups, dict(self.a))

    def orders(self, element: Element) -> dict[str, list[int]]:
        """What an element does to the entries of every tensor that it changes."""
        places = {name: torch.arange(t.numel(), dtype=torch.float64).reshape(t.shape) for name, t in self.a.items()}
        found = _carried(element, self.groups, dict(places))
        changed = {name: t for name, t in found.items() if not torch.equal(t, places[name])}
        return {name: t.reshape(-1).to(torch.int64).tolist() for name, t in changed.items()}


def _carried(element: Element, groups: tuple[Group, ...], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    for group in groups:
        if group.name in element and not element[group.name].is_identity:
            tensors |= act(element[group.name], group.axes, tensors)
    return tensors


def numbers(tensors: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """All entries of tensors as floats, which hold them exactly."""
    return {name: t.detach().cpu().double().reshape(-1).tolist() for name, t in tensors.items()}


def told(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """What a claim says of the tensors of a module: shapes and hashes of the numbers."""
    return {
        name: {"shape": list(tensors[name].shape), "sha256": checker.digest_of(values)}
        for name, values in numbers(tensors).items()
    }


def write_module_certificate(path: Path | str, verdict: Verdict, compared: Compared, element: Element) -> None:
    """Everything that is needed to check a verdict about modules, in one file."""
    parts = (compared.a, compared.b)
    small = all(sum(t.numel() for t in part.values()) <= LARGEST for part in parts)
    exactly = verdict.tolerance is not None or verdict.margin is not None
    content = {
        "format": FORMAT,
        "claim": {
            "equal": True,
            "tolerance": verdict.tolerance,
            "precision": None if exactly else verdict.precision,
            **({} if verdict.margin is None else {"criterion": "argmax", "margin": verdict.margin}),
            "inputs": verdict.domain.ambient,
            "models": [told(part) for part in parts],
        },
        "program": {"steps": list(compared.program.steps), "outputs": list(compared.program.outputs)},
        "element": element.to_dict(),
        "orders": compared.orders(element) if small else None,
        "numbers": [numbers(part) for part in parts] if small else None,
    }
    write_atomically(path, json.dumps(content, allow_nan=False) + "\n")


def checked(found: Any, given: Compared | None) -> tuple[bool, str]:
    """Whether a certificate of modules holds, and how that was seen; ``given`` are those that the caller has."""
    try:
        _, about, how = checker.check(found)
    except checker.TooLarge as error:
        if given is None:
            raise InputError(f"certificate: expected both modules and an example, since {error}") from error
        checker.module_claim(found)
        about, how = [], "compared with the modules"
    except checker.Fails as error:
        return False, str(error)
    except checker.Malformed as error:
        raise InputError(f"certificate: {error}") from error
    if given is None:
        return True, f"{how}; {about[-1]}"
    element = Element.from_dict(found["element"])
    claim, program = found["claim"], found["program"]
    if [told(given.a), told(given.b)] != claim["models"]:
        return False, "the modules have other tensors than those of the claim"
    if [list(given.program.steps), list(given.program.outputs)] != [program["steps"], program["outputs"]]:
        return False, "the modules run another program than that of the certificate"
    if found["orders"] is not None and given.orders(element) != found["orders"]:
        return False, "the orders are not those of a permutation of neurons"
    here, there = numbers(given.carried(element)), numbers(given.b)
    if any(not checker.same_numbers(claim, here[name], there[name]) for name in there):
        return False, "the element does not carry the tensors of a onto those of b"
    return True, f"{how}; both modules were recorded again, and run that program"
