# Needs git, make and Python 3.10-3.13 with its venv module. `make` lists the targets.
BIN := .venv/bin
SETUP := sh scripts/setup_env.sh

.NOTPARALLEL:
.PHONY: help run test lint format mutants soak stores bench wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

run: ## install, then run the main job; ARGS="--tokens 8k,32k" adds options
	@$(SETUP)
	@$(BIN)/hicache-bench run --preset deepseek $(ARGS)

test: ## install everything, then run all tests, the real store's too; ARGS="-k gate" selects
	@$(SETUP) mooncake test
	@sh scripts/install_mooncake_libraries.sh
	@sh scripts/install_prometheus.sh
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 $(ARGS)

lint: ## linters, types and import contracts
	@$(SETUP) dev mooncake
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: ## format and fix what can be fixed without a thought
	@$(SETUP) dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

mutants: ## break the project one line at a time, roundtrip must notice each; ARGS="--only resolve"
	@$(SETUP) test
	@$(BIN)/python -m tests.mutation.run $(ARGS)

soak: ## random requests and faults for ten minutes; ARGS="--soak 1h --seed 7" changes that
	@$(SETUP)
	@$(BIN)/hicache-bench roundtrip --soak 10m $(ARGS)

stores: ## local and Mooncake stores under the same 100,000 random operations; ARGS="--seed 7"
	@$(SETUP) mooncake test
	@$(BIN)/python -m tests.store.differential $(ARGS)

bench: ## measure what this tool adds to a store, side by side; ARGS="delivery lookup" selects
	@$(SETUP) mooncake
	@$(BIN)/python -m benchmarks $(ARGS)

wheel: ## build dist/*.whl
	@$(SETUP)
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean: ## remove what these targets made
	@rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
