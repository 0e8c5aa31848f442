"""The archive's tables, the same on SQLite and PostgreSQL. Which database, and its version:
database.py; what is written into them: store.py.

Every text and every JSON value is cleaned on its way in: no API key (redaction.py), no NUL and no
lone surrogate, which PostgreSQL refuses, and no NaN, which JSON has no word for.
"""
from __future__ import annotations

import math
from array import array
from datetime import datetime, timezone
from sys import byteorder
from typing import Any

from sqlalchemy import (
    JSON,
    DateTime,
    Double,
    ForeignKey,
    LargeBinary,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from .redaction import redact

VERSION = 1  # of the schema; written into archive_meta


def clean_text(text: str) -> str:
    """What both databases can hold, without keys."""
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return redact(text.encode("utf-8", "replace").decode())


def clean(value: Any) -> Any:
    """A JSON value with clean texts; values that JSON cannot express become null."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {clean_text(str(name)): clean(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


class CleanText(TypeDecorator[str]):
    """Text of any length."""
    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else clean_text(value)


class CleanJson(TypeDecorator[Any]):
    """JSON that keeps the order of its keys."""
    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return clean(value)


class Samples(TypeDecorator[list[float]]):
    """Nanoseconds, packed as little-endian float64."""
    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: list[float] | None, dialect: Any) -> bytes:
        packed = array("d", value or [])
        if byteorder == "big":
            packed.byteswap()
        return packed.tobytes()

    def process_result_value(self, value: bytes | None, dialect: Any) -> list[float]:
        packed = array("d", bytes(value or b""))
        if byteorder == "big":
            packed.byteswap()
        return packed.tolist()


class Instant(TypeDecorator[datetime]):
    """A time in UTC."""
    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value and value.astimezone(timezone.utc).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value and value.replace(tzinfo=timezone.utc)


class Base(DeclarativeBase):
    """What all tables share: how Python's types are kept."""
    type_annotation_map = {str: CleanText, float: Double, datetime: Instant, list[float]: Samples,
                           dict[str, Any]: CleanJson, list[Any]: CleanJson}


class Meta(Base):
    """One row, `schema`: the version."""
    __tablename__ = "archive_meta"
    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    version: Mapped[int]


class MachineRow(Base):
    """A machine by what decides speed; `traits`, measured, are no part of its fingerprint."""
    __tablename__ = "machines"
    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    key: Mapped[str]
    cpu: Mapped[str]
    cores: Mapped[int]
    isa: Mapped[str]
    caches: Mapped[list[Any]]
    device: Mapped[str]
    driver: Mapped[str]
    traits: Mapped[dict[str, Any]]


class BuildRow(Base):
    """The program that was timed."""
    __tablename__ = "builds"
    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    commit: Mapped[str]
    dirty: Mapped[bool]
    compiler: Mapped[str]


class SpaceRow(Base):
    """A search space on a machine. Ratios are over the default and configurations are complete, so
    that another default or another set of tunables is another space (`identity` holds both)."""
    __tablename__ = "spaces"
    __table_args__ = (UniqueConstraint("machine_id", "identity"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    machine_id: Mapped[int] = mapped_column(ForeignKey("machines.id", ondelete="CASCADE"))
    identity: Mapped[str] = mapped_column(String(64))
    kernel: Mapped[str] = mapped_column(CleanText, index=True)
    variant: Mapped[str]
    shape: Mapped[str]
    math: Mapped[str]
    threads: Mapped[int]
    isa: Mapped[str]
    device: Mapped[str]
    tunables: Mapped[list[Any]]  # name, meaning, least, most, values, selects
    default: Mapped[dict[str, Any]]
    candidates: Mapped[list[Any]]  # of the model: configuration, predicted_ns
    problem: Mapped[dict[str, Any]]
    roof_ns: Mapped[float | None]


class ConfigurationRow(Base):
    """A configuration of a space, as text_of writes it."""
    __tablename__ = "configurations"
    __table_args__ = (UniqueConstraint("space_id", "text"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    space_id: Mapped[int] = mapped_column(ForeignKey("spaces.id", ondelete="CASCADE"))
    text: Mapped[str]


class RunRow(Base):
    """One search. `uid` is the same in every archive that the run is imported into."""
    __tablename__ = "runs"
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(String(64), unique=True)
    space_id: Mapped[int] = mapped_column(ForeignKey("spaces.id", ondelete="CASCADE"), index=True)
    machine_id: Mapped[int] = mapped_column(ForeignKey("machines.id", ondelete="CASCADE"))
    build_id: Mapped[int] = mapped_column(ForeignKey("builds.id"))
    strategy: Mapped[str]
    settings: Mapped[dict[str, Any]]
    seed: Mapped[int | None]
    budget: Mapped[int | None]
    started: Mapped[datetime]
    finished: Mapped[datetime | None]
    state: Mapped[str]
    verdict: Mapped[dict[str, Any] | None] = mapped_column(CleanJson(none_as_null=True))


class EvaluationRow(Base):
    """One trial. (run, number) is unique, so that nothing is counted twice."""
    __tablename__ = "evaluations"
    __table_args__ = (UniqueConstraint("run_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    number: Mapped[int]
    configuration_id: Mapped[int] = mapped_column(
        ForeignKey("configurations.id", ondelete="CASCADE"), index=True)
    outcome: Mapped[str]
    strategy: Mapped[str]
    source: Mapped[str]
    note: Mapped[str]
    reason: Mapped[str]
    ratio: Mapped[float | None]
    ratio_low: Mapped[float | None]
    ratio_high: Mapped[float | None]
    samples: Mapped[int]  # how many ns holds
    ns: Mapped[list[float]]
    default_ns: Mapped[list[float]]
    error: Mapped[float | None]
    threshold: Mapped[float | None]
    propose_s: Mapped[float]
    build_s: Mapped[float]
    verify_s: Mapped[float]
    time_s: Mapped[float]
    time: Mapped[datetime]


class ExchangeRow(Base):
    """One request to a language model and what came back."""
    __tablename__ = "exchanges"
    __table_args__ = (UniqueConstraint("run_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    number: Mapped[int]
    model: Mapped[str]
    request: Mapped[str]
    answer: Mapped[str]
    failure: Mapped[str]
    seconds: Mapped[float]
    tokens_in: Mapped[int]
    tokens_out: Mapped[int]
    trials: Mapped[list[Any]]
