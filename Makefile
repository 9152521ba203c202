# The few verbs of this project; the work is in scripts/. `make help` lists them.
SHELL := /bin/bash
PY := build/venv/bin/python
export WORKLOAD QUICK ROWS RUNS STORE PROFILE PEERS THREADS MODE PROTOCOLS STEPS DURATION RATE LINK

.PHONY: help build extension demo test test-nvme bench parity lint fmt wheel sdist deb release clean venv-demo venv-test
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | column -t -s $$'\t'

build: ## build/penstock, build/penstock-fake, build/duckdb/vX.Y.Z/penstock.duckdb_extension, build/venv
	@scripts/build.sh

extension: ## the extension for VERSION of DuckDB (scripts/duckdb-versions.tsv; the first build of a version takes long)
	@scripts/duckdb-build-extension.sh $(VERSION)

venv-test:
	@scripts/venv.sh test

venv-demo:
	@scripts/venv.sh demo

demo: build ## the main job on a fresh machine, set-up included (ROWS="5000 50000", STORE=azurite)
	@PYTHONPATH=bench $(PY) -m penstock_bench demo

bench: build ## benchmarks against the peers (WORKLOAD=name QUICK=1 PROFILE=loopback|wan RUNS=n MODE=name)
	@PYTHONPATH=bench $(PY) -m penstock_bench run

test: ## all tests on a fresh machine, set-up included
	@scripts/test.sh

test-nvme: build venv-test ## NVMe against emulated controllers, in virtual machines of QEMU, one of which is stopped hard
	@scripts/test-nvme.sh || [ $$? = 77 ] # it could not be run here, and said so

parity: build venv-test ## docs/clickhouse.md anew, from ClickHouse itself
	@PYTHONPATH=bench:crates/gateway/pytests $(PY) -m gateway_tests.clickhouse > build/clickhouse.md
	@mv build/clickhouse.md docs/clickhouse.md

lint: ## rustfmt, clippy, ruff, mypy, licences, shim against every DuckDB's headers
	@scripts/lint.sh

fmt: venv-test ## format Rust and Python
	@cargo fmt --all
	@build/venv/bin/ruff format -q .
	@build/venv/bin/ruff check -q --fix .

wheel: build ## build/dist/penstock-*.whl: the binary, and the extension for every DuckDB or for VERSIONS="2.0.1 1.5.5"
	@scripts/wheel.sh $(VERSIONS)

sdist: venv-demo ## build/dist/penstock-VERSION.tar.gz: the sources, from which pip builds the wheel
	@scripts/sdist.sh

deb: build ## build/dist/penstock_VERSION_ARCHITECTURE.deb: the binary, its manual, completions, a unit of systemd
	@scripts/deb.sh

release: ## a release of this commit in build/dist: packages, tests, terms, bill of materials, checksums (STEPS="check papers")
	@scripts/make-release.sh $(STEPS)

clean: ## remove everything that the other targets made in the checkout
	rm -rf build target python/src/*.egg-info
