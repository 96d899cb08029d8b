"""Imports keep to the floors of docs/architecture.md, no file is in a circle of imports, mutants find their line."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.mutants import MUTANTS

ROOT = Path(__file__).parents[1]
NAME = "gpytorch_partition"
FLOORS = re.findall(r"^\| `([\w/.]+)` \|", (ROOT / "docs" / "architecture.md").read_text(), flags=re.M)
SOURCES = {path.relative_to(ROOT / NAME).as_posix(): path.read_text() for path in (ROOT / NAME).rglob("*.py")}
# Faces re-export what lives in their folder: they are on no floor.
FACES = {file: source for file, source in SOURCES.items() if file.endswith("__init__.py")}
MODULES = {file: source for file, source in SOURCES.items() if file not in FACES}


def _floor(module: str) -> int:
    floors = [floor for floor in FLOORS if module.startswith(floor)]
    assert floors, f"{module} has no floor in docs/architecture.md"
    return FLOORS.index(max(floors, key=len))


def _imported(file: str, source: str) -> set[str]:
    """The modules that a file imports: anywhere in it, for type checkers as well, and through faces."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {target for alias in node.names for target in _resolved(alias.name, None)}
        if isinstance(node, ast.ImportFrom):
            base = _absolute(file, node)
            found |= {target for alias in node.names for target in _resolved(base, alias.name)}
    return found


def _absolute(file: str, node: ast.ImportFrom) -> str:
    folder = [NAME, *file.split("/")[:-1]]
    start = folder[: len(folder) - node.level + 1] if node.level else []
    return ".".join([*start, *([node.module] if node.module else [])])


def _resolved(base: str, name: str | None) -> set[str]:
    """The modules behind a name of a module or a folder (`import base` has no name)."""
    package, *parts = base.split(".")
    if package != NAME:
        return set()
    path = "/".join(parts)
    if f"{path}.py" in MODULES:
        return {f"{path}.py"}
    inner = "/".join([*parts, *([name] if name else [])])
    if f"{inner}.py" in MODULES:
        return {f"{inner}.py"}
    whole = f"{inner}/__init__.py".lstrip("/")
    if whole in FACES:
        return _imported(whole, FACES[whole])
    face = f"{path}/__init__.py".lstrip("/")
    return {target for target in _imported(face, _only(FACES[face], name)) if target}


def _only(source: str, name: str | None) -> str:
    """The import statements of a face that bring a name; all of them for `*`."""
    statements = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    kept = [node for node in statements if name == "*" or name in {alias.asname or alias.name for alias in node.names}]
    return "\n".join(map(ast.unparse, kept))


IMPORTS = {module: _imported(module, source) for module, source in sorted(MODULES.items())}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("from gpytorch_partition.operators.guards import check_dense", "operators/guards.py"),
        ("import gpytorch_partition.operators.guards as guards", "operators/guards.py"),
        ("from gpytorch_partition.operators import guards", "operators/guards.py"),
        ("from ..operators.guards import check_dense", "operators/guards.py"),
        ("from ..operators import guards", "operators/guards.py"),
        ("from .. import operators", "operators/algebra.py"),
        ("from . import incidence", "clusters/incidence.py"),
        ("from gpytorch_partition import settings", "settings.py"),
        ("from gpytorch_partition import MondrianKernel", "kernels/mondrian_kernels.py"),
        ("import gpytorch_partition", "kernels/mondrian_kernels.py"),
        ("from gpytorch_partition.kernels import *", "kernels/mondrian_kernels.py"),
        (
            "from gpytorch_partition.operators import cluster_operators, FlatLinearOperator",
            "operators/cluster_operators/cluster_operator.py",
        ),
        ("def late():\n    from gpytorch_partition.training import one_pass", "training/one_pass.py"),
        ("if TYPE_CHECKING:\n    from gpytorch_partition.models import PartitionGP", "models/partition_gp.py"),
    ],
)
def test_every_form_of_import_is_seen(statement, expected):
    assert expected in _imported("clusters/cache.py", statement)


def test_other_packages_are_none_of_ours():
    assert not _imported("clusters/cache.py", "import torch\nfrom gpytorch.kernels import Kernel")


def test_every_floor_has_modules():
    assert {_floor(module) for module in MODULES} == set(range(len(FLOORS)))


@pytest.mark.parametrize("module", IMPORTS)
def test_no_import_climbs(module):
    assert not {target for target in IMPORTS[module] if _floor(target) > _floor(module)}


@pytest.mark.parametrize("face", sorted(set(FACES) - {"__init__.py"}))
def test_faces_show_their_own_folder_only(face):
    folder = face.removesuffix("__init__.py")
    assert all(target.startswith(folder) for target in _imported(face, FACES[face]))


def test_no_circle_of_imports():
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_mutant_changes_one_line():
    assert not [mutant for mutant in MUTANTS if SOURCES[mutant[0]].count(mutant[1]) != 1]
