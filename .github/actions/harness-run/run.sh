#!/usr/bin/env bash
# Runs claims and exits with the status of the run. See action.yml.
#
# HARNESS CLAIMS OPTIONS FAIL_ON MINUTES   the inputs of the action
# RUNNER_TEMP                              from the runner
#
# The run has a session of its own. When a job is cancelled, the runner ends this script within ten seconds; the run
# needs longer to seal what it measured, and harness-report waits for it.
set -euo pipefail

folder=$RUNNER_TEMP/harness
state=$RUNNER_TEMP/harness-state
mkdir -p "$folder" "$state"
[ -s "$state/began" ] || date +%s > "$state/began"
read -ra claims <<< "$CLAIMS"
read -ra options <<< "$OPTIONS"
mkdir -p evidence
find evidence -name record.json | sort > "$state/before"

# The last sixth of the job's time, at most ten minutes, is for reports and the upload.
margin=$((MINUTES * 10 < 600 ? MINUTES * 10 : 600))
seconds=$(($(cat "$state/began") + MINUTES * 60 - margin - $(date +%s)))
if [ "$seconds" -lt 1 ]; then seconds=1; fi

pid=
stop() {
  trap '' INT TERM
  if [ -n "$pid" ]; then kill -TERM "$pid" 2> /dev/null || true; fi
  trap stop INT TERM
}
trap stop INT TERM
# SIGTERM tells the run to seal what it measured. `timeout` passes it on, and exits with 124 if the time was up.
setsid timeout --foreground --kill-after=5m --signal=TERM "$seconds" \
  "$HARNESS" run "${claims[@]}" "${options[@]}" --json "$folder/run.json" > >(tee "$folder/run.log") 2>&1 &
pid=$!
echo "$pid" > "$state/pid"
status=0
while :; do
  wait "$pid" && status=0 || status=$?
  kill -0 "$pid" 2> /dev/null || break
done
echo "$status" > "$state/status"

if [ -n "$FAIL_ON" ] && [ "$status" -le 4 ]; then
  gate=0
  "$HARNESS" status --fail-on "$FAIL_ON" || gate=$?
  # The status of the run is more important than missing evidence of other claims.
  [ "$status" -ne 0 ] || status=$gate
fi
if [ "$status" -eq 124 ]; then echo "::error title=ended early::the run ended at its time limit; what it sealed is kept"; fi
exit "$status"
