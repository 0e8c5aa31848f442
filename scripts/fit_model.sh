#!/usr/bin/env bash
# Fits the constants of the cost models to the recorded times of several machines: builds, and prints the
# regret on problems that the fit does not see and the constants that change. What is better for all of them
# can be shipped: src/core/model_constants.hpp.
# Usage: scripts/fit_model.sh FILE...   (each written by `rooflane calibrate --learn --times FILE`)
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
if (($# == 0)); then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
replay=()
for file; do replay+=(--replay "$(realpath "$file")"); done
cd "$(dirname "$0")/.."
scripts/build.sh rooflane >&2
exec build/rooflane calibrate --learn "${replay[@]}"
