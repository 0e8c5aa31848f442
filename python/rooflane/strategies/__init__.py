"""The searches by name: simple.py, local.py, cmaes.py, proposer.py, and the language model's of
rooflane.language_model. All are told of the same seeds first."""
from __future__ import annotations

import argparse
import difflib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rooflane.strategies.asked import Asked
from rooflane.strategies.base import Grid
from rooflane.strategies.local import Local
from rooflane.strategies.proposer import Proposer
from rooflane.strategies.simple import All, Default, Random
from rooflane.tuning import Configuration, Exchange, Space, Strategy, text_of

__all__ = ["DESCRIPTIONS", "Options", "add_arguments", "check_name", "make",
           "options_of", "seeds"]

DESCRIPTIONS = {
    "default": "only the cost model's candidates",
    "all": "every configuration, for complete measurements",
    "random": "seeded, without repeats",
    "local": "one tunable, one step from the best",
    "cmaes": "CMA-ES, from the best seed point",
    "llm": "a language model; local if it fails",
    "proposer": "your own program (--proposer)",
    "source": "a language model, or your own program (--proposer), writes the kernel",
}
OWN = {"default": Default, "all": All, "random": Random, "local": Local}
DEFAULT = "cmaes"  # the best of the project's league


@dataclass
class Options:
    """What some of them need beside a space and a seed."""
    proposer: str = ""  # command line
    proposer_timeout: float = 60
    generations: int | None = None  # of a language model; None: it is asked one by one
    per_generation: int = 3
    requests: int | None = None  # at most
    tokens: int | None = None
    seconds: float | None = None
    context: int = 8192  # tokens, of a model that nothing is known of
    answer_tokens: int | None = None  # None: a quarter of the context, 4096 at most
    answer_timeout: float = 60
    most_failures: int = 5  # in a row; then the model is not asked again
    source: Callable[[int], str] | None = None  # the kernel's in so many characters; from the tree
    facts: Mapping[str, Any] = field(default_factory=dict)  # traits and roofs for the request
    on_exchange: Callable[[Exchange], None] = lambda exchange: None
    earlier: tuple[Exchange, ...] = ()  # of the run that goes on


def check_name(name: str) -> str:
    """The name, or ValueError with the nearest."""
    if name in DESCRIPTIONS:
        return name
    near = difflib.get_close_matches(name.lower(), DESCRIPTIONS, 1, 0)
    raise ValueError(f"--strategy: unknown strategy '{name}'; nearest is '{near[0]}'; valid: "
                     + ", ".join(DESCRIPTIONS))


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """The options of single strategies."""
    group.add_argument("--proposer", metavar="CMD", default="",
                       help="with --strategy proposer or source: a program that proposes over JSON "
                            "lines")
    group.add_argument("--generations", metavar="N", type=int,
                       help="llm and source ask so often, for several proposals each time; "
                            "default: one by one")
    group.add_argument("--per-generation", metavar="N", type=int, default=Options.per_generation,
                       help="default: 3")
    for option, metavar, kind, text in (
            ("--llm-requests", "N", int, "at most"), ("--llm-tokens", "N", int, "at most"),
            ("--llm-seconds", "S", float, "at most"),
            ("--llm-context", "TOKENS", int, "the model's context window; default: 8192")):
        group.add_argument(option, dest=option.removeprefix("--llm-"), metavar=metavar, type=kind,
                           help=text)


def options_of(given: argparse.Namespace, facts: Mapping[str, Any]) -> Options:
    """From the command line. Raises ValueError."""
    if given.strategy != "source" and (given.strategy == "proposer") != bool(given.proposer):
        raise ValueError("--strategy proposer and --proposer CMD go together")
    return Options(facts=facts, **{name: value for name, value in vars(given).items()
                                   if name in Options.__dataclass_fields__ and value is not None})


def make(name: str, space: Space, seed: int, options: Options | None = None) -> Strategy:
    """A strategy that is to be told of the seeds. Raises ValueError."""
    options = options or Options()
    check_name(name)
    if name == "source":
        raise ValueError("source: there is no space of tunables to search")
    if name in OWN:
        return OWN[name](name, space, seed)
    if name == "cmaes":
        from rooflane.strategies.cmaes import CmaEs  # takes a second to import
        return CmaEs(name, space, seed)
    if name == "proposer":
        asker = Proposer(space, options.proposer, seed, options.proposer_timeout)
        return Asked(name, asker, Local("local", space, seed))
    from rooflane.language_model.asking import Asker
    return Asked(name, Asker(space, client_of(options)),
                 Local("local", space, seed), options.generations, options.per_generation)


def seeds(space: Space, count: int = 4) -> list[Configuration]:
    """Where all strategies start: the default, the model's best of each kind (what the selecting
    tunables say), its next ones, then seeded random configurations; fewer where there are no
    more."""
    found: dict[str, Configuration] = {text_of(space.default): space.default}
    selecting = [tunable.name for tunable in space.tunables if tunable.selects]
    kinds = {tuple(space.default.get(name) for name in selecting)}
    order = [candidate.configuration for candidate in space.candidates]
    for first_of_kind in (True, False):
        for configuration in order:
            kind = tuple(configuration.get(name) for name in selecting)
            if len(found) < count and (not first_of_kind or kind not in kinds):
                found.setdefault(text_of(configuration), configuration)
                kinds.add(kind)
    grid, chance = Grid(space), random.Random(space.title)
    while len(found) < count:
        drawn = grid.random(chance, set(found))
        if drawn is None:
            break
        found[text_of(drawn)] = drawn
    return list(found.values())[:count]


def client_of(options: Options, transport: Any = None) -> Any:
    """A client of the endpoint that the environment names, unless a transport is given."""
    from rooflane.language_model.client import Client
    from rooflane.language_model.endpoint import Endpoint
    return Client(transport or Endpoint.from_environment(), options)
