#!/usr/bin/env python3
"""Text to ids and ids to text: python/rooflane/generate on a small vocabulary, without a model."""
from __future__ import annotations

import tune_environment

if __name__ == "__main__":
    tune_environment.enter("generate")

import sys
import unittest
from typing import Any

from rooflane.generate.stream import Stream
from rooflane.generate.template import KEY, chat_text
from rooflane.generate.vocabulary import (
    CONTROL,
    NORMAL,
    USER_DEFINED,
    Unsupported,
    Vocabulary,
    byte_of_character,
)

import skip

LETTERS = {byte: character for character, byte in byte_of_character().items()}
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2", "Ġ Ġ"]
MERGED = ["he", "ll", "hell", "hello", "Ġw", "12", "ĠĠ"]
EXTRA = ["<|begin|>", "<|end|>", "<tool>"]


def metadata(**changes: Any) -> dict[str, Any]:
    """256 bytes, then MERGED, then EXTRA."""
    tokens = [LETTERS[byte] for byte in range(256)] + MERGED + EXTRA
    types = [NORMAL] * (256 + len(MERGED)) + [CONTROL, CONTROL, USER_DEFINED]
    given = {"model": "gpt2", "pre": "smollm", "tokens": tokens, "token_type": types,
             "merges": MERGES, "bos_token_id": tokens.index("<|begin|>"),
             "eos_token_id": tokens.index("<|end|>")} | changes
    return {f"tokenizer.ggml.{key}": value for key, value in given.items() if value is not None}


class Encoding(unittest.TestCase):
    """Text to ids."""

    def words(self, text: str, **changes: Any) -> list[str]:
        vocabulary = Vocabulary(metadata(**changes))
        return [vocabulary.tokens[i] for i in vocabulary.encode(text)]

    def test_every_byte_has_a_character_of_its_own(self) -> None:
        self.assertEqual(sorted(byte_of_character().values()), list(range(256)))

    def test_merges_apply_in_order_within_words(self) -> None:
        self.assertEqual(self.words("hello world"), ["hello", "Ġw", "o", "r", "l", "d"])

    def test_pre_tokenizers_split_differently(self) -> None:
        self.assertEqual(self.words("1234", pre="smollm"), ["1", "2", "3", "4"])
        self.assertEqual(self.words("1234", pre="gpt-2"), ["12", "3", "4"])
        self.assertEqual(self.words("1212", pre="llama-bpe", add_bos_token=False),
                         ["12", "1", "2"])  # three digits at a time: 121|2

    def test_control_and_user_tokens_are_found_in_the_text(self) -> None:
        self.assertEqual(self.words("<|begin|>he<tool>ll<|end|>"),
                         ["<|begin|>", "he", "<tool>", "ll", "<|end|>"])

    def test_a_begin_is_added_where_the_file_wants_it_and_once(self) -> None:
        self.assertEqual(self.words("he", add_bos_token=True), ["<|begin|>", "he"])
        self.assertEqual(self.words("<|begin|>he", add_bos_token=True), ["<|begin|>", "he"])
        self.assertEqual(self.words("he", pre="llama-bpe"), ["<|begin|>", "he"])
        self.assertEqual(self.words("he"), ["he"])

    def test_bytes_come_back_for_any_text(self) -> None:
        vocabulary = Vocabulary(metadata())
        for text in ["hello  world 12", "äöü €", "日本\n\t語", "a\x00b", "🙂‍↔️"]:
            ids = vocabulary.encode(text)
            self.assertEqual(b"".join(map(vocabulary.bytes_of, ids)).decode(), text)
        self.assertEqual(vocabulary.bytes_of(vocabulary.end), b"")
        self.assertEqual(vocabulary.bytes_of(vocabulary.tokens.index("<tool>")), b"<tool>")

    def test_what_is_not_read_is_refused_by_name(self) -> None:
        cases = [({"model": "llama"}, "tokenizer.ggml.model is 'llama'"),
                 ({"pre": "deepseek"}, "read are 'gpt-2', 'smollm', 'llama-bpe'"),
                 ({"pre": None}, "'tokenizer.ggml.pre' is missing"),
                 ({"merges": 5}, "'tokenizer.ggml.merges' has another type"),
                 ({"merges": ["h e l"]}, "not a pair"),
                 ({"merges": ["h nothing"]}, "tokenizer.ggml.merges"),
                 ({"tokens": ["a", "a"], "token_type": [1, 1]}, "twice"),
                 ({"token_type": [1]}, "different lengths"),
                 ({"eos_token_id": 100000}, "eos_token_id is not a token")]
        for changes, words in cases:
            with self.subTest(words), self.assertRaises(Unsupported) as caught:
                Vocabulary(metadata(**changes))
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))


class Streaming(unittest.TestCase):
    """Ids to text as they come."""

    def setUp(self) -> None:
        self.vocabulary = Vocabulary(metadata())

    def pieces(self, text: str, stops: list[str]) -> tuple[list[str], bool]:
        stream = Stream(self.vocabulary, stops)
        pieces = []
        for byte in text.encode():  # a token for each byte
            pieces.append(stream.feed(byte))
            if stream.stopped:
                break
        return [*pieces, stream.finish()], stream.stopped

    def test_a_character_appears_when_its_last_byte_came(self) -> None:
        self.assertEqual(self.pieces("a€b", []), (["a", "", "", "€", "b", ""], False))

    def test_half_a_character_at_the_end_is_marked(self) -> None:
        stream = Stream(self.vocabulary)
        self.assertEqual(stream.feed("€".encode()[0]), "")
        self.assertEqual(stream.finish(), "\N{REPLACEMENT CHARACTER}")

    def test_nothing_of_a_stop_text_appears(self) -> None:
        pieces, stopped = self.pieces("one, stop it", ["stop"])
        self.assertEqual("".join(pieces), "one, ")
        self.assertTrue(stopped)

    def test_what_only_began_a_stop_text_appears_later(self) -> None:
        self.assertEqual(self.pieces("sto", ["stop"]), (["", "", "", "sto"], False))
        self.assertEqual(self.pieces("stoat", ["stop", "x"]),
                         (["", "", "", "stoa", "t", ""], False))

    def test_the_first_of_several_stops_counts(self) -> None:
        pieces, stopped = self.pieces("a\n\nb", ["b", "\n\n"])
        self.assertEqual(("".join(pieces), stopped), ("a", True))


class Templates(unittest.TestCase):
    """Chat templates."""

    def text(self, template: object) -> str:
        data = metadata() | {KEY: template}
        return chat_text(data, Vocabulary(data), "hello")

    def test_messages_and_tokens_are_there(self) -> None:
        template = ("{% for m in messages %}{{ bos_token + m['role'] + ':' + m['content'] }}"
                    "{% endfor %}\n{% if add_generation_prompt %}{{ eos_token }}{% endif %}")
        # A block takes the end of its line with it.
        self.assertEqual(self.text(template), "<|begin|>user:hello<|end|>")

    def test_bad_templates_are_refused_in_one_line(self) -> None:
        for template in [None, 5, "{% for %}", "{{ raise_exception('no\nway') }}",
                         "{{ ''.__class__.__mro__ }}", "{{ messages[7].x.y }}", "{{ 1 // 0 }}"]:
            with self.subTest(template), self.assertRaises(Unsupported) as caught:
                self.text(template)
            self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    skip.main(sys.argv)
