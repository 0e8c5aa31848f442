#!/usr/bin/env bash
# Measures how much a variant's first choice loses against the best of its search space: builds, times all
# its tunings on random problems in the same rounds, and prints the regret per class as Markdown (median,
# 95th percentile, worst), and how the predictions compare with the times.
# Usage: scripts/model_regret.sh [--random N] [--seed S] [ARGUMENT...]   (default: 200 problems, seed 1;
#   further arguments are passed to build/bench/model-regret: -k KERNEL --preset NAME
#   --threads N,... --csv FILE --only-plan ...)
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
random=200
seed=1
arguments=()
while (($#)); do
  case $1 in
    --random) random=$2; shift 2 ;;
    --seed) seed=$2; shift 2 ;;
    *) arguments+=("$1"); shift ;;
  esac
done
scripts/build.sh bench/model-regret >&2
exec build/bench/model-regret --preset "random:$random:$seed" "${arguments[@]}"
