#!/usr/bin/env bash
# Everything that must hold, from a bare machine: installs, builds, runs all tests. The output of a
# test that fails is printed. The last line is `N passed, N failed`; the exit status is 0 only when
# nothing failed. Arguments are handed to `meson test`, e.g. `scripts/test.sh cblas`.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

if ! scripts/build.sh; then
  echo "the build failed"
  echo "0 passed, 1 failed"
  exit 1
fi
rm -f build/meson-logs/testlog.json
status=0
meson test -C build --no-rebuild --print-errorlogs "$@" || status=$?
python3 scripts/count_tests.py build/meson-logs/testlog.json "$status"
