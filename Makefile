# The front door. Every target sets up what it needs, once; a later call finds it done (stamps below).
# All paths are relative, so a checkout may stand anywhere, in a folder with spaces in its name too.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-print-directory

NAME ?=
HOST ?= auto
SIZE ?= auto
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
CMD ?=
DEVICE ?=
ASK ?=
ERASE ?=
export PYTHON NAME HOST SIZE CAGE REPEATS FLEET RUN CMD DEVICE

python := .venv/bin/python
pagecage := .venv/bin/pagecage
target := $(shell uname -m)-unknown-linux-gnu
device = $(if $(DEVICE),--device "$$DEVICE")
ask = $(if $(ASK),--ask-password)
locks := bootstrap controller analysis site notebook dev ansible

.PHONY: help experiment replay shell report publish list doctor provision verify unprovision setup build images sbom test test-long lint lock bench clean distclean FORCE

help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 } \
	  /^#- / { printf "  %s\n", substr($$0, 4) }' $(MAKEFILE_LIST)

##@ Run
experiment: ## Run one experiment and make its report (NAME=..., see `make list`)
	@$(pagecage) run "$$NAME" --host "$$HOST" --size "$$SIZE" $(if $(CAGE),--cage "$$CAGE") \
	  $(if $(REPEATS),--repeats "$$REPEATS") $(if $(RESUME),--resume) $(if $(FLEET),--fleet "$$FLEET") $(ARGS)
replay: build/.stamp-ready ## Run any program in a cage and without limits (CAGE=..., CMD='program arguments', ARGS='--cold FILES')
	@eval "set -- $$CMD"; exec $(pagecage) replay "$$CAGE" --host "$$HOST" $(if $(REPEATS),--repeats "$$REPEATS") $(ARGS) -- "$$@"
shell: build/.stamp-ready ## Open a shell in a cage (CAGE=...)
	@$(pagecage) shell "$$CAGE" --host "$$HOST" $(ARGS)
report: .venv/.stamp-run ## Make the report of a run again (RUN=constrained-random for its newest, or a run's folder)
	@$(pagecage) show "$$RUN" --html
publish: .venv/.stamp-site ## Make a static site of runs in site/ (RUNS="a b"; the newest of every experiment without)
	@$(pagecage) publish $(RUNS) --out "$(OUT)"
list: .venv/.stamp-run ## List the experiments that NAME can be
	@$(pagecage) list
doctor: .venv/.stamp-run ## Say what this machine has and lacks for measuring
	@$(pagecage) doctor

##@ Hosts
provision: build/.stamp-ready ## Make the hosts of an inventory's group fit (HOST=local, vm or yours; DEVICE=... for one host, ASK=1)
	@$(pagecage) host provision "$$HOST" $(device) $(ask) $(ARGS)
verify: build/.stamp-ready ## Say what they lack; changes nothing
	@$(pagecage) host verify "$$HOST" $(ask) $(ARGS)
unprovision: build/.stamp-ready ## Put them back as they were (data stay; ERASE=1 destroys them)
	@$(pagecage) host unprovision "$$HOST" $(ask) $(if $(ERASE),--erase) $(ARGS)

##@ Check
test: build/.stamp-test ## Run every test but the long ones, the guest's among them (TESTS="tests/unit -k cage")
	@$(python) -m pytest -n logical --maxprocesses 8 --dist worksteal -m "not long and not vm" $(TESTS); others=$$?; \
	  $(python) -m pytest -m "vm and not long" $(TESTS); case $$others$$? in 00 | 05 | 50) ;; *) exit 1 ;; esac
test-long: build/.stamp-test build/.stamp-fuzzing ## Run the tests that take long
	@$(python) -m pytest -m long $(TESTS)
lint: build/.stamp-lint ## Run linters, type checks and the rules of the code's shape
	@$(python) -m pytest -q tests/test_linters.py tests/test_imports.py tests/test_shape.py
bench: build/.stamp-test ## Measure what the harness costs and how well caps hold, as ratios (about 15 minutes)
	@$(python) -m tests.bench "$$HOST"
	@$(python) -m tests.bench.render

##@ Make and unmake
setup: build/.stamp-ready ## Install everything that `make experiment` needs
build: build/.stamp-workloads ## Compile the workloads into build/host/bin
images: build/.stamp-ready ## Build container images by Docker or buildah (IMAGES="base workloads notebook harness")
	@tools/build-images $(IMAGES)
sbom: ## List what is in the images that were built, as CycloneDX (build/images/*.cdx.json)
	@tools/sbom $(IMAGES)
lock: .venv/.stamp-dev ## Write requirements/*.txt anew from *.in (UPGRADE=1: with the newest versions)
	@set -e; for name in $(locks); do \
	  $(python) -m uv --system-certs pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-header $(if $(UPGRADE),--upgrade) \
	    "requirements/$$name.in" -o "requirements/$$name.txt"; done
clean: ## Remove what was built and installed here (runs and the guest's cache stay)
	@if [ -x $(pagecage) ]; then $(pagecage) host down vm >/dev/null 2>&1 || :; fi
	rm -rf build .venv .venv-ansible .pytest_cache .mypy_cache .ruff_cache .hypothesis
distclean: clean ## The same, and the guest's cache (runs stay: they are measurements)
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/pagecage"

##@ Examples
#- make experiment NAME=constrained-random
#- make experiment NAME=constrained-random HOST=vm SIZE=smoke CAGE=customer-tenth REPEATS=5
#- make experiment NAME=constrained-random RESUME=1
#-
#- make experiment NAME=constrained-random ARGS="--seed 7 --fresh block"
#- make replay CAGE=customer CMD='grep -r needle data' ARGS='--cold data'
#- make shell CAGE=customer HOST=vm
#-
#- make provision HOST=vm
#- make provision HOST=local DEVICE=/dev/disk/by-id/nvme-EXAMPLE
#-
#- HOST is auto, local, vm or a group of ansible/inventory (docs/HOSTS.md), on which FLEET is replicate (the whole plan on
#- every host) or spread (its repeats dealt over hosts that are alike); SIZE is auto, smoke, emulated, default or full.
#- RESUME=1 finishes the newest run of NAME.
#- ARGS is handed to `pagecage` as it stands. When a command fails make itself ends with 2;
#- `.venv/bin/pagecage` used by hand keeps its own status (docs/FORMAT.md lists them).

# A NAME that is no experiment is refused (with the nearest one) as soon as Python is there, before a host is made fit.
experiment: $(if $(wildcard experiments/$(NAME).toml),build/.stamp-ready,.venv/.stamp-run)

# --- what was set up, and when -----------------------------------------------------------------------------------
# An environment whose interpreter has gone (the system's Python moved on) is made anew.

ifeq ($(wildcard .venv/bin/python),)
.venv/.stamp-run .venv/.stamp-site .venv/.stamp-dev: FORCE
endif
ifeq ($(wildcard .venv-ansible/bin/python),)
.venv-ansible/.stamp-ansible: FORCE
endif

.venv/.stamp-run: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap controller analysis)
	@tools/bootstrap run
.venv/.stamp-site: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap controller analysis site)
	@tools/bootstrap site
.venv/.stamp-dev: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap controller analysis site dev)
	@tools/bootstrap dev
.venv-ansible/.stamp-ansible: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap ansible)
	@tools/bootstrap ansible

# Packages of this machine: the same kind of role that makes any host fit. It asks apt only for what is missing.
build/.stamp-controller: .venv-ansible/.stamp-ansible ansible/controller.yml \
  $(shell find ansible/roles/controller -type f 2>/dev/null)
	@tools/bootstrap controller
	@touch $@

# A JDK is large and only one experiment has a workload in Java: it is installed for that one, and for the tests.
java_asked := $(filter test test-long,$(MAKECMDGOALS)) \
  $(if $(wildcard experiments/$(NAME).toml),$(shell grep -ls -e -java "experiments/$(NAME).toml"))
build/.stamp-jdk: build/.stamp-controller
	@tools/bootstrap jdk
	@touch $@

# So is clang, which the long tests alone need.
build/.stamp-fuzzing: build/.stamp-controller
	@tools/bootstrap fuzzing
	@touch $@

build/.stamp-workloads: $(if $(strip $(java_asked)),build/.stamp-jdk,$(wildcard build/.stamp-jdk))
build/.stamp-workloads: build/.stamp-controller Cargo.toml Cargo.lock tools/build-workloads \
  $(shell find workloads .cargo -type f 2>/dev/null)
	@tools/build-workloads $(target)
	@touch $@

build/.stamp-ready: .venv/.stamp-run build/.stamp-workloads
	@touch $@
build/.stamp-lint: .venv/.stamp-dev build/.stamp-controller
	@tools/bootstrap rustlint
	@touch $@
build/.stamp-browser: build/.stamp-controller
	@tools/bootstrap browser
	@touch $@
build/.stamp-test: build/.stamp-lint build/.stamp-ready build/.stamp-browser
	@touch $@
