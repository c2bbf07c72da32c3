"""The code that a reader sees in README.md and in the docs runs, and prints what the page says.

On one page all ``python`` blocks share one namespace, in order. A block with prompts (``>>>``) is a doctest:
its output is compared. Blocks of other languages are not run; ``python no-run`` is not run either.
"""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")})
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=indent)```\s*$", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@dataclass(frozen=True)
class Block:
    """One block of Python on a page; ``line`` is where its first line of code stands."""

    code: str
    line: int


def blocks(text: str) -> list[Block]:
    """The Python blocks of a page, in order."""
    return [
        Block(match["body"], text.count("\n", 0, match.start("body")) + 1)
        for match in FENCE.finditer(text)
        if match["info"].strip() in {"python", "pycon", "py"}
    ]


def run_page(path: Path) -> None:
    """Run the blocks of a page in order in one namespace; the first failure raises with its place."""
    names: dict[str, Any] = {"__name__": "__page__"}
    runner = doctest.DebugRunner(optionflags=OPTIONS)
    for block in blocks(path.read_text(encoding="utf-8")):
        if ">>>" in block.code:
            test = doctest.DocTestParser().get_doctest(block.code, names, path.name, str(path), block.line - 1)
            test.globs = names  # the parser copies the namespace; the page shares one
            try:
                runner.run(test, clear_globs=False)
            except doctest.DocTestFailure as failure:
                example = failure.example
                place = f"{path.name}:{block.line + example.lineno}: `{example.source.strip()}`"
                pytest.fail(f"{place}\nsays\n{example.want}got\n{failure.got}")
            except doctest.UnexpectedException as failure:
                raise failure.exc_info[1] from None
        else:
            exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec"), names)


def runnable_pages() -> list[Path]:
    return [page for page in PAGES if "_build" not in page.parts and blocks(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", runnable_pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_runs_and_prints_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_the_pages_that_must_have_code_have_code() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in runnable_pages()}
    assert {"README.md", "docs/tutorial.md"} <= names


GOOD = """
# A page
```python
x = 2
```
Not run:
```python no-run
x = undefined
```
```console
$ fiberscope tour
```
```python
>>> x + 1
3
>>> y = x
```
```pycon
>>> [x, y]
[2, ...]
```
"""


def test_runner_shares_one_namespace(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(GOOD)
    run_page(tmp_path / "page.md")
    assert [block.line for block in blocks(GOOD)] == [4, 14, 19]


def test_runner_reports_wrong_output_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(GOOD.replace("\n3\n", "\n4\n"))
    with pytest.raises(pytest.fail.Exception, match=r"page.md:14: `x \+ 1`"):
        run_page(tmp_path / "page.md")


@pytest.mark.parametrize("broken", ["x = undefined\n", ">>> undefined\n"])
def test_runner_raises_what_the_page_raises(broken: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"```python\n{broken}```\n")
    with pytest.raises(NameError):
        run_page(tmp_path / "page.md")
