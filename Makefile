# `make test` is everything a change must pass. Each step is also a target of its own.

GO ?= go

STATICCHECK   = honnef.co/go/tools/cmd/staticcheck@v0.8.2
WORKFLOWCHECK = go.temporal.io/sdk/contrib/tools/workflowcheck@v0.6.0

# Two packages at a time: many tests start processes and servers, and a machine of two cores is to run them in peace.
TEST_PACKAGES_AT_ONCE ?= 2
TEST_TIMEOUT          ?= 20m

.PHONY: test check build build-darwin bin tree format vet staticcheck workflowcheck compose-check alerts-check temporal-server go-test bench soak replay-record

test: check go-test

check: build build-darwin tree format vet staticcheck workflowcheck compose-check alerts-check

build:
	$(GO) build ./...

# The parts that differ by operating system must go on compiling on the other one.
build-darwin:
	CGO_ENABLED=0 GOOS=darwin $(GO) build ./...

# The programs, into bin/.
bin:
	$(GO) build -trimpath -o bin/ ./cmd/...

tree:
	scripts/check-tree.sh

format:
	scripts/check-format.sh

vet:
	$(GO) vet ./...

staticcheck:
	$(GO) run $(STATICCHECK) ./...

# Says where a workflow could do something else on replay.
workflowcheck:
	$(GO) run $(WORKFLOWCHECK) -config scripts/workflowcheck.yaml -test=false ./workflows/...

compose-check:
	scripts/check-compose.sh docker-compose.temporal.yml

alerts-check:
	scripts/check-alerts.sh

# The Temporal server that tests start: found, downloaded, or built once in about three minutes.
temporal-server:
	$(GO) run ./internal/devserver/provide

# Never from the cache: tests talk to servers and processes that the cache knows nothing of.
go-test: temporal-server
	$(GO) test -race -count=1 -p $(TEST_PACKAGES_AT_ONCE) -timeout $(TEST_TIMEOUT) ./...

# What Tempool is compared with, in turns on this machine; docs/benchmarks.md says how to read it.
bench: temporal-server
	scripts/setup-bench-debian.sh
	$(GO) run ./test/bench

# Long: ten thousand leases on one worker, a thousand rotations, ten minutes of calls with a worker killed every second, ten
# thousand sessions on eight workers, a minute without Temporal.
soak: temporal-server
	$(GO) test -count=1 -timeout 60m -parallel 1 ./test/e2e -run 'TestManyLeases|TestManyRotations|TestWithAWorkerKilled|TestACrowd|TestCallsGoOn|AlwaysCrashes' -v \
		-pairs 10000 -rotations 1000 -soak 10m -sessions 10000 -outage 60s -crashers 4

# Histories of real runs for test/replay, in a folder named after the version that is about to be shipped.
RECORD_VERSION ?= v0.1
replay-record: temporal-server
	rm -rf /tmp/tempool-recorded
	$(GO) test -count=1 -parallel 2 -timeout 20m ./test/e2e -record $(CURDIR)/test/replay/testdata/$(RECORD_VERSION) \
		-run 'AKilled|Expires|Scales|Budget|Noticing|ByHand|Ctl|Pending|Capacity|Lost|Asked|Recalled|Migrates|EvacuatingA|RebalancingMoves|IsReset|AlwaysCrashes'
