"""Trials of several groups in one run: each by itself, as long as what they change does not meet.

One run of a module with the elements of several groups in it says of each what a run of its own would say, if no
operation is reached by two of them. So every storage carries the groups that reach it: those whose tensors it holds,
or those that reach an operation whose result in it is not what it was. A result that is what it was carries none: the
group is used up there. By induction over the operations, a group whose name never meets another one gives, alone, the
values of this run wherever its name stands, and the old ones everywhere else.

Values are compared by their products with one random vector, relative to their length; a change that this misses has
to be orthogonal to it. Whatever is out of the ordinary ends the trial without an answer: another sequence of
operations, a number that leaves the tensors, a change that nobody carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fiberscope.modules.dispatch import Dispatch
from fiberscope.numerics.drift import LARGEST

Names = frozenset[str]
NOBODY: Names = frozenset()


class Unclear(Exception):
    """A run that says nothing about its groups."""


@dataclass
class Prints:
    """What a run gave, operation by operation: names, shapes, and the products of values with a random vector."""

    steps: list[tuple[str, tuple[tuple[int, ...], ...]]] = field(default_factory=list)
    values: list[tuple[float, float]] = field(default_factory=list)
    source: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))
    vector: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))

    def of(self, tensor: Tensor) -> tuple[float, float]:
        """The product of a tensor with the vector, and its length; masks of infinities are large numbers."""
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        flat = real.detach().reshape(-1).double()
        if len(self.vector) < len(flat):  # it grows, and what was there stays
            more = torch.randn(2 * len(flat) - len(self.vector), generator=self.source, dtype=torch.float64)
            self.vector = torch.cat([self.vector.to(flat.device), more.to(flat.device)])
        length = float(torch.linalg.vector_norm(flat))
        if not length <= LARGEST:
            flat = flat.clamp(-LARGEST, LARGEST)
            length = float(torch.linalg.vector_norm(flat))
        return float(flat @ self.vector[: len(flat)]), length


class Recorder(Dispatch):
    """While it is active, notes what every operation gives; ``own`` are the tensors that are there before."""

    def __init__(self, own: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.prints = Prints()
        self.known = {_storage(tensor) for tensor in own}
        self.coarsest = float(torch.finfo(torch.float64).eps)
        """Of the floating-point types that the operations gave."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation, noted."""
        given = _filled((*args, *kwargs.values()))
        strange = [tensor for tensor in given if _storage(tensor) not in self.known]
        self.step_in(strange)
        inside = {_storage(tensor) for tensor in given}
        output = func(*args, **kwargs)
        out = _filled((output,))
        # results with values of their own, and arguments that were written into; not views
        written = [tensor for tensor in out if func._schema.is_mutable or _storage(tensor) not in inside]
        for kind in {tensor.dtype for tensor in out if tensor.is_floating_point()}:
            self.coarsest = max(self.coarsest, float(torch.finfo(kind).eps))
        self.step(str(func), inside, out, written)
        self.known |= inside.union(map(_storage, out))
        return output

    def step_in(self, strange: list[Tensor]) -> None:
        """Tensors that no operation has made."""
        self.prints.values += [self.prints.of(tensor) for tensor in strange]

    def step(self, name: str, inside: set[int], out: list[Tensor], written: list[Tensor]) -> None:
        self.prints.steps.append((name, tuple(tuple(tensor.shape) for tensor in out)))
        self.prints.values += [self.prints.of(tensor) for tensor in written]


class Influence(Recorder):
    """While it is active, follows which groups reach which storages, against the prints of an earlier run."""

    def __init__(
        self, own: Iterable[Tensor], before: Prints, changed: Mapping[str, Iterable[Tensor]], allowed: float
    ) -> None:
        super().__init__(own)
        self.before, self.allowed = before, allowed
        self.carried: dict[int, Names] = {}
        for name, held in changed.items():
            for place in map(_storage, held):
                self.carried[place] = self.carried.get(place, NOBODY) | {name}
        self.met: set[Names] = set()
        """Groups that came to an operation together: they have to be tried again."""
        self.at = self.place = 0

    def step_in(self, strange: list[Tensor]) -> None:
        if not all(self._as_before(tensor) for tensor in strange):
            raise Unclear

    def step(self, name: str, inside: set[int], out: list[Tensor], written: list[Tensor]) -> None:
        shapes = tuple(tuple(tensor.shape) for tensor in out)
        if self.at >= len(self.before.steps) or self.before.steps[self.at] != (name, shapes):
            raise Unclear
        self.at += 1
        names = NOBODY.union(*(self.carried.get(place, NOBODY) for place in inside))
        if len(names) > 1:
            self.met.add(names)
        if names and not out:  # a number leaves the tensors: what becomes of it is not seen
            raise Unclear
        for tensor in written:
            place = _storage(tensor)
            same = self._as_before(tensor)
            if not same and not names:
                raise Unclear
            kept = self.carried.get(place, NOBODY) if place in inside else NOBODY
            self.carried[place] = kept if same else names

    def _as_before(self, tensor: Tensor) -> bool:
        if self.place >= len(self.before.values):
            raise Unclear
        old, length = self.before.values[self.place]
        self.place += 1
        now, _ = self.before.of(tensor)
        return abs(now - old) <= self.allowed * length  # never for NaN


def _filled(values: Iterable[Any]) -> list[Tensor]:
    """The tensors with numbers in them among the arguments or results of an operation, which knows only lists."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found += [value] if value.numel() else []
        elif isinstance(value, list | tuple):
            found += _filled(value)
    return found


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
