#!/usr/bin/env bash
# Verifies received bundles, signs them, and adds them to the branch of kept evidence.
#
# HARNESS BRANCH     the command, the branch
# SIGNING_KEY        the private key, as text
# RECEIVED           the folder of the downloaded artifacts
# KEPT               the folder for claims.sarif, the open findings of all evidence
# REMOTE             where to push; it may hold a token
# RUNNER_TEMP        from the runner
#
# This runs on a machine on which no code under test runs, so that code cannot read the key.
set -euo pipefail

if [ -z "$SIGNING_KEY" ]; then
  echo "::error title=no signing key::make one with \`harness keygen ci.key\`, and store it with" \
    "\`gh secret set HARNESS_SIGNING_KEY --env evidence < ci.key\` and" \
    "\`gh variable set HARNESS_EVIDENCE_KEY < ci.key.pub\`"
  exit 1
fi
project=$PWD
work=$(mktemp -d "$RUNNER_TEMP/keep.XXXXXX")
(umask 077 && printf '%s\n' "$SIGNING_KEY" > "$work/key")
mkdir "$work/evidence"
shopt -s nullglob
for archive in "$RECEIVED"/*/bundles.zip; do
  "$HARNESS" merge "$archive" --into "$work/evidence"
done
if [ -z "$(find "$work/evidence" -name record.json -print -quit)" ]; then
  echo "no bundle was sealed: nothing to keep"
  exit 0
fi
"$HARNESS" attest "$work/evidence" --key "$work/key"

git config --global --get user.name > /dev/null || export \
  GIT_AUTHOR_NAME=github-actions GIT_AUTHOR_EMAIL=github-actions@users.noreply.github.com \
  GIT_COMMITTER_NAME=github-actions GIT_COMMITTER_EMAIL=github-actions@users.noreply.github.com
git init --quiet "$work/branch"
cd "$work/branch"
if git fetch --quiet --depth=1 "$REMOTE" "refs/heads/$BRANCH" 2> /dev/null; then
  git checkout --quiet -b "$BRANCH" FETCH_HEAD
else
  git checkout --quiet --orphan "$BRANCH"
fi
mkdir -p evidence
cp -R "$work/evidence/." evidence/
git add --all --force evidence
git commit --quiet --message "Keep the evidence of run ${GITHUB_RUN_ID:-}"
git push --quiet "$REMOTE" "HEAD:refs/heads/$BRANCH"
cd "$project"
mkdir -p evidence "$KEPT"
cp -R "$work/branch/evidence/." evidence/
"$HARNESS" report evidence --sarif "$KEPT/claims.sarif"
echo "kept $(find "$work/evidence" -name record.json | wc -l) bundles in $BRANCH"
