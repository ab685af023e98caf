# `make help` lists the targets. Nothing but Python 3.11 or newer with pip and venv is needed; `make compat` also wants
# Node and npm, Maven and Java, Go and cargo, `make console` Chromium, Node and npm, `make bench` starts RabbitMQ if it is
# installed, and `make bench-peers` takes Artemis by Maven.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.demo
HOSTED := $(VENV)/.hosts
ARGS ?=
# Most tests wait more than they compute, so three processes keep two cores busy; those on Spark compute.
WORKERS ?= 3
SPARK_WORKERS ?= 2
# What the tests run on: pure, or compiled after `make compiled`.
BUILD ?= pure
COMPILED := build/compiled
ON_BUILD := $(if $(filter compiled,$(BUILD)),PYTHONPATH=$(CURDIR)/$(COMPILED))
# COVERAGE=1: count the branches the tests take, and fail below the bar of pyproject.toml. Tracing doubles their time, so
# `make coverage` does it for the packages without I/O only.
COVERAGE ?=
CORES := amqp auth entities ledger plan store
TRACED := $(if $(COVERAGE),--cov --cov-report= --timeout=300)

# Tests that start Spark and take long: `make spark` runs them, `make test` the others.
EXAMPLE := tests/test_examples.py::test_example
PAGE := tests/docs/test_commands.py::test_every_command_does_what_the_page_says
SPARK := tests/spark tests/faults/test_spark_stream_kill.py tests/faults/test_spark_syphon_kill.py \
	tests/docs/test_spark_programs.py tests/cli/test_ledger.py \
	tests/demo/test_demo.py::test_nothing_is_lost_and_the_report_is_written \
	$(patsubst %,'$(EXAMPLE)[%]',spark_read.py spark_stream.py spark_state.py spark_database.py) \
	'$(PAGE)[docs/cluster.md]' '$(PAGE)[docs/ledger.md]' '$(PAGE)[docs/report.md]'

# Those of them that need packages which developers do without: each has a target of its own.
HOSTS := tests/spark/test_notebook.py tests/spark/test_connect.py
ORCHESTRATORS := tests/spark/test_orchestration.py
STORE := tests/spark/test_store_path.py tests/spark/ledger/test_object_store.py
APART := $(HOSTS) $(ORCHESTRATORS) $(STORE)

# A person's work with messages in the console and signing in, in a real browser: `make console` runs it, `make test` the others.
CONSOLE := tests/console/test_messages.py tests/console/test_sign_in.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage console spark spark-versions spark-hosts spark-store spark-orchestrators spark-scale lint types bench bench-peers faults fuzz proof compat matrix compliance docs site wheel compiled

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# A file, not a phony target: it runs again only when what the project needs has changed.
$(STAMP): pyproject.toml
	@$(PYTHON) scripts/install.py $(VENV) dev
	@touch $@

# What the demo needs, and not the developers' tools.
$(DEMO): pyproject.toml
	@test -e $(STAMP) || $(PYTHON) scripts/install.py $(VENV) demo
	@touch $@

setup: $(STAMP) ## make the virtual environment with everything the other targets need

demo: $(DEMO) ## kill a message bus under load, lose nothing, and write the report
	$(BIN)/twinbus demo $(ARGS)

test: $(STAMP) $(if $(ON_BUILD),$(COMPILED)/.built) ## run the tests but those on Spark and of make console, in three processes (WORKERS=0: in one; BUILD=compiled; COVERAGE=1)
	$(ON_BUILD) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(TRACED) $(or $(ARGS),$(addprefix --deselect=,$(SPARK) $(CONSOLE)) $(addprefix --ignore=,$(APART)))
	$(if $(COVERAGE),$(BIN)/coverage report --skip-covered)

coverage: $(STAMP) ## count the branches that the tests of the packages without I/O take, and fail below the bar of pyproject.toml
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --timeout=300 $(CORES:%=--cov=twinbus.%) --cov-report=term:skip-covered \
		$(CORES:%=tests/%) tests/sim

console: $(STAMP) ## run the tests of the console's work with messages and of signing in, in a real browser
	$(BIN)/python -m pytest -n 0 $(or $(ARGS),$(CONSOLE))

spark: $(STAMP) ## run the tests of the Spark pipeline, which take as long as all the others
	$(BIN)/python -m pytest -n $(SPARK_WORKERS) --dist loadgroup $(or $(ARGS),$(SPARK) $(addprefix --ignore=,$(APART)))

spark-versions: $(STAMP) ## run chosen tests of the pipeline on Spark 4.0, 4.1 and 4.3 (VERSIONS=4.0.0 for one; ARGS=--quick as CI)
	$(BIN)/python -m tests.spark.versions $(VERSIONS) $(ARGS)

$(HOSTED): pyproject.toml | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,hosts]'
	@touch $@

spark-hosts: $(HOSTED) ## run the source and the sink in a notebook and over Spark Connect
	$(BIN)/python -m pytest -n 0 $(or $(ARGS),$(HOSTS))

spark-store: $(HOSTED) ## run the ledger's commands on an object store: a local S3 server, and Hadoop's connector by Maven
	$(BIN)/python -m pytest -n 0 $(or $(ARGS),$(STORE))

spark-orchestrators: $(STAMP) ## run the examples for Airflow and Dagster, each in an environment of its own
	TWINBUS_ORCHESTRATORS=1 $(BIN)/python -m pytest -n 0 $(or $(ARGS),$(ORCHESTRATORS))

spark-scale: $(STAMP) ## lose one of three workers under 5,000,000 records and 1,000,000 messages (ARGS='--records 500000 --messages 100000')
	PYTHONPATH=bench $(BIN)/python tests/faults/spark_scale.py $(ARGS)

lint: $(STAMP) ## check form and style (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## check the types (mypy strict)
	$(BIN)/mypy

bench: $(STAMP) ## measure the broker beside its peers, the paired sender and the syphon beside the SDK's
	$(BIN)/python bench/run.py $(ARGS)
	$(BIN)/python bench/paired.py
	$(BIN)/python bench/syphon.py
	$(BIN)/python bench/spark_syphon.py
	$(BIN)/python bench/spark.py

bench-peers: $(STAMP) ## measure both builds beside ActiveMQ Artemis and RabbitMQ, by a load of its own (ARGS=--quick)
	$(if $(shell command -v cc),$(MAKE) compiled)
	$(BIN)/python bench/peers.py $(ARGS)

faults: $(STAMP) ## kill the broker under load, mix everything for half an hour, seven outages of a pair, a pair in all 24 orders of starting, kill the syphons and Spark's streams
	$(BIN)/python tests/faults/kill.py $(ARGS)
	PYTHONPATH=. $(BIN)/python tests/faults/mixed.py
	$(BIN)/python tests/faults/outages.py
	$(BIN)/python tests/faults/outages.py --sync
	$(BIN)/python tests/faults/frozen.py
	$(BIN)/python tests/faults/pair_orders.py
	$(BIN)/python tests/faults/pair_orders.py --rights limited
	$(BIN)/python tests/faults/syphon_kill.py
	$(BIN)/python tests/faults/spark_syphon_kill.py
	$(BIN)/python tests/faults/spark_stream_kill.py

fuzz: $(STAMP) ## feed the broker nonsense for a while
	$(BIN)/python -m pytest --timeout=1800 tests/fuzz $(ARGS)

proof: $(STAMP) ## run the long form of a proof suite: SUITE=http ARGS='--seed 7'; without SUITE, list them
	PYTHONPATH=tests/entities:tests/sim $(BIN)/python -m tests.proof $(SUITE) $(ARGS)

compat: $(STAMP) ## run the unmodified official SDKs against the broker
	$(BIN)/python -m pytest -m '' $(or $(ARGS),tests/compat)

matrix: $(STAMP) ## run the clients' programs and write the table of docs/clients.md from it
	TWINBUS_RECORD=1 $(BIN)/python -m pytest -m clients tests/compat/test_clients.py $(ARGS)
	$(BIN)/python -m tests.compat.matrix

compliance: $(STAMP) ## run the official SDK's own live tests against the broker
	$(BIN)/python compliance/run.py $(ARGS)

docs: $(STAMP) ## check the documentation: links, examples, and what it promises
	$(BIN)/python -m pytest tests/test_docs.py tests/docs $(ARGS)

wheel: $(STAMP) ## build the wheel into dist/, with the hot modules compiled by mypyc where there is a C compiler
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'setuptools>=69' wheel
	TWINBUS_COMPILE=$(if $(shell command -v cc),1,0) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
		--no-build-isolation --no-deps --wheel-dir dist .

compiled: $(COMPILED)/.built ## build the compiled modules into build/compiled, for `make test BUILD=compiled` and the benchmarks

$(COMPILED)/.built: $(STAMP) setup.py $(shell find src -name '*.py')
	rm -rf $(COMPILED)
	TWINBUS_COMPILE=1 $(BIN)/python setup.py --quiet build --build-lib $(COMPILED)
	@touch $@

site: $(STAMP) ## build the documentation as a site into build/site, every link checked
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
