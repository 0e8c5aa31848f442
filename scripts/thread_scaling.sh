#!/usr/bin/env bash
# Checks whether more threads ever cost time: builds, times random small problems of softmax, LayerNorm,
# RMSNorm and attention with one thread and with all in the same rounds, and prints the ratios as Markdown.
# Status 1 if a problem takes more than 1.10 times as long with all threads.
# Usage: scripts/thread_scaling.sh [ARGUMENT...]   (arguments are passed to build/bench/thread-scaling:
#   -k KERNEL,... --random N --seed S --threads N --seconds S)
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
scripts/build.sh bench/thread-scaling >&2
exec build/bench/thread-scaling "$@"
