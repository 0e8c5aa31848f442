#!/usr/bin/env bash
# The long form of the tests of docs/faults.md: kills `bench`, `tune` and `model` 200 times each at random
# moments, and reads, resumes and counts the remaining files. Takes an hour, at the lowest priority, because
# nothing depends on speed.
# Usage: scripts/faults.sh [--kills N] [--seed N] [UNITTEST...]
# UNITTEST: Kills.test_bench, Kills.test_tune or Kills.test_model; default: these, then the other
# faults. Exit status 1 if a file is unreadable, a process is left running or a sample is lost.
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

kills=200
seed=20261126
while (($#)) && [[ $1 == --* ]]; do
  case $1 in
    --kills) kills=${2:?} ;;
    --seed) seed=${2:?} ;;
    *)
      echo "faults.sh: unknown argument '$1'; valid: --kills N, --seed N" >&2
      exit 2
      ;;
  esac
  shift 2
done

scripts/build.sh rooflane tests/rooflane-fake tests/clock_jumps.so
programs=(build/rooflane build/tests/rooflane-fake)
failed=0
# As in the tests: what a user calibrated or tuned changes nothing, and idle threads sleep.
export OMP_WAIT_POLICY=passive ROOFLANE_TRAITS=none ROOFLANE_TUNED=none
FAULTS_KILLS=$kills FAULTS_SEED=$seed nice -n 19 python3 tests/faults_kill_test.py "${programs[@]}" "$@" ||
  failed=1
if (($# == 0)); then
  nice -n 19 python3 tests/faults_disk_test.py "${programs[@]}" || failed=1
  nice -n 19 python3 tests/faults_process_test.py "${programs[@]}" build/tests/clock_jumps.so || failed=1
fi
exit "$failed"
