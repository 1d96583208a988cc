# What people type. Everything here is a short name for a command of tools/ or a CMake preset.
#   PYTHON=python3.12      the Python for .venv, or one that has the pinned torch already
#   UNISONO_TORCH_DIR=DIR  a LibTorch to build against
#   DEMO_ARGS=...          more arguments for the demo's program, as `--epochs 1`
#   FUZZ_SECONDS=20        how long each fuzz target runs
#   FUZZ_TARGETS=...       only these, as `idx hello`
#   TORCH=2.14.1           the torch that `make wheel-test` downloads
#   TEST_ARGS=...          more arguments for ctest, as `-R store`
#   JOBS=2                 how many commands at once
#   TEST_JOBS=3            how many tests at once
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
SHELL := /bin/bash

JOBS ?= $(shell nproc)
# Tests wait for a third of their time.
TEST_JOBS ?= $(shell echo $$(($(JOBS) + 1)))
PREFIX ?= /usr/local
DEMO_ARGS ?=
TEST_ARGS ?=
FUZZ_SECONDS ?= 20
FUZZ_TARGETS ?=
BIN := build/release/bin
CTEST := ctest --preset release --parallel $(TEST_JOBS)

define preset_tests
@cmake --preset $(1)
@cmake --build --preset $(1) --parallel $(JOBS)
@ctest --preset $(1) --parallel $(JOBS) -LE slow $(TEST_ARGS)
endef

.PHONY: help deps dev-deps test-deps bench-deps docs-deps build demo test test-all wheel wheel-test package bench docs lint \
        tidy format check-layers \
        asan tsan asan-torch tsan-torch clang fuzz install clean

help: ## List the targets
	@echo "Unisono: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | \
	  while IFS=$$'\t' read -r target what; do printf '  %-13s %s\n' "$$target" "$$what"; done
	@sed -n 's/^#   /  /p' $(firstword $(MAKEFILE_LIST))

deps: ## Install what the build needs: system packages, torch in .venv
	@tools/install_deps.sh

dev-deps: ## As deps, and what the checks need: clang, formatters, pre-commit
	@tools/install_deps.sh --dev

test-deps: ## As deps, and what the tests of the Python package need
	@tools/install_deps.sh --test

bench-deps: ## As deps, and what the benchmarks compare with: Open MPI, MPICH, iperf3
	@tools/install_deps.sh --bench

docs-deps: ## As deps, and what the documents need: Doxygen, MkDocs
	@tools/install_deps.sh --docs

# Configuring takes a second, so that it happens again only if another LibTorch may be asked for.
ifneq ($(UNISONO_TORCH_DIR)$(PYTHON),)
.PHONY: build/release/build.ninja
endif
build/release/build.ninja: | deps
	@cmake --preset release

build: deps build/release/build.ninja ## Build all: library, programs, examples, tests, benchmarks
	@cmake --build --preset release --parallel $(JOBS)

demo: deps build/release/build.ninja ## Train a convnet on Fashion-MNIST with two processes
	@cmake --build --preset release --parallel $(JOBS) --target unisono mnist
	@$(BIN)/unisono run -n 2 $(BIN)/mnist $(DEMO_ARGS)

test: test-deps build ## Build all and run the tests, but not the slow ones
	@$(CTEST) -LE slow $(TEST_ARGS)

test-all: test-deps build ## Build all and run every test
	@$(CTEST) $(TEST_ARGS)

# With the compiler and flags of the preset, so that ccache has what `make` has compiled.
wheel: test-deps ## Build the wheel, with the C++ libraries, into build/packages
	@CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$(CURDIR)" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
	  $(firstword $(wildcard .venv/bin/python3) $(PYTHON)) -m pip --disable-pip-version-check wheel \
	  --no-build-isolation --no-deps --no-index --wheel-dir build/packages \
	  --config-settings=cmake.define.CMAKE_CXX_COMPILER="$${CXX:-c++}" \
	  --config-settings=cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache \
	  --config-settings=cmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1 -DNDEBUG" \
	  --config-settings=cmake.define.UNISONO_WERROR=ON .

package: build ## Write a .deb and a tarball of the C++ libraries and programs into build/packages
	@cpack --config build/release/CPackConfig.cmake -B build/packages
	@rm -r build/packages/_CPack_Packages

wheel-test: ## Build the wheel against pip's torch of release TORCH, which it downloads; run the Python tests
	@JOBS=$(JOBS) tools/test_wheel.sh "$(TORCH)" $(TEST_ARGS)

bench: bench-deps test-deps build ## Measure collectives beside MPI and Gloo; steps, pipelines, checkpoints, loaders beside PyTorch's
	@cmake --preset release
	@cmake --build --preset release --target bench

docs: docs-deps ## Build the API reference and the guides as one site in build/docs, and check them
	@.venv/bin/python3 tools/build_docs.py

lint: dev-deps ## Check all sources: format, ruff, spelling, layers, text rules
	@tools/lint.sh --all

tidy: dev-deps ## Run clang-tidy on the core
	@git ls-files '*.cpp' | xargs tools/lint.sh clang-tidy

format: dev-deps ## Format all sources
	@tools/lint.sh --fix

check-layers: ## Check that each floor includes only what stands below it
	@tools/check_layers.py

asan: deps ## Run the core's tests under AddressSanitizer and UBSan
	$(call preset_tests,$@)

tsan: deps ## Run the core's tests under ThreadSanitizer
	$(call preset_tests,$@)

asan-torch: deps ## Run the tests of torch/ under AddressSanitizer and UBSan
	$(call preset_tests,$@)

tsan-torch: deps ## Run the tests of torch/ under ThreadSanitizer
	$(call preset_tests,$@)

clang: dev-deps ## Build the core with clang and its thread safety analysis
	@cmake --preset clang
	@cmake --build --preset clang --parallel $(JOBS)

fuzz: dev-deps ## Run the fuzz targets on their corpus, then for FUZZ_SECONDS each
	$(call preset_tests,$@)
	@tools/fuzz.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

install: build ## Install to PREFIX
	@cmake --install build/release --prefix "$(PREFIX)"

clean: ## Remove what was built; .venv stays
	@rm -rf build
