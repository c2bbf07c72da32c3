"""Answers as JUnit XML, which every continuous-integration server reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from fiberscope.files import write_atomically


@dataclass(frozen=True, slots=True)
class TestCase:
    """One answer: ``failure`` is a no, ``error`` an undecided one, ``text`` what is printed with it."""

    name: str
    text: str
    seconds: float = 0.0
    failure: str | None = None
    error: str | None = None


def write_junit(path: Path, suite: str, cases: list[TestCase]) -> None:
    """One suite of test cases, written whole or not at all."""
    failures = sum(case.failure is not None for case in cases)
    errors = sum(case.error is not None for case in cases)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={quoteattr(_plain(suite))} tests="{len(cases)}" failures="{failures}" errors="{errors}" '
        f'time="{sum(case.seconds for case in cases):.3f}">',
    ]
    for case in cases:
        lines.append(f'  <testcase classname="fiberscope.equal" name={quoteattr(case.name)} time="{case.seconds:.3f}">')
        for word, message in (("failure", case.failure), ("error", case.error)):
            if message is not None:
                lines.append(f"    <{word} message={quoteattr(_plain(message))}>{escape(_plain(case.text))}</{word}>")
        lines.append(f"    <system-out>{escape(_plain(case.text))}</system-out>")
        lines.append("  </testcase>")
    write_atomically(path, "\n".join([*lines, "</testsuite>"]) + "\n")


def _plain(text: str) -> str:
    """Without what XML cannot hold."""
    return "".join(c if c in "\t\n" or (ord(c) >= 32 and not 0xD800 <= ord(c) < 0xE000) else "?" for c in text)
