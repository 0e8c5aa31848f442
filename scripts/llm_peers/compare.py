"""The comparison itself; llm_compare.py starts it in an environment that has its packages."""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from rooflane.generate.template import chat_text
from rooflane.generate.vocabulary import Vocabulary

from llm_peers import float32_copy, levels, processes, speed, tokens
from llm_peers.double_reference import DoubleReference

PROMPTS = Path(__file__).resolve().parent / "prompts.txt"
CONTEXT = 2048


def arguments_of(words: list[str]) -> argparse.Namespace:
    """The command line; llm_compare.py adds the paths."""
    parser = argparse.ArgumentParser(prog="llm_compare.py", allow_abbrev=False)
    parser.add_argument("what", nargs="*", choices=["tokens", "speed", "quantised", "levels"],
                        help="default: all but levels", default=[])
    parser.add_argument("--prompts", metavar="N", type=int, help="only the first N of 20")
    parser.add_argument("--tokens", metavar="N", type=int, default=200)
    parser.add_argument("--tokens-of-text", metavar="N", type=int,
                        help="of levels: only the first N")
    parser.add_argument("--rounds", metavar="N", type=int, default=7)
    parser.add_argument("--threads", metavar="N,...", help="default: 1 and all physical cores")
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep the results")
    parser.add_argument("--math", metavar="M", default="fp32",
                        help="of quantised: fp32 (default) or int8-dynamic")
    parser.add_argument("--kv-type", metavar="T", default="f32", help="of quantised")
    parser.add_argument("--levels", metavar="NAME;...", help="of levels: only these; default: all")
    parser.add_argument("--no-transformers", action="store_true", help="llama.cpp alone")
    for path in ("program", "weights", "llama-python"):
        parser.add_argument(f"--{path}", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--transformers-python", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--transformers-variables", type=json.loads, default={},
                        help=argparse.SUPPRESS)
    return parser.parse_args(words)


def float32_file(weights: Path) -> Path:
    """The float32 copy beside the file, made now if need be."""
    name = weights.name.split(".")[0] + ".F32.gguf"
    copy = weights.with_name(name)
    if not copy.exists():
        print(f"writing {copy}", file=sys.stderr, flush=True)
        partial = weights.with_name(name + ".partial")
        float32_copy.copy(weights, partial)
        partial.rename(copy)
    return copy


def same_tokens(given: argparse.Namespace, copy: Path,
                peer: processes.LlamaCpp) -> list[tokens.Continuation]:
    """Every prompt; the tokenizers of Rooflane and llama.cpp must agree first."""
    told = subprocess.run([given.program, "generate", "--weights", given.weights, "--metadata"],
                          check=True, stdout=subprocess.PIPE)
    metadata = json.loads(told.stdout)["metadata"]
    vocabulary = Vocabulary(metadata)
    reference = DoubleReference(copy)
    third = processes.Transformers(given.transformers_python, given.transformers_variables, copy) \
        if given.transformers_python else None
    rows = []
    for prompt in PROMPTS.read_text(encoding="utf-8").splitlines()[:given.prompts]:
        text = chat_text(metadata, vocabulary, prompt)
        ids = vocabulary.encode(text)
        if ids != peer.tokenize(text):
            raise processes.Ended(f"the tokenizers differ: {prompt}")
        # Ours from the file as it is, dequantised here; the peers from the copy that gguf made.
        rows.append(tokens.continued(prompt, ids, given.tokens, given.program, given.weights, peer,
                                     third, reference))
        print(f"{rows[-1].same} of {given.tokens} tokens: {prompt}", file=sys.stderr, flush=True)
    if third is not None:
        third.close()
    return rows


def speeds(given: argparse.Namespace, peer: processes.LlamaCpp,
           words: list[str]) -> list[speed.Rounds]:
    """Every thread count; ours with these further arguments."""
    cores = len(os.sched_getaffinity(0))
    counts = given.threads.split(",") if given.threads else sorted({"1", str(cores)})
    results = []
    for count in map(int, counts):
        session = processes.Session(given.program, given.weights, count, words)
        results += speed.measure(session, peer, count, given.rounds)
        session.close()
    return results


def all_levels(given: argparse.Namespace) -> list[levels.Level]:
    """Of the largest thread count."""
    told = subprocess.run([given.program, "generate", "--weights", given.weights, "--metadata"],
                          check=True, stdout=subprocess.PIPE)
    vocabulary = Vocabulary(json.loads(told.stdout)["metadata"])
    ids = vocabulary.encode(levels.TEXT.read_text(encoding="utf-8").strip())
    threads = int(given.threads.split(",")[-1]) if given.threads else len(os.sched_getaffinity(0))
    names = given.levels.split(";") if given.levels else []
    return levels.measure(given.program, given.weights, ids[:given.tokens_of_text], threads,
                          given.rounds, names)


def kept(given: argparse.Namespace, results: dict[str, list[dict[str, object]]],
         status: int) -> int:
    """The status, results written where asked."""
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return status


def main(words: list[str]) -> int:
    """Exit status 1: a difference of tokens that float32 does not explain."""
    given = arguments_of(words)
    what = given.what or ["tokens", "speed", "quantised"]
    copy = float32_file(given.weights)
    results: dict[str, list[dict[str, object]]] = {}
    status = 0
    try:
        if "levels" in what:
            found = all_levels(given)
            print(levels.table(found) + "\n", flush=True)
            results["levels"] = [asdict(level) for level in found]
        if what == ["levels"]:
            return kept(given, results, 0)
        peer = processes.LlamaCpp(given.llama_python, copy, CONTEXT)
        if "tokens" in what:
            rows = same_tokens(given, copy, peer)
            print(tokens.table(rows) + "\n", flush=True)
            results["tokens"] = [asdict(row) | {"explained": row.explained} for row in rows]
            status = 0 if all(row.explained for row in rows) else 1
        if "speed" in what:
            measured = speeds(given, peer, ["--weight-type", "f32"])
            print(speed.table(measured) + "\n", flush=True)
            results["speed"] = [asdict(row) for row in measured]
        peer.close()
        if "quantised" in what:
            peer = processes.LlamaCpp(given.llama_python, given.weights, CONTEXT)
            measured = speeds(given, peer, ["--math", given.math, "--kv-type", given.kv_type])
            print("Both from the quantised file:\n\n" + speed.table(measured), flush=True)
            results["quantised"] = [asdict(row) for row in measured]
            peer.close()
    except processes.Ended as reason:
        print(f"llm_compare: {reason}", file=sys.stderr)
        return 3
    return kept(given, results, status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
