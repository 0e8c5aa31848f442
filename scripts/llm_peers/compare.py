"""The comparison itself; llm_compare.py starts it in an environment that has its packages."""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rooflane.generate.template import chat_text
from rooflane.generate.vocabulary import Vocabulary

from llm_peers import drafts, float32_copy, formats, kept, levels, processes, speed, tokens
from llm_peers.double_reference import DoubleReference

PROMPTS = Path(__file__).resolve().parent / "prompts.txt"
CONTEXT = 2048


def arguments_of(words: list[str]) -> argparse.Namespace:
    """The command line; llm_compare.py adds the paths."""
    parser = argparse.ArgumentParser(prog="llm_compare.py", allow_abbrev=False)
    parser.add_argument("what", nargs="*", default=[], help="default: tokens, speed, quantised",
                        choices=["tokens", "speed", "quantised", "levels", "formats", "drafts"])
    parser.add_argument("--prompts", metavar="N", type=int, help="only the first N of 20")
    parser.add_argument("--tokens", metavar="N", type=int, default=200)
    parser.add_argument("--tokens-of-text", metavar="N", type=int,
                        help="of levels: only the first N")
    parser.add_argument("--rounds", metavar="N", type=int, default=7)
    parser.add_argument("--threads", metavar="N,...", help="default: 1 and all physical cores")
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep the results")
    parser.add_argument("--math", metavar="M", default="fp32",
                        help="of quantised and drafts: fp32 (default), int8-dynamic, bf16")
    parser.add_argument("--weight-type", metavar="T", default="file", help="of drafts")
    parser.add_argument("--formats", metavar="NAME,...", default=",".join(formats.FORMATS),
                        help="of formats: only these; default: all")
    parser.add_argument("--results", metavar="FOLDER", type=Path,
                        help="of formats: keep the rows there, beside those of other calls")
    parser.add_argument("--kv-type", metavar="T", default="f32", help="of quantised")
    parser.add_argument("--levels", metavar="NAME;...", help="of levels: only these; default: all")
    parser.add_argument("--no-transformers", action="store_true", help="llama.cpp alone")
    for path in ("program", "weights", "llama-python"):
        parser.add_argument(f"--{path}", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--transformers-python", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--transformers-variables", type=json.loads, default={},
                        help=argparse.SUPPRESS)
    parser.add_argument("--onnx-python", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    for name in given.formats.split(","):
        if name not in formats.FORMATS:
            parser.error(f"unknown format '{name}'; allowed are {', '.join(formats.FORMATS)}")
    return given


def copy_of(weights: Path, kind: str) -> Path:
    """The copy in this format beside the file, made now if need be; of none the file itself."""
    if not kind:
        return weights
    name = f"{weights.name.split('.')[0]}.{kind}.gguf"
    copy = weights.with_name(name)
    if not copy.exists():
        print(f"writing {copy}", file=sys.stderr, flush=True)
        partial = weights.with_name(name + ".partial")
        float32_copy.copy(weights, partial, kind)
        partial.rename(copy)
    return copy


def onnx_folder(given: argparse.Namespace, precision: str) -> Path:
    """ONNX Runtime's folder beside the file, made now if need be. Raises Ended."""
    folder = given.weights.with_name(f"{given.weights.name.split('.')[0]}.onnx-{precision}")
    if not folder.exists():
        print(f"writing {folder}", file=sys.stderr, flush=True)
        packages = next(given.transformers_python.parent.parent.glob("lib/python*/site-packages"))
        partial = folder.with_name(folder.name + ".partial")
        done = subprocess.run(
            [given.onnx_python, Path(__file__).with_name("onnx_folder.py"), given.weights, partial,
             precision], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1"})
        if done.returncode != 0:
            raise processes.Ended(f"onnx_folder.py: {done.stderr.strip().splitlines()[-1]}")
        partial.rename(folder)
    return folder


def same_tokens(given: argparse.Namespace, copy: Path,
                peer: processes.LlamaCpp) -> list[tokens.Continuation]:
    """Every prompt; the tokenizers of Rooflane and llama.cpp must agree first."""
    metadata, vocabulary = vocabulary_of(given)
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


def thread_counts(given: argparse.Namespace) -> list[int]:
    """As asked for, else 1 and all."""
    cores = len(os.sched_getaffinity(0))
    return [int(count) for count in given.threads.split(",")] if given.threads else \
        sorted({1, cores})


def speeds(given: argparse.Namespace, peer: processes.LlamaCpp,
           words: list[str]) -> list[speed.Rounds]:
    """Every thread count; ours with these further arguments."""
    results = []
    for count in thread_counts(given):
        session = processes.Session(given.program, given.weights, count, words)
        results += speed.measure(session, {"llama.cpp": peer}, count, given.rounds)
        session.close()
    return results


def all_formats(given: argparse.Namespace) -> list[speed.Rounds]:
    """Each beside its peers."""
    programs = formats.Programs(
        given.program, given.llama_python, CONTEXT, lambda kind: copy_of(given.weights, kind),
        given.transformers_python, given.transformers_variables, given.onnx_python,
        lambda precision: onnx_folder(given, precision))
    return formats.measure(given.formats.split(","), programs, thread_counts(given), given.rounds)


def vocabulary_of(given: argparse.Namespace) -> tuple[dict[str, Any], Vocabulary]:
    """The file's metadata and vocabulary."""
    told = subprocess.run([given.program, "generate", "--weights", given.weights, "--metadata"],
                          check=True, stdout=subprocess.PIPE)
    metadata = json.loads(told.stdout)["metadata"]
    return metadata, Vocabulary(metadata)


def all_drafts(given: argparse.Namespace) -> list[drafts.Prompt]:
    """Prompts that repeat, then the others."""
    metadata, vocabulary = vocabulary_of(given)
    texts = {file.stem: file.read_text(encoding="utf-8").strip()
             for file in sorted(drafts.REPEATING.glob("*.txt"))}
    texts |= {text: text for text in PROMPTS.read_text(encoding="utf-8").splitlines()}
    ids = {name: vocabulary.encode(chat_text(metadata, vocabulary, text))
           for name, text in list(texts.items())[:given.prompts]}
    words = ["--math", given.math, "--kv-type", given.kv_type, "--weight-type", given.weight_type,
             "--threads", str(thread_counts(given)[-1])]
    return drafts.measure(given.program, given.weights, ids, given.tokens, given.rounds, words)


def all_levels(given: argparse.Namespace) -> list[levels.Level]:
    """The levels at the largest thread count."""
    _, vocabulary = vocabulary_of(given)
    ids = vocabulary.encode(levels.TEXT.read_text(encoding="utf-8").strip())
    threads = thread_counts(given)[-1]
    names = given.levels.split(";") if given.levels else []
    return levels.measure(given.program, given.weights, ids[:given.tokens_of_text], threads,
                          given.rounds, names)


def written(given: argparse.Namespace, results: dict[str, list[dict[str, object]]],
            status: int) -> int:
    """The status, results written where asked."""
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return status


def main(words: list[str]) -> int:
    """Exit status 1: a difference of tokens that float32 does not explain."""
    given = arguments_of(words)
    what = given.what or ["tokens", "speed", "quantised"]
    results: dict[str, list[dict[str, object]]] = {}
    status = 0
    try:
        if "levels" in what:
            found = all_levels(given)
            print(levels.table(found) + "\n", flush=True)
            results["levels"] = [asdict(level) for level in found]
        if "formats" in what:
            measured = all_formats(given)
            print(speed.table(measured) + "\n", flush=True)
            results["formats"] = [asdict(row) for row in measured]
            if given.results:
                kept.keep(given.results, given.program, measured, list(formats.FORMATS))
        if "drafts" in what:
            prompts = all_drafts(given)
            print(drafts.table(prompts) + "\n", flush=True)
            results["drafts"] = [asdict(row) for row in prompts]
            status = 0 if all(row.same for row in prompts) else 1
        if not {"tokens", "speed", "quantised"} & set(what):
            return written(given, results, status)
        copy = copy_of(given.weights, "F32")
        peer = processes.LlamaCpp(given.llama_python, copy, CONTEXT)
        if "tokens" in what:
            rows = same_tokens(given, copy, peer)
            print(tokens.table(rows) + "\n", flush=True)
            results["tokens"] = [asdict(row) | {"explained": row.explained} for row in rows]
            status = status if all(row.explained for row in rows) else 1
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
    return written(given, results, status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
