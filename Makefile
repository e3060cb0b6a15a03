# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench

.PHONY: demo test lint bench bench-bayes bench-peers clean

demo: $(VENV)/ready
	$(BIN)/noisewise demo --out demo
	@echo "Look at demo/noisewise-demo.html"

test: demo lint
	$(BIN)/python -m pytest

lint: $(VENV)/ready
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy

bench: $(BENCH)/ready
	$(BENCH)/bin/python bench/run.py --json bench/results/speed.json

bench-bayes: $(BENCH)/ready
	$(BENCH)/bin/python bench/bayes.py --json bench/results/bayes.json $(if $(DATA),--data $(DATA))

bench-peers: $(BENCH)/ready
	@test -n "$(ML1M)" -a -n "$(ML100K)" || { echo "Say where the ratings are: make bench-peers ML1M=ml1m.npz ML100K=ml100k.npz"; exit 2; }
	$(BENCH)/bin/python bench/peers.py small $(ML100K) --json bench/results/peers-ml100k.json
	$(BENCH)/bin/python bench/peers.py accuracy $(ML1M) --json bench/results/peers-ml1m.json

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "noisewise needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(BENCH)/ready: pyproject.toml constraints.txt bench/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --constraint constraints.txt --requirement bench/requirements.txt --editable .
	touch $@

clean:
	rm -rf $(VENV) $(BENCH) demo
