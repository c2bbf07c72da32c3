"""Tables that the pages include, written from what they are about."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import api_pages

import fiberscope as fs

WORDS = {True: "holds", False: "does not hold", None: "undecided"}


NOT_RUN = "not run"
"""In the place of an error, of tasks that were left out of a run that was kept before its end."""


def line(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def stability(levels: dict[str, list[str]]) -> str:
    """Every public name with its level, by question."""
    level = {name: kind for kind in ("stable", "provisional") for name in levels[kind]}
    parts = []
    for file, title, _ in api_pages.QUESTIONS:
        names = [name for name in fs._NAMES if api_pages.page_of(name) == file]
        if names:
            rows = [
                f"| `fs.{name}` | {level[name]} | {'torch' if name in levels['torch'] else ''} |"
                for name in sorted(names, key=str.lower)
            ]
            parts.append("\n".join([f"### {title}", "", "| name | level | needs |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def datasets() -> str:
    """Every data set that can be loaded, from the library's own list."""
    rows = [f"| `{e.name}` | {line(e.summary)} | {'files' if e.needs_files else ''} |" for e in fs.list_datasets()]
    return "\n".join(["| name | what | needs |", "|---|---|---|", *rows]) + "\n"


def word(verdict: dict[str, Any]) -> str:
    """The verdict; what holds as we read the paper, where its words leave it open, says so."""
    found = WORDS[verdict["holds"]]
    read = re.search(r"\bread(ing)?\b", f"{verdict['text']} {verdict.get('where', '')}", re.IGNORECASE)
    return f"{found} under this reading" if read and verdict["holds"] else found


def command(origin: dict[str, Any], defaults: Mapping[str, Any]) -> str:
    """What repeats a run: the study, the scale, and options that are not the default."""
    changed = {k: v for k, v in origin.get("options", {}).items() if v is not None and v != defaults.get(k)}
    settings = "".join(f" --set {key}='{json.dumps(value)}'" for key, value in changed.items())
    return f"fiberscope reproduce {origin['study']} --scale {origin['scale']}{settings}"


def findings(folder: Path, options: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> str:
    """What the studies found, from their verdict files, one section per file; ``options`` are their defaults."""
    files = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}
    if not files:
        return "No verdict file has been put here yet.\n"
    parts = [section(name, held, options.get(held["provenance"]["study"], {})) for name, held in files.items()]
    return "\n\n".join([counts(held for held in files.values() if not variant(held)), *parts]) + "\n"


def variant(held: dict[str, Any]) -> str:
    """The architecture of a run that is not the one of its study, and is told but not counted; else nothing."""
    return str(held["provenance"].get("options", {}).get("net") or "")


def section(file: str, held: dict[str, Any], defaults: Mapping[str, Any]) -> str:
    """One verdict file: where it comes from, what repeats it, and every claim."""
    origin = held["provenance"]
    name, version = origin["study"], f", version {origin['study_version']}" if "study_version" in origin else ""
    other = f", {variant(held)}" if variant(held) else ""
    head = f"### {name}, {origin['scale']} scale{other}\n\n*{line(origin.get('paper', 'unknown'))}*. "
    head += f"[The study](studies/{name}.md), {origin['tasks']} tasks{version}; the numbers are from `findings/{file}`."
    missing = [one.get("error") == NOT_RUN for one in origin.get("missing", ())]
    told = {"failed": missing.count(False), "were not run": missing.count(True)}
    if missing:
        words = " and ".join(f"**{n} tasks {what}**" for what, n in told.items() if n)
        head += f" {words}, and the table lacks their rows."
    if origin.get("pooled"):
        head += f" {line(origin['pooled'])}"
    head += f"\n\n```console\n$ {command(origin, defaults)}\n```"
    rows = [
        f"| {line(v['text'])} | {line(v.get('where', ''))} | {line(v['ours'])} | **{word(v)}** |"
        for v in held["verdicts"]
    ]
    return "\n".join([head, "", "| the paper | where | ours | verdict |", "|---|---|---|---|", *rows])


def counts(files: Iterable[dict[str, Any]]) -> str:
    """How the claims of each paper ended; of a study that was run at both scales, at the paper's."""
    chosen = {
        held["provenance"]["study"]: held for held in sorted(files, key=lambda h: h["provenance"]["scale"] != "quick")
    }
    papers: dict[str, Counter[str]] = {}
    for held in chosen.values():
        paper = held["provenance"].get("paper", "unknown")
        papers.setdefault(paper, Counter()).update(word(verdict) for verdict in held["verdicts"])
    words = ("holds", "holds under this reading", "does not hold", "undecided")
    rows = [f"| {line(paper)} | {' | '.join(str(n[w]) for w in words)} |" for paper, n in sorted(papers.items())]
    return "\n".join([f"| claims of | {' | '.join(words)} |", "|---|---:|---:|---:|---:|", *rows])


def theorems(file: Path) -> str:
    """Theorems that tests exercise, with the tests."""
    rows = []
    for one in tomllib.loads(file.read_text(encoding="utf-8"))["theorem"]:
        tests = ", ".join(f"`{test}`" for test in one["tests"])
        told = f"{line(one['words'])} | *{line(one['paper'])}*, {line(one['where'])} | {line(one['ours'])}"
        rows.append(f"| {told} | **{one['verdict']}** | {tests} |")
    return "\n".join(["| the paper | where | ours | verdict | tests |", "|---|---|---|---|---|", *rows]) + "\n"


def ratios(file: Path) -> str:
    """The core rows of the last benchmark run that was kept, with its date and machine."""
    if not file.exists():
        return "No run has been kept yet.\n"
    held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    own = {(row["method"], row["network"]): row["seconds"] for row in held["rows"] if row["contestant"] == "ours"}
    rows = []
    for (method, network), seconds in own.items():
        others = [
            f"{line(row['contestant'])} {row['ratio']:.2g}"
            for row in held["rows"]
            if (row["method"], row["network"]) == (method, network) and row["contestant"] != "ours" and row["ratio"]
        ]
        rows.append(f"| {line(method)} | {line(network)} | {milliseconds(seconds)} | {', '.join(others)} |")
    machine = held["machine"]
    head = (
        f"Run of {held['date']}, version {held['version']}, Python {machine['python']} on {machine['machine']} with "
        f"{machine['cores']} cores (load {held['load']}), {held['seconds']:.0f} s, at most {held['memory']} GB."
    )
    table = ["| question | network | ours | time of others over ours |", "|---|---|---:|---|", *rows]
    return "\n".join([head, "", *table]) + "\n"


def milliseconds(seconds: float) -> str:
    """A time with two digits."""
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.2g} ms"


def write(home: Path) -> None:
    """Write all tables into ``generated``, which the pages include."""
    folder = home / "generated"
    folder.mkdir(exist_ok=True)
    made = {
        "stability.md": stability(tomllib.loads((home / "stability.toml").read_text(encoding="utf-8"))),
        "datasets.md": datasets(),
        "findings.md": findings(home / "findings", {info.name: info.options for info in fs.list_studies()}),
        "theorems.md": theorems(home / "theorems.toml"),
        "ratios.md": ratios(home.parent / "benchmarks" / "results" / "core.json"),
    }
    for name, text in made.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
