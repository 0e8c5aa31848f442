#!/usr/bin/env bash
# Builds the Debian packages of this tree (rooflane, librooflane0, librooflane-dev) on Debian 12 or 13, after
# installing the build dependencies. Fails if lintian finds an error or a warning.
#   scripts/debian_package.sh [FOLDER]                           default: build/packages
#   DEB_BUILD_OPTIONS=nocheck scripts/debian_package.sh          without the tests
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-build/packages}")
if ! command -v apt-get >/dev/null; then
  echo "debian_package: this system has no apt-get: Debian 12 or 13 is needed" >&2
  exit 3
fi
as_root=()
if ((EUID != 0)); then as_root=(sudo); fi
apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >&2; }

# A copy: what dpkg-buildpackage leaves behind stays out of the tree.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/rooflane"
tar -c --exclude='./build*' --exclude='__pycache__' . | tar -x -C "$work/rooflane"
cd "$work/rooflane"

apt_get update
apt_get -y --no-install-recommends install dpkg-dev fakeroot lintian
apt_get -y --no-install-recommends build-dep .
dpkg-buildpackage -us -uc -b >&2
mkdir -p "$folder"
cp ../*.deb ../*.buildinfo ../*.changes "$folder"
ls "$folder"/*.deb
lintian --fail-on error,warning ../*.changes
