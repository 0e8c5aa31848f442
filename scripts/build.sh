#!/usr/bin/env bash
# A release build in build/, from whatever state: missing packages first (setup.sh), then Meson,
# then Ninja with the targets given (none: all, the tests too). Away from a terminal it is quiet
# unless something fails. Used by bench.sh and test.sh.
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

if (($# == 0)); then scripts/setup.sh --tests; else scripts/setup.sh; fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
loud() {  # runs a command; prints what it said only when it fails
  "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    exit 1
  }
}
# What the Python package is built with; all else is built without it too.
has_bindings=1
bindings=$(scripts/bindings_environment.py 2>"$log") || {
  has_bindings=0
  echo "build: without the Python package: $bindings" >&2
}
if [[ ! -f build/build.ninja ]]; then
  loud meson setup build --buildtype=release
elif ((has_bindings)) && ! grep -q python/rooflane/_core build/build.ninja; then
  loud meson setup --reconfigure build
fi
echo "build: building in build/ (minutes the first time)" >&2
if [[ -t 2 ]]; then
  ninja -C build -j "$(nproc)" "$@" >&2
else
  loud ninja -C build -j "$(nproc)" "$@"
fi
