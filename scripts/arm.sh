#!/usr/bin/env bash
# Builds for aarch64 with Debian's cross compiler and runs under qemu-user every test that measures
# nothing: with NEON, and with SVE vectors of 128, 256 and 512 bits. What it installs with apt:
# compiler and emulator; libraries are unpacked into build-arm/sysroot, which leaves this system's
# own packages alone. docs/arm.md.
#   scripts/arm.sh                   everything: an hour on two cores
#   scripts/arm.sh neon 256          some configurations
#   scripts/arm.sh --short           two kernels with NEON and SVE: what CI runs; installs nothing
#   scripts/arm.sh --sysroot         fetches the libraries and nothing else
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build-arm
sysroot=$root/sysroot

as_root() { if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi; }
install_tools() {
  scripts/setup.sh
  local missing=()
  command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
  command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
  if ((${#missing[@]} == 0)); then return; fi
  echo "arm: installing ${missing[*]}" >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
    install "${missing[@]}" >&2
}

# Packages of another architecture without telling dpkg of it: apt works in a folder of its own,
# whose list of installed packages is empty, so that all they depend on comes too.
fetch_sysroot() {
  if [[ -e $sysroot/complete ]]; then return; fi
  local apt=$root/apt mirror suite gcc
  mkdir -p "$apt"/{lists/partial,archives/partial} "$sysroot"
  : >"$apt/status"
  # shellcheck disable=SC2016  # apt's own variable
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
  suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  gcc=$(aarch64-linux-gnu-g++ -dumpversion | cut -d. -f1)
  echo "deb [arch=arm64] $mirror $suite main" >"$apt/sources.list"
  local options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64
    -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt"
    -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=-
    -o APT::Install-Recommends=0 -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)")
  echo "arm: fetching libraries for arm64 into ${sysroot#"$PWD"/}" >&2
  apt-get "${options[@]}" update >&2
  apt-get "${options[@]}" -y --download-only install "libstdc++-$gcc-dev" libgomp1 libc6-dev \
    libhwy-dev libbenchmark-dev libfmt-dev libhwloc-dev libcli11-dev nlohmann-json3-dev \
    doctest-dev libopenblas0-openmp >&2
  local package
  for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
  # Debian 13's packages take for granted that /lib lies in /usr.
  if [[ ! -e $sysroot/lib ]]; then ln -s usr/lib "$sysroot/lib"; fi
  rm -rf "$apt"
  touch "$sysroot/complete"
}

cross_constants() {
  local ccache=
  if command -v ccache >/dev/null; then ccache="'ccache'"; fi
  printf "[constants]\nsysroot = '%s'\nccache = [%s]\n" "$sysroot" "$ccache" >"$root/constants.cross"
}

build() {  # BITS of SVE, 0 for none; further arguments are Ninja's
  local folder=$root/$1 log
  if [[ ! -e $folder/build.ninja ]]; then
    log=$(meson setup "$folder" --cross-file "$root/constants.cross" \
      --cross-file scripts/aarch64.cross -Dsve_bits="$1" \
      -Dopencl=disabled -Donednn=disabled -Dclblast=disabled) || { echo "$log" >&2 && exit 1; }
  fi
  shift
  ninja -C "$folder" -j "$(nproc)" "$@" >&2
}

cpu_of() {  # qemu's CPU for a configuration
  if [[ $1 == neon ]]; then echo max,sve=off; else echo "max,sve-max-vq=$(($1 / 128))"; fi
}

# Tests that measure, that try all floats, that want this machine's own programs or compilers, or that start programs of
# their own, which qemu-user cannot: the kernel would have to know aarch64 (binfmt_misc).
tests_of() {  # FOLDER: those that remain
  local skipped='calibrate|ceilings|bench|backends|interference|worker|verify|cache_control|tuned'
  skipped+='|exp|doctor|opencl.*|onednn|oclgrind.*|skip|peers|c-example|c-layout'
  meson introspect --tests "$1" | python3 -c '
import json, re, sys
skipped = re.compile(sys.argv[1])
for test in json.load(sys.stdin):
    if test["cmd"][0].endswith(("_test", "/conformance_test")) and not skipped.fullmatch(test["name"]):
        print(test["name"])' "$skipped"
}

run_tests() {  # CONFIGURATION BITS: a summary line; false if one failed
  local folder=$root/$2 log=$root/$1.log tests
  mapfile -t tests < <(tests_of "$folder")
  # One at a time and with patience: emulated code is some twenty times as slow.
  QEMU_CPU=$(cpu_of "$1") meson test -C "$folder" --no-rebuild -t 20 --num-processes "$(nproc)" \
    "${tests[@]}" >"$log" 2>&1 || true
  local passed failed
  passed=$(sed -n 's/^Ok: *//p' "$log")
  failed=$((${#tests[@]} - ${passed:-0}))
  grep -E '(FAIL|TIMEOUT|ERROR) ' "$log" || true
  echo "$1: ${passed:-0} passed, $failed failed"
  ((failed == 0))
}

# The command line, its workers too, where this system lets a namespace of its own name qemu to the
# kernel; elsewhere `list` and `doctor` alone.
run_programs() {  # CONFIGURATION BITS
  QEMU_CPU=$(cpu_of "$1") QEMU_LD_PREFIX=$sysroot scripts/arm_programs.sh \
    "$root/$2/rooflane" "$1"
}

full() {
  local status=0 configuration bits
  install_tools
  fetch_sysroot
  cross_constants
  for configuration in "$@"; do
    bits=${configuration/neon/256}  # a build holds NEON too
    build "$bits"
    run_tests "$configuration" "$bits" || status=1
    run_programs "$configuration" "$bits" || status=1
  done
  return "$status"
}

case ${1:-} in
  --short)
    shift
    exec scripts/arm_short.sh "$@"
    ;;
  --sysroot)
    install_tools
    fetch_sysroot
    ;;
  --help | -h) sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" ;;
  *)
    if (($# == 0)); then set -- neon 128 256 512; fi
    for configuration in "$@"; do
      [[ $configuration =~ ^(neon|128|256|512)$ ]] || {
        echo "arm: '$configuration' is no configuration: neon, 128, 256 or 512" >&2
        exit 2
      }
    done
    full "$@"
    ;;
esac
