"""The command line of `rooflane archive`. Standard library only: its help needs no package."""
from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from . import formats
from .place import VALID, ArchiveError, default_path

# What each verb does.
VERBS = {
    "list": "the runs, in the order they began",
    "best": "the fastest correct configurations of each space",
    "history": "the attempts of runs, in order",
    "statistics": "attempts, success rate, outcomes, strategies, speed-ups",
    "prune": "removes evaluations that meet all given conditions, and runs without any left",
    "export": "writes runs into a file",
    "import": "adds the runs of a file; existing runs are not changed",
}


def nearest(word: str, valid: Iterable[str]) -> str:
    """"; nearest is 'x'; valid: x, y", as the program ends such messages."""
    known = list(valid)
    close = difflib.get_close_matches(word, known, 1, 0.5)
    return (f"; nearest is '{close[0]}'" if close else "") + f"; valid: {', '.join(known)}"


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, with the nearest valid word."""

    def error(self, message: str) -> NoReturn:
        raise ArchiveError(f"archive: {message}")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments. Raises ArchiveError."""
        arguments, unknown = self.parse_known_args(words)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            if unknown[0].startswith("-"):
                raise ArchiveError(f"unknown flag '{unknown[0]}'"
                                   + nearest(unknown[0].partition("=")[0], flags))
            raise ArchiveError(f"archive: '{unknown[0]}' is an unexpected argument")
        return arguments


def at_least(least: float, kind: type) -> Any:
    """A number for argparse."""
    def number(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = least - 1
        if not least <= value < 1e9:
            raise argparse.ArgumentTypeError(f"'{text}'; valid: a number of at least {least}")
        return value

    return number


def _parser(verb: str, text: str, select: bool = True) -> Parser:
    parser = Parser(prog=f"rooflane archive {verb}", description=text, allow_abbrev=False)
    parser.add_argument("--archive", metavar="URL", help=f"{VALID}; default: "
                        f"$ROOFLANE_ARCHIVE, else {default_path()}")
    parser.add_argument("--json", action="store_true", help="as JSON")
    if select:
        parser.add_argument("-k", "--kernel", help="only this kernel")
        parser.add_argument("-v", "--variant", help="only this variant")
        parser.add_argument("--shape", metavar="S", help="only this problem")
        parser.add_argument("--machine", metavar="KEY", help="only this machine")
        parser.add_argument("--strategy", help="only this strategy")
        parser.add_argument("--space", metavar="N", type=at_least(1, int),
                            help="only this space, numbered as in `best`")
    return parser


def parser_of(verb: str) -> Parser:
    """The arguments of a verb of VERBS."""
    parser = _parser(verb, VERBS[verb], select=verb not in ("prune", "import"))
    if verb == "best":
        parser.add_argument("--top", metavar="N", type=at_least(1, int), default=1,
                            help="number for each space; default: 1")
    elif verb == "history":
        parser.add_argument("run", metavar="RUN", nargs="?", type=at_least(1, int),
                            help="a run's number, as printed by `list`")
    elif verb == "statistics":
        parser.add_argument("--run", metavar="N", type=at_least(1, int), help="only this run")
    elif verb == "prune":
        parser.add_argument("--older-than", metavar="DAYS", type=at_least(0, float),
                            help="those that ended earlier")
        parser.add_argument("--keep", metavar="N", type=at_least(0, int),
                            help="all but the best N of each space")
        parser.add_argument("--failed", action="store_true", help="those that are not correct")
        parser.add_argument("--dry-run", action="store_true", help="only list, remove nothing")
    elif verb == "export":
        parser.add_argument("--format", required=True, metavar="|".join(formats.FORMATS),
                            help="t4 and kernel-tuner: one space; json: any number")
        parser.add_argument("--run", metavar="N", type=at_least(1, int), help="only this run")
        parser.add_argument("file", metavar="FILE", help="the file to write; - is standard output")
    elif verb == "import":
        parser.add_argument("--format", metavar="|".join(formats.FORMATS),
                            help="default: detected from the file")
        parser.add_argument("file", metavar="FILE", help="written by export, or by another tuner")
    return parser


def arguments_of(words: Sequence[str]) -> argparse.Namespace:
    """The verb as `verb`, and its arguments. Ends the process if help is requested. Raises
    ArchiveError."""
    verb, *rest = words or [""]
    if not {"-h", "--help"}.isdisjoint(words):
        print(parser_of(verb).format_help() if verb in VERBS else
              f"shows earlier tuning\nUsage: rooflane archive {'|'.join(VERBS)} [--archive URL] "
              "[--json]\n`rooflane archive VERB --help` lists the options of a verb.\n", end="")
        sys.exit(0)
    if verb not in VERBS:
        what = f"unknown verb 'archive {verb}'" if verb else "archive needs a verb"
        raise ArchiveError(what + nearest(verb, VERBS))
    arguments = parser_of(verb).parse(rest)
    arguments.verb = verb
    return arguments
