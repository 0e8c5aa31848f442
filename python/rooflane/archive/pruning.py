"""What `rooflane archive prune` takes away, and what nothing hangs on any longer."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Engine, delete, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from ..tuning import Outcome
from . import queries
from .queries import Evaluation
from .records import now
from .schema import (
    BuildRow,
    ConfigurationRow,
    EvaluationRow,
    ExchangeRow,
    MachineRow,
    RunRow,
    SpaceRow,
)

GOES_ON = timedelta(days=1)  # a run without news for longer has died
AT_ONCE = 500  # rows a statement: SQLite takes 32766 parameters


@dataclass(frozen=True)
class Wanted:
    """Which evaluations go: those that everything given here holds for."""
    older_than: float | None = None  # days
    keep: int | None = None  # the best so many of each space stay
    failed_only: bool = False


@dataclass(frozen=True)
class Pruned:
    """How many went, or would."""
    evaluations: int = 0
    runs: int = 0
    exchanges: int = 0
    spaces: int = 0


def _leaving(found: list[Evaluation], wanted: Wanted, alive: set[int]) -> list[Evaluation]:
    """The evaluations of one space that go. A wrong result stays as long as a right one of the same
    configuration does: without it that one would win."""
    kept = {one.id for one in queries.ranked(found)[:wanted.keep]} if wanted.keep else set()
    before = None if wanted.older_than is None else now() - timedelta(days=wanted.older_than)
    leaving = {one.id for one in found
               if one.run not in alive and one.id not in kept
               and (before is None or one.time < before)
               and not (wanted.failed_only and one.correct)}
    right = {one.text for one in found if one.correct and one.id not in leaving}
    return [one for one in found if one.id in leaving
            and not (one.outcome is Outcome.INCORRECT and one.text in right)]


def _alive(session: Session, found: Iterable[Evaluation]) -> set[int]:
    """Runs that go on."""
    last = {one.run: one.time for one in found}
    return {run for run, started in session.execute(
        select(RunRow.id, RunRow.started).where(RunRow.state == "running"))
        if max(started, last.get(run, started)) > now() - GOES_ON}


def plan(session: Session, wanted: Wanted) -> tuple[list[int], Pruned]:
    """The evaluations that go, and what goes with them."""
    found = queries.evaluations(session, queries.Selection())
    alive = _alive(session, found)
    spaces = queries.by_space(found)
    leaving = [one for of_space in spaces.values()
               for one in _leaving(of_space, wanted, alive)]
    empty = _emptied(found, leaving, lambda one: one.run)
    exchanges = session.scalar(select(func.count(ExchangeRow.id)).where(
        ExchangeRow.run_id.in_(empty))) if empty else 0
    return [one.id for one in leaving], Pruned(
        len(leaving), len(empty), exchanges or 0,
        len(_emptied(found, leaving, lambda one: one.space)))


def _emptied(found: list[Evaluation], leaving: list[Evaluation], group) -> set[int]:
    """The groups that all evaluations leave."""
    before, gone = Counter(map(group, found)), Counter(map(group, leaving))
    return {number for number, count in gone.items() if before[number] == count}


def prune(session: Session, wanted: Wanted) -> Pruned:
    """Removes them."""
    leaving, pruned = plan(session, wanted)
    runs: set[int] = set()
    for begin in range(0, len(leaving), AT_ONCE):
        some = EvaluationRow.id.in_(leaving[begin:begin + AT_ONCE])
        runs |= set(session.scalars(select(EvaluationRow.run_id).where(some)))
        session.execute(delete(EvaluationRow).where(some))
    for run in sorted(runs):
        session.execute(delete(RunRow).where(
            RunRow.id == run,
            ~select(EvaluationRow.id).where(EvaluationRow.run_id == run).exists()))
    remove_unused(session)
    return pruned


def remove_unused(session: Session) -> None:
    """Removes configurations, spaces, builds and machines that nothing hangs on."""
    for table, used in ((ConfigurationRow, EvaluationRow.configuration_id),
                        (SpaceRow, RunRow.space_id), (BuildRow, RunRow.build_id),
                        (MachineRow, RunRow.machine_id)):
        session.execute(delete(table).where(~select(used).where(used == table.id).exists())
                        .execution_options(synchronize_session=False))


def shrink(engine: Engine) -> None:
    """Gives an SQLite file's free pages back, unless somebody writes just now."""
    with engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        connection.rollback()
        try:
            raw.execute("PRAGMA busy_timeout=1000")
            raw.execute("VACUUM")
        except (OperationalError, raw.OperationalError):
            pass  # the space is used by what comes next
