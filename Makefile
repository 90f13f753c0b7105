# `make demo` on a fresh Debian 12 or 13, as root, is all a newcomer needs. Everything else is one command too.
BIN := .venv/bin
CONFORMANCE ?= ../shared/conformance
JOBS ?= 3
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup up demo check format test chaos conformance contract fuzz generated bench bench-placement lock clean

help:  ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

setup:  ## install everything (Debian packages as root, .venv, Keystone and Glance); a second call takes no time
	@sh tools/setup

up: setup  ## start the cloud in the foreground; Ctrl-C stops it
	@exec $(BIN)/moorage up $(ARGS)

demo: setup  ## start the cloud, build the lab, boot servers; KEEP=0 tears all down at the end
	@sh tools/demo.sh $(ARGS)

check: setup  ## rules, format, types, arrows between packages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## put the code into form
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

test: setup  ## every test that this machine can run, JOBS=3 files at a time; ARGS="-k name" for some
	$(BIN)/pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

conformance: setup  ## Placement's own tests and osc-placement's, by their runners in CONFORMANCE=../shared/conformance
	@PYTHONPATH=. $(BIN)/python -m tests.placement.conformance --suites $(CONFORMANCE) $(ARGS)

contract: setup  ## Nova's own schemas held against our compute API, by its checker in CONFORMANCE=../shared/conformance
	@PYTHONPATH=. $(BIN)/python -m tests.contract.run --suites $(CONFORMANCE) $(ARGS)

fuzz: setup  ## requests that no client should send, to every endpoint by several callers; EXAMPLES=n an operation
	$(BIN)/pytest -q tests/fuzz --fuzz-examples $(or $(EXAMPLES),100) $(ARGS)

generated: setup  ## write the committed files that follow from the code: who may do what, the OpenAPI documents
	$(BIN)/pytest -q tests/api/test_authorisation.py tests/api/test_openapi.py --write

chaos: setup  ## a cloud under random faults: MINUTES=10 SEED=n ARGS="--real no"
	@PYTHONPATH=.:src $(BIN)/python -m tests.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: setup  ## measure, assert nothing
	@PYTHONPATH=. $(BIN)/python -m bench $(ARGS)

bench-placement: setup  ## measure the Placement API at 100 to 100,000 hosts; ARGS="--hosts 1000 --openstack VENV"
	@PYTHONPATH=. $(BIN)/python -m bench.placement $(ARGS)

released: setup  ## note the operations of this release, before it is made
	$(BIN)/python -m moorage.compute.operations.released

lock: setup  ## resolve the locks again; ARGS=--upgrade for newer releases
	@UV=$(BIN)/uv sh tools/lock $(ARGS)

clean:  ## remove what was made here; the shared environment of the services and state folders stay
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -exec rm -rf {} +
