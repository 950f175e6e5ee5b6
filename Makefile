# Every target makes the virtual environment it needs, with the versions pinned in constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-slow test-browser lint types format wheel exam exam-deciding exam-transfer exam-language ranker keeper train-tamiyo train-tamiyo-live clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: $(VENV)/.has-demo ## grow a network, train a controller, compare: 2.5 minutes on 2 cores
	rm -rf out/demo && mkdir -p out/demo
	@echo; echo "1/4  tamiyo-small, the controller that comes with this package, grows a network:"; echo
	$(BIN)/esper play --policy tamiyo-small --picture out/demo/grown.png
	@echo; echo "2/4  a controller of your own learns for 96 episodes (a few minutes):"; echo
	$(BIN)/esper train --preset quick --compare 0 --out out/demo/run
	@echo; echo "3/4  both, the heuristic and no growth on 5 held-out seeds and the test split:"; echo
	$(BIN)/esper exam --policy none heuristic out/demo/run tamiyo-small --reference tamiyo-small --seeds 5 --out out/demo/exam
	@echo; echo "4/4  12 tasks that nothing was trained on: keeper and tamiyo beside a constant that plants by the rent alone:"; echo
	$(BIN)/esper exam --task family:small-dev --tasks 12 --policy none constant keeper tamiyo --reference keeper --out out/demo/unseen
	@echo; echo "On any machine: tamiyo-small near 92 % with 3.8 times the parameters, the heuristic near 76 %, no growth near 25 %."
	@echo "Your own controller, out/demo/run, ends between 88 and 98 % with 4 to 14 times the parameters: so short a training"
	@echo "has not settled, and rounding, which depends on the processor, decides which network it finds."
	@echo "On 240 unseen tasks keeper is ahead of the constant by 0.6 points, 0.1 to 0.9 (docs/results.md); 12 tasks tell little."
	@echo "Look at: out/demo/grown.png  out/demo/run/summary.png  out/demo/exam/exam.html  out/demo/unseen/exam.html"

test: $(VENV)/.has-test ## what protects users: about 5 minutes on 2 cores
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(VENV)/.has-test ## soaks, repeats and whole grids: kills, lost workers, a thousand episodes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow tests

AS_ROOT := $(shell test "$$(id -u)" = 0 || echo sudo)
test-browser: $(VENV)/.has-test ## the page in a headless Chromium, which apt installs if it is missing
	command -v chromedriver >/dev/null || ($(AS_ROOT) apt-get update && $(AS_ROOT) apt-get install --yes chromium chromium-driver)
	$(BIN)/python -m pytest tests/dashboard/test_browser.py

lint: $(VENV)/.has-dev ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.has-dev $(VENV)/.has-test $(VENV)/.has-benchmark ## mypy, strict
	$(BIN)/mypy

format: $(VENV)/.has-dev ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.has-dev ## build a wheel, install it into a new environment, play an episode from it
	rm -rf dist build out/wheel
	$(BIN)/python -m build --wheel --outdir dist .
	$(PYTHON) -m venv out/wheel
	out/wheel/bin/pip install --quiet --constraint constraints.txt dist/*.whl
	cd out && wheel/bin/esper play --policy tamiyo-small

# The published tables, from the shipped weights. Goes on where it was stopped.
TAMIYO := tamiyo-small
exam: $(VENV)/.has-demo ## the published exams that need no download: about 27 minutes on 2 busy cores
	$(BIN)/esper exam --task digits-pointwise --out out/exam/digits-pointwise --policy none random heuristic search:300 \
	  $(TAMIYO) sampled:$(TAMIYO) scratch:$(TAMIYO) widened:$(TAMIYO)
	$(BIN)/esper exam --task digits --out out/exam/digits --policy none heuristic $(TAMIYO) scratch:$(TAMIYO)
	$(BIN)/esper exam --task spirals --out out/exam/spirals \
	  --policy none random heuristic $(TAMIYO) scratch:$(TAMIYO) widened:$(TAMIYO)

exam-deciding: $(VENV)/.has-demo out/tamiyo-0.pt out/tamiyo-1.pt ## the exams of deciding on unseen tasks: 50 minutes on 2 cores that were busy
	$(BIN)/esper exam --task family:small-exam --tasks 60 --survey surveys/small-exam.parquet --out out/exam/small-exam \
	  --policy $(DECIDERS) --reference keeper
	$(BIN)/esper exam --task family:far-exam --tasks 30 --survey surveys/far-exam.parquet --out out/exam/far-exam \
	  --policy $(DECIDERS) --reference keeper
	$(BIN)/esper exam --task family:small-exam --tasks 240 --out out/exam/small-exam-240 \
	  --policy none constant ranker keeper tamiyo --reference keeper
out/tamiyo-%.pt:
	$(MAKE) train-tamiyo SEED=$*
DECIDERS := none random heuristic constant:first:largest constant tamiyo-small ranker keeper tamiyo out/tamiyo-0.pt out/tamiyo-1.pt

ranker: $(VENV)/.has-demo ## fit the shipped ranker again: a minute
	$(BIN)/esper fit ranker surveys/small.parquet --out out/ranker.safetensors

DATA ?=
exam-transfer: $(VENV)/.has-demo $(VENV)/.has-data ## those on Fashion-MNIST and CIFAR-10, downloaded or DATA=directory: about 40 minutes
	$(BIN)/esper exam --task fashion-pointwise --out out/exam/fashion-pointwise --data-dir "$(DATA)" \
	  --policy none heuristic $(TAMIYO)
	$(BIN)/esper exam --task exams/cifar10-small.toml --out out/exam/cifar10-small --data-dir "$(DATA)" \
	  --policy none heuristic $(TAMIYO)

# Several of these may run at once, here and in other shells: they share the rows. The figure is of what has been played.
exam-language: $(VENV)/.has-demo ## bits of language models at equal FLOPs, and their figure: about 3 hours of a core, goes on where it was stopped
	$(BIN)/python benchmarks/language.py --budget 0.1 --seeds 20
	$(BIN)/python benchmarks/language.py --budget 0.05 0.1 0.2 0.4 --seeds 3 --arms none tamiyo heuristic \
	  depth:1 depth:2 depth:3 depth:4 depth:6 stack:1-2:0.2 stack:1-2-4:0.1-0.3 stack:2-4:0.25 stack:2-4:0.5
	$(BIN)/python benchmarks/language.py --table --figure docs/language.png

RECORDED := out/usual/small out/usual/wide
USUAL := --policy none constant:first:conv_heavy constant:first:depthwise --reward solo
keeper: $(VENV)/.has-demo ## record, and fit the shipped keeper again: 15 minutes on 2 cores
	$(BIN)/esper record $(USUAL) --task family:small --episodes 500 --out out/usual/small
	$(BIN)/esper record $(USUAL) --task family:wide --episodes 160 --out out/usual/wide
	$(BIN)/esper fit keeper $(RECORDED) --seed 2 --out out/keeper.safetensors

SEED ?= 2
train-tamiyo: $(VENV)/.has-demo ## train tamiyo again, with SEED=2, from the surveys: 5 minutes of a core
	$(BIN)/esper fit ranker $(LEARNED_FROM) --seed $(SEED) --out out/teacher-$(SEED).safetensors
	$(BIN)/python benchmarks/first_weights.py out/first-$(SEED).pt --seed $(SEED) --ranker ranker:out/teacher-$(SEED).safetensors \
	  --surveys $(LEARNED_FROM)
	$(BIN)/esper checkpoint export out/first-$(SEED).pt --out out/tamiyo-$(SEED).pt
LEARNED_FROM := surveys/small.parquet surveys/small-sampled.parquet surveys/wide-sampled.parquet

train-tamiyo-live: train-tamiyo ## and go on by PPO in live episodes, which added nothing that could be measured: 40 minutes of a core
	$(BIN)/esper train --config exams/tamiyo.toml --init out/first-$(SEED).pt --seed $(SEED) --out out/tamiyo-$(SEED)

clean: ## remove everything that targets made
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info

# One stamp per extra (demo, test, dev); a change of the pins installs again.
$(VENV)/.has-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing esper-growth[$*] into $(VENV) ..."
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@
