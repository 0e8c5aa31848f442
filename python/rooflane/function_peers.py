"""What `rooflane bench --peers` asks while functions of a Python process take part: as
scripts/peers.py, which answers for all other names.

Standard library only, under whatever python3 is found; ROOFLANE_FUNCTIONS names the file that
user_variants.py wrote.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """--names, --prepare NAME..., --serve NAME, --library NAME."""
    file = os.environ["ROOFLANE_FUNCTIONS"]
    told = json.loads(Path(file).read_text(encoding="utf-8"))
    names = list(dict.fromkeys(one["name"] for one in told["functions"]))
    peers = [sys.executable, told["peers"]]
    action, *arguments = words
    if action == "--names":
        done = subprocess.run([*peers, action], check=False)
        print("\n".join(names), flush=True)
        return done.returncode
    if action == "--serve" and arguments[0] in names:
        sys.path.insert(0, told["scripts"])
        from peer_workers import environments  # type: ignore[import-not-found,unused-ignore]
        path = os.pathsep.join([told["scripts"], *filter(None, told["path"])])
        environment = {**os.environ, **environments.variables("numpy"), "PYTHONPATH": path}
        os.execve(told["python"], [told["python"], "-m", "rooflane.function_worker", file,
                                   arguments[0]], environment)
    others = [word for word in arguments if word not in names]
    if not others:
        return 0
    sys.stdout.flush()
    os.execv(peers[0], [*peers, action, *others])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
