"""`Archive`: writes runs and trials as they happen, and reads them back. Summaries: queries.py.

Several processes may write at once. Each call is one transaction, committed when it returns, and
may be repeated: what is there already is left as it is.
"""
from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from ..tuning import Exchange, Space, Trial, Verdict
from . import database, pruning, queries, records, rows
from .records import STATES, RunRecord
from .schema import EvaluationRow, ExchangeRow, MachineRow, RunRow, SpaceRow, clean

Result = TypeVar("Result")
ATTEMPTS = 4  # at a transaction, while a server starts again or a deadlock is resolved
GOES_ON = ("running", "interrupted", "undecided")


class Archive:
    """An archive by path or URL; without one, the user's own. Raises ArchiveError."""

    def __init__(self, url: str | None = None, create: bool = True):
        self._address = database.address_of(url)
        self._engine = database.connect(self._address, create)
        self._writer = self._engine.execution_options(writes=True)

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return database.shown(self._address)

    # --- writing -----------------------------------------------------------------------------

    def begin_run(self, space: Space, machine: dict[str, Any], build: dict[str, Any],
                  strategy: str, settings: dict[str, Any]) -> int:
        """A new run. machine: key, cpu, cores, isa, caches, device, driver, traits; build: commit,
        dirty, compiler; each may be missing. `seed` and `budget` are looked for in the settings."""
        return self._begin(RunRecord(uuid.uuid4().hex, space, machine, build, strategy, settings,
                                     records.now(), None, "running"))

    def record(self, run: int, trial: Trial, at: datetime | None = None) -> bool:
        """Keeps a trial. False: there is one of this number in the run, which stays."""
        return self._write(lambda session: rows.record(session, run, trial, at or records.now()))

    def record_exchange(self, run: int, exchange: Exchange) -> bool:
        """Keeps an exchange, without keys, in place of an earlier record of it. False: there was
        one of this number."""
        def keep(session: Session) -> bool:
            known = session.scalars(select(ExchangeRow).where(
                ExchangeRow.run_id == run, ExchangeRow.number == exchange.number)).first()
            if known is None:
                return rows.insert(session, ExchangeRow, run_id=run, **vars(exchange))
            for name, value in vars(exchange).items():
                setattr(known, name, value)
            return False

        return self._write(keep)

    def finish_run(self, run: int, verdict: Verdict | None, state: str = "finished") -> None:
        """Ends a run: finished, failed, or undecided or interrupted, which may go on."""
        self._set_state(run, state, records.now(),
                        records.verdict_record(verdict) if verdict else None)

    def resume_run(self, run: int) -> None:
        """A run that was interrupted or undecided goes on; a finished one stays as it is."""
        self._write(lambda session: session.execute(
            update(RunRow).where(RunRow.id == run, RunRow.state.in_(GOES_ON)).values(
                state="running", finished=None, verdict=None)))

    def add(self, run: RunRecord) -> tuple[int, int]:
        """Keeps a run out of another archive or a format: its number here and how many of its
        trials are new."""
        number = self._begin(run)

        def fill(session: Session) -> int:
            if run.state not in GOES_ON:  # it may have ended since it was imported first
                session.execute(update(RunRow).where(RunRow.id == number,
                                                     RunRow.state.in_(GOES_ON)).values(
                    state=run.state, finished=run.finished,
                    verdict=records.verdict_record(run.verdict) if run.verdict else None))
            for exchange in run.exchanges:
                rows.insert(session, ExchangeRow, run_id=number, **vars(exchange))
            return sum(rows.record(session, number, trial, at)
                       for trial, at in zip(run.trials, run.times))

        return number, self._write(fill)

    def prune(self, older_than: float | None = None, keep: int | None = None,
              failed_only: bool = False, dry_run: bool = False) -> pruning.Pruned:
        """Removes evaluations: those older than so many days, all but the best so many of each
        space, those that are not correct; what is given must hold together. Runs without
        evaluations go with them; a run that goes on is left alone."""
        wanted = pruning.Wanted(older_than, keep, failed_only)
        if dry_run:
            return self._read(lambda session: pruning.plan(session, wanted)[1])
        pruned = self._write(lambda session: pruning.prune(session, wanted))
        if pruned.evaluations and self._engine.dialect.name == "sqlite":
            pruning.shrink(self._engine)
        return pruned

    # --- reading -----------------------------------------------------------------------------

    def trials(self, run: int) -> list[Trial]:
        """The trials of a run by number."""
        return self._read(lambda session: rows.trials(session, EvaluationRow.run_id == run))

    def exchanges(self, run: int) -> list[Exchange]:
        """The exchanges of a run by number."""
        return self._read(lambda session: [
            Exchange(**{name: getattr(row, name) for name in Exchange.__dataclass_fields__})
            for row in session.scalars(select(ExchangeRow).where(ExchangeRow.run_id == run)
                                       .order_by(ExchangeRow.number))])

    def resumable(self, space: Space, machine: dict[str, Any], strategy: str,
                  settings: dict[str, Any]) -> int | None:
        """The latest run of this search that `--resume` goes on with, or that has finished already.
        `max_time` may differ, and `budget` unless it has finished."""
        def same(row: Any) -> bool:
            free = {"max_time"} if row.state == "finished" else {"max_time", "budget"}
            ours, theirs = ({name: value for name, value in one.items() if name not in free}
                            for one in (clean(settings), row.settings))
            return row.strategy == strategy and ours == theirs

        def find(session: Session) -> int | None:
            found = session.execute(
                rows.of_space(select(RunRow.id, RunRow.settings, RunRow.strategy, RunRow.state),
                              space, machine)
                .where(RunRow.state.in_((*GOES_ON, "finished"))).order_by(RunRow.id.desc()))
            return next((row.id for row in found if same(row)), None)

        return self._read(find)

    def record_of(self, run: int) -> RunRecord:
        """A run with everything. Raises ArchiveError where there is none."""
        return self._read(lambda session: rows.record_of(session, run))

    def best(self, selection: queries.Selection | None = None, top: int = 1
             ) -> list[queries.Best]:
        """The fastest correct configurations of each space, and what its latest run chose."""
        return self._read(lambda session: queries.best(
            session, selection or queries.Selection(), top))

    def runs(self, selection: queries.Selection | None = None) -> list[queries.RunLine]:
        """Runs in the order they began."""
        return self._read(lambda session: queries.runs(session, selection or queries.Selection()))

    def statistics(self, selection: queries.Selection | None = None) -> dict[str, Any]:
        """Attempts, success rate, outcomes, strategies, speed-ups."""
        return self._read(lambda session: queries.statistics(
            session, selection or queries.Selection()))

    def names(self, column: str) -> list[str]:
        """The kernels, variants, shapes, machines or strategies that occur."""
        columns = {"machine": MachineRow.key, "strategy": RunRow.strategy}
        return self._read(lambda session: sorted(set(session.scalars(
            select(columns.get(column) or getattr(SpaceRow, column))))))

    def close(self) -> None:
        """Ends the connection; the archive may be used again."""
        self._engine.dispose()

    # --- transactions ------------------------------------------------------------------------

    def _read(self, work: Callable[[Session], Result]) -> Result:
        with database.one_line(self._address), Session(self._engine) as session:
            return work(session)

    def _write(self, work: Callable[[Session], Result]) -> Result:
        """One transaction; again when the database went away or asks for it."""
        with database.one_line(self._address):
            for attempt in range(ATTEMPTS):
                try:
                    with Session(self._writer) as session, session.begin():
                        return work(session)
                except OperationalError:
                    if attempt + 1 == ATTEMPTS:
                        raise
                    time.sleep(0.25 * 4 ** attempt)
        raise AssertionError("a transaction returns or raises")

    def _begin(self, run: RunRecord) -> int:
        if run.state not in STATES:
            raise ValueError(f"state '{run.state}'; valid: {', '.join(STATES)}")
        return self._write(lambda session: rows.begin(session, run))

    def _set_state(self, run: int, state: str, finished: datetime | None,
                   verdict: dict[str, Any] | None) -> None:
        if state not in STATES:
            raise ValueError(f"state '{state}'; valid: {', '.join(STATES)}")
        self._write(lambda session: session.execute(update(RunRow).where(RunRow.id == run).values(
            state=state, finished=finished, verdict=verdict)))
