"""The published schemas of certificates: everything that is written fits one, and they name every kind of evidence."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from mutations import at, mutants
from test_live import module_proof
from test_mutations import VERDICTS
from test_quantised import proof

from fiberscope.equality import checker
from fiberscope.equality.certificates.encoding import FORMAT
from fiberscope.equality.evidence import Evidence
from fiberscope.equality.verify import CLAIM, CRITERIA, FIELDS, KINDS

FOLDER = Path(checker.__file__).parent
SCHEMA = json.loads((FOLDER / "certificate-4.schema.json").read_text())
MODULES = json.loads((FOLDER / "module-certificate-1.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def fits(found: Any, rule: dict[str, Any], root: dict[str, Any] | None = None) -> bool:
    """Whether a value fits a rule of a schema; the words that these schemas use, and no others."""
    root = rule if root is None else root
    known = {
        "$schema",
        "$defs",
        "title",
        "description",
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
    }
    assert set(rule) <= known | {"$ref", "oneOf", "const", "enum", "minimum", "minItems", "maxItems", "pattern"}
    if "$ref" in rule:
        return fits(found, root["$defs"][rule["$ref"].rsplit("/", 1)[1]], root)
    if "oneOf" in rule and sum(fits(found, part, root) for part in rule["oneOf"]) != 1:
        return False
    if ("const" in rule and found != rule["const"]) or ("enum" in rule and found not in rule["enum"]):
        return False
    kind = rule.get("type")
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if kind in ("number", "integer"):
        if not number or (kind == "integer" and not isinstance(found, int)) or found < rule.get("minimum", found):
            return False
    elif kind is not None and not isinstance(found, TYPES[kind]):
        return False
    if "pattern" in rule and not re.search(rule["pattern"], found):
        return False
    if isinstance(found, list):
        short = len(found) < rule.get("minItems", 0) or len(found) > rule.get("maxItems", len(found))
        return not short and all(fits(part, rule.get("items", {}), root) for part in found)
    if isinstance(found, dict):
        inner, rest = rule.get("properties", {}), rule.get("additionalProperties", {})
        if not set(rule.get("required", ())) <= set(found) or (rest is False and not set(found) <= set(inner)):
            return False
        return all(fits(part, inner.get(key, rest or {}), root) for key, part in found.items())
    return True


def without_a_field(good: Any, skip: tuple[str, ...] = ()) -> list[Any]:
    """Copies that lack one field of the certificate, or of what stands in it."""
    missing = [(place, made) for place, made in mutants(good, skip=skip, most=1) if len(place) <= 2]
    return [
        made
        for place, made in missing
        if isinstance(at(good, place[:-1]), dict) and place[-1] not in at(made, place[:-1])
    ]


@pytest.mark.parametrize("name", VERDICTS)
def test_what_is_written_fits(name, tmp_path):
    VERDICTS[name].save(tmp_path / "proof.json")
    good = json.loads((tmp_path / "proof.json").read_text())
    assert fits(good, SCHEMA) and not fits(good, MODULES)
    fields = without_a_field(good, ("networks", "programs"))
    assert fields and not any(fits(made, SCHEMA) for made in fields)


@pytest.mark.parametrize("question", [{}, {"tolerance": 0}, {"tolerance": 0.5}, {"criterion": "argmax", "margin": 1.0}])
def test_certificates_of_modules_fit(question, tmp_path, monkeypatch):
    good = module_proof(tmp_path, **question)[-1]
    assert fits(good, MODULES) and not fits(good, SCHEMA)
    fields = without_a_field(good, ("element", "orders"))  # whose fields are names
    assert fields and not any(fits(made, MODULES) for made in fields)
    monkeypatch.setattr("fiberscope.equality.beyond.module_certificates.LARGEST", 3)
    large = module_proof(tmp_path, **question)[-1]
    assert large["numbers"] is None and fits(large, MODULES)


def test_certificates_of_quantised_files_fit(tmp_path):
    good = proof(tmp_path, tolerance=1.0)[1]
    assert "rounding" in good["claim"] and fits(good, SCHEMA)


def test_they_name_every_field_and_every_kind():
    for schema, name in ((SCHEMA, FORMAT), (MODULES, checker.MODULES)):
        assert schema["title"] == name == schema["properties"]["format"]["const"]
    assert set(SCHEMA["properties"]) == set(FIELDS)
    assert set(SCHEMA["$defs"]["claim"]["properties"]) == {*CLAIM, *CRITERIA}
    kinds = [part["properties"]["kind"]["const"] for part in SCHEMA["$defs"]["evidence"]["oneOf"]]
    assert sorted(kinds) == sorted(KINDS) == sorted(checker.KINDS)


def test_every_kind_that_can_be_written_is_published_and_mutated():
    """All classes of evidence there are: those of networks have a changed certificate each, modules their own tests."""
    import_module("fiberscope.equality.beyond.live")
    found, stack = set[type[Evidence]](), [Evidence]
    while stack:
        stack += (below := stack.pop()).__subclasses__()
        found |= {below} if below.__module__.startswith("fiberscope.") and below is not Evidence else set()
    alone = {kind for kind in found if kind.write is not Evidence.write}
    assert {kind.kind for kind in alone} == {"same module"}
    assert {kind.kind for kind in found - alone} == set(KINDS) == {v.evidence.kind for v in VERDICTS.values()}
