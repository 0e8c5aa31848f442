#!/usr/bin/env python3
"""The hostile sources of tests/hostile: judged or not, the machine and the archive are as before.
judge_hostile_test.py ROOFLANE [NAME...]
"""
from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import skip
from judging import TESTS, Judging

HOSTILE = TESTS / "hostile"
SECRET = "the-secret-of-the-test"
LEFT = ("rooflane-owned", "rooflane-filled*")
CORES = ("core", "core.*")  # of other tests' programs, too, in the folders of these
# Folders that everybody, or the user, may write to; the deeper ones are found there.
WRITABLE = ("/", "/etc", "/usr", "/usr/lib", "/var", "/var/tmp", "/dev/shm", "/run", "/opt",
            "/root", "/home", "/srv", "/mnt", os.path.expanduser("~"),
            os.path.expanduser("~/.cache"))
BEFORE = {"kernel": "softmax", "verdict": "WINNER", "attempt": 1, "source": {"text": "as before"}}
# Bytes that other programs may write meanwhile, environments of other tests among them; a source
# that fills disks writes a hundred times as much.
SLACK = 2 << 30


def processes() -> dict[int, str]:
    """The processes of the machine by number, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
    return found


def left_behind(folders: list[str]) -> set[str]:
    """Files of the names that hostile sources use; in the folders in /tmp, which are others', those
    that nobody else uses."""
    looked_for = [*((folder, pattern) for folder in folders for pattern in (*LEFT, *CORES)),
                  *((folder, pattern) for folder in glob.glob("/tmp/*/") for pattern in LEFT)]
    return {name for folder, pattern in looked_for for name in glob.glob(f"{folder}/{pattern}")}


def available() -> int:
    """Bytes of memory that may be had."""
    text = Path("/proc/meminfo").read_text()
    return 1024 * int(text.partition("MemAvailable:")[2].split()[0])


class Hostile(Judging):
    def setUp(self) -> None:
        super().setUp()
        self.victim = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.addCleanup(self.victim.wait)
        self.addCleanup(self.victim.kill)
        self.sentinel = self.folder / "sentinel"
        self.sentinel.write_text("as before\n")
        self.secret = self.folder / "secret"
        self.secret.write_text(SECRET + "\n")
        self.secret.chmod(0o600)
        # An attempt that the archive keeps.
        self.archive.write_text(json.dumps(BEFORE) + "\n")

    @contextlib.contextmanager
    def listening(self) -> Iterator[tuple[int, str, list[str]]]:
        """A port of 127.0.0.1, an abstract name, and who called them."""
        calls: list[str] = []
        name = f"rooflane-{os.getpid()}-{time.monotonic_ns()}"
        with socket.create_server(("127.0.0.1", 0)) as port, \
                socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(f"\0{name}")
            abstract.listen()

            def take(line: socket.socket) -> None:
                with contextlib.suppress(OSError):
                    line.accept()
                    calls.append(str(line.getsockname()))

            threads = [threading.Thread(target=take, args=(line,), daemon=True)
                       for line in (port, abstract)]
            for thread in threads:
                thread.start()
            try:
                yield port.getsockname()[1], name, calls
            finally:
                for line in (port, abstract):  # wakes accept
                    line.shutdown(socket.SHUT_RDWR)
                for thread in threads:
                    thread.join()

    def attack(self, name: str, *words: str) -> dict[str, Any]:
        """Judges a hostile source, and asserts that all is as before."""
        folders = [*WRITABLE, str(self.folder), str(Path.cwd())]
        known = left_behind(folders)
        free = shutil.disk_usage(self.folder).free
        already = processes()
        with self.listening() as (port, abstract, calls):
            # Options are split at spaces, by no shell.
            flags = (f'-DSENTINEL="{self.sentinel}" -DSECRET="{self.secret}" '
                     f'-DPORT={port} -DABSTRACT="{abstract}" -DVICTIM={self.victim.pid}')
            document = self.judge(HOSTILE / name, *words, flags=flags)  # within its patience
        self.assertEqual(calls, [])
        self.assertEqual(left_behind(folders) - known, set())
        self.assertLess(free - shutil.disk_usage(self.folder).free, SLACK)
        self.assertEqual(self.sentinel.read_text(), "as before\n")
        self.assertIsNone(self.victim.poll())
        state = Path(f"/proc/{self.victim.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        self.assertEqual(state, "S")
        self.check_processes(already)
        self.check_archive(document)
        return document

    def check_processes(self, already: dict[int, str]) -> None:
        """Nothing that was started is left, some time later: a busy machine ends them slowly."""
        end = time.monotonic() + 60
        while True:
            started = {number: words for number, words in processes().items()
                       if number not in already and str(self.folder) in words}
            if not started or time.monotonic() > end:
                break
            time.sleep(0.1)
        self.assertEqual(started, {})

    def check_archive(self, document: dict[str, Any]) -> None:
        """It holds the attempt from before as it was, and this one."""
        done = self.call("--history", "-k", "softmax", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        before, attempt = json.loads(done.stdout)["attempts"]
        self.assertEqual(before, BEFORE)
        self.assertEqual(attempt["verdict"], document["verdict"])

    def says_nothing_of_the_secret(self, document: dict[str, Any]) -> None:
        self.assertNotIn(SECRET, str(document))

    def test_fork_bomb(self) -> None:
        self.attack("fork_bomb.c")

    def test_allocate_100gb(self) -> None:
        before = available()
        least = [before]
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.02):
                least.append(available())

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            self.attack("allocate_100gb.c")
        finally:
            over.set()
            thread.join()
        self.assertGreater(min(least), before / 4)

    def test_these_checks_see_what_no_jail_keeps_in(self) -> None:
        with self.listening() as (port, abstract, calls):
            self.judge(HOSTILE / "network.c", "--unsafe",
                       flags=f'-DPORT={port} -DABSTRACT="{abstract}"')
        self.assertEqual(len(calls), 2)

    def test_endless_compile(self) -> None:
        document = self.attack("endless_compile.cpp")
        self.assertIn(document["verdict"], ("BUILD", "TIMEOUT"))

    def test_huge_object(self) -> None:
        self.assertIn(self.attack("huge_object.c")["verdict"], ("BUILD", "TIMEOUT"))

    def test_includes_secrets(self) -> None:
        document = self.attack("includes_secrets.c")
        self.assertEqual(document["verdict"], "BUILD")
        self.says_nothing_of_the_secret(document)

    def test_reads_secrets(self) -> None:
        self.says_nothing_of_the_secret(self.attack("reads_secrets.c"))

    def test_writes_everywhere(self) -> None:
        self.attack("writes_everywhere.c")

    def test_network(self) -> None:
        self.attack("network.c")

    def test_ptrace(self) -> None:
        self.attack("ptrace.c")

    def test_kill_parent(self) -> None:
        self.attack("kill_parent.c")

    def test_core_dump(self) -> None:
        self.assertIn(self.attack("core_dump.c")["verdict"], ("CRASH", "TIMEOUT"))

    def test_fill_disk(self) -> None:
        self.attack("fill_disk.c")

    def test_endless_output(self) -> None:
        self.assertNotEqual(self.attack("endless_output.c")["verdict"], "WINNER")

    def test_stops_itself(self) -> None:
        self.assertEqual(self.attack("stops_itself.c")["verdict"], "TIMEOUT")

    def test_exits(self) -> None:
        self.assertEqual(self.attack("exits.c")["verdict"], "CRASH")

    def test_closes_all(self) -> None:
        self.attack("closes_all.c")

    def test_system_calls(self) -> None:
        self.attack("system_calls.c")

    def test_every_source_has_a_test(self) -> None:
        for path in HOSTILE.iterdir():
            self.assertTrue(hasattr(self, f"test_{path.stem}"), path.name)


if __name__ == "__main__":
    Judging.rooflane = os.path.abspath(sys.argv[1])
    skip.main(sys.argv[:1] + sys.argv[2:])
