"""What calls raise beside ValueError, TypeError and MemoryError."""
from __future__ import annotations


class Unavailable(RuntimeError):
    """The request is valid, but this machine, build or environment cannot serve it: a variant that
    is absent, a library or device that is not here, a package that is not installed."""
