"""Run the command line inside the test's process: what a user sees, without starting an interpreter each time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from fiberscope.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., CompletedProcess[str]]:
    """Call as ``run("inspect", path)``; gives the return code, standard output and standard error."""

    def call(*arguments: object) -> CompletedProcess[str]:
        command = ["fiberscope", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        code = stopped.value.code
        return CompletedProcess(command, code if isinstance(code, int) else int(code is not None), *captured)

    return call
