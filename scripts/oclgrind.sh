#!/bin/sh
# Runs small shapes of every OpenCL kernel, with the tilings of CPUs and of GPUs, in oclgrind, which reports
# data races and out-of-bounds accesses. Any report is a failure. (Its --uninitialized is not used, because
# oclgrind 21.10 stops at LLVM's `freeze`, which optimised kernels contain.)
# Usage: scripts/oclgrind.sh [TEST_PROGRAM [K/N]]; 77 if oclgrind is not installed. K/N: every N-th
# shape from the K-th, so that N tests share the work.
set -eu
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
program=${1:-"$(dirname "$0")/../build/tests/opencl_test"}
if ! command -v oclgrind >/dev/null; then
  if command -v apt-cache >/dev/null && ! apt-cache show oclgrind >/dev/null 2>&1; then
    echo "skipped: 1 case: this distribution has no oclgrind"
  else
    echo "skipped: 1 case: no oclgrind; install oclgrind"
  fi
  exit 77
fi
if [ $# -gt 1 ]; then export PART_OF_CASES="$2"; fi
reports=$(mktemp)
trap 'rm -f "$reports"' EXIT
# 64 KiB of local memory, as GPUs have; the log keeps oclgrind's reports apart from the test's.
status=0
oclgrind --data-races --local-mem-size 65536 --max-errors 20 --log "$reports" \
  "$program" --test-case="small shapes*" || status=$?
if [ -s "$reports" ]; then
  cat "$reports" >&2
  echo "oclgrind reported errors" >&2
  exit 1
fi
exit "$status"
