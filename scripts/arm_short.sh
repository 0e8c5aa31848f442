#!/usr/bin/env bash
# The short form of arm.sh: kernels' building blocks (tests/arm_kernels.cpp) compiled for NEON and
# for SVE of 256 bits, and run under qemu-user. Fetches nothing: headers that are the same for every
# architecture are this system's. Status 77 where the compiler or the emulator is missing.
set -euo pipefail
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
compile() {  # PROGRAM FLAGS...
  local program=$1
  shift
  aarch64-linux-gnu-g++ -std=c++20 -O1 -DNDEBUG -ffp-contract=off -Wall -Wextra -Wno-restrict -Werror "$@" \
    -I. -Isrc -isystem "$folder/include" -DFMT_HEADER_ONLY -static tests/arm_kernels.cpp \
    -o "$folder/$program"
}
compile neon &
compile sve -march=armv8.2-a+sve -msve-vector-bits=256 -DROOFLANE_VECTOR_BITS=256 &
for job in $(jobs -p); do wait "$job"; done
qemu-aarch64 -cpu max,sve=off "$folder/neon"
qemu-aarch64 -cpu max,sve-max-vq=2 "$folder/sve"
echo "cases: 2 passed, 0 failed, 0 skipped"
