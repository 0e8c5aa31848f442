"""What --help does in scripts that install or build before they read arguments. Not a script;
standard library only."""
from __future__ import annotations

import sys
from collections.abc import Sequence


def asks_for_help(words: Sequence[str]) -> bool:
    """Whether a command line asks for help, for which nothing may be installed."""
    return not {"-h", "--help"}.isdisjoint(words)


def answer_help() -> None:
    """Ends a script that is asked for help with the text that opens it."""
    if asks_for_help(sys.argv[1:]):
        print((sys.modules["__main__"].__doc__ or "").strip())
        sys.exit(0)
