#!/usr/bin/env bash
# Builds the wheels of this commit twice, and compares them byte by byte: the harness and its claims.
#
# PYTHON   a Python with build and hatchling
# WHEELS   the folder for the wheels and SHA256SUMS
#
# Both builds start from a clone, so a wheel has no file that is not in the commit. The second one has another folder, time
# zone, language and umask. If a wheel depended on one of them, nobody could check that it is of its commit.
set -euo pipefail

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build FOLDER: the wheels of a clone in FOLDER go to FOLDER-wheels.
build() {
  git clone --quiet --no-hardlinks . "$1"
  for project in "$1" "$1/claims"; do
    "$PYTHON" -m build --wheel --no-isolation --outdir "$1-wheels" "$project" > "$1.log" 2>&1 || { cat "$1.log"; exit 1; }
  done
}

build "$work/first"
mkdir "$work/elsewhere"
(umask 077 && export TZ=Asia/Kathmandu LC_ALL=C && build "$work/elsewhere/second")
if ! diff -r "$work/first-wheels" "$work/elsewhere/second-wheels"; then
  echo "::error title=not reproducible::two builds of this commit gave different wheels"
  exit 1
fi
mkdir -p "$WHEELS"
cp "$work"/first-wheels/*.whl "$WHEELS"
cd "$WHEELS"
sha256sum -- *.whl | tee SHA256SUMS
