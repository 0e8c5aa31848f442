#!/usr/bin/env bash
# Layout and static checks: clang-format, ruff, shellcheck, the length of functions, the direction of
# includes and the words of pages and messages, for the whole tree; clang-tidy for the C++ that changed since
# the merge base with origin/main, or on it within the last day, or since ROOFLANE_LINT_BASE. The tools are
# installed from PyPI, at versions that lint.py names.
#   scripts/lint.sh            all of these
#   scripts/lint.sh FILE…      only these files
#   scripts/lint.sh --quick    without clang-tidy: seconds, and no build
#   scripts/lint.sh --within N clang-tidy for N seconds, the latest changes first; names the files that
#                              were not checked
#   scripts/lint.sh --all      clang-tidy for every source: ten minutes
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
if [[ ${1:-} != --quick ]]; then scripts/build.sh; fi
exec python3 scripts/lint.py "$@"
