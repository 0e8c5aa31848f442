#!/usr/bin/env bash
# Runs all tests from a fresh machine: installs packages, builds for all ISA targets, tests. The output of a
# failing test is printed, and at the end the skipped ones, with the reason and the missing packages. The last
# line is `N passed, N failed`, with `, N skipped` if there are any; the exit status is 0 only if nothing
# failed. With --lint as first argument lint.sh runs too, clang-tidy for 30 seconds, and counts as one more.
# Further arguments are passed to `meson test`, for example `scripts/test.sh cblas`.
set -uo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.." || exit

# Tests start hundreds of Pythons. A version manager's python3 is a script that looks for the interpreter
# each time, which takes three times as long as an empty Python.
interpreter=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null)
# Where its folder is in PATH the order stays: a compiler cache, for one, comes before the compilers.
[[ -n $interpreter && :$PATH: != *:${interpreter%/*}:* ]] && PATH=${interpreter%/*}:$PATH
if ! scripts/build.sh; then
  echo "the build failed"
  echo "0 passed, 1 failed"
  exit 1
fi
checks=()
if [[ ${1:-} == --lint ]]; then
  shift
  scripts/lint.sh --within 30
  checks+=("lint=$?")
fi
rm -f build/meson-logs/testlog.json
# What these Pythons compile is kept in the build folder, also where nothing may be kept beside the
# sources.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$PWD/build/pycache
rm -rf "$PYTHONPYCACHEPREFIX/tmp"  # of copies that tests made in temporary folders
status=0
# Twice as many as there are CPUs, since some tests wait for most of their time.
meson test -C build --no-rebuild --print-errorlogs --num-processes $(($(nproc) * 2)) "$@" ||
  status=$?
python3 scripts/count_tests.py build/meson-logs/testlog.json "$status" "${checks[@]}"
