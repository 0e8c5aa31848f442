#!/usr/bin/env bash
# The short form of arm.sh: compiles the kernels' building blocks (tests/arm_kernels.cpp) for some
# configurations and runs them under qemu-user. Downloads nothing: headers that are the same for every
# architecture are taken from this system. Status 77 if the compiler or the emulator is missing.
#   scripts/arm_short.sh [neon|128|256|512]...   default: neon 256
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

missing() {
  echo "skipped: 1 case: $1 not found; install $2"
  exit 77
}
command -v aarch64-linux-gnu-g++ >/dev/null || missing "a cross compiler for aarch64" g++-aarch64-linux-gnu
command -v qemu-aarch64 >/dev/null || missing qemu-user qemu-user
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/include"
for name in hwy fmt; do ln -s "/usr/include/$name" "$folder/include/$name"; done
if (($# == 0)); then set -- neon 256; fi
flags_of() {  # CONFIGURATION: of the compiler
  case $1 in
    neon) ;;
    128) echo -march=armv8.2-a+sve2 -msve-vector-bits=128 -DROOFLANE_VECTOR_BITS=128 ;;
    256 | 512) echo -march=armv8.2-a+sve "-msve-vector-bits=$1" "-DROOFLANE_VECTOR_BITS=$1" ;;
    *) echo "arm_short: '$1' is not a configuration: neon, 128, 256 or 512" >&2 && return 2 ;;
  esac
}
compile() {  # CONFIGURATION FLAGS...
  local program=$1
  shift
  aarch64-linux-gnu-g++ -std=c++20 -O1 -DNDEBUG -ffp-contract=off -Wall -Wextra -Wno-restrict \
    -Werror "$@" -I. -Isrc -isystem "$folder/include" -DFMT_HEADER_ONLY -static \
    tests/arm_kernels.cpp -o "$folder/$program"
}
for configuration in "$@"; do
  read -ra flags <<<"$(flags_of "$configuration")"
  compile "$configuration" "${flags[@]}" &
done
for job in $(jobs -p); do wait "$job"; done
for configuration in "$@"; do
  cpu=max,sve=off
  if [[ $configuration != neon ]]; then cpu=max,sve-max-vq=$((configuration / 128)); fi
  qemu-aarch64 -cpu "$cpu" "$folder/$configuration"
done
echo "cases: $# passed, 0 failed, 0 skipped"
