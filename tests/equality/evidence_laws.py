"""What holds for evidence of every kind."""

from __future__ import annotations

import json

from fiberscope.equality.evidence import Evidence
from fiberscope.equality.question import Question
from fiberscope.equality.verify import KINDS


def check_evidence(evidence: Evidence, question: Question) -> None:
    """It proves what it says, also when it was written to a file and read again, and is known to the verifier."""
    again = KINDS[evidence.kind].from_dict(json.loads(json.dumps(evidence.to_dict())))
    assert type(again) is type(evidence)
    for one in (evidence, again):
        assert one.check(question).ok is True
    assert again.to_dict() == evidence.to_dict()
    for name in ("permutations", "scales"):
        mine, theirs = ([x.tolist() for x in getattr(one, name)] for one in (evidence, again))
        assert mine == theirs
    assert again.flips == evidence.flips and again.translation == evidence.translation
