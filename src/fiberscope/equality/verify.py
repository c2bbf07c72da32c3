"""Replaying a certificate: the evidence is checked again, the search is not."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fiberscope.equality import checker
from fiberscope.equality.certificates.claims import content_hash, domain_from_dict, domain_text, domain_to_dict
from fiberscope.equality.certificates.encoding import FORMAT, FORMAT_3, network_from_dict
from fiberscope.equality.certificates.format_2 import FORMAT_2, evidence_of_2
from fiberscope.equality.counterexample import Counterexample
from fiberscope.equality.evidence import Evidence, number
from fiberscope.equality.ladder import RUNGS
from fiberscope.equality.question import Question
from fiberscope.equality.roundings import RoundingInputs
from fiberscope.equality.rungs.split_boxes import SplitBoxes
from fiberscope.equality.rungs.split_neurons import SplitNeurons
from fiberscope.equality.verdict import kind_of
from fiberscope.errors import FiberscopeError, InputError
from fiberscope.extras import import_module
from fiberscope.geometry.domains import Box, Domain, Space
from fiberscope.network.border import as_network
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.ulps import ROUNDINGS
from fiberscope.results import Result, named

FIELDS = ("format", "claim", "method", "networks", "programs", "evidence")
"""Of a certificate of today."""
CLAIM = ("equal", "tolerance", "precision", "domain", "models")
CRITERIA = ("criterion", "margin", "rounding")
"""Of its claim; those of the second row may be missing."""

MODEL = ("weights", "file", "inputs", "outputs")
"""Of each model of the claim."""

KINDS: dict[str, type[Evidence]] = {kind.kind: kind for rung in RUNGS for kind in rung.evidence}
"""Every kind of evidence that a rung of the ladder gives, by its name in certificates."""


@dataclass(frozen=True, slots=True, eq=False)
class Model(Result):
    """One of the two models of a claim: the hash of its plain weights, and name and hash of its file, if it was one.

    ``compared`` says whether it was compared with a model that the caller has; None if there was none to compare.
    """

    weights: str
    inputs: int
    outputs: int
    file: str | None = None
    sha256: str | None = None
    data: tuple[tuple[str, str], ...] = ()
    """Names and SHA-256 of the files beside it that hold its numbers."""
    compared: bool | None = None

    @property
    def text(self) -> str:
        """In words."""
        files = [(self.file, self.sha256), *self.data] if self.file else []
        name = " with ".join(f"{name}, sha256 {digest}" for name, digest in files)
        name = name or f"a model in memory, weights {self.weights}"
        told = {True: "compared, the same", False: "compared, NOT the same", None: "not compared with a model of yours"}
        return f"{name} ({told[self.compared]})"


@dataclass(frozen=True, slots=True, eq=False)
class Replay(Result):
    """What replaying a certificate gave; true in conditions if the claim holds.

    ``equal``, ``tolerance``, ``precision``, ``domain`` and ``models`` are the claim, ``ok`` whether its evidence proves
    it, ``evidence`` says how. With ``rounding`` it is about quantised models, and holds for all values of that.
    """

    ok: bool
    equal: bool
    tolerance: float | None
    method: str
    evidence: str
    domain: Domain = field(metadata=named(told=domain_to_dict))
    models: tuple[Model, Model]
    precision: str | None = None
    margin: float | None = None
    rounding: RoundingInputs | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def claim(self) -> str:
        """The claim in words, without the names of the models."""
        answer = "equal" if self.equal else "different"
        return f"{answer} {kind_of(self.tolerance, self.precision, self.margin)} on {domain_text(self.domain)}"


def verify(certificate: Path | str, a: Any = None, b: Any = None, example: Any = None) -> Replay:
    """Replay a certificate written by ``verdict.save(path)``, in exact arithmetic, and compare its models with yours.

    The claim is what is verified: the two models, the domain, the kind of equality. A counterexample is evaluated
    exactly at its input. A permutation and rescaling is applied and compared entry by entry, as rational numbers; so
    are the composed affine maps of two programs, and the reflections and the translation of a transport, and the layers
    behind are compared. Normal forms are computed again, and the signs that they use are proven again. A certificate by
    *regions* holds no proof that is shorter than the search: the regions are listed again, and the evidence says so.
    The file is not trusted: what is missing or of the wrong kind raises :class:`InputError`, and evidence that does not
    prove the claim gives a replay that is not ``ok``.

    Parameters
    ----------
    certificate
        The path of a certificate.
    a, b
        The models that you have, whatever :func:`fiberscope.load` takes: each must be the one that the claim names. A
        file must have the same bytes, and every model the same plain weights. Without them the certificate proves its
        claim of the models inside of it, which may be any.
    example
        For a certificate of torch modules that are no networks: inputs on which yours are recorded again.

    Examples
    --------
    >>> import tempfile
    >>> from fiberscope.equality.ladder import equivalent
    >>> from fiberscope.network.action.chain import Symmetry
    >>> from fiberscope.network.network import Network
    >>> net = Network.random((2, 3, 1), seed=0)
    >>> other = Symmetry.random((2, 3, 1), seed=1)(net)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     equivalent(net, other).save(f"{folder}/proof.json")
    ...     replay = verify(f"{folder}/proof.json", net, other)
    >>> replay.ok, replay.claim
    (True, 'equal up to float64 rounding on all of R^2')
    """
    path = certificate
    found = _read(path)
    claim = found["claim"]
    if found["format"] == checker.MODULES:
        return _replayed_modules(found, a, b, example)
    equal, tolerance, precision = _kind(path, claim)
    margin = _margin(path, claim)
    models = [_model(item) for item in claim["models"]]
    nets = [network_from_dict(item, m.weights) for item, m in zip(found["networks"], models, strict=True)]
    for model, net in zip(models, nets, strict=True):
        if (model.inputs, model.outputs) != (net.in_size, net.out_size):
            raise InputError(f"{path}: expected models with {net.in_size} inputs and {net.out_size} outputs")
    where = domain_from_dict(claim.get("domain"))
    rounding = _rounding(claim, where, nets)
    mine = (a, b) if rounding is None else _with_roundings(a, b, rounding.inner(where))
    shown = tuple(_compared(m, given) for m, given in zip(models, mine, strict=True))
    question = Question.of(
        nets[0], nets[1], where, tolerance, math.inf, precision=precision or "float64", margin=margin
    )
    try:
        given = _evidence(path, found.get("evidence"), equal)
        if found["format"] == FORMAT and {"kind": given.kind, **given.to_dict()} != found["evidence"]:
            raise InputError(f"{path}: the evidence has other fields than those of its kind, {given.kind!r}")
        # one real function has one class; what knows nothing of classes must show that
        aware = margin is None or isinstance(given, SplitBoxes | SplitNeurons | Counterexample)
        ok, evidence, *_ = given.check(question if aware else question.exactly())
        if ok and not (equal or aware):
            ok, evidence = False, "functions that differ may have the same classes"
    except FiberscopeError:
        raise
    except (KeyError, TypeError, IndexError, OverflowError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{path}: the evidence is not complete ({type(error).__name__}: {error})") from error
    wrong = [name for name, model in zip("ab", shown, strict=True) if model.compared is False]
    if wrong:
        other = f"{' and '.join(wrong)} is not the model of the claim"
        ok, evidence = False, f"{other}; of those in the certificate: {evidence}"
    method = str(found.get("method", ""))
    kept = None if margin is not None else precision
    named_models = (shown[0], shown[1])
    if rounding is None:
        return Replay(ok, equal, tolerance, method, evidence, question.domain, named_models, kept, margin)
    told = f"{evidence}, for all values of {sum(rounding.inputs)} roundings at the {rounding.where}"
    return Replay(ok, equal, tolerance, method, told, rounding.inner(where), named_models, kept, margin, rounding)


def _replayed_modules(found: dict[str, Any], a: Any, b: Any, example: Any) -> Replay:
    """A certificate of live modules."""
    claim = found["claim"]
    ok, evidence, compared = import_module("fiberscope.equality.beyond.live").verify_modules(found, a, b, example)
    weights = [hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest() for part in claim["models"]]
    count, told = claim["inputs"], (ok if compared else None)
    models = (Model(weights[0], count, 0, compared=told), Model(weights[1], count, 0, compared=told))
    kind = (claim["tolerance"], "same program", evidence, Space(count), models, claim["precision"], claim.get("margin"))
    return Replay(ok, True, *kind)


def _rounding(claim: dict[str, Any], where: Domain, nets: list[Network]) -> RoundingInputs | None:
    """The inputs that stand for rounding, where the claim is about quantised models; it must be one of equality."""
    if "rounding" not in claim:
        return None
    found = RoundingInputs.from_dict(claim["rounding"])
    if claim.get("equal") is not True:
        raise InputError("certificate: expected no rounding where a difference is claimed: it need not be the model's")
    found.inner(where)
    found.check(nets[0], nets[1])
    return found


def _with_roundings(a: Any, b: Any, box: Box) -> tuple[Any, Any]:
    """The caller's models as programs with inputs for rounding; these depend on both."""
    if a is None and b is None:
        return None, None
    if a is None or b is None:
        raise InputError("verify: expected both models or none, since a claim with rounding is about programs of both")
    left, right, _ = import_module("fiberscope.equality.beyond.rounding_inputs").rounded_pair(a, b, box)
    return left, right


def _read(path: Path | str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected a certificate in JSON, got something else") from error
    if not isinstance(found, dict) or found.get("format") not in (FORMAT, FORMAT_3, FORMAT_2, checker.MODULES):
        raise InputError(f"{path}: expected the format {FORMAT!r}")
    if found["format"] == checker.MODULES:
        try:
            checker.module_claim(found)
        except checker.Malformed as error:
            raise InputError(f"{path}: {error}") from error
        return found
    networks, claim = found.get("networks"), found.get("claim")
    if not isinstance(claim, dict) or not isinstance(networks, list) or len(networks) != 2:
        raise InputError(f"{path}: expected a claim and two networks")
    if not isinstance(claim.get("models"), list) or len(claim["models"]) != 2:
        raise InputError(f"{path}: expected a claim about two models")
    if found["format"] == FORMAT:
        _check_fields(path, found)
    return found if found["format"] != FORMAT_2 else found | {"evidence": evidence_of_2(found)}


def _check_fields(path: Path | str, found: dict[str, Any]) -> None:
    """Of a certificate of today: all fields and no others, and plain programs that are those of the claim."""
    programs = found.get("programs")
    try:
        checker.keys(found, "certificate", *FIELDS)
        claim = checker.keys(found["claim"], "claim", *CLAIM, optional=CRITERIA)
        for model, network in zip(claim["models"], found["networks"], strict=True):
            file = checker.keys(model, "model", *MODEL)["file"]
            named = {"name": "", "sha256": ""} if file is None else file
            checker.keys(named, "file", "name", "sha256", optional=["data"])
            outside = isinstance(network, dict) and "path" in network
            checker.keys(network, "network", *(("path",) if outside else ("file", "base64")))
        if domain_to_dict(domain_from_dict(claim["domain"])) != claim["domain"]:
            raise InputError(f"{path}: the domain has other fields than those of its kind")
        if programs is None:
            return
        if not isinstance(programs, list) or len(programs) != 2:
            raise InputError(f"{path}: expected two plain programs")
        digests = [checker.program_of(program).digest for program in programs]
    except (checker.Malformed, ValueError, OverflowError) as error:
        raise InputError(f"{path}: {error}") from error
    if digests != [isinstance(model, dict) and model.get("weights") for model in found["claim"]["models"]]:
        raise InputError(f"{path}: a plain program is not the one that the claim names (its hash differs)")


def _kind(path: Path | str, claim: dict[str, Any]) -> tuple[bool, float | None, str | None]:
    """What is claimed: equal or not, the tolerance, and the precision where there is none."""
    equal, tolerance, precision = claim.get("equal"), claim.get("tolerance"), claim.get("precision")
    if not isinstance(equal, bool):
        raise InputError(f"{path}: expected a claim that is true or false, got {equal!r}")
    if tolerance is None:
        if not isinstance(precision, str) or precision not in ROUNDINGS:
            raise InputError(f"{path}: expected a precision among {', '.join(ROUNDINGS)}, got {precision!r}")
        return equal, None, precision
    tolerance = float(real_array(number(tolerance, "tolerance"), "tolerance"))
    if not tolerance >= 0 or precision is not None:
        raise InputError(f"{path}: expected a tolerance of at least 0 and no precision, got {tolerance}, {precision!r}")
    return equal, tolerance, None


def _margin(path: Path | str, claim: dict[str, Any]) -> float | None:
    """The margin of a claim about classes, None for one about values."""
    criterion = claim.get("criterion", "value")
    if criterion == "value" and claim.get("margin") is None:
        return None
    if criterion != "argmax" or claim.get("tolerance") is not None:
        raise InputError(f"{path}: expected the criterion value, or argmax with a margin and no tolerance")
    return number(claim.get("margin"), "margin")


def _model(found: Any) -> Model:
    """What a claim says of one model, of the right kinds."""
    if not isinstance(found, dict) or not isinstance(found.get("weights"), str):
        raise InputError("certificate: expected models with the hash of their weights")
    inputs, outputs = (_size(found.get(name)) for name in ("inputs", "outputs"))
    file = found.get("file")
    if file is None:
        return Model(found["weights"], inputs, outputs)
    if not isinstance(file, dict) or not all(isinstance(file.get(name), str) for name in ("name", "sha256")):
        raise InputError("certificate: expected a file with its name and sha256")
    data = file.get("data", {})
    if not isinstance(data, dict) or not all(isinstance(digest, str) for digest in data.values()):
        raise InputError("certificate: expected the files that hold the numbers of a model with their sha256")
    (name, digest), *others = ((_one_line(a), _one_line(b)) for a, b in ((file["name"], file["sha256"]), *data.items()))
    return Model(found["weights"], inputs, outputs, name, digest, tuple(others))


def _one_line(text: str) -> str:
    """Whatever it holds, so that it can be printed."""
    return " ".join(text.split())[:200]


def _size(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool):
        raise InputError("certificate: expected the numbers of inputs and outputs of a model")
    return found


def _compared(model: Model, mine: Any) -> Model:
    """The model of a claim, compared with one that the caller has: the bytes of a file, the weights of any."""
    if mine is None:
        return model
    net = as_network(mine, "model")
    same = content_hash(net) == model.weights
    if None not in (net.source.sha256, model.sha256):
        same = same and net.source.sha256 == model.sha256 and (not model.data or net.source.data == model.data)
    return replace(model, compared=same)


def _evidence(path: Path | str, found: Any, equal: bool) -> Evidence:
    """The evidence of a certificate, of a kind that proves what is claimed."""
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected evidence, got {type(found).__name__}")
    kind = KINDS.get(str(found.get("kind")))
    if kind is None or kind.equal is not equal:
        what = "equality" if equal else "a difference"
        names = ", ".join(sorted(name for name, kind in KINDS.items() if kind.equal is equal))
        raise InputError(f"{path}: expected evidence of {what} ({names}), got {str(found.get('kind'))[:40]!r}")
    return kind.from_dict(found)
