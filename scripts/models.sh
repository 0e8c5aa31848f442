#!/usr/bin/env bash
# Measures every model on this machine: builds, measures shares and roofs, predicts the gain of other
# variants and measures it; about ten minutes on two cores. Tables, rows and a picture are kept in
# results/MACHINE/models/. docs/models.md has the details.
# Usage: scripts/models.sh [--quick] [--models NAME,...] [--threads N] [--out FOLDER]
set -euo pipefail
root=$(dirname "$0")/..
build=1
for argument in "$@"; do
  case $argument in
    --rooflane | --rooflane=* | -h | --help) build=0 ;;
  esac
done
if ((build)); then
  "$root/scripts/build.sh" rooflane >&2
  # The machine data that the cost model uses: measured once for this machine, 15 seconds.
  "$root/build/rooflane" calibrate --if-missing >&2
fi
exec python3 "$root/scripts/models.py" "$@"
