#!/usr/bin/env bash
# Packs and reports what a run sealed, and says how the run ended. See action.yml.
#
# HARNESS                                           the input of the action
# RUNNER_TEMP GITHUB_OUTPUT GITHUB_STEP_SUMMARY     from the runner
# WAIT                                              seconds that a run may still take to seal; 120 by default
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
folder=$RUNNER_TEMP/harness
state=$RUNNER_TEMP/harness-state
mkdir -p "$folder" "$state" evidence
echo "folder=$folder" >> "$GITHUB_OUTPUT"

# A cancelled run may still be sealing.
if [ -s "$state/pid" ] && [ ! -s "$state/status" ]; then
  pid=$(cat "$state/pid")
  kill -TERM "$pid" 2> /dev/null || true
  for ((second = 0; second < ${WAIT:-120}; second++)); do
    kill -0 "$pid" 2> /dev/null || break
    sleep 1
  done
fi

bundles=()
if [ -e "$state/before" ]; then
  # A folder whose name begins with a point is not sealed yet.
  mapfile -t bundles < <(find evidence -name '.?*' -prune -o -name record.json -print | sort \
    | comm -13 "$state/before" - | sed 's|/record\.json$||')
fi
echo "bundles=${#bundles[@]}" >> "$GITHUB_OUTPUT"

python3 "$here/ending.py" "$state" "$folder" "${#bundles[@]}" > "$folder/comment.md"
cat "$folder/comment.md" >> "$GITHUB_STEP_SUMMARY"
if [ "${#bundles[@]}" -gt 0 ]; then
  "$HARNESS" report "${bundles[@]}" --markdown "$folder/report.md" --ctrf "$folder/ctrf.json" \
    --junit "$folder/junit.xml" --html "$folder/site"
  cat "$folder/report.md" >> "$folder/comment.md"
  cat "$folder/report.md" >> "$GITHUB_STEP_SUMMARY"
  rm "$folder/report.md"
  mkdir "$folder/new"
  cp -R --parents "${bundles[@]}" "$folder/new"
  (cd "$folder/new" && python3 -m zipfile -c ../bundles.zip evidence)
  rm -r "$folder/new"
fi
# Code scanning closes the alerts that an upload lacks, so it gets the open findings of all evidence.
if command -v "$HARNESS" > /dev/null && [ -n "$(find evidence -name record.json -print -quit)" ]; then
  "$HARNESS" report evidence --sarif "$folder/claims.sarif"
fi
# The jobs that `harness watch` followed for this user since yesterday, and the GPU-hours that it saved.
if watched=$("$HARNESS" watch --list --since 24h) && [ -n "$watched" ]; then
  printf '\n```text\n%s\n```\n' "$watched" >> "$GITHUB_STEP_SUMMARY"
fi
