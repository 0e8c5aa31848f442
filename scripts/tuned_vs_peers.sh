#!/usr/bin/env bash
# Does tuning pay beside other libraries? Tunes the GEMMs of three models and 30 random ones, then times each with
# the cost model's schedule, with the tuned one, and with oneDNN, MKL and PyTorch, all in the same rounds.
# Usage: scripts/tuned_vs_peers.sh OUT.csv [--tune SECONDS] [--problem SECONDS] [BENCH OPTION]...
# --tune: for all searches together (default 1800; 0: only those that OUT.tuned.json has already). --problem: for the
# rounds of one problem (default 6). --threads N,... is for both; other options go to bench: --resume. The machine
# should do nothing else. OUT.csv has the rows; what is printed is `roofline OUT.csv`.
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
if [[ ${1:-} != *.csv ]]; then
  sed -n '4s/^# //p' "$0" >&2
  exit 2
fi
out=$1 tune=1800 problem=6 threads=() options=()
shift
while (($#)); do
  case $1 in
    --tune) tune=$2; shift 2 ;;
    --problem) problem=$2; shift 2 ;;
    --threads) threads=(--threads "$2"); shift 2 ;;
    *) options+=("$1"); shift ;;
  esac
done
rooflane=${ROOFLANE_PROGRAM:-$(dirname "$0")/../build/rooflane}
problems=(-k gemm --preset gpt2-small --preset bert-base --preset llama3-8b --preset random:30:57
  "${threads[@]}")
if [[ $tune != 0 ]]; then
  "$rooflane" tune "${problems[@]}" --max-time "$tune" --no-store --export "${out%.csv}.tuned.json" >&2
fi
"$rooflane" bench "${problems[@]}" -v hwy,onednn --peers mkl,torch --tuned "${out%.csv}.tuned.json" \
  --max-time "$problem" --csv "$out" "${options[@]}" >&2
exec "$rooflane" roofline "$out"
