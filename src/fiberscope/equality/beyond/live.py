"""Equality of live modules that are not piecewise linear: one program, with parameters equal up to a symmetry.

Where two modules run the same operations with the same settings, and an element of the permutation structure carries
the parameters of one onto those of the other, they are the same function, of inputs of the example's shape, up to the
rounding that the parameters differ by. Nothing is claimed where that is not so: *undecided*, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.equality.beyond.module_certificates import Compared, checked, write_module_certificate
from fiberscope.equality.evidence import Check, Evidence
from fiberscope.equality.verdict import Verdict
from fiberscope.errors import InputError
from fiberscope.geometry.domains import Space
from fiberscope.modules.action import PERMUTATION, Group
from fiberscope.modules.batches import batches
from fiberscope.modules.calls import Inputs, Selector, call, checked_call, meant, moved, tensors
from fiberscope.modules.correspondence import corresponding
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.parametrisations import plain
from fiberscope.modules.program import Program, first_difference, recorded
from fiberscope.modules.tracing.groups import groups_of, own_tensors, traced
from fiberscope.network.action.element import Element
from fiberscope.network.border import as_torch
from fiberscope.network.source import coarsest
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.ulps import ROUNDINGS, Rounding
from fiberscope.results import hidden

if TYPE_CHECKING:
    from pathlib import Path

    from fiberscope.equality.question import Question

BROKEN = (RuntimeError, TypeError, ValueError, LookupError, AssertionError, AttributeError, NotImplementedError)
"""What a module may raise on inputs that it is not made for."""


@dataclass(frozen=True, slots=True, eq=False)
class SameModule(Evidence):
    """Both modules run one program, and ``element`` carries the tensors of ``a`` onto those of ``b``."""

    kind: ClassVar[str] = "same module"

    element: Element
    compared: Compared | None = field(default=None, repr=False, metadata=hidden())
    """What was compared, to be written to a certificate."""

    def check(self, question: Question) -> Check:
        raise InputError("evidence: expected networks; that of live modules is checked with the modules")

    def write(self, path: Path | str, verdict: Any) -> None:
        if self.compared is None:
            raise InputError("certificate: expected a verdict about modules that were compared here")
        write_module_certificate(path, verdict, self.compared, self.element)

    def _answer(self) -> Iterator[tuple[str, Any]]:
        yield "element", self.element.to_dict()

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> SameModule:
        return cls(Element.from_dict(found["element"]))


def equivalent_modules(
    a: Any, b: Any, example: Any, tolerance: float | None = None, output: Selector = None
) -> Verdict:
    """Whether two modules are the same function of inputs like the example; proven by structure, or undecided.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1))
    >>> other = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1))
    >>> order = [2, 0, 1]
    >>> moved = {"0.weight": net[0].weight[order], "0.bias": net[0].bias[order], "2.bias": net[2].bias}
    >>> _ = other.load_state_dict({**moved, "2.weight": net[2].weight[:, order]})
    >>> equivalent_modules(net, other, torch.zeros(1, 2)).equal
    True
    """
    start = time.monotonic()
    left, right = plain(as_torch(a, "a")), plain(as_torch(b, "b"))
    inputs = next(batches(example, left, 4, name="example"))[0]
    domain = Space(max(1, sum(t[0].numel() for t in tensors(inputs) if t.dim())))
    rounding = ROUNDINGS[coarsest(str(t.dtype).removeprefix("torch.") for m in (left, right) for t in m.parameters())]
    element, residual, reason, compared = _compared(left, right, inputs, output, rounding)
    allowed = float(rounding.few) if tolerance is None else 0.0
    proven = element is not None and residual <= allowed
    if element is not None and not proven:
        reason = f"one program, but after matching a parameter is {residual:.3g} units of {rounding.precision} off"
    if not proven:
        reason = f"{reason}; {_seen(left, right, inputs, output)}"
    return Verdict(
        True if proven else None,
        "same program" if proven else "no method",
        domain,
        tolerance,
        SameModule(element, compared) if proven and element is not None else None,
        0.0 if proven and residual == 0 else None,
        residual if proven else None,
        time.monotonic() - start,
        reason,
        precision=rounding.precision if tolerance is None else None,
    )


def _compared(
    a: nn.Module, b: nn.Module, inputs: Inputs, output: Selector, rounding: Rounding
) -> tuple[Element | None, float, str, Compared | None]:
    """An element, how far it is from carrying ``a`` onto ``b`` in units of rounding, and in words what was found."""
    own, theirs = own_tensors(a)[0], own_tensors(b)[0]
    if {k: t.shape for k, t in own.items()} != {k: t.shape for k, t in theirs.items()}:
        names = sorted(k for k in {**own, **theirs} if _shape(own, k) != _shape(theirs, k))
        return None, np.inf, f"the tensors are not the same: {', '.join(names[:3])}", None
    programs = _programs(a, b, inputs, output)
    apart = first_difference(*programs)
    if apart is not None:
        return None, np.inf, f"the programs differ, {apart[:200]}", None
    if programs[0].random:
        return None, np.inf, f"the program draws random numbers ({programs[0].random[0]})", None
    text = f"both run one program of {len(programs[0].steps)} operations on inputs of this shape"
    direct = _distance(own, theirs, rounding)
    if direct <= rounding.few:
        told = f"{text}, with parameters within {direct:.3g} units of {rounding.precision}"
        return Element({}), direct, told, Compared(programs[0], own, theirs)
    compared = Compared(programs[0], own, theirs, _permutable(a, inputs, output))
    element = corresponding(list(compared.groups), own, theirs)
    residual = _distance(compared.carried(element), theirs, rounding)
    moved_groups = sum(not part.is_identity for part in element.values())
    told = f"{text}, and permutations of {moved_groups} groups of neurons carry one onto the other within "
    return element, residual, f"{told}{residual:.3g} units of {rounding.precision}", compared


def _programs(a: nn.Module, b: nn.Module, inputs: Inputs, output: Selector) -> list[Program]:
    try:
        return [recorded(*_double(module, inputs), output) for module in (a, b)]
    except BROKEN as error:
        raise InputError(f"module: it does not run on the example: {str(error).splitlines()[0][:120]}") from error


def _permutable(module: nn.Module, inputs: Inputs, output: Selector) -> tuple[Group, ...]:
    """Groups of neurons whose order the program does not see."""
    return tuple(g for g in groups_of(traced(*_double(module, inputs), output)) if g.kind == PERMUTATION)


def outputs_on(source: Any, name: str, data: Any) -> tuple[FloatArray, bool]:
    """What a module computes on samples in its own precision, a row for each; and whether that is one vector.

    >>> outputs_on(nn.Identity(), "a", torch.ones(2, 3))[0].shape
    (2, 3)
    """
    module, rows, vector = plain(as_torch(source, name)), [], True
    for inputs, _ in batches(data, module):
        with torch.no_grad(), evaluating(module):
            found = meant(checked_call(module, inputs))
        vector = vector and len(found) == 1 and found[0].dim() == 2
        rows.append(torch.cat([t.double().flatten(1) for t in found], dim=1).cpu().numpy())
    return np.concatenate(rows), vector


def verify_modules(found: Any, a: Any, b: Any, example: Any) -> tuple[bool, str, bool]:
    """Whether a certificate of modules holds, how, and whether those of the caller were compared with it."""
    if a is None and b is None:
        return (*checked(found, None), False)
    if a is None or b is None or example is None:
        raise InputError("verify: expected both modules and an example, or none, for a certificate of modules")
    left, right = plain(as_torch(a, "a")), plain(as_torch(b, "b"))
    inputs = next(batches(example, left, 4, name="example"))[0]
    programs = _programs(left, right, inputs, None)
    if first_difference(*programs) is not None or programs[0].random:
        return False, "the modules do not run one program", True
    groups = _permutable(left, inputs, None) if found.get("element") else ()
    return (*checked(found, Compared(programs[0], own_tensors(left)[0], own_tensors(right)[0], groups)), True)


def _shape(tensors_by_name: dict[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors_by_name[name].shape) if name in tensors_by_name else None


def _double(module: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """A copy in float64, so that copies in other types run the same operations; as it is where that does not run."""
    made = deepcopy(module).double()
    like = next((p for p in made.parameters() if p.is_floating_point()), None)
    given = moved(inputs, like)
    try:
        with torch.no_grad(), evaluating(made):
            call(made, given)
    except RuntimeError:
        return module, inputs
    return made, given


def _distance(a: dict[str, Tensor], b: dict[str, Tensor], rounding: Rounding) -> float:
    """The largest difference of an entry in units of rounding; infinite where whole numbers differ."""
    worst = 0.0
    for name, mine in a.items():
        theirs = b[name].detach().to(mine.device)
        if torch.equal(mine.detach(), theirs):
            continue
        if not mine.is_floating_point():
            return np.inf
        p, q = mine.detach().double(), theirs.double()
        size = torch.maximum(p.abs(), q.abs()).clamp_min(rounding.least)
        off = float(((p - q).abs() / size).max()) / rounding.unit
        worst = max(worst, off) if off >= 0 else np.inf
    return worst


def _seen(a: nn.Module, b: nn.Module, inputs: Inputs, output: Selector) -> str:
    """What the example shows, which proves nothing."""
    try:
        found = []
        for module in (a, b):
            like = next((p for p in module.parameters() if p.is_floating_point()), None)
            with torch.no_grad(), evaluating(module):
                found.append([t.double() for t in meant(call(module, moved(inputs, like)), output)])
        gap = max(float((p - q).abs().max()) for p, q in zip(*found, strict=True))
    except (*BROKEN, InputError):
        return "the outputs on the example cannot be compared"
    return f"on the example the outputs differ by {gap:.3g}"
