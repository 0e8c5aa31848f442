"""The verbs that are written in Python: python -m rooflane.verbs VERB ARGUMENT..., which
scripts/tune.py and generate.py start in the environments that they make."""
from __future__ import annotations

import importlib
import sys

VERBS = {"tune": "rooflane.tuner.command", "archive": "rooflane.archive.command",
         "league": "rooflane.league.command", "generate": "rooflane.generate.command"}
NODES = ("scheduler", "worker")  # of a cluster


def main() -> int:
    """Hands the arguments to the verb's module, whose main() returns the exit status."""
    verb, *words = sys.argv[1:] or [""]
    if verb in NODES:
        return importlib.import_module("rooflane.tuner.nodes").main([verb, *words])
    if verb not in VERBS:
        print(f"rooflane: '{verb}'; valid: {', '.join([*VERBS, *NODES])}", file=sys.stderr)
        return 2
    return importlib.import_module(VERBS[verb]).main(words)


if __name__ == "__main__":
    sys.exit(main())
