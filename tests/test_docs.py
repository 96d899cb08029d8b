"""Links of the documentation lead somewhere, and the benchmarks that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BENCHMARKS = re.findall(
    r"^def (\w+)\(options: Options\)",
    "\n".join(path.read_text() for path in (ROOT / "tests" / "benchmarks").glob("*.py")),
    re.MULTILINE,
)


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not link.startswith("http"):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_benchmarks_exist(page):
    for names in re.findall(r"python -m tests\.benchmarks((?: \w+)+)", page.read_text()):
        assert set(names.split()) <= set(BENCHMARKS), names
