"""`Archive`: writes runs and trials as they happen, and reads them back. Summaries: queries.py.

Several processes may write at once. Each call is one transaction, committed when it returns, and
may be repeated: what is there already is left as it is.
"""
from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError

from ..tuning import Exchange, Space, Trial, Verdict
from . import database, queries, records
from .database import EVALUATIONS, EXCHANGES, RUNS
from .place import ArchiveError
from .queries import Selection, Stored
from .records import STATES, RunRecord

Result = TypeVar("Result")
ATTEMPTS = 4  # at a transaction, while a server starts again or a deadlock is resolved
GOES_ON = ("running", "interrupted", "undecided")


class Archive:
    """An archive by path or URL; without one, the user's own. Raises ArchiveError."""

    def __init__(self, url: str | None = None, create: bool = True):
        self._address = database.address_of(url)
        self._engine = database.connect(self._address, create)

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return database.shown(self._address)

    # --- writing -----------------------------------------------------------------------------

    def begin_run(self, space: Space, machine: dict[str, Any], build: dict[str, Any],
                  strategy: str, settings: dict[str, Any]) -> int:
        """A new run. machine: key, cpu, cores, isa, caches, device, driver, traits; build: commit,
        dirty, compiler; each may be missing."""
        return self.add(RunRecord(
            uuid.uuid4().hex, space, records.whole(machine, records.MACHINE, "machine"),
            records.whole(build, records.BUILD, "build"), strategy, settings, records.now(), None,
            "running"))[0]

    def record(self, run: int, trial: Trial, at: datetime | None = None) -> bool:
        """Keeps a trial. False: there is one of this number in the run, which stays."""
        def keep(connection: Connection) -> bool:
            _run_of(connection, run)
            return _keep_trial(connection, run, replace(trial, time=at or records.now()))

        return self._write(keep)

    def record_exchange(self, run: int, exchange: Exchange) -> bool:
        """Keeps an exchange, without keys, in place of an earlier record of it. False: there was
        one of this number."""
        def keep(connection: Connection) -> bool:
            record = asdict(exchange)
            is_new = _insert(connection, EXCHANGES, run=run, number=exchange.number, record=record)
            if not is_new:
                connection.execute(update(EXCHANGES).where(
                    EXCHANGES.c.run == run, EXCHANGES.c.number == exchange.number)
                    .values(record=record))
            return is_new

        return self._write(keep)

    def finish_run(self, run: int, verdict: Verdict | None, state: str = "finished") -> None:
        """Ends a run: finished, failed, or undecided or interrupted, which may go on."""
        self._change(run, state, finished=records.now(), verdict=verdict)

    def resume_run(self, run: int) -> None:
        """A run that was interrupted or undecided goes on; a finished one stays as it is."""
        self._change(run, "running", finished=None, verdict=None)

    def _change(self, run: int, state: str, **more: Any) -> None:
        if state not in STATES:
            raise ValueError(f"state '{state}'; valid: {', '.join(STATES)}")

        def change(connection: Connection) -> None:
            known = _run_of(connection, run)
            if state == "running" and known.state not in GOES_ON:
                return
            changed = replace(records.made(RunRecord, known.record), state=state, **more)
            connection.execute(update(RUNS).where(RUNS.c.id == run).values(
                state=state, record=records.plain(changed)))

        self._write(change)

    def add(self, run: RunRecord) -> tuple[int, int]:
        """Keeps a run, perhaps out of another archive or a format: its number here and how many of
        its trials are new. One that was kept before it ended gets its end."""
        if run.state not in STATES:
            raise ValueError(f"state '{run.state}'; valid: {', '.join(STATES)}")

        def fill(connection: Connection) -> tuple[int, int]:
            record = records.plain(replace(run, trials=[], exchanges=[]))
            _insert(connection, RUNS, uid=run.uid, identity=records.identity_of(
                run.space, run.machine), state=run.state, record=record)
            number, state = connection.execute(
                select(RUNS.c.id, RUNS.c.state).where(RUNS.c.uid == run.uid)).one()
            if state in GOES_ON and run.state not in GOES_ON:
                connection.execute(update(RUNS).where(RUNS.c.id == number).values(
                    state=run.state, record=record))
            for exchange in run.exchanges:
                _insert(connection, EXCHANGES, run=number, number=exchange.number,
                        record=asdict(exchange))
            return number, sum(_keep_trial(connection, number, trial)
                               for trial in run.trials)

        return self._write(fill)

    def prune(self, older_than: float | None = None, keep: int | None = None,
              failed_only: bool = False, dry_run: bool = False) -> dict[str, int]:
        """Removes evaluations: those older than so many days, all but the best so many of each
        space, those that are not correct; what is given must hold together. Runs without
        evaluations go with them; a run that goes on is left alone. How many evaluations, runs,
        exchanges and spaces went, or would."""
        def work(connection: Connection) -> dict[str, int]:
            found = _stored(connection, {})
            leaving = queries.leaving(found, older_than, keep, failed_only)
            gone = [one for one in found if one.run.trials
                    and len(leaving[one.id]) == len(one.run.trials)]
            kept = {one.space for one in found if one not in gone}
            if not dry_run:
                for run, numbers in leaving.items():
                    connection.execute(delete(EVALUATIONS).where(
                        EVALUATIONS.c.run == run, EVALUATIONS.c.number.in_(numbers)))
                connection.execute(delete(RUNS).where(RUNS.c.id.in_([one.id for one in gone])))
            return {"evaluations": sum(map(len, leaving.values())), "runs": len(gone),
                    "exchanges": sum(len(one.run.exchanges) for one in gone),
                    "spaces": len({one.space for one in gone} - kept)}

        pruned = self._write(work)
        if pruned["evaluations"] and not dry_run and self._engine.dialect.name == "sqlite":
            self._shrink()
        return pruned

    def _shrink(self) -> None:
        """Gives the file's free pages back, unless somebody writes just now."""
        with self._engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            connection.rollback()
            try:
                raw.execute("PRAGMA busy_timeout=1000")
                raw.execute("VACUUM")
            except raw.OperationalError:
                pass  # the space is used by what comes next

    # --- reading -----------------------------------------------------------------------------

    def resumable(self, space: Space, machine: dict[str, Any], strategy: str,
                  settings: dict[str, Any], build: dict[str, Any]) -> int | None:
        """The latest run of this search that `--resume` goes on with, or that this build has
        finished already. `max_time` may differ, and `budget` unless it has finished."""
        identity = records.identity_of(space, records.whole(machine, records.MACHINE, "machine"))

        def same(row: Any) -> bool:
            finished = row.state == "finished"
            if finished and row.record["build"] != records.whole(build, records.BUILD, "build"):
                return False  # other kernels: its answer may no longer be theirs
            free = {"max_time"} if finished else {"max_time", "budget"}
            ours, theirs = ({name: value for name, value in one.items() if name not in free}
                            for one in (database.clean(settings), row.record["settings"]))
            return row.record["strategy"] == strategy and ours == theirs

        def find(connection: Connection) -> int | None:
            found = connection.execute(
                select(RUNS).where(RUNS.c.identity == identity,
                                   RUNS.c.state.in_((*GOES_ON, "finished")))
                .order_by(RUNS.c.id.desc()))
            return next((row.id for row in found if same(row)), None)

        return self._read(find)

    def record_of(self, run: int) -> RunRecord:
        """A run with everything. Raises ArchiveError where there is none."""
        found = self.stored({"run": run})
        if not found:
            raise ArchiveError(f"the archive has no run {run}")
        return found[0].run

    def stored(self, selection: Selection) -> list[Stored]:
        """The selected runs with everything, in the order they began."""
        return self._read(lambda connection: _stored(connection, selection))

    def close(self) -> None:
        """Ends the connection; the archive may be used again."""
        self._engine.dispose()

    # --- transactions ------------------------------------------------------------------------

    def _read(self, work: Callable[[Connection], Result]) -> Result:
        with database.one_line(self._address), self._engine.connect() as connection:
            return work(connection)

    def _write(self, work: Callable[[Connection], Result]) -> Result:
        """One transaction; again when the database went away or asks for it."""
        writer = self._engine.execution_options(writes=True)
        with database.one_line(self._address):
            for attempt in range(ATTEMPTS):
                try:
                    with writer.begin() as connection:
                        return work(connection)
                except OperationalError:
                    if attempt + 1 == ATTEMPTS:
                        raise
                    time.sleep(0.25 * 4 ** attempt)
        raise AssertionError("a transaction returns or raises")


def _insert(connection: Connection, table: Table, /, **values: Any) -> bool:
    """Whether the row is new; an existing one with the same key stays."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).values(**values).on_conflict_do_nothing()
    return connection.execute(statement.returning(*table.primary_key)).first() is not None


def _keep_trial(connection: Connection, run: int, trial: Trial) -> bool:
    return _insert(connection, EVALUATIONS, run=run, number=trial.number,
                   record=records.plain(trial) | {"error": records.number_of(trial.error)})


def _run_of(connection: Connection, run: int) -> Any:
    found = connection.execute(select(RUNS).where(RUNS.c.id == run)).first()
    if found is None:
        raise ArchiveError(f"the archive has no run {run}")
    return found


def _records(connection: Connection, table: Table, runs: Iterable[int]
             ) -> dict[int, list[dict[str, Any]]]:
    """What belongs to runs, by run and number."""
    found: dict[int, list[dict[str, Any]]] = {run: [] for run in runs}
    statement = select(table).where(table.c.run.in_(found)) if len(found) == 1 else select(table)
    for row in connection.execute(statement.order_by(table.c.run, table.c.number)):
        if row.run in found:
            found[row.run].append(row.record)
    return found


def _stored(connection: Connection, selection: Selection) -> list[Stored]:
    first: dict[str, int] = {}  # a space has the number of its first run
    found = []
    for row in connection.execute(select(RUNS).order_by(RUNS.c.id)):
        space = first.setdefault(row.identity, row.id)
        one = Stored(row.id, space, records.made(RunRecord, row.record))
        if one.is_in(selection):
            found.append(one)
    numbers = [one.id for one in found]
    evaluations = _records(connection, EVALUATIONS, numbers)
    exchanges = _records(connection, EXCHANGES, numbers)
    for one in found:
        one.run.trials = records.made(list[Trial], evaluations[one.id])
        one.run.exchanges = records.made(list[Exchange], exchanges[one.id])
    return sorted(found, key=lambda one: (one.run.started, one.id))
