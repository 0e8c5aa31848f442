#!/usr/bin/env bash
# Layout and static checks: clang-format, ruff, shellcheck, the length of functions and who includes
# whom, of the whole tree; clang-tidy of the C++ that changed since the merge base with origin/main,
# or on it within the last day, or since ROOFLANE_LINT_BASE. The tools are installed from PyPI, at
# versions that lint.py names.
#   scripts/lint.sh            all that
#   scripts/lint.sh FILE…      these files only
#   scripts/lint.sh --quick    without clang-tidy: seconds, and no build
#   scripts/lint.sh --within N clang-tidy for N seconds, of what changed last first; what it
#                              did not come to is named
#   scripts/lint.sh --all      clang-tidy of every source: ten minutes
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
if [[ ${1:-} != --quick ]]; then scripts/build.sh; fi
exec python3 scripts/lint.py "$@"
