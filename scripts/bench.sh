#!/usr/bin/env bash
# From a fresh machine to the roofline summary: installs packages, builds the program (build.sh), measures
# and prints the summary. Arguments are passed to `rooflane bench`, for example
# `scripts/bench.sh -k gemm --threads 1`; `build/rooflane bench --help` lists its options. Rows are kept in
# results/MACHINE/RUN_ID.csv and .json.
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

scripts/build.sh rooflane
# The machine data that the cost model uses: measured once, 15 seconds.
build/rooflane calibrate --if-missing >&2
machine=$(build/rooflane doctor --slug)
# The row's column run_id and the file's name are the same.
ROOFLANE_RUN_ID=$(date -u +%Y%m%dT%H%M%SZ)-$(od -An -N2 -tx1 /dev/urandom | tr -d ' \n')
export ROOFLANE_RUN_ID
results=results/$machine
mkdir -p "$results"

status=0
build/rooflane bench --csv "$results/$ROOFLANE_RUN_ID.csv" --json "$results/$ROOFLANE_RUN_ID.json" \
  "$@" || status=$?
echo "rows: $results/$ROOFLANE_RUN_ID.csv" >&2
exit "$status"
