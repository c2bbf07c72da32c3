"""Which studies there are: every module in :mod:`fiberscope.studies` that defines ``STUDY``.

A module that cannot be imported is one broken study, not the end of all others.
"""

from __future__ import annotations

from functools import cache
from pkgutil import iter_modules

import fiberscope.studies as home
from fiberscope.errors import InputError, hint
from fiberscope.extras import import_module
from fiberscope.studies.lab.study import Study


def all_studies() -> dict[str, Study]:
    """Name to study, found by looking at the folder: adding a study means adding a file."""
    return dict(_look()[0])


def broken_studies() -> dict[str, str]:
    """Name of each module that cannot be imported, and why, in one line."""
    return dict(_look()[1])


@cache
def _look() -> tuple[dict[str, Study], dict[str, str]]:
    found: dict[str, Study] = {}
    broken: dict[str, str] = {}
    for module in iter_modules(home.__path__):
        if module.ispkg or module.name.startswith("_"):
            continue
        try:
            study = getattr(import_module(f"fiberscope.studies.{module.name}", "a study"), "STUDY", None)
        except Exception as error:  # whatever is wrong with it is wrong with this study alone
            broken[module.name] = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
            continue
        if isinstance(study, Study):
            found[study.name] = study
    return dict(sorted(found.items())), dict(sorted(broken.items()))


def find_study(name: str) -> Study:
    """A study by name; an unknown one is refused with the closest names, a broken one with what is wrong with it.

    >>> find_study("weight-decays")
    Traceback (most recent call last):
    fiberscope.errors.InputError: study: expected one of ..., got 'weight-decays'; did you mean weight-decay?
    """
    studies = all_studies()
    if name not in studies:
        module = str(name).replace("-", "_")
        if module in (broken := broken_studies()):
            raise InputError(f"study {name}: expected a module that can be imported, got {broken[module]}")
        raise InputError(f"study: expected one of {', '.join(studies)}, got {name!r}{hint(str(name), studies)}")
    return studies[name]
