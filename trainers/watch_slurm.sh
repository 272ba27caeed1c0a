#!/bin/sh
# Watches a task of Slurm: as its prolog it begins, as its epilog it seals what is left.
#
#   export WATCH="trainers/apr-distill.toml -P steps=5000 -P device=cuda --attach /runs/stage-d --on-refute kill"
#   srun --task-prolog=trainers/watch_slurm.sh --task-epilog=trainers/watch_slurm.sh apr distill ...
#
# Slurm runs the prolog as a child of the process that becomes the task. It ends what the prolog leaves in its group,
# and the watcher with the task.
state=${WATCH_STATE:-$HOME/.cache/falsifier-harness/watch/slurm-$SLURM_JOB_ID-$SLURM_STEP_ID-${SLURM_RESTART_COUNT:-0}}
[ "${SLURM_PROCID:-0}" = 0 ] || exit 0
if [ -d "$state" ]; then
    exec harness watch --resume "$state" >>"$state/watch.log" 2>&1
fi
mkdir -p "$state"
# shellcheck disable=SC2086 (the words of WATCH are arguments)
setsid harness watch $WATCH --pid "$PPID" --state "$state" --issue "${WATCH_ISSUE:-WATCH}" >>"$state/watch.log" 2>&1 &
tenths=0
while [ ! -s "$state/facts.jsonl" ] && [ $tenths -lt 600 ]; do
    kill -0 $! 2>/dev/null || { echo "print harness watch does not run: see $state/watch.log"; exit 0; }
    sleep 0.1
    tenths=$((tenths + 1))
done
