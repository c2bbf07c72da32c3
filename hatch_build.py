"""A wheel with the kernels compiled ahead of time, where it is asked for.

``HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip wheel .`` makes one for this interpreter and machine; without the variable the
wheel is Python alone, for all of them. The build runs ``fiberscope compile`` on the sources, so that nothing is
written twice: what the wheel has is what that command would put beside the package, and it is used under the same
conditions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "fiberscope"
LISTING = "compiled.json"


class CompiledKernels(BuildHookInterface[Any]):
    """Puts the extension and its listing into the wheel, which then has the tag of this interpreter and machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # its sources will change, and an extension that does not fit them is not used
            return
        self._made = TemporaryDirectory(prefix="fiberscope-kernels-")
        folder = Path(self._made.name)
        compile_into(folder, Path(self.root) / "src")
        file = json.loads((folder / LISTING).read_text(encoding="utf-8"))["file"]
        for name in (LISTING, file):
            build_data["force_include"][str(folder / name)] = f"{PACKAGE}/{name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._made.cleanup()


def compile_into(folder: Path, sources: Path) -> None:
    """Run ``fiberscope compile`` on these sources, in a process that has compiled nothing and leaves nothing else."""
    environment = os.environ | {"PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    with TemporaryDirectory(prefix="fiberscope-cache-") as cache:
        command = [sys.executable, "-m", PACKAGE, "compile", "--into", str(folder)]
        subprocess.run(command, env=environment | {"NUMBA_CACHE_DIR": cache}, cwd=folder, check=True)
