"""python -m rooflane VERB ARGUMENT...: the command line. Becomes the program."""
from __future__ import annotations

import os
import sys

from rooflane import program
from rooflane.errors import Unavailable


def main() -> int:
    """Does not return where the program can be started; its exit status is this one's."""
    try:
        path = str(program.path())
        os.execv(path, [path, *sys.argv[1:]])
    except Unavailable as reason:
        print(f"rooflane: {reason}", file=sys.stderr)
    except OSError as error:
        print(f"rooflane: {path}: {error.strerror}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
