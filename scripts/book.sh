#!/usr/bin/env bash
# The pages as a book: docs/ and what it links to as HTML, in build/book/ unless --out says otherwise;
# open index.html there, without server or network. MkDocs comes from PyPI at the first call, 60 MB.
# Usage: scripts/book.sh [--out FOLDER]
set -euo pipefail
exec python3 "$(dirname "$0")/book.py" "$@"
