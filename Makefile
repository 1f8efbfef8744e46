# One verb each, no arguments needed. `make` alone lists them.
# Settings: SEEDS= (sim: 100; test: 16) and SEED= (sim), PARTS= and SEED= (prove), DEMO= (directory of the demo), NET=1 (demo on machines).

SHELL   := /bin/bash
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
SERVER  := $(VENV)/.server
LOCKED  := pyproject.toml requirements.lock deploy/setup.sh deploy/lock.py
DEMO    ?= .demo

.DEFAULT_GOAL := help
.PHONY: help setup lock check test prove parts record-truth interop-clients test-pythons unit property sim cluster docs chaos-net cited-numbers pictures spark judge-raft coverage demo machines demo-up demo-down bench bench-field analytics-demo man site clean

help:            ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv and install everything; does nothing the second time
	@deploy/setup.sh java
	@deploy/setup.sh machines
	@deploy/setup.sh browser
	@deploy/setup.sh prometheus $(VENV)

# Two stamps: the demo needs a tenth of what the tests and Spark need.
$(SERVER): $(LOCKED)
	@PYTHON="$(PYTHON)" deploy/setup.sh venv $(VENV) server
	@touch $@

$(STAMP): $(LOCKED)
	@PYTHON="$(PYTHON)" deploy/setup.sh venv $(VENV) server analytics dev
	@touch $(SERVER) $@

lock: $(STAMP)   ## write requirements.lock anew from pyproject.toml; what still fits keeps its version
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --group build --generate-hashes \
	    --no-emit-index-url --custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml
	@$(BIN)/python -m pytest -q tests/unit/test_packaging.py

check: $(STAMP)  ## format, lint, types, import arrows, fast tests: a minute on two cores
	@deploy/check.sh $(BIN) fast

test: $(STAMP)   ## all that fixed seeds prove in minutes: check, the simulation, fleets, Spark, the console, pages; 12 on two cores
	@$(MAKE) --no-print-directory setup
	@SEEDS=$(SEEDS) deploy/check.sh $(BIN) all

prove: $(STAMP)  ## all that is long or drawn, into the ledger of docs/proof.md; hours, or minutes for some [PARTS=sim,drain] [SEED=]
	@$(BIN)/python -m tests.prove --parts "$(PARTS)" $(if $(SEED),--seed $(SEED))

record-truth: $(STAMP)  ## is the record of outages true? 24 ends, beside a stopwatch [PROBE=1: a probe too, and RocketMQ's brokers] [ONLY=NAME]
	@$(BIN)/python -m tests.truth $(if $(PROBE),--probe --java) $(if $(ONLY),--only "$(ONLY)")

chaos-net: $(STAMP)  ## faults of machines for as long as you like (root) [SCALE=field] [ROUNDS=1] [FLEETS=1] [SEED=]
	@$(BIN)/python -m tests.chaos.net $(if $(filter field,$(SCALE)),--field --file tests/chaos/net/field.jsonl,--file tests/chaos/net/rounds.jsonl) \
	    --rounds $(or $(ROUNDS),1) --fleets $(or $(FLEETS),1) $(if $(SEED),--seed $(SEED))

interop-clients: $(STAMP)  ## RocketMQ's own clients for Java and Go beside ours at our brokers, under faults
	@$(BIN)/python -m tests.prove --parts interop-clients

parts: $(STAMP)  ## what make prove proves, part by part, and how long each takes
	@$(BIN)/python -m tests.prove --list

test-pythons:    ## the other supported Pythons that are installed here: install, a fleet, unit tests; about a minute each
	@deploy/pythons.sh

unit: $(STAMP)   ## tests of single modules
	@$(BIN)/python -m pytest tests/unit

property: $(STAMP)  ## laws, by Hypothesis
	@$(BIN)/python -m pytest tests/property

sim: $(STAMP)    ## the whole cluster under a seeded clock, network and disk [SEEDS=100] [SEED=]
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100))

cluster: $(STAMP)  ## real processes on loopback
	@$(BIN)/python -m pytest tests/cluster tests/blackbox

docs: $(STAMP)   ## run the commands that the documents show
	@$(BIN)/python -m pytest tests/docs

cited-numbers: $(STAMP)  ## write docs/citations.md: which code and which test cites which number
	@$(BIN)/python -m tests.docs.cited_numbers --write

pictures: $(STAMP)  ## make the pictures of the manual anew, of a living fleet; asks for Chromium
	@$(BIN)/python -m tests.docs.pictures

spark: $(STAMP)  ## the tests that start a Spark session
	@$(BIN)/python -m pytest -m spark tests

judge-raft: $(STAMP)  ## what judges a new release of PySyncObj, or a change of our repairs around it
	@$(BIN)/python -m pytest tests/unit/test_replication_stock_faults.py tests/property/test_replication_raft.py tests/unit/test_replication_member.py
	@$(BIN)/python -m tests.sim --seeds $(or $(SEEDS),100)
	@$(BIN)/python -m pytest tests/cluster/test_raft_durability.py
	@$(BIN)/python -m tests.chaos.kill_controllers --rounds 10

coverage: $(STAMP)  ## branch coverage of the cores and link machines
	@deploy/check.sh $(BIN) coverage

demo: $(SERVER)   ## two minutes: a fleet, a killed master, an audit of every message [NET=1: each process on a machine of its own; root]
	@$(if $(NET),deploy/setup.sh machines)
	@$(BIN)/python -m rollcall_ha.deploy.local.demo run $(if $(NET),--machines --directory $(DEMO)-machines,--directory $(DEMO))

machines: $(STAMP)  ## the demo on eight network namespaces, and every command from one that reaches one controller only; root
	@deploy/setup.sh machines
	@$(BIN)/python -m rollcall_ha.deploy.local.demo run --machines --every-command --kills 5 --directory $(DEMO)-machines

demo-up: $(SERVER)  ## start the demo's fleet with a small producer and leave it running
	@$(BIN)/python -m rollcall_ha.deploy.local.demo up --directory $(DEMO)

demo-down: $(SERVER)  ## stop it
	@$(BIN)/python -m rollcall_ha.deploy.local.demo down --directory $(DEMO)

bench: $(STAMP)  ## numbers, three runs, with JSON beside the table
	@$(BIN)/python -m tests.perf

bench-field: $(STAMP)  ## failovers beside RocketMQ, Kafka, etcd, Redis Sentinel and Patroni, into docs/bench-field.md; an hour [ONLY=rollcall,etcd] [RUNS=3]
	@deploy/setup.sh field $(VENV)
	@$(BIN)/python -m tests.perf.field $(if $(ONLY),--only "$(ONLY)") $(if $(RUNS),--runs $(RUNS))

analytics-demo: $(STAMP)  ## a fleet with five faults, its journals through Spark, a report; compared with history value by value
	@$(BIN)/python -m rollcall_ha.deploy.local.analytics_demo --directory $(DEMO)-analytics

man: $(STAMP)      ## manual pages of every command into build/man
	@$(BIN)/rollcall man build/man

site: $(STAMP)   ## the manual as a site in out/site: python3 -m http.server -d out/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

clean:           ## remove caches and build results; keeps .venv and .demo
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*
