"""@rooflane.variant: your own Python function measured as a variant together with all others.

The function runs in a separate worker process (function_worker.py), is verified against the
double-precision reference and has a slot in the same rounds as every other variant.
"""
from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rooflane.errors import Unavailable

Function = TypeVar("Function", bound=Callable[..., Any])
ARRAYS = ("numpy", "torch", "jax")
PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class UserVariant:
    """A function that computes a kernel."""
    kernel: str
    name: str
    threads: str
    arrays: str
    dtypes: tuple[str, ...]
    function: Callable[..., Any]


class Enough(BaseException):
    """Ends a script in a worker, which needs only the part above its first measurement."""


registered: dict[tuple[str, str], UserVariant] = {}  # by kernel and name
_in_worker = False


def enter_worker() -> None:
    """From now on measuring functions end the script that calls them."""
    global _in_worker
    _in_worker = True


def leave_worker() -> None:
    """Called first by what measures. Raises Enough in a worker."""
    if _in_worker:
        raise Enough


def variant(kernel: str, name: str | None = None, *, threads: str = "one", arrays: str = "numpy",
            dtypes: Sequence[str] = ("float32", "int32")) -> Callable[[Function], Function]:
    """Makes a function a variant of a kernel, which rooflane.bench measures beside all others.

    The function's parameters have the names of the kernel's tensors and parameters; a function
    that takes an output by name writes to it, any other returns it (several as a tuple).

        @rooflane.variant("softmax")
        def mine(x, y):
            numpy.exp(x - x.max(1, keepdims=True), out=y)
            y /= y.sum(1, keepdims=True)

    name: default the function's, with - for _. threads: "many" where it takes as many as it is
    told (Numba and PyTorch are told; a parameter `threads` says how many), else "one". arrays:
    "numpy", "torch" or "jax", what the function gets; what is returned is awaited. dtypes: formats
    of tensors that it takes. The function must be found by another process: in a file or module,
    or, of a notebook, through the package cloudpickle. Raises ValueError.
    """
    if threads not in ("one", "many"):
        raise ValueError(f"threads '{threads}'; valid: one, many")
    if arrays not in ARRAYS:
        raise ValueError(f"arrays '{arrays}'; valid: {', '.join(ARRAYS)}")

    def register(function: Function) -> Function:
        called = name or getattr(function, "__name__", "").replace("_", "-").strip("-").lower()
        if not re.fullmatch("[a-z0-9-]+", called):
            raise ValueError(f"name '{called}': allowed are a-z, 0-9 and -")
        registered[kernel, called] = UserVariant(kernel, called, threads, arrays, tuple(dtypes),
                                                 function)
        return function

    return register


def _source(one: UserVariant, folder: Path) -> dict[str, str]:
    """How another process finds the function: a file, a module, or a pickle in `folder`."""
    module = getattr(one.function, "__module__", "")
    main = sys.modules["__main__"]
    if module != "__main__" and module in sys.modules:
        return {"module": module}
    if (file := getattr(main, "__file__", None)) and Path(file).exists():
        return {"file": str(Path(file).resolve())}
    try:
        import cloudpickle  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise Unavailable(f"{one.name}: a function without a file needs the package "
                          "cloudpickle") from None
    path = folder / f"{one.kernel}-{one.name}.pickle"
    path.write_bytes(cloudpickle.dumps(one))
    return {"pickle": str(path)}


def scripts_folder() -> Path:
    """Where peers.py and its workers are. Raises Unavailable."""
    for folder in (PACKAGE / "scripts", PACKAGE / "share" / "rooflane",
                   PACKAGE.parent.parent / "scripts"):
        if (folder / "peers.py").exists():
            return folder
    raise Unavailable("scripts/peers.py did not come with the package")


@contextlib.contextmanager
def served(kernels: set[str], options: dict[str, Any]
           ) -> Iterator[tuple[dict[str, list[str]], dict[str, str]]]:
    """The options that make the functions for these kernels (none: all) peers of a run, beside
    those that `options` names, and the environment variables that it needs."""
    chosen = [one for one in registered.values() if not kernels or one.kernel in kernels]
    if not chosen:
        yield {}, {}
        return
    named = options.get("peers") or []
    peers = named.split(",") if isinstance(named, str) else list(named)
    names = list(dict.fromkeys(one.name for one in chosen))
    with tempfile.TemporaryDirectory(prefix="rooflane-functions-") as folder:
        functions = [{"name": one.name, "kernel": one.kernel, "source": _source(one, Path(folder))}
                     for one in chosen]
        file = Path(folder) / "functions.json"
        file.write_text(json.dumps({
            "functions": functions, "python": sys.executable, "path": sys.path,
            "scripts": str(scripts_folder()),
            "peers": os.environ.get("ROOFLANE_PEERS") or str(scripts_folder() / "peers.py")}),
            encoding="utf-8")
        yield ({"peers": [*peers, *names]},
               {"ROOFLANE_PEERS": str(PACKAGE / "function_peers.py"),
                "ROOFLANE_FUNCTIONS": str(file)})
