# `make demo` runs the main job, `make test` linter, type checker and tests, `make docs` builds the documentation.
# Each sets up everything it needs in .venv with pinned versions; a second run starts at once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
BENCH := .venv/.bench-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
DOCS := .venv/.docs-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: demo test docs lint types unit setup bench-setup clean

demo: $(STAMP)
	$(BIN)/bochner demo --out demo

test: lint types unit

# The documentation, docs/_build/html/index.html: runs every example of the gallery; a warning is an error.
docs: $(DOCS)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -n -b html docs docs/_build/html

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

$(DOCS): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	rm -f .venv/.docs-*
	touch $@

clean:
	rm -rf .venv demo docs/_build docs/_generated docs/api docs/gallery
