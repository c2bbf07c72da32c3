"""Which studies there are: every module in :mod:`fiberscope.studies` that defines ``STUDY``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import fiberscope.studies as home
from fiberscope.errors import InputError
from fiberscope.studies.lab.study import Study
from fiberscope.training.datasets.registry import hint


@cache
def all_studies() -> dict[str, Study]:
    """Name to study, found by looking at the folder: adding a study means adding a file."""
    found: dict[str, Study] = {}
    for module in iter_modules(home.__path__):
        if module.ispkg or module.name.startswith("_"):
            continue
        study = getattr(import_module(f"fiberscope.studies.{module.name}"), "STUDY", None)
        if isinstance(study, Study):
            found[study.name] = study
    return dict(sorted(found.items()))


def find_study(name: str) -> Study:
    """A study by name; an unknown one is refused with the closest names.

    >>> find_study("initialization")
    Traceback (most recent call last):
    fiberscope.errors.InputError: study: expected one of ..., got 'initialization'; did you mean initialisation?
    """
    studies = all_studies()
    if name not in studies:
        raise InputError(f"study: expected one of {', '.join(studies)}, got {name!r}{hint(str(name), studies)}")
    return studies[name]
