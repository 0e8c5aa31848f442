"""The command line of `rooflane archive`. Standard library only: its help needs no package."""
from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from .place import FORMATS, VALID, ArchiveError, default_path

# What each verb does.
VERBS = {
    "list": "the runs, in the order they began",
    "best": "the fastest correct configurations of each space",
    "history": "the attempts of runs, in order",
    "statistics": "attempts, success rate, outcomes, strategies, speed-ups",
    "prune": "removes evaluations that meet all given conditions, and runs without any left",
    "export": "writes runs into a file",
    "import": "adds the runs of a file or of another archive; existing runs are not changed",
}


def nearest(word: str, valid: Iterable[str]) -> str:
    """"; nearest is 'x'; valid: x, y", as the program ends such messages."""
    known = list(valid)
    close = difflib.get_close_matches(word, known, 1, 0.5)
    return (f"; nearest is '{close[0]}'" if close else "") + f"; valid: {', '.join(known)}"


class Parser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        raise ArchiveError(f"archive: {message}")


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


def _parser() -> Parser:
    whole = Parser(prog="rooflane archive", description="shows earlier tuning", allow_abbrev=False,
                   epilog="`rooflane archive VERB --help` lists the options of a verb.")
    verbs = whole.add_subparsers(dest="verb", required=True, metavar="VERB")
    parsers = {}
    for verb, text in VERBS.items():
        parser = parsers[verb] = verbs.add_parser(verb, help=text, description=text,
                                                  allow_abbrev=False)
        parser.add_argument("--archive", metavar="URL", help=f"{VALID}; default: "
                            f"$ROOFLANE_ARCHIVE, else {default_path()}")
        parser.add_argument("--json", action="store_true", help="as JSON")
        if verb in ("prune", "import"):
            continue
        parser.add_argument("-k", "--kernel", help="only this kernel")
        parser.add_argument("-v", "--variant", help="only this variant")
        parser.add_argument("--shape", metavar="S", help="only this problem")
        parser.add_argument("--machine", metavar="KEY", help="only this machine")
        parser.add_argument("--strategy", help="only this strategy")
        parser.add_argument("--space", metavar="N", type=at_least(1, int),
                            help="only this space, numbered as in `best`")
    parsers["best"].add_argument("--top", metavar="N", type=at_least(1, int), default=1,
                                 help="number for each space; default: 1")
    parsers["history"].add_argument("run", metavar="RUN", nargs="?", type=at_least(1, int),
                                    help="a run's number, as printed by `list`")
    for verb in ("statistics", "export"):
        parsers[verb].add_argument("--run", metavar="N", type=at_least(1, int),
                                   help="only this run")
    prune = parsers["prune"]
    prune.add_argument("--older-than", metavar="DAYS", type=at_least(0, float),
                       help="those that ended earlier")
    prune.add_argument("--keep", metavar="N", type=at_least(0, int),
                       help="all but the best N of each space")
    prune.add_argument("--failed", action="store_true", help="those that are not correct")
    prune.add_argument("--dry-run", action="store_true", help="only list, remove nothing")
    parsers["export"].add_argument("--format", required=True, choices=FORMATS,
                                   help="of other tuners; one space")
    parsers["export"].add_argument("file", metavar="FILE",
                                   help="the file to write; - is standard output")
    parsers["import"].add_argument("--format", choices=FORMATS,
                                   help="default: detected from the file")
    parsers["import"].add_argument("file", metavar="FILE",
                                   help="of another tuner, or another archive (also its URL)")
    return whole


def arguments_of(words: Sequence[str]) -> argparse.Namespace:
    """The verb as `verb`, and its arguments. Ends the process if help is requested. Raises
    ArchiveError."""
    return _parser().parse_args(words)
