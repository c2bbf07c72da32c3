"""The folder of a study on disk: one small file per finished task, each whole or not there, and one lock.

::

    study.json        what is computed here: study, scale, options, versions
    tasks/<key>.json  one finished task: settings, seed, rows, checksum
    table.csv .json   all rows, in the order of the plan
    summary.csv, verdicts.json
    log.jsonl         what happened and when; the only file with times in it
    lock              held while a process works here
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fiberscope import __version__
from fiberscope.errors import InputError
from fiberscope.files import LEFTOVERS, write_atomically
from fiberscope.studies.lab.study import Study, Task
from fiberscope.studies.lab.table import Row
from fiberscope.training.records import dumps, plain

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


class Store:
    """The folder of one study at one scale with one set of options, locked while it is open."""

    def __init__(self, folder: Path, study: Study, scale: str, options: Mapping[str, Any]) -> None:
        self.folder = folder
        self.study = study
        self.provenance: dict[str, Any] = plain(
            {
                "fiberscope": __version__,
                "study": study.name,
                "study_version": study.version,
                "paper": study.paper,
                "scale": scale,
                "options": dict(options),
            }
        )
        try:
            (folder / "tasks").mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder / "lock")
            try:
                self._claim_folder()
                for leftover in (*folder.glob(LEFTOVERS), *(folder / "tasks").glob(LEFTOVERS)):
                    leftover.unlink(missing_ok=True)  # of a process that was killed while it wrote
            except BaseException:  # whatever happened, Ctrl-C too: the folder is free again
                self._lock.close()
                raise
        except OSError as error:
            raise InputError(f"out: expected a folder that can be written, got {folder}: {error.strerror}") from error

    def _claim_folder(self) -> None:
        path = self.folder / "study.json"
        if path.exists():
            try:
                before = json.loads(path.read_text(encoding="utf-8"))
            except (ValueError, RecursionError):
                before = None  # damaged: the task files carry their own provenance
            if isinstance(before, dict):
                for name in ("study", "scale", "options"):
                    if before.get(name) != self.provenance[name]:
                        raise InputError(
                            f"out: expected a new folder or one of the same study, got {self.folder} with "
                            f"{name} {before.get(name)!r} instead of {self.provenance[name]!r}"
                        )
        write_atomically(path, _pretty(self.provenance), durable=True)

    def close(self) -> None:
        """Give the lock back."""
        self._lock.close()

    def path(self, task: Task) -> Path:
        return self.folder / "tasks" / f"{task.key}.json"

    def save(self, task: Task, rows: Sequence[Row]) -> None:
        """Write the result of one task."""
        content = self._content(task, rows)
        write_atomically(self.path(task), _pretty({**content, "sha256": _digest(content)}), durable=True)

    def _content(self, task: Task, rows: Sequence[Row]) -> dict[str, Any]:
        """Settings and versions stand in every result. The scale does not: a task is the same in both."""
        content: dict[str, Any] = plain(
            {
                "fiberscope": __version__,
                "study": self.study.name,
                "study_version": self.study.version,
                "settings": dict(task.settings),
                "seed": task.seed,
                "rows": [dict(row) for row in rows],
            }
        )
        return content

    def load(self, task: Task) -> tuple[list[dict[str, Any]] | None, str]:
        """The rows of a finished task; or None and why: an empty reason means that there is no file."""
        path = self.path(task)
        try:
            data = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None, ""
        except (ValueError, OSError, RecursionError) as error:
            return None, f"{path.name} is damaged ({type(error).__name__})"
        if not isinstance(data, dict) or not isinstance(data.get("rows"), list):
            return None, f"{path.name} is damaged (no rows in it)"
        if data.pop("sha256", None) != _digest(data):
            return None, f"{path.name} is damaged (its checksum is wrong)"
        if data["rows"] and not all(isinstance(row, dict) for row in data["rows"]):
            return None, f"{path.name} is damaged (rows of another kind)"
        if data != self._content(task, data["rows"]):
            return None, f"{path.name} is of another version (fiberscope {data.get('fiberscope')})"
        return data["rows"], ""

    def write(self, name: str, content: str | Mapping[str, Any]) -> Path:
        """Write a result of the whole study, text or JSON."""
        path = self.folder / name
        write_atomically(path, content if isinstance(content, str) else _pretty(content), durable=True)
        return path


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(dumps(content).encode()).hexdigest()


def _pretty(content: Mapping[str, Any]) -> bytes:
    """Keys stay in the order in which they were put in: a study's columns keep their order."""
    return (json.dumps(plain(content), indent=1, allow_nan=False) + "\n").encode()


def _locked(path: Path) -> IO[bytes]:
    """The lock file, locked by the operating system: it is free again however the process ends."""
    file = path.open("a+b")
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        who = file.read().decode(errors="replace").strip() or "another process"
        file.close()
        raise InputError(f"out: expected a folder nobody works in, got {path.parent}, in use by {who}") from error
    file.truncate(0)
    file.write(f"process {os.getpid()}\n".encode())
    file.flush()
    return file
