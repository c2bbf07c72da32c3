# Everything runs in .venv, which the first target makes; nothing else has to be set up.
# Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Small matrices everywhere: threads inside a process only fight with the processes beside it.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1
# Compiled files are kept, whatever the caller says: tests start hundreds of processes that read the same modules.
PYTEST     := PYTHONDONTWRITEBYTECODE= $(ONE_THREAD) MPLBACKEND=Agg $(BIN)/python -m pytest -n auto --maxprocesses=8 --dist worksteal
LINTED     := src tests examples benchmarks docs fuzz hatch_build.py

# Lint with types and the documentation take one core each.
MAKEFLAGS += --jobs=2

.DEFAULT_GOAL := help
.PHONY: help install tour test check format slow docs bench marks fuzz wheel clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

install: $(STAMP)  ## make .venv and install the package into it (the other targets do so themselves)

tour: $(STAMP)  ## train a small network, ask it every question, write a page with pictures
	$(BIN)/fiberscope tour

test: check docs  ## lint, types, the documentation, tests, doctests, the docs' code and the examples
	$(PYTEST) -m "not slow"

check: $(STAMP)  ## lint, format and types only
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/mypy

format: $(STAMP)  ## let ruff mend what it can
	$(BIN)/ruff check --fix $(LINTED)
	$(BIN)/ruff format $(LINTED)

slow: $(STAMP)  ## the long tests, which `make test` leaves out
	$(PYTEST) -m slow || [ $$? -eq 5 ]  # 5: there are none yet

docs: $(STAMP)  ## build the documentation into docs/_build/html; a warning is an error
	$(ONE_THREAD) MPLBACKEND=Agg $(BIN)/python -m sphinx -W --keep-going -q -j auto -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

bench: $(STAMP)  ## the core rows against references and peers, kept in benchmarks/results: PEER=relucent
	$(BIN)/python benchmarks/run.py --json benchmarks/results/core.json $(if $(PEER),--peer $(PEER))

MARKS ?= work/marks
marks: $(STAMP)  ## the marks of single questions, hours in all; pairs and data from FIBERSCOPE_SHARED
	mkdir -p $(MARKS)
	$(ONE_THREAD) $(BIN)/python benchmarks/dimension_marks.py
	$(ONE_THREAD) $(BIN)/python benchmarks/count_marks.py
	$(ONE_THREAD) $(BIN)/python benchmarks/recovery_marks.py 10-15-15-1 --seeds 100
	$(ONE_THREAD) $(BIN)/python benchmarks/bench_connectivity.py
	$(ONE_THREAD) $(BIN)/python benchmarks/pair_marks.py
	$(ONE_THREAD) $(BIN)/python benchmarks/equality_marks.py --json $(MARKS)/equality.json
	$(ONE_THREAD) $(BIN)/python benchmarks/text_marks.py --folder $(MARKS)/text
	$(ONE_THREAD) $(BIN)/python benchmarks/repair_marks.py --folder $(MARKS)/repair
	$(ONE_THREAD) $(BIN)/python benchmarks/checkpoint_marks.py --folder $(MARKS)

SECONDS ?= 600
fuzz: $(STAMP)  ## compare with exact answers on random cases: SECONDS=600 AREA=planar,equality SEED=1 CASES=100 JSON=file
	$(ONE_THREAD) MPLBACKEND=Agg $(BIN)/python -m fuzz --seconds $(SECONDS) $(if $(AREA),--area $(AREA)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(CASES),--cases $(CASES)) $(if $(JSON),--json $(JSON))

# Newer versions of pip take constraints of a build by a variable of their own.
wheel:  ## build dist/*.whl: Python alone, or COMPILED=1 with compiled loops, for this interpreter and machine
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(if $(COMPILED),HATCH_BUILD_HOOK_ENABLE_CUSTOM=1) \
	  $(PYTHON) -m pip wheel --no-deps --wheel-dir dist .

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) build dist docs/_build docs/generated docs/*/generated fiberscope-tour
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find src tests examples benchmarks docs fuzz -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is removed first and written last: an interrupted installation is taken up again.
# A .venv without a working pip (interrupted earlier still) is made anew.
$(STAMP): pyproject.toml constraints.txt
	@rm -f $@
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fiberscope needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1)." \
	       "Try: make PYTHON=python3.12 <target>" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "could not make $(VENV): is the venv module installed (Debian: apt install python3-venv)?" >&2; exit 1; }
	@echo "installing into $(VENV) (once; a minute or two)"
	$(BIN)/python -m pip install -qq -c constraints.txt -e ".[dev]"
	@touch $@
