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
ONLY ?=
DEVICE ?=
ASK ?=
ERASE ?=
export PYTHON NAME HOST SIZE CAGE REPEATS FLEET RUN CMD DEVICE
# Without bytecode every process compiles all that it imports: `make test` starts hundreds, and took half as long again.
unexport PYTHONDONTWRITEBYTECODE

python := env -u PYTHONHOME -u PYTHONPATH .venv/bin/python
pagecage := .venv/bin/pagecage
target := $(shell uname -m)-unknown-linux-gnu
device = $(if $(DEVICE),--device "$$DEVICE")
ask = $(if $(ASK),--ask-password)
locks := bootstrap controller analysis site notebook dev ansible

.PHONY: help ready ready-local ready-group ready-vm experiment replay shell report publish list doctor provision verify unprovision setup build images sbom test test-long check lint lock bench clean distclean FORCE

help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 } \
	  /^#- / { printf "  %s\n", substr($$0, 4) }' $(MAKEFILE_LIST)

##@ Run
experiment: ## Run one experiment and make its report (NAME=..., see `make list`)
	@$(pagecage) run "$$NAME" --host "$$HOST" --size "$$SIZE" $(if $(CAGE),--cage "$$CAGE") \
	  $(if $(REPEATS),--repeats "$$REPEATS") $(if $(RESUME),--resume) $(if $(FLEET),--fleet "$$FLEET") $(ARGS)
replay shell: export PAGECAGE_WORKLOADS := pcgen
replay: ready ## Run any program in a cage and without limits (CAGE=..., CMD='program arguments', ARGS='--cold FILES')
	@eval "set -- $$CMD"; exec $(pagecage) replay "$$CAGE" --host "$$HOST" $(if $(REPEATS),--repeats "$$REPEATS") $(ARGS) -- "$$@"
shell: ready ## Open a shell in a cage (CAGE=...)
	@$(pagecage) shell "$$CAGE" --host "$$HOST" $(ARGS)
report: .venv/.stamp-run ## Make the report of a run again (RUN=constrained-random for its newest, or a run's folder)
	@$(pagecage) show "$$RUN" --html
publish: .venv/.stamp-site ## Make a static site of runs in site/ (RUNS="a b"; the newest of every experiment without)
	@$(pagecage) publish $(RUNS) --out "$(OUT)"
list: .venv/.stamp-plan ## List the experiments that NAME can be
	@$(pagecage) list
doctor: .venv/.stamp-plan ## Say what this machine has and lacks for measuring
	@$(pagecage) doctor

##@ Hosts
provision: ready ## Make the hosts of an inventory's group fit (HOST=local, vm or yours; DEVICE=... for one host, ASK=1)
	@$(pagecage) host provision "$$HOST" $(device) $(ask) $(ARGS)
verify: ready ## Say what they lack; changes nothing
	@$(pagecage) host verify "$$HOST" $(ask) $(ARGS)
unprovision: ready ## Put them back as they were (data stay; ERASE=1 destroys them)
	@$(pagecage) host unprovision "$$HOST" $(ask) $(if $(ERASE),--erase) $(ARGS)

##@ Check
test: ready-test ## Run every test but the long ones, the guest's among them (TESTS="tests/unit -k cage")
	@$(python) -m pytest -n logical --maxprocesses 8 --dist worksteal -m "not long and not vm" $(TESTS); others=$$?; \
	  $(python) -m pytest -m "vm and not long" $(TESTS); case $$others$$? in 00 | 05 | 50) ;; *) exit 1 ;; esac
test-long: ready-test build/.stamp-fuzzing ## Run the tests that take long
	@$(python) -m pytest -m long $(TESTS)
check: build/.stamp-lint build/.stamp-workloads ## Run linters, types and the unit tests (TESTS="tests/unit/model/test_cage.py": those)
	@$(python) -m pytest -q -n logical --maxprocesses 8 --dist worksteal -m "not long and not vm" \
	  tests/test_linters.py tests/test_imports.py tests/test_shape.py $(or $(TESTS),tests/unit)
lint: build/.stamp-lint ## Run linters, type checks and the rules of the code's shape
	@$(python) -m pytest -q tests/test_linters.py tests/test_imports.py tests/test_shape.py
bench: ready-test ## Measure what the harness costs and how well caps hold (15 minutes; ONLY="caps start": those parts)
	@$(python) -m tests.bench "$$HOST" $(ONLY)

##@ Make and unmake
setup: ready ## Make everything that `make experiment` needs (NAME=... for one experiment, HOST=...)
build: build/.stamp-workloads ## Compile the workloads into build/host/bin
images: .venv/.stamp-run build/.stamp-workloads ## Build container images by Docker or buildah (IMAGES="base workloads notebook harness")
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

# --- what is set up side by side ----------------------------------------------------------------------------------
# Python comes first, because it tells which host HOST=auto is; then nothing waits for what it does not need. Steps that run
# at once share the terminal (tools/step), and Ctrl-C ends all of them.

# A NAME that is no experiment is refused (with the nearest one) as soon as Python is there, before a host is made fit.
known := $(wildcard experiments/$(NAME).toml)
experiment: $(if $(known),ready,.venv/.stamp-plan)

# Only what NAME's experiment runs is compiled for it; once everything has been, everything is kept new.
# A replay and a shell run none, and their limits are driven against a file of pcgen's.
workloads := $(if $(filter pcgen,$(PAGECAGE_WORKLOADS)),$(if $(wildcard build/.stamp-workloads),build/.stamp-workloads,build/.stamp-pcgen),$(if $(and $(known),$(if $(wildcard build/.stamp-workloads),,1)),build/.stamp-workloads-$(NAME),build/.stamp-workloads))
there := $(and $(wildcard .venv/bin/python),$(wildcard .venv/.stamp-plan),$(if $(wildcard .venv/.filling),,whole))
which = $(if $(filter local vm,$(HOST)),$(HOST),$(if $(filter auto,$(HOST)),$(if $(wildcard build/.stamp-guest),vm)))
# Where systemd runs HOST=auto may need no guest; one that it does need is refused room later.
parts = python ansible programs $(if $(filter vm,$(HOST))$(if $(filter auto,$(HOST)),$(if $(wildcard /run/systemd/system),,vm)),guest)

ready:
	@tools/preflight $(parts)
	@$(if $(there),:,$(MAKE) -j .venv/.stamp-plan .venv-ansible/.stamp-ansible)
	@host=$(or $(which),$$($(pagecage) host which "$$HOST")) && $(MAKE) -j "ready-$$host"
ready-local ready-group: .venv/.stamp-run $(workloads)
ready-vm: .venv/.stamp-run $(workloads) build/.stamp-guest
ready-local ready-group ready-vm:
	@:
ready-test:
	@tools/preflight python ansible programs guest
	@$(MAKE) -j build/.stamp-test

# The guest is made while the workloads are compiled, so what makes it is installed before the compilers.
ifneq ($(filter ready-vm build/.stamp-test,$(MAKECMDGOALS)),)
build/.stamp-compilers: | build/.stamp-guest-programs
endif

# --- what was set up, and when -----------------------------------------------------------------------------------
# An environment whose interpreter has gone (the system's Python moved on), or whose making was cut short, is made anew.

ifneq ($(if $(wildcard .venv/bin/python),$(wildcard .venv/.filling),gone),)
.venv/.stamp-plan .venv/.stamp-run .venv/.stamp-site .venv/.stamp-dev: FORCE
endif
ifeq ($(wildcard .venv-ansible/bin/python),)
.venv-ansible/.stamp-ansible: FORCE
endif

.venv/.stamp-plan: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap controller)
	@tools/bootstrap plan
.venv/.stamp-run: | .venv/.stamp-plan
.venv/.stamp-run: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap controller analysis)
	@tools/bootstrap run
.venv/.stamp-site: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap controller analysis site)
	@tools/bootstrap site
.venv/.stamp-dev: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap controller analysis site dev)
	@tools/bootstrap dev
.venv-ansible/.stamp-ansible: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap ansible)
	@tools/bootstrap ansible

# Programs of this machine: the same kind of role that makes any host fit. Its packages are asked only for what is missing.
# A JDK is large and only one experiment has a workload in Java: it is installed for that one, and for the tests. clang is
# needed by the long tests alone.
role := ansible/controller.yml $(shell find ansible/roles/controller -type f 2>/dev/null)
purposes := compilers:build guest-programs:guest jdk:jdk fuzzing:fuzzing browser:browser lint-programs:lint
define controller # stamp, purpose
build/.stamp-$(1): .venv-ansible/.stamp-ansible $$(role)
	@tools/bootstrap controller $(2)
	@touch $$@
endef
$(foreach pair,$(purposes),$(eval $(call controller,$(firstword $(subst :, ,$(pair))),$(lastword $(subst :, ,$(pair))))))

with_java := $(filter ready-test build/.stamp-test,$(MAKECMDGOALS)) $(if $(known),$(shell grep -ls -e -java "$(known)"))
sources := Cargo.toml Cargo.lock tools/build-workloads $(shell find workloads .cargo -type f 2>/dev/null)
build/.stamp-workloads build/.stamp-workloads-$(NAME): $(if $(strip $(with_java)),build/.stamp-jdk,$(wildcard build/.stamp-jdk))
build/.stamp-workloads: build/.stamp-compilers $(sources)
	@tools/build-workloads $(target)
	@touch $@
build/.stamp-pcgen: build/.stamp-compilers $(sources)
	@tools/build-workloads $(target) pcgen
	@touch $@
build/.stamp-workloads-%: build/.stamp-compilers experiments/%.toml $(sources)
	@tools/build-workloads $(target) "$*"
	@touch "$@"

# A start makes a guest that is missing or out of date by itself; here it is made beside everything else.
build/.stamp-guest: | .venv/.stamp-plan build/.stamp-guest-programs
	@mkdir -p build
	@tools/step guest "making the guest" $(pagecage) host prepare vm $(if $(known),--for "$$NAME" --size "$$SIZE" $(if $(CAGE),--cage "$$CAGE"))
	@touch $@

build/.stamp-lint: .venv/.stamp-dev .venv-ansible/.stamp-ansible build/.stamp-compilers build/.stamp-lint-programs
	@touch $@
build/.stamp-test: build/.stamp-lint build/.stamp-workloads build/.stamp-guest build/.stamp-browser
	@touch $@
