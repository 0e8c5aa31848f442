#!/usr/bin/env python3
"""Checks every link of every Markdown page of the tree: check_links.py [--external] [FILE...].

A link to a file must lead to one, a link with #anchor to a page with such a heading. --external
also checks links to other sites, which needs the network.

Exit status: 0 good, 1 a broken link, 2 wrong arguments.
"""
from __future__ import annotations

import argparse
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCES = re.compile(r"(?ms)^ *```.*?^ *```$")
SECONDS = 20


def pages() -> list[Path]:
    """Those of the tree; what is built or hidden is left alone."""
    hidden = re.compile(r"(^|/)(\.|build|__pycache__)")
    return sorted(path for path in ROOT.rglob("*.md")
                  if not hidden.search(str(path.relative_to(ROOT))))


def anchors(text: str) -> set[str]:
    """What GitHub calls the headings of a page; a second one of a name is left out."""
    headings = re.findall(r"(?m)^#+ +(.+?) *$", FENCES.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def found(page: Path, external: bool) -> Iterator[str]:
    """The links of a page that lead nowhere, each with the reason."""
    for target in LINK.findall(FENCES.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"https?://", target):
            if external and (reason := unreachable(target)):
                yield f"{target}: {reason}"
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and (file.suffix != ".md" or
                         anchor not in anchors(file.read_text(encoding="utf-8"))):
            yield f"{target}: no such heading"


def unreachable(address: str) -> str | None:
    """Why an address cannot be had; nothing when it can."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            return None
    except (urllib.error.URLError, OSError) as error:
        return str(error)


def main() -> int:
    """Checks the named pages, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="*", type=Path, metavar="FILE",
                        help="pages; default: all pages of the tree")
    parser.add_argument("--external", action="store_true", help="also check links to other sites")
    arguments = parser.parse_args()
    chosen = arguments.file or pages()
    if missing := [str(path) for path in chosen if not path.is_file()]:
        print(f"check_links.py: no such file: {', '.join(missing)}", file=sys.stderr)
        return 2
    bad = [f"{page}: {reason}" for page in chosen for reason in found(page, arguments.external)]
    print("\n".join(bad) if bad else f"the links of {len(chosen)} pages lead somewhere")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
