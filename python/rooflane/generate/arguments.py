"""The command line of `rooflane generate` with a text, as the program hands it on. Standard library
only: its help needs no package."""
from __future__ import annotations

import argparse

# What the program takes with ids as it takes it here.
PASSED = ("weight-type", "math", "kv-type", "tokens", "temperature", "top-p", "seed", "threads",
          "draft", "draft-rows", "json", "logits")
FLAGS = ("no-fuse", "ignore-end", "times")


def arguments_of(words: list[str]) -> argparse.Namespace:
    """Reads the words that the program has let pass."""
    parser = argparse.ArgumentParser(prog="rooflane generate", allow_abbrev=False)
    parser.add_argument("--weights", required=True)
    for name in PASSED:
        parser.add_argument(f"--{name}")
    parser.add_argument("--stop", action="append", default=[])
    parser.add_argument("--chat", action="store_true")
    for name in FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("PROMPT")
    return parser.parse_args(words)
