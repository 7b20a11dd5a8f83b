# Each target sets up what it needs once, and records that in stamps (below). All paths are
# relative, so the checkout may be in any folder, also one with spaces in its name.

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
# Two processes for each CPU: half of the time a test waits, for a process or for a time to pass.
parallel := -n $(shell n=$$(($$(nproc) * 2)); echo $$((n < 8 ? n : 8))) --dist worksteal
# The tests of a selection: first those outside of the guest, then those inside, one after the other.
define pytest
tools/run-tests $(parallel) -m "$(1) and not vm" $(TESTS); others=$$?; \
  tools/run-tests -m "$(1) and vm" $(TESTS); case $$others$$? in 00 | 05 | 50) ;; *) exit 1 ;; esac
endef
native := $(shell uname -m)
target := $(native)-unknown-linux-gnu
foreign := $(filter-out $(native),$(MACHINE))
programs_for_foreign := $(if $(foreign),build/.stamp-programs-for-$(foreign))
plugin := build/host/lib/libpcvolume.so
device = $(if $(DEVICE),--device "$$DEVICE")
only = $(foreach level,$(ONLY),--treatment $(level))
ask = $(if $(ASK),--ask-password)
locks := bootstrap controller analysis site notebook dev ansible roles

.PHONY: help ready ready-local ready-group ready-vm experiment replay shell report publish list doctor provision verify unprovision setup build wheel images sbom audit test test-slow test-long check lint lock bench trust trust-long clean distclean FORCE

help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 } \
	  /^#- / { printf "  %s\n", substr($$0, 4) }' $(MAKEFILE_LIST)

##@ Run
experiment: ## Run an experiment and make its report (NAME=..., see `make list`)
	@$(pagecage) run "$$NAME" --host "$$HOST" --size "$$SIZE" $(if $(BUDGET),--budget "$$BUDGET") $(if $(CAGE),--cage "$$CAGE") \
	  $(only) $(if $(REPEATS),--repeats "$$REPEATS") $(if $(RESUME),--resume) $(if $(FLEET),--fleet "$$FLEET") $(ARGS)
replay shell: export PAGECAGE_WORKLOADS := pcgen
replay: ready ## Run a program in a cage and without limits (CAGE=..., CMD='program arguments' or a command of sh, ARGS='--cold FILES')
	@$(pagecage) replay "$$CAGE" --host "$$HOST" $(if $(REPEATS),--repeats "$$REPEATS") $(if $(value CMD),--command "$$CMD") $(ARGS)
shell: ready ## Open a shell in a cage (CAGE=...)
	@$(pagecage) shell "$$CAGE" --host "$$HOST" $(ARGS)
report: .venv/.stamp-run ## Make the report of a run again (RUN=an experiment, for its newest run, or a run's folder)
	@$(pagecage) show "$$RUN" --html
publish: .venv/.stamp-site ## Make a static site of runs in site/ (RUNS="a b"; default: the newest of each experiment)
	@$(pagecage) publish $(RUNS) --out "$(OUT)"
list: .venv/.stamp-plan ## List the experiments
	@$(pagecage) list
doctor: .venv/.stamp-plan ## Report what this machine lacks for measuring, and how to fix it
	@$(pagecage) doctor

##@ Hosts
provision: ready .venv-ansible/.stamp-ansible ## Prepare the hosts of a group (HOST=local, vm or a group; DEVICE=... for one host; ASK=1 asks for sudo's password)
	@$(pagecage) host provision "$$HOST" $(device) $(if $(NAME),--for "$$NAME") $(ask) $(ARGS)
verify: ready .venv-ansible/.stamp-ansible ## Report what they lack; changes nothing
	@$(pagecage) host verify "$$HOST" $(ask) $(ARGS)
unprovision: ready .venv-ansible/.stamp-ansible ## Restore them (data stay; ERASE=1 destroys them)
	@$(pagecage) host unprovision "$$HOST" $(ask) $(if $(ERASE),--erase) $(ARGS)

##@ Check
test: ready-test ## Run the tests, some of them in the guest (12 minutes; TESTS="tests/unit -k cage" for some)
	@$(call pytest,not slow and not long)
test-slow: ready-test ## Run the tests that `make test` leaves out for time, most of them in the guest (21 minutes)
	@$(call pytest,slow and not long)
test-long: ready-test build/.stamp-fuzzing build/.stamp-cross-programs ## Run the long tests
	@$(python) -m pytest -m long $(TESTS)
check: build/.stamp-lint build/.stamp-workloads ## Run linters, type checks and unit tests (TESTS="tests/unit/model/test_cage.py" for some)
	@$(python) -m pytest -q $(parallel) -m "not slow and not long and not vm" \
	  tests/test_linters.py tests/test_imports.py tests/test_shape.py $(or $(TESTS),tests/unit)
lint: build/.stamp-lint ## Run linters, type checks and the rules for imports and sizes
	@$(python) -m pytest -q tests/test_linters.py tests/test_imports.py tests/test_shape.py
bench: ready-test ## Measure the overhead of the harness and the accuracy of caps (17 minutes; ONLY="caps start" for some parts)
	@$(python) -m tests.bench "$$HOST" $(ONLY)
trust: ready-test ## Measure how often pagecage is wrong, and write docs/TRUST.md (5 minutes)
	@$(python) -m tests.trust
	@$(python) -m tests.trust.faults --sample 300
trust-long: ready-test ## Inject every fault, kill parts of real runs, cut the power, ask five witnesses, try every disk (hours)
	@$(python) -m tests.trust.faults
	@$(python) -m tests.trust.local_kills
	@$(python) -m tests.trust.power_loss
	@$(python) -m tests.trust.guest_kills
	@$(python) -m tests.trust.guest_kills --guest own
	@$(python) -m tests.trust.guest_lies.campaign
	@$(python) -m tests.trust.witnesses.campaign
	@$(python) -m tests.trust.disks.campaign
	@$(python) -m tests.trust.page

##@ Build and clean
setup: ready ## Set up everything that `make experiment` needs (NAME=... for one experiment, HOST=...)
build: $(or $(programs_for_foreign),build/.stamp-workloads $(plugin)) ## Compile the workloads into build/host/bin, and the simulated volume into build/host/lib (MACHINE=aarch64 cross-compiles)
wheel: .venv/.stamp-plan $(if $(foreign),build/.stamp-compilers,build/.stamp-workloads $(plugin)) ## Build an installable wheel in dist/ (MACHINE=aarch64 cross-compiles)
	@tools/build-wheel $(MACHINE)
images: .venv/.stamp-run build/.stamp-workloads $(plugin) ## Build container images with Docker or buildah (IMAGES="base workloads notebook harness")
	@tools/build-images $(IMAGES)
sbom: ## List the contents of the built images, as CycloneDX (build/images/*.cdx.json)
	@tools/sbom $(IMAGES)
audit: ## Audit the locked dependencies by pip-audit and cargo-audit, where their databases can be had
	@tools/audit
lock: .venv/.stamp-dev ## Update requirements/*.txt from *.in (UPGRADE=1 takes the newest versions)
	@set -e; for name in $(locks); do \
	  $(python) -m uv --system-certs pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-header $(if $(UPGRADE),--upgrade) \
	    "requirements/$$name.in" -o "requirements/$$name.txt"; done
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
#- If a command fails, make exits with 2. `.venv/bin/pagecage` has its own exit codes (docs/FORMAT.md).

# --- parallel set-up ----------------------------------------------------------------------------------------------
# Python comes first, because it determines the host of HOST=auto. The other steps run in parallel
# where they do not depend on each other. They share the terminal (tools/step), and Ctrl-C ends all
# of them.

# An unknown NAME is refused, with the nearest known one, as soon as Python is installed.
known := $(wildcard experiments/$(NAME).toml)
experiment: $(if $(known),ready,.venv/.stamp-plan)

# Only the workloads of NAME's experiment are compiled. Once all have been compiled, all are kept up
# to date. A replay and a shell run no workload; their calibration needs a file made by pcgen.
workloads := $(if $(filter pcgen,$(PAGECAGE_WORKLOADS)),$(if $(wildcard build/.stamp-workloads),build/.stamp-workloads,build/.stamp-pcgen),$(if $(and $(known),$(if $(wildcard build/.stamp-workloads),,1)),build/.stamp-workloads-$(NAME),build/.stamp-workloads))
# Only one experiment needs Lucene, which Maven fetches.
lucene := $(if $(known),$(if $(shell grep -ls pclucene-java "$(known)"),build/.stamp-lucene))
# A simulated volume of the guest is served by nbdkit; one of this machine by FUSE and loop devices,
# or where it has none by nbdkit too. Experiments that name none do without.
with_volume := $(if $(known),$(shell grep -lsE 'enforced_by|-volume"' "$(known)"),yes)
volume := $(if $(with_volume),$(plugin) build/.stamp-volume-programs)
has_fuse := $(and $(wildcard /dev/fuse),$(wildcard /sbin/losetup /usr/bin/losetup),$(wildcard /sbin/mke2fs /usr/bin/mke2fs))
attached := $(if $(with_volume),$(plugin) $(if $(has_fuse),,build/.stamp-volume-programs))
# An experiment that names packages needs a guest's image that contains them.
with_packages := $(if $(known),$(shell grep -ls '^packages' "$(known)"))
guest := build/.stamp-$(if $(with_packages),packages-$(NAME),guest)
there := $(and $(wildcard .venv/bin/python),$(wildcard .venv/.stamp-plan),$(if $(wildcard .venv/.filling),,whole))
which = $(filter local vm,$(HOST))
plan_for = $(if $(known),--for "$$NAME" --size "$$SIZE" $(if $(CAGE),--cage "$$CAGE") $(only))

ready:
	@tools/preflight python programs $(if $(filter vm,$(HOST)),guest)
	@$(if $(there),:,$(MAKE) .venv/.stamp-plan)
	@host=$(or $(which),$$($(pagecage) host which "$$HOST" $(plan_for))) && \
	  case $$host in vm) tools/preflight guest ;; esac && $(MAKE) -j "ready-$$host"
ready-local: .venv/.stamp-run $(workloads) $(lucene) build/.stamp-recorders $(attached)
ready-group: .venv/.stamp-run .venv-ansible/.stamp-ansible $(workloads) $(lucene) $(programs_for_foreign)
ready-vm: .venv/.stamp-run $(workloads) $(lucene) $(guest) $(volume) $(programs_for_foreign)
ready-local ready-group ready-vm:
	@:
ready-test:
	@tools/preflight python ansible programs guest
	@$(MAKE) -j build/.stamp-test

# The guest is made while the workloads are compiled, so its programs are installed before the
# compilers.
ifneq ($(filter ready-vm build/.stamp-test,$(MAKECMDGOALS)),)
build/.stamp-compilers: | build/.stamp-guest-programs
endif

# --- stamps of finished set-up -----------------------------------------------------------------------------------
# An environment without its interpreter (the system's Python was upgraded), or one that was
# interrupted, is made again.

ifneq ($(if $(wildcard .venv/bin/python),$(wildcard .venv/.filling),gone),)
.venv/.stamp-plan .venv/.stamp-run .venv/.stamp-site .venv/.stamp-dev: FORCE
endif
ifeq ($(wildcard .venv-ansible/bin/python),)
.venv-ansible/.stamp-ansible .venv-ansible/.stamp-roles: FORCE
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
.venv-ansible/.stamp-roles: | .venv-ansible/.stamp-ansible
.venv-ansible/.stamp-roles: tools/bootstrap $(patsubst %,requirements/%.txt,bootstrap ansible roles)
	@tools/bootstrap roles

# Programs of this machine, installed as an Ansible role says if they are missing. A JDK is large, and
# only one experiment has a workload in Java: it is installed for that experiment and for the tests.
# Only the long tests need clang, and compilers for the other architecture.
role := ansible/controller.yml $(shell find ansible/roles/controller -type f 2>/dev/null)
purposes := compilers:build guest-programs:guest recorders:record volume-programs:volume jdk:jdk maven:maven fuzzing:fuzzing cross-programs:cross browser:browser lint-programs:lint
define controller # stamp, purpose
build/.stamp-$(1): tools/bootstrap $$(role)
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

build/.stamp-programs-for-%: build/.stamp-compilers tools/cross $(sources)
	@tools/build-workloads $*-unknown-linux-gnu
	@tools/build-volume $*-unknown-linux-gnu
	@touch $@

build/.stamp-lucene: build/.stamp-maven tools/build-lucene $(wildcard workloads/lucene/*)
	@tools/build-lucene
	@touch $@

$(plugin): build/.stamp-compilers Cargo.toml Cargo.lock tools/build-volume $(shell find volume/Cargo.toml volume/src -type f 2>/dev/null)
	@tools/build-volume $(target)

# A run makes a missing or outdated guest itself. Here it is made in parallel with the other steps.
build/.stamp-guest build/.stamp-packages-$(NAME): | .venv/.stamp-plan .venv-ansible/.stamp-ansible build/.stamp-guest-programs
	@mkdir -p build
	@tools/step guest "making the guest" $(pagecage) host prepare vm $(plan_for)
	@touch $@

build/.stamp-lint: .venv/.stamp-dev .venv-ansible/.stamp-roles build/.stamp-compilers build/.stamp-lint-programs
	@touch $@
build/.stamp-test: build/.stamp-lint build/.stamp-workloads $(plugin) build/.stamp-volume-programs build/.stamp-guest build/.stamp-browser
	@touch $@
