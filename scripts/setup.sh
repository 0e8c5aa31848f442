#!/usr/bin/env bash
# Installs what the build needs with apt (Debian 12 and 13, Ubuntu 24.04), and only what is missing:
# when everything is there it does nothing and returns at once. Building comes next: build.sh.
#   scripts/setup.sh              for the programs and the Python package
#   scripts/setup.sh --program    for the program `rooflane` alone
#   scripts/setup.sh --tests      for the tests too
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"

has_command() { command -v "$1" >/dev/null 2>&1; }
has_module() { has_command pkg-config && pkg-config --exists "$1"; }
has_header() { [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]]; }
has_venv() { python3 -c 'import ensurepip' >/dev/null 2>&1; }
has_python_headers() {
  python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null
}
has_file() {  # one of some globs
  local glob
  for glob in "$@"; do
    if compgen -G "$glob" >/dev/null; then return 0; fi
  done
  return 1
}

missing=()
want() {  # PACKAGE CHECK...: the package is wanted unless the check succeeds
  local package=$1
  shift
  "$@" || missing+=("$package")
}

compiler=${CXX:-g++}
want g++ has_command "${compiler%% *}"
want meson has_command meson
want ninja-build has_command ninja
want pkg-config has_command pkg-config
want python3 has_command python3
want python3-venv has_venv
want libhwy-dev has_module libhwy
want libbenchmark-dev has_module benchmark
want libfmt-dev has_module fmt
want libhwloc-dev has_module hwloc
want libcli11-dev has_module CLI11
want nlohmann-json3-dev has_module nlohmann_json
if [[ ${1:-} != --program ]]; then want doctest-dev has_header doctest/doctest.h; fi
want ocl-icd-opencl-dev has_module OpenCL
want opencl-headers has_header CL/cl.h
want opencl-clhpp-headers has_header CL/opencl.hpp
# Opened at run time: the OpenMP build of OpenBLAS, and an OpenCL that runs on any CPU.
want libopenblas-openmp-dev has_file '/usr/lib/*/openblas-openmp/libopenblas.so.0' \
  '/usr/lib64/libopenblaso.so.0'
want pocl-opencl-icd has_file '/etc/OpenCL/vendors/pocl*.icd'
# Peers: measured where they are found, listed as absent elsewhere. Nothing fails for their sake.
# Tests that lack theirs are skipped.
optional=()
prefer() {  # PACKAGE CHECK...
  local package=$1
  shift
  "$@" || optional+=("$package")
}
if [[ ${1:-} != --program ]]; then prefer python3-dev has_python_headers; fi
prefer bubblewrap has_command bwrap  # `rooflane judge`
prefer libdnnl-dev has_header oneapi/dnnl/dnnl.hpp
prefer libclblast-dev has_module clblast
prefer libblis4-openmp has_file '/usr/lib/*/blis-openmp/libblis.so.*' '/usr/lib64/libblis*.so.*'
if [[ ${1:-} == --tests ]]; then
  prefer oclgrind has_command oclgrind
  # Kernels for aarch64, run by an emulator.
  prefer g++-aarch64-linux-gnu has_command aarch64-linux-gnu-g++
  prefer qemu-user has_command qemu-aarch64
  prefer mandoc has_command mandoc  # looks at the manual page
  prefer zsh has_command zsh        # completes
  prefer git has_command git        # asv publishes commits
  prefer postgresql has_file '/usr/lib/postgresql/*/bin/initdb'  # started by the tests themselves
fi
if ((${#missing[@]} + ${#optional[@]} == 0)); then exit 0; fi
if ! has_command apt-get; then
  if ((${#missing[@]} == 0)); then exit 0; fi
  echo "setup: this system has no apt-get; install what these Debian packages hold, then run" \
    "again: ${missing[*]}" >&2
  exit 1
fi
offered() {  # those of them that the package lists know; not every distribution has every one
  local package
  for package in "${optional[@]}"; do
    if apt-cache show "$package" >/dev/null 2>&1; then echo "$package"; fi
  done
}
# Lists that are there are believed: no update at every call for what this distribution lacks.
if ((${#missing[@]} == 0)) && has_file '/var/lib/apt/lists/*_Packages*'; then
  mapfile -t optional < <(offered)
  if ((${#optional[@]} == 0)); then exit 0; fi
fi
as_root=()
if ((EUID != 0)); then
  if ((${#missing[@]} == 0)) && ! sudo -n true 2>/dev/null; then
    exit 0  # nothing is missing that must be there, and nobody may install the rest
  fi
  if ! has_command sudo; then
    echo "setup: neither root nor sudo; as root run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
  [[ -t 0 ]] || as_root=(sudo -n)  # nobody is there to type a password
fi
apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >&2; }
install() { apt_get -y --no-install-recommends install "$@"; }
if ((${#missing[@]} > 0)); then
  apt_get update
  echo "setup: installing ${missing[*]}" >&2
  install "${missing[@]}"
elif ! apt_get update; then
  echo "setup: no package lists; going on without ${optional[*]}" >&2
  exit 0
fi
mapfile -t optional < <(offered)
if ((${#optional[@]} == 0)); then exit 0; fi
echo "setup: installing ${optional[*]}" >&2
install "${optional[@]}" || echo "setup: going on without ${optional[*]}" >&2
