"""The house's layers, checked over the syntax trees: who may import whom, and where an import may stand.

The checker is a plain function from a source tree to a list of violations. It runs on the package, and on
small fake trees that break one rule each, so that it is seen to fail. The house as a whole is measured too: how deep
its imports are, which of them run in circles, how full its folders are, and which names mean several things. Numbers
and lists of what is not yet as it should be are ratchets: they only get smaller.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from textwrap import dedent

import networkx as nx
import pytest

PACKAGE = "fiberscope"
SOURCE = Path(__file__).resolve().parent.parent / "src" / PACKAGE

ORDER = (
    "errors",
    "extras",
    "files",
    "results",
    "run",
    "backends",
    "numerics",
    "network",
    "modules",
    "geometry",
    "dimension",
    "fibers",
    "equality",
    "recovery",
    "neurons",
    "connectivity",
    "training",
    "studies",
    "explorer",
    "plot",
    "reporting",
    "cli",
)

ALLOWED: dict[str, frozenset[str]] = {name: frozenset(ORDER[: i + 1]) for i, name in enumerate(ORDER)}
# Helpers for our users' tests as well as ours; nothing in the package leans on them.
ALLOWED["testing"] = frozenset({"errors", "numerics", "network", "testing"})
# `python -m fiberscope`
ALLOWED["__main__"] = frozenset({"cli"})
# The lazy root loads modules by name and has no other import statement of ours.
ALLOWED["__init__"] = frozenset({"extras"})

# Foreign libraries with one home. A library that is not listed may be used anywhere.
HOMES: dict[str, frozenset[str]] = {
    "torch": frozenset(ORDER) - {"errors", "numerics", "explorer", "plot", "reporting"} | {"testing"},
    "onnx": frozenset({"network"}),
    "safetensors": frozenset({"network"}),
    "sklearn": frozenset({"network"}),
    "onnxruntime": frozenset(),  # an oracle of the tests and a peer in the benchmarks
    "matplotlib": frozenset({"plot", "reporting"}),
    "mpl_toolkits": frozenset({"plot", "reporting"}),
    "plotly": frozenset({"plot", "reporting"}),
    "jinja2": frozenset({"reporting"}),
    "highspy": frozenset({"numerics"}),  # no solver's tolerance is the last word, so nobody else asks one
    "typer": frozenset({"cli"}),
    "click": frozenset({"cli"}),
    "starlette": frozenset({"reporting"}),
    "uvicorn": frozenset({"reporting"}),
    "websockets": frozenset({"reporting"}),
    "hypothesis": frozenset({"testing"}),
    "pytest": frozenset({"testing"}),
}

# Imports inside a function, each (file, module) with its reason. Good reasons: the module brings a heavy
# foreign library, it stands on the file that loads it, or the user may not have installed what it needs.
# A module may end in `*`.
LAZY: dict[tuple[str, str], str] = {
    ("network/network.py", "fiberscope.network.mlp"): "the method as_mlp is thin; mlp stands on network",
    ("network/network.py", "fiberscope.network.compose"): "the property composed is thin; compose stands on network",
    ("network/network.py", "fiberscope.network.to_torch"): "brings torch",
    (
        "reporting/parameters.py",
        "fiberscope.dimension.rescalings",
    ): "only where no theorem is asked",
    ("network/border.py", "fiberscope.network.io"): "whatever is no network is loaded; io stands on network",
    ("geometry/complex.py", "fiberscope.geometry.verify"): "the method verify is thin; brings another engine",
    ("geometry/complex.py", "fiberscope.geometry.storage"): "the methods save and load are thin",
    ("geometry/complex.py", "networkx"): "dear to load, and only the adjacency is a graph",
    ("geometry/engines/traversal/estimate.py", "scipy.special"): "dear to load, and counts do not estimate",
    ("recovery/recovered.py", "fiberscope.fibers.fiber"): "the property fiber is thin; brings the theorems",
    (
        "equality/verdict.py",
        "fiberscope.equality.certificates.encoding",
    ): "the method save is thin; encoding stands on verdict",
    ("network/io.py", "fiberscope.network.formats.*"): "each format brings its own library: torch, onnx, sklearn",
    ("cli/model_options.py", "fiberscope.network.io"): "brings SciPy",
    ("cli/model_options.py", "*"): "the user names the module",
    ("fibers/fiber.py", "fiberscope.equality.membership"): "Fiber.contains asks whether two networks are equal",
    ("fibers/identifiability.py", "fiberscope.fibers.on_domain"): "the verdict of a domain builds complexes",
    ("fibers/simplify/simplify.py", "fiberscope.equality.simplified"): "Simplified.verdict and .stored answer for it",
    ("cli/regions/command.py", "fiberscope.geometry.engines.*"): "brings SciPy",
    ("numerics/compiling/kernels.py", "numba"): "dear to load, and an extension does without",
    ("numerics/compiling/kernels.py", "numba.core.event"): "dear to load, and an extension does without",
    ("numerics/compiling/kernels.py", "*"): "operations of kernels, which bring numba",
    ("numerics/compiling/building.py", "numba.pycc"): "brings setuptools, and warns",
    ("numerics/compiling/building.py", "numba.pycc.compiler"): "brings setuptools, and warns",
    ("equality/ladder.py", "fiberscope.backends"): "brings joblib",
    ("equality/rungs/split_boxes.py", "fiberscope.equality.bounding.sharing"): "brings joblib",
    ("geometry/curvature.py", "torch"): "brings torch",
    ("geometry/generators.py", "torch"): "brings torch",
    ("geometry/regions.py", "fiberscope.geometry.tiling"): "brings joblib, and few counts are made in pieces",
    ("cli/report.py", "fiberscope.reporting.report"): "brings matplotlib",
    ("reporting/live/serve.py", "uvicorn"): "the extra may not be installed",
    ("reporting/live/serve.py", "websockets"): "the extra may not be installed",
    ("reporting/live/serve.py", "fiberscope.reporting.live.server"): "brings starlette, an extra",
    ("reporting/live/lessons.py", "fiberscope.training.seeds"): "brings torch",
    ("geometry/complex.py", "fiberscope.explorer.view"): "the notebook's picture is thin; explorer stands on complex",
    ("equality/diff/diff.py", "fiberscope.equality.diff.by_name"): "brings torch",
    ("equality/audit.py", "fiberscope.equality.beyond.live"): "brings torch",
    ("equality/ladder.py", "fiberscope.equality.beyond.live"): "brings torch",
    ("equality/ladder.py", "fiberscope.equality.beyond.quantised"): "brings onnx",
    ("equality/ladder.py", "fiberscope.network.formats.onnx.quantised"): "brings onnx",
    ("equality/verify.py", "fiberscope.equality.beyond.live"): "brings torch",
    ("equality/verify.py", "fiberscope.equality.beyond.rounding_inputs"): "brings onnx",
    ("cli/model_options.py", "fiberscope.network.formats.onnx.quantised"): "brings onnx",
    ("cli/tour/command.py", "fiberscope.cli.tour.stops"): "brings matplotlib",
    ("cli/tour/command.py", "fiberscope.reporting.*"): "brings matplotlib",
    ("cli/reproduce.py", "fiberscope.studies.lab.*"): "brings joblib and every study",
    ("cli/reproduce.py", "fiberscope.reporting.*"): "brings matplotlib",
    ("backends.py", "distributed"): "the extra may not be installed",
    ("backends.py", "ray"): "the extra may not be installed",
    ("geometry/persistence.py", "gudhi"): "the extra may not be installed",
    ("connectivity/checkpoints/configs.py", "transformers*"): "an extra that many users do not have",
    ("studies/lab/registry.py", "fiberscope.studies.*"): "studies are found by looking at the folder",
    ("extras.py", "*"): "loads by name what the caller asks for",
    ("results.py", "rich*"): "only a terminal needs it, and then it is loaded already",
    ("training/callbacks.py", "*"): "people have one of these libraries or none",
    ("run.py", "IPython.display"): "only a notebook needs it, and then it is loaded already",
    ("results.py", "pandas"): "the user may not have installed it",
    ("results.py", "fiberscope.plot"): "the method plot is thin; brings matplotlib",
}

# Those of them that point to the right: thin methods that call what stands on them, each (file, module).
UPWARD: frozenset[tuple[str, str]] = frozenset(
    {
        ("results.py", "fiberscope.plot"),
        ("geometry/complex.py", "fiberscope.explorer.view"),
        ("fibers/fiber.py", "fiberscope.equality.membership"),
        ("fibers/identifiability.py", "fiberscope.fibers.on_domain"),
        ("fibers/simplify/simplify.py", "fiberscope.equality.simplified"),
    }
)

# Thin methods inside of one entry: data calls what answers a question about it, and stands on it.
THIN: frozenset[tuple[str, str]] = frozenset(
    {
        ("network/network.py", "fiberscope.network.mlp"),
        ("network/network.py", "fiberscope.network.compose"),
        ("network/network.py", "fiberscope.network.to_torch"),
        ("network/border.py", "fiberscope.network.io"),
        ("geometry/complex.py", "fiberscope.geometry.verify"),
        ("geometry/complex.py", "fiberscope.geometry.storage"),
        ("geometry/regions.py", "fiberscope.geometry.tiling"),
        ("equality/verdict.py", "fiberscope.equality.certificates.encoding"),
        ("recovery/recovered.py", "fiberscope.fibers.fiber"),
    }
)

# What such methods give, named for type checkers only: each (file, module).
TYPES: frozenset[tuple[str, str]] = frozenset(
    {
        ("fibers/membership.py", "fiberscope.equality.verdict"),
        ("fibers/simplify/simplify.py", "fiberscope.equality.verdict"),
    }
)


@dataclass(frozen=True)
class Violation:
    """One broken rule: its name, where, and a sentence."""

    rule: str
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


@dataclass(frozen=True)
class Import:
    """One imported module (absolute dotted name), the names taken from it, and where the statement stands."""

    module: str
    names: tuple[str, ...]
    node: ast.AST
    inside_function: bool
    for_types: bool = False

    @property
    def by_name(self) -> bool:
        """Whether it is a call of ``import_module``."""
        return isinstance(self.node, ast.Call)


def layer_of(file: Path, root: Path) -> str:
    """The entry of the house that a file belongs to: its top folder, or its stem at the root."""
    parts = file.relative_to(root).parts
    return parts[0] if len(parts) > 1 else file.stem


def resolve(module: str | None, level: int, file: Path, root: Path) -> str:
    """The absolute name of ``from <level dots><module> import ...`` as written in ``file``."""
    if level == 0:
        return module or ""
    package = (PACKAGE, *file.relative_to(root).parent.parts)
    base = package[: len(package) - (level - 1)]
    return ".".join((*base, module) if module else base)


def is_import_module(call: ast.Call) -> bool:
    """Whether a call is ``import_module(...)`` or ``importlib.import_module(...)`` or ``__import__(...)``."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    return name in {"import_module", "__import__"}


def constants_of(tree: ast.Module) -> dict[str, str]:
    """The strings that are assigned to names at the top level."""
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def text_of(node: ast.AST, constants: dict[str, str]) -> str:
    """The string that an expression gives, with ``*`` for what only the running program knows."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id, "*")
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part, constants) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, constants)
    return "*"


def tree_of(file: Path) -> ast.Module:
    return parsed(file.read_text(encoding="utf-8"))


@cache
def parsed(text: str) -> ast.Module:
    """A text's syntax tree, made once for all tests: nobody changes it."""
    return ast.parse(text)


def imports_of(tree: ast.Module, file: Path, root: Path) -> Iterator[Import]:
    """Every import statement and every ``import_module``, wherever it stands."""
    package = ".".join((PACKAGE, *file.relative_to(root).parent.parts))
    constants = constants_of(tree) | {"__package__": package}

    def walk(node: ast.AST, inside: bool, types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            deeper = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, (), child, inside, types)
            elif isinstance(child, ast.ImportFrom):
                module = resolve(child.module, child.level, file, root)
                yield Import(module, tuple(alias.name for alias in child.names), child, inside, types)
            elif isinstance(child, ast.Call) and is_import_module(child) and child.args:
                name = text_of(child.args[0], constants)
                dots = len(name) - len(name.lstrip("."))
                yield Import(resolve(name[dots:], dots, file, root), (), child, inside, types)
            only = isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"
            yield from walk(child, deeper, types or only)

    yield from walk(tree, False, False)


def targets(found: Import, entries: frozenset[str]) -> list[str]:
    """The entries of the house that an import of ours reaches; '' stands for names of the lazy root."""
    parts = found.module.split(".")
    if len(parts) > 1:
        return [parts[1]]
    if not found.names:
        return [""]
    # `from fiberscope import numerics` reaches a subpackage, `from fiberscope import Network` the lazy root.
    return [name if name in entries else "" for name in found.names if name != "__version__"]


def check_direction(
    found: Import, layer: str, entries: frozenset[str], excused: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Our own imports point to the left, but for those ``excused`` inside functions; foreign libraries stay at home."""
    if found.inside_function and found.module in excused:
        return
    if layer == "__init__" and isinstance(found.node, ast.Call):
        return  # the lazy root loads every layer by name: that is its task
    foreign = found.module.split(".")[0]
    if foreign != PACKAGE:
        if foreign in HOMES and layer not in HOMES[foreign]:
            homes = ", ".join(sorted(HOMES[foreign])) or "no entry of the package"
            yield "foreign", f"{layer} imports {foreign}, whose home is {homes}"
        return
    for target in targets(found, entries):
        if target == "":
            if layer in ("cli", "reporting"):
                continue  # what only composes answers is a user like any other: the public names, and lazily
            yield "root", f"{layer} imports through the lazy root; import from the module that defines it"
        elif target not in ALLOWED[layer]:
            yield "direction", f"{layer} imports {target}, which is not to its left"


def is_leading(statement: ast.stmt) -> bool:
    """Whether other imports may follow: docstrings, imports, and `if`/`try` blocks that only import."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.If):
        return all(is_leading(inner) for inner in statement.body + statement.orelse)
    return False


def check_placement(
    tree: ast.Module, imports: list[Import], name: str, lazy: Collection[tuple[str, str]]
) -> Iterator[tuple[str, int, str]]:
    """Imports stand at the top, but for a package's ``__getattr__`` and the pairs in ``lazy``."""
    seen_code = False
    for statement in tree.body:
        if seen_code and isinstance(statement, ast.Import | ast.ImportFrom):
            yield "top", statement.lineno, "an import below the file's first code"
        seen_code = seen_code or not is_leading(statement)

    excused: set[int] = set()
    if name.endswith("__init__.py"):
        loaders = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"]
        excused = {id(inner) for loader in loaders for inner in ast.walk(loader)}
    for found in imports:
        listed = any(file == name and fnmatchcase(found.module, pattern) for file, pattern in lazy)
        if found.inside_function and id(found.node) not in excused and not listed:
            line = getattr(found.node, "lineno", 0)
            yield "lazy", line, f"imports {found.module} inside a function and is not in the table LAZY"


def check_names(tree: ast.Module, entries: frozenset[str]) -> Iterator[tuple[str, int, str]]:
    """No public function bears the name of an entry: importing the entry would replace it."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in entries:
            yield (
                "name",
                node.lineno,
                f"function {node.name} has the name of the subpackage {PACKAGE}.{node.name}",
            )


def under_type_checking(tree: ast.Module) -> set[int]:
    """The statements that only type checkers see."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {id(inner) for block in blocks for inner in ast.walk(block)}


def violations(
    root: Path,
    lazy: Collection[tuple[str, str]] = (),
    upward: Collection[tuple[str, str]] = (),
    types: Collection[tuple[str, str]] = (),
) -> list[Violation]:
    """All broken rules in the package at ``root``, in the order of files and lines."""
    files = sorted(root.rglob("*.py"))
    entries = frozenset({layer_of(file, root) for file in files} | set(ORDER) | {"testing"}) - {
        "__init__",
        "__main__",
    }
    found: list[Violation] = []
    for file in files:
        name = file.relative_to(root).as_posix()
        layer = layer_of(file, root)
        if layer not in ALLOWED:
            found.append(Violation("unknown", name, 1, f"{layer} is not an entry of the house"))
            continue
        tree = tree_of(file)
        imports = list(imports_of(tree, file, root))
        excused = {module for where, module in upward if where == name}
        typed = under_type_checking(tree)
        for item in imports:
            if (name, item.module) in types and id(item.node) in typed:
                continue
            line = getattr(item.node, "lineno", 0)
            broken = check_direction(item, layer, entries, excused)
            found += [Violation(rule, name, line, text) for rule, text in broken]
        found += [Violation(rule, name, line, text) for rule, line, text in check_placement(tree, imports, name, lazy)]
        found += [Violation(rule, name, line, text) for rule, line, text in check_names(tree, entries)]
    return found


def test_package_keeps_its_layers() -> None:
    broken = violations(SOURCE, LAZY, UPWARD, TYPES)
    assert not broken, "\n" + "\n".join(map(str, broken))


def test_the_table_of_lazy_imports_is_not_stale() -> None:
    assert LAZY.keys() >= UPWARD
    for (name, module), reason in LAZY.items():
        file = SOURCE / name
        assert reason
        found = imports_of(tree_of(file), file, SOURCE)
        assert any(item.inside_function and fnmatchcase(item.module, module) for item in found), f"{name}: {module}"
    for name, module in TYPES:
        tree = tree_of(SOURCE / name)
        typed = under_type_checking(tree)
        found = imports_of(tree, SOURCE / name, SOURCE)
        assert any(item.module == module and id(item.node) in typed for item in found), f"{name}: {module}"


FAKE_ROOT = """
    from importlib import import_module
    def __getattr__(name):
        return getattr(import_module("fiberscope.network"), name)
"""

# rule broken (None: fine), file, text
FAKES: list[tuple[str | None, str, str]] = [
    (None, "__init__.py", FAKE_ROOT),
    (None, "__main__.py", "from fiberscope.cli import main"),
    (None, "numerics/__init__.py", "from fiberscope.errors import InputError"),
    (None, "numerics/signs.py", "from ..errors import InputError\nfrom .bounds import gamma"),
    (None, "network/onnx.py", '"""Doc."""\nfrom __future__ import annotations\nimport onnx\nx = 1'),
    (
        None,
        "network/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nimport os",
    ),
    (None, "network/__init__.py", "def __getattr__(name):\n    from .onnx import read\n    return read"),
    (None, "network/group.py", "def permute(net): ..."),
    (None, "cli/app.py", "from fiberscope import __version__, errors\nimport typer"),
    (None, "cli/inspect.py", "import fiberscope as fs\nfrom fiberscope import Network"),
    (None, "testing/__init__.py", "import hypothesis\nfrom fiberscope.network import Network"),
    ("direction", "errors.py", "import fiberscope.numerics"),
    ("direction", "numerics/signs.py", "from fiberscope.network import Network"),
    ("direction", "numerics/signs.py", "from ..network.chain import Network"),
    ("direction", "numerics/signs.py", "from .. import network"),
    ("direction", "numerics/signs.py", "from fiberscope import network"),
    (
        "direction",
        "numerics/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..network import N",
    ),
    ("direction", "network/a.py", "def f():\n    from ..geometry import regions"),
    ("direction", "network/a.py", "import importlib\ndef f(): importlib.import_module('fiberscope.cli')"),
    (
        "direction",
        "network/a.py",
        "from importlib import import_module\nx = import_module('..cli', __package__)",
    ),
    ("direction", "network/deep/a.py", "from ...cli import main"),
    ("direction", "geometry/a.py", "from fiberscope.testing import random_network"),
    ("direction", "testing/a.py", "from fiberscope.geometry import regions"),
    ("direction", "plot/a.py", "from fiberscope.reporting import page"),
    ("direction", "__init__.py", "from fiberscope.network import Network"),
    ("root", "network/a.py", "from fiberscope import Network"),
    ("root", "network/a.py", "import fiberscope"),
    ("root", "plot/a.py", "import fiberscope as fs"),
    ("unknown", "utils/a.py", ""),
    ("unknown", "helpers.py", ""),
    ("top", "numerics/a.py", "x = 1\nimport os"),
    ("lazy", "numerics/a.py", "def f():\n    import os"),
    ("lazy", "numerics/a.py", "class A:\n    def f(self):\n        from os import path"),
    ("lazy", "network/__init__.py", "def load():\n    from .onnx import read"),
    ("lazy", "network/a.py", "def __getattr__(name):\n    import os"),
    ("lazy", "network/a.py", "import importlib\ndef f(): importlib.import_module('fiberscope.network.onnx')"),
    ("lazy", "network/a.py", "import importlib\ndef f(x): importlib.import_module(x)"),
    ("lazy", "network/a.py", "import importlib\ndef f(x): importlib.import_module(f'fiberscope.network.{x}')"),
    ("direction", "network/a.py", "import importlib as i\nP = 'fiberscope.cli'\nx = i.import_module(f'{P}.{y}')"),
    ("direction", "network/a.py", "import importlib as i\nP = 'fiberscope.cli'\nx = i.import_module(P)"),
    ("name", "geometry/a.py", "def dimension(): ..."),
    ("name", "cli/a.py", "def plot(): ..."),
    ("foreign", "numerics/a.py", "import torch"),
    ("foreign", "numerics/a.py", "import onnx.helper"),
    ("foreign", "numerics/a.py", "from torch import nn"),
    ("foreign", "numerics/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
    ("foreign", "modules/a.py", "import onnx"),
    ("foreign", "cli/a.py", "from safetensors.numpy import load_file"),
    ("foreign", "training/a.py", "import sklearn.datasets"),
    ("foreign", "geometry/a.py", "import matplotlib.pyplot as plt"),
    ("foreign", "studies/a.py", "from mpl_toolkits import mplot3d"),
    ("foreign", "cli/a.py", "def f():\n    __import__('plotly')"),
    ("foreign", "network/a.py", "import onnxruntime"),
    ("foreign", "network/a.py", "import typer"),
    ("foreign", "geometry/a.py", "import highspy"),
]


@pytest.mark.parametrize(("rule", "name", "text"), FAKES)
def test_checker_finds_what_is_broken(rule: str | None, name: str, text: str, tmp_path: Path) -> None:
    root = tmp_path / PACKAGE
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(dedent(text), encoding="utf-8")
    broken = {violation.rule for violation in violations(root)}
    assert (rule in broken) if rule else not broken


def test_a_listed_lazy_import_is_excused_but_keeps_its_direction(tmp_path: Path) -> None:
    file = tmp_path / PACKAGE / "network" / "a.py"
    file.parent.mkdir(parents=True)
    file.write_text("def f():\n    from .onnx import read\n    from ..cli import main\n")
    listed = {("network/a.py", "fiberscope.network.*"), ("network/a.py", "fiberscope.cli")}
    assert [violation.rule for violation in violations(tmp_path / PACKAGE, listed)] == ["direction"]
    assert not violations(tmp_path / PACKAGE, listed, {("network/a.py", "fiberscope.cli")})


def test_only_a_lazy_import_may_point_upward(tmp_path: Path) -> None:
    file = tmp_path / PACKAGE / "network" / "a.py"
    file.parent.mkdir(parents=True)
    file.write_text("from ..cli import main\n")
    upward = {("network/a.py", "fiberscope.cli")}
    assert [violation.rule for violation in violations(tmp_path / PACKAGE, upward, upward)] == ["direction"]


def test_a_type_may_be_named_for_checkers_only(tmp_path: Path) -> None:
    file = tmp_path / PACKAGE / "network" / "a.py"
    file.parent.mkdir(parents=True)
    types = {("network/a.py", "fiberscope.geometry.x")}
    file.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..geometry.x import X\n")
    assert not violations(tmp_path / PACKAGE, types=types)
    file.write_text("from ..geometry.x import X\n")
    assert [violation.rule for violation in violations(tmp_path / PACKAGE, types=types)] == ["direction"]


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _, _ in FAKES if rule} == {
        "direction",
        "root",
        "unknown",
        "top",
        "lazy",
        "name",
        "foreign",
    }


def test_violation_says_where() -> None:
    assert str(Violation("top", "a.py", 3, "text")) == "a.py:3: top: text"


# --- the house as a whole ------------------------------------------------------------------------------------------

DEPTH = 16
"""Modules on the longest chain of imports, those inside functions and those loaded by name too, but no thin methods.

The aim is 14, which the reasons of a kernel have; the longest chain is a study that asks for them."""

DEPTH_WITH_THIN = 19
"""The same with the thin methods, of which ``border`` to ``io``, and so to the formats, is the longest way."""

MOST_MODULES = 20
"""In one folder, besides the studies, which are one file each."""

VAGUE = {"decide", "deep", "forms", "found", "hidden", "many", "result", "sampling", "setting", "sharp", "values"}
"""Names of modules that say little, or mean another thing in every package."""

REPEATED = {
    "engine": "the entry of an engine",
    "exact": "the exact half of an engine",
    "kernels": "the compiled half of an engine",
    "regions": "where a network is linear: the question, the command, the method of equality",
    "verify": "a claim is proven again: the complex's, a certificate's, the command",
}
"""Names that modules of three packages have, with the one meaning that they have there."""

SHARED_CLASSES: dict[str, int] = {}
"""Public classes that three modules define under one name."""


def module_name(file: Path, root: Path) -> str:
    """The dotted name of a file inside the package; a package itself has the name of its folder."""
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


@cache
def imports_in(file: Path, root: Path) -> tuple[Import, ...]:
    """Every import of a file, which is read once."""
    return tuple(imports_of(tree_of(file), file, root))


@cache
def import_graph(root: Path, for_types: bool, by_name: bool, thin: bool = False) -> nx.DiGraph[str]:
    """An edge from every module to those that it imports, at the top or inside a function.

    A name with ``*`` means all that fit it. The lazy root, which reaches everything by name, is left out, and so are
    the studies, which are found by looking at their folder, TYPES, and without ``thin`` the thin methods.
    """
    left_out = TYPES | (UPWARD if thin else UPWARD | THIN)
    files = {module_name(file, root): file for file in sorted(root.rglob("*.py"))}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, file in files.items():
        if not name:
            continue
        graph.add_node(name)
        for found in imports_in(file, root):
            if (found.for_types and not for_types) or (found.by_name and not by_name):
                continue
            if (file.relative_to(root).as_posix(), found.module) in left_out:
                continue
            module = found.module.removeprefix(f"{PACKAGE}.")
            inner = [f"{module}.{part}" for part in found.names]
            # of `from package import module` the module is what is imported
            reached = [target for target in inner if target in files] or [module]
            if module.endswith(".*") and module != "studies.*":
                reached = [target for target in files if fnmatchcase(target, module)]
            graph.add_edges_from((name, target) for target in reached if target in files and target not in {"", name})
    return graph


def depth(root: Path, thin: bool = False) -> tuple[str, ...]:
    """The longest chain of imports; modules that import each other count as one."""
    parts = nx.condensation(import_graph(root, False, True, thin))
    return tuple(min(parts.nodes[part]["members"]) for part in nx.dag_longest_path(parts))


def cycles(root: Path) -> list[frozenset[str]]:
    """Circles among the modules and folders of one folder, each folder taken as one."""
    graph = import_graph(root, True, True)
    folders = {".".join(name.split(".")[:k]) for name in graph for k in range(name.count(".") + 1)}
    found = []
    for folder in sorted(folders):
        level, begin = (folder.count(".") + 2, f"{folder}.") if folder else (1, "")
        side: nx.DiGraph[str] = nx.DiGraph()
        for edge in graph.edges:
            if all(name.startswith(begin) for name in edge):
                one, two = (".".join(name.split(".")[:level]) for name in edge)
                side.add_edges_from([(one, two)] if one != two else [])
        found += [frozenset(part) for part in nx.strongly_connected_components(side) if len(part) > 1]
    return found


def crowded(root: Path) -> dict[str, int]:
    """Folders of more than so many modules."""
    counts = Counter(file.parent.relative_to(root).as_posix() for file in root.rglob("*.py") if file.stem != "__init__")
    return {folder: count for folder, count in counts.items() if count > MOST_MODULES}


def repeated(root: Path) -> dict[str, int]:
    """Names that modules of three packages have."""
    homes = defaultdict(set)
    for file in root.rglob("*.py"):
        if file.stem != "__init__":
            homes[file.stem].add(file.parent)
    return {name: len(places) for name, places in homes.items() if len(places) > 2}


def vague(root: Path) -> list[str]:
    """Modules whose name says little."""
    return sorted(file.relative_to(root).as_posix() for file in root.rglob("*.py") if file.stem in VAGUE)


def shared_classes(root: Path) -> dict[str, int]:
    """Names of public classes that three modules define."""
    # the checker is a program of its own, which shares nothing
    files = [file for file in root.rglob("*.py") if file.stem != "checker"]
    trees = [tree_of(file) for file in files]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    return {name: count for name, count in names.items() if count > 2 and not name.startswith("_")}


@pytest.mark.parametrize(("thin", "most"), [(False, DEPTH), (True, DEPTH_WITH_THIN)])
def test_imports_are_not_deeper_than_they_were(thin: bool, most: int) -> None:
    chain = depth(SOURCE, thin)
    assert len(chain) <= most, "\n" + "\n".join(chain)


def test_nothing_runs_in_circles() -> None:
    assert [sorted(circle) for circle in cycles(SOURCE)] == []


def test_folders_are_not_full_and_names_say_one_thing() -> None:
    full = {folder: n for folder, n in crowded(SOURCE).items() if folder != "studies"}
    assert full == {}
    assert repeated(SOURCE).keys() <= REPEATED.keys()
    assert vague(SOURCE) == []
    assert {name: n for name, n in shared_classes(SOURCE).items() if n > SHARED_CLASSES.get(name, 2)} == {}


@pytest.mark.parametrize(("name", "module"), sorted(UPWARD | THIN))
def test_thin_methods_are_thin(name: str, module: str) -> None:
    """Load, call, return: what is more than that belongs into the module that is called."""
    tree = tree_of(SOURCE / name)
    constants = constants_of(tree)
    found = 0
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and is_import_module(node)]
        if any(text_of(call.args[0], constants) == module for call in calls):
            body = [line for line in function.body if not isinstance(getattr(line, "value", None), ast.Constant)]
            assert len(body) <= 3, f"{name}: {function.name}"
            found += 1
    assert found


HOUSE = {
    "errors.py": "class Form: ...",
    "a/__init__.py": "",
    "a/cells.py": "import fiberscope.errors\nfrom fiberscope.b import deep\nclass Form: ...",
    "b/__init__.py": "",
    "b/cells.py": "from ..errors import Form",
    "b/deep.py": "def f():\n    from .cells import x\nclass Form: ...",
    "c/cells.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fiberscope.a.cells import y",
    "c/d/e.py": "import importlib\nx = importlib.import_module('fiberscope.c.cells')",
    "c/f.py": "from .d.e import z\nfrom .d import g",
    "c/d/g.py": "from ..f import w",
}


def test_the_house_is_measured(tmp_path: Path) -> None:
    root = tmp_path / PACKAGE
    for name, text in HOUSE.items() | {(f"full/m{i}.py", "") for i in range(MOST_MODULES + 1)}:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    assert depth(root) == ("a.cells", "b.deep", "b.cells", "errors")
    assert ("c.cells", "a.cells") in import_graph(root, True, False).edges
    assert ("c.cells", "a.cells") not in import_graph(root, False, True).edges
    assert ("c.d.e", "c.cells") in import_graph(root, False, True).edges
    assert ("c.d.e", "c.cells") not in import_graph(root, False, False).edges
    assert cycles(root) == [frozenset({"c.d", "c.f"})]
    assert crowded(root) == {"full": MOST_MODULES + 1}
    assert repeated(root) == {"cells": 3}
    assert vague(root) == ["b/deep.py"]
    assert shared_classes(root) == {"Form": 3}


# --- tests and objects ---------------------------------------------------------------------------------------------

TESTS = Path(__file__).resolve().parent


def test_tests_mirror_the_tree() -> None:
    folders = {file.parent.relative_to(TESTS).as_posix() for file in TESTS.rglob("test_*.py")} - {"."}
    strangers = [
        name for name in sorted(folders) if not (SOURCE / name).exists() and not (SOURCE / f"{name}.py").exists()
    ]
    assert strangers == []
    untested = [entry for entry in ORDER if entry not in {name.split("/")[0] for name in folders}]
    assert [entry for entry in untested if not (TESTS / f"test_{entry}.py").exists()] == ["errors", "backends"]


def mutable_caches(root: Path) -> list[str]:
    """Fields of frozen dataclasses that look like a cache and that ``replace`` would take over."""
    found = []
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(tree_of(file)):
            if not isinstance(node, ast.ClassDef) or "frozen=True" not in " ".join(
                map(ast.unparse, node.decorator_list)
            ):
                continue
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    cache = item.target.id.startswith("_") or "cache" in item.target.id
                    if cache and "init=False" not in ast.unparse(item):
                        found.append(f"{file.relative_to(root).as_posix()}: {node.name}.{item.target.id}")
    return found


def test_frozen_objects_hold_no_caches_that_replace_keeps(tmp_path: Path) -> None:
    assert mutable_caches(SOURCE) == []
    text = "@dataclass(frozen=True)\nclass A:\n    _known: dict = field(default_factory=dict)\n    x: int = 0\n"
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    assert mutable_caches(tmp_path) == ["a.py: A._known"]
