"""Certificates of equality, honest and forged: what is verified is the claim, of these models and no others."""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import fiberscope as fs
from fuzz import bridge, draw
from fuzz.areas.equality import acted, chain_of, changed, finite, judge, numbers, pair, verdict_on
from fuzz.case import Area, Disagreement, expect
from fuzz.oracle.cells import Domain
from fuzz.oracle.program import Program

# -- certificates

ENDINGS = (".npz", ".safetensors", ".pt", ".onnx")


def make_certificates(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((1, 1, 2))
    a, b = pair(rng, n)
    c = changed(rng, b) if b.is_chain else b
    c = c if finite(c) and rng.random() < 0.7 else acted(rng, c, 3) if c.is_chain else c
    c = c if finite(c) else b
    kind = rng.random()
    domain = draw.box(rng, n) if kind < 0.6 else ("orthant" if kind < 0.7 else "space", n)
    tolerance = rng.choice((None, 0.0, 0.0, 1e-3, 0.5))
    return a, b, c, domain, tolerance, rng.randrange(1 << 30)


def check_certificates(a: Program, b: Program, c: Program, domain: Domain, tolerance: float | None, seed: int) -> None:
    """What is saved is accepted, of its own models; what is changed only where the changed claim is true."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proof.json"
        models = [
            _kept(bridge.network(p), Path(folder) / f"{name}{rng.choice(ENDINGS)}", rng) for p, name in _named(a, b, c)
        ]
        nets = [fs.load(m) for m in models]
        verdict = verdict_on(nets[0], nets[1], domain, tolerance)
        verdict.save(path)
        replay = fs.verify(path)
        expect(bool(replay), f"verify refuses what was saved ({verdict.equal} by {verdict.method})")
        honest = json.loads(path.read_text())
        _check_told(replay, honest)
        _check_models(path, (a, b, c), models, nets)
        fs.equivalent(nets[2], nets[2], tolerance=0).save(path)
        other = json.loads(path.read_text())
        for _ in range(3):
            forged, claim = _forge(rng, honest, other, (a, b, c), (domain, tolerance))
            path.write_text(json.dumps(forged))
            _check_forged(path, claim)
        _check_damaged(path, rng, honest, other)


def _named(*programs: Program) -> list[tuple[Program, str]]:
    return list(zip(programs, "abc", strict=True))


def _kept(net: Any, path: Path, rng: Random) -> Any:
    """The path of a file with the model, or the model itself."""
    if rng.random() < 0.5:
        return net
    fs.save(net, path)
    return path


def _check_told(replay: Any, file: Any) -> None:
    """The claim that is shown is the one in the file: its answer, its kind of equality, its domain, its models."""
    claim = file["claim"]
    told = (replay.equal, replay.tolerance, replay.precision)
    wanted = tuple(claim[name] for name in ("equal", "tolerance", "precision"))
    expect(told == wanted, f"verify tells the claim {told}, the file holds {wanted}")
    expect(replay.to_dict()["domain"] == claim["domain"], f"verify tells the domain {replay.domain}")
    place = claim["domain"]
    marks = [*place["low"], *place["high"]] if place["kind"] == "box" else []
    expect(all(repr(x) in replay.claim for x in marks), f"the claim does not tell the domain: {replay.claim}")
    for model, given in zip(replay.models, claim["models"], strict=True):
        digest = None if given["file"] is None else given["file"]["sha256"]
        expect((model.weights, model.sha256) == (given["weights"], digest), "verify tells of other models")
        expect((digest or given["weights"]) in model.text, f"the text names no hash: {model.text}")


def _check_models(path: Path, programs: Sequence[Program], models: Sequence[Any], nets: Sequence[Any]) -> None:
    """A certificate is of its own models: compared with others, or other bytes, it does not verify."""
    expect(bool(fs.verify(path, models[0], models[1])), "verify refuses the models of the claim")
    plain = [fs.Network.from_nodes(net.nodes, net.input_shape) for net in nets]
    expect(bool(fs.verify(path, plain[0], plain[1])), "verify refuses models with the weights of the claim")
    if numbers(programs[1]) != numbers(programs[2]):
        expect(not fs.verify(path, nets[0], plain[2]), "verify takes another model for that of the claim")
        expect(not fs.verify(path, b=models[2]), "verify takes another model for that of the claim, alone")
    if isinstance(models[0], Path):
        other = models[0].with_suffix(".npz" if models[0].suffix != ".npz" else ".onnx")
        fs.save(nets[0], other)  # the same weights in other bytes
        expect(not fs.verify(path, other), "verify takes another file for that of the claim")


Claim = tuple[Program, Program, Domain, float | None]


def _check_forged(path: Path, claim: Claim) -> None:
    try:
        replay = fs.verify(path)
    except fs.FiberscopeError:
        return
    _check_told(replay, json.loads(path.read_text()))
    if replay.ok is True:
        a, b, domain, tolerance = claim
        try:
            who = f"a forged certificate verifies ({replay.evidence}): equal {replay.equal}"
            judge(a, b, domain, tolerance, replay.equal, who, replay.precision)
        except Disagreement as error:
            text = json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "networks"})
            raise Disagreement(f"{error}; certificate without networks: {text[:600]}") from error


def _check_damaged(path: Path, rng: Random, honest: Any, other: Any) -> None:
    """A network that is not the one of the claim, by its hash, is refused whatever else the file says."""
    found, k = copy.deepcopy(honest), rng.randrange(2)
    own = found["claim"]["models"][k]
    if rng.random() < 0.5 and other["claim"]["models"][1]["weights"] != own["weights"]:
        found["networks"][k] = other["networks"][1]
    else:
        place = rng.randrange(64)
        digit = rng.choice("0123456789abcdef".replace(own["weights"][place], ""))
        own["weights"] = own["weights"][:place] + digit + own["weights"][place + 1 :]
    path.write_text(json.dumps(found))
    try:
        replay = fs.verify(path)
    except fs.FiberscopeError:
        return
    expect(False, f"verify takes a network whose hash is another one ({replay.evidence})")


def _forge(
    rng: Random, honest: Any, other: Any, programs: tuple[Program, Program, Program], asked: tuple[Domain, float | None]
) -> tuple[Any, Claim]:
    """A changed certificate, and what it claims."""
    found = copy.deepcopy(honest)
    a, b, c = programs
    domain, tolerance = asked
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.randrange(5)
        if kind == 0:
            _swap(found, other)
            b = c
        elif kind == 1:
            tolerance = rng.choice((0.0, 1e-6, 1e-3, 0.5, None))
            found["claim"]["tolerance"] = tolerance
            found["claim"]["precision"] = rng.choice(("float64", "float32")) if tolerance is None else None
        elif kind == 2:
            domain = draw.box(rng, a.inputs) if rng.random() < 0.5 else (rng.choice(("space", "orthant")), a.inputs)
            found["claim"]["domain"] = (
                {"kind": "box", "low": list(domain[1]), "high": list(domain[2])}
                if domain[0] == "box"
                else {"kind": domain[0], "dimension": a.inputs}
            )
        elif kind == 3:
            found["claim"]["equal"] = rng.random() < 0.7
        else:
            found["evidence"] = _evidence(rng, found["evidence"], a, b)
            if rng.random() < 0.7:
                found["claim"]["equal"] = "differ" not in found["evidence"]["kind"]
    return found, (a, b, domain, tolerance)


def _swap(found: Any, other: Any) -> None:
    """Put another model in the place of the second one, with its own hash."""
    found["networks"][1] = other["networks"][1]
    found["claim"]["models"][1] = other["claim"]["models"][1]


def _evidence(rng: Random, given: Any, a: Program, b: Program) -> Any:
    """Evidence of its own invention, or a given symmetry a little changed."""
    kind = rng.randrange(4)
    if kind == 0 or "permutations" not in given:
        return invented(rng, a, b)
    forged = copy.deepcopy(given)
    for scales in forged.get("scales", []):
        if scales:
            k = rng.randrange(len(scales))
            scales[k] *= rng.choice((2.0, 0.5, 1.0 + 2.0**-52, 2.0**600, 2.0**-1000))
    if kind == 1:
        for order in forged["permutations"]:
            rng.shuffle(order)
    if kind == 2:
        forged["kind"] = rng.choice(("symmetry", "simplified symmetry"))
    return forged


def invented(rng: Random, a: Program, b: Program) -> Any:
    """Permutations and scales that fit the widths of a chain, or evidence of another kind."""
    kind = rng.randrange(8)
    if kind == 7:
        return {"kind": rng.choice(("hyperplane representations differ", "layers behind differ"))}
    if kind == 6:
        return {"kind": "bottleneck", **_transport(rng, a)}
    if kind == 0:
        return {"kind": "regions", "regions": rng.randint(1, 9)}
    if kind == 1:
        signs = [[rng.choice((-1, 0, 0, 1)) for node in p.nodes if node[0] == "relu" for _ in node[2]] for p in (a, b)]
        return {"kind": "normal form", "signs": signs, "ulps": rng.choice((0, 0, 4)), "hyperplanes": rng.randint(0, 4)}
    if kind == 2:
        switches = sum(node[0] in ("relu", "pool") for node in a.nodes)
        return rng.choice(({"kind": "identical"}, {"kind": "layers", "order": rng.sample(range(switches), switches)}))
    hidden = [len(node[2]) for node in a.nodes if node[0] == "relu"]
    orders = [rng.sample(range(n), n) for n in hidden]
    reach = rng.choice((0, 1, 60, 1000))
    scales = [[math.ldexp(1.0, rng.randint(-reach, min(reach, 1000))) for _ in range(n)] for n in hidden]
    name = "simplified symmetry" if kind == 3 else "symmetry"
    return {"kind": name, "permutations": orders, "scales": scales}


def _transport(rng: Random, a: Program) -> Any:
    """A movement of the first layer, whether or not there is one."""
    width = len(a.nodes[0][2]) if a.nodes[0][0] == "affine" else 1
    bare = rng.random() < 0.2
    return {
        "permutation": [] if bare else rng.sample(range(width), width),
        "scales": [] if bare else [math.ldexp(1.0, rng.randint(-2, 2)) for _ in range(width)],
        "flips": sorted(rng.sample(range(width), rng.randint(0, width))) if rng.random() < 0.4 else [],
        "hidden": rng.choice((None, None, rng.randrange(width))),
        "translation": rng.choice(("0", "0", "1/2", "-1/4", "3")),
        "exact": rng.random() < 0.7,
        "line": bare or rng.random() < 0.3,
    }


# -- scales that leave the range of floats


def make_scales(rng: Random) -> tuple[Any, ...]:
    """A chain with one neuron in every layer, another one, and the scales that carry one onto the other in floats."""
    depth = rng.choice((1, 2, 2, 3))
    a_weights, biases = [], []
    scales = [math.ldexp(1.0, rng.choice((rng.randint(-30, 30), rng.randint(-1060, 1020)))) for _ in range(depth)]
    for _ in range(depth + 1):
        a_weights.append(math.ldexp(rng.choice((1.0, 1.5, 0.7)), rng.choice((0, 0, rng.randint(-70, 70), -60, 60))))
        biases.append(rng.choice((0.0, 0.0, 0.0, 1.0, 15e-324, -0.3)))
    b_weights, b_biases, before = [], [], 1.0
    for k in range(depth + 1):
        after = scales[k] if k < depth else 1.0
        b_weights.append(_quiet(a_weights[k], before, after))
        b_biases.append(biases[k] * after)
        before = after
    a = chain_of([[[w]] for w in a_weights], [[b] for b in biases])
    b = chain_of([[[w]] for w in b_weights], [[b] for b in b_biases])
    if not finite(a) or not finite(b):
        return make_scales(rng)
    return a, b, [[s] for s in scales]


def _quiet(weight: float, before: float, after: float) -> float:
    try:
        return weight / before * after
    except (OverflowError, ZeroDivisionError):
        return math.inf


def check_scales(a: Program, b: Program, scales: list[list[float]]) -> None:
    """A witness is replayed without rounding, and so is the search for one."""
    one, two = bridge.network(a), bridge.network(b)
    domain = ("space", 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proof.json"
        fs.equivalent(one, one, tolerance=0).save(path)
        forged = json.loads(path.read_text())
        fs.equivalent(two, two, tolerance=0).save(path)
        _swap(forged, json.loads(path.read_text()))
        forged["evidence"] = {"kind": "symmetry", "permutations": [[0]] * len(scales), "scales": scales}
        path.write_text(json.dumps(forged))
        _check_forged(path, (a, b, domain, 0.0))
    verdict = verdict_on(one, two, domain, 0.0)
    judge(a, b, domain, 0.0, verdict.equal, f"equivalent says {verdict.equal} by {verdict.method}")


AREAS = (
    Area("certificates", make_certificates, check_certificates),
    Area("scales", make_scales, check_scales),
)
