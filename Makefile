# Everything starts here. Needs make and Python 3.11 or newer; `make` alone lists the targets.
# Paths are relative on purpose: make cannot quote a prerequisite, and a checkout may lie under a path with spaces.

PYTHON ?= python3
SHELL := /bin/sh
RUN := .venv/bin/python
# How many processes run the tests, and whether system packages, Node packages and agents' toolkits may be installed for them.
JOBS ?= 3
SYSTEM ?= yes
# Added to pytest's arguments: make test ARGS="-k lease"
ARGS ?=
# What stands behind pgbouncer: embedded, or the number of one of the distribution's PostgreSQL: make test-pgbouncer ENGINE=15
ENGINE ?= embedded

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test test-pg15 test-pgbouncer failover chaos effects check bench bench-peers derive format lock clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

# Runs each time and returns at once when the stamp in .venv matches the lock files.
setup: ## make .venv and install the lock files into it
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { echo 'set-up: "$(PYTHON)" was not found; install Python 3.11 or newer, or name one: make PYTHON=python3.12' >&2; exit 1; }
	@"$(PYTHON)" tools/set_up.py

demo: setup ## run the support desk from request to receipt and check what was seen
	@AI_ACTIONS_ENABLED=true $(RUN) -m examples.support_desk.demo

serve: setup ## run the support desk with its neighbours until stopped
	@AI_ACTIONS_ENABLED=true $(RUN) -m examples.support_desk.demo --stay

test: setup ## run the tests
	@if [ "$(SYSTEM)" = yes ]; then $(RUN) -m tools.system; $(RUN) -m tools.node; $(RUN) -m tools.agents; fi
	@$(RUN) -m pytest -n $(JOBS) $(ARGS)

test-pg15: setup ## run the tests on a private cluster of Debian's PostgreSQL 15
	@$(RUN) -m tools.servers 15 -n $(JOBS) $(ARGS)

test-pgbouncer: setup ## run the tests through pgbouncer in transaction mode
	@$(RUN) -m tools.servers $(ENGINE) --pgbouncer -n $(JOBS) $(ARGS)

failover: setup ## kill the leader of a Patroni cluster under load, and check that nothing is lost or doubled
	@$(RUN) -m tools.failover $(ARGS)

chaos: setup ## kill, freeze, restart and cut at random for ten minutes, and check that nothing is lost or doubled
	@$(RUN) -m tools.chaos $(ARGS)

effects: setup ## send ten thousand effects to providers that break, and count what they did
	@$(RUN) -m tools.effects $(ARGS)

check: setup ## lint, types, layers, sizes, derived files, and what no file may hold
	@$(RUN) -m tools.check

bench: setup ## measure, beside the peers that are set up, and print the table
	@$(RUN) -m bench.run $(ARGS)

bench-peers: setup ## install the libraries that the bench compares with, each in an environment of its own
	@$(RUN) -m bench.peers.set_up

derive: setup ## rewrite what is derived from the model, the settings and the guarantees
	@$(RUN) -m tools.derive

format: setup ## let ruff format and fix
	@$(RUN) -m ruff format .
	@$(RUN) -m ruff check --fix .

lock: setup ## resolve pyproject.toml again, without index addresses in the result
	@$(RUN) -m tools.lock $(ARGS)

clean: ## remove .venv, caches and build products, but no state (.deedbox)
	@rm -rf .venv .make build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache src/deedbox.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
