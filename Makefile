# Each target sets up what it needs once: tools/setup has the steps. All paths are relative, so the
# checkout may be in any folder, also one with spaces in its name.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-print-directory

NAME ?=
HOST ?= auto
SIZE ?= auto
BUDGET ?=
CAGE ?=
REPEATS ?=
RESUME ?=
FLEET ?=
ARGS ?=
RUN ?=
RUNS ?=
OUT ?= site
TESTS ?=
IMAGES ?=
UPGRADE ?=
MACHINE ?=
CMD ?=
ONLY ?=
DEVICE ?=
ASK ?=
ERASE ?=
# CMD may have signs of make and of a shell; it is passed on as it is.
override CMD := $(value CMD)
export PYTHON NAME HOST SIZE BUDGET CAGE REPEATS FLEET RUN CMD DEVICE
# MACHINE=aarch64 is for hosts and a guest of another architecture than this machine's.
ifneq ($(MACHINE),)
export PAGECAGE_MACHINE := $(MACHINE)
endif
# Without bytecode every process compiles its imports: `make test` starts hundreds, and took half as
# long again.
unexport PYTHONDONTWRITEBYTECODE

python := env -u PYTHONHOME -u PYTHONPATH .venv/bin/python
pagecage := .venv/bin/pagecage
# The recipes with a + also run for `make --dry-run`, and print their commands then.
setup := tools/bootstrap python tools/setup
device = $(if $(DEVICE),--device "$$DEVICE")
only = $(foreach level,$(ONLY),--treatment $(level))
ask = $(if $(ASK),--ask-password)
.PHONY: help ready ready-test demo experiment replay shell report publish notebooks lab list doctor provision verify unprovision setup build wheel images sbom audit test test-slow test-long check lint lock bench trust trust-long clean distclean

help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 } \
	  /^#- / { printf "  %s\n", substr($$0, 4) }' $(MAKEFILE_LIST)

ready:
	+@$(setup) ready
ready-test:
	+@$(setup) test

##@ Run
demo: ready ## Show what a slow disk costs, with a file that pagecage makes (3 minutes)
	@$(pagecage) demo $(ARGS)
experiment: ## Run an experiment and make its report (NAME=..., see `make list`)
	+@$(setup) experiment
	@$(pagecage) run "$$NAME" --host "$$HOST" --dataset "$$SIZE" $(if $(BUDGET),--budget "$$BUDGET") $(if $(CAGE),--cage "$$CAGE") \
	  $(only) $(if $(REPEATS),--repeats "$$REPEATS") $(if $(RESUME),--resume) $(if $(FLEET),--fleet "$$FLEET") $(ARGS)
demo replay shell: export PAGECAGE_WORKLOADS := pcgen
replay: ready ## Run a program in a cage and without limits (CAGE=..., CMD='program arguments' or a command of sh, ARGS='--cold FILES')
	@$(pagecage) replay "$$CAGE" --host "$$HOST" $(if $(REPEATS),--repeats "$$REPEATS") $(if $(value CMD),--command "$$CMD") $(ARGS)
shell: ready ## Open a shell in a cage (CAGE=...)
	@$(pagecage) shell "$$CAGE" --host "$$HOST" $(ARGS)
report: ## Make the report of a run again (RUN=an experiment, for its newest run, or a run's folder)
	@tools/bootstrap run
	@$(pagecage) show "$$RUN" --html
publish: ## Make a static site of runs in site/ (RUNS="a b"; default: the newest of each experiment)
	@tools/bootstrap site
	@$(pagecage) publish $(RUNS) --out "$(OUT)"
notebooks: ## Execute the notebooks with a kernel, into build/notebooks (RUNS="a b"; default: of the stored runs and the articles)
	@tools/bootstrap site
	@$(python) -m analysis.execution build/notebooks $(RUNS)
lab: ## Open the notebooks in JupyterLab
	@tools/bootstrap lab
	@cd analysis/notebooks && JUPYTER_CONFIG_PATH=$(CURDIR)/tools/jupyter ../../.venv/bin/jupyter lab --allow-root $(ARGS)
list: ## List the experiments
	@tools/bootstrap plan
	@$(pagecage) list
doctor: ## Report what this machine lacks for measuring, and how to fix it
	@tools/bootstrap plan
	@$(pagecage) doctor

##@ Hosts
provision: ready ## Prepare the hosts of a group (HOST=local, vm or a group; DEVICE=... for one host; ASK=1 asks for sudo's password)
	@tools/bootstrap ansible
	@$(pagecage) host provision "$$HOST" $(device) $(if $(NAME),--for "$$NAME") $(ask) $(ARGS)
verify: ready ## Report what they lack; changes nothing
	@tools/bootstrap ansible
	@$(pagecage) host verify "$$HOST" $(ask) $(ARGS)
unprovision: ready ## Restore them (data stay; ERASE=1 destroys them)
	@tools/bootstrap ansible
	@$(pagecage) host unprovision "$$HOST" $(ask) $(if $(ERASE),--erase) $(ARGS)

##@ Check
test: ready-test ## Run the tests, some of them in the guest (8 minutes; TESTS="tests/unit -k cage" for some)
	@tools/run-tests --all "not slow and not long" $(TESTS)
test-slow: ready-test ## Run the tests that `make test` leaves out for time, most of them in the guest (21 minutes)
	@tools/run-tests --all "slow and not long" $(TESTS)
test-long: ready-test ## Run the long tests
	+@$(setup) long
	@$(python) -m pytest -m long $(TESTS)
check: ## Run linters, type checks and unit tests (TESTS="tests/unit/model/test_cage.py" for some)
	+@$(setup) check
	@tools/run-tests --quick $(TESTS)
lint: ## Run linters, type checks and the rules for imports and sizes
	+@$(setup) lint
	@$(python) -m pytest -q tests/test_linters.py tests/test_imports.py tests/test_shape.py
bench: ready-test ## Measure the overhead of the harness and the accuracy of caps (17 minutes; ONLY="caps start" for some parts)
	@$(python) -m reliability.bench "$$HOST" $(ONLY)
trust: ready-test ## Measure how often pagecage is wrong, and write docs/TRUST.md (5 minutes)
	@$(python) -m reliability
	@$(python) -m reliability.faults --sample 300
trust-long: ready-test ## Inject every fault, kill parts of real runs, cut the power, ask five witnesses, try every disk (hours)
	@$(python) -m reliability.faults
	@$(python) -m reliability.local_kills
	@$(python) -m reliability.power_loss
	@$(python) -m reliability.guest_kills
	@$(python) -m reliability.guest_kills --guest own
	@$(python) -m reliability.guest_lies.campaign
	@$(python) -m reliability.witnesses
	@$(python) -m reliability.disks.campaign
	@$(python) -m reliability.page

##@ Build and clean
setup: ready ## Set up everything that `make experiment` needs (NAME=... for one experiment, HOST=...)
build: ## Compile the workloads into build/host/bin, and the simulated volume into build/host/lib (MACHINE=aarch64 cross-compiles)
	+@$(setup) build
wheel: ## Build an installable wheel in dist/ (MACHINE=aarch64 cross-compiles)
	+@$(setup) wheel
	@tools/build-wheel $(MACHINE)
images: ## Build container images with Docker or buildah (IMAGES="base workloads notebook harness")
	+@$(setup) images
	@tools/build-images $(IMAGES)
sbom: ## List the contents of the built images, as CycloneDX (build/images/*.cdx.json)
	@tools/sbom $(IMAGES)
audit: ## Audit the locked dependencies by pip-audit and cargo-audit, where their databases can be had
	@tools/audit
lock: ## Update requirements/*.txt from *.in (UPGRADE=1 takes the newest versions)
	@tools/bootstrap dev
	@tools/update-locks $(if $(UPGRADE),--upgrade)
clean: ## Remove what was built and installed in this checkout (runs and the guest's cache stay)
	@if [ -x $(pagecage) ]; then $(pagecage) host down vm >/dev/null 2>&1 || :; fi
	rm -rf build .venv .venv-ansible .pytest_cache .mypy_cache .ruff_cache .hypothesis
distclean: clean ## Also remove the guest's cache (runs stay)
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/pagecage"

##@ Examples
#- make experiment NAME=constrained-random
#- make experiment NAME=constrained-random HOST=vm SIZE=smoke CAGE=customer-tenth REPEATS=5
#- make experiment NAME=constrained-random RESUME=1
#- make experiment NAME=constrained-random ONLY=cage=uncaged
#-
#- make experiment NAME=constrained-random ARGS="--seed 7 --fresh block"
#- make replay CAGE=customer CMD='grep -r needle data' ARGS='--cold data'
#- make shell CAGE=customer HOST=vm
#-
#- make provision HOST=vm
#- make provision HOST=local DEVICE=/dev/disk/by-id/nvme-EXAMPLE
#-
#- HOST is auto, local, vm or a group of ansible/inventory (docs/HOSTS.md). FLEET is replicate (the
#- whole plan on every host) or spread (its repeats over similar hosts). SIZE is auto, smoke, emulated,
#- default or full. BUDGET=20m lets SIZE=auto plan twenty minutes instead of three. RESUME=1 finishes
#- the newest run of NAME. ONLY runs the treatments with these levels. ARGS is passed to `pagecage`
#- unchanged.
#- If a command fails, make exits with 2. `.venv/bin/pagecage` has its own exit codes (docs/EXIT_CODES.md).
