# Everything a newcomer needs: `make run` and `make test` do all their own set-up, inside .venv, once.
#
# Two words to add when a part comes to need more:
#   EXTRAS  extras of pyproject.toml that the tests need        (dev, pipeline, web, mqtt, otel, nats)
#   SYSTEM  parts of src/sievenet/programs.txt that the tests need (java, openvswitch, tls, browser, prometheus, mqtt, systemd, compiler)

EXTRAS := dev pipeline web mqtt otel nats
SYSTEM := java openvswitch tls browser prometheus mqtt systemd compiler

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?=
comma  := ,
empty  :=
space  := $(empty) $(empty)
# A stamp says what is installed by its name and for which pyproject.toml by its time.
CORE   := $(VENV)/.installed-core
WEB    := $(VENV)/.installed-web
TESTED := $(VENV)/.installed-$(subst $(space),-,$(strip $(EXTRAS)))
# What is imported is compiled then; most of what is installed never is.
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --no-compile -qq
# Processes that tests start would otherwise compile all they import, each for itself.
export PYTHONDONTWRITEBYTECODE :=
# Tests in two processes more than there are cores: half of their time is waiting. PYTEST_ARGS='-k codec' narrows them.
JOBS   ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
PYTEST_ARGS ?=
RUN_ARGS ?=
# make soak FOR=1h ends by itself; SEED=… repeats the rounds of another soak.
FOR    ?=
SEED   ?=

.DEFAULT_GOAL := help
.PHONY: help run test check soak lint types kernels packages tests format bench docs-check clean

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
	  printf '  make %-11s %s\n' "$$name" "$$text"; done

run: $(WEB)  ## a fabric with a sample market and its page, until Ctrl-C; RUN_ARGS='--for 10s' ends it
	@$(BIN)/sievenet up --sample stock --web $(RUN_ARGS)

test: lint  ## lint, types, tests and coverage: what CI runs
	@# Types beside the tests, which wait a part of their time for processes, sockets and Java. Before them, packages are
	@# installed while kernels are compiled.
	@$(MAKE) --no-print-directory -j3 -k types tests

check: lint  ## two minutes, for daily work: lint and the fast tests (no Spark, no Open vSwitch, nothing slow)
	@$(BIN)/python -m pytest -n $(JOBS) --dist=worksteal -q -m 'not slow and not spark and not ovs' $(PYTEST_ARGS)

soak: $(TESTED) kernels packages  ## properties and simulations with fresh seeds until Ctrl-C, or FOR=1h; SEED=… repeats
	@$(BIN)/python -m tests.soak --jobs $(JOBS) $(if $(FOR),--for $(FOR)) $(if $(SEED),--seed $(SEED)) -- $(PYTEST_ARGS)

lint: $(TESTED)  ## style and likely mistakes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { \
	  echo 'these files are not formatted: make format' >&2; $(BIN)/ruff format --check . >&2; exit 1; }

types: $(TESTED)  ## strict type checks
	@nice $(BIN)/mypy

kernels: $(TESTED)  ## compile what numba compiles once, not in every test process
	@$(BIN)/python -m tests.kernels

packages:  ## what tests need of the system, as Java: installed where that may be, else told
	@scripts/system-packages $(SYSTEM)

tests: kernels packages  ## tests alone, with coverage
	@# The report apart: pytest-cov would count all lines twice.
	@$(BIN)/python -m pytest -n $(JOBS) --dist=worksteal --cov --cov-report= --cov-fail-under=0 --durations=25 --durations-min=10 --cache-clear $(PYTEST_ARGS) \
	  && $(BIN)/python -m coverage report || $(BIN)/python -m tests.again $$?

docs-check: $(TESTED)  ## run every example of README, docs and command help
	@$(BIN)/python -m pytest -q tests/test_docs.py

bench: $(TESTED)  ## list the benchmarks, or run one: make bench NAME=encode
	@$(BIN)/python -m benchmarks $(NAME)

format: $(TESTED)  ## bring all code into shape
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

clean:  ## remove .venv and everything that tools left behind
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov build dist plots
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if command -v $$python >/dev/null && $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	    echo "making $(VENV) with $$($$python --version)"; \
	    $$python -m venv $(VENV) && { $(PIP) 'pip>=25' 2>/dev/null || true; } && exit 0; \
	    rm -rf $(VENV); echo "$$python cannot make a venv; on Debian install python3-venv" >&2; exit 1; \
	  fi; \
	done; \
	echo "Sievenet needs Python 3.11 or newer; python3 here is $$(python3 --version 2>&1). Name another: make PYTHON=/path/to/python" >&2; \
	exit 1

$(CORE): pyproject.toml | $(BIN)/python
	@echo 'installing sievenet into $(VENV)'
	@$(PIP) -e .
	@touch $@

$(WEB): pyproject.toml | $(BIN)/python
	@echo 'installing sievenet[web] into $(VENV)'
	@$(PIP) -e '.[web]'
	@touch $@ $(CORE)

$(TESTED): pyproject.toml | $(BIN)/python
	@echo 'installing sievenet[$(subst $(space),$(comma),$(strip $(EXTRAS)))] into $(VENV)'
	@$(PIP) -e '.[$(subst $(space),$(comma),$(strip $(EXTRAS)))]'
	@touch $@ $(CORE) $(if $(filter web,$(EXTRAS)),$(WEB))
