"""``fiberscope equal``: are two models the same function; ``vnncomp``, the competition's form of it."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fiberscope as fs
from fiberscope.cli.array_files import load_array
from fiberscope.cli.junit import TestCase, write_junit
from fiberscope.cli.model_options import Loader, ModelFile, input_size, is_quantised
from fiberscope.cli.watched import watched
from fiberscope.errors import InputError
from fiberscope.files import check_targets, write_atomically

CODES = {True: 0, False: 1, None: 3}
"""Exit codes: yes, no, undecided."""


class Norm(StrEnum):
    """Of the differences of all outputs."""

    max = "max"
    sum = "sum"


_SEARCHING = "searching for a proof or a counterexample"

_WORDS = {True: "[bold green]equal[/]", False: "[bold red]different[/]", None: "[bold yellow]undecided[/]"}


def equal(
    a: ModelFile,
    b: Annotated[Path, typer.Argument(help="Another model.", show_default=False)],
    load: Loader,
    box: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lower and upper bound of every input; all of space otherwise.", show_default=False),
    ] = None,
    domain: Annotated[
        Path | None, typer.Option(help="A VNN-LIB file, whose input set is the domain.", show_default=False)
    ] = None,
    vnnlib: Annotated[
        Path | None,
        typer.Option(help="A two-network query of VNN-LIB 2.0: domain and tolerance come from it.", show_default=False),
    ] = None,
    intended: Annotated[
        bool, typer.Option(help="With --vnnlib: any output that differs, whatever joins the comparisons.")
    ] = False,
    tolerance: Annotated[
        str | None,
        typer.Option(
            help="0: the same real function. A number: within it on the box; numbers between commas: one for every "
            "output, inf where it may be anything. Otherwise: up to the rounding of the precision that the parameters "
            "are stored in.",
            metavar="NUMBERS",
        ),
    ] = None,
    norm: Annotated[
        Norm, typer.Option(help="Of the differences of all outputs: the largest, or their sum.")
    ] = Norm.max,
    same_class: Annotated[
        bool, typer.Option("--same-class", help="Ask for the same largest output instead of the same values.")
    ] = False,
    margin: Annotated[
        float | None,
        typer.Option(help="With --same-class: only where the first model is ahead by so much.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="An .npy file of samples to compare on besides.", show_default=False)
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(
            help="Ask on the ball of this radius in the maximum norm around every sample of --data, with the time "
            "limit for each of them.",
            show_default=False,
        ),
    ] = None,
    clip: Annotated[
        tuple[float, float] | None,
        typer.Option(help="With --radius: what an input may be, as 0 1 for pixels.", show_default=False),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            help="Write the proof, for `fiberscope verify`; with --radius one for every ball, numbered.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes for branch and bound; 0: one for every core.", min=0)] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(help="Branch and bound on a cluster, as dask://HOST:PORT.", show_default=False),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Keep the open boxes of branch and bound in this file; a run that was killed goes on from there.",
            show_default=False,
        ),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the answers as JUnit XML.", show_default=False)] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds after which to give up.", min=0.001)] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Whether two models are the same function, with a proof either way.

    Four answers: the same program up to symmetry? equal up to the rounding of the stored precision? how far apart on
    --data? and the question about the domain, whose answer is the exit code.

    Examples:

      fiberscope equal model.onnx pruned.onnx

      fiberscope equal a.onnx b.onnx --box -1 1 --tolerance 1e-3 --certificate proof.json

      fiberscope equal checkpoint.onnx export.onnx --data images.npy --junit equal.xml

      fiberscope equal net.onnx int8.onnx --same-class --data images.npy --radius 0.01 --clip 0 1 --time-limit 2

      fiberscope equal a.onnx b.onnx --box -1 1 --tolerance 1e-3 --jobs 0 --state open.json --time-limit 3600

      fiberscope equal net.onnx int8.onnx --box 0 1 --tolerance 0.1,0.1,inf

      fiberscope equal f.onnx g.onnx --vnnlib query.vnnlib --intended

    Exit codes: 0 equal, 1 different, 2 bad input, 3 undecided.
    """
    elsewhere = jobs != 1 or cluster is not None or state is not None
    asked = sum(option is not None for option in (box, domain, vnnlib))
    allowed = _tolerances(tolerance)
    _check_options(asked, elsewhere, tolerance, same_class, margin, vnnlib, intended, data, radius, clip)
    check_targets([certificate, junit, state], [a, b, domain, vnnlib, data])
    shared: dict[str, Any] = {"jobs": jobs or None, "cluster": cluster, "state": state, "norm": norm.value}
    left, right = _models(load, a, b)
    rounds = isinstance(left, Path) or isinstance(right, Path)
    if rounds and (vnnlib is not None or (data is not None and radius is None)):
        raise InputError("--vnnlib, --data without --radius: expected none of them with a quantised file, whose "
                         "rounding is bounded and not computed")  # fmt: skip
    console = Console(soft_wrap=True)
    found = None
    with watched(_SEARCHING) as progress:
        options: dict[str, Any] = {"progress": progress}
        if radius is not None and data is not None:
            if same_class:
                options |= {"criterion": "argmax", "margin": margin}
            around = fs.equivalent_around(
                left, right, load_array(data), radius, allowed, time_limit, clip=clip, norm=norm.value, **options
            )
    if radius is not None:
        _around(console, around, a, b, certificate, junit, as_json)
        raise typer.Exit(CODES[around.equal])
    with watched(_SEARCHING) as options["progress"]:
        if vnnlib is not None:
            query = _query(vnnlib, intended)
            found = fs.answer_query(query, left, right, time_limit, seed, **options)
            report, verdict, answer = None, found.verdict, found.equal
        else:
            points = None if data is None else load_array(data)
            where = _domain(left, box, domain)
            if same_class:
                options |= {"criterion": "argmax", "margin": margin}
            options |= shared
            question = (left, right, where, allowed)
            report = None if rounds else fs.audit(*question, points, time_limit, seed, **options)
            verdict = fs.equivalent(*question, time_limit, seed, **options) if report is None else report.verdict
            answer = verdict.equal
    if certificate is not None and verdict is not None and verdict.evidence is not None:
        verdict.save(certificate)
    if junit is not None:
        write_junit(junit, f"{a} = {b}", _cases(report, verdict, found))
    if as_json:
        parts = [{} if verdict is None else verdict.to_dict(), {} if report is None else _told(report)]
        told = {} if found is None else {"query": found.to_dict()}
        print(json.dumps({"a": str(a), "b": str(b), **parts[0], **parts[1], **told}, indent=2))
    else:
        _show(console, report, verdict, found, certificate)
    raise typer.Exit(CODES[answer])


def _tolerances(text: str | None) -> float | list[float] | None:
    """One number, or one for every output."""
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--tolerance: expected a number, or numbers between commas, got {text!r}") from error
    return numbers[0] if len(numbers) == 1 else numbers


def _check_options(
    asked: int, elsewhere: bool, tolerance: Any, same_class: bool, margin: Any, vnnlib: Any, intended: bool, data: Any,
    radius: Any, clip: Any,
) -> None:  # fmt: skip
    """Options that do not go together, each in one line."""
    if asked > 1 or (vnnlib is not None and tolerance is not None) or (intended and vnnlib is None):
        raise InputError(
            "expected one of --box, --domain and --vnnlib, --tolerance without --vnnlib, --intended with it"
        )
    if margin is not None and not same_class:
        raise InputError("--margin: expected --same-class beside it")
    if radius is not None and (data is None or asked or elsewhere):
        raise InputError("--radius: expected --data beside it, and no other domain, --jobs, --cluster or --state")
    if clip is not None and radius is None:
        raise InputError("--clip: expected --radius beside it")
    if vnnlib is not None and elsewhere:
        raise InputError("--jobs, --cluster, --state: expected none of them with --vnnlib")


def _around(
    console: Console, found: Any, a: Path, b: Path, certificate: Path | None, junit: Path | None, as_json: bool
) -> None:
    """A verdict for every ball: counts, the balls that were not proven, and a certificate for each that was."""
    wrote = []
    for k, verdict in enumerate(found.verdicts):
        if certificate is not None and verdict.evidence is not None:
            wrote.append(certificate.with_stem(f"{certificate.stem}-{k}"))
            verdict.save(wrote[-1])
    if junit is not None:
        cases = []
        for k, verdict in enumerate(found.verdicts):
            text = _sentence(verdict)
            failure, error = (text if verdict.equal is False else None), (text if verdict.equal is None else None)
            cases.append(TestCase(f"ball {k}", text, verdict.seconds, failure, error))
        write_junit(junit, f"{a} = {b}", cases)
    if as_json:
        print(json.dumps({"a": str(a), "b": str(b), **found.to_dict(), "balls": found.per_ball()}, indent=2))
        return
    counts = f"{len(found.proven)} proven, {len(found.refuted)} refuted, {len(found.undecided)} undecided"
    console.print(f"{_WORDS[found.equal]} on balls of radius {found.radius:g}: {counts}", highlight=False)
    for word, balls in (("refuted", found.refuted), ("undecided", found.undecided)):
        if balls:
            more = f" and {len(balls) - 20} more" if len(balls) > 20 else ""
            console.print(f"{word}: samples {', '.join(map(str, balls[:20]))}{more}", highlight=False, markup=False)
    if found.refuted:
        _show_example(lambda text: console.print(text, highlight=False, markup=False), found.verdicts[found.refuted[0]])
    if certificate is not None:
        console.print(f"wrote {len(wrote)} certificates" + (f", the first is {wrote[0]}" if wrote else ""),
                      highlight=False, markup=False)  # fmt: skip


def vnncomp(
    f: Annotated[Path, typer.Argument(help="The first network of the query.", show_default=False)],
    g: Annotated[Path, typer.Argument(help="The second one.", show_default=False)],
    query: Annotated[Path, typer.Argument(help="A two-network query of VNN-LIB 2.0.", show_default=False)],
    result: Annotated[Path, typer.Argument(help="The file for the answer.", show_default=False)],
    time_limit: Annotated[float, typer.Argument(help="Seconds after which to give up.", min=0.001)] = 100.0,
    intended: Annotated[
        bool, typer.Option(help="Any output that differs, whatever joins the comparisons in the file.")
    ] = False,
) -> None:
    """Answer a two-network query as the competition of verifiers wants it: sat, unsat or unknown in a result file.

    Examples:

      fiberscope vnncomp f.onnx g.onnx query.vnnlib result.txt 100 --intended

    Exit codes: 0 an answer was written, 2 bad input, and then nothing is written.
    """
    check_targets([result], [f, g, query])
    read = _query(query, intended)
    found = fs.answer_query(read, fs.load(f), fs.load(g), time_limit)
    write_atomically(result, found.lines(read))
    for text in (found.result, found.note):
        if text:
            Console(soft_wrap=True).print(text, highlight=False, markup=False)


def _query(path: Path, intended: bool) -> Any:
    query = fs.read_query(path)
    return query.intended() if intended else query


def _models(load: Any, a: Path, b: Path) -> Any:
    """Both models; a quantised file is handed on as a path."""
    paths = [path for path in (a, b) if is_quantised(path)]
    return [path if path in paths else load(path) for path in (a, b)] if paths else load.all(a, b)


def _domain(net: Any, box: tuple[float, float] | None, file: Path | None) -> Any:
    if file is None and box is None:
        return None
    size = input_size(net)
    return fs.read_domain(file, size) if file is not None else fs.Box.cube(size, *(box or ()))


def _told(report: Any) -> dict[str, Any]:
    """The other three answers for machines."""
    short = {
        name: None
        if verdict is None
        else {key: verdict.to_dict()[key] for key in ("equal", "method", "bound", "residual", "precision", "reason")}
        for name, verdict in (("structure", report.structure), ("rounding", report.rounding))
    }
    return {"answers": {**short, "data": None if report.data is None else report.data.to_dict()}}


def _cases(report: Any, verdict: Any, found: Any) -> list[TestCase]:
    """The question decides whether a build fails; the other answers stand beside it."""
    if found is not None:
        text = f"{found.result}: {found.reason}"
        name, seconds = "query", 0.0 if verdict is None else verdict.seconds
        answer = found.equal
    else:
        name, text, answer, seconds = f"equal {verdict.kind}", _sentence(verdict), verdict.equal, verdict.seconds
    failure, error = (text if answer is False else None), (text if answer is None else None)
    cases = [TestCase(name, text, seconds, failure, error)]
    if report is not None:
        cases.append(TestCase("structure (for information)", _structure(report.structure)))
        cases.append(TestCase("rounding (for information)", _sentence(report.rounding)))
        if report.data is not None:
            cases.append(TestCase("data (for information)", report.data.text))
    return cases


def _sentence(verdict: Any) -> str:
    word = {True: "equal", False: "different", None: "undecided"}[verdict.equal]
    told = "" if verdict.bound is None else f", largest {_what(verdict)} proven {verdict.bound:.6g}"
    text = f"{word} {verdict.kind} on {verdict.domain!r}{told}: {verdict.reason or verdict.method}"
    example = verdict.counterexample
    if example is not None:
        gap = f"difference {example.difference:.6g} " if verdict.margin is None else ""
        text += f"; {gap}at x = {_numbers(example.x)}"
    if verdict.equal is None:
        text += "".join(f"; {line}" for line in _open(verdict))
    return text


def _what(verdict: Any) -> str:
    """What bound and interval are of."""
    return "difference" if getattr(verdict, "tolerances", None) is None else "share of a tolerance"


def _structure(verdict: Any, told: str = "") -> str:
    """The answer about structure, without the reason where that was ``told`` already."""
    if verdict is None:
        return "not known to be one program up to symmetry"
    why = f": {verdict.reason}" if verdict.reason != told else ""
    return f"one program up to symmetry, by {verdict.method}{why}"


def _show(console: Console, report: Any, verdict: Any, found: Any, certificate: Path | None) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    if found is not None:
        say(f"{found.result}: {found.reason}")
        if found.note:
            say(f"note: {found.note}")
    if verdict is not None:
        told = "" if verdict.bound is None else f", largest {_what(verdict)} proven {verdict.bound:.6g}"
        line = f"{_WORDS[verdict.equal]} {verdict.kind} on "
        console.print(line, end="", highlight=False)
        say(f"{verdict.domain!r}{told}")
        took = f"{1000 * verdict.seconds:.1f} ms"
        say(f"not decided in {took}" if verdict.equal is None else f"by {verdict.method}, {took}")
        if verdict.reason:
            say(verdict.reason)
        _show_example(say, verdict)
    if report is not None:
        say(f"structure: {_structure(report.structure, verdict.reason)}")
        if report.rounding is not verdict:
            say(f"rounding:  {_sentence(report.rounding)}")
        if report.data is not None:
            say(f"data:      {report.data.text}")
    if verdict is not None and verdict.equal is None:
        for line in _open(verdict, report):
            say(line)
    if certificate is not None:
        proven = verdict is not None and verdict.evidence is not None
        known = verdict is not None and verdict.equal is not None
        why = "this kind of verdict has none yet" if known else "nothing was proven"
        say(f"wrote {certificate}" if proven else f"no certificate: {why}")


def _show_example(say: Any, verdict: Any) -> None:
    example = verdict.counterexample
    if example is None:
        return
    say(f"at x = {_numbers(example.x)}\n  a(x) = {_numbers(example.a)}\n  b(x) = {_numbers(example.b)}")
    if verdict.margin is None:
        say(f"difference {example.difference:.6g}, allowed {example.allowed:.6g}")
    else:
        say(f"class {example.a.argmax()} in a, and in b class {example.b.argmax()} is ahead of it")


def _open(verdict: Any, report: Any = None) -> list[str]:
    """What is known where nothing is decided: the interval, what was tried, what to try next.

    Where all outputs are within ``e``, a class that is ahead by more than ``2 e`` is not beaten.
    """
    lines = []
    interval = getattr(verdict, "interval", None)
    if interval is not None:
        lines.append(
            f"the largest {_what(verdict)} is between {interval.low:.6g} (found) and {interval.high:.6g} (proven)"
        )
    slow = sorted(verdict.tried, key=lambda item: -item[1])
    lines.append("tried: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in slow[:6]))
    near = None if report is None or verdict.margin != 0 else report.rounding.bound
    ahead = f"--margin {2.1 * near:.2g} (the outputs are within {near:.3g}), or " if near else ""
    lines.append(f"try next: {ahead}{verdict.next_step}")
    return lines


def _numbers(values: Any) -> str:
    shown = [f"{v:.6g}" for v in values[:8]]
    return f"[{', '.join(shown)}{', ...' if len(values) > 8 else ''}]"
