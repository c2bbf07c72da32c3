"""Checkpoints aligned, moved and merged tensor by tensor: no model is ever in memory.

All work goes into a folder beside the wanted one, ``<out>.partial``. It holds what an interrupted run had come to, and
takes the name of the wanted folder when everything is written: so that folder is whole or not there.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiberscope.connectivity.checkpoints.configs import Plan, example, plan_of, transformers
from fiberscope.connectivity.means import rounded, rule_of
from fiberscope.connectivity.methods.weights import Moving, Weights, descend, known_first, movable
from fiberscope.connectivity.structure import Structure
from fiberscope.errors import InputError
from fiberscope.files import write_atomically
from fiberscope.modules.action import Group, act, check_fits
from fiberscope.network.action.element import Element
from fiberscope.network.formats.stored.shards import KINDS, Shards, write_shard
from fiberscope.numerics.drift import allowed_drift, relative_drift
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, hidden
from fiberscope.run import Progress, Run

ELEMENT = "alignment.json"
"""The element that was applied, beside the tensors that it moved."""

PROGRESS, SOURCE = "progress.json", ".source"
"""In the folder of the work: what was found so far, and from which files."""


@dataclass(frozen=True, eq=False)
class Aligned(Result):
    """What :func:`align_checkpoints` did."""

    out: Path
    distances: tuple[float, float]
    """``|a - b|`` over the tensors that can move, before and after."""
    groups: int
    tensors: int
    seconds: float
    drift: float | None
    """How much the outputs of ``b`` moved, relative to their size, where that was asked for; else None."""
    allowed: float | None
    """How much may be rounding."""
    element: Element = field(metadata=hidden())

    @property
    def ok(self) -> bool:
        """Whether the outputs were compared and moved by no more than rounding."""
        return self.drift is not None and self.allowed is not None and self.drift <= self.allowed

    def __repr__(self) -> str:
        before, after = self.distances
        return f"Aligned({self.out}: {self.groups} groups, distance {before:.4g} before, {after:.4g} after)"


def align_checkpoints(
    a: Path | str,
    b: Path | str,
    out: Path | str,
    *,
    rounds: int = 2,
    verify: bool = False,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Aligned:
    """Write the checkpoint ``b`` with its neurons in the order of ``a``, by weights; its function is not changed.

    Folders as ``transformers`` write them: ``config.json`` beside ``.safetensors`` files, one or several. The structure
    is found from the configuration, without weights. Tensors are read when they are needed and moved without rounding,
    in the type they are stored in; names, ties, files, configuration and tokenizer stay. The element is written beside
    them, as ``alignment.json``.

    A run that is interrupted begins where it stopped. Memory: the largest family of tensors in float32, and a matrix of
    gains of the widest group; the depth does not matter.

    Parameters
    ----------
    a, b, out
        Folders; ``out`` must not exist. It appears when everything is written.
    rounds
        Rounds over all groups after the first one. The distance is never larger than before.
    verify
        Load ``b`` and the result one after the other and compare what they give. This needs the memory of one model.
    progress, time_limit
        Called as ``progress(done, total, text)``; after so many seconds an ``OutOfTimeError``; the next run goes on.

    >>> align_checkpoints("no-such-folder", "other", "aligned")
    Traceback (most recent call last):
    fiberscope.errors.InputError: no-such-folder: expected a folder with .safetensors files, found none
    """
    begin, run = time.perf_counter(), Run.begin(progress, time_limit)
    left, right, target = Shards.open(a), Shards.open(b), _free(out)
    _check_alike(left, right)
    plan = plan_of(right.folder)
    names = _names(right, plan)
    stage = _stage(target, "align", left, right)
    try:
        element, distances = _matched(left, right, plan, names, stage, rounds, run)
    except InputError:  # these files will not do: there is nothing to go on with
        shutil.rmtree(stage)
        raise
    _write_moved(right, plan, element, stage, run)
    _finish(stage, target, element)
    drift, allowed = compare_outputs(right.folder, target, run) if verify else (None, None)
    groups = len(plan.structure.groups)
    seconds = time.perf_counter() - begin
    return Aligned(target, distances, groups, len(right.files), seconds, drift, allowed, element)


def apply_alignment(
    folder: Path | str,
    element: Element | Path | str,
    out: Path | str,
    *,
    inverse: bool = False,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Path:
    """Write a checkpoint moved by an element, or by its inverse: what ``alignment.json`` holds, or the element itself.

    Moving and moving back gives the same bytes in every tensor.

    >>> apply_alignment("no-such-folder", "alignment.json", "moved")
    Traceback (most recent call last):
    fiberscope.errors.InputError: no-such-folder: expected a folder with .safetensors files, found none
    """
    run = Run.begin(progress, time_limit)
    source, target = Shards.open(folder), _free(out)
    found = element if isinstance(element, Element) else read_element(Path(element))
    plan = plan_of(source.folder)
    _check_element(found, plan.structure)
    found = found.inverse() if inverse else found
    stage = _stage(target, found.to_dict(), source)
    _write_moved(source, plan, found, stage, run)
    _finish(stage, target, found)
    return target


def merge_checkpoints(
    folders: Sequence[Path | str],
    out: Path | str,
    method: str = "weights",
    *,
    weights: Sequence[float] | None = None,
    base: Path | str | None = None,
    keep: float = 0.2,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Path:
    """Write one checkpoint out of several, tensor by tensor, by the rules of :func:`fiberscope.merge`.

    Nothing is aligned: give folders that :func:`align_checkpoints` wrote where they come from different trainings.

    >>> merge_checkpoints([], "merged")
    Traceback (most recent call last):
    fiberscope.errors.InputError: folders: expected two at least, got 0
    """
    run = Run.begin(progress, time_limit)
    shards = [Shards.open(folder) for folder in folders]
    if len(shards) < 2:
        raise InputError(f"folders: expected two at least, got {len(shards)}")
    for other in shards[1:]:
        _check_alike(shards[0], other)
    rule = rule_of(method, weights, len(shards), keep)
    first: list[Shards] = []
    if method == "ties":
        if base is None:
            raise InputError("base: expected the checkpoint that all were trained from, for ties, got None")
        first = [Shards.open(base)]
        _check_alike(shards[0], first[0])
    target = _free(out)
    parts = None if weights is None else [float(one) for one in weights]
    stage = _stage(target, [method, parts, keep, len(first)], *first, *shards)

    def made(name: str) -> Tensor:
        return rounded([_finite(one, name) for one in (*first, *shards)], rule)

    try:
        _write(shards[0], made, stage, run, "merge")
    except InputError:  # as above
        shutil.rmtree(stage)
        raise
    _finish(stage, target, None)
    return target


def read_element(path: Path) -> Element:
    """The element in a JSON file."""
    if not path.is_file():
        raise InputError(f"{path}: expected a file that align wrote, found none")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected an element in JSON, got something else") from error
    return Element.from_dict(found.get("element") if isinstance(found, dict) and "element" in found else found)


def load_checkpoint(folder: Path | str) -> Any:
    """The model of a folder, in memory, in the type in which it is stored.

    >>> load_checkpoint("no-such-folder")
    Traceback (most recent call last):
    fiberscope.errors.InputError: no-such-folder: expected a folder with .safetensors files, found none
    """
    library, path = transformers(), Path(folder)
    Shards.open(path)
    try:
        config = library.AutoConfig.from_pretrained(str(path), local_files_only=True)
        kind = getattr(library, config.architectures[0])
        return kind.from_pretrained(str(path), local_files_only=True).eval()
    except Exception as error:  # it makes a model by code of a library, from a file that says anything
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{path}: transformers cannot load the model ({reason})") from error


def compare_outputs(before: Path, after: Path, run: Run) -> tuple[float, float]:
    """How much two checkpoints differ in what they give, relative to its size, and how much may be rounding."""
    found: list[FloatArray] = []
    coarsest = 0.0
    for folder in (before, after):
        run.step(len(found), 2, "comparison of outputs")
        module = load_checkpoint(folder)
        coarsest = max(float(torch.finfo(p.dtype).eps) for p in module.parameters() if p.is_floating_point())
        with torch.no_grad():
            found.append(module(**example(module, module.config, "cpu")).logits.double().flatten().numpy())
        del module
    return relative_drift(found[0], found[1]), allowed_drift(coarsest)


# -- matching ----------------------------------------------------------------------------------------------------------


def _matched(
    a: Shards, b: Shards, plan: Plan, names: Mapping[str, str], stage: Path, rounds: int, run: Run
) -> tuple[Element, tuple[float, float]]:
    """The element, found family by family; what is found is noted, and not looked for again."""
    stored = {own: name for name, own in names.items()}
    floating = {own: name for own, name in stored.items() if b.kinds[name] in KINDS}
    groups = plan.structure.groups
    sizes = {own: int(np.prod(b.shapes[name])) for own, name in floating.items()}
    moved = {axis.tensor for group in groups for axis in group.axes} & sizes.keys()
    for name in (name for own, name in floating.items() if own not in moved):
        for shards in (a, b):
            _finite(shards, name)
    sizes = {own: size for own, size in sizes.items() if own in moved}
    sides = [Moving(lambda own, shards=shards: _finite(shards, stored[own]), sizes, groups) for shards in (a, b)]  # type: ignore[misc]
    known = tuple(_on(group, sizes) for group in groups)
    pair = Weights(known, sides[0], sides[1])
    begun, before, end = _noted(stage)
    if before is not None and end is not None:  # files may have been written with it: it must not change any more
        return begun, (before, end)
    start = pair.distance() if before is None else before

    def note(element: Element, end: float | None = None) -> None:
        text = {"element": element.to_dict(), "before": start, "after": end}
        write_atomically(stage / PROGRESS, json.dumps(text))

    note(begun)
    element, after = known_first(pair, movable(pair), run, begun, note)
    if rounds:
        more, after = descend(after, 0, run, rounds)
        element = more @ element
    distance = after.distance()
    if not distance < start:
        element, distance = plan.structure.identity(), start
    element = Element({group.name: element[group.name] for group in groups})
    note(element, distance)
    return element, (start, distance)


def _on(group: Group, sizes: Mapping[str, int]) -> Group:
    return replace(group, axes=tuple(axis for axis in group.axes if axis.tensor in sizes))


def _finite(shards: Shards, name: str) -> Tensor:
    value = shards.read(name)
    if value.numel() and not bool(torch.isfinite(value).all()):
        raise InputError(f"{shards.folder}: expected finite weights, got NaN or infinity in {name}")
    return value


# -- writing -----------------------------------------------------------------------------------------------------------


def _write_moved(source: Shards, plan: Plan, element: Element, stage: Path, run: Run) -> None:
    names = _names(source, plan)

    def made(name: str) -> Tensor:
        own, value = names.get(name, name), source.read(name)
        held = {own: value}
        for group in plan.structure.groups:  # a parent moves before what is inside it
            axes = [axis for axis in group.axes if axis.tensor == own]
            if axes and group.name in element and not element[group.name].is_identity:
                held = act(element[group.name], axes, held)
        return held[own]

    _write(source, made, stage, run, "writing")


def _write(source: Shards, made: Callable[[str], Tensor], stage: Path, run: Run, text: str) -> None:
    """Every file of a checkpoint with other tensors in it; a file that an earlier run has written is left."""
    files = source.by_file
    for done, (file, names) in enumerate(files.items()):
        run.step(done, len(files), f"{text} {file}")
        if not (stage / file).is_file():
            write_shard(stage / file, {name: made(name) for name in names}, source.metadata(file))
    for path in source.others:
        if path.name not in (ELEMENT, PROGRESS, SOURCE):
            shutil.copyfile(path, stage / path.name)


def _finish(stage: Path, target: Path, element: Element | None) -> None:
    if element is not None:
        write_atomically(stage / ELEMENT, json.dumps({"element": element.to_dict()}))
    for name in (PROGRESS, SOURCE):
        (stage / name).unlink(missing_ok=True)
    os.replace(stage, target)


def _free(out: Path | str) -> Path:
    target = Path(out)
    if target.exists():
        raise InputError(f"{target}: expected a folder that does not exist yet")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent}: expected a folder to write into, found none")
    return target


def _stage(target: Path, question: Any, *sources: Shards) -> Path:
    """The folder of the work; what another question had left in it is taken away: its files are not ours."""
    stage = target.with_name(f"{target.name}.partial")
    described = [question, *(_described(one) for one in sources)]
    mark = sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    label = stage / SOURCE
    if stage.is_dir() and not label.is_file() and any(stage.iterdir()):
        raise InputError(f"{stage}: expected no such folder, or one of an interrupted run")
    if label.is_file() and label.read_text() != mark:
        shutil.rmtree(stage)
    stage.mkdir(exist_ok=True)
    write_atomically(label, mark)
    return stage


def _described(shards: Shards) -> list[Any]:
    """What tells whether a folder is the one of an earlier run: its files, with their sizes and times."""
    stats = {file: (shards.folder / file).stat() for file in shards.by_file}
    return [str(shards.folder.resolve()), {file: [one.st_size, one.st_mtime_ns] for file, one in stats.items()}]


def _noted(stage: Path) -> tuple[Element, float | None, float | None]:
    """What an earlier run had come to: an element, the distance before, and the one after it if it was finished."""
    if not (stage / PROGRESS).is_file():
        return Element({}), None, None
    try:
        found = json.loads((stage / PROGRESS).read_text(encoding="utf-8"))
        return Element.from_dict(found["element"]), found["before"], found["after"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # not what this wrote: begin again
        for file in stage.glob("*.safetensors"):
            file.unlink()
        return Element({}), None, None


# -- checks ------------------------------------------------------------------------------------------------------------


def _check_alike(a: Shards, b: Shards) -> None:
    """The first tensor that differs is named, layers in the order of their numbers."""
    for name in sorted(a.files.keys() | b.files.keys(), key=_in_order):
        if name not in a.files or name not in b.files:
            raise InputError(f"{(b if name in a.files else a).folder}: it has no tensor {name}, which the other has")
        if a.shapes[name] != b.shapes[name]:
            raise InputError(f"tensor {name}: expected equal shapes, got {a.shapes[name]} and {b.shapes[name]}")
        if a.kinds[name] != b.kinds[name]:
            raise InputError(f"tensor {name}: expected equal types, got {a.kinds[name]} and {b.kinds[name]}")


def _in_order(name: str) -> list[tuple[int, str]]:
    """Numbers in a name count as numbers: ``layers.2`` comes before ``layers.10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]


def _names(shards: Shards, plan: Plan) -> dict[str, str]:
    """From the names of tensors in the files to those of the groups; every tensor that moves must be there."""
    owned = {name: plan.renamed(name) for name in shards.files}
    found = {name: plan.aliases[own] for name, own in owned.items() if own in plan.aliases}
    for name, own in found.items():
        if plan.shapes[own] != shards.shapes[name]:
            sizes = f"{plan.shapes[own]}, got {shards.shapes[name]}"
            raise InputError(f"{shards.folder}: tensor {name}: by its config.json expected shape {sizes}")
    there = set(found.values())
    for group in plan.structure.groups:
        for axis in group.axes:
            if axis.tensor not in there:
                raise InputError(f"{shards.folder}: it has no tensor {axis.tensor}, which its config.json expects")
    return found


def _check_element(element: Element, structure: Structure) -> None:
    check_fits(element, structure.groups)
    for name, part in element.items():
        if not (part.scales == 1).all():
            raise InputError(f"group {name}: expected a permutation, got factors, which would be rounded")
