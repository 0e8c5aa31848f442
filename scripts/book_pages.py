"""A hook of mkdocs.yml: adds the files of the tree that docs/ links to.

Pages are not changed. A link to ../kernels/gemm/ladder.cpp leads to a page
tree/kernels/gemm/ladder.cpp with that text, a link to a folder leads to its README.md or a list of
its files, and a link to a picture or to rows leads to a copy. Entries of the navigation without a
page are left out.
"""
from __future__ import annotations

import functools
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

TREE = "tree/"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
COPIED = (".svg", ".png", ".csv", ".json", ".xz")
LANGUAGES = {".c": "c", ".cl": "c", ".cpp": "cpp", ".h": "cpp", ".hpp": "cpp", ".py": "python",
             ".sh": "bash", ".build": "meson"}


def root_of(config: Any) -> Path:
    return Path(config.config_file_path).resolve().parent


def outside_fences(text: str, change: Callable[[re.Match[str]], str]) -> str:
    """The text with `change` applied to the links of its prose."""
    parts = re.split(r"(?ms)(^ *```.*?^ *```$)", text)
    parts[::2] = [LINK.sub(change, part) for part in parts[::2]]
    return "".join(parts)


def targets(text: str, folder: str) -> Iterator[str]:
    """The paths in the tree that a page of `folder` links to."""
    found: list[str] = []
    outside_fences(text, lambda link: found.append(link[2]) or "")
    for target in found:
        if not re.match(r"[a-z]+:|#", target):
            yield posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))


def place_in_book(root: Path, path: str) -> str:
    """The place of a path of the tree in the book, as MkDocs names sources."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (root / path).is_dir():
        return f"{TREE}{path}/" + ("README.md" if (root / path / "README.md").exists()
                                   else "index.md")
    return TREE + path + ("" if path.endswith((".md", *COPIED)) else ".md")


def path_in_tree(place: str) -> str:
    """The path in the tree of a page of the book; for a page made for a folder, one within it."""
    return place.removeprefix(TREE) if place.startswith(TREE) else f"docs/{place}"


def text_of(root: Path, path: str) -> str:
    """The page for a text or a folder of the tree, as Markdown."""
    source = root / path
    if source.suffix == ".md":
        return source.read_text(encoding="utf-8")
    if source.is_dir():
        if (source / "README.md").exists():
            return (source / "README.md").read_text(encoding="utf-8")
        # Folders and texts; what a page shows of a folder are not its rows.
        names = sorted(entry.name for entry in source.iterdir()
                       if not entry.name.startswith((".", "__")) and
                       (entry.suffix not in COPIED and entry.is_file() or
                        (entry / "README.md").exists()))
        return f"# {path}/\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
    language = LANGUAGES.get(source.suffix, "text")
    text = source.read_text(encoding="utf-8")
    return f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n````{language}\n{text}````\n"


def on_config(config: Any) -> Any:
    """Leaves out of the navigation what this tree does not have."""
    root = root_of(config)

    def exists(place: str) -> bool:
        path = root / path_in_tree(place)
        return path.exists() or path.name == "index.md" and path.parent.is_dir()

    def kept(entries: list[Any]) -> list[Any]:
        left = []
        for entry in entries:
            (title, what), = entry.items()
            if isinstance(what, list):
                if what := kept(what):
                    left.append({title: what})
            elif exists(what):
                left.append(entry)
        return left

    config.nav = kept(config.nav)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the files of the tree that pages link to, and those that these link to."""
    root = root_of(config)
    add = functools.partial(File.generated, config, inclusion=InclusionLevel.NOT_IN_NAV)
    waiting = ["SECURITY.md", "kernels/README.md", "results"]
    for page in files.documentation_pages():
        waiting += targets(page.content_string, "docs")
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        place = place_in_book(root, path)
        # What does not exist is left to MkDocs, which warns of the link.
        if place in done or path.startswith(("docs/", "..")) or not (root / path).exists():
            continue
        done.add(place)
        if place.endswith(COPIED):
            files.append(add(place, abs_src_path=str(root / path)))
            continue
        text = text_of(root, path)
        files.append(add(place, content=text))
        if place.endswith((f"{path}.md", f"{path}/index.md")) and (root / path).is_file():
            continue  # a source: what looks like a link in it is code
        waiting += targets(text, posixpath.dirname(path_in_tree(place)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrites links between files of the tree into links between pages of the book."""
    root = root_of(config)
    here = page.file.src_uri
    folder = posixpath.dirname(path_in_tree(here))

    def change(link: re.Match[str]) -> str:
        target, mark, anchor = link[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        place = place_in_book(root, posixpath.normpath(posixpath.join(folder, target)))
        if files.get_file_from_path(place) is None:
            return link[0]
        relative = os.path.relpath(place, posixpath.dirname(here) or ".")
        return link[1] + relative + mark + anchor + link[3]

    return outside_fences(markdown, change)
