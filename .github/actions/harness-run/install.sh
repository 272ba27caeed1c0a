#!/usr/bin/env bash
# Runs the commands of INSTALL over a copy of the virtual environment that this machine keeps between jobs. See action.yml.
#
# INSTALL                                       the input of the action
# RUNNER_TEMP RUNNER_TOOL_CACHE                 from the runner
#
# A checkout removes .venv, and torch with CUDA is 2.9 GB. The commands run each time, so a package of the checkout is
# installed anew; pip then finds the others. Other requirements, or another week, begin a new environment.
set -euo pipefail

mkdir -p "$RUNNER_TEMP/harness-state"
date +%s > "$RUNNER_TEMP/harness-state/began"

key=$({
  printf '%s\n' "$INSTALL" "$PWD" "$(date +%G-%V)"
  python3 --version
  for file in pyproject.toml constraints.txt requirements*.txt uv.lock poetry.lock setup.py setup.cfg; do
    if [ -f "$file" ]; then sha256sum "$file"; fi
  done
} | sha256sum | cut -c1-16)
kept=$RUNNER_TOOL_CACHE/falsifier-harness
environment=$kept/$key
mkdir -p "$kept"

# place FROM TO: hard links, or copies if TO is on another file system. Not a link to the folder: `python3 -m venv` refuses one.
place() {
  rm -rf "$2"
  cp -al "$1" "$2" 2> /dev/null || { rm -rf "$2" && cp -a "$1" "$2"; }
}

if [ -e "$environment" ]; then place "$environment" .venv; else rm -rf .venv; fi
# Without a .gitignore that names it, the checkout would count as changed.
if [ -d .git/info ] && ! grep -qx /.venv .git/info/exclude 2> /dev/null; then echo /.venv >> .git/info/exclude; fi
bash -euo pipefail -c "$INSTALL"
# Only a complete environment gets its name. Older ones are not needed.
find "$kept" -mindepth 1 -maxdepth 1 -mtime +7 -exec rm -rf {} +
place .venv "$environment.new"
rm -rf "$environment"
mv "$environment.new" "$environment"
touch "$environment"
