"""What book.sh does: builds the book with MkDocs, warnings being errors, and checks what came out:
every link and anchor leads somewhere, and nothing is loaded from another place than the book.

Exit status: 0 good, 1 the book has an error, 2 wrong arguments, 3 the environment is not to be had.
"""
from __future__ import annotations

import argparse
import html
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from python_environment import Unavailable, ensure

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["Markdown==3.11.3", "mkdocs==1.6.1", "mkdocs-material==9.8.2", "Pygments==2.21.0",
            "pymdown-extensions==13.1.2"]


def main() -> int:
    """Builds and checks."""
    parser = argparse.ArgumentParser(prog="book.sh", description="Builds the pages as a book.")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=ROOT / "build/book",
                        help="the folder, which is replaced; default: build/book")
    out = parser.parse_args().out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / "sitemap.xml").exists():
        print(f"book.sh: --out {out}: holds something else than a book", file=sys.stderr)
        return 2
    try:
        python = ensure("book", " ".join(PACKAGES),
                        lambda pip: pip(["--only-binary=:all:", *PACKAGES]))
    except Unavailable as error:
        print(f"book.sh: {error}", file=sys.stderr)
        return 3
    # The theme advertises its successor at each call.
    done = subprocess.run([str(python), "-m", "mkdocs", "build", "--strict",
                           "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(out)],
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1",
                               "PYTHONDONTWRITEBYTECODE": "1"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:  # not by --quiet, which keeps warnings from being errors
        print(done.stdout, end="", file=sys.stderr)
        return 1
    if found := list(errors(out)):
        print("\n".join(f"book.sh: {error}" for error in found), file=sys.stderr)
        return 1
    print(f"book: {out / 'index.html'}")
    return 0


def errors(book: Path) -> Iterator[str]:
    """What of a built book leads nowhere or is loaded from elsewhere."""
    pages = {str(path.relative_to(book)): path.read_text(encoding="utf-8")
             for path in sorted(book.rglob("*.html")) if path.name != "404.html"}
    anchors = {name: set(re.findall(r'\s(?:id|name)="?([^"\s>]+)', text))
               for name, text in pages.items()}
    for name, text in pages.items():
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*\ssrc="?([^"\s>]+)'
                            r'|<link\b[^>]*\shref="?([^"\s>]+)', text)
        for target in filter(None, (target for pair in loaded for target in pair)):
            if re.match(r"[a-z]+:|//", target) and not target.startswith("data:"):
                yield f"{name}: loads {target}"
        for target in sorted(set(re.findall(r'\s(?:href|src)="?([^"\s>]+)', text))):
            if reason := leads_nowhere(book, name, html.unescape(target), anchors):
                yield f"{name}: {target}: {reason}"


def leads_nowhere(book: Path, page: str, target: str, anchors: dict[str, set[str]]) -> str | None:
    """Why a link of a page leads nowhere; nothing when it does, or leaves the book."""
    if re.match(r"[a-z]+:|//", target):
        return None
    path, _, anchor = target.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(path)))
    place = place if path else page
    if place == "." or (book / place).is_dir():
        place = posixpath.normpath(posixpath.join(place, "index.html"))
    if not (book / place).is_file():
        return "no such page or file"
    if anchor and place in anchors and unquote(anchor) not in anchors[place]:
        return "no such anchor"
    return None


if __name__ == "__main__":
    sys.exit(main())
