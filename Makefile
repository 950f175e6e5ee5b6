# Every target makes the virtual environment it needs, with the versions pinned in constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test exam exam-transfer train-tamiyo lint types format clean

demo: $(VENV)/.has-demo
	rm -rf out/demo
	$(BIN)/esper train --preset quick --out out/demo
	$(BIN)/esper play --policy tamiyo-small --picture out/demo/grown.png

# The published tables, from the shipped weights: about 27 minutes on 2 busy cores. Goes on where it was stopped.
TAMIYO := tamiyo-small
exam: $(VENV)/.has-demo
	$(BIN)/esper exam --task digits-pointwise --out out/exam/digits-pointwise --policy none random heuristic search:300 \
	  $(TAMIYO) sampled:$(TAMIYO) scratch:$(TAMIYO) widened:$(TAMIYO)
	$(BIN)/esper exam --task digits --out out/exam/digits --policy none heuristic $(TAMIYO) scratch:$(TAMIYO)
	$(BIN)/esper exam --task spirals --out out/exam/spirals \
	  --policy none random heuristic $(TAMIYO) scratch:$(TAMIYO) widened:$(TAMIYO)

# Needs Fashion-MNIST and CIFAR-10: downloaded, or DATA=directory. About 40 minutes on 2 cores.
DATA ?=
exam-transfer: $(VENV)/.has-demo $(VENV)/.has-data
	$(BIN)/esper exam --task fashion-pointwise --out out/exam/fashion-pointwise --data-dir "$(DATA)" \
	  --policy none heuristic $(TAMIYO)
	$(BIN)/esper exam --task exams/cifar10-small.toml --out out/exam/cifar10-small --data-dir "$(DATA)" \
	  --policy none heuristic $(TAMIYO)

train-tamiyo: $(VENV)/.has-demo
	$(BIN)/esper train --config exams/tamiyo-small.toml --out out/tamiyo-small

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
