"""A report on any model: one self-contained page with every question that can be asked of it, and its evidence."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fiberscope.errors import FiberscopeError, InputError
from fiberscope.files import check_folder, write_atomically
from fiberscope.geometry.domains import Domain, domain_of
from fiberscope.geometry.engines.planar.flips import WIDE
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import real_array
from fiberscope.reporting.against import is_the_other_equal
from fiberscope.reporting.dossier import Dossier, load_code
from fiberscope.reporting.page import Section, render_page
from fiberscope.reporting.parameters import how_many_directions, which_others
from fiberscope.reporting.picture import where_is_it_linear
from fiberscope.reporting.questions import how_far_are_the_data, warm_up, what_do_its_neurons_do, what_is_it_made_of
from fiberscope.results import Result, hidden
from fiberscope.run import Progress, Run, noticed_interrupts

Question = Callable[[Dossier], Section]

DEFAULT_SECONDS = 120.0
MOST_BYTES = 200_000
"""Of one answer in the page's JSON; a larger one is left out there."""


@dataclass(frozen=True, eq=False)
class Report(Result):
    """A page about one model: ``answers`` in words, ``unasked`` the questions that were not answered, with the reason.

    ``path`` is where it was written, ``complete`` is False where it was interrupted.
    """

    title: str
    answers: dict[str, str]
    unasked: dict[str, str]
    seconds: float
    complete: bool
    path: Path | None = None
    html: str = field(default="", repr=False, metadata=hidden())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, whole or not at all."""
        where = _target(path)
        write_atomically(where, self.html)
        return where

    def __repr__(self) -> str:
        open_ = f", {len(self.unasked)} not answered" if self.unasked else ""
        return f"Report({self.title}: {len(self.answers)} answers{open_}, {len(self.html):,} bytes)"


def report(
    source: NetworkLike,
    out: str | os.PathLike[str] | None = None,
    *,
    data: Any = None,
    labels: Any = None,
    against: NetworkLike | None = None,
    domain: Domain | None = None,
    full: bool = False,
    time_limit: float | None = DEFAULT_SECONDS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Everything the library can say about a model, as one HTML page that needs nothing else.

    Parameters
    ----------
    source
        Whatever :func:`fiberscope.load` takes.
    out
        Where to write the page; without it, only the result is returned.
    data, labels
        Inputs ``(points, in_size)`` (or in the shape of the input) and a class for each: then neurons, dimension and
        distances are asked on them, and a slice goes through three of them.
    against
        Another model: are they the same function?
    domain
        Where to look for regions, if not around the data.
    full
        Draw every region of the picture instead of the 20,000 largest.
    time_limit
        For all questions together, in seconds; those that are left by then are not asked, and the page says so. What
        is compiled on its first use after an installation (20 s or so) and the writing of the page come on top.

    >>> from fiberscope.network.network import Network
    >>> report(Network.random((2, 4, 1), seed=0), time_limit=60).unasked
    {}
    """
    target = None if out is None else _target(out)
    begin = perf_counter()
    dossier = _dossier(source, data, labels, against, domain, full, seed, Run.begin(progress, time_limit))
    dossier.run.report(0, len(questions(dossier)), "starting")
    warm_up(dossier.net.num_hidden >= WIDE, dossier.against is not None)
    dossier = replace(dossier, run=Run.begin(progress, time_limit))  # again: what was compiled is no work on this model
    with noticed_interrupts() as pressed:
        sections, complete = _answers(replace(dossier, pressed=pressed))
    found = _report(dossier, sections, perf_counter() - begin, complete)
    return found if target is None else replace(found, path=found.save(target))


def _answers(dossier: Dossier) -> tuple[list[Section], bool]:
    """Every question with its answer, and whether nobody interrupted; behind Ctrl-C none is asked."""
    asked = questions(dossier)
    interrupted = partial(_unasked, reason="the report was interrupted")
    sections: list[Section] = []
    over = False
    for number, (name, title, question) in enumerate(asked):
        try:
            dossier.run.report(number, len(asked), name)
            over = over or dossier.pressed()
            sections.append(interrupted(title) if over else _asked(dossier, title, question))
        except KeyboardInterrupt:
            over = True
            sections.append(interrupted(title))
    dossier.run.report(len(asked), len(asked), "page")
    return sections, not (over or dossier.pressed())


def questions(dossier: Dossier) -> list[tuple[str, str, Question]]:
    """Name, title and function of every question that the dossier can be asked."""
    asked: list[tuple[str, str, Question]] = [
        ("program", "What is it made of?", what_is_it_made_of),
        ("neurons", "What do its neurons do?", what_do_its_neurons_do),
        ("regions", "Where is it linear?", where_is_it_linear),
        ("dimension", "How many directions of the parameters matter?", how_many_directions),
        ("fiber", "Which other parameters are the same function?", which_others),
    ]
    if dossier.X is not None:
        asked.append(("distances", "How far are the data from the next boundary?", how_far_are_the_data))
    if dossier.against is not None:
        asked.append(("against", "Is the other model the same function?", is_the_other_equal))
    return asked


def _asked(dossier: Dossier, title: str, question: Question) -> Section:
    if dossier.run.is_over:
        return _unasked(title, "the time of the report is up; give a longer time limit")
    begin = perf_counter()
    try:
        section = question(dossier)
    except (FiberscopeError, MemoryError) as error:
        return _unasked(title, " ".join(str(error).split()) or "not enough memory")
    return replace(section, seconds=perf_counter() - begin)


def _unasked(title: str, reason: str) -> Section:
    return Section(title, f"Not asked: {reason}.", open=True)


def _dossier(
    source: NetworkLike,
    data: Any,
    labels: Any,
    against: NetworkLike | None,
    domain: Domain | None,
    full: bool,
    seed: int,
    run: Run,
) -> Dossier:
    X = None if data is None else real_array(data, "data")
    net = as_network(source, points=X)
    other = None if against is None else as_network(against, "against")
    if other is not None and (other.in_size, other.out_size) != (net.in_size, net.out_size):
        raise InputError(
            f"against: expected {net.in_size} inputs and {net.out_size} outputs, got {other.in_size} and "
            f"{other.out_size}"
        )
    if domain is not None:
        domain_of(net, domain)
    X = None if X is None else _rows(X, net)
    classes = None if labels is None else _classes(labels, X)
    kind = type(source).__name__
    code = load_code("net", net.source.path, kind)
    code_other = "" if other is None else load_code("other", other.source.path, type(against).__name__)
    return Dossier(net, code, X, classes, other, code_other, domain, full, seed, run)


def _rows(X: np.ndarray, net: Network) -> np.ndarray:
    if X.ndim < 1 or not len(X):
        raise InputError(f"data: expected inputs (points, {net.in_size}), got shape {X.shape}")
    flat = np.ascontiguousarray(X.reshape(len(X), -1), dtype=np.float64)
    if flat.shape[1] != net.in_size:
        raise InputError(f"data: expected {net.in_size} numbers for every point, got shape {X.shape}")
    return flat


def _classes(labels: Any, X: np.ndarray | None) -> np.ndarray:
    found = np.asarray(labels)
    if X is None:
        raise InputError("labels: expected data beside them")
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1 or len(found) != len(X) or found.dtype.kind not in "iub":
        raise InputError(
            f"labels: expected one whole number for each of {len(X)} points, got {found.dtype} {found.shape}"
        )
    names, index = np.unique(found, return_inverse=True)
    return found.astype(np.int64) if names.min() >= 0 and names.max() < 2**16 else index.astype(np.int64)


def _report(dossier: Dossier, sections: Sequence[Section], seconds: float, complete: bool) -> Report:
    net = dossier.net
    path = net.source.path
    title = path.name if path is not None else _short(net.architecture, 40)
    cards = [
        ("inputs", " x ".join(map(str, net.input_shape))),
        ("outputs", " x ".join(map(str, net.output_shape))),
        ("parameters", f"{net.num_parameters:,}"),
        ("hidden neurons", f"{net.num_hidden:,}"),
        ("stored as", net.source.precision),
        *([("data", f"{len(dossier.X):,} points")] if dossier.X is not None else []),
        *([("SHA-256", f"{net.source.sha256[:8]}…")] if net.source.sha256 else []),
    ]
    answers = {s.title: s.answer for s in sections if not s.answer.startswith("Not asked")}
    unasked = {s.title: s.answer for s in sections if s.answer.startswith("Not asked")}
    data = {
        "model": {"name": title, "architecture": net.architecture, **net.source.to_dict()},
        "answers": [
            {"question": s.title, "answer": s.answer, "call": s.call, "evidence": s.evidence, "seconds": s.seconds,
             "data": s.data if len(repr(s.data)) <= MOST_BYTES else None}
            for s in sections
        ],
    }  # fmt: skip
    what = "" if title == _short(net.architecture, 40) else f"{_short(net.architecture, 120)}. "
    subtitle = f"{what}Every answer comes with the call that gives it and why it holds."
    html = render_page(title, subtitle, sections, cards=cards, data=data)
    return Report(title, answers, unasked, seconds, complete, html=html)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _target(path: str | os.PathLike[str]) -> Path:
    """Where the page goes, refused before the work if it cannot be written."""
    where = Path(path)
    if where.is_dir():
        raise InputError(f"{where}: expected the name of a file such as report.html, got a folder")
    if not where.parent.is_dir():
        raise InputError(f"{where}: expected a name in a folder that exists, got {where.parent}")
    check_folder(where.parent)
    return where
