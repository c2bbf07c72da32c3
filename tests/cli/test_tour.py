"""``fiberscope tour`` as a newcomer runs it."""

from __future__ import annotations

import json
import subprocess
import sys


def run(*arguments: object, cwd: object = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fiberscope", "tour", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_writes_a_page_with_pictures_and_tells_where(tmp_path):
    done = run("--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    page = tmp_path / result["page"]
    assert page.name == "index.html"
    html = page.read_text(encoding="utf-8")
    for stop in result["stops"]:
        assert stop["answer"]
        assert "None" not in stop["answer"]
    assert html.count("<section") == len(result["stops"]) >= 7
    assert list(page.parent.glob("*.png"))
    assert html.count('<div class="call">') == len(result["stops"]) - 1  # the last one says where to go next
    files = next(stop for stop in result["stops"] if "file" in stop["title"])
    assert all("bit-identical" in value for value in files["evidence"].values())


def test_a_file_in_the_way_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("")
    done = run("--out", tmp_path / "taken")
    assert done.returncode == 2
    assert "expected a folder" in done.stderr
