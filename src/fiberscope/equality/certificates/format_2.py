"""Certificates of the second format, in which the fields of the evidence told its kind."""

from __future__ import annotations

from typing import Any

FORMAT_2 = "fiberscope certificate 2"


def evidence_of_2(found: dict[str, Any]) -> Any:
    """The evidence of such a certificate as it is written today; what is no evidence is left to those who check it.

    >>> evidence_of_2({"claim": {"equal": True}, "witness": {"regions": 4}})
    {'regions': 4, 'kind': 'regions'}
    """
    if found["claim"].get("equal") is False:
        if found.get("counterexample") is None:
            behind = found.get("method") == "bottleneck"
            return {"kind": "layers behind differ" if behind else "hyperplane representations differ"}
        return _named("counterexample", found["counterexample"])
    witness = found.get("witness")
    if not isinstance(witness, dict):
        return witness
    if "transport" in witness:
        return _named("bottleneck", witness["transport"])
    if "permutations" in witness:
        return _named("simplified symmetry" if witness.get("simplified") else "symmetry", witness)
    if "signs" in witness:
        return _named("normal form", witness)
    if "layers" in witness:
        return {"kind": "layers", "order": witness["layers"]}
    return _named("regions" if "regions" in witness else "identical", witness)


def _named(kind: str, fields: Any) -> Any:
    return {**fields, "kind": kind} if isinstance(fields, dict) else fields
