"""`python tests/site_links.py build/site`: pages of the built site link to pages, files and anchors that there are."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What a page has, its anchors, and what it wants, its links and pictures."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {found[name] or "" for name in ("id", "name") if name in found}
        self.links |= {found[name] or "" for name in ("href", "src") if name in found}


def dead_links(site: Path) -> list[str]:
    """`page: link` of each link within the site that leads nowhere."""
    pages = {path.resolve(): _Page(path) for path in sorted(site.rglob("*.html"))}
    return [
        f"{path.relative_to(site.resolve())}: {link}"
        for path, page in pages.items()
        for link in sorted(page.links)
        if not _leads_somewhere(link, path, pages)
    ]


def _leads_somewhere(link: str, path: Path, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not parts.fragment or target not in pages:
        return target.exists()
    return unquote(parts.fragment) in pages[target].anchors


if __name__ == "__main__":
    found = dead_links(Path(sys.argv[1]))
    sys.exit("\n".join(["dead links:", *found]) if found else 0)
