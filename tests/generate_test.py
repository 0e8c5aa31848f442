#!/usr/bin/env python3
"""`rooflane generate` as a user meets it, on a model of two layers.

generate_test.py ROOFLANE ROOFLANE_WITH_FAKES CLASS...
What the program computes is held against a forward pass in double precision (tiny_llama.py). Texts
want the packages of scripts/generate.py: those tests are skipped where PyPI cannot be reached.
"""
from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import skip
import tiny_llama as tiny
from command_line import CommandLine, main, read_npy

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
PROMPT = [72, 101, 5, 200, 260]
TOKENS = 24


class Model(CommandLine):
    """A file of the model in each test's folder."""

    def model(self, values: dict[str, tuple[int, Any]] | None = None,
              weights: dict[str, tiny.Tensor] | None = None) -> str:
        """Writes a model and returns its path."""
        weights = weights or tiny.tensors()
        self.write("tiny.gguf", tiny.file_of(values or tiny.metadata(), weights))
        return self.path("tiny.gguf")

    def ids(self, *words: str, prompt: list[int] | None = None) -> list[int]:
        """What follows the prompt in the model that was written."""
        listed = ",".join(map(str, prompt or PROMPT))
        out = self.succeed("generate", "--weights", self.path("tiny.gguf"), "--ids", listed, *words)
        return [int(line) for line in out.splitlines()]


class Ids(Model):
    """Ids in, ids out."""

    def held_against_double(self, weights: dict[str, tiny.Tensor], *words: str,
                            prompt: list[int]) -> None:
        self.model(weights=weights)
        wanted, rows = tiny.greedy(weights, prompt, TOKENS)
        ids = self.ids("--tokens", str(TOKENS), "--ignore-end", "--logits",
                       self.path("logits.npy"), *words, prompt=prompt)
        shape, _, logits = read_npy(self.path("logits.npy"))
        self.assertEqual(shape, (TOKENS, tiny.VOCABULARY))
        worst = max(abs(x - y) for x, y in zip(logits, (y for row in rows for y in row)))
        # Logits reach 5. Sums of up to 96 terms of float32 in some 20 steps after one another stay
        # far below this, and a wrong sign or position far above.
        self.assertLess(worst, 2e-5)
        self.assertEqual(ids, wanted)

    def test_greedy_ids_and_logits_are_those_of_double_precision(self):
        for threads in ("1", "2"):
            for tied in (True, False):
                with self.subTest(threads=threads, tied=tied):
                    self.held_against_double(tiny.tensors(tied=tied), "--threads", threads,
                                             prompt=PROMPT)

    def test_a_prompt_of_one_token_and_a_long_one(self):
        self.held_against_double(tiny.tensors(seed=5), prompt=[7])
        self.held_against_double(tiny.tensors(seed=6), "--weight-type", "f32",
                                 prompt=[i * 7 % 250 for i in range(61)])
        self.held_against_double(tiny.tensors(seed=6), prompt=[i * 7 % 250 for i in range(61)])

    def logits(self, *words: str) -> list[float]:
        """Logits of the first token after a long prompt, and of 7 more, each after the ones
        before."""
        self.ids("--tokens", "8", "--ignore-end", "--logits", self.path("logits.npy"), *words,
                 prompt=[i * 7 % 250 for i in range(61)])
        return read_npy(self.path("logits.npy"))[2]

    def test_short_caches_weights_and_arithmetic_are_near_to_float32(self):
        self.model()
        exact = self.logits("--weight-type", "f32")
        # Logits reach 5. Roundings of 2^-9 and 2^-12 of keys and values, and of 1/254 and 2^-9 of
        # weights, through two layers: tenths at most, and more than zero.
        for words, near in ((("--kv-type", "f16"), 0.01), (("--kv-type", "bf16"), 0.05),
                            (("--weight-type", "bf16"), 0.2), (("--weight-type", "s8c"), 0.2),
                            (("--weight-type", "s8c", "--math", "int8-dynamic"), 0.4),
                            (("--math", "int8-dynamic", "--kv-type", "f16"), 0.4)):
            with self.subTest(words):
                if words[0] == "--math":  # weights in blocks need a unit such as vpdpbusd
                    status, _, reason = self.call(
                        "verify", "-v", "avx512", "--math", words[1], "--shape",
                        "gemm:m=1,n=1,k=32,trans_b=1,b_type=q8_0")
                    if status == 3:
                        self.skipTest(skip.reason(reason.strip()))
                logits = self.logits(*words)
                # Until a token differs; after that texts are others.
                off = max(abs(x - y) for x, y in zip(logits[:tiny.VOCABULARY], exact))
                self.assertLess(off, near)
                self.assertGreater(off, 0)

    def test_fused_and_separate_steps_choose_the_same(self):
        self.model()
        self.assertEqual(self.ids("--tokens", "20", "--ignore-end"),
                         self.ids("--tokens", "20", "--ignore-end", "--no-fuse"))

    def test_ids_are_scored_by_how_well_they_are_foreseen(self):
        self.model()
        greedy = self.ids("--tokens", "20", "--ignore-end")
        scores = []
        for ids in (greedy, greedy[::-1]):
            out = self.succeed("generate", "--weights", self.path("tiny.gguf"), "--ids",
                               ",".join(map(str, PROMPT + ids)), "--score", "--logits",
                               self.path("logits.npy"))
            self.assertRegex(out, r"^24 tokens, perplexity \d+\.\d{4}\n$")
            scores.append(float(out.split()[-1]))
            shape, _, logits = read_npy(self.path("logits.npy"))
            self.assertEqual(shape, (24, tiny.VOCABULARY))
            total = 0.0
            for place, token in enumerate((PROMPT + ids)[1:]):
                row = logits[place * tiny.VOCABULARY:(place + 1) * tiny.VOCABULARY]
                total += math.log(sum(map(math.exp, row))) - row[token]
            self.assertAlmostEqual(math.exp(total / 24), scores[-1], delta=1e-3 * scores[-1])
        self.assertLess(scores[0], scores[1])

    def test_formats_that_are_not_to_be_had_are_refused(self):
        self.model()
        weights = ["generate", "--weights", self.path("tiny.gguf"), "--ids", "1,2"]
        self.refuse(2, ["--kv-type", "nearest is 'bf16'"], *weights, "--kv-type", "bf17")
        self.refuse(2, ["heads of 16 elements: q8_0 needs a multiple of 32"], *weights,
                    "--kv-type", "q8_0")
        self.refuse(2, ["--math", "int8-dynamic"], *weights, "--math", "int8")
        self.refuse(2, ["--weight-type", "s8c"], *weights, "--weight-type", "q4")
        self.refuse(2, ["--score", "fewer than two"], "generate", "--weights",
                    self.path("tiny.gguf"), "--ids", "1", "--score")

    def test_a_seed_repeats_what_is_drawn(self):
        self.model()
        draw = ["--tokens", "20", "--temperature", "1.5", "--ignore-end", "--seed"]
        first = self.ids(*draw, "3")
        self.assertEqual(self.ids(*draw, "3"), first)
        self.assertNotEqual(self.ids(*draw, "4"), first)

    def test_only_the_likeliest_token_is_left_by_top_p_0(self):
        self.model()
        greedy = self.ids("--tokens", "10", "--ignore-end")
        self.assertEqual(self.ids("--tokens", "10", "--ignore-end", "--temperature", "2",
                                  "--top-p", "0"), greedy)

    def test_it_stops_at_ids_at_the_end_and_after_tokens(self):
        self.model()
        whole = self.ids("--tokens", "12", "--ignore-end")
        self.assertEqual(len(whole), 12)
        self.assertEqual(self.ids("--tokens", "12", "--stop", str(whole[5])),
                         whole[:whole.index(whole[5])])
        ends = tiny.metadata() | {"tokenizer.ggml.eos_token_id": (tiny.UINT32, whole[3])}
        self.model(ends)
        self.assertEqual(self.ids("--tokens", "12"), whole[:whole.index(whole[3])])
        self.assertEqual(self.ids("--tokens", "12", "--ignore-end"), whole)

    def test_metadata_is_printed_as_json(self):
        told = json.loads(self.succeed("generate", "--weights", self.model(), "--metadata"))
        self.assertEqual(told["version"], 3)
        self.assertEqual(told["metadata"]["tokenizer.ggml.tokens"], tiny.TOKENS)
        self.assertEqual(told["metadata"]["llama.block_count"], tiny.LAYERS)
        table = next(each for each in told["tensors"] if each["name"] == "token_embd.weight")
        self.assertEqual(table, {"name": "token_embd.weight", "type": "q8_0",
                                 "shape": [tiny.VOCABULARY, tiny.WIDTH]})

    def test_a_session_answers_with_times(self):
        requests = "prefill 0 512\ndecode 512 3\nread\ndecode 0 2\nprefill 512 512\npeak\n"
        weights = 4 * (tiny.VOCABULARY * tiny.WIDTH + tiny.WIDTH + tiny.LAYERS * (
            2 * tiny.WIDTH + 2 * tiny.WIDTH * (tiny.WIDTH + tiny.KV_WIDTH) +
            3 * tiny.WIDTH * tiny.HIDDEN))
        # Blocks of 32 in 34 bytes instead of 128; what is joined of two formats becomes float32.
        in_blocks = tiny.VOCABULARY * tiny.WIDTH + tiny.LAYERS * tiny.WIDTH * tiny.HIDDEN
        row = 2 * 4 * tiny.LAYERS * tiny.KV_WIDTH
        for kind, saved in (("f32", 0), ("file", in_blocks * (128 - 34) / 32)):
            with self.subTest(kind):
                status, out, _ = self.call("generate", "--weights", self.model(), "--measure",
                                           "--threads", "1", "--weight-type", kind, stdin=requests)
                answers = [json.loads(line) for line in out.splitlines()]
                self.assertEqual(status, 0)
                self.assertEqual(len(answers), 6)
                self.assertTrue(all(answer["ns"] > 0 for answer in answers))
                # At least the products of each token; attention to those before adds to them.
                self.assertGreater(answers[4]["operations"], answers[0]["operations"])
                self.assertGreater(answers[0]["operations"],
                                   512 * 2 * tiny.LAYERS * 3 * tiny.WIDTH * tiny.HIDDEN)
                self.assertGreater(answers[5]["operations"], 0)
                self.assertEqual(answers[3]["bytes"], 2 * (weights - saved) + (1 + 2) * row)
        status, _, err = self.call("generate", "--weights", self.model(), "--measure",
                                   stdin="prefill 1 512\n")
        self.assertEqual(status, 2)
        self.assertIn("allowed are read, peak, prefill DEPTH 512", err)
        short = tiny.metadata() | {"llama.context_length": (tiny.UINT32, 256)}
        self.refuse(2, ["context is 256 tokens", "prompts have 512"], "generate", "--weights",
                    self.model(short), "--measure")


class Drafts(Model):
    """Tokens that were guessed and verified together."""

    PROMPTS = [[(i * seed + seed) % 250 for i in range(5 + seed)] for seed in range(1, 21)]

    def both(self, *words: str, prompt: list[int]) -> dict[str, Any]:
        """With every guess verified and without any the ids are the same. Returns what was told of
        the guesses."""
        told = self.path("told.json")
        alone = self.ids("--ignore-end", *words, prompt=prompt)
        guessed = self.ids("--ignore-end", "--draft", "ngram", "--draft-rows", "8", "--json", told,
                           *words, prompt=prompt)
        self.assertEqual(guessed, alone)
        with open(told, encoding="utf-8") as file:
            drafts = json.load(file)["drafts"]
        self.assertTrue(drafts["same_bits"])
        return drafts

    def test_twenty_prompts_go_on_as_without_guesses(self):
        self.model()
        forms = [[], ["--weight-type", "f32"]]
        if self.serves("int8-dynamic", "q8_0"):
            forms.append(["--math", "int8-dynamic"])
        for form in forms:
            accepted = 0
            for prompt in self.PROMPTS:
                with self.subTest(form=form, prompt=prompt):
                    accepted += self.both("--tokens", "200", *form, prompt=prompt)["accepted"]
            self.assertGreater(accepted, 0)

    def test_other_formats_threads_and_caches(self):
        self.model()
        forms = [["--weight-type", "bf16"], ["--kv-type", "f16"], ["--no-fuse"], ["--threads", "1"]]
        for weights, math_name in (("bf16", "bf16"), ("s8c", "int8-dynamic")):
            if self.serves(math_name, weights):
                forms.append(["--weight-type", weights, "--math", math_name])
        for form in forms:
            with self.subTest(form=form):
                self.both("--tokens", "150", *form, prompt=self.PROMPTS[3])

    def test_what_is_drawn_is_what_the_same_seed_draws_without_guesses(self):
        self.model()
        for seed in range(1, 6):
            for form in (["--temperature", "0.7"], ["--temperature", "1", "--top-p", "0.5"]):
                with self.subTest(seed=seed, form=form):
                    self.both("--tokens", "100", "--seed", str(seed), *form, prompt=PROMPT)

    def test_a_guess_is_made_where_it_pays_and_changes_nothing(self):
        self.model()
        for prompt in self.PROMPTS[:5]:
            self.assertEqual(
                self.ids("--ignore-end", "--tokens", "200", "--draft", "ngram", prompt=prompt),
                self.ids("--ignore-end", "--tokens", "200", prompt=prompt))

    def test_the_end_and_the_number_of_tokens_hold(self):
        self.model()
        whole = self.ids("--tokens", "60", "--ignore-end")
        guessing = ["--draft", "ngram", "--draft-rows", "8"]
        for tokens in (1, 2, 9, 60):
            self.assertEqual(self.ids("--tokens", str(tokens), "--ignore-end", *guessing),
                             whole[:tokens])
        stop = whole[40]
        self.assertEqual(self.ids("--tokens", "60", "--ignore-end", "--stop", str(stop), *guessing),
                         whole[:whole.index(stop)])

    def test_a_model_guesses_for_another_one(self):
        self.model()
        self.write("other.gguf", tiny.file_of(tiny.metadata(), tiny.tensors(seed=7)))
        for name in ("tiny.gguf", "other.gguf"):
            for form in ([], ["--temperature", "1"]):
                with self.subTest(name=name, form=form):
                    words = ["--tokens", "80", "--ignore-end", *form]
                    told = self.path("told.json")
                    guessed = self.ids(*words, "--draft", self.path(name), "--draft-rows", "8",
                                       "--json", told)
                    self.assertEqual(guessed, self.ids(*words))
                    with open(told, encoding="utf-8") as file:
                        drafts = json.load(file)["drafts"]
                    # The same model is always right, but where the last pass was not needed.
                    if name == "tiny.gguf":
                        self.assertEqual(drafts["accepted"], drafts["drafted"])
                    self.assertGreater(drafts["drafted"], 0)

    def test_times_are_told_with_what_the_machine_can(self):
        self.model()
        told = self.path("told.json")
        status, _, err = self.call("generate", "--weights", self.path("tiny.gguf"), "--ids",
                                   "1,2,3", "--tokens", "20", "--ignore-end", "--draft", "ngram",
                                   "--times", "--json", told)
        self.assertEqual(status, 0, err)
        part = (r"\d+ tokens, [\d.]+ tokens/s, [\d.]+ GB/s \(\d+ % of reading\), "
                r"\d+ G operations/s \(\d+ % of [\w-]+\), bound by [\w-]+")
        self.assertRegex(err, rf"^note: prompt: {part}; then {part}; [\d.]+ [KMG]iB of memory; "
                              r"drafts: \d+ tokens, \d+ of them right, \d+ passes of the "
                              r"model\n$")
        with open(told, encoding="utf-8") as file:
            document = json.load(file)
        self.assertEqual(document["prompt"]["tokens"], 3)
        self.assertGreaterEqual(document["text"]["tokens"], 19)
        self.assertGreater(document["text"]["read_pct"], 0)
        self.assertGreater(document["prompt"]["peak_pct"], 0)
        self.assertGreater(document["memory_bytes"], 0)

    def test_what_cannot_be_is_refused(self):
        file = ["generate", "--weights", self.model(), "--ids", "1,2"]
        names = {**tiny.metadata(), "tokenizer.ggml.tokens": (tiny.STRING, tiny.TOKENS[::-1])}
        self.write("names.gguf", tiny.file_of(names, tiny.tensors()))
        fewer = tiny.tensors()
        table = fewer["token_embd.weight"]
        fewer["token_embd.weight"] = tiny.Tensor(table.rows[:-1], table.kind)
        ends = {**tiny.metadata(), "tokenizer.ggml.eos_token_id": (tiny.UINT32, 1)}
        self.write("fewer.gguf", tiny.file_of(ends, fewer))
        for words, draft in [("another vocabulary ('tokenizer.ggml.tokens')", "names.gguf"),
                             ("a vocabulary of 264 tokens", "fewer.gguf"),
                             ("--draft, which is ngram or a GGUF file", "none.gguf")]:
            self.refuse(2, [words], *file, "--draft", self.path(draft))
        self.refuse(2, ["--draft-rows: --draft is missing"], *file, "--draft-rows", "8")
        self.refuse(2, ["--draft-rows"], *file, "--draft", "ngram", "--draft-rows", "5")
        self.refuse(2, ["--draft and --score"], *file, "--draft", "ngram", "--score")
        self.refuse(2, ["--json"], *file, "--json", self.path("no/folder.json"))


class Refusals(Model):
    """One line that names what is wrong, and the status."""

    def refused(self, words: str, *arguments: str) -> None:
        with self.subTest(words):
            self.refuse(2, [words], "generate", *arguments)

    def test_arguments(self):
        file = ["--weights", self.model()]
        for words, arguments in [
                ("--weights is missing", ["hello"]),
                ("PROMPT is missing", file),
                ("--weight-type: unknown type 'q8'", [*file, "--ids", "1", "--weight-type", "q8"]),
                ("PROMPT and --ids: allowed is one", [*file, "hello", "--ids", "1"]),
                ("--ids and --metadata", [*file, "--ids", "1", "--metadata"]),
                ("--tokens '0'", [*file, "x", "--tokens", "0"]),
                ("--temperature '-1': allowed is a number",
                 [*file, "x", "--temperature=-1"]),
                ("--temperature 'nan'", [*file, "x", "--temperature", "nan"]),
                ("--top-p '1.5'", [*file, "x", "--top-p", "1.5"]),
                ("--threads '0'", [*file, "x", "--threads", "0"]),
                ("--ids", [*file, "--ids", "1,x"]),
                ("--ids: 265 is not a token; allowed are 0 to 264", [*file, "--ids", "1,265"]),
                ("--stop: 999 is not a token", [*file, "--ids", "1", "--stop", "999"]),
                ("allowed are 1600, the model's context",
                 [*file, "--ids", "1", "--tokens", "1600"]),
                ("cannot be read", ["--weights", self.path("none.gguf"), "--ids", "1"]),
                ("--logits", [*file, "--ids", "1", "--logits", self.path("no/folder.npy")])]:
            self.refused(words, *arguments)

    def test_metadata_that_is_no_llama_or_cannot_be(self):
        honest = tiny.metadata()
        for words, key, value in [
                ("architecture 'mamba'; allowed is 'llama'", "general.architecture",
                 (tiny.STRING, "mamba")),
                ("'general.architecture' is missing", "general.architecture", None),
                ("'llama.block_count' is missing", "llama.block_count", None),
                ("'llama.block_count' is not an integer", "llama.block_count", (tiny.STRING, "2")),
                ("'llama.block_count' is 0", "llama.block_count", (tiny.UINT32, 0)),
                ("has no place in a llama model of 1 layers", "llama.block_count",
                 (tiny.UINT32, 1)),
                ("has no tensor 'blk.2.attn_norm.weight'", "llama.block_count", (tiny.UINT32, 3)),
                ("has no tensor", "llama.block_count", (tiny.UINT32, 1000)),
                ("allowed are 1 to", "llama.embedding_length", (tiny.UINT32, 2**32 - 1)),
                ("of [265,64]", "llama.embedding_length", (tiny.UINT32, 128)),
                ("heads of an even size", "llama.attention.head_count", (tiny.UINT32, 64)),
                ("allowed is a divisor", "llama.attention.head_count_kv", (tiny.UINT32, 3)),
                ("numbers above 0", "llama.attention.layer_norm_rms_epsilon",
                 (tiny.FLOAT32, float("nan"))),
                ("numbers above 0", "llama.rope.freq_base", (tiny.FLOAT32, -1.0)),
                ("'llama.expert_count' is 8", "llama.expert_count", (tiny.UINT32, 8)),
                ("'llama.rope.scaling.type' is 'yarn'", "llama.rope.scaling.type",
                 (tiny.STRING, "yarn")),
                ("computed is 16 alone", "llama.rope.dimension_count", (tiny.UINT32, 8)),
                ("allowed are 0 to 264", "tokenizer.ggml.eos_token_id", (tiny.UINT32, 265))]:
            values = honest | {key: value} if value else {
                name: each for name, each in honest.items() if name != key}
            self.refused(words, "--weights", self.model(values), "--ids", "1", "--tokens", "2")

    def test_tensors_that_are_missing_too_many_or_of_another_shape(self):
        for words, name, tensor in [
                ("has no tensor 'blk.1.attn_k.weight'", "blk.1.attn_k.weight", None),
                ("'token_embd.weight' is missing", "token_embd.weight", None),
                ("'blk.0.attn_q.bias' has no place", "blk.0.attn_q.bias",
                 tiny.Tensor([[0.0] * tiny.WIDTH])),
                ("'rope_freqs.weight' has no place", "rope_freqs.weight",
                 tiny.Tensor([[1.0] * 8])),
                ("of [32,64]", "blk.0.ffn_up.weight", tiny.Tensor([[0.0] * 64] * 32))]:
            weights = tiny.tensors()
            if tensor is None:
                del weights[name]
            else:
                weights[name] = tensor
            self.refused(words, "--weights", self.model(weights=weights), "--ids", "1")

    def test_a_file_that_ends_early(self):
        whole = tiny.file_of(tiny.metadata(), tiny.tensors())
        for size in (0, 3, 100, len(whole) // 2, len(whole) - 1):
            self.write("part.gguf", whole[:size])
            for kind in (["hello"], ["--ids", "1"], ["--metadata"], ["--measure"]):
                self.refused("part.gguf", "--weights", self.path("part.gguf"), *kind)


class Texts(Model):
    """Text in, text out, through scripts/generate.py."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(SCRIPTS))
        import generate
        from python_environment import Unavailable
        cls.missing = ""
        try:
            python = generate.interpreter()
        except Unavailable as reason:
            if "PyPI cannot be reached" not in str(reason):
                raise
            cls.missing = skip.reason(str(reason), f"from PyPI: {' '.join(generate.PACKAGES)}")
        else:
            os.environ["ROOFLANE_GENERATE_PYTHON"] = str(python)
            os.environ["ROOFLANE_GENERATE"] = str(SCRIPTS / "generate.py")

    def setUp(self):
        super().setUp()
        if self.missing:
            self.skipTest(self.missing)

    @staticmethod
    def text_of(ids: list[int]) -> str:
        """By the table of characters alone: the vocabulary of the tiny model is simple."""
        bytes_of = {character: byte for byte, character in enumerate(tiny.letters())}
        data = b"".join(bytes(bytes_of[c] for c in tiny.TOKENS[i])
                        for i in ids if i < tiny.VOCABULARY - 2)
        return data.decode("utf-8", errors="replace")

    def test_a_text_becomes_the_ids_text(self):
        self.model()
        prompt = [tiny.TOKENS.index(token) for token in ["hello", "Ġw", "o", "1", "2"]]
        wanted = self.text_of(self.ids("--tokens", "20", prompt=prompt))
        status, out, err = self.call("generate", "--weights", self.path("tiny.gguf"), "--tokens",
                                     "20", "--times", "hello wo12")
        self.assertEqual((status, out), (0, wanted + "\n"), err)
        self.assertRegex(err, r"^note: prompt: 5 tokens, [0-9.]+ tokens/s.*\n$")

    def test_what_the_program_refuses_is_said_once(self):
        self.refuse(2, ["allowed are 1600, the model's context"], "generate", "--weights",
                    self.model(), "--tokens", "1600", "hello")

    def test_a_chat_goes_through_the_files_template(self):
        self.model()
        tokens = [tiny.BEGIN, "u", "s", "e", "r", ":", "hello", tiny.END]
        prompt = [tiny.TOKENS.index(token) for token in tokens]
        wanted = self.text_of(self.ids("--tokens", "9", "--temperature", "1", prompt=prompt))
        out = self.succeed("generate", "--weights", self.path("tiny.gguf"), "--tokens", "9",
                           "--temperature", "1", "--chat", "hello")
        self.assertEqual(out, wanted + "\n")

    def test_it_ends_before_a_stop_text(self):
        self.model()
        words = ["--weights", self.path("tiny.gguf"), "--tokens", "20", "--ignore-end", "hello"]
        whole = self.succeed("generate", *words).removesuffix("\n")
        stop = whole[4:6]
        out = self.succeed("generate", *words, "--stop", stop)
        self.assertEqual(out, whole[:whole.index(stop)] + "\n")

    def test_what_is_wrong_with_the_vocabulary_is_said(self):
        self.model(tiny.metadata() | {"tokenizer.ggml.pre": (tiny.STRING, "other")})
        status, out, err = self.call("generate", "--weights", self.path("tiny.gguf"), "hello")
        self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)
        self.assertIn("tokenizer.ggml.pre is 'other'; read are 'gpt-2'", err)


if __name__ == "__main__":
    main()
