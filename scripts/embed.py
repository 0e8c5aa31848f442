#!/usr/bin/env python3
"""Writes text files, one after the other, as a C++ string: embed.py [--plain] INPUT... OUTPUT NAME.
With --plain without the lines that show a compiler where the text came from."""
import os
import sys

from script_help import answer_help

answer_help()
*sources, output, name = sys.argv[1:]
plain = sources[0] == "--plain"
if plain:
    sources = sources[1:]
lines = []
for source in sources:
    # Build logs then name the file and line that one edits.
    if not plain:
        lines.append(f'#line 1 "{os.path.basename(source)}"')
    with open(source, encoding="utf-8") as file:
        lines += file.read().splitlines()
# One literal per line: compilers join them, and no raw-string delimiter can clash.
literals = "\n".join(
    '    "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"' for line in lines)
with open(output, "w", encoding="utf-8") as file:
    file.write(f"// Generated from {name}.\n#pragma once\n"
               f"namespace rooflane {{\ninline constexpr char {name}[] =\n{literals};\n}}\n")
