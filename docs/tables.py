"""Tables that the pages include, written from what they are about."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import api_pages

import fiberscope as fs

WORDS = {True: "holds", False: "does not hold", None: "undecided"}


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


def findings(folder: Path) -> str:
    """What the studies found, from their verdict files, one section per study; the newest template is this function."""
    parts = []
    for file in sorted(folder.glob("*.json")):
        held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        origin = held["provenance"]
        name, scale = origin["study"], origin["scale"]
        head = f"### {name}, {scale} scale\n\n[The study](studies/{name}.md), {origin['tasks']} tasks"
        head += f", version {origin['study_version']}." if "study_version" in origin else "."
        if origin.get("missing"):
            head += f" **{len(origin['missing'])} tasks failed**, and the table lacks their rows."
        rows = [f"| {line(v['text'])} | {line(v['ours'])} | **{WORDS[v['holds']]}** |" for v in held["verdicts"]]
        parts.append("\n".join([head, "", "| the paper | ours | verdict |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n" if parts else "No verdict file has been put here yet.\n"


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
        "findings.md": findings(home / "findings"),
        "ratios.md": ratios(home.parent / "benchmarks" / "results" / "core.json"),
    }
    for name, text in made.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
