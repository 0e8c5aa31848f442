#!/usr/bin/env bash
# Runs the command line under qemu-user: list, doctor, verify, run and a short bench, which starts workers.
# arm.sh calls it with QEMU_CPU and QEMU_LD_PREFIX set. Programs that start programs need a kernel that
# knows qemu; Linux 6.7 allows anybody to register it in a namespace.
#   scripts/arm_programs.sh ROOFLANE NAME
#   scripts/arm_programs.sh --known COMMAND...   runs a command in that namespace; status 125 without one
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh" "$1"  # what follows may be a command

known=(unshare --user --map-root-user --mount "$0" --register)
register() {  # binfmt_misc's line: magic and mask of aarch64's ELF files, F: opened here and now
  mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc 2>/dev/null || return 1
  local zero='\x00\x00\x00\x00\x00\x00\x00\x00' all='\xff\xff\xff\xff\xff\xff\xff\xff'
  printf '%s' ":aarch64:M::\x7fELF\x02\x01\x01\x00$zero\x02\x00\xb7\x00:${all%\\xff}\x00$all\xfe\xff\xff\xff:$(command -v qemu-aarch64):F" \
    >/proc/sys/fs/binfmt_misc/register 2>/dev/null
}
case $1 in
  --register)
    shift
    register || exit 125
    exec "$@"
    ;;
  --known)
    shift
    exec "${known[@]}" "$@"
    ;;
esac

rooflane=$1 name=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export ROOFLANE_TRAITS=none ROOFLANE_TUNED=none OMP_WAIT_POLICY=passive
start=("${known[@]}")
if ! "${start[@]}" true 2>/dev/null; then
  start=(qemu-aarch64)
  echo "$name: no namespace for binfmt_misc here: nothing that starts workers" >&2
fi
passed=0 failed=0
worst=0  # the exit status that is still good
expect() {  # PATTERN ARGUMENTS...: the program says so and ends well
  local pattern=$1 said status=0
  shift
  said=$("${start[@]}" "$rooflane" "$@" 2>&1) || status=$?
  if ((status <= worst)) && grep -qE -- "$pattern" <<<"$said"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf '%s: rooflane %s: expected %s\n%s\n' "$name" "$*" "$pattern" "$said" >&2
  fi
}
isa=NEON
if [[ $name != neon ]]; then isa='SVE[2_0-9]*'; fi
gemm=gemm:m=37,n=29,k=41
expect '^gemm +amx +absent.*another architecture|amx.*built for another architecture' list
expect "$isa" doctor
expect 'PASSED.*hwy|hwy.*PASSED' verify -v hwy --shape $gemm --threads 1,2
expect 'PASSED' verify -v hwy --shape softmax:rows=5,cols=77 --isa NEON
if [[ ${start[0]} == unshare ]]; then
  expect '.' inputs gemm --shape $gemm --seed 3 --out "$folder"
  expect '.*' run gemm -v hwy --in "a=$folder/a.npy" --in "b=$folder/b.npy" --out "c=$folder/out.npy"
  # An emulator's speed changes, so that a verified row may be faster than the ceilings.
  worst=1
  expect ',hwy,.*,(PASSED|SUSPECT),' bench -v hwy --shape $gemm --threads 1 --min-time 0.0001 \
    --max-time 0.05 --launches 1 --ceilings-time 0.1
fi
echo "$name: command line: $passed passed, $failed failed"
((failed == 0))
