"""Write one page per command of ``fiberscope``, from the commands themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import typer

from fiberscope.cli.app import app


def commands() -> dict[str, Any]:
    """Every command by name, as click knows it."""
    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return found


def plain(text: str) -> str:
    """Help without the terminal's colours, safe in a table."""
    bare = re.sub(r"\[/?(?:bold|dim|red|green|yellow|cyan|italic)?[a-z ]*\](?!\()", "", text or "")
    return " ".join(bare.split()).replace("|", "\\|").replace("<", "&lt;")


def described(text: str) -> str:
    """A docstring as Markdown: indented lines are what to type."""
    parts: list[str] = []
    typed: list[str] = []

    def flush() -> None:
        if typed:
            parts.append("```console\n" + "\n".join(f"$ {line}" for line in typed) + "\n```")
            typed.clear()

    for block in re.split(r"\n\s*\n", text.replace("\b\n", "").replace("\f", "").strip("\n")):
        lines = block.splitlines()
        if all(line.lstrip().startswith("fiberscope ") for line in lines):
            typed += [line.strip() for line in lines]
        else:
            flush()
            parts.append(plain(block))
    flush()
    return "\n\n".join(parts)


def page(name: str, command: Any) -> str:
    """The Markdown of one command."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help" and not p.hidden]
    called = " ".join(_called(p) for p in arguments)
    parts = [f"# {name}", f"```console\n$ fiberscope {name} {called} [OPTIONS]\n```", described(command.help or "")]
    if arguments:
        rows = [f"| `{_called(p)}` | {plain(getattr(p, 'help', '') or '')} |" for p in arguments]
        parts.append("\n".join(["| argument | |", "|---|---|", *rows]))
    groups: dict[str, list[Any]] = {}
    for option in options:
        groups.setdefault(getattr(option, "rich_help_panel", None) or "Options", []).append(option)
    for title, held in groups.items():
        rows = [f"| {_names(p)} | {plain(p.help or '')} | {_default(p)} |" for p in held]
        parts.append("\n".join([f"## {title}", "", "| option | says | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _called(parameter: Any) -> str:
    shown = (parameter.metavar or parameter.name or "").upper()
    shown = shown if parameter.required else f"[{shown}]"
    return f"{shown}..." if parameter.nargs == -1 else shown


def _names(option: Any) -> str:
    flags = [f"`{text}`" for text in (*option.opts, *option.secondary_opts)]
    if option.is_flag:
        return ", ".join(flags)
    kind = option.metavar or " ".join(_kinds(option.type_descriptor.annotation))
    return ", ".join(flags) + f" `{kind}`"


def _kinds(annotation: Any) -> list[str]:
    """What to write behind an option of this type."""
    inner = [part for part in get_args(annotation) if part not in (type(None), Ellipsis)]
    if inner:
        return [word for part in inner for word in _kinds(part)]
    words = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
    return [words.get(annotation, str(getattr(annotation, "__name__", annotation)).upper())]


def _default(option: Any) -> str:
    value = option.default
    if option.is_flag or value is None or callable(value) or "UNSET" in repr(value).upper() or value == []:
        return ""
    return f"`{value}`"


def write(folder: Path) -> None:
    """Write the pages; a page whose text did not change keeps its date, so Sphinx need not read it again."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {folder / f"{name}.md": page(name, command) for name, command in commands().items()}
    for file in set(folder.glob("*.md")) - set(made):
        file.unlink()
    for file, text in made.items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
