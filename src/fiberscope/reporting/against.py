"""The question of a report about another model: verdict, certificate, where they differ."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fiberscope as fs
from fiberscope.errors import FiberscopeError
from fiberscope.explorer.images import image_png, image_shape
from fiberscope.geometry.domains import Box, Domain
from fiberscope.numerics.floats import FloatArray
from fiberscope.reporting.dossier import Dossier
from fiberscope.reporting.page import Mark, Section

YES_NO = {True: "yes", False: "no", None: "open"}

MOST_NUMBERS = 12
"""Of an input that are printed."""

MOST_CERTIFICATE = 400_000
"""Bytes of a certificate that goes into the page."""


def is_the_other_equal(dossier: Dossier) -> Section:
    """The section about the other model."""
    assert dossier.against is not None
    domain = dossier.domain if isinstance(dossier.domain, Box) else _data_box(dossier)
    seconds = max(2.0, dossier.run.seconds_left)
    found = fs.equivalent(dossier.net, dossier.against, domain, time_limit=seconds)
    word = {True: "Yes", False: "No", None: "Undecided"}[found.equal]
    rows: list[tuple[str, str | Mark]] = [
        ("verdict", Mark(f"{word}, {found.kind}", kind=YES_NO[found.equal])),
        ("where", str(found.domain)),
        ("method", found.method),
    ]
    if found.bound is not None:
        rows.append(("largest difference proven", f"{found.bound:.3g}"))
    if found.counterexample is not None:
        rows.append(("they differ by", f"{found.counterexample.difference:.4g}"))
        rows.append(("at the input", _numbers(found.counterexample.x)))
    if dossier.X is not None:
        gap = np.abs(dossier.net(dossier.X) - dossier.against(dossier.X)).max(axis=1)
        worst = int(gap.argmax())
        rows.append(("on the data", f"at most {float(gap[worst]):.3g}, at row {worst} of {len(gap):,}"))
        if dossier.net.out_size > 1:
            other = dossier.against(dossier.X).argmax(axis=1) != dossier.net(dossier.X).argmax(axis=1)
            rows.append(("rows of the data with another largest output", f"{int(other.sum()):,} of {len(gap):,}"))
    code = f"{dossier.load}\n{dossier.load_against}\nverdict = fs.equivalent(net, other{_domain_code(domain)})"
    return Section(
        "Is the other model the same function?",
        f"{word}: {found.reason}." if found.reason else f"{word}.",
        "",
        rows,
        open=found.equal is None,
        call=f'{code}\nverdict.save("certificate.json")' if found.equal is not None else code,
        files=_certificate(found),
        figures=_where(dossier, found),
        evidence="the certificate is replayed by fiberscope verify."
        if found.equal is not None
        else "neither a proof nor a counterexample was found in the time.",
        data=found.to_dict(),
    )


def _numbers(x: FloatArray) -> str:
    shown = ", ".join(f"{v:.6g}" for v in np.ravel(x)[:MOST_NUMBERS])
    return (
        f"({shown})" if np.size(x) <= MOST_NUMBERS else f"({shown}, ... {np.size(x):,} numbers, all in the page's JSON)"
    )


def _where(dossier: Dossier, found: fs.Verdict) -> list[tuple[str, bytes]]:
    """The input where the two differ, where inputs are images."""
    shape = image_shape(dossier.net.input_shape)
    if found.counterexample is None or shape is None:
        return []
    x = np.asarray(found.counterexample.x)
    return [("The input where they differ.", image_png(x, shape, float(x.min()), float(x.max())))]


def _certificate(found: fs.Verdict) -> list[tuple[str, bytes]]:
    """The certificate itself, where there is one and it is not too large for a page."""
    if found.equal is None:
        return []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        try:
            found.save(path)
        except FiberscopeError:  # some verdicts have none
            return []
        content = path.read_bytes()
    return [("certificate.json", content)] if len(content) <= MOST_CERTIFICATE else []


def _data_box(dossier: Dossier) -> Box | None:
    if dossier.X is None:
        return None
    return Box(dossier.X.min(axis=0), dossier.X.max(axis=0))


def _domain_code(domain: Domain | None) -> str:
    return "" if domain is None else ", fs.Box(X.min(axis=0), X.max(axis=0))"
