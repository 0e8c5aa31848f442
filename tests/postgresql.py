"""A PostgreSQL server for one test program: Debian's, in a temporary folder, on a Unix socket that
nobody else sees, ended with the program."""
from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

PACKAGE = "postgresql"
USER = "rooflane"


def programs() -> Path | None:
    """The folder of initdb and pg_ctl, of the newest version that is installed."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(found, key=lambda path: int(path.parent.name), default=None)


class Server:
    """Started when made. Raises RuntimeError with what it said."""

    def __init__(self, folder_of_programs: Path):
        self._programs = folder_of_programs
        # /tmp: a socket's path may have 107 characters, and another user must get there.
        self._folder = Path(tempfile.mkdtemp(prefix="rooflane-pg-", dir="/tmp"))
        self._as_user: list[str] = []
        if os.geteuid() == 0:  # which PostgreSQL refuses to run as
            names = {entry.pw_name for entry in pwd.getpwall()}
            user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}",
                             "--clear-groups"]
        try:
            self._run("initdb", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync",
                      f"--username={USER}")
            self._run("pg_ctl", "start", "--wait", "--log", str(self._folder / "log"), "--options",
                      f"-c listen_addresses='' -c unix_socket_directories={self._folder} "
                      "-c fsync=off -c max_connections=40")
        except RuntimeError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _run(self, program: str, *arguments: str) -> None:
        # The server inherits what it writes to: no pipe, which would never end.
        said = self._folder.with_name(self._folder.name + ".said")
        try:
            with open(said, "w+", encoding="utf-8") as output:
                done = subprocess.run(
                    [*self._as_user, str(self._programs / program), "-D",
                     str(self._folder / "data"), *arguments], cwd=self._folder,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
                output.seek(0)
                if done.returncode != 0:
                    raise RuntimeError(f"{program}: {output.read()}")
        finally:
            said.unlink()

    def url(self, database: str = "postgres") -> str:
        """The address of one of its databases."""
        return f"postgresql+psycopg://{USER}@/{database}?host={self._folder}"

    def restart(self) -> None:
        """As an administrator does."""
        self._run("pg_ctl", "restart", "--wait", "--mode=fast", "--log", str(self._folder / "log"))

    def stop(self) -> None:
        """Ends it and removes its folder."""
        try:
            self._run("pg_ctl", "stop", "--wait", "--mode=immediate")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
