#!/usr/bin/env python3
"""Makes the package `rooflane` importable from the build tree: links the files of the source
folder next to the module that was built, and the program as bin/rooflane.

usage: link_package.py SOURCE_FOLDER BUILD_FOLDER PROGRAM STAMP DEPFILE
"""
import sys
from pathlib import Path

from script_help import answer_help


def link(path: Path, target: Path) -> None:
    """Makes `path` a link to `target` unless it is one."""
    if path.is_symlink() and path.readlink() == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def main() -> None:
    """Links what is there and removes links to what is no more."""
    answer_help()
    source, build, program, stamp, depfile = (Path(word).absolute() for word in sys.argv[1:])
    for path in build.iterdir():
        if path.is_symlink() and not path.exists():
            path.unlink()
    for entry in source.iterdir():
        if entry.name not in ("__pycache__", "meson.build"):
            link(build / entry.name, entry)
    (build / "bin").mkdir(exist_ok=True)
    link(build / "bin" / "rooflane", program)
    stamp.touch()
    depfile.write_text(f"{sys.argv[4]}: {source}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
