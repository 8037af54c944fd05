# fastplan: `make demo` runs the main job, `make test` the tests; each sets up what it needs in .venv first.

PYTHON ?=
ARGS ?=
SEEDS ?= 2000
FIRST ?= 0
export PYTHON SEEDS FIRST

venv := .venv/bin
extensions := $(shell sed -n 's/^ *"\(fastplan\.[a-z_.]*\)": "ext.*/\1/p' setup.py)
sources := setup.py $(shell find ext src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: help setup demo test test-slow torture bench lint format wheel wheels figures reference lock clean

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup: build/.extensions  ## create .venv, install what is pinned, build the extensions in place

.venv/.created: scripts/create_venv.sh
	@sh scripts/create_venv.sh
	@touch $@

.venv/.dependencies: .venv/.created requirements/dev.txt
	$(venv)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r requirements/dev.txt
	@touch $@

# Without extensions: they are built below, where one that has not changed is left alone.
.venv/.installed: .venv/.dependencies pyproject.toml
	FASTPLAN_EXTENSIONS=none $(venv)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable .
	@touch $@

build/.extensions: .venv/.installed $(sources)
	$(venv)/python setup.py --quiet build_ext --inplace
	@touch $@

demo: setup  ## place a small GPU fleet through the whole path: plan, verify, durable log, restart
	$(venv)/python -m fastplan.cli replay gpu-fleet

test: setup  ## run the tests (under 5 minutes on 2 cores); ARGS="-k ports" names some
	$(venv)/python -m pytest $(ARGS)

test-slow: setup  ## run the tests that take longer
	$(venv)/python -m pytest -m slow $(ARGS)

torture: setup  ## run the simulation of a whole server; SEEDS=2000 FIRST=0 say which seeds
	$(venv)/python -m fastplan.testing.simulation $(ARGS)

bench: setup  ## answer the questions of `fastplan bench` and print one table
	$(venv)/python -m fastplan.cli bench

lint: setup  ## check style, types, Cython and the stubs of compiled modules
	$(venv)/python -m ruff check
	$(venv)/python -m ruff format --check
	$(venv)/python -m mypy
	PATH="$(CURDIR)/$(venv):$$PATH" cython-lint ext src tests/embed
	$(venv)/python -m mypy.stubtest --ignore-disjoint-bases --ignore-unused-allowlist --allowlist scripts/stubtest-allowlist.txt $(extensions)

format: setup  ## rewrite the sources in the house style
	$(venv)/python -m ruff check --fix
	$(venv)/python -m ruff format

wheel: setup  ## build sdist and wheel in dist/, the wheel from the sdist alone, and test it in an empty environment
	$(venv)/python scripts/round_trip.py --tests

wheels: setup  ## build and try a wheel with each CPython found here
	$(venv)/python scripts/round_trip.py --every-python

figures: setup  ## measure, and write the table in README.md
	$(venv)/python -m scripts.write_figures

reference: setup  ## write docs/reference.md from the docstrings
	$(venv)/python -m scripts.write_reference

lock: setup  ## take the newest versions of all dependencies into requirements/
	sh scripts/lock.sh --upgrade

clean:  ## remove what was built
	rm -rf .venv build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find src ext tests bench scripts -name '*.so' -delete -o -name __pycache__ -prune -exec rm -rf {} +
