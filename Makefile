# `make test` runs what a change should pass, on any machine with Go, Python 3, Node.js, git and a C compiler; it installs nothing.
# `make test-all` runs what a change must pass, and installs what that needs. Each step is also a target of its own.

GO ?= go

STATICCHECK   = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK   = golang.org/x/vuln/cmd/govulncheck@v1.9.0
WORKFLOWCHECK = go.temporal.io/sdk/contrib/tools/workflowcheck@v0.6.0
GOTESTSUM     = gotest.tools/gotestsum@v1.13.0

# Packages tested concurrently: many tests wait for processes and servers, and more would overload a machine with two cores.
TEST_PACKAGES_AT_ONCE ?= 3
TEST_TIMEOUT          ?= 40m
# Tests of one package that run concurrently: those with a Temporal server of their own mostly wait.
TESTS_AT_ONCE         ?= 8

# Without the test cache, which does not track servers and processes; without what nobody reads of a hundred test programs: vet is a step of its own,
# and a debugger's symbols take a third of the linking.
TESTRUN = GOTESTSUM=$(SUMMARIZER) scripts/test.sh
TESTS   = -count=1 -vet=off -ldflags=-s -p $(TEST_PACKAGES_AT_ONCE) -parallel $(TESTS_AT_ONCE) -timeout $(TEST_TIMEOUT)

.PHONY: test test-all check lines build build-darwin bin tree format vet staticcheck govulncheck workflowcheck compose-check alerts-check release-snapshot packages-check temporal-server test-race replay-test ui-test test-cluster test-traces test-alerts bench soak replay-record replay-state-fields

# Unlike go run, it needs no network once it is there.
SUMMARIZER = bin/$(GOTESTSUM)/gotestsum
$(SUMMARIZER):
	GOBIN="$(CURDIR)/$(@D)" $(GO) install $(GOTESTSUM)

# All unit tests, and the core of the end-to-end tests (coreTests in test/e2e). A test that lacks a program is skipped; the last line says which.
test: format tree vet temporal-server replay-test $(SUMMARIZER)
	$(TESTRUN) -short $(TESTS) ./...

# As root on Debian. Nothing is skipped.
test-all: export TEMPOOL_TEST_ALL = 1
test-all:
	scripts/setup-debian.sh
	$(MAKE) --no-print-directory --keep-going check replay-test test-race ui-test packages-check

# The cheap ones first; all of them, also if one fails.
CHECKS = format tree build build-darwin vet compose-check alerts-check workflowcheck staticcheck govulncheck
check:
	$(MAKE) --no-print-directory --keep-going $(CHECKS)

# The lines of each package, without and with tests.
lines:
	scripts/lines.sh

build:
	$(GO) build ./...

# Code that differs by operating system must also compile for macOS.
build-darwin:
	CGO_ENABLED=0 GOOS=darwin $(GO) build ./...

# Builds the program into bin/.
bin:
	$(GO) build -trimpath -o bin/ ./cmd/tempool

# Makes the packages in dist/. TARGETS chooses, as in TARGETS=linux/amd64.
release-snapshot:
	scripts/packages.sh

# Tries the packages of linux/amd64, as root on Debian: the archive, rpm and deb in a root file system of their own, the unit, and three hosts. With
# SCREENSHOT=FILE it keeps a picture of these hosts' dashboard.
packages-check: temporal-server
	TARGETS=linux/amd64 scripts/packages.sh
	scripts/check-packages.sh
	scripts/check-three-hosts.sh

tree:
	scripts/check-tree.sh

format:
	scripts/check-format.sh

vet:
	$(GO) vet ./...
	$(GO) vet -tags cluster ./test/e2e
	$(GO) vet -tags alerts ./test/e2e
	cd test/ui && $(GO) vet ./...
	cd test/replay && $(GO) vet ./...

staticcheck:
	$(GO) run $(STATICCHECK) ./...

# Finds calls of code with known vulnerabilities; where the data about them cannot be reached, it only says so.
govulncheck:
	scripts/govulncheck.sh $(GOVULNCHECK)

# Finds code in workflows that is not deterministic on replay.
workflowcheck:
	$(GO) run $(WORKFLOWCHECK) -config scripts/workflowcheck.yaml -test=false ./workflows/... ./tempoolworkflow

compose-check:
	scripts/check-compose.sh docker-compose.temporal.yml

alerts-check:
	scripts/check-alerts.sh

# Provides the Temporal server for tests: finds it, downloads it, or builds it once in about three minutes.
temporal-server:
	$(GO) run ./internal/devserver/provide

# All tests with the race detector, which costs so much processor time that more tests at once would only wait for it.
test-race: TESTS_AT_ONCE = 4
test-race: TEST_PACKAGES_AT_ONCE = 2
test-race: temporal-server $(SUMMARIZER)
	$(GO) build -race ./... # beside the tests it would make them miss their time limits
	$(TESTRUN) -race $(TESTS) ./...

# Replays the recorded histories. They are a module of their own, so that nobody downloads them with the package.
replay-test:
	cd test/replay && $(GO) test -count=1 ./...

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
	$(GO) test -run '^$$' -bench 'StalledEventReader|ToolCalls|AViewer' -benchtime 20x ./gateway ./gateway/ui

# Long runs: ten thousand leases on one worker, a thousand rotations, ten minutes of calls with a worker killed every second, ten
# thousand sessions on eight workers, a minute without Temporal, a host cut off from it for 130 seconds, a crash loop of four workers, 150 leases and 50 kills in
# all views, a month in half an hour; an hour of large programs on the defaults; ten minutes of attacks on isolated processes.
soak: temporal-server
	$(GO) test -count=1 -timeout 90m -parallel 1 ./test/e2e -run 'TestACompressedMonth|TestManyLeases|TestManyRotations|TestWithWorkersKilled|TestManySessions|TestPoolsServeWhile|TestACrashLoop|TestAHostThatIsCutOff|TestEveryView' -v \
		-month 30m -pairs 10000 -rotations 1000 -soak 10m -sessions 10000 -outage 60s -crashers 4 -partition 130s -holders 50 -kills 50
	$(GO) test -count=1 -timeout 90m -parallel 2 ./test/e2e -run 'TestALargeProgram' -v -steady 1h
	$(GO) test -count=1 -timeout 30m ./test/e2e -run 'TestNoProcessServesTwo' -v -soak 10m
	$(GO) test -count=1 ./gateway -run 'TestTheFirstCallsOfAKey' -v -key-rounds 500

# Records workflow histories for test/replay, in a folder named after the next version: as few as have each step of the tests' runs. It checks
# that each message of a workflow is in one.
RECORD_VERSION ?= v0.1
RECORDED = $(CURDIR)/test/replay/testdata/$(RECORD_VERSION)
replay-record: temporal-server replay-state-fields
	rm -rf /tmp/tempool-recorded bin/recorded $(RECORDED)/*.json.gz
	$(GO) test -count=1 -parallel 8 -timeout 20m ./test/e2e -skip 'ALargeProgram|ACompressedMonth|WhoseSpecIsLarge' -record $(CURDIR)/bin/recorded
	cd test/replay && $(GO) test -count=1 -run TestChoose -v -choose-from $(CURDIR)/bin/recorded -choose-into $(RECORDED)
	cd test/replay && $(GO) test -count=1 . -complete

# Records the fields of the state of runs, which workflows.StateFormats number.
replay-state-fields:
	mkdir -p $(RECORDED)
	$(GO) test -count=1 ./workflows -run TestChangedFieldsOfTheState -record-state $(RECORDED)
