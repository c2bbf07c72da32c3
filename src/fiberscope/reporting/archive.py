"""An archive of studies to cite: one zip file with every table, figure, setting and seed, and a hash of each file.

::

    manifest.json           versions, the studies with settings, seeds and verdicts, what failed, hashes of the files
    SHA256SUMS              the hashes of all files, the manifest's too, for ``sha256sum --check``
    index.html              the page of all studies, if there are several
    <study>-<scale>/...     what a study's folder holds, without the log (it has times) and the lock

The same results, written by the same versions, give the same bytes: names are sorted, times fixed. Folders of this
machine, which errors may name, are left out.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiberscope import __version__
from fiberscope.errors import InputError, TooLargeError
from fiberscope.files import atomic_path, check_archive, dated_member
from fiberscope.results import Result
from fiberscope.studies.lab.runner import StudyResult
from fiberscope.studies.lab.study import Study

MANIFEST, SUMS = "manifest.json", "SHA256SUMS"
FORMAT = "fiberscope archive of studies, version 1"
KEPT = ("study.json", "table.csv", "table.json", "summary.csv", "verdicts.json", "index.html")
LIBRARIES = ("numpy", "scipy", "torch", "numba", "highspy", "networkx", "joblib", "matplotlib", "scikit-learn")
Held = dict[str, bytes | None]
"""The files of an archive by name; None for one that is damaged."""

_WRITTEN_BY_US = {".json", ".csv", ".html"}


@dataclass(frozen=True, slots=True)
class ArchiveCheck(Result):
    """Whether an archive is whole: ``wrong`` names each file that is damaged, missing or not of the archive."""

    files: int
    studies: tuple[str, ...]
    failed: tuple[str, ...]
    wrong: tuple[str, ...]

    told = ("whole",)

    @property
    def whole(self) -> bool:
        return not self.wrong


def check_place(path: Path) -> None:
    """Refuse a file that is there, or cannot be written, before work is done whose results would have no place.

    >>> check_place(Path("/dev/null/out.zip"))
    Traceback (most recent call last):
    fiberscope.errors.InputError: archive: expected a new file in a folder that can be written, got /dev/null/out.zip...
    """
    if os.path.lexists(path):
        raise InputError(f"archive: expected a new file, got {path}, which is there already")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(
            f"archive: expected a new file in a folder that can be written, got {path} ({error.strerror})"
        ) from error


def write_study_archive(
    path: Path,
    done: Sequence[tuple[StudyResult, Study]],
    failed: Mapping[str, str] | None = None,
    page: Path | None = None,
) -> Path:
    """Write the results of studies into one zip file, whole or not at all; ``failed`` says which were not run, and why.

    ``page`` is the page of all of them, if there is one.
    """
    hidden = _folders([result.folder for result, _ in done] + ([page.parent] if page else []))
    files = {"index.html": _content(page, hidden)} if page else {}
    for result, study in done:
        for file in _files(result, study):
            files[f"{_place(result)}/{file.relative_to(result.folder).as_posix()}"] = _content(file, hidden)
    manifest = {
        "format": FORMAT,
        "versions": versions(),
        "studies": [_entry(result, study, hidden) for result, study in sorted(done, key=lambda one: one[0].study)],
        "failed": {name: without_folders(why, hidden) for name, why in sorted((failed or {}).items())},
        "files": {name: {"sha256": _sha256(files[name]), "bytes": len(files[name])} for name in sorted(files)},
    }
    files[MANIFEST] = (json.dumps(manifest, indent=1, allow_nan=False) + "\n").encode()
    files[SUMS] = "".join(f"{_sha256(files[name])}  {name}\n" for name in sorted(files)).encode()
    with atomic_path(path, durable=True) as part, zipfile.ZipFile(part, "w") as archive:
        for name in sorted(files):
            archive.writestr(dated_member(name), files[name])
    return path


def read_study_archive(path: Path | str) -> ArchiveCheck:
    """Compare every file of an archive with the hash in its manifest, and the manifest with the list beside it."""
    try:
        check_archive(path)
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            held: Held = {name: _member(archive, name) for name in names}
            manifest = json.loads(held.get(MANIFEST) or b"")
        if manifest["format"] != FORMAT:
            raise ValueError(manifest["format"])
        expected = {str(name): str(entry["sha256"]) for name, entry in manifest["files"].items()}
        studies = tuple(str(entry["study"]) for entry in manifest["studies"])
        failed = tuple(map(str, manifest["failed"]))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except TooLargeError:
        raise
    except Exception as error:  # on damaged bytes the parsers of zip and of JSON raise anything
        raise InputError(f"{path}: expected an archive of studies, got something else or a damaged file") from error
    wrong = [*_wrong(held, expected), *(f"{name}: twice" for name in sorted(held) if names.count(name) > 1)]
    return ArchiveCheck(len(held), studies, failed, tuple(wrong))


def _wrong(held: Held, expected: Mapping[str, str]) -> Iterator[str]:
    for name, digest in expected.items():
        if name not in held:
            yield f"{name}: missing"
        elif _sha256(held[name]) != digest:
            yield f"{name}: damaged"
    for name in held:
        if name not in expected and name not in (MANIFEST, SUMS):
            yield f"{name}: not of this archive"
    listed = (held.get(SUMS) or b"").decode(errors="replace").splitlines()
    if f"{_sha256(held[MANIFEST])}  {MANIFEST}" not in listed:
        yield f"{MANIFEST}: not the one of {SUMS}"


def versions() -> dict[str, str | None]:
    """What computes here: our version, Python's, the libraries' (None where there is none), and the kind of machine."""
    found: dict[str, str | None] = {"fiberscope": __version__, "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            found[library] = None
    return {**found, "system": platform.system(), "machine": platform.machine()}


def without_folders(text: str, folders: Iterable[str]) -> str:
    """A text in which these folders are written as ``...``.

    >>> without_folders("expected files in /home/me/data/mnist, got none", ["/home/me", "/home/me/data"])
    'expected files in .../mnist, got none'
    """
    for folder in sorted(folders, key=len, reverse=True):
        for spelling in {folder, json.dumps(folder)[1:-1]}:
            # Not within base64, of which a slash may be part: a path begins after a blank, a quote or a bracket.
            text = re.sub(rf"(?<![\w+/.-]){re.escape(spelling)}(?![\w.-])", "...", text)
    return text


def _folders(ours: Sequence[Path]) -> set[str]:
    """Folders of this machine that no archive should name: ours, the user's, where the data lie, temporary ones."""
    known = [*ours, *(folder.parent for folder in ours), Path.cwd(), Path.home(), Path(tempfile.gettempdir())]
    known += [Path(os.environ[name]) for name in ("FIBERSCOPE_DATA", "XDG_CACHE_HOME") if os.environ.get(name)]
    spelled = {str(folder) for one in known for folder in (one.absolute(), one.resolve())}
    return {folder for folder in spelled if len(Path(folder).parts) > 1}


def _place(result: StudyResult) -> str:
    return f"{result.study}-{result.scale}"


def _files(result: StudyResult, study: Study) -> list[Path]:
    """The files of a result: those of tasks it has, those of pictures that were drawn."""
    named = [result.folder / name for name in (*KEPT, *(f"{picture.name}.png" for picture in study.pictures))]
    tasks = study.tasks(result.scale, result.provenance["options"])
    named += [result.folder / "tasks" / f"{task.key}.json" for task in tasks]
    return [file for file in named if file.is_file()]


def _content(file: Path, hidden: Iterable[str]) -> bytes:
    data = file.read_bytes()
    if file.suffix in _WRITTEN_BY_US and file.parent.name != "tasks":  # what a task holds has its own checksum
        return without_folders(data.decode(), hidden).encode()
    return data


def _entry(result: StudyResult, study: Study, hidden: Iterable[str]) -> dict[str, Any]:
    """A study in the manifest: what was computed, with which seeds, and what came out."""
    lost = {failure.key: without_folders(failure.error, hidden) for failure in result.failures}
    tasks = study.tasks(result.scale, result.provenance["options"])
    return {
        "study": result.study,
        "version": study.version,
        "title": study.title,
        "paper": study.paper,
        "figure": study.figure,
        "scale": result.scale,
        "options": result.provenance["options"],
        "folder": _place(result),
        "complete": result.complete,
        "tasks": [
            {"key": task.key, "seed": task.seed, "settings": dict(task.settings)}
            | ({"failed": lost[task.key]} if task.key in lost else {})
            for task in tasks
        ],
        "verdicts": [{"claim": verdict.claim, "verdict": verdict.word} for verdict in result.verdicts],
    }


def _sha256(data: bytes | None) -> str:
    return "none" if data is None else hashlib.sha256(data).hexdigest()


def _member(archive: zipfile.ZipFile, name: str) -> bytes | None:
    """The bytes of a file in the archive; None where they are damaged."""
    try:
        return archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        return None
