# Every target makes the virtual environment it needs, with the versions pinned in constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types format clean

demo: $(VENV)/.has-demo
	rm -rf out/demo
	$(BIN)/esper train --preset quick --out out/demo

test: $(VENV)/.has-test
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.has-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.has-dev $(VENV)/.has-test $(VENV)/.has-benchmark
	$(BIN)/mypy

format: $(VENV)/.has-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info

# One stamp per extra (demo, test, dev); a change of the pins installs again.
$(VENV)/.has-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing esper-growth[$*] into $(VENV) ..."
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@
