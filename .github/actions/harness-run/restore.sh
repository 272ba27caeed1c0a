#!/usr/bin/env bash
# Adds the evidence of a branch to the checkout, so that `--stale`, `status` and `history` read it. See action.yml.
#
# HARNESS BRANCH TRUSTED_KEY   the inputs of the action
# RUNNER_TEMP                  from the runner
set -euo pipefail

ref=refs/remotes/origin/$BRANCH
if ! git rev-parse --quiet --verify "$ref" > /dev/null; then
  echo "there is no branch $BRANCH yet: nothing to restore"
  exit 0
fi
restored=$(mktemp -d "$RUNNER_TEMP/restored.XXXXXX")
git archive "$ref" evidence | tar -x -C "$restored"
if [ -n "$TRUSTED_KEY" ]; then
  printf '%s\n' "$TRUSTED_KEY" > "$restored/key.pub"
  "$HARNESS" verify "$restored/evidence" --trusted-key "$restored/key.pub" > "$restored/verify.log" || {
    cat "$restored/verify.log"
    echo "::error::the branch $BRANCH has evidence that the trusted key did not sign"
    exit 1
  }
fi
mkdir -p evidence
cp -R "$restored/evidence/." evidence/
echo "restored $(find "$restored/evidence" -name record.json | wc -l) bundles of $BRANCH"
