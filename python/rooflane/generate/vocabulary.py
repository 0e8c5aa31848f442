"""The tokenizer that a GGUF file describes: byte-level BPE as in GPT-2, with the package
tokenizers. Metadata comes as `rooflane generate --metadata` prints it.

Key names: github.com/ggml-org/ggml, docs/gguf.md. The ways to split text before merging are those
of the models' own tokenizer files, by the names that llama.cpp gives them.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # tokenizer.ggml.token_type


class Unsupported(Exception):
    """A vocabulary that is wrong or of a kind that is not read; the text says why, in one line."""


def _gpt2() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> PreTokenizer:
    return Sequence([Digits(individual_digits=True), _gpt2()])


def _llama3() -> PreTokenizer:
    words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
             r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    return Sequence([Split(Regex(words), behavior="isolated"),
                     ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZERS: dict[str, Callable[[], PreTokenizer]] = {
    "gpt-2": _gpt2, "smollm": _smollm, "llama-bpe": _llama3}
WHOLE_WORDS_FIRST = ("llama-bpe",)  # a piece that is a token is never built by merges
BEGIN_BY_DEFAULT = ("llama-bpe",)


def byte_of_character() -> dict[str, int]:
    """The byte that each character of a byte-level token stands for: printable ones for
    themselves, the others, in order, from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return table | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class Vocabulary:
    """Text to ids and ids to bytes. Raises Unsupported."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        def get(key: str, kind: type, default: Any = None) -> Any:
            value = metadata.get(f"tokenizer.ggml.{key}", default)
            if value is None:
                raise Unsupported(f"metadata 'tokenizer.ggml.{key}' is missing")
            if not isinstance(value, kind):
                raise Unsupported(f"metadata 'tokenizer.ggml.{key}' has another type")
            return value

        model, pre = get("model", str), get("pre", str)
        if model != "gpt2":
            raise Unsupported(f"tokenizer.ggml.model is {model!r}; read is 'gpt2' (byte-level BPE)")
        if pre not in PRE_TOKENIZERS:
            raise Unsupported(f"tokenizer.ggml.pre is {pre!r}; read are " +
                              ", ".join(map(repr, PRE_TOKENIZERS)))
        self.tokens: list[str] = get("tokens", list)
        self.types: list[int] = get("token_type", list, [NORMAL] * len(self.tokens))
        if len(self.types) != len(self.tokens):
            raise Unsupported("tokenizer.ggml.tokens and token_type have different lengths")
        ids = {token: i for i, token in enumerate(self.tokens)}
        if len(ids) != len(self.tokens) or not ids:
            raise Unsupported("tokenizer.ggml.tokens is empty or has a token twice")
        self._tokenizer = _tokenizer(ids, get("merges", list), pre)
        self._tokenizer.add_special_tokens(self._added(CONTROL))
        self._tokenizer.add_tokens(self._added(USER_DEFINED))
        self._bytes = byte_of_character()
        self.begin = self._named(metadata, "bos")
        self.end = self._named(metadata, "eos")
        self.adds_begin = self.begin is not None and bool(
            metadata.get("tokenizer.ggml.add_bos_token", pre in BEGIN_BY_DEFAULT))

    def _added(self, kind: int) -> list[AddedToken]:
        return [AddedToken(token, special=kind == CONTROL, normalized=False)
                for token, of in zip(self.tokens, self.types) if of == kind]

    def _named(self, metadata: dict[str, Any], name: str) -> int | None:
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if number is not None and (not isinstance(number, int)
                                   or not 0 <= number < len(self.tokens)):
            raise Unsupported(f"tokenizer.ggml.{name}_token_id is not a token")
        return number

    def text_of(self, number: int | None) -> str:
        """The token's text in the file; empty for none."""
        return "" if number is None else self.tokens[number]

    def encode(self, text: str) -> list[int]:
        """The ids of a text in which control tokens may be spelt, with the file's begin token in
        front where the file requires one and the text has none."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if self.adds_begin and ids[:1] != [self.begin]:
            return [self.begin, *ids]
        return ids

    def bytes_of(self, number: int) -> bytes:
        """What a token adds to the text: nothing for a control token."""
        token = self.tokens[number]
        if self.types[number] == USER_DEFINED:
            return token.encode("utf-8")
        if self.types[number] != NORMAL:
            return b""
        try:
            return bytes(self._bytes[character] for character in token)
        except KeyError:
            return token.encode("utf-8")


def _tokenizer(ids: dict[str, int], merges: list[str], pre: str) -> Tokenizer:
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise Unsupported("tokenizer.ggml.merges has an entry that is not a pair of tokens")
    try:
        tokenizer = Tokenizer(BPE(vocab=ids, merges=pairs, fuse_unk=False,
                                  ignore_merges=pre in WHOLE_WORDS_FIRST))
    except Exception as error:  # whatever the package makes of a merge of tokens that are none
        raise Unsupported(f"tokenizer.ggml.merges: {error}") from error
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    return tokenizer
