#!/usr/bin/env bash
# Fuzzes every parser of untrusted input (libFuzzer), under the address and undefined-behaviour sanitizers.
# Clang is installed if it is missing.
#   scripts/fuzz.sh [NAME]... [--seconds N] [--build | --minimise]
# Default: every tests/fuzz/NAME_fuzz.cpp, a minute each. build-fuzz/ contains the build and the inputs that
# reached new code; the next call uses them and those of tests/fuzz/corpus/. An input that breaks a
# target is written to build-fuzz/NAME-crash-…; the exit status is then not 0.
#   --build      only builds the targets
#   --minimise   packs a small set of inputs with the same coverage into tests/fuzz/corpus/, which
#                the test `fuzz-corpus` replays; none above 1.5 KiB except those named bug-…
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

all=()
for target in tests/fuzz/*_fuzz.cpp; do
  all+=("$(basename "$target" _fuzz.cpp)")
done
# What the targets read with, as one archive: each takes from it what it calls. Only the
# scalar variants, because they compile fastest.
sources=(src/core/*.cpp src/io/*.cpp src/backends/{plugin,plugin_table,scalar}.cpp src/c_api/rooflane.cpp
         src/jail/{group,jail,jailed_plugin,processes,runner_process,seccomp}.cpp
         src/measure/{case,ceilings_json,output_file,problem_json,process_usage,process_worker}.cpp
         src/measure/{reference_file,sampler,verify,worker_protocol,worker_requests}.cpp
         src/model/{arena,call,expression,gguf_weights,instance,library,strided,text,weights}.cpp
         src/generate/llama.cpp bench/{random_problems,shapes}.cpp
         kernels/*/{reference,scalar,whole_check}.cpp
         kernels/gemm/{epilogue,hwy_schedule}.cpp)
# Targets that use another target's NAME.dict.
declare -A words_of=([answers]=protocol [c_api]=shapes [cases]=shapes [presets]=shapes
                     [requests]=protocol [schedule]=shapes [worker]=protocol)
# Large enough for what the targets read; a process that grows beyond it counts as broken.
limits=(-timeout=10 -rss_limit_mb=2048)

usage() {
  echo "usage: fuzz.sh [$(IFS='|'; echo "${all[*]}")]... [--seconds N] [--build | --minimise]" >&2
  exit 2
}
seconds=60
names=()
task=run
while (($# > 0)); do
  case $1 in
    --seconds)
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || usage
      seconds=$2
      shift 2
      ;;
    --build | --minimise)
      task=${1#--}
      shift
      ;;
    *)
      [[ " ${all[*]} " == *" $1 "* ]] || usage
      names+=("$1")
      shift
      ;;
  esac
done
if ((${#names[@]} == 0)); then names=("${all[@]}"); fi

has_fuzzer() { echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
  "$1" -x c++ -fsanitize=fuzzer - -o /dev/null 2>/dev/null; }
find_clang() {  # the newest that has a fuzzer
  local found
  for found in $(compgen -c clang++ | grep -E '^clang\+\+(-[0-9]+)?$' | sort -Vur); do
    if has_fuzzer "$found"; then echo "$found"; return; fi
  done
}
clang=$(find_clang)
if [[ -z $clang ]]; then
  as_root=()
  if ((EUID != 0)); then as_root=(sudo); fi
  "${as_root[@]}" apt-get -qq update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install clang >&2
  clang=$(find_clang)
fi

mkdir -p build-fuzz
# All kernels with their scalar variants, and all that the build embeds.
rooms='' kernels='' variants=''
for room in kernels/*/reference.cpp; do
  kernel=$(basename "$(dirname "$room")")
  rooms+="namespace $kernel { extern const Kernel kernel; extern const Variant scalar; } "
  kernels+="\&$kernel::kernel, "
  variants+="\&$kernel::scalar, "
done
generate() {  # TEMPLATE SED-SCRIPT: kept as it is when nothing changed, so that nothing is rebuilt
  local output
  output=build-fuzz/$(basename "$1" .in)
  sed -e "$2" "$1" >"$output.new"
  if cmp -s "$output.new" "$output"; then rm "$output.new"; else mv "$output.new" "$output"; fi
}
generate kernels/generated_catalogue.hpp.in \
  "s/@ROOMS@/$rooms/; s/@KERNELS@/$kernels/; s/@VARIANTS@/$variants/; s/@ABSENT@//"
generate src/backends/generated_backends.cpp.in \
  "s/@DECLARATIONS@/namespace scalar { extern const Backend backend; }/
   s/@ENTRIES@/      \&scalar::backend,/"
embed() {  # PREFIX TEMPLATE FILE...
  local prefix=$1 template=$2 includes='' entries='' file name
  shift 2
  for file in "$@"; do
    name=$prefix$(basename "$file" .txt | tr - _)
    python3 scripts/embed.py "$file" "build-fuzz/$name.hpp" "$name"
    includes+="#include \"$name.hpp\"\\n"
    entries+="{\"$(basename "$file" .txt)\", $name}, "
  done
  generate "$template" "s/@INCLUDES@/$includes/; s/@ENTRIES@/$entries/"
}
embed shapes_ bench/generated_presets.hpp.in bench/shapes/*.txt
embed model_ src/model/generated_models.hpp.in bench/models/*.txt
sources+=(build-fuzz/generated_backends.cpp)

# The build, for ninja.
{
  cat <<RULES
builddir = build-fuzz
flags = -std=c++20 -O1 -gline-tables-only -Isrc -I. -Ibuild-fuzz -ffp-contract=off -DROOFLANE_VERSION="\\"fuzz\\""
sanitize = -fsanitize=address,undefined -fno-sanitize-recover=undefined
rule compile
  command = $clang \$flags \$sanitize -fsanitize=fuzzer-no-link \$more -MMD -MF \$out.d -c \$in -o \$out
  depfile = \$out.d
rule archive
  command = rm -f \$out && ar rcs \$out \$in
rule link
  command = $clang \$sanitize -fsanitize=fuzzer \$in -lfmt -lhwloc -ldl -pthread -o \$out
RULES
  objects=()
  for source in "${sources[@]}"; do
    if [[ ! -e $source ]]; then continue; fi  # a kernel without a whole_check.cpp
    object=build-fuzz/objects/${source//\//_}.o
    objects+=("$object")
    echo "build $object: compile $source"
  done
  echo "build build-fuzz/readers.a: archive ${objects[*]}"
  for name in "${all[@]}"; do
    echo "build build-fuzz/objects/$name.o: compile tests/fuzz/${name}_fuzz.cpp"
    echo "build build-fuzz/objects/$name-entry.o: compile tests/fuzz/entry.cpp"
    echo "  more = -DTARGET=${name}_target"
    echo "build build-fuzz/$name: link build-fuzz/objects/$name.o build-fuzz/objects/$name-entry.o build-fuzz/readers.a"
  done
} >build-fuzz/build.ninja
ninja -f build-fuzz/build.ninja "${names[@]/#/build-fuzz/}"

for name in "${names[@]}"; do
  kept=build-fuzz/corpus-$name committed=build-fuzz/committed-$name
  rm -rf "$committed"
  mkdir -p "$kept" "$committed"
  # A new target has no archive yet.
  if [[ -e tests/fuzz/corpus/$name.tar.gz ]]; then tests/fuzz/corpus.sh unpack "$name" "$committed"; fi
  words=("${limits[@]}" "-artifact_prefix=build-fuzz/$name-")
  dictionary=tests/fuzz/${words_of[$name]-$name}.dict
  if [[ -e $dictionary ]]; then words+=("-dict=$dictionary"); fi
  case $task in
    run)
      "build-fuzz/$name" -max_total_time="$seconds" -print_final_stats=1 "${words[@]}" \
        "$kept" "$committed"
      ;;
    minimise)
      # By the edges that inputs reach and not by how often, which takes ten times as many. Inputs
      # called bug-… once broke something and stay.
      small=build-fuzz/small-$name
      rm -rf "$committed.new" "$small"
      mkdir "$committed.new" "$small"
      find "$kept" "$committed" -type f -size -4b -exec cp -t "$small" {} +
      find "$committed" -name 'bug-*' -exec cp {} "$committed.new" \;
      "build-fuzz/$name" -set_cover_merge=1 -use_counters=0 "${limits[@]}" "$committed.new" "$small"
      tests/fuzz/corpus.sh pack "$name" "$committed.new"
      ;;
    build) ;;
  esac
done
