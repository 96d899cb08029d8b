"""Imports keep to the floors of docs/architecture.md, and no file is in a circle of imports."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpytorch_partition"
FLOORS = re.findall(r"^\| `([\w/.]+)` \|", (ROOT / "docs" / "architecture.md").read_text(), flags=re.M)
# Faces re-export what lives in their folder: they are on no floor.
MODULES = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}


def _floor(module: str) -> str:
    return max((floor for floor in FLOORS if module.startswith(floor)), key=len)


def _targets(dotted: str, names: list[str]) -> set[str]:
    """The modules that an import statement names: those of a face, if it names a folder."""
    found = set()
    for name in names:
        for candidate in (f"{dotted}.{name}", dotted):
            path = candidate.removeprefix("gpytorch_partition").strip(".").replace(".", "/")
            if f"{path}.py" in MODULES:
                found.add(f"{path}.py")
                break
            if path and (PACKAGE / path / "__init__.py").exists() and candidate == dotted:
                found |= _imports(PACKAGE / path / "__init__.py", [name])
    return found


def _imports(path: Path, wanted: list[str] | None = None) -> set[str]:
    """The modules that a file imports, anywhere in it, for type checkers as well."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpytorch_partition"):
            names = [alias.name for alias in node.names if wanted is None or alias.name in wanted]
            found |= _targets(node.module or "", names)
    return found


IMPORTS = {module: _imports(PACKAGE / module) for module in sorted(MODULES)}


def test_every_module_has_a_floor_and_every_floor_a_module():
    assert {_floor(module) for module in MODULES} == set(FLOORS)
    assert len(FLOORS) == len(set(FLOORS))


@pytest.mark.parametrize("module", IMPORTS)
def test_no_import_climbs(module):
    own = FLOORS.index(_floor(module))
    climbing = {target for target in IMPORTS[module] if FLOORS.index(_floor(target)) > own}
    assert not climbing


def test_no_circle_of_imports():
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
