# One command each; every target creates what it needs in .venv and is quick when nothing changed.
#
#   make run      start the broker            make unit     tests of what decides: no socket, no process
#   make check    format, lint, types, and all tests that are quick and need no other software
#   make test     everything CI runs          make bench    all benchmarks against other libraries
#   make imports  the start-up figures        make fuzz SECONDS=60
#   make bench-broker ARGS=--quick            us beside real Kafka, kfake and librdkafka's mock
#   make bench-request ARGS=--functions=9     where the microseconds of a small request go, by layer
#   make bench-neighbours                     what a throttled client costs the others: p99 of an innocent one
#   make bench-churn ARGS='--minutes 60'      memory, handles and tasks under mixed load that leaves things behind
#   make bench-groups ARGS=--quick            groups beside Kafka's: first record, heartbeats, commits
#   make bench-transactions ARGS=--quick      transactions a second beside Kafka's, one replica and three
#   make bench-cleaning ARGS=--quick          compaction beside Kafka's; latency meanwhile; retention of 1,000 partitions
#   make bench-spark ARGS=--quick             our Spark source beside Spark's Kafka connector; memory of a large topic
#   make bench-cluster ARGS=--quick           three replicas beside one, and beside Kafka's
#   make bench-view ARGS=--quick              what it costs that somebody looks at /api/events
#   make bench-growth ARGS=--quick            what grows with partitions, topics, members, logs, connections
#   make installed (or PARTS="core newest")   the wheel, outside of here: examples, newest and oldest versions, Spark
#   make wheel    the compiled wheel, into build/dist: hot modules by mypyc (docs/adr/0016)
#   make vendor   what the page takes from others, as one module (npm and node)
#   make docs     the pages made from code    make format   what ruff can mend by itself
#   make sim SEED=7 (or SEEDS=1000)           a cluster under faults in virtual time, from one seed or from many;
#                                             WHAT=groups: its groups of consumers; WHAT=cleaning: its retention
#                                             and compaction; WHAT=transactions; ARGS='--bug NAME': with a planted bug
#   make amplification ARGS=--newest          what requests of many small elements cost: processor, memory, the loop
#   make crashes STATES=10000                 the power goes in so many states of each workload of the log's tests
#   make mutants PART=log SAMPLE=50 SEED=1    small changes to the core, one at a time: which does no test notice?
#   make flips (or FLIPS=1000)                each byte of a broker's directory is damaged, and it is started twice
#
# Needs GNU make and Python 3.11 or newer; name one with `make PYTHON=/path/to/python3.12 ...`.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
SECONDS ?= 60
SEED ?=
SEEDS ?= 100
STATES ?= 10000
FLIPS ?= all
FIRST ?= 0
CLIENT ?= own
WHAT ?= cluster
ARGS ?=
PARTS ?=
PART ?= log
SAMPLE ?= 50
SOURCES := minibroker tests bench docs examples

.DELETE_ON_ERROR:
.PHONY: help run test unit check lint types imports amplification bench bench-broker bench-request bench-neighbours bench-churn bench-groups bench-transactions bench-cleaning bench-cluster bench-spark bench-growth bench-view installed wheel vendor sim mutants crashes flips fuzz docs format clean

help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' Makefile

run: $(VENV)/.installed
	@$(BIN)/minibroker serve $(ARGS)

test: lint types
	$(BIN)/pyright
	$(BIN)/pytest -n auto --durations=60 --durations-min=5

check: lint types
	$(BIN)/pytest -n auto -q -m "not interop and not slow and not fuzz"

# What pytest has compiled is kept, also where the environment says that Python keeps nothing: 550 modules in each worker.
# A file's tests run in one worker, so that what they share is made once.
unit: export PYTHONDONTWRITEBYTECODE =
unit: export PYTHONPYCACHEPREFIX = $(CURDIR)/build/pycache
unit: $(VENV)/.installed-test
	$(BIN)/pytest -n 2 -q --dist loadfile -m unit $$($(BIN)/python -m tests.rings)

lint: $(VENV)/.installed-test
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: $(VENV)/.installed-test
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

docs: $(VENV)/.installed
	$(BIN)/python -m docs.generate

imports: $(VENV)/.installed
	$(BIN)/python bench/imports.py

bench: $(VENV)/.installed-bench
	@set -e; for script in bench/*.py $(filter-out bench/broker/% bench/cluster/% bench/groups/% bench/transactions/% bench/cleaning/% bench/growth/% bench/spark/% bench/view/%,$(wildcard bench/*/*.py)); do echo "== $$script"; $(BIN)/python "$$script"; done

# Needs java and mvn for Kafka and go for kfake, and leaves out what has none: `make bench-broker ARGS=--quick`.
bench-broker: $(VENV)/.installed-bench
	$(BIN)/python -m bench.broker.compare $(ARGS)

bench-view: $(VENV)/.installed-bench
	$(BIN)/python -m bench.view.measure $(ARGS)

bench-request: $(VENV)/.installed-bench
	$(BIN)/python -m bench.broker.request $(ARGS)

bench-neighbours: $(VENV)/.installed-bench
	$(BIN)/python -m bench.broker.neighbours $(ARGS)

bench-churn: $(VENV)/.installed-bench
	$(BIN)/python -m bench.broker.churn $(ARGS)

# These need java and mvn for Kafka and leave it out otherwise: `make bench-groups ARGS=--quick`.
bench-groups: $(VENV)/.installed-bench
	$(BIN)/python -m bench.groups.compare $(ARGS)

bench-transactions: $(VENV)/.installed-bench
	$(BIN)/python -m bench.transactions.compare $(ARGS)

bench-cleaning: $(VENV)/.installed-bench
	$(BIN)/python -m bench.cleaning.compare $(ARGS)

bench-cluster: $(VENV)/.installed-bench
	$(BIN)/python -m bench.cluster.compare $(ARGS)

bench-growth: $(VENV)/.installed
	$(BIN)/python -m bench.growth.measure $(ARGS)

# Needs java and mvn: PySpark and the connector are fetched once, into build/interop.
bench-spark: $(VENV)/.installed-bench $(VENV)/.installed-test
	$(BIN)/python -m bench.spark.compare $(ARGS)

# Needs java and mvn, and fetches PySpark.
installed: $(VENV)/.installed-test
	$(BIN)/python -m tests.installed $(PARTS)

# Takes a C compiler, some minutes and 1.5 GB of memory; pip brings mypyc. It is for the Python of .venv.
wheel: export MINIBROKER_COMPILED = 1
wheel: $(VENV)/.installed
	@echo 'compiling: about three minutes'
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/dist .
	@ls build/dist/*.whl

# Needs npm and node; what it makes has to be what LICENSES.txt says, byte for byte.
VENDOR := minibroker/view/vendor
vendor:
	@rm -rf build/vendor && mkdir -p build/vendor && cp $(VENDOR)/entry.js $(VENDOR)/package.json build/vendor
	cd build/vendor && npm install --silent --no-package-lock --no-audit --no-fund \
		&& npx esbuild entry.js --bundle --format=esm --minify --legal-comments=none --outfile=vendor.js
	@grep -q "sha256 $$(sha256sum < build/vendor/vendor.js | cut -d ' ' -f 1)" $(VENDOR)/LICENSES.txt \
		|| { echo 'it is another one than $(VENDOR)/LICENSES.txt says'; exit 1; }
	cp build/vendor/vendor.js minibroker/view/page/vendor.js

sim: $(VENV)/.installed-test
	$(BIN)/python -m tests.simulation.$(patsubst %s,%,$(WHAT))_run $(if $(SEED),$(SEED),--seeds $(SEEDS) --first $(FIRST)) --client $(CLIENT) $(ARGS)

mutants: $(VENV)/.installed-test
	$(BIN)/python -m tests.mutants $(PART) --sample $(SAMPLE) --seed $(or $(SEED),1) $(ARGS)

amplification: $(VENV)/.installed-test
	$(BIN)/python -m tests.server.amplification $(ARGS)

crashes: $(VENV)/.installed-test
	MINIBROKER_TEST_STATES=$(STATES) $(BIN)/pytest -n auto tests/log/test_log_crashes.py tests/log/test_copied_gaps.py \
		tests/cleaner/test_cleaning_crashes.py

flips: $(VENV)/.installed-test
	MINIBROKER_TEST_FLIPS=$(FLIPS) $(BIN)/pytest -n auto tests/server/test_flipped_directories.py

# libFuzzer writes what it finds into its first folder, so the committed corpus stays as it is.
fuzz: $(VENV)/.installed-fuzz
	@set -e; for target in tests/fuzz/fuzz_*.py; do \
		name=$$(basename "$$target" .py); name=$${name#fuzz_}; \
		mkdir -p "tests/fuzz/found/$$name" "tests/fuzz/corpus/$$name"; \
		echo "== $$target for $(SECONDS) s"; \
		$(BIN)/python "$$target" -max_total_time=$(SECONDS) -artifact_prefix="tests/fuzz/found/$$name-" \
			"tests/fuzz/found/$$name" "tests/fuzz/corpus/$$name"; \
	done

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The stamps lie inside .venv: a new .venv is a new start, and a changed pyproject.toml installs again.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/.installed: pyproject.toml | $(BIN)/pip
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-%: pyproject.toml | $(BIN)/pip
	$(INSTALL) --editable '.[$*]'
	@touch $@ $(VENV)/.installed

# pip is the last thing that venv makes, so an interrupted run starts over.
$(BIN)/pip:
	@for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
		if ! version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); then \
			tried="$$tried\n  $$python: does not run"; \
		elif ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
			tried="$$tried\n  $$python: is $$version, too old"; \
		elif ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
			tried="$$tried\n  $$python: has no venv (on Debian and Ubuntu: apt install python$$version-venv)"; \
		else \
			echo "$(VENV): made with $$python ($$version)"; \
			exec "$$python" -m venv $(VENV); \
		fi; \
	done; \
	printf "minibroker needs Python 3.11 or newer with venv. Tried:$$tried\nName one: make PYTHON=/path/to/python3.12\n" >&2; \
	exit 1
