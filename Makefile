# Every target does its own set-up. PYTHON names the interpreter (3.11 to 3.13); WAREHOUSE where `demo` and `ui` keep tables.
PYTHON ?= python3
WAREHOUSE ?= ./warehouse
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MARIADB := mariadb-server-core libaio1 libnuma1 libpcre2-8-0 libsystemd0 liburing2 libsnappy1v5
# A process that waits for Spark leaves time to the others. Tests that share a session or a server run in one process.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadgroup --no-loadscope-reorder

demo ui: export DAGSTER_HOME := $(CURDIR)/.dagster
export DAGSTER_DISABLE_TELEMETRY := 1
export SPARK_LOCAL_IP := 127.0.0.1
unexport PYTHONDONTWRITEBYTECODE # Runs and tests start hundreds of processes that import the same.

.DEFAULT_GOAL := help
.PHONY: help demo ui test test-fast test-long test-later test-lowest test-newest check judge cluster soak package docs bench bench-short mariadb mysql clean java

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 11

demo: $(STAMP) java home ## Backfill January 2013, compact, expire, re-run one day, and show what happened
	$(BIN)/python -m pipelines.demo $(WAREHOUSE)

# In the folder of the settings that are in force, and without the advice to use `dg dev`, which takes no workspace.yaml.
ui: $(STAMP) java home ## Open Dagster on http://localhost:3000
	cd $(DAGSTER_HOME) && LAKE_WAREHOUSE=$(abspath $(WAREHOUSE)) PYTHONWARNINGS='ignore:Function `dev_command`' \
		$(CURDIR)/$(BIN)/dagster dev -w $(CURDIR)/workspace.yaml

test: $(STAMP) java $(VENV)/spark.jsa ## Run the tests, on three processes; TESTS names some
	$(PYTEST) $(TESTS)

test-fast: $(STAMP) ## Run the tests that start neither a JVM nor Dagster and are not slow, with few seeds and examples
	LAKEFORMAT_SEEDS=30 LAKEFORMAT_EXAMPLES=5 $(PYTEST) -m 'not spark and not dagster and not slow' --hypothesis-profile fast

test-long: $(STAMP) java $(VENV)/spark.jsa ## Run the tests with the seeds and examples of a night
	LAKEFORMAT_SEEDS=10000 LAKEFORMAT_EXAMPLES=300 $(PYTEST) --hypothesis-profile long --timeout 0

test-later: $(STAMP) java $(VENV)/spark.jsa ## Run the tests on other days, in other time zones and in another locale; TESTS names some
	LAKEFORMAT_TEST_DAY=+10d TZ=Asia/Kolkata $(PYTEST) $(TESTS)
	LAKEFORMAT_TEST_DAY=+400d TZ=America/St_Johns $(PYTEST) $(TESTS)
	LAKEFORMAT_TEST_DAY=leap-day LC_ALL=C $(PYTEST) $(TESTS)

test-lowest: .lowest/.installed java ## Run the tests on the lowest versions that pyproject.toml allows, on Python 3.11; TESTS names some
	.lowest/bin/$(TESTED)

test-newest: .newest/.installed java ## Run the tests on the newest versions that pyproject.toml allows, on Python 3.13; TESTS names some
	.newest/bin/$(TESTED)

TESTED = python -m pytest --numprocesses 3 --dist loadgroup --no-loadscope-reorder $(TESTS)

.lowest/.installed: $(STAMP)
	$(call installed,3.11,lowest-direct,.lowest)

.newest/.installed: $(STAMP)
	$(call installed,3.13,highest,.newest)

# $(1): the Python, unless there is none here. $(2): the resolution. $(3): the environment.
define installed
	test -e $(3) || $(BIN)/uv venv --quiet --python "$$($(BIN)/python tests/package/interpreters.py $(1))" $(3)
	$(BIN)/uv pip install --quiet --upgrade --resolution $(2) --python $(3) --editable '.[dev]'
	@touch $@
endef

check: $(STAMP) ## Lint, types, and the import rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layers.py

judge: $(STAMP) java mariadb ## Have other engines read our tables, and read theirs (builds their environments)
	$(BIN)/python -m pytest tests/judge

cluster: $(STAMP) java ## Run all verbs on a Spark cluster of processes, and kill its executors and drivers
	$(BIN)/python -m pytest tests/cluster

soak: $(STAMP) ## Run writers, keepers and kill -9 against a model, MINUTES (15) a format; at the end another engine reads the table
	$(BIN)/python -m tests.soak $(or $(MINUTES),15)

package: $(STAMP) ## Build the wheel and the sdist, and install them into clean environments with each extra
	PYTHONS="$(PYTHONS)" $(BIN)/python -m pytest tests/package $(TESTS)

docs: $(VENV)/.docs ## Build the pages and the API reference into .site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(STAMP) java ## Measure against peers in the same run (builds their environments)
	$(BIN)/python -m benchmarks

bench-short: $(STAMP) ## Measure in ten minutes what needs no JVM: scans, cores, writes, plans, writers of one table
	$(BIN)/python -m benchmarks short

mariadb: .judge/mariadb/usr/sbin/mariadbd ## Bring a MariaDB server for the tests of change data capture, out of Debian's packages, without installing it

.judge/mariadb/usr/sbin/mariadbd:
	@mkdir -p .judge/mariadb/packages
	cd .judge/mariadb/packages && apt-get download -qq $(MARIADB) && for each in *.deb; do dpkg -x "$$each" ..; done

mysql: .judge/mysql/usr/sbin/mysqld $(STAMP) ## Run the tests of change data capture on MySQL itself, out of Debian's newest packages
	LAKEFORMAT_CDC_SERVER=mysql $(BIN)/python -m pytest tests/cdc/test_mysql.py

.judge/mysql/usr/sbin/mysqld:
	tests/cdc/bring_mysql.sh .judge/mysql

clean: ## Remove what the targets built; tables stay
	rm -rf $(VENV) .lowest .newest .site .judge .bench .dagster .mypy_cache .ruff_cache .pytest_cache

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "lakeformat needs Python 3.11, 3.12 or 3.13: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(VENV)/spark.jsa: $(STAMP) | java
	-$(BIN)/python tests/spark_classes.py $@

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

java:
	@java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' \
		|| { echo "Spark needs Java 17 or newer: install e.g. openjdk-17-jre-headless and put java on the PATH"; exit 1; }

.PHONY: home
home:
	@mkdir -p .dagster && cp dagster.yaml .dagster/dagster.yaml
