"""Starts the MCP server on standard input and output; ends with its input."""
from __future__ import annotations

import sys

from rooflane import program
from rooflane.errors import Unavailable
from rooflane.judging import Judge
from rooflane.mcp.arguments import arguments_of


def main(words: list[str]) -> int:
    """From arguments to the exit status."""
    given = arguments_of(words)
    try:
        from rooflane.mcp.server import server_of
    except ModuleNotFoundError as missing:
        print(f"rooflane: the package {missing.name} is missing: pip install 'rooflane[mcp]'",
              file=sys.stderr)
        return program.UNAVAILABLE
    from rooflane.mcp.desk import Desk
    try:
        desk = Desk(Judge(), given.archive)
    except Unavailable as reason:
        print(f"rooflane: {reason}", file=sys.stderr)
        return program.UNAVAILABLE
    try:
        server_of(desk, given.budget, given.unsafe).run("stdio")
    except KeyboardInterrupt:
        pass  # as good an end as that of the input
    finally:
        desk.close()
    return 0
