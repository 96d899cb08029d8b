"""
`python -m tests.hosts` runs the tests of GPyTorch and linear_operator, and the calls of `calls.py`, without and with
this package imported, and names each whose outcome or number differs.

Source distributions of the versions in constraints.txt bring the tests. All 7,340 run, without and with the
import: measured, 51 and 56 seconds on two cores, and 124 seconds with the download and the calls. The slowest test
takes 10 seconds, so that leaving some out would gain little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.etree import ElementTree

HOSTS = ("linear_operator", "gpytorch")
PACKAGE = "gpytorch_partition"
ROOT = Path(__file__).parents[2]
_SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from Python 3.11.4 on
_FEWEST = {"tests": 7_000, "calls": 200}  # fewer mean that something else is wrong


def main() -> None:
    """Compare, and exit with 1 if anything differs."""
    with tempfile.TemporaryDirectory() as folder:
        _unpack(Path(folder))
        different = _different("tests", lambda imported: _outcomes(Path(folder), imported))
    different += _different("calls", _numbers)
    sys.exit(1 if different else 0)


def _different(kind: str, run: Callable[[bool], Mapping[str, str]]) -> int:
    """How many of some tests or calls, of which each is told, differ."""
    without, imported = run(False), run(True)
    if len(without) < _FEWEST[kind]:
        sys.exit(f"expected at least {_FEWEST[kind]:,} {kind}, got {len(without):,}: see the output above")
    names = [name for name in sorted({*without, *imported}) if without.get(name) != imported.get(name)]
    for name in names:
        print(f"{name}: {without.get(name)} without {PACKAGE}, {imported.get(name)} with it imported")
    print(f"{len(without):,} {kind}, {len(names)} differ with {PACKAGE} imported", flush=True)
    return len(names)


def _unpack(folder: Path) -> None:
    """The tests of each host, in a folder beside which its own package does not lie."""
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    constraints = ["-c", str(ROOT / "constraints.txt"), "-d", str(folder)]
    subprocess.run([*download, *constraints, *HOSTS], check=True)
    for host in HOSTS:
        (path,) = folder.glob(f"{host}-*.tar.gz")
        with tarfile.open(path) as archive:
            archive.extractall(folder, **_SAFELY)
        (folder / path.name.removesuffix(".tar.gz") / "test").rename(folder / f"tests_of_{host}")


def _outcomes(folder: Path, imported: bool) -> dict[str, str]:
    """The outcome of each test, on two processes."""
    report, tests = folder / f"report_{imported}.xml", [f"tests_of_{host}" for host in HOSTS]
    options = ["-q", "-n", "2", "-p", "tests.hosts.plugin", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *options, "--tb=line", "--disable-warnings", *tests]
    subprocess.run(command, cwd=folder, env=_environment(imported), check=False)
    outcomes: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        outcomes.setdefault(name, []).append(",".join(sorted(part.tag for part in case)) or "passed")
    return {name: " ".join(sorted(found)) for name, found in outcomes.items()}


def _numbers(imported: bool) -> dict[str, str]:
    """The digest of what each call gives."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.hosts.calls"]
    found = subprocess.run(command, cwd=ROOT, env=_environment(imported), check=True, stdout=subprocess.PIPE)
    return json.loads(found.stdout)


def _environment(imported: bool) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "IMPORTED": PACKAGE * imported}


if __name__ == "__main__":
    main()
