# warmroute: every way to build, run and check it. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# A real Envoy: the one that `make setup` puts into .envoy/, or the one that ENVOY= names.
ENVOY ?= $(CURDIR)/.envoy/envoy
export ENVOY
# rustup | debian | auto: which Rust links the plugin (see make/setup.sh).
WASM_TOOLCHAIN ?= auto
export WASM_TOOLCHAIN

LAB := cargo run --quiet --profile native -p warmroute-lab --
HARNESS := cargo run --quiet --profile native -p warmroute-harness

.PHONY: help setup build run serve test check fmt bench replay e2e oci clean

help: ## List every target
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Find or install what is needed: a wasm32 Rust, a real Envoy, stores for tests
	@make/setup.sh

build: setup ## Build dist/warmroute-envoy.wasm and dist/warmroute-higress.wasm, and what the bench measures apart
	@make/build.sh

run: build ## Compare round robin, least request and warmroute on a real Envoy (ENGINES= TRACE= SPEED=)
	@$(LAB) run

serve: build ## Leave the same gateway up for curl, until Ctrl-C (ENGINES=)
	@$(LAB) serve

test: build ## Run all tests: core, built plugin in wasmtime, real Envoy
	@echo "test: the whole workspace, a real Envoy among it"
	@cargo test --workspace

e2e: build ## Run only the tests on a real Envoy
	@echo "e2e: the tests on a real Envoy"
	@cargo test -p warmroute-lab

check: build ## Format, lints, generated files, then all tests
	@make/check.sh
	@$(MAKE) test

fmt: ## Format all sources
	@cargo fmt --all

bench: build ## Measure a decision and its parts in wasm instructions and native time (UPDATE= MEMORY=)
	@$(HARNESS) --bin bench

replay: build ## Replay a trace through simulated workers and endpoints
	@$(HARNESS) --bin replay

oci: build ## Pack the Higress plugin as an OCI image: dist/warmroute-higress.oci.tar
	@make/oci.sh

clean: ## Remove what was built (target/, dist/) and the Envoy inside the tree
	rm -rf target dist .envoy
