"""How tune.py and generate.py start their verb of the package python/rooflane; standard library
only."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from python_environment import Unavailable
from rooflane_json import PACKAGE, PROGRAM
from script_help import answer_help, asks_for_help


def start(words: Sequence[str], verb: Sequence[str], interpreter: Callable[[], Path], whose: str
          ) -> int:
    """Becomes `python -m rooflane.verbs VERB` in its interpreter. --prepare makes that alone,
    --python prints it. A verb's help is printed by this interpreter, since it needs no package.
    Returns only to say why not: the exit status."""
    if words[:1] in (["-h"], ["--help"]):
        answer_help()
    try:
        python = sys.executable if asks_for_help(words) else str(interpreter())
        if words[:1] == ["--prepare"]:
            return 0
        if words[:1] == ["--python"]:
            print(python)
            return 0
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        environment.setdefault("ROOFLANE_PROGRAM", str(PROGRAM))
        sys.stdout.flush()
        os.execve(python, [python, "-m", "rooflane.verbs", *verb], environment)
    except Unavailable as reason:
        print(f"rooflane: {whose} Python environment cannot be had: {reason}", file=sys.stderr)
    except OSError as error:
        print(f"rooflane: {error}", file=sys.stderr)
    return 3
