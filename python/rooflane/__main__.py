"""python -m rooflane tune|archive|league ARGUMENT...: started by scripts/tune.py."""
from __future__ import annotations

import importlib
import sys

VERBS = {"tune": "rooflane.tune", "archive": "rooflane.archive", "league": "rooflane.league"}


def main() -> int:
    """Hands the arguments to the verb's module, whose main() returns the exit status."""
    verb, *words = sys.argv[1:] or [""]
    if verb not in VERBS:
        print(f"rooflane: '{verb}'; valid: {', '.join(VERBS)}", file=sys.stderr)
        return 2
    return importlib.import_module(VERBS[verb] + ".command").main(words)


if __name__ == "__main__":
    sys.exit(main())
