"""What a tuner speaks of: spaces, configurations, trials, histories. Data only.

A configuration is a complete tuning: tunable -> value, in the variant's order, as `rooflane
evaluate` completed it, so that equal configurations are equal dictionaries. Times are seconds in
costs and nanoseconds in samples. A ratio is a configuration's time over the default's, measured in
the same rounds: below 1 is faster; a speed-up is its inverse.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

Configuration = dict[str, int]


def text_of(configuration: Configuration) -> str:
    """"mc=96,kc=384", as rows, options and the archive hold it."""
    return ",".join(f"{name}={value}" for name, value in configuration.items())


def configuration_of(text: str) -> Configuration:
    """The inverse of text_of. Raises ValueError."""
    return {name: int(value) for name, value in
            (item.split("=") for item in text.split(",") if text)}


class Outcome(str, Enum):
    """How an evaluation ended."""
    CORRECT = "correct"
    INCORRECT = "incorrect"
    REFUSED = "refused"  # by a constraint of the variant: nothing was run
    BUILD_ERROR = "build error"
    TIMEOUT = "timeout"
    CRASH = "crash"


@dataclass(frozen=True)
class Tunable:
    """One dimension of a space. `values`: those worth trying for this problem, ascending; the
    variant may take others between least and most."""
    name: str
    meaning: str
    least: int
    most: int
    values: tuple[int, ...]
    selects: bool = False  # its value decides what the others mean


@dataclass(frozen=True)
class Candidate:
    """A configuration that the variant's own model proposes; predicted_ns where it predicts."""
    configuration: Configuration
    predicted_ns: float | None = None


@dataclass(frozen=True)
class Legal:
    """What became of a proposal: the complete configuration that stands for it, or why there is
    none. `changed`: tunables whose value is not the proposed one."""
    configuration: Configuration | None
    reason: str = ""
    changed: tuple[str, ...] = ()


class Constraints(Protocol):
    """Who knows what is legal: `rooflane evaluate`, or a space that was measured before."""

    def check(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """Completes each (keys may be missing), or refuses it with the reason."""

    def nearest(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """The legal configuration that keeps as many of the proposed values as possible; never
        refuses."""


@dataclass(frozen=True)
class Space:
    """The search space of one variant on one problem in one environment."""
    kernel: str
    variant: str
    shape: str  # the problem's text, "gemm:m=64,n=64,k=64"
    math: str
    threads: int  # 0: a whole device
    isa: str
    device: str  # empty on the CPU
    tunables: tuple[Tunable, ...]
    default: Configuration  # what runs without tuning: the model's choice
    candidates: tuple[Candidate, ...]  # of the model, its best first; the default is among them
    constraints: Constraints
    problem: dict[str, Any] = field(default_factory=dict)  # parameters, tensors, cost
    roof_ns: float | None = None  # the least time that the ceilings allow, where known
    legal: tuple[Configuration, ...] = ()  # all of them, where the space was measured before
    # The standard error of the logarithm of a ratio of two predictions, where the model was fitted.
    prediction_error: float | None = None

    @property
    def title(self) -> str:
        """One line that names it in logs and the archive."""
        where = f"device={self.device}" if self.device else f"threads={self.threads} {self.isa}"
        cold = " cold" * (self.cache == "cold")
        return f"{self.shape} {self.variant} {self.math} {where}".strip() + cold

    @property
    def cache(self) -> str:
        """"cold" where operands are read from memory, else "warm"."""
        return self.problem.get("cache", "warm")


@dataclass(frozen=True)
class Ratio:
    """Time over the default's time, with its 95 % interval."""
    value: float
    low: float
    high: float


@dataclass
class Cost:
    """Wall-clock seconds of one evaluation."""
    propose: float = 0  # the strategy, a language model's latency included
    build: float = 0  # process, plan, programs
    verify: float = 0
    time: float = 0

    @property
    def total(self) -> float:
        """All of it."""
        return self.propose + self.build + self.verify + self.time


@dataclass
class Proposal:
    """What a strategy wants tried next. `source` names who proposed it where the strategy is not
    alone (llm's stand-in); `note` says what was corrected."""
    configuration: Configuration
    source: str = ""
    note: str = ""


@dataclass
class Trial:
    """One evaluation and, once it is part of a search, what it was for."""
    number: int  # from 0: the default
    configuration: Configuration
    outcome: Outcome
    strategy: str = ""  # seed, or the strategy's name
    source: str = ""
    note: str = ""
    reason: str = ""  # why it is not correct, in words
    ratio: Ratio | None = None  # of a correct one
    ns: list[float] = field(default_factory=list)  # one a round
    default_ns: list[float] = field(default_factory=list)  # of the same rounds
    error: float | None = None  # the verification's figure and its bound
    threshold: float | None = None
    cost: Cost = field(default_factory=Cost)
    workspace_bytes: int = 0
    time: datetime | None = field(default=None, compare=False)  # when it ended

    @property
    def correct(self) -> bool:
        """Whether it may win."""
        return self.outcome is Outcome.CORRECT and self.ratio is not None

    @property
    def samples(self) -> int:
        """How many rounds there were."""
        return len(self.ns)

    @property
    def speed_up(self) -> float:
        """Over the default; 0 of what is not correct."""
        return 1 / self.ratio.value if self.correct and self.ratio else 0.0


@dataclass
class History:
    """All trials of a run so far and what is left."""
    space: Space
    trials: list[Trial] = field(default_factory=list)
    trials_left: int | None = None
    seconds_left: float | None = None

    @property
    def best(self) -> Trial | None:
        """The fastest correct trial."""
        correct = [trial for trial in self.trials if trial.correct]
        return min(correct, key=lambda trial: trial.ratio.value) if correct else None

    def ranked(self) -> list[Trial]:
        """The correct trials, the fastest first, each configuration once."""
        found: dict[str, Trial] = {}
        for trial in sorted((trial for trial in self.trials if trial.correct),
                            key=lambda trial: trial.ratio.value):
            found.setdefault(text_of(trial.configuration), trial)
        return list(found.values())

    def tried(self, configuration: Configuration) -> bool:
        """Whether this configuration was evaluated before."""
        return any(trial.configuration == configuration for trial in self.trials)


class Exhausted(Exception):
    """A strategy knows nothing further to try."""


class Strategy(Protocol):
    """A search. `propose` and `observe` alternate; seed trials are observed first."""
    name: str

    def propose(self, history: History) -> Proposal:
        """What to try next: legal, complete, and not tried before. Raises Exhausted."""

    def observe(self, trial: Trial) -> None:
        """The outcome of a proposal, or of a seed."""

    def close(self) -> None:
        """Ends what it started."""


@dataclass
class Finalist:
    """A configuration of the last comparison, in fresh processes beside the default."""
    configuration: Configuration
    ratio: Ratio  # over the default
    workspace_bytes: int = 0
    verdict: str = "equal"  # "fastest"; to the fastest "equal", within 2 %, or "undecided"


@dataclass
class Neighbour:
    """The chosen configuration at another size, or with the other state of the caches."""
    shape: str
    outcome: Outcome
    reason: str = ""
    ratio: Ratio | None = None  # over the default there
    cache: str = ""  # cold or warm, where this is what differs


@dataclass
class Verdict:
    """What a run found. `chosen` is the fastest where nothing ties with it; of a tie set, the
    default where it is one of them, else the one with the least workspace. Another than the default
    is beyond doubt faster. `exact`: it serves its own shape only, since a neighbour was wrong or
    more than 10 % slower."""
    chosen: Configuration
    ratio: Ratio  # over the default; 1 for the default itself
    tie_set: list[Finalist] = field(default_factory=list)  # the fastest first; one: a winner
    neighbours: list[Neighbour] = field(default_factory=list)
    exact: bool = False
    seconds_more: float = 0  # that would decide what is undecided, roughly

    @property
    def kind(self) -> str:
        """"winner", "tie" or "undecided"."""
        if any(one.verdict == "undecided" for one in self.tie_set):
            return "undecided"
        return "tie" if len(self.tie_set) > 1 else "winner"


@dataclass
class Exchange:
    """One request to a language model and what came back; never holds the key."""
    number: int
    model: str
    request: str  # the messages as JSON
    answer: str  # empty where none came
    failure: str = ""  # timeout, http 429, refusal, no JSON, ...
    seconds: float = 0
    tokens_in: int = 0
    tokens_out: int = 0
    trials: list[int] = field(default_factory=list)  # that came of it
