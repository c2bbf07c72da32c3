"""Replaying a certificate: the evidence is checked again, the search is not."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.errors import FiberscopeError, InputError
from fiberscope.geometry.domains import Box, Domain, Orthant, Polytope, Space
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.chains import split, try_split
from fiberscope.network.io import as_network
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import IntArray
from fiberscope.numerics.ulps import ROUNDINGS, Rounding
from fiberscope.symmetry.domain_roles import domain_roles
from fiberscope.symmetry.encoding import (
    FORMAT,
    content_hash,
    domain_from_dict,
    domain_text,
    domain_to_dict,
    network_from_dict,
)
from fiberscope.symmetry.equivalence.cells import by_regions
from fiberscope.symmetry.equivalence.forms import entries_of, forms_agree, table_for
from fiberscope.symmetry.equivalence.ladder import question_for
from fiberscope.symmetry.equivalence.parameters import matched_bound, same_program
from fiberscope.symmetry.equivalence.refutation import confirmed
from fiberscope.symmetry.equivalence.skeleton import skeleton
from fiberscope.symmetry.equivalence.structure import aligned, judged, reason_of
from fiberscope.symmetry.equivalence.verdict import Transport, kind_of
from fiberscope.symmetry.fiber.bottleneck import check_rounded, is_bottleneck
from fiberscope.symmetry.fiber.exact import ExactNet, check_exact, tails_differ
from fiberscope.symmetry.matching import Match, carries, residual_of, same_prefix
from fiberscope.symmetry.sampling import check_point, domain_of, sliced
from fiberscope.symmetry.simplify import simplify


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """One of the two models of a claim: the hash of its plain weights, and name and hash of its file, if it was one.

    ``compared`` says whether it was compared with a model that the caller has; None if there was none to compare.
    """

    weights: str
    inputs: int
    outputs: int
    file: str | None = None
    sha256: str | None = None
    compared: bool | None = None

    @property
    def text(self) -> str:
        """In words."""
        name = f"{self.file}, sha256 {self.sha256}" if self.file else f"a model in memory, weights {self.weights}"
        told = {True: "compared, the same", False: "compared, NOT the same", None: "not compared with a model of yours"}
        return f"{name} ({told[self.compared]})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: getattr(self, name) for name in ("weights", "file", "sha256", "inputs", "outputs", "compared")}


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What replaying a certificate gave; true in conditions if the claim holds.

    ``equal``, ``tolerance``, ``precision``, ``domain`` and ``models`` are the claim, ``ok`` whether its evidence proves
    it, ``evidence`` says how.
    """

    ok: bool
    equal: bool
    tolerance: float | None
    method: str
    evidence: str
    domain: Domain
    models: tuple[Model, Model]
    precision: str | None = None

    def __bool__(self) -> bool:
        return self.ok

    @property
    def claim(self) -> str:
        """The claim in words, without the names of the models."""
        answer = "equal" if self.equal else "different"
        return f"{answer} {kind_of(self.tolerance, self.precision)} on {domain_text(self.domain)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "ok": self.ok,
            "equal": self.equal,
            "tolerance": self.tolerance,
            "precision": self.precision,
            "domain": domain_to_dict(self.domain),
            "models": [model.to_dict() for model in self.models],
            "method": self.method,
            "evidence": self.evidence,
        }


def verify(certificate: Path | str, a: Any = None, b: Any = None) -> Replay:
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

    Examples
    --------
    >>> import tempfile
    >>> from fiberscope.symmetry.equivalence.ladder import equivalent
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
    equal, tolerance, precision = _kind(path, claim)
    models = [_model(item) for item in claim["models"]]
    nets = [network_from_dict(item, m.weights) for item, m in zip(found["networks"], models, strict=True)]
    if (nets[0].in_size, nets[0].out_size) != (nets[1].in_size, nets[1].out_size):
        raise InputError(f"{path}: expected networks with the same inputs and outputs")
    where = domain_of(nets[0], domain_from_dict(claim.get("domain")))
    shown = tuple(_compared(m, mine) for m, mine in zip(models, (a, b), strict=True))
    replayer = _Replayer(nets[0], nets[1], where, tolerance, ROUNDINGS[precision or "float64"])
    try:
        ok, evidence = replayer.equal(found) if equal else replayer.different(found)
    except FiberscopeError:
        raise
    except (KeyError, TypeError, IndexError, OverflowError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{path}: the evidence is not complete ({type(error).__name__}: {error})") from error
    wrong = [name for name, model in zip("ab", shown, strict=True) if model.compared is False]
    if wrong:
        other = f"{' and '.join(wrong)} is not the model of the claim"
        ok, evidence = False, f"{other}; of those in the certificate: {evidence}"
    return Replay(ok, equal, tolerance, str(found.get("method", "")), evidence, where, (shown[0], shown[1]), precision)


def _read(path: Path | str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected a certificate in JSON, got something else") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{path}: expected the format {FORMAT!r}")
    networks, claim = found.get("networks"), found.get("claim")
    if not isinstance(claim, dict) or not isinstance(networks, list) or len(networks) != 2:
        raise InputError(f"{path}: expected a claim and two networks")
    if not isinstance(claim.get("models"), list) or len(claim["models"]) != 2:
        raise InputError(f"{path}: expected a claim about two models")
    return found


def _kind(path: Path | str, claim: dict[str, Any]) -> tuple[bool, float | None, str | None]:
    """What is claimed: equal or not, the tolerance, and the precision where there is none."""
    equal, tolerance, precision = claim.get("equal"), claim.get("tolerance"), claim.get("precision")
    if not isinstance(equal, bool):
        raise InputError(f"{path}: expected a claim that is true or false, got {equal!r}")
    if tolerance is None:
        if not isinstance(precision, str) or precision not in ROUNDINGS:
            raise InputError(f"{path}: expected a precision among {', '.join(ROUNDINGS)}, got {precision!r}")
        return equal, None, precision
    tolerance = float(real_array(_number(tolerance, "tolerance"), "tolerance"))
    if not tolerance >= 0 or precision is not None:
        raise InputError(f"{path}: expected a tolerance of at least 0 and no precision, got {tolerance}, {precision!r}")
    return equal, tolerance, None


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
    name, digest = (" ".join(file[key].split())[:200] for key in ("name", "sha256"))  # whatever it holds, one line
    return Model(found["weights"], inputs, outputs, name, digest)


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
        same = same and net.source.sha256 == model.sha256
    return replace(model, compared=same)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"certificate: expected a number for {name}, got {type(value).__name__}")
    return float(value)


class _Replayer:
    def __init__(self, a: Network, b: Network, where: Domain, tolerance: float | None, rounding: Rounding) -> None:
        self.whole = (a, b)
        self.a, self.place = sliced(a, where)
        self.b, _ = sliced(b, where)
        self.where, self.tolerance, self.rounding = where, tolerance, rounding

    # -- different -----------------------------------------------------------------------------------------------

    def different(self, found: dict[str, Any]) -> tuple[bool, str]:
        given = found.get("counterexample")
        if given is None:
            return self._different_forms()
        if not isinstance(given, dict):
            raise InputError("certificate: expected a counterexample with its input")
        x = check_point(given["x"], self.a.in_size)
        if not exactly_inside(self.place, x):
            return False, "the input is outside the domain"
        example = confirmed(self.a, self.b, x, self.tolerance, self.rounding)
        if example is None:
            return False, "the exact outputs at the input do not differ by more than the kind of equality allows"
        return True, f"the exact outputs at the input differ by {example.difference:.6g}"

    def _different_forms(self) -> tuple[bool, str]:
        """Hyperplane representations that differ; a proof for real functions only, of one hidden layer or behind one
        that is the same in both."""
        both = self.tolerance == 0 and isinstance(self.place, Space) and all(map(is_bottleneck, (self.a, self.b)))
        if both and tails_differ(ExactNet.of(self.a), ExactNet.of(self.b)):
            return True, "the first layers match, and the layers behind differ on the orthant, exactly"
        roles = [domain_roles(net, self.place) for net in (self.a, self.b)]
        if self.tolerance != 0 or any(r.undecided.any() for r in roles):
            return False, "there is no counterexample, and the hyperplane representation is not complete here"
        table = table_for(self.a, self.place)
        signs = (entries_of(self.a, roles[0]), entries_of(self.b, roles[1]))
        same, _ = forms_agree(self.a, self.b, table, signs)
        ok = not same and table.depth <= 1
        return ok, "the hyperplane representations differ" if ok else "the hyperplane representations do not differ"

    # -- equal ---------------------------------------------------------------------------------------------------

    def equal(self, found: dict[str, Any]) -> tuple[bool, str]:
        witness = found.get("witness")
        if not isinstance(witness, dict):
            raise InputError("certificate: expected a witness of equality")
        if "transport" in witness:
            return self._transport(witness["transport"])
        if "permutations" in witness:
            return self._symmetry(witness)
        if "signs" in witness:
            return self._forms(witness)
        if "layers" in witness:
            return self._layers(witness["layers"])
        if "regions" in witness:
            return self._regions()
        ok = same_program(self.a, self.b)
        return ok, "the networks are identical" if ok else "the networks are not identical"

    def _symmetry(self, witness: dict[str, Any]) -> tuple[bool, str]:
        a, b = self.a, self.b
        if witness.get("simplified"):
            small = [simplify(net, self.place) for net in (a, b)]
            if not all(s.verdict.exact for s in small):
                return False, "a network could not be simplified exactly"
            a, b = (s.network for s in small)
        try:
            element = Symmetry.from_dict(witness)
            left, right = split(a), split(b)
        except (ValueError, FiberscopeError) as error:
            raise InputError(f"certificate: the symmetry is not one of these networks ({error})") from error
        same = left.tail.widths == right.tail.widths and element.widths == left.tail.widths[1:-1]
        if not same or not same_prefix(left, right):
            return False, "the symmetry does not fit the networks"
        if carries(element, left.tail, right.tail):
            return True, "the symmetry carries one network onto the other, as rational numbers"
        residual = residual_of(element, left.tail, right.tail) / self.rounding.steps
        if self.tolerance is None:
            near = f"within {residual:.3g} ulps of {self.rounding.precision}"
            return residual <= self.rounding.few, f"the symmetry carries one network onto the other {near}"
        if self.tolerance > 0 and isinstance(self.place, Box):
            bound = matched_bound(Match(True, element, residual), left, right, self.place)
            return bound <= self.tolerance, f"with matched neurons the difference is at most {bound:.3g}"
        return False, f"the symmetry is off by {residual:.3g} ulps, which proves nothing exactly"

    def _transport(self, found: Any) -> tuple[bool, str]:
        """The first layer of a bottleneck carried onto the other's; then the layers behind."""
        element = _transport_from(found)
        left, right = try_split(self.a), try_split(self.b)
        if left is None or right is None or not same_prefix(left, right):
            return False, "the networks do not begin with the same affine maps"
        a, b = left.tail, right.tail
        if not (is_bottleneck(a) and is_bottleneck(b)):
            return False, "the networks are no three-layer bottlenecks"
        if element.exact:
            return check_exact(ExactNet.of(a), ExactNet.of(b), element)
        if self.tolerance is not None:
            return False, "the transport is claimed up to rounding, which proves nothing exactly"
        verdict = check_rounded(a, b, element)
        ok = verdict is not None and verdict.equal is True
        return ok, f"{element.text}, up to rounding" if ok else "the transport does not carry one onto the other"

    def _forms(self, witness: dict[str, Any]) -> tuple[bool, str]:
        claimed = [_signs(s, net) for s, net in zip(witness["signs"], (self.a, self.b), strict=True)]
        ulps = int(_number(witness.get("ulps", 0), "ulps"))
        if not 0 <= ulps <= self.rounding.few or (ulps and self.tolerance is not None):
            return False, f"agreement within {ulps} ulps does not prove this kind of equality"
        for signs, net in zip(claimed, (self.a, self.b), strict=True):
            if signs.any():
                proven = entries_of(net, domain_roles(net, self.place))
                assert proven is not None
                if not ((signs == 0) | (signs == proven)).all():
                    return False, "a sign that the normal form uses could not be proven again"
        table = table_for(self.a, self.place, ulps, rounding=self.rounding)
        same, _ = forms_agree(self.a, self.b, table, (claimed[0], claimed[1]))
        how = "exactly" if not ulps else f"within {table.residual:.3g} units of {self.rounding.precision} rounding"
        return same, f"the normal forms {'agree ' + how if same else 'differ'} over {len(table.rows)} hyperplanes"

    def _layers(self, order: Any) -> tuple[bool, str]:
        """Composed affine maps between the switches of two programs."""
        if not isinstance(order, list) or any(isinstance(k, bool) or not isinstance(k, int) for k in order):
            raise InputError("certificate: expected the order of the layers as integers")
        pair = skeleton(self.a, self.rounding), skeleton(self.b, self.rounding)
        found = aligned(*pair, self.rounding, tuple(order))
        if found is None:
            return False, "the layers do not match"
        ok, bound = judged(self.a, self.b, pair, found, self.place, self.tolerance, self.rounding)
        told = "" if bound is None else f"; the difference is at most {bound:.6g}"
        if ok:
            return True, reason_of(found, self.tolerance, self.rounding) + told
        return False, f"the composed affine maps are {found.residual:.3g} units of rounding apart{told}"

    def _regions(self) -> tuple[bool, str]:
        question = question_for(*self.whole, self.where, self.tolerance, None, 0)
        verdict = by_regions(replace(question, rounding=self.rounding))
        if verdict is None or verdict.equal is not True:
            return False, "the regions do not prove equality"
        return True, f"{verdict.reason}; all of them were listed again, the certificate holds no shorter proof"


def _transport_from(found: Any) -> Transport:
    """The transport of a certificate, of the right kinds; whether it proves anything is seen later."""
    if not isinstance(found, dict):
        raise InputError("certificate: expected a transport as an object")
    permutation, flips, hidden = found["permutation"], found["flips"], found["hidden"]
    whole = [*permutation, *flips] + ([] if hidden is None else [hidden])
    if any(isinstance(k, bool) or not isinstance(k, int) for k in whole):
        raise InputError("certificate: expected neurons as integers")
    if not isinstance(found["exact"], bool) or not isinstance(found.get("line", False), bool):
        raise InputError("certificate: expected true or false for exact and line")
    # plain digits only: what else Fraction reads may be a number of a billion digits
    text = found["translation"]
    if (
        len(set(flips)) < len(flips)
        or not isinstance(text, str)
        or not re.fullmatch(r"-?\d{1,4000}(/\d{1,4000})?", text)
    ):
        raise InputError("certificate: expected each flip once, and a translation as a fraction")
    scales = real_array(found["scales"], "scales", ndim=1)
    line = found.get("line", False)
    return Transport(tuple(permutation), scales, tuple(flips), hidden, _fraction(text), found["exact"], line)


def _fraction(text: str) -> Fraction:
    above, _, below = text.partition("/")
    return Fraction(int(above), int(below or 1))


def _signs(found: Any, net: Network) -> IntArray:
    signs = np.asarray(found)
    if signs.size == 0:
        signs = np.zeros(0, dtype=np.int64)
    if signs.shape != (net.num_signs,) or signs.dtype.kind not in "iu" or not np.isin(signs, (-1, 0, 1)).all():
        raise InputError(f"certificate: expected {net.num_signs} signs among -1, 0, 1")
    return signs.astype(np.int64)


def exactly_inside(domain: Box | Orthant | Space | Polytope, x: Any) -> bool:
    """Whether a point is in a domain, in rational arithmetic."""
    if isinstance(domain, Box):
        return bool(((x >= domain.low) & (x <= domain.high)).all())
    A, b = domain.halfspaces()
    point = [Fraction(float(v)) for v in x]
    return all(
        sum((Fraction(float(w)) * v for w, v in zip(row, point, strict=True)), Fraction(0)) <= Fraction(float(c))
        for row, c in zip(A, b, strict=True)
    )
