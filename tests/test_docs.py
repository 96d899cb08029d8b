"""Links of the documentation lead somewhere, the benchmarks that it names exist, and examples run."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from tests.site_links import dead_links

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BENCHMARKS = re.findall(
    r"^def (\w+)\(options: Options\)",
    "\n".join(path.read_text() for path in (ROOT / "benchmarks").glob("*.py")),
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


def test_dead_links_of_the_built_site_are_found(tmp_path):
    page = """<h1 id="top">A page</h1> <img src="picture.png"> <a href="https://elsewhere.org/x#y">a</a>
    <a href="">a</a> <a href="#top">a</a> <a href="folder/other.html#a%20b">a</a> <a href="folder/">a</a>
    <a href="{}">a</a>"""
    (tmp_path / "folder").mkdir()
    (tmp_path / "picture.png").touch()
    (tmp_path / "folder" / "other.html").write_text('<a name="a b">x</a> <a href="../page.html#top">back</a>')
    (tmp_path / "page.html").write_text(page.format("folder/other.html"))
    assert dead_links(tmp_path) == []
    for link in ("none.html", "#none", "folder/other.html#top"):
        (tmp_path / "page.html").write_text(page.format(link))
        assert dead_links(tmp_path) == [f"page.html: {link}"]


def test_ci_runs_the_readmes_test_command_as_written():
    command = 'pip install -c constraints.txt ".[test]" && pytest -n 2\n'
    assert command in (ROOT / "README.md").read_text()
    assert command in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("paper", ["paper_figure", "mondrian", "kernels_and_ensembles", "rare_class"])
def test_every_picture_of_a_papers_figure_is_shown_beside_its_table(paper):
    page = (ROOT / "docs" / "figures.md").read_text()
    for picture in (ROOT / "benchmarks" / "results").glob(f"{paper}*.png"):
        assert f"](../benchmarks/results/{picture.name})" in page, picture.name
        assert f"](../benchmarks/results/{picture.stem}.md)" in page, picture.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_benchmarks_exist(page):
    for names in re.findall(r"python -m benchmarks((?: \w+)+)", page.read_text()):
        assert set(names.split()) <= set(BENCHMARKS), names


# Sections at the ends of pages whose examples are run by tests of their own in tests, tests/botorch, tests/command_line
# and tests/distributed.
ELSEWHERE = {
    "many_rows.md": "## Dask",
    "other_uses.md": "## Bayesian optimization",
    "own_kernels.md": "## A clustering of your own",
    "tables.md": "### In Python",
}


def example(page):
    """The examples of a page, one after another, up to those of tests of their own."""
    text = (ROOT / "docs" / page).read_text()
    if page in ELSEWHERE:
        text, _, _ = text.partition(f"{ELSEWHERE[page]}\n")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    return "\n".join(blocks)


def run(program):
    exec(compile(program, "page", "exec"), {"__name__": "page"})


WITH_EXAMPLES = {page.name for page in PAGES if page.parent.name == "docs" and "```python" in page.read_text()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", sorted(WITH_EXAMPLES - {"repeated_measurements.md"}))
def test_the_examples_run_one_after_another(page):
    run(example(page))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_examples_of_the_readme_run_one_after_another(capsys):
    run(example("../README.md") + "\nassert len(std) == 42")
    assert "tensor" in capsys.readouterr().out


API = {
    path.stem: re.search(r"automodule:: (\S+)", path.read_text())[1] for path in (ROOT / "docs" / "api").glob("*.rst")
}


EXTRAS = {
    "gpytorch_partition.ax": "ax",
    "gpytorch_partition.botorch": "botorch",
    "gpytorch_partition.distributed": "distributed",
}


def imported(module):
    """A module of the reference, where the extra that it needs is installed."""
    if module in EXTRAS:
        pytest.importorskip(EXTRAS[module])
    return importlib.import_module(module)


@pytest.mark.parametrize("module", [each for name, each in API.items() if name != "settings"])
def test_all_is_what_is_public(module):
    """What a module of the reference imports for users is what the site shows."""
    found = imported(module)
    own = {name for name, value in vars(found).items() if getattr(value, "__module__", "").startswith("gpytorch_part")}
    public, is_file = {name for name in own if not name.startswith("_")}, not hasattr(found, "__path__")
    assert set(found.__all__) <= public if is_file else set(found.__all__) == public


def test_every_page_of_the_reference_is_listed():
    assert set(API) == set((ROOT / "docs" / "api" / "index.md").read_text().split("```")[1].split()[1:])


def says_when(found):
    """Whether one of the first paragraphs, formulas included, begins with when one would use it, or with what does."""
    paragraphs = (found.__doc__ or "").split("\n\n")[:4]
    return any(re.match(r"\s*(?:Use it|One uses it|\S+ uses it)\b", each) for each in paragraphs)


@pytest.mark.parametrize("module", API.values())
def test_public_classes_say_when_to_use_them(module):
    found = imported(module)
    classes = {name: getattr(found, name) for name in found.__all__ if inspect.isclass(getattr(found, name))}
    silent = {name for name, each in classes.items() if not issubclass(each, Warning) and not says_when(each)}
    assert silent == set()
