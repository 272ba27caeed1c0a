# The two commands of the README. Everything lives in .venv, pinned by constraints.txt.
CLAIM ?= F-DISTILL-SMOKE-001
PYTHON ?= python3
PROFILE ?= auto
WORKERS ?= 2
ARGS ?=

VENV := .venv
INSTALLED := $(VENV)/.installed

.PHONY: run test check clean

run: $(INSTALLED)
	$(VENV)/bin/harness run $(CLAIM) --profile $(PROFILE) $(ARGS)

test: $(INSTALLED)
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile

# A gate: the same commit gets the same answer. `make test` goes on searching.
check: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --strict harness/
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --hypothesis-seed=0
	$(VENV)/bin/harness lint
	$(VENV)/bin/harness verify evidence/

# --system-site-packages is not used: a pinned environment is part of the evidence.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is older than 3.11; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[analysis,blackwell,checkpoint,device-code,distill,external,sign,test,triton,wgpu]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
