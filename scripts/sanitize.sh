#!/usr/bin/env bash
# Runs the tests under sanitizers, all or those named, of which it builds what they need; clean means
# exit status 0.
#   scripts/sanitize.sh [both] [TEST…]  both
#   scripts/sanitize.sh address [TEST…] address + undefined behaviour + leaks, in build-asan/
#   scripts/sanitize.sh thread [TEST…]  data races, in build-tsan/
# The thread sanitizer does not understand OpenMP's runtime, so that build takes its threads from
# the std::thread pool, and leaves OpenCL out: a driver's own threads are not ours to prove.
# What is suppressed, and why, stands in scripts/sanitizers/.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/scripts/sanitizers

# The address sanitizer's checks as calls, and none of the pointers' own, which are as many: written
# out for every access of every tile, GCC is not done with the GEMM in half an hour.
quick_asan="--param asan-instrumentation-with-call-threshold=0"
quick_asan+=" -fno-sanitize=null,object-size,pointer-overflow"

scripts/setup.sh

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

# A test loads half a library, which ends in SIGBUS with or without a sanitizer (handle_sigbus).
# Address space is reserved in terabytes; give the tests, which run 2 to 15 times slower, the time.
run() {  # BUILD_DIR SANITIZER MESON_OPTION... -- TEST...
  local build=$1 sanitizer=$2
  shift 2
  local options=()
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  if [[ ! -f $build/build.ninja ]]; then
    meson setup "$build" -Doptimization=1 -Ddebug=true "-Db_sanitize=$sanitizer" -Db_lundef=false \
      -Db_ndebug=false "${options[@]}"
  fi
  local files=""
  if (($#)); then files=$(files_of "$build" "$@"); fi
  # shellcheck disable=SC2086  # each file is a word
  ninja -C "$build" -j "$(nproc)" $files
  meson test -C "$build" --no-rebuild --print-errorlogs -t 10 "$@"
}

address() {
  # Tests ask for more memory than there is and want to be told so (allocator_may_return_null).
  # std::stable_sort's buffer is freed past the interceptor of operator delete when libstdc++ does
  # it (alloc_dealloc_mismatch).
  # The leak check reads thread storage that GCC 12's runtime got wrong, and dies of it
  # (intercept_tls_get_addr).
  local asan=detect_stack_use_after_return=1:strict_string_checks=1:exitcode=99
  asan+=:intercept_tls_get_addr=0
  asan+=:allocator_may_return_null=1:alloc_dealloc_mismatch=0:handle_sigbus=0
  ASAN_OPTIONS=$asan \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:exitcode=99 \
    LSAN_OPTIONS=suppressions=$here/leaks.txt:print_suppressions=0 \
    run build-asan address,undefined "-Dcpp_args=$quick_asan" -- "$@"
}

thread() {
  local tsan=suppressions=$here/threads.txt:halt_on_error=1:exitcode=99:print_suppressions=0
  TSAN_OPTIONS=$tsan:handle_sigbus=0 \
    run build-tsan thread -Dopenmp=disabled -Dopencl=disabled -- "$@"
}

which=${1:-both}
shift || true
case $which in
  address) address "$@" ;;
  thread) thread "$@" ;;
  both)
    address "$@"
    thread "$@"
    ;;
  *)
    echo "sanitize: '$which' is unknown; allowed: address, thread, both" >&2
    exit 2
    ;;
esac
