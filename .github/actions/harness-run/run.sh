#!/usr/bin/env bash
# Runs claims, packs and reports their bundles, and exits with the status of the run. See action.yml.
#
# HARNESS CLAIMS OPTIONS FAIL_ON   the inputs of the action
# RUNNER_TEMP GITHUB_OUTPUT        from the runner
set -euo pipefail

folder=$(mktemp -d "$RUNNER_TEMP/harness.XXXXXX")
echo "folder=$folder" >> "$GITHUB_OUTPUT"
read -ra claims <<< "$CLAIMS"
read -ra options <<< "$OPTIONS"

status=0
"$HARNESS" run "${claims[@]}" "${options[@]}" --json "$folder/run.json" || status=$?

# A refused run leaves the file empty. Then there is no bundle, and the status says why.
mapfile -t bundles < <(python3 -c '
import json, pathlib, sys
text = pathlib.Path(sys.argv[1]).read_text() if pathlib.Path(sys.argv[1]).exists() else ""
for record in json.loads(text or "{}").get("records", ()):
    if record["bundle"]:
        print(record["bundle"])
' "$folder/run.json")
echo "bundles=${#bundles[@]}" >> "$GITHUB_OUTPUT"

if [ "${#bundles[@]}" -gt 0 ]; then
  "$HARNESS" report "${bundles[@]}" --step-summary --markdown "$folder/comment.md" --ctrf "$folder/ctrf.json" \
    --junit "$folder/junit.xml" --sarif "$folder/claims.sarif" --html "$folder/site"
  "$HARNESS" pack "${bundles[@]}" -o "$folder/bundles.zip"
fi

if [ -n "$FAIL_ON" ]; then
  gate=0
  "$HARNESS" status --fail-on "$FAIL_ON" || gate=$?
  # The status of the run is more important than missing evidence of other claims.
  [ "$status" -ne 0 ] || status=$gate
fi
exit "$status"
