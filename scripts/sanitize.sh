#!/usr/bin/env bash
# Builds and runs the tests, all or the named ones, under sanitizers; exit status 0 means that none reported
# anything. Prints how long each build and its tests took.
#   scripts/sanitize.sh [gcc|clang] [address|thread] [TEST…]
# An omitted word means both, in build-COMPILER-SANITIZER/, but GCC's address build only runs if it is named:
# GCC 12 takes more than six minutes for one file of the GEMM's loops, Clang 16 takes two.
#   address  address + undefined behaviour + leaks
#   thread   data races
# The thread sanitizer does not understand OpenMP's runtime. These builds therefore use the library's own
# thread pool, and are built without OpenCL, because a driver's own threads are not ours to check. Clang's
# address build uses that pool too, so that both kinds of threads are covered. All builds contain this CPU's best
# instruction set and the baseline, because the loops of one take minutes to compile.
# scripts/sanitizers/ lists the suppressions and their reasons.
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
here=$PWD/scripts/sanitizers

compilers=(gcc clang)
named=0
if [[ ${1:-} == gcc || ${1:-} == clang ]]; then
  compilers=("$1")
  named=1
  shift
fi
sanitizers=(address thread)
if [[ ${1:-} == address || ${1:-} == thread ]]; then
  sanitizers=("$1")
  shift
fi
tests=("$@")

scripts/setup.sh

# The newest from 16 on that has the sanitizers' runtimes, a package of their own.
find_clang() {
  local name version
  for name in $(compgen -c clang++ | grep -E '^clang\+\+(-[0-9]+)?$' | sort -Vru); do
    version=$("$name" -dumpversion) || continue
    if ((${version%%.*} >= 16)) && "$name" -fsanitize=address -x c++ -o /dev/null - <<<'int main() {}' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
}

# The compilers as Meson takes them.
use() {  # COMPILER
  export CC=gcc CXX=g++
  if [[ $1 == gcc ]]; then return; fi
  if [[ -z $(find_clang) ]]; then
    local as_root=()
    if ((EUID != 0)); then as_root=(sudo); fi
    "${as_root[@]}" apt-get -qq update
    local packages
    for packages in "clang libclang-rt-dev" "clang-16 libclang-rt-16-dev"; do  # Debian 12's clang is 14
      # shellcheck disable=SC2086  # each package is a word
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install $packages >&2
      if [[ -n $(find_clang) ]]; then break; fi
    done
  fi
  CXX=$(find_clang)
  CC=${CXX/++/}
}

# What Ninja must build for some tests.
files_of() {  # BUILD_DIR TEST...
  python3 - "$@" <<'END'
import json, os, subprocess, sys
build, names = sys.argv[1], sys.argv[2:]
told = lambda what: json.loads(subprocess.check_output(["meson", "introspect", what, build]))
files = {target["id"]: target["filename"] for target in told("--targets")}
tests = [test for test in told("--tests") if test["name"] in names]
missing = set(names) - {test["name"] for test in tests}
if missing:
    sys.exit(f"sanitize: no test is called {', '.join(sorted(missing))}")
for target in {target for test in tests for target in test["depends"]}:
    print(*(os.path.relpath(file, build) for file in files[target]), sep="\n")
END
}

build() {  # BUILD_DIR COMPILER SANITIZER
  # No plain interpreter loads a module that needs a sanitizer's runtime.
  local options=(-Doptimization=1 -Db_lundef=false -Db_ndebug=false -Dpython=disabled
    -Disa-targets=native)
  # The address sanitizer's checks as calls, and none of the pointers' own, which are as many: written
  # out for every access of every tile, GCC is not done with the GEMM in half an hour.
  # Of debug information only the lines. Tests ask for a sanitizer by the name that GCC gives it, and
  # older Clangs do not.
  local flags="-g1 -D_GLIBCXX_ASSERTIONS -D__SANITIZE_${3^^}__=1" pointers=null,object-size,pointer-overflow
  case $2-$3 in
    gcc-address) flags+=" -fno-sanitize=$pointers --param=asan-instrumentation-with-call-threshold=0" ;;
    clang-address)
      flags+=" -fno-sanitize=$pointers -mllvm -asan-instrumentation-with-call-threshold=0"
      # Programs in C that link the library need the C++ part of the runtime.
      options+=(-Dc_link_args=-fsanitize-link-c++-runtime -Dopenmp=disabled)
      ;;
    *) options+=(-Dopenmp=disabled) ;;
  esac
  if [[ $3 == address ]]; then
    options+=("-Db_sanitize=address,undefined")
  else
    options+=(-Db_sanitize=thread -Dopencl=disabled)
  fi
  if [[ ! -f $1/build.ninja ]]; then
    use "$2" || return
    meson setup "$1" "${options[@]}" "-Dcpp_args=$flags" || return
  fi
  local files=""
  if ((${#tests[@]})); then files=$(files_of "$1" "${tests[@]}") || return; fi
  # shellcheck disable=SC2086  # each file is a word
  ninja -C "$1" -j "$(nproc)" $files
}

# Both: a test loads half a library, which ends in SIGBUS with or without a sanitizer (handle_sigbus).
# Address: tests ask for more memory than there is and want to be told so
# (allocator_may_return_null). std::stable_sort's buffer is freed past the interceptor of operator
# delete when libstdc++ does it (alloc_dealloc_mismatch). The leak check reads thread storage that
# GCC 12's runtime got wrong, and dies of it (intercept_tls_get_addr). CUDA's driver, behind OpenCL,
# maps memory that the sanitizer reserves (protect_shadow_gap).
asan=detect_stack_use_after_return=1:strict_string_checks=1:intercept_tls_get_addr=0
asan+=:allocator_may_return_null=1:alloc_dealloc_mismatch=0:protect_shadow_gap=0
export ASAN_OPTIONS=$asan:handle_sigbus=0:exitcode=99
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:exitcode=99
export LSAN_OPTIONS=suppressions=$here/leaks.txt:print_suppressions=0
# Tests start threads in a child that forked from a program with threads, and want to (die_after_fork).
tsan=suppressions=$here/threads.txt:halt_on_error=1:print_suppressions=0:die_after_fork=0
export TSAN_OPTIONS=$tsan:handle_sigbus=0:exitcode=99

# Kernels that place libraries with more than 28 random bits (Ubuntu 24.04) hit the shadow memory of
# older runtimes: addresses stay fixed where that is allowed.
fixed=()
if setarch --addr-no-randomize true 2>/dev/null; then fixed=(setarch --addr-no-randomize); fi

# Address space is reserved in terabytes; the tests run 2 to 15 times slower: give them the time.
status=0
report=()
for compiler in "${compilers[@]}"; do
  for sanitizer in "${sanitizers[@]}"; do
    if [[ $compiler-$sanitizer-$named == gcc-address-0 ]]; then continue; fi
    folder=build-$compiler-$sanitizer
    begin=$SECONDS
    if ! build "$folder" "$compiler" "$sanitizer"; then
      report+=("$compiler $sanitizer: the build failed after $((SECONDS - begin)) s")
      status=1
      continue
    fi
    built=$SECONDS
    verdict=clean
    if ! "${fixed[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs -t 5 "${tests[@]}"; then
      verdict="findings, in $folder/meson-logs/testlog.txt"
      status=1
    fi
    report+=("$compiler $sanitizer: build $((built - begin)) s, tests $((SECONDS - built)) s: $verdict")
  done
done
printf 'sanitize: %s\n' "${report[@]}"
exit "$status"
