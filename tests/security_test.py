#!/usr/bin/env python3
"""What SECURITY.md promises and no other test shows: servers listen on 127.0.0.1 alone, keys reach
no file, and texts of strangers are printed, never looked up or obeyed. security_test.py ROOFLANE
ROOFLANE_WITH_FAKES.
"""
from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path

import faults
import tune_environment
from faults import BENCH, Faults, lines_of

KEY = "an-odd.key/" + "0123456789" * 2
EVIL = "$(touch owned);`touch owned`|touch owned&<script>alert(1)</script>\"'"
# What else Markdown would obey: a picture, a link's address, a line of its own.
EVIL_MARKDOWN = EVIL + "![](http://127.0.0.1/seen)[x]: http://127.0.0.1/ \n\n# owned"


class Servers(Faults):
    def listening(self, process: int) -> list[str]:
        """The addresses at which a process listens, in the kernel's hexadecimal form."""
        sockets = set()
        for file in Path(f"/proc/{process}/fd").iterdir():
            try:
                sockets.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink(file)))
            except OSError:
                continue  # closed meanwhile
        found = []
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and words[9] in sockets:  # TCP_LISTEN
                    found.append(words[1].partition(":")[0])
        return found

    def test_a_cluster_on_one_machine_listens_on_127_0_0_1_alone(self) -> None:
        python = tune_environment.interpreter(self)
        self.environment |= {"PYTHONPATH": str(tune_environment.ROOT / "python"),
                             "ROOFLANE_PROGRAM": self.rooflane}
        about = self.folder / "scheduler.json"
        with open(self.folder / "log.txt", "w", encoding="utf-8") as log:
            def node(*words: str) -> subprocess.Popen:
                process = self.start("-m", "rooflane.verbs", *words, program=python, stdout=log,
                                     stderr=log)
                self.addCleanup(process.wait)
                self.addCleanup(process.terminate)
                return process

            scheduler = node("scheduler", "--port", "0", "--scheduler-file", str(about))
            self.wait_for(lambda: about.exists() and about.read_text().endswith("}"), scheduler)
            worker = node("worker", json.loads(about.read_text())["address"], "--local-directory",
                          str(self.folder), "--death-timeout", "200")
            self.wait_for(lambda: "Starting established connection" in
                          (self.folder / "log.txt").read_text() and
                          sum(len(self.listening(one)) for one in self.processes()) > 2, worker)
            listening = [where for one in self.processes() for where in self.listening(one)]
        self.assertGreater(len(listening), 2, (self.folder / "log.txt").read_text())
        self.assertEqual(set(listening), {"0100007F"})  # 127.0.0.1

    def test_the_script_of_the_language_model_names_the_address(self) -> None:
        script = (tune_environment.ROOT / "scripts/llm_server.sh").read_text(encoding="utf-8")
        self.assertIn("--host 127.0.0.1 ", script)


class Keys(Faults):
    def test_no_file_of_a_run_holds_a_key_of_the_environment(self) -> None:
        self.environment |= {"ROOFLANE_TUNE_PYTHON": tune_environment.interpreter(self),
                             "ROOFLANE_TUNER": str(tune_environment.ROOT / "scripts/tune.py"),
                             "ROOFLANE_LLM_URL": "http://127.0.0.1:9/v1", "ROOFLANE_LLM_MODEL": "m",
                             "OPENAI_API_KEY": KEY, "XDG_CACHE_HOME": str(self.folder / "cache")}
        status, _, err = self.call(*BENCH, "--csv", "rows.csv", "--json", "rows.json")
        self.assertEqual(status, 0, err)
        # The fakes' pauses decide, however busy the machine is: what is undecided is not exported.
        status, _, err = self.call("tune", "--shape", "softmax:rows=4,cols=8", "-v",
                                   "fake-tunable", "--threads", "1", "--strategy", "llm",
                                   "--budget", "3", "--timeout", "10", "--archive", "a.sqlite",
                                   "--report", "report", "--export", "tuned.json",
                                   program=self.fakes)
        self.assertEqual(status, 0, err)
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        self.assertGreaterEqual({path.name for path in files},
                                {"rows.csv", "rows.json", "a.sqlite", "report.html", "tuned.json"})
        for path in files:
            self.assertNotIn(KEY.encode(), path.read_bytes(), path)

    def test_a_key_in_a_reason_reaches_no_report(self) -> None:
        tried = ("import sys, pathlib; from rooflane.report import write; from rooflane.tuning "
                 "import *; from rooflane.report.run import Run; import os\n"
                 "key = os.environ['OPENAI_API_KEY']\n"
                 "space = Space('gemm', 'hwy', 'gemm:m=8', 'fp32', 1, 'AVX3', '', (), {'x': 0}, (),"
                 " None)\n"
                 "trial = Trial(0, {'x': 0}, Outcome.CRASH, 's', 'seed', 'note ' + key, 'why ' + "
                 "key, None, [], [], None, None, Cost())\n"
                 "write(pathlib.Path('report'), Run(space, [trial], None, [], 's', 1, 'c', 'b'))\n")
        done = subprocess.run([tune_environment.interpreter(self), "-c", tried], cwd=self.folder,
                              capture_output=True, text=True, check=False, env={
                                  **self.environment, "OPENAI_API_KEY": KEY,
                                  "PYTHONPATH": str(tune_environment.ROOT / "python")})
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("report.txt", "report.html"):
            text = (self.folder / "report" / name).read_text(encoding="utf-8")
            self.assertIn("why ", text)
            self.assertNotIn(KEY, text)


class Texts(Faults):
    """Strangers' files are data: no word of them is executed, opened or left unescaped."""

    def not_obeyed(self) -> None:
        self.assertFalse((self.folder / "owned").exists())

    def test_rows(self) -> None:
        status, _, err = self.call(*BENCH, "--csv", "rows.csv")
        self.assertEqual(status, 0, err)
        rows = lines_of(self.csv)
        strange = ("variant", "library", "host", "cpu", "build_commit")
        rows[0] |= dict.fromkeys(strange, EVIL_MARKDOWN)
        rows[1] |= {"status": "FAILED", "reason": EVIL_MARKDOWN}
        with open(self.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        for words in (["roofline", "rows.csv"], ["compare", "rows.csv", "rows.csv"]):
            status, out, err = self.call(*words)
            self.assertIn(status, (0, 1), err)
        for words in (["roofline", "rows.csv", "--markdown"],
                      ["compare", "rows.csv", "rows.csv", "--markdown"]):
            status, out, err = self.call(*words)
            self.assertIn(status, (0, 1), err)
            lines = out.splitlines()
            cells = [line for line in lines if "&lt;script>" in line and line.startswith("| ")]
            bullets = [line for line in lines if "&lt;script>" in line and line.startswith("- ")]
            self.assertGreater(len(cells), 0, out)
            self.assertGreater(len(bullets), 0, out)
            self.assertIn("FAILED", "".join(bullets))  # with its reason
            for harm in ("<script>", r"(?<!\\)\][(:]", r"(?m)^# owned"):
                self.assertNotRegex(out, harm)
        self.not_obeyed()

    def test_models_presets_and_shapes(self) -> None:
        for name, text in (("model.txt", f"model {EVIL}\ninput x [2,3]\n"),
                           ("expression.txt", "model m\ninput x [__import__('os').system('touch "
                                              "owned'),3]\n")):
            (self.folder / name).write_text(text, encoding="utf-8")
            status, _, err = self.call("model", name)
            self.assertEqual((status, len(self.errors(err))), (2, 1), err)
        (self.folder / "preset.txt").write_text(f"gemm:m={EVIL},n=8,k=8\n", encoding="utf-8")
        self.refuse(2, ["preset.txt"], "bench", "--preset", "./preset.txt", "--dry-run")
        self.refuse(2, ["m="], "bench", "--shape", f"gemm:m={EVIL},n=8,k=8", "--dry-run")
        self.not_obeyed()

    def test_an_archive_of_a_stranger(self) -> None:
        self.environment |= {"ROOFLANE_TUNE_PYTHON": tune_environment.interpreter(self),
                             "ROOFLANE_TUNER": str(tune_environment.ROOT / "scripts/tune.py"),
                             "ROOFLANE_ARCHIVE": str(self.folder / "a.sqlite")}
        status, _, err = self.call("tune", "--shape", "gemm:m=8,n=8,k=8", "--threads", "1",
                                   "--strategy", "random", "--budget", "2", "--final-time", "5",
                                   "--no-store")
        self.assertEqual(status, 0, err)
        with sqlite3.connect(self.folder / "a.sqlite") as archive:
            archive.execute("UPDATE evaluations SET record=json_set(record, '$.reason', ?, "
                            "'$.note', ?, '$.strategy', ?)", (EVIL,) * 3)
            archive.execute("UPDATE runs SET record=json_set(record, '$.strategy', ?)", (EVIL,))
        archive.close()
        for verb in ("list", "best", "history", "statistics"):
            status, _, err = self.call("archive", verb)
            self.assertIn(status, (0, 2), err)
            self.assertNotIn("Traceback", err)
        self.not_obeyed()


if __name__ == "__main__":
    faults.main()
