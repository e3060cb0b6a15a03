"""Say which links inside the built site lead nowhere: python docs/links.py docs/_build/html."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep links and anchors of a tag."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif value and (name == "id" or (tag == "a" and name == "name")):
                self.anchors.add(value)


def dead(folder: Path) -> list[str]:
    """Return links of a site that lead to no file, or to no anchor of a page."""
    folder = folder.resolve()
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.html")
        if path.relative_to(folder).parts[0] != "_static"  # which has templates of the theme
    }
    lost = []
    for path, page in sorted(pages.items()):
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            whole = not anchor or there not in pages or anchor in pages[there].anchors
            if not (there.is_file() and whole):
                lost.append(f"{path.relative_to(folder)}: {link}")
    return lost


if __name__ == "__main__":
    sys.exit("\n".join(dead(Path(sys.argv[1]))) or 0)
