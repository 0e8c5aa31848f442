#!/usr/bin/env python3
"""Writes a text file as a C++ string constant: embed.py INPUT OUTPUT NAME."""
import sys

source, output, name = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    lines = file.read().splitlines()
# One literal per line: compilers join them, and no raw-string delimiter can clash.
literals = "\n".join(
    '    "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"' for line in lines)
with open(output, "w", encoding="utf-8") as file:
    file.write(f"// Generated from {name}.\n#pragma once\n"
               f"namespace rooflane {{\ninline constexpr char {name}[] =\n{literals};\n}}\n")
