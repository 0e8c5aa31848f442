#!/usr/bin/env bash
# Compares search strategies: the tuner's strategies search completely measured spaces by replay, a hundred
# times each, and the score of each is printed as Markdown (docs/tuning.md).
# Usage: scripts/tune_league.sh [--strategies NAME,...] [--repeats N] [--jobs N] [--only TEXT]
#          [--rounds N] [--seed-points N] [--seed N] [--latency NAME=SECONDS]
#          [--results FILE] [--markdown FILE] [--json FILE] [--spaces FILE]
#        scripts/tune_league.sh list | add FILE... [--spaces FILE]
set -euo pipefail
case ${1:-} in
  list | add | run) ;;
  -h | --help) sed -n '2,7s/^# //p' "$0"; exit 0 ;;
  *) set -- run "$@" ;;
esac
exec python3 "$(dirname "$0")/tune.py" league "$@"
