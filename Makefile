# Two commands: `make demo` runs the main job, `make test` runs linter, type checker and tests.
# Each sets up everything it needs in .venv with pinned versions; a second run starts at once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
BENCH := .venv/.bench-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: demo test lint types unit setup bench-setup clean

demo: $(STAMP)
	$(BIN)/bochner demo --out demo

test: lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# Two workers with one thread each: the machine this must fit has two cores.
unit: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

setup: $(STAMP)

bench-setup: $(BENCH)

$(STAMP):
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	rm -f .venv/.installed-*
	touch $@

$(BENCH): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,bench]"
	rm -f .venv/.bench-*
	touch $@

clean:
	rm -rf .venv demo
