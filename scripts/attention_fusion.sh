#!/usr/bin/env bash
# Checks that attention is never slower than what it fuses: builds, times it and two matrix products with a
# softmax between them in the same rounds, prefill and decode of 512 to 8192 tokens with keys and values in
# float32 and float16, and prints the ratios as Markdown. Status 1 if attention takes longer in a problem.
# Usage: scripts/attention_fusion.sh [ARGUMENT...]   (arguments are passed to build/bench/attention-fusion:
#   --tokens N,... --heads N --head-dim N --threads N --seconds S)
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
scripts/build.sh bench/attention-fusion >&2
exec build/bench/attention-fusion "$@"
