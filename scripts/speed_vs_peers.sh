#!/usr/bin/env bash
# Measures the classes of bench/targets/ with every peer that this machine has or can install: builds,
# measures, and prints one line per class and thread count as Markdown. docs/peers.md has the details.
# Usage: scripts/speed_vs_peers.sh [--low-precision] [--quick | --full] [--threads N,...]
#          [--launches N] [--classes C,...] [--random N [--seed S]] [--out PREFIX [--resume]]
#        scripts/speed_vs_peers.sh --csv FILE... [--out PREFIX]   only summarises
# opencl_vs_peers.sh is the same with --opencl in front.
set -euo pipefail
root=$(dirname "$0")/..
build=1
for argument in "$@"; do
  case $argument in
    --rooflane | --rooflane=* | -h | --help) build=0 ;;
  esac
done
if ((build)); then "$root/scripts/build.sh" rooflane >&2; fi
exec python3 "$root/scripts/speed_vs_peers.py" "$@"
