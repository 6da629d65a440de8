# Every target makes and uses .venv in the checkout; nothing else needs to be set up.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
PIP := $(RUN)python -m pip install --quiet --disable-pip-version-check
DEMO ?= demo
# Compiled modules make every start of the command a second faster, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=
.DEFAULT_GOAL := help

.PHONY: help demo test slow ecosystem lint docs-site docs-pictures docs-test report-check report-pictures coverage check audit release-check readme fresh recipes image bench structure fix golden docs mutation scores faults fuzz laws samples gitea soak soak-team lock clean

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | sort | while IFS="$$(printf '\t')" read -r name what; do \
		printf '%-14s %s\n' "$$name" "$$what"; done

# What the command needs and what installs it (39 MB to download); what tests and tools need beyond that (130 MB).
$(VENV)/.runs: pyproject.toml requirements-run.lock requirements-build.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), and Python 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "Installing the reconciler into $(VENV): 39 MB, about half a minute."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements-run.lock
	@$(PIP) --require-hashes -r requirements-build.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed: $(VENV)/.runs requirements.lock
	@echo "Installing what tests and tools need into $(VENV): another 130 MB, about a minute."
	@$(PIP) --require-hashes -r requirements.lock
	@touch $@

demo: $(VENV)/.runs  ## The main job on a small world: plan, apply, approve, upstream bump, target removed, apply
	@rm -rf $(DEMO)
	@$(RUN)reconciler demo $(DEMO) >/dev/null
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" sh $(DEMO)/walkthrough.sh
	@echo 'To use it here: export PATH="$(CURDIR)/$(VENV)/bin:$$PATH"'

test: $(VENV)/.installed  ## The tests; slow has those that run for longer
	@echo "Running the tests: about 5 minutes on two cores, the first dots after one."
	$(RUN)python -m pytest -n auto --dist worksteal -m "not slow" $(TESTS)

slow: $(VENV)/.installed  ## Lives, laws, faults and fleets on a sample; samples, faults, laws, fuzz and soak try everything
	$(RUN)python -m pytest -n auto --dist worksteal -m slow $(TESTS)

ecosystem: $(VENV)/.installed  ## The laws on all public packages of RECONCILER_ECOSYSTEM; AGAINST=COMMIT: what changed since that commit
	$(if $(AGAINST),$(RUN)python -m tools.against "$(AGAINST)",\
		RECONCILER_ECOSYSTEM_ALL=1 $(RUN)python -m pytest -o faulthandler_timeout=900 -q -n auto --dist worksteal tests/ecosystem)

docs-site: $(VENV)/.installed  ## Build the documentation site into docs/_build, and check every link in it
	$(RUN)sphinx-build -W --keep-going -q -b html docs docs/_build

docs-pictures:  ## Draw the Mermaid diagrams of the documentation that changed; needs npm and Chromium
	.ci/pictures

report-check: $(VENV)/.installed  ## Keys, accessibility (axe-core) and speed of the HTML report in Chromium; needs npm
	.ci/report check

report-pictures: $(VENV)/.installed  ## Take the pictures of the HTML report for the documentation; needs npm and Chromium
	.ci/report pictures

docs-test: $(VENV)/.installed  ## Run every command of the tutorial and the guides, and compare what they print
	RECONCILER_SAMPLE=all $(RUN)python -m pytest -q tests/docs

coverage: $(VENV)/.installed  ## All tests with branch coverage, which takes a third longer
	$(RUN)python -m pytest -n auto --dist worksteal --cov --cov-report=term:skip-covered

lint: $(VENV)/.installed  ## Format, lint, types, layers, unused code, spelling
	$(RUN)ruff format --check .
	$(RUN)ruff check .
	$(RUN)mypy
	$(RUN)lint-imports
	$(RUN)vulture
	$(RUN)codespell

check: lint test slow  ## What a change must pass: lint and all tests

audit: $(VENV)/.installed  ## Workflows and known vulnerabilities; needs the package index's advisory service
	$(RUN)zizmor --offline --no-progress --config .github/zizmor.yml action.yml .github/workflows .github/examples/*.yml
	$(RUN)actionlint -shellcheck= -pyflakes= .github/workflows/*.yml .github/examples/*.yml
	.ci/audit

release-check:  ## The release without publishing: reproducible, checked, installed from a local index by every Python here
	.ci/release-check

readme: $(VENV)/.installed  ## Make the demo in a clean clone as README.md says, and compare what its commands print
	RECONCILER_README=1 $(RUN)python -m pytest -o faulthandler_timeout=900 -p no:xdist tests/e2e/test_readme.py

fresh: $(VENV)/.runs  ## The first commands of README.md on a bare Debian system; needs root and debootstrap
	.ci/fresh

recipes: $(VENV)/.installed  ## Follow every recipe for contributors in a copy of the project
	RECONCILER_RECIPES=1 $(RUN)python -m pytest -o faulthandler_timeout=900 -n auto tests/e2e/test_recipes.py

image: $(VENV)/.installed  ## Build the image on a base of Debian packages and pass the demo in it, as root
	RECONCILER_IMAGE=1 $(RUN)python -m pytest -o faulthandler_timeout=900 -p no:xdist tests/e2e/test_image.py

bench: $(VENV)/.installed  ## Every goal of speed, met or missed (docs/performance.md); QUICK=1: what a minute decides and is met
	@$(RUN)python tools/bench/run.py $(if $(QUICK),--quick)

structure: $(VENV)/.installed  ## How large the project is, and how many files one plan of the demo passes
	@$(RUN)python -m tools.structure

fix: $(VENV)/.installed  ## Format, and mend what can be mended
	$(RUN)ruff format .
	$(RUN)ruff check --fix .

golden: $(VENV)/.installed  ## Rewrite the expected files of worlds, pages and reports; review them as a diff
	$(RUN)python -m pytest -q $$(grep -rl update_golden tests --include='test_*.py') --update-golden

docs: $(VENV)/.installed  ## Write what is generated: parts of the reference, the schema of locks
	$(RUN)python -m tools.docs.cli_reference
	$(RUN)python -m tools.docs.generated_docs
	$(RUN)python -m tools.docs.lock_schema
	$(RUN)python -m tools.docs.manifest_schemas
	$(RUN)python -m tools.docs.output_schemas
	$(RUN)python -m tools.docs.kubernetes_schema

mutation: $(VENV)/.installed  ## Try N mutants (25) of each of FOLDERS, or of what differs from the commit CHANGED, drawn with SEED (1)
	$(RUN)python -m tools.mutation.run --seed $(or $(SEED),1) --number $(or $(N),25) \
		$(if $(FOLDERS),--folders "$(FOLDERS)") $(if $(CHANGED),--changed "$(CHANGED)") $(if $(AGAIN),--again "$(AGAIN)") $(if $(TESTS),--tests "$(TESTS)") \
		$(if $(BUDGET),--budget $(BUDGET)) $(if $(MINIMUM),--minimum $(MINIMUM)) $(if $(JOBS),--jobs $(JOBS))

scores: $(VENV)/.installed  ## Try ten mutants of every folder for each of SEEDS (1 2 3), and write tools/mutation/scores.md
	for seed in $(or $(SEEDS),1 2 3); do $(RUN)python -m tools.mutation.run --seed $$seed --number 10 --budget 15 \
		--limit 5 --minimum 0 --json .mutation/scores-$$seed.json || exit 1; done
	$(RUN)python -m tools.mutation.scores $(patsubst %,.mutation/scores-%.json,$(or $(SEEDS),1 2 3))

faults: $(VENV)/.installed  ## Every fault at every point (hours; FAULTS=4: at most four points of each sweep), and the table of them
	RECONCILER_SAMPLE=all RECONCILER_FAULTS=$(or $(FAULTS),all) $(RUN)python -m pytest -o faulthandler_timeout=900 -q -n auto --dist worksteal tests/faults || { $(RUN)python -m tests.faults.matrix; exit 1; }
	$(RUN)python -m tests.faults.matrix

fuzz: $(VENV)/.installed  ## Every reader of foreign bytes for SECONDS seconds each (60), with atheris where it can be installed; findings become cases
	@$(PIP) --group fuzz || echo "atheris cannot be installed here"
	$(RUN)python -m tools.fuzz.run --seconds $(or $(SECONDS),60)

laws: $(VENV)/.installed  ## The properties and comparisons with kpt on FUZZ (10) times the examples, and the fleet of 2,000 drafts
	RECONCILER_FUZZ=$(or $(FUZZ),10) RECONCILER_FLEET=100 $(RUN)python -m pytest -o faulthandler_timeout=0 -q tests/property tests/contract/test_forge_fleet.py

samples: $(VENV)/.installed  ## Every case of the tests of which `make test` and `make slow` try a sample
	RECONCILER_SAMPLE=all $(RUN)python -m pytest -q -n auto --dist worksteal tests/contract tests/faults tests/property tests/e2e

gitea: $(VENV)/.installed  ## Contract tests and runs on the server of RECONCILER_GITEA_URL, as RECONCILER_GITEA_TOKEN
	@test -n "$(RECONCILER_GITEA_URL)" || { echo "Set RECONCILER_GITEA_URL and RECONCILER_GITEA_TOKEN"; exit 2; }
	$(RUN)python -m pytest -q -k server tests/contract/test_forge.py tests/contract/test_gitea_server.py tests/contract/test_gitea_server_runs.py

soak: $(VENV)/.installed  ## Lives of drawn fleets for MINUTES minutes (120), from random seeds; prints what replays a failure
	RECONCILER_SOAK_MINUTES=$(or $(MINUTES),120) RECONCILER_LIVES=0 $(RUN)python -m pytest -o faulthandler_timeout=0 -q -s -p no:xdist tests/property/test_combination_machine.py

soak-team: $(VENV)/.installed  ## 200 changes of a simulated team over 30 repositories, a run after each: memory, state and time
	$(RUN)python tools/soak_team.py --changes $(or $(CHANGES),200)

LOCKED := --universal --generate-hashes --no-header --no-annotate --no-emit-index-url
GROUPS := --group dev --group docs --group audit --group release

lock:  ## Rewrite the lock files from pyproject.toml: everything, what runs in production, what builds it
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet uv
	$(RUN)uv pip compile --quiet $(LOCKED) --no-strip-extras $(GROUPS) -o requirements.lock pyproject.toml
	$(RUN)uv pip compile --quiet $(LOCKED) -c requirements.lock -o requirements-run.lock pyproject.toml
	$(RUN)uv pip compile --quiet $(LOCKED) -c requirements.lock --group build -o requirements-build.lock
	PATH="$(CURDIR)/$(RUN):$$PATH" $(RUN)python -m tools.docs.wheels

clean:  ## Remove everything that these targets made
	rm -rf $(VENV) $(DEMO) .fresh dist .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
