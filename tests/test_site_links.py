"""The script that looks for dead links of the built site finds those, and no others."""

from __future__ import annotations

from tests.site_links import dead_links

PAGE = """<h1 id="top">A page</h1> <img src="picture.png"> <a href="https://elsewhere.org/x#y">a</a>
<a href="">a</a> <a href="#top">a</a> <a href="folder/other.html#a%20b">a</a> <a href="folder/">a</a>
<a href="{}">a</a>"""


def test_dead_pages_anchors_and_pictures(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "picture.png").touch()
    (tmp_path / "folder" / "other.html").write_text('<a name="a b">x</a> <a href="../page.html#top">back</a>')
    for link, is_dead in {
        "folder/other.html": False,
        "none.html": True,
        "#none": True,
        "folder/other.html#top": True,
    }.items():
        (tmp_path / "page.html").write_text(PAGE.format(link))
        assert dead_links(tmp_path) == ([f"page.html: {link}"] if is_dead else [])
