"""The tools of the MCP server. What they do is desk.py's; here are the words for the program that
calls them.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal

import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from rooflane import judging, program
from rooflane.judging import Request
from rooflane.mcp.desk import Desk

INSTRUCTIONS = """\
Rooflane verifies and times numeric kernels on this machine's CPU. list_kernels says which there
are, describe what one has to compute, its C signature, a source that passes, and how fast the
others are. submit takes your source and returns a ticket; result waits for the verdict: whether it
is right on shapes and values that you have not seen, how fast it is beside each peer and the
machine's roof, the instructions of the hot loop, and what is worth trying next. history shows
earlier attempts. Only verdicts WINNER, TIE, LOSER and UNDECIDED are of right kernels."""
LONGEST_WAIT = 50.0  # seconds of a call: clients give up after a minute


def server_of(desk: Desk, budget: float, unsafe: bool) -> MCPServer:
    """The server with its tools; `budget`: the most seconds of a submission."""
    server = MCPServer("rooflane", title="Rooflane judge", instructions=INSTRUCTIONS)

    def tool(function: Callable[..., Any]) -> Callable[..., Any]:
        """A tool that may take long, in a thread of its own; what the program refuses is told."""
        @functools.wraps(function)
        async def told(**arguments: Any) -> Any:
            try:
                return await anyio.to_thread.run_sync(lambda: function(**arguments))
            except (program.Refused, ValueError) as refused:
                raise ToolError(str(refused)) from refused

        told.__doc__ = inspect.cleandoc(function.__doc__ or "")
        return server.tool()(told)

    @tool
    def list_kernels() -> list[dict[str, Any]]:
        """The kernels: name, what is computed, and the parameters that a shape may name."""
        return [{"name": kernel["name"], "computes": kernel["summary"],
                 "parameters": kernel["parameters"]} for kernel in desk.ask("list")["kernels"]]

    @tool
    def describe(kernel: str, shape: str = "", threads: int = 1) -> dict[str, Any]:
        """What a kernel has to compute: the C signature, a source that passes, the machine with its
        measured traits. With a shape ("softmax:rows=512,cols=1000") also the times of the peers on
        it, measured now in some seconds, and the roof."""
        machine = desk.ask("doctor")
        known = next((each for each in desk.ask("list")["kernels"] if each["name"] == kernel), None)
        if known is None:
            raise ValueError(f"no kernel '{kernel}'; list_kernels names them")
        return {"kernel": kernel, "computes": known["summary"],
                "parameters": known["parameters"], "signature": desk.judge.signature(kernel, shape),
                "template": desk.judge.template(kernel), "machine": machine["machine"],
                "isa": [each["name"] for each in machine["isa_targets"] if each["here"]],
                "traits": machine["traits"],
                "peers": desk.peers(known, shape, threads) if shape else []}

    @tool
    def submit(kernel: str, source: str, shapes: list[str] | None = None, threads: int = 1,
               language: Literal["c", "c++", "opencl"] = "c", flags: str = "",
               against: list[str] | None = None, budget_s: float | None = None) -> dict[str, Any]:
        """Hands in the whole text of a source: the kernel's function, or a plugin's table.
        `shapes`: what is timed; default: the kernel's own. `flags`: of the compiler, in the place
        of the usual ones. `against`: variants to be timed beside; default: the best of this machine
        and the libraries. Returns a ticket for result."""
        seconds = budget if budget_s is None else min(budget_s, budget)
        if not seconds > 0:
            raise ValueError(f"budget_s {budget_s}: more than 0, up to {budget:g}")
        request = Request(kernel, tuple(shapes or ()), threads, tuple(against or ()),
                          budget=seconds, flags=flags, unsafe=unsafe, archive=desk.archive)
        return {"ticket": desk.submit(source, request, language)}

    @tool
    def result(ticket: int, wait_s: float = LONGEST_WAIT) -> dict[str, Any]:
        """The verdict of a submission: state is waiting, judging, judged (with the document) or
        refused (with the reason). Waits up to wait_s seconds for it."""
        return desk.result(ticket, min(max(wait_s, 0.0), LONGEST_WAIT))

    @tool
    def history(kernel: str = "", attempt: int | None = None, last: int = 20) -> dict[str, Any]:
        """Earlier attempts, of one kernel or all, the newest last, in short; with `attempt` that
        one whole, its source among it."""
        found = desk.history(kernel, attempt)
        if attempt is not None:
            return {"attempts": found}
        return {"attempts": [judging.summary(each) for each in found[-max(last, 1):]]}

    return server
