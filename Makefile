# Everything happens in .venv, which each target makes and fills when needed. Nothing but Python 3.11 or
# later and make (3.81 is enough) has to be there; pip's own settings decide where packages come from.
#
#   make demo FILE=photo.jpg
#   make unit PYTEST_ADDOPTS='-k bloom -x'
#   make test PYTHON=python3.12 VENV=.venv-3.12     another Python, beside the first

PYTHON ?= python3
VENV := .venv
comma := ,
PY := $(VENV)/bin/python
PIP := $(PY) -m pip -qq --no-input --disable-pip-version-check

# What the tests need beyond the package. `spark` is a download of 450 MB and needs Java 17 or later: it joins
# this list where Java is found or RELIABLE_CHANNEL_REQUIRE_ALL=1 asks for it; elsewhere its tests skip.
java_found := $(shell { test "$$RELIABLE_CHANNEL_REQUIRE_ALL" = 1 || "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version; } >/dev/null 2>&1 && echo yes)
TEST_EXTRAS := dev,fast,postgres$(if $(java_found),$(comma)spark)

# The published JavaScript implementation of SDS, which tests/interop talks to. Without Node.js and npm, or when
# the packages cannot be had, everything else goes on, and those tests skip.
JS := tests/interop/js
JS_PEER := $(JS)/node_modules/.installed

.DEFAULT_GOAL := help
# What meets the core: its own tests, laws, whole groups, other implementations, real processes and stores.
COMPILED_TESTS := $(addprefix tests/,unit/reliable_channel unit/api property simulation interop fuzz integration)

.PHONY: help demo test style types architecture unit property sim torture interop integration browser fuzz coverage bench \
    compiled interpreted test-compiled wheel clean

help: ## show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed ## send a file (FILE=, default: a large one of Python's own) through a lossy network
	@$(VENV)/bin/reliable-channel demo $${FILE:+"$$FILE"}

test: style types $(JS_PEER) ## install what the tests need, then check style and types and run all tests
	$(PY) -m pytest

style: $(VENV)/.installed-tests ## ruff: lint and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.installed-tests ## mypy, strict
	$(PY) -m mypy

architecture: $(VENV)/.installed-tests ## import directions, house rules, the wheel
	$(PY) -m pytest tests/architecture

unit: $(VENV)/.installed-tests ## one test file for each module
	$(PY) -m pytest tests/unit

property: $(VENV)/.installed-tests ## what holds for every input (Hypothesis)
	$(PY) -m pytest tests/property

sim: $(VENV)/.installed-tests ## whole groups in virtual time on a lossy network
	$(PY) -m pytest tests/simulation

torture: $(VENV)/.installed-tests ## crashes at every step, many seeds, all cores (SEEDS=, default 20000)
	$(PY) -m benchmarks.simulation.torture $(if $(SEEDS),--seeds $(SEEDS))

interop: $(VENV)/.installed-tests $(JS_PEER) ## bytes of and for other implementations, and talks with one
	$(PY) -m pytest tests/interop

integration: $(VENV)/.installed-tests ## real files, processes, event loops
	$(PY) -m pytest tests/integration

browser: $(VENV)/.installed-tests ## the live page in a real browser, where there is one
	$(PY) -m pytest tests/browser

fuzz: $(VENV)/.installed-tests ## coverage-guided fuzzing, Linux (FUZZ_SECONDS=, default 60 for each target)
	$(PIP) install --editable ".[fuzz]"
	$(PY) -m tests.fuzz.fuzz_decode -max_total_time=$(or $(FUZZ_SECONDS),60)
	$(PY) -m tests.fuzz.fuzz_receive -max_total_time=$(or $(FUZZ_SECONDS),60)

coverage: $(VENV)/.installed-tests ## all tests but the slow ones, with branch coverage
	$(PY) -m coverage run -m pytest -m "not slow"
	$(PY) -m coverage report

bench: $(VENV)/.installed-tests ## speed beside peers: what takes seconds (BENCH="peer growth --json a.json": more)
	@$(PIP) install --only-binary zfec --editable ".[bench]" || echo "note: no wheel of zfec here; the comparison with it is left out"
	$(PY) -m benchmarks $(BENCH)

compiled: $(VENV)/.installed-tests ## the core as C extensions beside its sources, 1.7 times as fast, and a wheel with them in dist/
	@echo "Compiling the protocol core, about a minute ..."
	@HATCH_BUILD_HOOK_ENABLE_MYPYC=1 $(PY) -m hatchling build --target wheel --directory dist

interpreted: ## remove the C extensions: the sources run again
	rm -f reliable_channel_core__mypyc.*
	find reliable_channel/core \( -name '*.so' -o -name '*.pyd' \) -delete

test-compiled: $(VENV)/.installed-tests $(JS_PEER) ## the tests of the library with a compiled core; the sources run again afterwards
	@trap '$(MAKE) --no-print-directory interpreted' EXIT; $(MAKE) --no-print-directory compiled \
	    && RELIABLE_CHANNEL_TEST_COMPILED=1 $(PY) -m pytest $(COMPILED_TESTS)

wheel: $(VENV)/.installed-tests ## source distribution and wheel, in dist/
	$(PY) -m build --no-isolation

clean: interpreted ## remove everything that make made, .venv included
	rm -rf $(VENV) build dist htmlcov .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf $(JS)/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- The environment -----------------------------------------------------------------------------
# Installed in place, so that source changes count at once; again only when what is installed changes.

# "ok", the version that is too old, or nothing when there is no such program.
python_found = $(shell "$(PYTHON)" -c 'import sys; print("ok" if sys.version_info >= (3, 11) else "%d.%d" % sys.version_info[:2])' 2>/dev/null)
python_is = $(if $(1),is $(1),does not run)
require_python = $(if $(filter ok,$(1)),,$(error Python 3.11 or later is needed, but '$(PYTHON)' $(call python_is,$(1)); name another one: make PYTHON=python3.12))

$(PY):
	$(call require_python,$(python_found))
	@echo "Making $(VENV) ..."
	@"$(PYTHON)" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: $(PY) pyproject.toml reliable_channel/_version.py
	@echo "Installing the package into $(VENV) ..."
	@$(PIP) install --editable .
	@touch $@

# Its name has the extras, so that they are installed when Java has come.
EXTRAS_STAMP := $(VENV)/.extras-$(subst $(comma),-,$(TEST_EXTRAS))
$(EXTRAS_STAMP): $(PY)
	@rm -f $(VENV)/.extras-*
	@touch $@

$(VENV)/.installed-tests: $(PY) $(EXTRAS_STAMP) pyproject.toml reliable_channel/_version.py Makefile
	@echo "Installing the package and what its tests need into $(VENV) ..."
	@$(PIP) install --editable ".[$(TEST_EXTRAS)]"
	@touch $@ $(VENV)/.installed

$(JS_PEER): $(JS)/package.json $(JS)/package-lock.json $(JS)/.npmrc
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	    echo "note: no Node.js or no npm; the tests that talk to the JavaScript implementation skip"; \
	elif echo "Installing the JavaScript implementation into $(JS) ..." \
	    && (cd $(JS) && npm ci --silent >/dev/null 2>&1); then touch $@; \
	else echo "note: npm ci failed in $(JS); the tests that talk to the JavaScript implementation skip"; fi
