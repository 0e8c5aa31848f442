#!/usr/bin/env bash
# Builds for aarch64 with Debian's cross compiler and runs all tests that do not measure under qemu-user,
# with NEON and with SVE vectors of 128, 256 and 512 bits. apt installs the compiler and the emulator. The
# libraries are unpacked into build-arm/sysroot, so this system's own packages stay unchanged. docs/arm.md.
#   scripts/arm.sh                   everything: hours on two cores
#   scripts/arm.sh neon 256          some configurations
#   scripts/arm.sh --built 128       tests the build in build-arm/128; installs and compiles nothing
#   PART_OF_CASES=0/1 scripts/arm.sh all cases, even if there are many: a day
#   scripts/arm.sh --short           two kernels with NEON and SVE, as in CI; installs nothing
#   scripts/arm.sh --sysroot         only downloads the libraries
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
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

# Downloads packages of another architecture without registering it with dpkg: apt works in its own folder,
# with an empty list of installed packages, so that all dependencies are downloaded too.
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

build() {  # BITS of SVE, 0 for none
  local folder=$root/$1 log targets
  if [[ ! -e $folder/build.ninja ]]; then
    log=$(meson setup "$folder" --cross-file "$root/constants.cross" \
      --cross-file scripts/aarch64.cross -Dsve_bits="$1" -Dpython=disabled \
      -Dopencl=disabled -Donednn=disabled -Dclblast=disabled) || { echo "$log" >&2 && exit 1; }
  fi
  targets=$(scripts/arm_tests.py "$folder" --targets)
  xargs ninja -C "$folder" -j "$(nproc)" >&2 <<<"$targets"
}

cpu_of() {  # qemu's CPU for a configuration
  if [[ $1 == neon ]]; then echo max,sve=off; else echo "max,sve-max-vq=$(($1 / 128))"; fi
}

meson_test() {  # FOLDER NAME ARGUMENTS...: their log is NAME.txt beside Meson's own
  local folder=$1 name=$2
  shift 2
  # With patience: emulated code is some twenty times as slow.
  "${known[@]}" meson test -C "$folder" --no-rebuild --logbase "$name" -t 10 \
    --num-processes "$(nproc)" --print-errorlogs "$@"
}

# Programs that tests start need a kernel that knows qemu; where it takes that from nobody, what
# starts programs is left out, and said.
run_tests() {  # CONFIGURATION BITS: a summary line; false if one failed
  # Where a test walks through thousands of cases (tests/part_of_cases.hpp), every 17th: a prime that
  # divides none of the numbers of threads, targets and layouts, so that all of them are met.
  export PART_OF_CASES=${PART_OF_CASES:-0/17}
  local folder=$root/$2 log=$root/$1.log status=0 seconds=$SECONDS tests test cases reason
  local only=()
  known=(scripts/arm_programs.sh --known)
  if ! "${known[@]}" true 2>/dev/null; then
    known=() only=(--alone)
    echo "$1: no namespace for binfmt_misc here: no tests that start programs" >&2
  fi
  export QEMU_CPU QEMU_LD_PREFIX=$sysroot
  QEMU_CPU=$(cpu_of "$1")
  mapfile -t tests < <(scripts/arm_tests.py "$folder" "${only[@]}")
  meson_test "$folder" "$1" "${tests[@]}" >"$log" 2>&1 || status=1
  while IFS=$'\t' read -r test cases reason; do
    echo "$1: $test without some cases: $reason" >&2
    meson_test "$folder" "$1-$test" "$test" --test-args="'--test-case-exclude=$cases'" \
      >>"$log" 2>&1 </dev/null || status=1
  done < <(scripts/arm_tests.py "$folder" --in-part)
  grep -E '(FAIL|TIMEOUT|ERROR) ' "$log" || true
  awk -v name="$1" -v seconds="$((SECONDS - seconds))" '
    /^(Ok|Fail|Timeout|Skipped): / { count[$1] += $2 }
    END { printf "%s: %d tests passed, %d failed, %d skipped in %d s\n", name, count["Ok:"],
      count["Fail:"] + count["Timeout:"], count["Skipped:"], seconds }' "$log"
  return "$status"
}

# The command line, its workers too, where this system lets a namespace of its own name qemu to the
# kernel; elsewhere what starts none.
run_programs() {  # CONFIGURATION BITS
  QEMU_CPU=$(cpu_of "$1") QEMU_LD_PREFIX=$sysroot scripts/arm_programs.sh \
    "$root/$2/rooflane" "$1"
}

full() {  # CONFIGURATION...
  local status=0 configuration bits
  if [[ -z $built ]]; then
    install_tools
    fetch_sysroot
    cross_constants
  fi
  for configuration in "$@"; do
    bits=${configuration/neon/256}  # a build holds NEON too
    if [[ -z $built ]]; then build "$bits"; fi
    run_tests "$configuration" "$bits" || status=1
    run_programs "$configuration" "$bits" || status=1
  done
  return "$status"
}

built=
if [[ ${1:-} == --built ]]; then
  built=1
  shift
fi
case ${1:-} in
  --short)
    shift
    exec scripts/arm_short.sh "$@"
    ;;
  --sysroot)
    install_tools
    fetch_sysroot
    ;;
  *)
    if (($# == 0)); then set -- neon 128 256 512; fi
    for configuration in "$@"; do
      [[ $configuration =~ ^(neon|128|256|512)$ ]] || {
        echo "arm: '$configuration' is not a configuration: neon, 128, 256 or 512" >&2
        exit 2
      }
    done
    full "$@"
    ;;
esac
