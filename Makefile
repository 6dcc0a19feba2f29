# Openbook. `make help` lists the targets; each is explained by the comment after its name.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
# Beside openbook itself: its client, what trains and measures it, and its two checkpoints.
PARTS := service/openbook_client service/openbook_lab checkpoints/openbook-mini-bart \
  checkpoints/openbook-mini checkpoints/openbook-base
INSTALL := $(BIN)/python deploy/install.py
EXTRAS := mini lab dump html pdf office
OPENBOOK := $(BIN)/openbook
INDEXES := $(or $(OPENBOOK_INDEXES),indexes)
DEMO := $(INDEXES)/wiki-2016/manifest.json $(INDEXES)/wiki-2018/manifest.json

.DEFAULT_GOAL := help
.PHONY: help serve test test-browser test-slow mutants test-docker test-lowest check indexes wheels lock install clean
# A manifest is the last file of a version that is published whole: make must not remove it, whatever happens after.
.PRECIOUS: $(INDEXES)/%/manifest.json

help: ## this list
	@grep -hE '^[a-z][a-z-]*:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' \
	  | while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

serve: $(BIN)/.installed $(firstword $(DEMO)) ## install, build the demo's indexes if missing, serve on 127.0.0.1:8000
	@mkdir -p build && test -f $(lastword $(DEMO)) || { echo 'wiki-2018 is built while wiki-2016 is served: build/wiki-2018.log'; \
	  nice $(OPENBOOK) index build wiki-2018 --indexes $(INDEXES) >build/wiki-2018.log 2>&1 & }
	@exec $(OPENBOOK) serve --demo

# Each of its hundred processes would compile every module anew where nothing may be written down.
test: $(BIN)/.installed-test ## install, then run the whole test suite but the slow tests
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal \
	  -m "not slow and not gpu and not docker and not browser"

test-browser: $(BIN)/.installed-browser ## the tests that look at the page in a headless Chromium
	$(BIN)/python -m pytest -m browser tests/openbook/web

test-slow: $(BIN)/.installed-test $(DEMO) ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

mutants: $(BIN)/.installed-test ## break twenty important lines one at a time: a test has to notice each
	$(BIN)/python -m pytest -m slow tests/test_mutants.py

test-docker: $(BIN)/.installed-test ## the image and the compose file, where a Docker engine is reachable
	$(BIN)/python -m pytest -m docker

# Deprecations are those of old libraries beside new ones.
test-lowest: | $(BIN)/python ## the suite on the oldest libraries that pyproject.toml allows
	rm -rf build/lowest && $(BIN)/python -m venv build/lowest && build/lowest/bin/python -m pip install --quiet uv
	build/lowest/bin/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct \
	  -e '.[mini,lab,dump,html,pdf,office,s3,tracing,test]' $(addprefix -e ,$(PARTS))
	build/lowest/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal -W ignore::DeprecationWarning \
	  -m "not slow and not gpu and not docker and not browser"

check: $(BIN)/.installed-test ## formatting, linting and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

indexes: $(DEMO) ## build the demo indexes wiki-2016 and wiki-2018 if they are missing

# Each is built from a copy: setuptools leaves a folder where it builds.
wheels: $(DEMO) ## build the wheels of openbook, openbook-client, openbook-lab and the checkpoints into dist/
	rm -rf build dist && mkdir -p build/wheels/openbook
	cp -R pyproject.toml LICENSE docs service build/wheels/openbook
	cp -R $(PARTS) build/wheels
	mkdir build/wheels/openbook-mini/indexes && cp -R $(dir $(DEMO)) build/wheels/openbook-mini/indexes
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist ./build/wheels/*
	@ls -l dist

# torch stays where it is: on Linux a newer one may bring gigabytes of CUDA.
lock: | $(BIN)/python ## write constraints.txt anew: the newest version of everything that any extra needs
	rm -rf build/lock && $(BIN)/python -m venv build/lock
	grep '^torch==' constraints.txt > build/lock/torch.txt
	build/lock/bin/python -m pip install --quiet -c build/lock/torch.txt -e . $(addprefix -e ,$(PARTS)) \
	  -e '.[mini,lab,dump,html,milvus,office,pdf,mcp,ray,s3,tracing,browser,test,check]' -e ./service/openbook_lab
	(echo '# Every package at the version that is tested: make lock writes this file, CI and the image install by it.'; \
	  build/lock/bin/python -m pip freeze --exclude-editable | sed 's/+cpu$$//') > build/lock/constraints.txt
	mv build/lock/constraints.txt constraints.txt

install: $(BIN)/.installed ## make .venv and install the service into it

clean: ## remove .venv and every cache; indexes stay, since some take hours to build
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -exec rm -rf {} +

# An index that is there is never built again: it may be a large one of the same name.
$(INDEXES)/%/manifest.json: | $(BIN)/.installed
	$(OPENBOOK) index build $* --indexes $(INDEXES)

# The stamps lie inside .venv, so that they go when it goes.
$(BIN)/.installed: pyproject.toml $(addsuffix /pyproject.toml,$(PARTS)) constraints.txt deploy/install.py | $(BIN)/python
	@echo 'Installing Openbook and what it needs into $(VENV); the first time takes a few minutes.'
	@$(INSTALL) $(EXTRAS)
	@touch $@

# The parts are in place: only what tests need beside them is installed.
$(BIN)/.installed-test: $(BIN)/.installed
	@$(INSTALL) --needs $(EXTRAS) tracing test check
	@touch $@

$(BIN)/.installed-browser: $(BIN)/.installed-test
	@$(INSTALL) --needs $(EXTRAS) tracing test check browser
	@touch $@

# The first Python that is new enough, unless PYTHON names one.
$(BIN)/python:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    "$$python" -m venv $(VENV) || { rm -rf $(VENV); \
	      echo "$$python cannot make a virtual environment; on Debian: apt install python3-venv" >&2; exit 1; }; \
	    exit 0; \
	  fi; \
	done; \
	echo 'Openbook needs Python 3.11 or newer, and found none: $(or $(PYTHON),python3) is' \
	  "$$($(or $(PYTHON),python3) --version 2>&1). Name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	exit 1
