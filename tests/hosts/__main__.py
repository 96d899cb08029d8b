"""
`python -m tests.hosts` runs the tests of GPyTorch and linear_operator with this package imported, and names each whose
outcome differs from that without the import.

Source distributions of the versions in constraints.txt bring the tests, all 7,340 of them. They run without the import
too, another 45 seconds on two cores, only where some do not pass with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HOSTS = ("linear_operator", "gpytorch")
PACKAGE = "gpytorch_partition"
ROOT = Path(__file__).parents[2]
_FEWEST = 7_000  # fewer mean that something else is wrong


def main() -> None:
    """Compare, and exit with 1 if anything differs."""
    with tempfile.TemporaryDirectory() as folder:
        _unpack(Path(folder))
        imported = _outcomes(Path(folder), True)
        if len(imported) < _FEWEST:
            sys.exit(f"expected at least {_FEWEST:,} tests, got {len(imported):,}: see the output above")
        all_pass = {*" ".join(imported.values()).split()} <= {"passed", "skipped"}
        without = imported if all_pass else _outcomes(Path(folder), False)
    names = [name for name in sorted({*without, *imported}) if without.get(name) != imported.get(name)]
    for name in names:
        print(f"{name}: {without.get(name)} without {PACKAGE}, {imported.get(name)} with it imported")
    print(f"{len(imported):,} tests, {len(names)} differ with {PACKAGE} imported", flush=True)
    sys.exit(1 if names else 0)


def _unpack(folder: Path) -> None:
    """The tests of each host, in a folder beside which its own package does not lie."""
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    constraints = ["-c", str(ROOT / "constraints.txt"), "-d", str(folder)]
    subprocess.run([*download, *constraints, *HOSTS], check=True)
    for host in HOSTS:
        (path,) = folder.glob(f"{host}-*.tar.gz")
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
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


def _environment(imported: bool) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "IMPORTED": PACKAGE * imported}


if __name__ == "__main__":
    main()
