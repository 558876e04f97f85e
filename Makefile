# dmindex. `make help` lists the targets. Everything a target needs it installs (Debian packages, as root) or builds, and keeps in
# $DMINDEX_CACHE (default ~/.cache/dmindex) for the next time.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/dmindex/dmindex/cmd/dmindex/internal/version.version=$(VERSION) -X main.version=$(VERSION)
IMAGE ?= localhost/dmindex:dev

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

## Build

.PHONY: build
build: ## build bin/dmindex and bin/kubectl-dmindex
	@CGO_ENABLED=0 go build -trimpath -ldflags='$(LDFLAGS)' -o bin/ ./cmd/...

ARCHS ?= amd64 arm64

.PHONY: image
image: ## write the container image for ARCHS (default amd64 arm64) to bin/dmindex.tar (OCI archive), with its SBOM, without a Docker daemon
	@for arch in $(ARCHS); do CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build -trimpath -ldflags='$(LDFLAGS)' -o bin/linux-$$arch/ ./cmd/dmindex; done
	@hack/build-image $(IMAGE) bin/dmindex.tar $(ARCHS)

IMAGE_RDMA ?= localhost/dmindex-rdma:dev
PROGRAM_RDMA ?= bin/dmindex-rdma

.PHONY: image-rdma
image-rdma: ## write the image with RDMA (cgo, rdma-core's libraries) to bin/dmindex-rdma.tar
	@hack/deps libibverbs-dev ibverbs-providers gcc libc6-dev
	@CGO_ENABLED=1 go build -tags ibv -trimpath -ldflags='$(LDFLAGS)' -o $(PROGRAM_RDMA) ./cmd/dmindex
	@hack/build-image-rdma $(IMAGE_RDMA) $(PROGRAM_RDMA)

.PHONY: generate
generate: ## generate code, CRDs and RBAC anew
	@hack/deps protobuf-compiler
	@hack/generate-rpc
	@hack/generate-api

## Test

.PHONY: test
test: ## unit and integration tests, with the race detector and invariants; lint
	@hack/deps redis-server redis-tools protobuf-compiler libibverbs-dev gcc libc6-dev
	@hack/test

.PHONY: quick
quick: ## for each edit: lint and the tests of PACKAGE but its simulations, within two minutes (PACKAGE=pkg/index/dex)
	@hack/quick $(PACKAGE)

.PHONY: lint
lint: ## lint only
	@hack/deps libibverbs-dev gcc libc6-dev
	@hack/lint

.PHONY: check-generated
check-generated: ## fail if generated files are not what `make generate` writes
	@hack/check-generated

.PHONY: fuzz
fuzz: ## run every fuzz test for FUZZTIME (default 30s) each
	@hack/fuzz

.PHONY: test-stops
test-stops: ## run the tests of PACKAGE while their processes are stopped at random (COPIES=2 side by side, RUN=, SEED=, FOR=10m)
	@hack/deps redis-server redis-tools
	@go run ./hack/stops $(if $(SEED),-seed $(SEED)) $(if $(COPIES),-copies $(COPIES)) $(if $(FOR),-for $(FOR)) $(if $(RUN),-run '$(RUN)') $(or $(PACKAGE),./memserver)

.PHONY: sim
sim: ## run DESIGN (default sherman; smart, chime, dolphin, dex, p-sherman, dex-crashes = each part of each request, dex-registers = sessions of a client on the same keys, combine = reading and writing together, fence = leases and fencing, ownership = owners of ranges, ownership-sets and ownership-groups = sorted sets and groups beside them, volumes = copies of memory servers, mirror = what is sent to them, persist = what is written to files, words = lock words, presence = presence words, limits = operations that end in the middle, of every design) under the simulator's adversary, SEEDS (default 1000, of dex-crashes 6) of them
	@hack/sim "$(SEEDS)" $(or $(DESIGN),sherman)

.PHONY: sim-ownership
sim-ownership: ## sim with DESIGN=ownership: operators, compute and memory servers crash while ranges change hands
	@hack/sim $(or $(SEEDS),1000) ownership

.PHONY: rdma
rdma: ## real RDMA verbs: the fabric's suite, a memory server, Sherman, the device plugin; Soft-RoCE under QEMU
	@hack/rdma/run

.PHONY: clients
clients: build ## libraries of Redis in Go, Python, Ruby, PHP, Perl and Node.js, redis-cli, redis-benchmark and go-ycsb, each at its defaults (docs/clients.md); with those of npm; the status page in Chromium
	@hack/deps redis-tools chromium python3-redis ruby-redis php-cli php-redis libredis-perl
	@command -v npm >/dev/null || hack/deps nodejs npm
	@hack/modules test/clients hack/ycsb
	@go -C hack/ycsb build -o ../../bin/ycsb .
	@mkdir -p bin/clients && cp -r test/clients/programs/node bin/clients/
	@cd bin/clients/node && npm ci --no-audit --no-fund --loglevel=error
	@go -C test/clients test -tags languages -count=1 -timeout 60m -v .

.PHONY: bench
bench: ## benchmarks of fabric, index and serving; ratios in one run (of designs: bin/dmindex bench)
	@hack/deps redis-server redis-tools
	@hack/bench

.PHONY: bench-serving
bench-serving: build ## the served path beside redis-server, as ratios (ROWS=set,get SIDES=dex-tcp,dex-shm ROUNDS=5 SCALE=1 KEYS=200000 JSON=FILE)
	@hack/deps redis-server redis-tools
	@hack/modules hack/ycsb
	@go -C hack/ycsb build -o ../../bin/ycsb .
	@go run ./hack/servebench -ycsb bin/ycsb $(if $(ROWS),-rows $(ROWS)) $(if $(SIDES),-sides $(SIDES)) $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(SCALE),-scale $(SCALE)) $(if $(KEYS),-keys $(KEYS)) $(if $(JSON),-json $(JSON))

.PHONY: figures
figures: ## the figures of docs/benchmarks anew, simulated, as Markdown (bin/figures); some 20 minutes of processor time
	@hack/figures

## On a real Kubernetes (CLUSTER=current IMAGE=... uses the cluster of the current kubectl context)

.PHONY: e2e
e2e: ## the short end-to-end suite on a real Kubernetes that it boots itself
	@test/e2e/run short

.PHONY: e2e-full
e2e-full: ## the long end-to-end suite: soaks and matrices
	@test/e2e/run full

.PHONY: demo
demo: ## the main job: boots a cluster, makes an index, loads, asks, scales, breaks and restores it; kills one on disks, which comes back
	@hack/demo/run

.PHONY: demo-down
demo-down: ## end the demo's cluster
	@hack/cluster/down

.PHONY: clean
clean: ## delete what was built here (the cache stays)
	@rm -rf bin
