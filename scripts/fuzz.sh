#!/usr/bin/env bash
# Feeds what reads other people's files with files made to break it (libFuzzer), under the address
# and undefined-behaviour sanitizers. Clang is installed when it is missing.
#   scripts/fuzz.sh [gguf] [model] [--seconds N]     default: all, a minute for each
# Built in build-fuzz/, where the inputs that reached new code are kept for the next call. An input
# that breaks it is written to build-fuzz/NAME-crash-…; then the exit status is not 0.
set -euo pipefail
cd "$(dirname "$0")/.."

all=(gguf model)
# What each compiles beside tests/fuzz/NAME_fuzz.cpp.
declare -A sources_of=(
  [gguf]="src/io/gguf.cpp src/io/gguf_parse.cpp src/io/mapped_file.cpp src/core/dtype.cpp
          src/core/text.cpp"
  [model]="src/model/arena.cpp src/model/call.cpp src/model/expression.cpp src/model/instance.cpp
           src/model/strided.cpp src/model/text.cpp $(echo src/core/*.cpp)
           $(echo kernels/*/reference.cpp kernels/*/whole_check.cpp kernels/gemm/epilogue.cpp)"
)
declare -A libraries_of=([gguf]="-lfmt" [model]="-lfmt -lhwloc -pthread")

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
flags=(-std=c++20 -O1 -g -Isrc -I. -Ibuild-fuzz -ffp-contract=off)
sanitize=-fsanitize=address,undefined

mkdir -p build-fuzz
# All kernels and no variant: model files are checked without running any.
rooms='' kernels=''
for room in kernels/*/reference.cpp; do
  kernel=$(basename "$(dirname "$room")")
  rooms+="namespace $kernel { extern const Kernel kernel; } "
  kernels+="\&$kernel::kernel, "
done
sed -e "s/@ROOMS@/$rooms/; s/@KERNELS@/$kernels/; s/@VARIANTS@//; s/@ABSENT@//" \
  kernels/generated_catalogue.hpp.in >build-fuzz/generated_catalogue.hpp

# The inputs that a target begins with.
seed() {  # NAME CORPUS
  if [[ $1 == model ]]; then
    cp bench/models/*.txt examples/model/*.txt "$2"
    return
  fi
  "$clang" "${flags[@]}" "$sanitize" "tests/fuzz/$1_seed.cpp" "${sources[@]}" "${libraries[@]}" \
    -o "build-fuzz/$1-seed"
  "build-fuzz/$1-seed" >"$2/seed"
}

for name in "${names[@]}"; do
  corpus=build-fuzz/corpus-$name
  mkdir -p "$corpus"
  mapfile -t sources < <(tr -s ' \n' '\n' <<<"${sources_of[$name]}")
  read -ra libraries <<<"${libraries_of[$name]}"
  "$clang" "${flags[@]}" "$sanitize,fuzzer" -fno-sanitize-recover=undefined \
    "tests/fuzz/${name}_fuzz.cpp" "${sources[@]}" "${libraries[@]}" -o "build-fuzz/$name"
  seed "$name" "$corpus"
  words=()
  if [[ -e tests/fuzz/$name.dict ]]; then words=("-dict=tests/fuzz/$name.dict"); fi
  "build-fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/$name-" "${words[@]}" "$corpus"
done
