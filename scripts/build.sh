#!/usr/bin/env bash
# Makes a release build in build/: installs missing packages (setup.sh), then runs Meson and Ninja. If the
# output is not a terminal it prints only failures. Used by bench.sh and test.sh.
#   scripts/build.sh              everything, for all ISA targets: programs, Python package, tests
#   scripts/build.sh TARGET...    only these, for example rooflane. A new build folder is configured for this
#                                 machine's ISA target, which halves the kernels' compile time, and without
#                                 the Python package. An existing one keeps its options.
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

whole=$(($# == 0))
tests=$whole
for target in "$@"; do
  if [[ $target == tests/* ]]; then tests=1; fi
done
if ((whole)); then
  scripts/setup.sh --tests
elif ((tests)); then
  scripts/setup.sh
else
  scripts/setup.sh --program
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
loud() {  # runs a command; prints what it said only when it fails
  "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    exit 1
  }
}
is_configured() {  # OPTION VALUE: whether build/ has it
  python3 - "$@" <<'END'
import json, sys
with open("build/meson-info/intro-buildoptions.json", encoding="utf-8") as file:
    values = {option["name"]: str(option["value"]) for option in json.load(file)}
sys.exit(values.get(sys.argv[1]) != sys.argv[2])
END
}
# What the Python package is built with; all else is built without it too.
has_bindings=0
if ((whole)); then
  has_bindings=1
  bindings=$(scripts/bindings_environment.py 2>"$log") || {
    has_bindings=0
    echo "build: without the Python package: $bindings" >&2
  }
fi
if [[ ! -f build/build.ninja ]]; then
  options=()
  if ((!whole)); then options=(-Disa-targets=native -Dpython=disabled); fi
  if ((!tests)); then options+=(-Dtests=false); fi
  loud meson setup build --buildtype=release "${options[@]}"
elif ((whole)) && is_configured isa-targets native; then
  echo "build: build/ was for this machine's ISA target; now it is for all" >&2
  loud meson setup --reconfigure build -Disa-targets=all -Dpython=auto -Dtests=true
elif ((tests)) && is_configured tests False; then
  loud meson setup --reconfigure build -Dtests=true
elif ((has_bindings)) && ! grep -q python/rooflane/_core build/build.ninja; then
  loud meson setup --reconfigure build
fi
echo "build: building in build/ (minutes the first time)" >&2
if [[ -t 2 ]]; then
  ninja -C build -j "$(nproc)" "$@" >&2
else
  loud ninja -C build -j "$(nproc)" "$@"
fi
