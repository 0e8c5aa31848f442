#!/usr/bin/env bash
# Layout and static checks: clang-format and clang-tidy, both silent when clean.
#   scripts/lint.sh            every C++ file of the tree
#   scripts/lint.sh FILE…      these files
#   scripts/lint.sh --format   clang-format only (seconds instead of minutes)
set -euo pipefail
cd "$(dirname "$0")/.."

format_only=false
if [[ ${1:-} == --format ]]; then
  format_only=true
  shift
fi
for tool in clang-format clang-tidy; do
  if ! command -v "$tool" >/dev/null; then
    echo "lint: $tool is missing; install it with: apt-get install clang-format clang-tidy" >&2
    exit 1
  fi
done
if (($# > 0)); then
  files=("$@")
else
  mapfile -t files < <(git ls-files '*.cpp' '*.hpp' '*.h')
fi
clang-format --dry-run -Werror "${files[@]}"
if $format_only; then
  exit 0
fi

# clang-tidy reads how each source is compiled; headers are checked through the sources that include
# them. The example is compiled against an installed library, hence not here.
scripts/build.sh
sources=()
for file in "${files[@]}"; do
  if [[ $file == *.cpp && $file != examples/* ]]; then sources+=("$file"); fi
done
if ((${#sources[@]} > 0)); then
  printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build
fi
