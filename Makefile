# One verb each, no arguments needed. `make` alone lists them.
# Settings: SEEDS= and SEED= (sim), ROUNDS= (kill-controllers), MINUTES= (false-handovers), DEMO= (directory of the demo), NET=1 (demo on machines).

SHELL   := /bin/bash
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
SERVER  := $(VENV)/.server
LOCKED  := pyproject.toml requirements.lock deploy/setup.sh deploy/lock.py
DEMO    ?= .demo
SEEDS   ?= 100
ROUNDS  ?= 10
MINUTES ?= 30
FAILOVERS ?= 1000000
EVENTS_M ?= 10,20,40
LARGE_M ?= 100

.DEFAULT_GOAL := help
.PHONY: help setup lock check test test-pythons unit property wire interop interop-short interop-move scenario sim sim-mutants cluster chaos docs cited-numbers spark judge-raft coverage demo demo-up demo-down machines \
        bench console-bench bench-vs-rocketmq bench-analytics analytics-demo analytics-truth analytics-recount kill-controllers switchovers hooks-proof drain port-abuse record-truth attacks machines-test chaos-net chaos-net-short chaos-policies false-handovers man site clean

help:            ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv and install everything; does nothing the second time
	@deploy/setup.sh java
	@deploy/setup.sh machines
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

check: $(STAMP)  ## format, lint, types, import arrows, fast tests: about 80 s on two cores
	@deploy/check.sh $(BIN) fast

test: $(STAMP)   ## everything that must be green: check, interop, scenario, sim, docs, cluster, spark; 18 to 28 minutes on two cores
	@$(MAKE) --no-print-directory setup
	@SEEDS=$(SEEDS) deploy/check.sh $(BIN) all

test-pythons:    ## the other supported Pythons that are installed here: install, a fleet, unit tests; about a minute each
	@deploy/pythons.sh

unit: $(STAMP)   ## tests of single modules
	@$(BIN)/python -m pytest tests/unit

property: $(STAMP)  ## laws, by Hypothesis
	@$(BIN)/python -m pytest tests/property

wire: $(STAMP)   ## byte fixtures of RocketMQ
	@$(BIN)/python -m pytest tests/interop

interop: $(STAMP)  ## real RocketMQ brokers, clients and mqadmin before our controllers: half an hour of faults, an audit, a comparison
	@$(BIN)/python -m tests.interop_java all

interop-short: $(STAMP)  ## a few of each, at most six minutes; says so and ends well where Java or Maven cannot be had
	@$(BIN)/python -m tests.interop_java short

interop-move: $(STAMP)  ## a live Java fleet moves to our controllers and back under load
	@$(BIN)/python -m tests.interop_java move

bench-vs-rocketmq: $(STAMP)  ## Rollcall beside RocketMQ on this machine, three runs, ratios, with JSON beside the table
	@$(BIN)/python -m tests.perf.versus

scenario: $(STAMP)  ## transcripts of situations that must be survived
	@$(BIN)/python -m pytest tests/scenario

sim: $(STAMP)    ## the whole cluster under a seeded clock, network and disk [SEEDS=100] [SEED=]
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

sim-mutants: $(STAMP)  ## switch off one rule after the other; cases, stories, seeds and tests must notice each in at least two ways
	@$(BIN)/python -m tests.sim --mutants

cluster: $(STAMP)  ## real processes on loopback
	@$(BIN)/python -m pytest tests/cluster tests/blackbox

chaos: $(STAMP)  ## real processes and faults
	@$(BIN)/python -m pytest tests/chaos

docs: $(STAMP)   ## run the commands that the documents show
	@$(BIN)/python -m pytest tests/docs

cited-numbers: $(STAMP)  ## write docs/citations.md: which code and which test cites which number
	@$(BIN)/python -m tests.docs.cited_numbers --write

spark: $(STAMP)  ## the tests that start a Spark session
	@$(BIN)/python -m pytest -m spark tests

judge-raft: $(STAMP)  ## what judges a new release of PySyncObj, or a change of our repairs around it
	@$(BIN)/python -m pytest tests/unit/test_replication_stock_faults.py tests/property/test_replication_raft.py tests/unit/test_replication_member.py
	@$(BIN)/python -m tests.sim --seeds $(SEEDS)
	@$(BIN)/python -m pytest tests/cluster/test_raft_durability.py
	@$(BIN)/python -m tests.chaos.kill_controllers --rounds $(ROUNDS)

coverage: $(STAMP)  ## branch coverage of the cores and link machines
	@deploy/check.sh $(BIN) coverage

demo: $(SERVER)   ## two minutes: a fleet, a killed master, an audit of every message [NET=1: each process on a machine of its own; root]
	@$(if $(NET),deploy/setup.sh machines)
	@$(BIN)/python -m rollcall_ha.deploy.local.demo run $(if $(NET),--machines --directory $(DEMO)-machines,--directory $(DEMO))

machines: $(STAMP)  ## the demo on eight network namespaces, and every command from one that reaches one controller only; root
	@deploy/setup.sh machines
	@$(BIN)/python -m rollcall_ha.deploy.local.demo run --machines --every-command --kills 5 --directory $(DEMO)-machines

machines-test: $(STAMP)  ## the page "Three machines in ten minutes" as printed, and a short form of machines; eight minutes, root
	@deploy/setup.sh machines
	@$(BIN)/python -m pytest -q -p no:cacheprovider -rs tests/machines

demo-up: $(SERVER)  ## start the demo's fleet with a small producer and leave it running
	@$(BIN)/python -m rollcall_ha.deploy.local.demo up --directory $(DEMO)

demo-down: $(SERVER)  ## stop it
	@$(BIN)/python -m rollcall_ha.deploy.local.demo down --directory $(DEMO)

bench: $(STAMP)  ## numbers, three runs, with JSON beside the table
	@$(BIN)/python -m tests.perf

analytics-demo: $(STAMP)  ## a fleet with five faults, its journals through Spark, a report; compared with history value by value
	@$(BIN)/python -m rollcall_ha.deploy.local.analytics_demo --directory $(DEMO)-analytics

console-bench: $(STAMP)  ## 1,000 sets, 500 events/s: the leader's CPU and elections with 20 consoles and without, and one in Chromium; three runs
	@$(BIN)/python -m tests.perf.bench_console

bench-analytics: $(STAMP)  ## what bronze, silver and gold cost beside a bare scan [EVENTS_M=10,20,40 LARGE_M=100]
	@$(BIN)/python -m tests.perf.lake --events-m $(EVENTS_M) --large-m $(LARGE_M)

port-abuse: $(STAMP)  ## elections in peace and while bad neighbours abuse the broker ports, as a ratio
	@$(BIN)/python -m tests.perf.port_abuse

analytics-truth: $(STAMP)  ## synthetic failovers through the pipeline, compared with what really happened [FAILOVERS=1000000]
	@$(BIN)/python -m tests.perf.analytics_truth --failovers $(FAILOVERS)

analytics-recount: $(STAMP)  ## gold counted a second time in plain Python from the lines of journals, row by row; two minutes
	@$(BIN)/python -m tests.recount

record-truth: $(STAMP)  ## is the record of outages true for somebody outside: 15 kinds of ends by a stopwatch, and by Spark; 4 minutes
	@deploy/setup.sh machines
	@$(BIN)/python -m tests.truth

attacks: $(STAMP)  ## attacks on every port of a fleet under load: is each refused, counted, and not felt; ten minutes
	@$(BIN)/python -m tests.attacks

chaos-net: $(STAMP)  ## every fault of a network, disk, clock and certificate, ROUNDS times, on machines; root [ROUNDS=1]
	@deploy/setup.sh machines
	@$(BIN)/python -m tests.chaos.net --rounds $(if $(filter command line,$(origin ROUNDS)),$(ROUNDS),1) --file tests/chaos/net/rounds.jsonl

chaos-net-short: $(STAMP)  ## five minutes of it, drawn, with the alarms of a Prometheus beside the faults; ends well where there can be no machines
	@deploy/setup.sh machines
	@deploy/setup.sh prometheus $(VENV)
	@$(BIN)/python -m tests.chaos.net --seconds 300 --may-skip --alarms

chaos-policies: $(STAMP)  ## real faults for which a living master is left by policy: full and slow disk, cut from its slaves; three minutes, root
	@deploy/setup.sh machines
	@$(BIN)/python -m tests.chaos.net --policies --may-skip

false-handovers: $(STAMP)  ## twice as many busy processes as cores, all policies on: nobody may be left, nothing lost [MINUTES=30]
	@$(BIN)/python -m tests.chaos.false_handovers --minutes $(MINUTES)

kill-controllers: $(STAMP)  ## kill -9 all controllers under load, ROUNDS times
	@$(BIN)/python -m tests.chaos.kill_controllers --rounds $(ROUNDS)

switchovers: $(STAMP)  ## orders to switch over under 1,000 sends/s, and five that fail: what sends waited, and nothing lost [ROUNDS=20]
	@$(BIN)/python -m tests.chaos.switchovers --rounds $(if $(filter command line,$(origin ROUNDS)),$(ROUNDS),20)

hooks-proof: $(STAMP)  ## 1,000 failovers told to a receiver that fails, hangs and restarts; elections with and without hooks, as ratio
	@$(BIN)/python -m tests.perf.hooks_proof

drain: $(STAMP)    ## a host with 200 masters is drained under load; the command and the leading controller are killed on the way
	@$(BIN)/python -m tests.chaos.drain

man: $(STAMP)      ## manual pages of every command into build/man
	@$(BIN)/rollcall man build/man

site: $(STAMP)   ## the manual as a site in out/site: python3 -m http.server -d out/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

clean:           ## remove caches and build results; keeps .venv and .demo
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*
