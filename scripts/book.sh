#!/usr/bin/env bash
# Builds the pages as a book: docs/ and the files it links to as HTML, in build/book/ or in the folder of
# --out. Open index.html there; no server or network is needed. The first call installs MkDocs from PyPI,
# 60 MB.
# Usage: scripts/book.sh [--out FOLDER]
set -euo pipefail
exec python3 "$(dirname "$0")/book.py" "$@"
