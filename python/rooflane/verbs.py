"""The verbs that are written in Python: python -m rooflane.verbs VERB ARGUMENT..., which
scripts/tune.py, generate.py and judge_server.py start in the environments that they make. Help
needs no environment: it comes from the modules `arguments`, which import the standard library
only."""
from __future__ import annotations

import importlib
import sys

FOLDERS = {"tune": "tuner", "archive": "archive", "league": "league", "generate": "generate",
           "bisect": "bisection", "mcp": "mcp"}
NODES = ("scheduler", "worker")  # of a cluster


def main() -> int:
    """Hands the arguments to the verb's module; its main() returns the exit status."""
    verb, *words = sys.argv[1:] or [""]
    if verb in NODES:
        return importlib.import_module("rooflane.tuner.nodes").main([verb, *words])
    if verb not in FOLDERS:
        print(f"rooflane: '{verb}'; valid: {', '.join([*FOLDERS, *NODES])}", file=sys.stderr)
        return 2
    folder = f"rooflane.{FOLDERS[verb]}"
    if not {"-h", "--help"}.isdisjoint(words):
        importlib.import_module(f"{folder}.arguments").arguments_of(words)
    return importlib.import_module(f"{folder}.command").main(words)


if __name__ == "__main__":
    sys.exit(main())
