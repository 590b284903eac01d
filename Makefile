# `make demo` runs the main job, `make test` linter, type checker and tests, `make docs` builds the documentation.
# Each sets up everything it needs in .venv with pinned versions; a second run starts at once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
BENCH := .venv/.bench-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
LOWEST := .venv-lowest/.installed-$(shell cat pyproject.toml | cksum | cut -d' ' -f1)
BROWSER := .venv/.browser-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
CAMPAIGN := .venv/.campaign-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
DOCS := .venv/.docs-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: demo test docs lint types unit lowest browser campaign setup bench-setup clean

demo: $(STAMP)
	$(BIN)/bochner demo --out demo --force

test: lint types unit

# The documentation, docs/_build/html/index.html: runs every example of the gallery; a warning is an error.
docs: $(DOCS)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -n -b html docs docs/_build/html

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/mypy --config-file benchmarks/mypy.ini

# Two workers with one thread each: the machine this must fit has two cores. Tests of a file share fits, and a worker.
unit: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

# The lowest versions that pyproject.toml declares, in an environment of their own, and the tests that touch other
# packages. torch is the pinned one: old builds are not there for every machine.
lowest: $(LOWEST)
	OMP_NUM_THREADS=1 .venv-lowest/bin/pytest -p no:cacheprovider tests/data tests/io tests/datasets tests/kernels \
		tests/features tests/plots tests/serialization tests/cli tests/test_metrics.py

# The report page in headless Chromium, hostile names in every field among them. BOCHNER_CHROMIUM names a browser that is
# not on the path; where there is none, `.venv/bin/playwright install chromium` fetches one.
browser: $(BROWSER)
	OMP_NUM_THREADS=1 $(BIN)/pytest -rs tests/page

# The fault campaign, hours long: its counts are added to docs/campaign.json and shown in docs/campaign.md. It goes on
# after the last seed that was run; SEED=1000 says another one.
SEED ?=
campaign: $(CAMPAIGN)
	OMP_NUM_THREADS=1 PYTHONPATH=tests/support $(BIN)/python -m campaign all $(if $(SEED),--seed $(SEED)) --record

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

$(BROWSER): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,browser]"
	rm -f .venv/.browser-*
	touch $@

$(CAMPAIGN): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,campaign]"
	rm -f .venv/.campaign-*
	touch $@

$(LOWEST):
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) .ci/lowest.py > .venv-lowest/constraints.txt
	grep '^torch==' constraints.txt >> .venv-lowest/constraints.txt
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c .venv-lowest/constraints.txt \
		-e ".[anndata,pandas,parquet,plot]" pytest hypothesis
	rm -f .venv-lowest/.installed-*
	touch $@

$(DOCS): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	rm -f .venv/.docs-*
	touch $@

clean:
	rm -rf .venv .venv-lowest demo docs/_build docs/_generated docs/api docs/gallery
