# make demo   set up, get the default model, explain a sentence
# make test   set up, then run everything that CI runs
# make wheel  build the wheel and try it in an empty environment
# make docs   build the documentation site into the folder site
# make bench  measure the searches against the published algorithm (hours; goes on where it stopped)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# As the command line sets it itself (threads.py): for tests and benchmarks.
export GOMP_SPINCOUNT ?= 2000

.PHONY: demo test check wheel docs bench format setup setup-dev setup-docs model clean

demo: model
	$(BIN)/rationales explain "The Supreme Court on Tuesday"

test: setup-dev model check wheel

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

wheel: setup
	.ci/wheel

docs: setup-docs
	$(BIN)/mkdocs build

bench: model
	$(BIN)/python benchmarks/bench.py --out docs/results/bench

format:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(VENV)/installed
setup-dev: $(VENV)/installed-dev
setup-docs: $(VENV)/installed-docs

# torch goes first, pinned, so that nothing else chooses a build of it. The version is in __init__.py.
$(VENV)/installed: pyproject.toml constraints.txt src/rationales/__init__.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt torch
	$(PIP) install -q -c constraints.txt -e .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) install -q -c constraints.txt -e '.[docs]'
	touch $@

model: setup
	$(BIN)/rationales model get

clean:
	rm -rf $(VENV) site
