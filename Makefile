# The commands of the README. Everything lives in .venv, pinned by constraints.txt.
CLAIM ?= F-DISTILL-SMOKE-001
PYTHON ?= python3
PROFILE ?= auto
WORKERS ?= 2
ARGS ?=

VENV := .venv
INSTALLED := $(VENV)/.installed

.PHONY: run test docs check clean

run: $(INSTALLED)
	$(VENV)/bin/harness run $(CLAIM) --profile $(PROFILE) $(ARGS)

test: $(INSTALLED)
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --durations=15

docs: $(INSTALLED)
	$(VENV)/bin/mkdocs build --strict
	@echo 'the documentation is in build/site/index.html'

# A gate: the same commit gets the same answer. `make test` goes on searching.
check: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --strict harness/
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --durations=15 --hypothesis-seed=0
	$(VENV)/bin/mkdocs build --strict
	$(VENV)/bin/harness lint
	$(VENV)/bin/harness verify evidence/

# --system-site-packages is not used: a pinned environment is part of the evidence.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is older than 3.11; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo 'installing into $(VENV): 2.7 GB of wheels with torch and CUDA, about two minutes on a fast line'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[analysis,blackwell,checkpoint,device-code,distill,docs,external,sign,test,triton,wgpu]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
