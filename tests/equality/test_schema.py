"""The published schema of certificates: everything that is written fits it, and it names every kind of evidence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from mutations import at, mutants
from test_mutations import VERDICTS

from fiberscope.equality import checker
from fiberscope.equality.certificates.encoding import FORMAT
from fiberscope.equality.verify import CLAIM, CRITERIA, FIELDS, KINDS

SCHEMA = json.loads((Path(checker.__file__).parent / "certificate-4.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def fits(found: Any, rule: dict[str, Any]) -> bool:
    """Whether a value fits a rule of the schema; the words that this schema uses, and no others."""
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
        return fits(found, SCHEMA["$defs"][rule["$ref"].rsplit("/", 1)[1]])
    if "oneOf" in rule and sum(fits(found, part) for part in rule["oneOf"]) != 1:
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
        return not short and all(fits(part, rule.get("items", {})) for part in found)
    if isinstance(found, dict):
        inner, rest = rule.get("properties", {}), rule.get("additionalProperties", {})
        if not set(rule.get("required", ())) <= set(found) or (rest is False and not set(found) <= set(inner)):
            return False
        return all(fits(part, inner.get(key, rest or {})) for key, part in found.items())
    return True


@pytest.mark.parametrize("name", VERDICTS)
def test_what_is_written_fits(name, tmp_path):
    VERDICTS[name].save(tmp_path / "proof.json")
    good = json.loads((tmp_path / "proof.json").read_text())
    assert fits(good, SCHEMA)
    missing = [(place, made) for place, made in mutants(good, skip=("networks", "programs")) if len(place) <= 2]
    fields = [
        made
        for place, made in missing
        if isinstance(at(good, place[:-1]), dict) and place[-1] not in at(made, place[:-1])
    ]
    assert fields and not any(fits(made, SCHEMA) for made in fields)


def test_it_names_every_field_and_every_kind():
    assert SCHEMA["title"] == FORMAT == SCHEMA["properties"]["format"]["const"]
    assert set(SCHEMA["properties"]) == set(FIELDS)
    assert set(SCHEMA["$defs"]["claim"]["properties"]) == {*CLAIM, *CRITERIA}
    kinds = [part["properties"]["kind"]["const"] for part in SCHEMA["$defs"]["evidence"]["oneOf"]]
    assert sorted(kinds) == sorted(KINDS)
