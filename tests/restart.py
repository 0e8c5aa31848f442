"""For tests with packages from PyPI: they go on in an environment that has them, or are skipped
where it cannot be had."""
from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import skip

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def in_environment(name: str, packages: Sequence[str], **variables: str) -> None:
    """Returns in the interpreter of environment `name`, started with these variables."""
    sys.path.insert(0, str(SCRIPTS))
    from python_environment import Unavailable, with_packages
    try:
        python = with_packages(name, packages)
    except Unavailable as reason:
        if "PyPI cannot be reached" in str(reason):
            skip.everything(str(reason), f"from PyPI: {' '.join(packages)}")
        sys.exit(f"no environment: {reason}")
    if Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.environ.update(variables)
        os.execv(python, [str(python), *sys.argv])
