#!/usr/bin/env python3
"""The MCP server, through the client of the package mcp: judge_mcp_test.py ROOFLANE. What is
judged is judged by fake_judge.py, but for one source.
"""
from __future__ import annotations

import tune_environment

if __name__ == "__main__":
    tune_environment.enter("judge_server")

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from rooflane import program
from rooflane.judging import Judge, Request
from rooflane.mcp.arguments import BUDGET
from rooflane.mcp.desk import Desk
from rooflane.mcp.server import server_of

import judging
import skip

PROGRAM = ""
FAKE = Path(__file__).resolve().parent / "fake_judge.py"
KERNEL = "void softmax(const float* x, float* y, int64_t rows, int64_t cols) {}\n"
Talk = Callable[[Client], Awaitable[None]]


class Server(unittest.TestCase):
    """Each test talks to a server of its own, in a process of its own where that matters."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.environment = {
            **os.environ, "PYTHONPATH": str(tune_environment.ROOT / "python"),
            "ROOFLANE_PROGRAM": str(FAKE), "FAKE_PROGRAM": PROGRAM,
            "FAKE_ARCHIVE": str(self.folder / "attempts")}

    def talk(self, to_say: Talk) -> None:
        """Says it to the server's tools in this process: to import them takes seconds."""
        async def whole(desk: Desk) -> None:
            async with Client(server_of(desk, BUDGET, False), read_timeout_seconds=600) as client:
                await to_say(client)

        with mock.patch.dict(os.environ, self.environment):
            desk = Desk(Judge(), "")
            try:
                asyncio.run(whole(desk))
            finally:
                desk.close()

    def talk_to_process(self, to_say: Talk, *options: str) -> None:
        """Starts the server, says it, and ends the server."""
        async def whole() -> None:
            server = StdioServerParameters(command=sys.executable,
                                           args=["-m", "rooflane.mcp", *options],
                                           env=self.environment)
            async with Client(server, read_timeout_seconds=600) as client:
                await to_say(client)

        asyncio.run(whole())

    async def call(self, client: Client, tool: str, **arguments: Any) -> Any:
        """What a tool answers."""
        result = await client.call_tool(tool, arguments)
        self.assertFalse(result.is_error, result.content)
        return result.structured_content

    async def result(self, client: Client, ticket: int) -> Any:
        """What became of a submission; a call waits for a minute at most."""
        while (told := await self.call(client, "result", ticket=ticket))["state"] in (
                "waiting", "judging"):
            pass
        return told

    async def refuse(self, client: Client, words: str, tool: str, **arguments: Any) -> None:
        """A tool that says why not."""
        result = await client.call_tool(tool, arguments)
        self.assertTrue(result.is_error)
        self.assertIn(words, result.content[0].text)

    def test_the_five_tools_say_what_they_do(self) -> None:
        async def say(client: Client) -> None:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            self.assertEqual(sorted(tools),
                             ["describe", "history", "list_kernels", "result", "submit"])
            for tool in tools.values():
                self.assertGreater(len(tool.description), 60, tool.name)
            self.assertEqual(tools["submit"].input_schema["required"], ["kernel", "source"])

        self.talk(say)

    def test_the_skill_names_tools_and_verdicts(self) -> None:
        skill = (tune_environment.ROOT / "python/rooflane/SKILL.md").read_text(encoding="utf-8")
        self.assertTrue(skill.startswith("---\nname: rooflane-judge\ndescription: "))
        for word in ("describe", "submit", "result", "history", *judging.RIGHT, "BUILD", "FAILED",
                     "INACCURATE", "SUSPECT", "CRASH", "TIMEOUT"):
            self.assertIn(f"`{word}`", skill)

    def test_the_kernels_and_the_task(self) -> None:
        async def say(client: Client) -> None:
            kernels = (await self.call(client, "list_kernels"))["result"]
            self.assertIn("softmax", [kernel["name"] for kernel in kernels])
            told = await self.call(client, "describe", kernel="softmax",
                                   shape="softmax:rows=4,cols=8")
            self.assertIn("const float* x", told["signature"])
            self.assertIn("softmax(", told["template"])
            self.assertIn("cpu", told["machine"])
            peers = {peer["variant"]: peer for peer in told["peers"]}
            self.assertGreater(peers["hwy"]["p50_us"], 0)
            self.assertGreater(peers["hwy"]["roof_us"], 0)
            self.assertFalse({"scalar", "opencl"} & set(peers), peers)
            await self.refuse(client, "no kernel 'sofmax'", "describe", kernel="sofmax")
            await self.refuse(client, "colums", "describe", kernel="softmax",
                              shape="softmax:rows=4,colums=8")

        self.talk(say)

    def test_from_a_source_to_its_verdict_and_its_history(self) -> None:
        async def say(client: Client) -> None:
            told = await self.call(client, "submit", kernel="softmax",
                                   source="/* fake: verdict=WINNER ratio=0.5 */\n" + KERNEL)
            wrong = await self.call(client, "submit", kernel="softmax",
                                    source="/* fake: verdict=FAILED */\n" + KERNEL)
            judged = await self.result(client, told["ticket"])
            self.assertEqual((judged["state"], judged["document"]["verdict"]),
                             ("judged", "WINNER"))
            self.assertNotIn("text", judged["document"]["source"])
            failed = await self.result(client, wrong["ticket"])
            self.assertEqual(failed["document"]["first_wrong"]["index"], [0, 3])
            history = (await self.call(client, "history", kernel="softmax"))["attempts"]
            self.assertEqual([one["verdict"] for one in history], ["WINNER", "FAILED"])
            self.assertEqual(history[0]["shapes"][0]["peers"], {"hwy": 2.0})
            whole = (await self.call(client, "history", attempt=2))["attempts"][0]
            self.assertIn("verdict=FAILED", whole["source"]["text"])
            await self.refuse(client, "no attempt 77", "history", attempt=77)
            await self.refuse(client, "no ticket 9", "result", ticket=9)

        self.talk_to_process(say)

    def test_who_does_not_wait_asks_again(self) -> None:
        async def say(client: Client) -> None:
            end = self.folder / "end"
            slow = f"/* fake: verdict=TIE until={end} */\n" + KERNEL
            tickets = [(await self.call(client, "submit", kernel="softmax", source=slow))["ticket"]
                       for _ in range(2)]
            second = await self.call(client, "result", ticket=tickets[1], wait_s=0)
            self.assertEqual(second, {"ticket": 2, "state": "waiting"})
            end.touch()
            second = await self.result(client, tickets[1])
            self.assertEqual(second["document"]["attempt"], 2)

        self.talk(say)

    def test_what_the_judge_refuses_is_told(self) -> None:
        async def say(client: Client) -> None:
            told = await self.call(client, "submit", kernel="softmax",
                                   source="/* fake: refuse=3 */\n" + KERNEL)
            refused = await self.result(client, told["ticket"])
            self.assertEqual(refused["state"], "refused")
            self.assertIn("no jail", refused["reason"])
            huge = await self.call(client, "submit", kernel="softmax", source="/" * (2 << 20))
            self.assertIn("characters", (await self.result(client, huge["ticket"]))["reason"])
            await self.refuse(client, "budget_s", "submit", kernel="softmax", source=KERNEL,
                              budget_s=-1)
            await self.refuse(client, "", "submit", kernel="softmax", source=KERNEL,
                              language="fortran")

        self.talk_to_process(say)

    def test_no_text_of_a_client_is_an_option(self) -> None:
        self.environment |= {"ROOFLANE_PROGRAM": PROGRAM}

        async def say(client: Client) -> None:
            await self.refuse(client, "--plugin", "describe", kernel="softmax",
                              shape="--plugin=mine=/tmp/mine.so")
            for words in ({"kernel": "--unsafe"}, {"kernel": "softmax", "shapes": ["--unsafe"]},
                          {"kernel": "softmax", "against": ["--unsafe"]}):
                told = await self.call(client, "submit", source=KERNEL, **words)
                refused = await self.result(client, told["ticket"])
                self.assertEqual(refused["state"], "refused", refused)
                self.assertIn("--unsafe", refused["reason"])

        self.talk_to_process(say)

    def test_a_source_is_judged_in_the_jail(self) -> None:
        if reason := judging.no_jail(PROGRAM):
            self.skipTest(skip.reason(reason, judging.PACKAGES))
        self.environment |= {"ROOFLANE_PROGRAM": PROGRAM}
        archive = str(self.folder / "real")

        async def say(client: Client) -> None:
            for name in ("honest/plain.c", "cheats/18-nan-games.c"):
                text = (judging.TESTS / name).read_text(encoding="utf-8")
                await self.call(client, "submit", kernel="softmax", source=text, budget_s=0.3,
                                shapes=["softmax:rows=24,cols=256"], against=["hwy"])
            found = [(await self.result(client, ticket))["document"]["verdict"]
                     for ticket in (1, 2)]
            self.assertIn(found[0], judging.RIGHT)
            self.assertEqual(found[1], "FAILED")
            history = (await self.call(client, "history"))["attempts"]
            self.assertEqual([each["verdict"] for each in history], found)

        self.talk_to_process(say, "--archive", archive)

    def test_too_many_submissions_are_refused(self) -> None:
        async def say(client: Client) -> None:
            slow = f"/* fake: until={self.folder / 'never'} */\n" + KERNEL
            for _ in range(16):
                await self.call(client, "submit", kernel="softmax", source=slow)
            await self.refuse(client, "16 submissions wait", "submit", kernel="softmax",
                              source=slow)

        self.talk_to_process(say)  # and the server ends without judging what waits

    def test_a_judge_that_is_stopped_before_it_has_begun_leaves_no_process(self) -> None:
        with mock.patch.dict(os.environ, self.environment):
            judge = Judge()
            judge.stop()
            with self.assertRaises(program.Refused) as refused:
                judge.judge(f"/* fake: until={self.folder / 'never'} */\n" + KERNEL,
                            Request("softmax", budget=1))
        self.assertNotIn("did not end", str(refused.exception))

    def test_the_command_line_is_checked(self) -> None:
        for words, status, says in ((["--budget", "0"], 2, "more than 0"),
                                    (["--nope"], 2, "--nope"), (["--help"], 0, "--unsafe")):
            done = subprocess.run([sys.executable, "-m", "rooflane.mcp", *words],
                                  env=self.environment, capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(says, done.stdout + done.stderr)

    def test_without_the_package_the_reason_is_told(self) -> None:
        (self.folder / "mcp").mkdir()
        (self.folder / "mcp/__init__.py").write_text(
            "raise ModuleNotFoundError('no mcp', name='mcp')")
        self.environment["PYTHONPATH"] = f"{self.folder}:{self.environment['PYTHONPATH']}"
        done = subprocess.run([sys.executable, "-m", "rooflane.mcp"], env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("pip install 'rooflane[mcp]'", done.stderr)

    def test_standard_output_holds_the_protocol_alone(self) -> None:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}}
        done = subprocess.run([sys.executable, "-m", "rooflane.mcp"], env=self.environment,
                              input=json.dumps(asked) + "\n", capture_output=True, text=True,
                              check=False, timeout=600)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line["id"] for line in lines], [1])
        self.assertEqual(lines[0]["result"]["serverInfo"]["name"], "rooflane")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    skip.main(sys.argv[:1] + sys.argv[2:])
