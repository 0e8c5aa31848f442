#!/usr/bin/env bash
# Proves that the library can be linked from outside: `meson install` into an empty folder, then the
# example is built against nothing but that folder, and run with every CPU variant.
# Arguments: BUILD_DIR SOURCE_DIR COMPILER VARIANT...
set -euo pipefail
build=$1
source=$2
compiler=$3
shift 3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

DESTDIR=$place/root meson install -C "$build" --no-rebuild >"$place/log" 2>&1 || {
  cat "$place/log"
  exit 1
}
pc=$(find "$place/root" -name rooflane.pc)
lib=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$place/root
cp "$source/examples/link/main.cpp" "$place"  # nothing may come from the checkout
cd "$place"
read -ra flags <<<"$(pkg-config --cflags --libs rooflane)"
# shellcheck disable=SC2086  # the compiler may be two words, "ccache g++"
$compiler -std=c++20 main.cpp -o example "${flags[@]}"
for variant in "$@"; do
  LD_LIBRARY_PATH=$lib ./example "$variant"
done
# The installed program runs from there too, with a plugin built against the installed header.
program=$(find "$place/root" -path '*/bin/rooflane')
LD_LIBRARY_PATH=$lib "$program" --version
cp "$source/examples/plugin/softmax.c" "$place"
read -ra includes <<<"$(pkg-config --cflags rooflane)"
cc -O3 -shared -fPIC "${includes[@]}" softmax.c -o softmax.so -lm
LD_LIBRARY_PATH=$lib "$program" verify --shape softmax:rows=3,cols=5 -v scalar --threads 1 \
  --plugin mine=softmax.so
