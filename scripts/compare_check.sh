#!/usr/bin/env bash
# Checks the verdicts of `compare` and `bench --against`. Part one compares pairs of runs of one build; every
# FASTER or SLOWER among them is wrong. Part two runs a copy of the program, with a softmax that takes 5 %
# longer, in the same rounds as this one. Prints both tables; --out PREFIX also writes PREFIX.md. Exit
# status 1 if more than 1 % of the rows are flagged, or if the slowed kernel is not found in each problem.
# Usage: scripts/compare_check.sh [--pairs N] [--out PREFIX]
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

pairs=20
out=
while (($#)); do
  case $1 in
    --pairs) pairs=${2:?} ;;
    --out) out=${2:?} ;;
    *)
      echo "compare_check.sh: unknown argument '$1'; valid: --pairs N, --out PREFIX" >&2
      exit 2
      ;;
  esac
  shift 2
done

[[ -x build/rooflane ]] || scripts/build.sh rooflane
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Few problems of well below a second each: 40 runs must end within a quarter of an hour.
light=(-v "hwy,blas" --launches 3 --max-time 0.4 --threads 1
  --shape "gemm:m=n=k=128..512*4" --shape "softmax:rows=64,cols=512"
  --shape "layernorm:rows=64,cols=768")
run() { # FILE ARGUMENTS...: SUSPECT rows do not end the script
  local file=$1 status=0
  shift
  build/rooflane bench --csv "$file" "$@" >"$work/summary.txt" 2>"$work/notes.txt" || status=$?
  if ((status > 1)); then
    cat "$work/notes.txt" >&2
    exit "$status"
  fi
}
# VERDICT FILE [KERNEL | -KERNEL]: rows of `compare --json` with that verdict, of one kernel or of
# all but one.
count() {
  python3 - "$@" <<'END'
import json, sys
verdict, file, kernel = [*sys.argv[1:], ""][:3]
rows = [row for row in json.load(open(file))["rows"] if row["verdict"] == verdict]
other = kernel.startswith("-")
print(sum(not kernel or (row["kernel"] == kernel.lstrip("-")) != other for row in rows))
END
}

{
  echo "| pair | rows | FASTER | SLOWER | UNSURE | SAME |"
  echo "| ---: | ---: | ---: | ---: | ---: | ---: |"
} >"$work/report.md"
rows=0 flagged=0
for ((pair = 1; pair <= pairs; ++pair)); do
  run "$work/old.csv" "${light[@]}"
  run "$work/new.csv" "${light[@]}"
  build/rooflane compare --json "$work/old.csv" "$work/new.csv" >"$work/compared.json"
  line=()
  for verdict in FASTER SLOWER UNSURE SAME; do
    line+=("$(count $verdict "$work/compared.json")")
  done
  total=$((line[0] + line[1] + line[2] + line[3]))
  echo "| $pair | $total | ${line[0]} | ${line[1]} | ${line[2]} | ${line[3]} |" >>"$work/report.md"
  echo "pair $pair of $pairs: ${line[0]} FASTER, ${line[1]} SLOWER of $total rows" >&2
  rows=$((rows + total))
  flagged=$((flagged + line[0] + line[1]))
done
share=$(awk -v f="$flagged" -v r="$rows" 'BEGIN { printf "%.2f", r ? 100 * f / r : 0 }')
echo -e "\n$flagged of $rows rows of one build against itself flagged: $share %.\n" \
  >>"$work/report.md"

# The slowed copy: every run of softmax/hwy waits, busily, for 5 % of the time that it took.
git ls-files -z | tar --null -T - -c | tar -x -C "$work" --one-top-level=slowed
sed -i -e 's|^#include <algorithm>$|&\n#include <chrono>|' -e 's|^  void run() override {$|\
  void run() override {\
    const auto start = std::chrono::steady_clock::now();\
    run_once();\
    const auto end = start + (std::chrono::steady_clock::now() - start) * 105 / 100;\
    while (std::chrono::steady_clock::now() < end) {\
    }\
  }\
  void run_once() {|' "$work/slowed/kernels/softmax/hwy.cpp"
if cmp -s kernels/softmax/hwy.cpp "$work/slowed/kernels/softmax/hwy.cpp"; then
  echo "compare_check.sh: the line of kernels/softmax/hwy.cpp that is slowed is gone" >&2
  exit 1
fi
meson setup "$work/slowed/build" "$work/slowed" --buildtype=release >"$work/setup.txt"
ninja -C "$work/slowed/build" -j "$(nproc)" rooflane >"$work/setup.txt"

# Problems of a millisecond or more. Each must be found, and LayerNorm must not be flagged.
run "$work/against.csv" -v hwy --against "slowed=$work/slowed/build/rooflane" --launches 5 \
  --min-time 0.5 --threads 1 --shape softmax:rows=8192,cols=1024..4096*2 \
  --shape layernorm:rows=4096,cols=768
# The slowed one is OLD there: that this build is FASTER means that it was found.
build/rooflane compare "$work/against.csv" --against slowed --json="$work/compared.json" \
  >"$work/compared.txt"
{
  echo "Softmax slowed by 5 %, in the same rounds (old: the slowed build):"
  echo
  echo '```'
  cat "$work/compared.txt"
  echo '```'
} >>"$work/report.md"
cat "$work/report.md"
if [[ -n $out ]]; then
  mkdir -p "$(dirname "$out")"
  cp "$work/report.md" "$out.md"
fi
found=$(count FASTER "$work/compared.json" softmax)
wrong=$(($(count FASTER "$work/compared.json" -softmax) + $(count SLOWER "$work/compared.json" -softmax)))
((flagged * 100 <= rows && found == 3 && wrong == 0))
