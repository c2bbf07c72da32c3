"""Wheels: Python alone by default, and with compiled kernels where that is asked for (hatch_build.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fiberscope.numerics.compiling.kernels import LISTING

ROOT = Path(__file__).resolve().parents[1]
SWITCH = "HATCH_BUILD_HOOK_ENABLE_CUSTOM"
pytest.importorskip("hatchling")
from hatchling.builders.wheel import WheelBuilder  # noqa: E402


@pytest.fixture
def script() -> ModuleType:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hook(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook, with a stand-in for the compiler."""

    def compile_into(folder: Path, sources: Path) -> None:
        assert (sources / "fiberscope" / "__init__.py").is_file()
        (folder / "compiled_0.so").write_bytes(b"")
        (folder / script.LISTING).write_text(json.dumps({"file": "compiled_0.so"}))

    monkeypatch.setattr(script, "compile_into", compile_into)
    builder = WheelBuilder(str(ROOT))
    return script.CompiledKernels(str(ROOT), {}, builder.config, builder.metadata, "", "wheel", builder.app)


def test_a_wheel_is_python_alone_where_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    config = WheelBuilder(str(ROOT)).config
    assert config.hook_config == {} and config.dependencies == []


def test_a_compiled_wheel_is_built_with_what_the_library_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    config = WheelBuilder(str(ROOT)).config
    assert list(config.hook_config) == ["custom"]
    assert {"numba", "numpy", "setuptools", "typer"} <= {text.split(">=")[0] for text in config.dependencies}


def test_the_extension_goes_into_the_wheel_with_a_tag_of_its_own(hook: Any, script: ModuleType) -> None:
    data: dict[str, Any] = WheelBuilder(str(ROOT)).get_default_build_data() | {"force_include": {}}
    hook.initialize("standard", data)
    places = {Path(path): place for path, place in data["force_include"].items()}
    assert sorted(places.values()) == [f"fiberscope/{LISTING}", "fiberscope/compiled_0.so"]
    assert all(path.is_file() and not path.is_relative_to(ROOT) for path in places)
    assert data["infer_tag"] and not data["pure_python"]
    hook.finalize("standard", data, "")
    assert not any(path.exists() for path in places)
    assert script.LISTING == LISTING


def test_an_installation_in_place_stays_as_it_is(hook: Any) -> None:
    data: dict[str, Any] = {"force_include": {}, "pure_python": True, "infer_tag": False}
    hook.initialize("editable", data)
    hook.finalize("editable", data, "")
    assert data == {"force_include": {}, "pure_python": True, "infer_tag": False}


ASK = """
import sys
import fiberscope as fs
print(fs.__file__)
print(int(fs.count_regions(fs.Network.random((2, 7, 7, 1), 0), fs.Box.cube(2))), "numba" in sys.modules)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    environment.pop("FIBERSCOPE_KERNELS", None)
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.slow
def test_a_compiled_wheel_answers_without_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one whose sources are others than it was made of says so, and answers the same with it."""
    monkeypatch.setenv(SWITCH, "1")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    assert "none-any" not in wheel
    folder = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(folder)
    place, *ahead = run(folder, "-c", ASK).stdout.split()
    assert Path(place).is_relative_to(folder)
    status = run(folder, "-m", "fiberscope", "compile", "--status")
    assert status.returncode == 0 and "are used" in status.stdout

    with (folder / "fiberscope" / "numerics" / "rows.py").open("a") as stream:
        stream.write("\n# another version\n")
    _, *usual = run(folder, "-c", ASK).stdout.split()
    assert (ahead[1], usual[1]) == ("False", "True") and ahead[0] == usual[0]
    status = run(folder, "-m", "fiberscope", "compile", "--status")
    assert status.returncode == 1 and "numerics/rows.py is not what it was made of" in status.stdout
