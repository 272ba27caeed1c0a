# The commands of the README. Everything lives in .venv, pinned by constraints.txt.
CLAIM ?= F-DISTILL-SMOKE-001
PYTHON ?= python3
PROFILE ?= auto
# On two cores, more workers use the time in which others wait.
WORKERS ?= 4
# Of `make fuzz` and `make mutants`.
MINUTES ?= 60
ARGS ?=
PYTEST ?=

VENV := .venv
INSTALLED := $(VENV)/.installed
# What the claims of distillation need, a third of all.
DISTILL := $(VENV)/.distill

# The tests start hundreds of Python processes. Each would compile the harness again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install run test families corpus docs wheels trl check fuzz mutants verdicts clean

install: $(INSTALLED)

run: $(if $(filter F-DISTILL-%,$(CLAIM)),$(DISTILL),$(INSTALLED))
	$(VENV)/bin/harness run $(CLAIM) --profile $(PROFILE) $(ARGS)

test: $(INSTALLED)
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations=15 $(PYTEST)

# The tests of every family of falsifiers. `make test` skips a family that has passed with the present sources.
families: $(INSTALLED)
	$(VENV)/bin/python -m tests.falsifiers.families $(ARGS)

docs: $(INSTALLED)
	$(VENV)/bin/mkdocs build --strict
	@echo 'the documentation is in build/site/index.html'

# The harness, and the claims of this repository for others.
wheels: $(INSTALLED)
	$(VENV)/bin/python -m build --wheel --no-isolation --outdir build/wheels .
	$(VENV)/bin/python -m build --wheel --no-isolation --outdir build/wheels claims

# TRL's Trainers as subjects. They bring 190 MB that nothing else here needs, so `make test` skips them.
trl: $(INSTALLED)
	$(VENV)/bin/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[trl]'
	$(VENV)/bin/python -m pytest tests/falsifiers/distill/test_trl.py

# New hostile cases for every reader, in rounds, until the minutes are over or a case does harm.
fuzz: $(INSTALLED)
	end=$$(($$(date +%s) + 60 * $(MINUTES))); while [ $$(date +%s) -lt $$end ]; do \
	  $(VENV)/bin/python -m pytest -q -n $(WORKERS) --dist worksteal --hypothesis-profile=nightly -o faulthandler_timeout=3600 tests/fuzz tests/hostile || exit 1; done

# Do the tests of the harness core notice a defect in it? Continues where the last call stopped, unless there is a new commit.
mutants: $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[mutation]'
	nice -n 19 $(VENV)/bin/python -m tests.mutation.campaign --minutes $(MINUTES) $(ARGS)

# How many documented mistakes are caught? Takes a quarter of an hour on two cores; ARGS=--quick takes two minutes.
corpus: $(INSTALLED)
	$(VENV)/bin/harness corpus run $(ARGS)

# All claims twice, one trial after another and scheduled: do they come out the same? Takes an hour on two cores.
verdicts: $(INSTALLED)
	$(VENV)/bin/python -m tests.run.same_verdicts $(ARGS)

# The documents that contracts quote. They are no part of the repository: without them, nothing is compared with them.
HARNESS_SOURCES ?= ../shared/sources

# A gate: the same commit gets the same answer, so the random cases are the same each time. `make test` draws new ones.
check: docs
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --strict harness/ benchmarks/
	$(VENV)/bin/lint-imports --no-cache
	@[ -d '$(HARNESS_SOURCES)' ] || echo 'figures and quotes are not compared with documents: HARNESS_SOURCES names no folder'
	$(VENV)/bin/harness lint
	$(VENV)/bin/harness figures $(if $(wildcard $(HARNESS_SOURCES)/.),--sources '$(HARNESS_SOURCES)')
	$(VENV)/bin/harness verify evidence/
	$(MAKE) test PYTEST=--hypothesis-seed=0

# --system-site-packages is not used: a pinned environment is part of the evidence.
# --no-compile: Python compiles each module when it is first imported; most are never.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is older than 3.11; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(DISTILL): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo 'installing what distillation needs: downloads 2.7 GB with CUDA, 0.3 GB with a CPU build of torch'
	$(VENV)/bin/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[distill]'
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo 'installing into $(VENV): downloads 2.9 GB with CUDA, 0.7 GB with a CPU build of torch; takes minutes'
	$(VENV)/bin/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[analysis,blackwell,checkpoint,device-code,distill,docs,external,jax,sign,test,trainers,triton,wgpu]'
	@touch $(DISTILL) $@

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
