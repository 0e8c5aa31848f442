"""Which database an archive is, how it is opened, and its tables: SQLite in one file, or
PostgreSQL by URL. What the tables hold: store.py.

SQLite runs in WAL, so that readers and a writer do not wait for each other; writers wait for one
another (`BUSY_S`). No connection is kept between transactions: they may follow a fork, and a server
that was started again is simply connected to again.
"""
from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    TypeDecorator,
    create_engine,
    event,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from .place import VALID, ArchiveError, default_path
from .redaction import redact

VERSION = 2  # of the tables
BUSY_S = 60  # how long a writer waits for others; each holds the file for milliseconds
CONNECT_S = 10  # how long PostgreSQL may take to answer
_LOCK = 0x726F6F66  # PostgreSQL's advisory lock while tables are made: "roof"


def clean(value: Any) -> Any:
    """What both databases hold of a JSON value: no API key, no NUL and no lone surrogate, which
    PostgreSQL refuses, and no NaN, which JSON has no word for."""
    if isinstance(value, str):
        value = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return redact(value.encode("utf-8", "replace").decode())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {clean(str(name)): clean(item) for name, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, (list, tuple)) else value


class Record(TypeDecorator[Any]):
    """A JSON value that keeps the order of its keys, cleaned."""
    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return clean(value)


TABLES = MetaData()
META = Table("archive_meta", TABLES, Column("name", String(32), primary_key=True),
             Column("version", Integer))
# `uid` is the same in every archive that the run is imported into; `identity` that of all runs on
# one space of one machine.
RUNS = Table("runs", TABLES, Column("id", Integer, primary_key=True),
             Column("uid", String(64), unique=True), Column("identity", String(64), index=True),
             Column("state", String(16)), Column("record", Record))


def _of_run(name: str) -> Table:
    return Table(name, TABLES, Column("run", ForeignKey("runs.id", ondelete="CASCADE"),
                                      primary_key=True),
                 Column("number", Integer, primary_key=True), Column("record", Record))


EVALUATIONS, EXCHANGES = _of_run("evaluations"), _of_run("exchanges")


def address_of(url: str | None) -> URL:
    """The database that a URL or a path names; without one $ROOFLANE_ARCHIVE, else the default
    path. Raises ArchiveError."""
    named = url or os.environ.get("ROOFLANE_ARCHIVE", "")
    if not named:
        return URL.create("sqlite", database=str(default_path()))
    if "://" not in named:
        return URL.create("sqlite", database=str(Path(named).expanduser().absolute()))
    try:
        address = make_url(named)
    except (ArgumentError, ValueError):
        raise ArchiveError(f"archive: no URL of a database; valid: {VALID}") from None
    backend = address.get_backend_name()
    if backend == "sqlite":
        if not address.database or address.database == ":memory:":
            raise ArchiveError(f"archive '{named}' names no file; valid: {VALID}")
        return URL.create("sqlite", database=str(Path(address.database).absolute()))
    if backend in ("postgresql", "postgres"):
        return address.set(drivername="postgresql+psycopg")
    raise ArchiveError(f"archive: unknown database '{backend}'; valid: {VALID}")


def shown(address: URL) -> str:
    """An address for messages: a file's path, or a URL without its password."""
    if address.get_backend_name() == "sqlite":
        return str(address.database)
    return address.set(query={}).render_as_string(hide_password=True)


@contextmanager
def one_line(address: URL) -> Iterator[None]:
    """Turns what a database raises into an ArchiveError."""
    try:
        yield
    except SQLAlchemyError as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        if address.get_backend_name() == "sqlite":
            what = " is not an archive" if "not a database" in reason else ""
            raise ArchiveError(f"archive '{shown(address)}'{what}: {reason}") from error
        lost = isinstance(error, OperationalError) or (
            isinstance(error, DBAPIError) and error.connection_invalidated)
        raise ArchiveError(f"archive {shown(address)}{' cannot be reached' * lost}: {reason}",
                           3) from error


def _prepare_sqlite(engine: Engine) -> None:
    """Transactions as SQLite has them: those that write say so at once, since one that finds out
    later cannot wait for another."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA trusted_schema=OFF")  # the file may be a stranger's
        end = time.monotonic() + BUSY_S
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:  # it stays with the file; SQLite does not wait for others while it changes to it
                connection.execute("PRAGMA journal_mode=WAL")
            except connection.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.02)

    @event.listens_for(engine, "begin")
    def begins(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def connect(address: URL, create: bool) -> Engine:
    """An engine on an archive that has its tables. Raises ArchiveError."""
    is_file = address.get_backend_name() == "sqlite"
    if is_file:
        path = Path(str(address.database))
        if path.is_dir():
            raise ArchiveError(f"archive '{path}' is a folder; valid: {VALID}")
        if not path.exists() and not create:
            raise ArchiveError(f"no archive '{path}'")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArchiveError(f"archive '{path}': {error.strerror}") from error
    engine = create_engine(address, poolclass=NullPool, connect_args={
        "timeout" if is_file else "connect_timeout": BUSY_S if is_file else CONNECT_S})
    if is_file:
        _prepare_sqlite(engine)
    with one_line(address):
        _check_tables(engine, address)
    return engine


def _check_tables(engine: Engine, address: URL) -> None:
    """Makes the tables where there are none; refuses those of another version, or no archive."""
    with engine.connect() as connection:
        version = _version_of(connection, address)
    if version is None:
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            version = _version_of(connection, address)  # of who was first
            if version is None:
                TABLES.create_all(connection)
                connection.execute(META.insert().values(name="schema", version=VERSION))
                version = VERSION
    if version != VERSION:
        raise ArchiveError(
            f"archive {shown(address)} has schema {version}; this version knows {VERSION}: "
            + ("a newer Rooflane is needed" if version > VERSION else
               "an older Rooflane reads it; move it away"), 3)


def _version_of(connection: Connection, address: URL) -> int | None:
    """The version of the tables; none where there are no tables."""
    present = set(inspect(connection).get_table_names())
    if META.name in present:
        return connection.execute(select(META.c.version).where(META.c.name == "schema")
                                  ).scalar_one()
    foreign = present if connection.dialect.name == "sqlite" else present & set(TABLES.tables)
    if foreign:
        raise ArchiveError(f"'{shown(address)}' is a database of something else: it has the table "
                           f"'{min(foreign)}'")
    return None
