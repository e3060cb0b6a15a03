# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
RELEASE := .venv-release

N := 20000
# Two processes, each with half of the tests; who is done takes from the other.
PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo docs test test-portable lint package types fuzz bench bench-bayes bench-peers bench-imputation clean

demo: $(VENV)/ready
	$(BIN)/noisewise demo --out demo
	@echo "Look at demo/noisewise-demo.html"

test: $(VENV)/ready
	$(MAKE) --jobs=2 demo lint
	$(PYTEST)

# Other machines on this one. First all tests with numpy, the C library and BLAS kept to what old
# CPUs have (x86, glibc and OpenBLAS know these words, others pass them over); then the engine and
# the models with kernels for any CPU, and with loops in place of vectors.
DISPATCHED = $(BIN)/python -c 'from numpy._core._multiarray_umath import __cpu_dispatch__ as d, __cpu_features__ as has; print(*(f for f in d if has[f]))'
OLD_CPU = NPY_DISABLE_CPU_FEATURES="$$($(DISPATCHED))" OPENBLAS_CORETYPE=Nehalem GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA
ANY_CPU = NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=$(CURDIR)/.numba-portable
COMPILED = $(addprefix tests/test_,$(addsuffix .py,bayesian calibration changing choosing contract determinism deviation engine geweke geweke_series gibbs honest interpolation newcomers paths residual sensor_models series smoother temporal tensor training vectors)) $(addprefix reproduction/tests/test_,$(addsuffix .py,autorec drmf linear llorma rbm rbmf rcf rivals rivals_changing rivals_newcomers rivals_tables sensor_rivals spatial table_imputers tucker)) src/noisewise/engine src/noisewise/models reproduction/src/noisewise_reproduction/rivals

test-portable: $(VENV)/ready
	$(OLD_CPU) $(PYTEST)
	$(ANY_CPU) $(PYTEST) $(COMPILED)
	NOISEWISE_VECTORS=narrow $(PYTEST) tests/test_engine.py tests/test_tensor.py tests/test_deviation.py

lint: $(VENV)/ready
	$(BIN)/ruff check src reproduction tests bench fuzz examples conftest.py
	$(BIN)/ruff format --check src reproduction tests bench fuzz examples conftest.py
	$(BIN)/mypy

# The site, in docs/_build/html. A warning is an error, and so is a dead link inside; nothing is fetched but packages.
docs: $(VENV)/docs
	$(BIN)/python -m sphinx -W -n --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/links.py docs/_build/html
	@echo "Look at docs/_build/html/index.html"

# Wheel and sdist in dist/, checked; the wheel is tried in an empty environment of every Python that
# is found: python3.11 to python3.14, or PYTHONS="python3.12 /opt/python3.14/bin/python".
package: $(RELEASE)/ready
	$(RELEASE)/bin/cffconvert --validate
	$(RELEASE)/bin/python bench/package.py --pythons "$(PYTHONS)" --json bench/results/package.json

# The share of public names whose types are known to those who use them.
types: $(RELEASE)/ready $(VENV)/ready
	$(RELEASE)/bin/python bench/types_complete.py --json bench/results/types.json

# Hostile files, as many as N says; findings go to fuzz/corpus, which the tests replay.
fuzz: $(VENV)/ready
	$(BIN)/python -m fuzz.run --n $(N) --json fuzz/results.json

bench: $(BENCH)/ready
	$(BENCH)/bin/python bench/run.py --json bench/results/speed.json

bench-bayes: $(BENCH)/ready
	$(BENCH)/bin/python bench/bayes.py --json bench/results/bayes.json $(if $(DATA),--data $(DATA))

bench-peers: $(BENCH)/ready
	@test -n "$(ML1M)" -a -n "$(ML100K)" || { echo "Say where the ratings are: make bench-peers ML1M=ml1m.npz ML100K=ml100k.npz"; exit 2; }
	$(BENCH)/bin/python bench/peers.py small $(ML100K) --json bench/results/peers-ml100k.json
	$(BENCH)/bin/python bench/peers.py accuracy $(ML1M) --json bench/results/peers-ml1m.json

bench-imputation: $(VENV)/ready
	@test -n "$(DATA)" || { echo "Say where the datasets are: make bench-imputation DATA=folder"; exit 2; }
	$(BIN)/python bench/imputation.py --data $(DATA) --out bench/results/imputation.json --methods noisewise-auto
	$(BIN)/python bench/imputation_speed.py --json bench/results/imputation_speed.json

$(VENV)/ready: pyproject.toml reproduction/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "noisewise needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable './reproduction[neural]'
	touch $@

$(VENV)/docs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

$(BENCH)/ready: pyproject.toml constraints.txt bench/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --constraint constraints.txt --requirement bench/requirements.txt --editable .
	touch $@

$(RELEASE)/ready: bench/requirements-release.txt pyproject.toml
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --requirement bench/requirements-release.txt
	touch $@

clean:
	rm -rf $(VENV) $(BENCH) $(RELEASE) dist .numba-portable demo docs/_build docs/auto_examples docs/reference/api
