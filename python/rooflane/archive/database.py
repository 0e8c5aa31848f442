"""Which database an archive is, and how it is opened: SQLite in one file, or PostgreSQL by URL.

SQLite runs in WAL, so that readers and a writer do not wait for each other; writers wait for one
another (`BUSY_S`). No connection is kept between transactions: they may follow a fork, and a server
that was started again is simply connected to again.
"""
from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from .place import VALID, ArchiveError, default_path
from .schema import VERSION, Base, Meta

BUSY_S = 60  # how long a writer waits for others; each holds the file for milliseconds
CONNECT_S = 10  # how long PostgreSQL may take to answer
_LOCK = 0x726F6F66  # PostgreSQL's advisory lock while tables are made: "roof"


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


def _reason_of(error: Exception) -> str:
    """A driver's words in one line."""
    words = str(getattr(error, "orig", None) or error).split("\n")
    return " ".join(word.strip() for word in words if word.strip())


@contextmanager
def one_line(address: URL) -> Iterator[None]:
    """Turns what a database raises into an ArchiveError."""
    try:
        yield
    except SQLAlchemyError as error:
        reason = _reason_of(error)
        if address.get_backend_name() == "sqlite":
            if "not a database" in reason:
                raise ArchiveError(f"'{shown(address)}' is not an archive: {reason}") from error
            raise ArchiveError(f"archive '{shown(address)}': {reason}") from error
        if isinstance(error, DBAPIError) and (error.connection_invalidated
                                              or isinstance(error, OperationalError)):
            raise ArchiveError(f"archive {shown(address)} cannot be reached: {reason}", 3) \
                from error
        raise ArchiveError(f"archive {shown(address)}: {reason}", 3) from error


def _prepare_sqlite(engine: Engine) -> None:
    """Transactions as SQLite has them: those that write say so at once, since one that finds out
    later cannot wait for another."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA trusted_schema=OFF")  # the file may be a stranger's
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            _to_wal(connection)

    @event.listens_for(engine, "begin")
    def begins(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _to_wal(connection: Any) -> None:
    """WAL stays with the file. SQLite does not wait for others while it changes to it."""
    end = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except connection.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)


def connect(address: URL, create: bool) -> Engine:
    """An engine on an archive that has its tables. Raises ArchiveError."""
    if address.get_backend_name() == "sqlite":
        path = Path(str(address.database))
        if path.is_dir():
            raise ArchiveError(f"archive '{path}' is a folder; valid: {VALID}")
        if not path.exists():
            if not create:
                raise ArchiveError(f"no archive '{path}'")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ArchiveError(f"archive '{path}': {error.strerror}") from error
        engine = create_engine(address, poolclass=NullPool, connect_args={"timeout": BUSY_S})
        _prepare_sqlite(engine)
    else:
        engine = create_engine(address, poolclass=NullPool,
                               connect_args={"connect_timeout": CONNECT_S})
    with one_line(address):
        _check_schema(engine, address)
    return engine


def _check_schema(engine: Engine, address: URL) -> None:
    """Makes the tables where there are none; refuses what is newer, or no archive."""
    with engine.connect() as connection:
        version = _version_of(connection, address)
    if version is None:
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            version = _version_of(connection, address)  # of who was first
            if version is None:
                Base.metadata.create_all(connection)
                connection.execute(Meta.__table__.insert().values(name="schema", version=VERSION))
                version = VERSION
    if version > VERSION:
        raise ArchiveError(f"archive {shown(address)} has schema {version}; this version knows "
                           f"{VERSION}: it was written by a newer Rooflane, which is needed", 3)


def _version_of(connection: Connection, address: URL) -> int | None:
    """The version of the tables; none where there are no tables."""
    present = set(inspect(connection).get_table_names())
    if Meta.__tablename__ in present:
        return connection.execute(select(Meta.version).where(Meta.name == "schema")).scalar_one()
    ours = set(Base.metadata.tables)
    if present if connection.dialect.name == "sqlite" else present & ours:
        raise ArchiveError(f"'{shown(address)}' is a database of something else: it has the table "
                           f"'{min(present)}'")
    return None
