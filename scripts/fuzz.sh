#!/usr/bin/env bash
# Feeds what reads other people's files with files made to break it (libFuzzer), under the address
# and undefined-behaviour sanitizers. Clang is installed when it is missing.
#   scripts/fuzz.sh [gguf] [--seconds N]     default: a minute for each
# Built in build-fuzz/, where the inputs that reached new code are kept for the next call. An input
# that breaks it is written to build-fuzz/NAME-crash-…; then the exit status is not 0.
set -euo pipefail
cd "$(dirname "$0")/.."

all=(gguf)
# What each compiles beside tests/fuzz/NAME_fuzz.cpp.
declare -A sources_of=(
  [gguf]="src/io/gguf.cpp src/io/gguf_parse.cpp src/io/mapped_file.cpp src/core/dtype.cpp
          src/core/text.cpp"
)

usage() {
  echo "usage: fuzz.sh [$(IFS='|'; echo "${all[*]}")]... [--seconds N]" >&2
  exit 2
}
seconds=60
names=()
while (($# > 0)); do
  case $1 in
    --seconds)
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || usage
      seconds=$2
      shift 2
      ;;
    *)
      [[ " ${all[*]} " == *" $1 "* ]] || usage
      names+=("$1")
      shift
      ;;
  esac
done
if ((${#names[@]} == 0)); then names=("${all[@]}"); fi

find_clang() {  # the newest
  compgen -c clang++ | grep -E '^clang\+\+(-[0-9]+)?$' | sort -Vu | tail -1
}
if [[ -z $(find_clang) ]]; then
  as_root=()
  if ((EUID != 0)); then as_root=(sudo); fi
  "${as_root[@]}" apt-get -qq update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install clang >&2
fi
clang=$(find_clang)
flags=(-std=c++20 -O1 -g -Isrc -I. -ffp-contract=off)
sanitize=-fsanitize=address,undefined

mkdir -p build-fuzz
for name in "${names[@]}"; do
  corpus=build-fuzz/corpus-$name
  mkdir -p "$corpus"
  mapfile -t sources < <(tr -s ' \n' '\n' <<<"${sources_of[$name]}")
  "$clang" "${flags[@]}" "$sanitize,fuzzer" -fno-sanitize-recover=undefined \
    "tests/fuzz/${name}_fuzz.cpp" "${sources[@]}" -lfmt -o "build-fuzz/$name"
  "$clang" "${flags[@]}" "$sanitize" "tests/fuzz/${name}_seed.cpp" "${sources[@]}" -lfmt \
    -o "build-fuzz/$name-seed"
  "build-fuzz/$name-seed" >"$corpus/seed"
  "build-fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/$name-" "$corpus"
done
