# Everything here works from a fresh clone on Linux with Go, git, make and a C compiler (the race detector's).
# Steps longer than a line live in hack/. `make help` lists the targets and the variables that they take.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Targets share bin/ and the machine; Go itself builds and tests in parallel.
.NOTPARALLEL:

# As in hack/env.sh, which says why.
export CGO_ENABLED ?= 0
GOFLAGS ?= $(shell go env GOFLAGS 2>/dev/null)
override GOFLAGS := $(strip $(GOFLAGS) $(if $(filter -trimpath,$(GOFLAGS)),,-trimpath))
export GOFLAGS

LAB_DIR ?= .lab
REPLICAS ?= 3
NODES ?= 0
CLUSTERS ?= 1
LIGHT ?= 0
LANDSCAPE_FLAGS ?=
SCALE_FLAGS ?=
CLOUDSIM_FLAGS ?=
FLEET_FLAGS ?=
CLOUDS ?=
DRIVERS ?=
TRACING ?=
MACHINE_CONFIGURATION ?=
DAEMON_FLAGS ?=
FUZZTIME ?= 30s
ATTACK_TIME ?= 1h
MODEL_TIME ?= 30m
KEEP ?=
PICTURE ?=
RECORD ?=
NETS ?= ci
MUTANT ?=
# What binaries report of their build: the checkout's if they are empty; see hack/version.sh.
VERSION ?=
COMMIT ?=
DATE ?=
IMAGE ?=
PLATFORMS ?=
PROGRAM ?=
stamp = $(shell VERSION='$(VERSION)' COMMIT='$(COMMIT)' DATE='$(DATE)' hack/version.sh)
tracing := $(filter-out 0 false no,$(TRACING))

##@ General

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "; print "usage: make <target> [VARIABLE=value ...]"} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: build-lab build-fleet build-daemon build-kubectl-mcf ## Build everything into bin/ (the first time takes minutes: Kubernetes is part of it); VERSION, COMMIT, DATE

.PHONY: build-fleet
build-fleet:
	@go build -ldflags "$(stamp)" -o bin/ ./cmd/machine-controller-fleet

.PHONY: build-daemon
build-daemon:
	@go build -ldflags "-s -w $(stamp)" -o bin/ ./cmd/machine-config-daemon

# The plugin "kubectl mcf", and its completion: with bin in the PATH, kubectl finds both.
.PHONY: build-kubectl-mcf
build-kubectl-mcf:
	@go -C cmd/kubectl-mcf build -ldflags "-s -w $(stamp)" -o ../../bin/ .
	@install -m 755 cmd/kubectl-mcf/kubectl_complete-mcf bin/

.PHONY: build-lab
build-lab:
	@hack/build-lab.sh

# Only for labs with Azure.
.PHONY: build-azure
build-azure:
	@go -C driver/azure build -o ../../bin/ ./cmd/azure-driver ./cmd/azuresim

.PHONY: image
image: ## Build the container image into bin/image, without a container runtime: VERSION, COMMIT, DATE, IMAGE (name:tag), PLATFORMS, PROGRAM (folder; of a driver)
	@PROGRAM="$(PROGRAM)" VERSION="$(VERSION)" COMMIT="$(COMMIT)" DATE="$(DATE)" IMAGE="$(IMAGE)" PLATFORMS="$(PLATFORMS)" hack/image.sh build

.PHONY: daemon
daemon: ## Build machine-config-daemon for machines into bin/daemon, with checksums: VERSION, COMMIT, DATE, PLATFORMS
	@VERSION="$(VERSION)" COMMIT="$(COMMIT)" DATE="$(DATE)" PLATFORMS="$(PLATFORMS)" hack/daemon.sh

.PHONY: kubectl-mcf
kubectl-mcf: ## Build the plugin "kubectl mcf" into bin/krew, with archives, checksums and a manifest of krew: VERSION, COMMIT, DATE, PLATFORMS
	@VERSION="$(VERSION)" COMMIT="$(COMMIT)" DATE="$(DATE)" PLATFORMS="$(PLATFORMS)" hack/kubectl-mcf.sh

.PHONY: image-push
image-push: ## Push the image in bin/image as IMAGE (registry/name:tag)
	@IMAGE="$(IMAGE)" hack/image.sh push

.PHONY: chart
chart: ## Pack the Helm chart of VERSION (v0.1.0) into bin/chart
	@hack/build-helm.sh
	@bin/helm package charts/machine-controller-fleet --destination bin/chart \
	  $(if $(VERSION),--version "$(VERSION:v%=%)" --app-version "$(VERSION:v%=%)")

# Only for labs with tracing.
.PHONY: build-jaeger
build-jaeger:
	@hack/build-jaeger.sh

.PHONY: clean
clean: ## Remove what was built; labs stay, stop them with lab-down
	@rm -rf bin

##@ Try it

.PHONY: demo
demo: build $(if $(tracing),build-jaeger) ## Watch a fleet at work on its own control plane: REPLICAS (3), CLUSTERS=5 for many target clusters, TRACING=1, PICTURE=file.svg; KEEP=1 leaves it running
	@go build -o bin/ ./e2e/demo
	@exec bin/demo --replicas "$(REPLICAS)" --clusters "$(CLUSTERS)" --light "$(LIGHT)" $(if $(filter-out 0 false no,$(KEEP)),--keep) $(if $(tracing),--tracing) $(if $(PICTURE),--picture "$(PICTURE)")

.PHONY: lab-up
lab-up: build $(if $(tracing),build-jaeger) ## Start a lab in LAB_DIR (.lab): REPLICAS (3), NODES (0), CLUSTERS (1), LIGHT (0), TRACING=1, MACHINE_CONFIGURATION=1, CLOUDSIM_FLAGS, FLEET_FLAGS, DAEMON_FLAGS, CLOUDS, DRIVERS
	@bin/lab up --dir "$(LAB_DIR)" --replicas "$(REPLICAS)" --nodes "$(NODES)" --clusters "$(CLUSTERS)" --light "$(LIGHT)" \
	  --cloudsim-flags "$(CLOUDSIM_FLAGS)" --fleet-flags "$(FLEET_FLAGS)" --clouds "$(CLOUDS)" --drivers "$(DRIVERS)" $(if $(tracing),--tracing) \
	  $(if $(filter-out 0 false no,$(MACHINE_CONFIGURATION)),--machine-configuration --daemon-flags "$(DAEMON_FLAGS)")

.PHONY: lab-status
lab-status: bin/lab ## Show what runs in LAB_DIR
	@bin/lab status --dir "$(LAB_DIR)"

.PHONY: lab-down
lab-down: bin/lab ## Stop what runs in LAB_DIR, and nothing else
	@bin/lab down --dir "$(LAB_DIR)"

# Looking at a lab and stopping it works with the launcher that started it, regardless of the state of the sources.
bin/lab:
	@hack/build-lab.sh

##@ Change it

.PHONY: generate
generate: ## Generate deepcopy, CRDs and the typed client from the API types, pages of docs/ from the code, dashboards, and what the chart and the lab share
	@hack/generate.sh
	@hack/render-chart.sh

.PHONY: fmt
fmt: ## Format all Go code
	@hack/lint.sh fmt

.PHONY: lint
lint: ## Lint all modules; the lab only when it changed
	@hack/lint.sh root lab

.PHONY: chart-lint
chart-lint: ## Lint, render and validate the Helm chart, test its alerts, and try values that it must refuse; hack/chart-lint.sh -update writes the expected manifests
	@hack/chart-lint.sh

.PHONY: verify
verify: ## Check what must hold before a commit: generated code, modules, lint, rules, vulnerabilities if the database answers
	@hack/verify.sh

.PHONY: vuln
vuln: ## Check for known vulnerabilities; fails where the database (VULNDB, https://vuln.go.dev) does not answer
	@hack/vuln.sh

##@ Test it

.PHONY: test
test: ## What every change waits for: unit tests, journeys of a user in a lab, some faults; the end says what failed and how to repeat it
	@hack/test.sh test

.PHONY: test-all
test-all: ## All of make test, then what takes longer: clouds, long journeys, image, installation, alerts, attacks, more faults
	@hack/test.sh test more

.PHONY: test-unit
test-unit: ## The unit tests of make test; SHUFFLE=7 runs them in another order
	@hack/test.sh unit

.PHONY: test-e2e
test-e2e: ## All end-to-end tests
	@hack/test.sh e2e e2e-rest smoke

.PHONY: helm-e2e
helm-e2e: ## The documented installation in a lab: scale, upgrade, roll back, lose a Node and reinstall under load, in some minutes
	@hack/test.sh helm

.PHONY: alerts-e2e
alerts-e2e: ## Have each alert of the chart fire by a fault, and none in a rollout without one, with a real Prometheus; some 15 min
	@hack/test.sh alerts

.PHONY: autoscaler-e2e
autoscaler-e2e: build ## Have upstream's cluster-autoscaler scale fleets for pending pods, some 10 min: AUTOSCALER (the program, with the provider externalgrpc)
	@[ -x "$(AUTOSCALER)" ] || { echo "autoscaler-e2e: expected AUTOSCALER to be the path of a cluster-autoscaler with the provider externalgrpc, got '$(AUTOSCALER)'" >&2; exit 2; }
	@AUTOSCALER="$(abspath $(AUTOSCALER))" go test -tags e2e -count=1 -timeout 25m -v ./e2e -run TestUpstreamAutoscaler

.PHONY: page-e2e
page-e2e: ## Test the page of the fleet in a headless Chromium, some 2 min; needs npm and Chromium: CHROMIUM (/usr/bin/chromium)
	@hack/page-e2e.sh

.PHONY: everything-e2e
everything-e2e: build ## All verbs of kubectl mcf and the page on a lab in which everything happens at once, some 8 min; needs npm and Chromium; RECORD=1 writes its docs
	@RECORD="$(filter-out 0 false no,$(RECORD))" hack/page-e2e.sh everything

.PHONY: plan-e2e
plan-e2e: build ## Compare plans of kubectl mcf with what happens in a lab, some 10 min: PLANS (50), SEED; bin/plans.md
	@go test -tags e2e -count=1 -timeout 60m -v ./e2e -run '^TestPlans' -plans=$(or $(PLANS),50) -plan-table='$(CURDIR)/bin/plans.md' $(if $(SEED),-plan-seed=$(SEED))

.PHONY: scale-e2e
scale-e2e: build ## Scale a fleet by its load with KEDA and a real Prometheus, some 6 min, the first time an hour more; needs root; bin/scaling.csv and .svg
	@hack/build-helm.sh
	@hack/build-prometheus.sh
	@hack/build-keda.sh
	@go test -tags e2e -count=1 -timeout 25m -v ./e2e/scale

.PHONY: chaos
chaos: ## The faults in their long form, at most 90 minutes; SEED repeats a run
	@hack/test.sh chaos

# The test ends by itself shortly after ATTACK_TIME.
.PHONY: attack
attack: build ## Attack a fleet in the lab at random for ATTACK_TIME (1h), in addition to the attacks of make test-all; SEED repeats them
	@ATTACK_TIME="$(ATTACK_TIME)" go test -tags e2e -count=1 -timeout 0 -v ./e2e/attack

# -timeout is for what hangs: MODEL_TIME ends it long before.
.PHONY: model
model: ## Explore the protocol's large scenarios, MODEL_TIME (30m) for each at most, with up to 2 GB of memory
	@MODEL_TIME="$(MODEL_TIME)" go test -count=1 -timeout 12h -v -run TestLargeScenarios ./shard/verification/model

.PHONY: nightly
nightly: build ## What takes hours: model (MODEL_TIME), simulation (SEEDS=500000), fleet, sweeps of orphans, properties, alerts, everything at once, chaos; SEED repeats a night
	@MODEL_TIME="$(MODEL_TIME)" hack/nightly.sh

.PHONY: mutants
mutants: ## Remove one rule of the protocol at a time, and run tests until one fails: NETS=own|quick|ci|nightly, MUTANT=<part of ID, file or change>
	@go build -o bin/ ./e2e/mutants
	@nice -n 10 bin/mutants -nets "$(NETS)" -only "$(MUTANT)" -seeds "$(or $(SEEDS),20000)"

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@hack/fuzz.sh "$(FUZZTIME)"

.PHONY: bench
bench: build build-jaeger ## Measure against the floor in LAB_DIR; a missed bar makes it fail
	@go build -o bin/ ./e2e/bench
	@exec bin/bench --lab-dir "$(LAB_DIR)"

.PHONY: bench-scale
bench-scale: build ## Measure fleets of several sizes against the floor, with 1,000 machines: SCALE_FLAGS, such as --scale-sizes=5000x100
	@go build -o bin/ ./e2e/bench
	@exec bin/bench --lab-dir "$(LAB_DIR)" --parts=scale $(SCALE_FLAGS)

.PHONY: bench-landscape
bench-landscape: build ## Measure a fleet of many target clusters: LANDSCAPE_FLAGS, such as --clusters=20 --light=180 --machines=5
	@go build -o bin/ ./e2e/landscape
	@exec bin/landscape $(LANDSCAPE_FLAGS)
