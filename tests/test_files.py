"""A file is whole or not there."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from fiberscope.errors import InputError
from fiberscope.files import LEFTOVERS, atomic_path, write_atomically


def test_writes_text_and_bytes(tmp_path):
    write_atomically(tmp_path / "a", "grüße")
    write_atomically(tmp_path / "b", b"\x00")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "grüße"
    assert (tmp_path / "b").read_bytes() == b"\x00"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_failure_leaves_the_old_file_and_no_debris(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail():
        with atomic_path(path) as part:
            part.write_text("half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_durable_files_are_flushed_before_and_after_they_get_their_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *names: (events.append("replace"), replace(*names)))
    write_atomically(tmp_path / "a", "x")
    assert events == ["replace"]
    write_atomically(tmp_path / "a", "y", durable=True)
    assert events[1:] == (["fsync", "replace"] if sys.platform == "win32" else ["fsync", "replace", "fsync"])
    assert (tmp_path / "a").read_text() == "y" and os.listdir(tmp_path) == ["a"]


def test_what_a_killed_process_leaves_can_be_found(tmp_path):
    (tmp_path / ".mine.json").write_text("")
    with atomic_path(tmp_path / "a.json") as part:
        assert list(tmp_path.glob(LEFTOVERS)) == [part] and part.suffix == ".json"


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    write_atomically(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="got a folder"):
        write_atomically(tmp_path, "x")
    with pytest.raises(InputError, match="cannot be written"):
        write_atomically(tmp_path / "nowhere" / "a", "x")
