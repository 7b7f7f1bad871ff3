# `make test` runs all checks and tests that a change must pass. Each step is also a target of its own.
# `make test-short` runs the tests that need no Temporal server, in less than 90 seconds on two cores.

GO ?= go

STATICCHECK   = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOSEC         = github.com/securego/gosec/v2/cmd/gosec@v2.22.4
GOVULNCHECK   = golang.org/x/vuln/cmd/govulncheck@v1.9.0
WORKFLOWCHECK = go.temporal.io/sdk/contrib/tools/workflowcheck@v0.6.0

# Packages tested concurrently: many tests start processes and servers, and more would overload a machine with two cores.
TEST_PACKAGES_AT_ONCE ?= 2
TEST_TIMEOUT          ?= 40m
# Tests of one package that run concurrently: those with a Temporal server of their own mostly wait.
TESTS_AT_ONCE         ?= 4

.PHONY: test test-short check build build-darwin bin tree format vet staticcheck gosec govulncheck workflowcheck compose-check alerts-check temporal-server go-test ui-test test-cluster test-traces test-alerts bench soak replay-record replay-state-fields

test: check go-test ui-test

# Fast tests while you work on a change: without the race detector, without the packages that start a Temporal server, and
# without the slowest examples and the suites of the SDKs. sessions/redis needs redis-server (scripts/setup-debian.sh).
NOT_SHORT      = test/e2e|cmd/starter/starter|internal/devserver|examples/function|examples/lsp|examples/mcp|examples/model|examples/programs
NOT_SHORT_TEST = ^TestTheSDKsOwnSuitesPass$$
test-short:
	$(GO) test -count=1 -p 2 -timeout 5m -skip '$(NOT_SHORT_TEST)' $$($(GO) list ./... | grep -vE '/($(NOT_SHORT))(/|$$)')

check: build build-darwin tree format vet staticcheck gosec govulncheck workflowcheck compose-check alerts-check

build:
	$(GO) build ./...

# Code that differs by operating system must also compile for macOS.
build-darwin:
	CGO_ENABLED=0 GOOS=darwin $(GO) build ./...

# Builds the programs into bin/.
bin:
	$(GO) build -trimpath -o bin/ ./cmd/...

tree:
	scripts/check-tree.sh

format:
	scripts/check-format.sh

vet:
	$(GO) vet ./...
	$(GO) vet -tags cluster ./test/e2e
	$(GO) vet -tags alerts ./test/e2e
	cd test/ui && $(GO) vet ./...

staticcheck:
	$(GO) run $(STATICCHECK) ./...

# Finds insecure code. The excluded rules contradict what Tempool does: it executes the programs that its operator names (G204), reads the
# files that its flags name (G304), chooses and waits at random where no secret is at stake (G404), makes folders and files that other users
# may read (G301, G302, G306), ignores errors during cleanup, which staticcheck and review check (G104), converts numbers that were checked
# where they entered (G115), names headers and variables that carry tokens (G101), and makes the system calls of Landlock (G103). The search
# for fixed nonces (G407) crashes on cipher.AEAD.
gosec:
	$(GO) run $(GOSEC) -quiet -exclude-generated -exclude=G101,G103,G104,G115,G204,G301,G302,G304,G306,G404,G407 ./...

# Finds calls of code with known vulnerabilities; where the data about them cannot be reached, it only says so.
govulncheck:
	scripts/govulncheck.sh $(GOVULNCHECK)

# Finds code in workflows that is not deterministic on replay.
workflowcheck:
	$(GO) run $(WORKFLOWCHECK) -config scripts/workflowcheck.yaml -test=false ./workflows/...

compose-check:
	scripts/check-compose.sh docker-compose.temporal.yml

alerts-check:
	scripts/check-alerts.sh

# Provides the Temporal server for tests: finds it, downloads it, or builds it once in about three minutes.
temporal-server:
	$(GO) run ./internal/devserver/provide

# Without the test cache, which does not track servers and processes.
go-test: temporal-server
	$(GO) test -race -count=1 -p $(TEST_PACKAGES_AT_ONCE) -parallel $(TESTS_AT_ONCE) -timeout $(TEST_TIMEOUT) ./...

# Tests the dashboard in a real Chromium. It is a module of its own. With SCREENSHOTS=FOLDER it keeps a picture of each view there.
ui-test: temporal-server
	cd test/ui && $(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./...

# Runs the end-to-end tests on a Temporal cluster: two server processes on PostgreSQL, one of which is killed under load. The first run builds
# the server, which takes about ten minutes. CLUSTER_TESTS chooses tests, as go test -run does.
CLUSTER_TESTS ?= .
test-cluster: temporal-server
	scripts/temporal-cluster.sh setup
	scripts/temporal-cluster.sh run $(GO) test -tags cluster -count=1 -timeout 60m -parallel 2 -run '$(CLUSTER_TESTS)' ./test/e2e

# Runs the test of traces with an OpenTelemetry Collector between agent and test. The first run builds it, which takes about three minutes.
test-traces: temporal-server
	TEMPOOL_COLLECTOR="$$(scripts/otel-collector.sh)" $(GO) test -count=1 -timeout 15m -run 'TestTraces' ./test/e2e

# Makes the conditions that the alerts name, on real agents, and waits until a real Prometheus says so.
test-alerts: temporal-server
	scripts/setup-debian.sh
	$(GO) test -tags alerts -count=1 -timeout 15m -run 'TestAlertsFire' ./test/e2e

# Compares Tempool with alternatives on this machine; docs/benchmarks.md explains the results.
bench: temporal-server
	scripts/setup-bench-debian.sh
	$(GO) run ./test/bench
	$(GO) test -run '^$$' -bench 'StalledEventReader|AViewer' -benchtime 20x ./gateway ./gateway/ui

# Long runs: ten thousand leases on one worker, a thousand rotations, ten minutes of calls with a worker killed every second, ten
# thousand sessions on eight workers, a minute without Temporal, a host cut off from it for 130 seconds, a crash loop of four workers, a
# month in half an hour; an hour of large programs on the defaults.
soak: temporal-server
	$(GO) test -count=1 -timeout 90m -parallel 1 ./test/e2e -run 'TestACompressedMonth|TestManyLeases|TestManyRotations|TestWithWorkersKilled|TestManySessions|TestGatewayCallsSucceed|TestACrashLoop|TestAPartitionWithLeases' -v \
		-month 30m -pairs 10000 -rotations 1000 -soak 10m -sessions 10000 -outage 60s -crashers 4 -partition 130s
	$(GO) test -count=1 -timeout 90m -parallel 2 ./test/e2e -run 'TestALargeProgram' -v -steady 1h

# Records workflow histories for test/replay, in a folder named after the next version, and checks that each message of a workflow is in one.
RECORD_VERSION ?= v0.1
RECORD = $(GO) test -count=1 -parallel 2 -timeout 20m ./test/e2e -record $(CURDIR)/test/replay/testdata/$(RECORD_VERSION)
replay-record: temporal-server replay-state-fields
	rm -rf /tmp/tempool-recorded
	$(RECORD) -run 'Terminated|HostsWorkflow|AnAgentThatIsKilled|AKilled|Expires|Scales|Budget|TemporalOutage|ContinueAsNewOfAPool|ByHand|Ctl|Pending|Capacity|Lost|StoppingAnAgent|Recalled|Migrates|EvacuatingA|RebalancingMoves|IsReset|TestACrashLoop'
	$(RECORD) -pairs 300 -run 'ManyLeases|MemoryPressure|ChangedFiles|TheFirstHost|ExecuteCallsAPool|ALeaseIsRenewed|SessionWorkflowsContinue|TakenBySignal'
	$(RECORD) -run 'ASuspension|HooksOfASuspension|AFrozenProcess|TheFirstRequest|ACallOfAWorkflow|AScheduleScales|ForgetsTheDemand'
	$(GO) test -count=1 ./test/replay -complete

# Records the fields of the state of runs, which workflows.StateFormats number.
replay-state-fields:
	mkdir -p test/replay/testdata/$(RECORD_VERSION)
	$(GO) test -count=1 ./workflows -run TestChangedFieldsOfTheState -record-state $(CURDIR)/test/replay/testdata/$(RECORD_VERSION)
