"""How Sphinx builds the site: `sphinx-build -W docs build/site`."""

import inspect
import json
import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import desc_signature

from gpytorch_partition import __version__

project, author, copyright = "gpytorch_partition", "The authors of gpytorch_partition", "2026, its authors"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
html_theme, html_title = "furo", f"gpytorch_partition {release}"

myst_heading_anchors = 4  # links to headings, as on pages that show Markdown by themselves
myst_enable_extensions = ["dollarmath"]

nb_execution_mode = "off"  # notebooks show what is stored: `python -m tests.tutorials` executes them
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures have them
autodoc_mock_imports = ["ax", "botorch", "dask", "distributed", "pandas"]  # extras, which the reference is made without
autodoc_default_options = {"members": True, "imported-members": True, "inherited-members": True}


def setup(app):
    """Notebooks are pages of the site; tables of results and source files are handed out as they are."""
    app.connect("builder-inited", _bring_notebooks)
    app.connect("source-read", _prepare)
    app.connect("doctree-read", _fill_the_page)
    app.connect("doctree-read", _answer_to_the_package)
    app.connect("autodoc-skip-member", _skip)


def _bring_notebooks(app):
    """Copies in docs/tutorials, where Sphinx finds them: links in those of tutorials/ are right in the checkout."""
    shutil.rmtree(Path(app.srcdir, "tutorials"), ignore_errors=True)
    Path(app.srcdir, "tutorials").mkdir()
    for notebook in Path(app.srcdir).parent.glob("tutorials/*.ipynb"):
        shutil.copy2(notebook, Path(app.srcdir, "tutorials"))


def _prepare(_, docname, source):
    source[0] = _notebook(docname, source[0]) if docname.startswith("tutorials/") else _page(source[0])


def _page(text):
    text = re.sub(r"\]\(\.\./(tutorials/\w+\.ipynb)\)", r"](\1)", text)
    text = re.sub(
        r"\]\((\.\./(?:benchmarks|tests|tutorials|gpytorch_partition)/[\w./-]+\.(?:md|py))\)", r"](<path:\1>)", text
    )
    return re.sub(r"\[([^\[\]]+)\]\(\.\./[\w/]+\)", r"\1", text)  # a link to a folder is its text


def _notebook(docname, text):
    """Links from docs/tutorials in place of those from tutorials, and one to the notebook itself."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = _links_of_a_notebook("".join(cell["source"]))
    notebook["cells"][-1]["source"] += f"\n- [This notebook](<path:../../{docname}.ipynb>), to run it yourself"
    return json.dumps(notebook)


def _links_of_a_notebook(text):
    text = re.sub(r"\]\(\.\./docs/", "](../", text)
    text = re.sub(r"\]\(\.\./(gpytorch_partition/[\w/]+\.py)\)", r"](<path:../../\1>)", text)
    return re.sub(r"\]\((\w+\.py)\)", r"](<path:../../tutorials/\1>)", text)


def _fill_the_page(app, doctree):
    """Pictures as wide as the text, and links to themselves at full size, as Sphinx makes them of a width."""
    for picture in () if app.env.docname.startswith("tutorials/") else doctree.findall(nodes.image):
        picture.setdefault("width", "100%")


def _answer_to_the_package(_, doctree):
    """What two pages of the reference list is found by its name in the package on both, as pages of the source want."""
    for signature in doctree.findall(desc_signature):
        name = f"gpytorch_partition.{signature.get('fullname')}"
        if name not in signature["ids"]:
            signature["ids"].append(name)


def _skip(_, what, name, found, *rest):
    """Methods of other libraries, which have sites of their own: classes list those that this package has written."""
    found = getattr(found, "fget", getattr(found, "func", found))  # of properties
    home = getattr(found, "__objclass__", found).__module__ if inspect.isroutine(found) else "gpytorch_partition"
    is_foreign = what in ("class", "exception") and not (home or "").startswith("gpytorch_partition")
    return True if is_foreign or re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None
