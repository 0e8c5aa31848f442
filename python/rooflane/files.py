"""Files that are there only when they are complete, and errors that name them."""
from __future__ import annotations

from pathlib import Path


def replace(path: Path, text: str, errors: str = "strict") -> None:
    """Replaces a file as a whole, or leaves the old one. `errors`: as of str.encode. Raises OSError
    that names the file, also for a full disk, where the system's own names none."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        try:
            partial.write_text(text, encoding="utf-8", errors=errors)
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
