"""Rows to data and back, each function within a transaction of store.py's."""
from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Select, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from ..tuning import Cost, Exchange, Outcome, Ratio, Space, Trial, configuration_of, text_of
from . import records
from .place import ArchiveError
from .records import BUILD, MACHINE, RunRecord
from .schema import (
    Base,
    BuildRow,
    ConfigurationRow,
    EvaluationRow,
    ExchangeRow,
    MachineRow,
    RunRow,
    SpaceRow,
)


def insert(session: Session, table: type[Base], /, **values: Any) -> bool:
    """Whether the row is new; an existing one with the same key stays."""
    dialect = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).values(**values).on_conflict_do_nothing()
    return session.execute(statement.returning(table.id)).first() is not None


def id_of(session: Session, table: type[Base], key: dict[str, Any], /, **values: Any) -> int:
    """The row that `key` identifies, made where it is missing."""
    wanted = select(table.id).filter_by(**key)
    found = session.scalar(wanted)
    if found is None:
        insert(session, table, **key, **values)
        found = session.scalar(wanted)
    return found


def begin(session: Session, run: RunRecord) -> int:
    """The run's row, and those that it refers to."""
    machine = records.whole(run.machine, MACHINE, "machine")
    build = records.whole(run.build, BUILD, "build")
    machine_id = id_of(session, MachineRow,
                       {"fingerprint": records.machine_fingerprint(machine)}, **machine)
    if machine["traits"]:  # the latest
        session.execute(update(MachineRow).where(MachineRow.id == machine_id)
                        .values(traits=machine["traits"]))
    build_id = id_of(session, BuildRow, {"fingerprint": records.fingerprint_of(build)}, **build)
    described = records.space_record(run.space)
    space_id = id_of(session, SpaceRow, {"machine_id": machine_id,
                                         "identity": records.identity_of(run.space)}, **described)
    if run.state == "running":  # what is worth trying may have changed since
        session.execute(update(SpaceRow).where(SpaceRow.id == space_id).values(
            **{name: described[name] for name in ("tunables", "candidates", "problem", "roof_ns")}))
    verdict = records.verdict_record(run.verdict) if run.verdict else None
    return id_of(session, RunRow, {"uid": run.uid}, space_id=space_id, machine_id=machine_id,
                 build_id=build_id, strategy=run.strategy, settings=run.settings,
                 seed=run.settings.get("seed"), budget=run.settings.get("budget"),
                 started=run.started, finished=run.finished, state=run.state, verdict=verdict)


def record(session: Session, run: int, trial: Trial, at: datetime) -> bool:
    """Inserts a trial and, where it is new, its configuration."""
    space = session.scalar(select(RunRow.space_id).where(RunRow.id == run))
    if space is None:
        raise ArchiveError(f"the archive has no run {run}")
    configuration = id_of(session, ConfigurationRow,
                          {"space_id": space, "text": text_of(trial.configuration)})
    ratio, cost = trial.ratio, trial.cost
    return insert(
        session, EvaluationRow, run_id=run, number=trial.number, configuration_id=configuration,
        outcome=trial.outcome.value, strategy=trial.strategy, source=trial.source, note=trial.note,
        reason=trial.reason, ratio=ratio and ratio.value, ratio_low=ratio and ratio.low,
        ratio_high=ratio and ratio.high, samples=len(trial.ns), ns=trial.ns,
        default_ns=trial.default_ns, error=records.number_of(trial.error),
        threshold=trial.threshold, propose_s=cost.propose, build_s=cost.build,
        verify_s=cost.verify, time_s=cost.time, time=at)


def of_space(statement: Select[Any], space: Space, machine: dict[str, Any]) -> Select[Any]:
    """Restricts a statement on runs to one space of one machine."""
    return (statement.join(SpaceRow, RunRow.space_id == SpaceRow.id)
            .join(MachineRow, SpaceRow.machine_id == MachineRow.id)
            .where(SpaceRow.identity == records.identity_of(space),
                   MachineRow.fingerprint == records.machine_fingerprint(machine)))


def trials(session: Session, condition: Any) -> list[Trial]:
    """The trials of evaluations, by run and number."""
    return [trial for trial, _ in timed_trials(session, condition)]


def timed_trials(session: Session, condition: Any) -> list[tuple[Trial, datetime]]:
    rows = session.execute(
        select(EvaluationRow, ConfigurationRow.text)
        .join(ConfigurationRow, EvaluationRow.configuration_id == ConfigurationRow.id)
        .where(condition).order_by(EvaluationRow.run_id, EvaluationRow.number))
    return [(trial_of(row, text), row.time) for row, text in rows]


def trial_of(row: EvaluationRow, text: str) -> Trial:
    ratio = None
    if row.ratio is not None and row.ratio_low is not None and row.ratio_high is not None:
        ratio = Ratio(row.ratio, row.ratio_low, row.ratio_high)
    return Trial(row.number, configuration_of(text), Outcome(row.outcome), row.strategy, row.source,
                 row.note, row.reason, ratio, row.ns, row.default_ns, row.error, row.threshold,
                 Cost(row.propose_s, row.build_s, row.verify_s, row.time_s))


def record_of(session: Session, run: int) -> RunRecord:
    row = session.get(RunRow, run)
    if row is None:
        raise ArchiveError(f"the archive has no run {run}")
    of_run = timed_trials(session, EvaluationRow.run_id == run)
    space = session.get_one(SpaceRow, row.space_id)
    machine, build = session.get_one(MachineRow, row.machine_id), session.get_one(BuildRow,
                                                                                 row.build_id)
    names = SpaceRow.__table__.columns.keys()
    exchanges = session.scalars(select(ExchangeRow).where(ExchangeRow.run_id == run)
                                .order_by(ExchangeRow.number))
    return RunRecord(
        row.uid, records.space_of({name: getattr(space, name) for name in names}),
        {name: getattr(machine, name) for name in MACHINE},
        {name: getattr(build, name) for name in BUILD}, row.strategy, row.settings, row.started,
        row.finished, row.state, records.verdict_of(row.verdict) if row.verdict else None,
        [trial for trial, _ in of_run], [at for _, at in of_run],
        [Exchange(**{name: getattr(one, name) for name in Exchange.__dataclass_fields__})
         for one in exchanges])
