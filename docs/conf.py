"""How Sphinx builds the site: `sphinx-build -W docs build/site`."""

import inspect
import re

from docutils import nodes

from gpytorch_partition import __version__

project, author, copyright = "gpytorch_partition", "The authors of gpytorch_partition", "2026, its authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
html_theme, html_title = "furo", f"gpytorch_partition {release}"

myst_heading_anchors = 4  # links to headings, as on pages that show Markdown by themselves
myst_enable_extensions = ["dollarmath"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures have them
autodoc_default_options = {"members": True, "imported-members": True, "inherited-members": True}


def setup(app):
    """Tables of results and source files are handed out as they are, not made pages of the site."""
    app.connect("source-read", _hand_out)
    app.connect("include-read", _hand_out_included)
    app.connect("doctree-read", _fill_the_page)
    app.connect("autodoc-skip-member", _skip)


def _hand_out(_, docname, source):
    elsewhere = r"\]\((\.\./(?:tests|tutorials|gpytorch_partition)/[\w./-]+\.(?:md|py|ipynb))\)"
    source[0] = re.sub(elsewhere, r"](<path:\1>)", source[0])
    source[0] = re.sub(r"\[([^\[\]]+)\]\(\.\./[\w/]+\)", r"\1", source[0])  # a link to a folder is its text


def _hand_out_included(app, _, docname, content):
    """The same of an included page of the folder above, the changelog."""
    content[0] = re.sub(r"\]\((tutorials/\w+\.ipynb)\)", r"](<path:../\1>)", content[0])


def _fill_the_page(_, doctree):
    """Pictures as wide as the text, and links to themselves at full size, as Sphinx makes them of a width."""
    for picture in doctree.findall(nodes.image):
        picture.setdefault("width", "100%")


def _skip(_, what, name, found, *rest):
    """Methods of other libraries, which have sites of their own: classes list those that this package has written."""
    found = getattr(found, "fget", getattr(found, "func", found))  # of properties
    home = getattr(found, "__objclass__", found).__module__ if inspect.isroutine(found) else "gpytorch_partition"
    is_foreign = what in ("class", "exception") and not (home or "").startswith("gpytorch_partition")
    return True if is_foreign or re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None
