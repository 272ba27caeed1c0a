#!/usr/bin/env bash
# Judges TRL's GKDTrainer with models of qwen2-0.5b's shape by six claims in the full profile, and measures what
# watching it costs. For a machine with a GPU; `make trl` installs what it needs. Bundles go to evidence/GH-TRL.
#
#   trainers/judge_trl.sh                                  # all of it
#   CLAIMS=F-DISTILL-STEP-001 ROUNDS=0 trainers/judge_trl.sh --no-mutants
#   trainers/judge_trl.sh --profile reduced                # a rehearsal on the CPU: further words go to `harness run`
#
# PYTHON is the interpreter, CLAIMS the claims, EVIDENCE the folder, ROUNDS those of the measurement (0 for none).
set -u
cd "$(dirname "$0")/.." || exit 2
export TRL_EXPERIMENTAL_SILENCE=1
python=${PYTHON:-.venv/bin/python}
all="F-DISTILL-SMOKE-001 F-DISTILL-MAXSTEPS-001 F-DISTILL-STEP-001 F-DISTILL-CKPT-PERIOD-001
  F-DISTILL-CKPT-EXPORT-001 F-DISTILL-CKPT-CRASH-001"
worst=0
for claim in ${CLAIMS:-$all}; do # one after the other, so that one that ends badly takes no other with it
  "$python" -m harness run "$claim" --profile full --subject hf:trainers.trl_gkd:build -P alpha=0 -P temperature=1 \
    --evidence "${EVIDENCE:-evidence/GH-TRL}" "$@"
  status=$?
  [ "$status" -gt "$worst" ] && worst=$status
done
model=qwen2-0.5b device=cuda:0
case " $* " in *" reduced "*) model=qwen2-tiny device=cpu ;; esac
[ "${ROUNDS:-20}" -eq 0 ] || "$python" -m benchmarks.trainer_adapter --function trainers.trl_gkd:build \
  --alpha 0 --temperature 1 --model "$model" --device "$device" --rounds "${ROUNDS:-20}"
exit "$worst"
