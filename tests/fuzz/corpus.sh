#!/usr/bin/env bash
# The committed inputs of the fuzz targets, one archive each: tests/fuzz/corpus/NAME.tar.gz.
# Usage: corpus.sh unpack NAME FOLDER    writes the inputs of a target into FOLDER
#        corpus.sh pack NAME FOLDER      makes a target's archive of the files in FOLDER
#        corpus.sh replay PROGRAM        unpacks all and runs PROGRAM (replay.cpp) over them
set -euo pipefail
corpus=$(cd "$(dirname "$0")" && pwd)/corpus

unpack() {
  mkdir -p "$2"
  tar -xzf "$corpus/$1.tar.gz" -C "$2"
}

case ${1-} in
  unpack) unpack "$2" "$3" ;;
  pack)  # the same files give the same bytes
    (cd "$3" && find . -type f -printf '%P\n' | LC_ALL=C sort) |
      tar -C "$3" --no-recursion --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=0644 \
        -T - -cf - | gzip -9n >"$corpus/$2.tar.gz"
    ;;
  replay)
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    for archive in "$corpus"/*.tar.gz; do
      name=$(basename "$archive" .tar.gz)
      unpack "$name" "$folder/$name"
    done
    "$2" "$folder"
    ;;
  *)
    sed -n '3,5s/^# //p' "$0" >&2
    exit 2
    ;;
esac
