package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// poolFile writes a pool.toml for pool python with two workers.
func poolFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pool.toml")
	require.NoError(t, os.WriteFile(path, []byte("[pool]\nname = \"python\"\nsize = 2\ncommand = [\"true\"]\n"), 0o600))
	return path
}

func steps[T any](all ...T) []T { return all }

var bothReady = roster(entry(0, lifecycle.Ready, 1, ""), entry(1, lifecycle.Busy, 1, ""))

func TestPoolStartWaitsUntilAllWorkersAreReady(t *testing.T) {
	begun := roster(entry(0, lifecycle.Starting, 1, ""), entry(1, lifecycle.Created, 0, ""))
	f := newFakeControlPlane(&fakePool{name: "python", view: exampleView(), statuses: steps(
		begun,
		roster(entry(0, lifecycle.Ready, 1, ""), entry(1, lifecycle.Pending, 2, "backoff of 100ms after exit code 1")),
		bothReady,
	)})
	r := succeed(t, f, "pool", "start", "-f", poolFile(t))
	require.Equal(t, []string{"start python"}, f.requests)
	require.Equal(t, lines(
		"python: 0/2 ready; python/0 starting, python/1 created",
		"python: 1/2 ready; python/1 pending: backoff of 100ms after exit code 1",
		"python: 2/2 ready",
	), r.err)
	require.Contains(t, r.out, "Workers (2/4 ready)")

	f.pools["python"].statuses = steps(begun, bothReady)
	r = succeed(t, f, "pool", "start", "-f", poolFile(t), "-o", "json")
	require.Empty(t, r.err)
	require.Equal(t, exampleView(), decode[api.PoolWorkers](t, r), "only the view")
}

func TestPoolStartWithNoWaitReturnsImmediately(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python"})
	r := succeed(t, f, "pool", "start", "-f", poolFile(t), "--no-wait", "-o", "json")
	require.JSONEq(t, `{"pool": "python", "size": 2, "ready": 0, "spec_version": 1, "workers": []}`, r.out)
}

func TestAWaitThatFailsSaysWhy(t *testing.T) {
	log := "the process exited with code 1; the end of its log:\nImportError: no module named numpy"
	stopping, ready := roster(entry(0, lifecycle.Stopping, 1, "")), entry(0, lifecycle.Ready, 1, "")
	stopping.Stopping = true
	gaveUp := roster(ready, api.RosterEntry{Slot: 1, State: lifecycle.Failed, Incarnation: 2, Resting: true})
	rollout := func(status api.PoolStatus, r api.Rollout) api.PoolStatus {
		status.Rollout = &r
		return status
	}
	start, apply, restart := "pool start -f "+poolFile(t), "pool apply -f "+poolFile(t), "workers restart python"
	for name, c := range map[string]struct {
		commands []string
		status   api.PoolStatus
		code     string
		says     []string
	}{
		"a worker that fails again and again": {[]string{start},
			roster(ready, entry(1, lifecycle.Starting, 6, "the wait is over")), "start_failed",
			[]string{"worker python/1 cannot start, it failed 5 times", "tempool workers restart python retries at once",
				"tempool pool apply -f FILE", "tempool pool stop python", log}},
		"a worker that has given up": {[]string{start}, gaveUp, "start_failed",
			[]string{"worker python/1 cannot start, it has given up (failed)", "tempool workers restart python/1", log}},
		"a rollout whose worker has given up": {[]string{apply, restart},
			rollout(gaveUp, api.Rollout{Done: 1, Halted: "halted: worker 1 did not come back: gave up"}),
			"start_failed", []string{"worker 1 did not come back", "    ImportError: no module named numpy"}},
		"a rollout that an operator halted": {[]string{apply, restart},
			rollout(bothReady, api.Rollout{Reason: "restart", Waiting: []int{1}, Halted: "halted: odd", ByOperator: true}),
			"halted", []string{"the rollout of pool python (restart) has halted: odd"}},
		"a rollout that lasts": {[]string{restart + " --wait-timeout 20ms"},
			rollout(bothReady, api.Rollout{Reason: "restart", Waiting: []int{1}, Current: []int{0}}),
			"timeout", []string{"is not done after 20ms (restart: 0 done, restarting [0], waiting [1]); it continues"}},
		"a pool that is stopping": {[]string{start, restart}, stopping, "draining", []string{"is stopping"}},
		"a stop that lasts": {[]string{"pool stop python --wait-timeout 100ms"},
			roster(entry(3, lifecycle.Draining, 1, "slot removed (by pool)")), "timeout",
			[]string{"pool python has not stopped after 100ms; python/3 draining: slot removed (by pool)"}},
	} {
		for _, command := range c.commands {
			t.Run(name+", "+strings.Join(strings.Fields(command)[:2], " "), func(t *testing.T) {
				f := newFakeControlPlane(&fakePool{name: "python", changed: true, neverEnds: true, statuses: steps(c.status),
					history: []lifecycle.Transition{
						{From: lifecycle.Starting, To: lifecycle.Failed, Reason: "an earlier failure"},
						{From: lifecycle.Starting, To: lifecycle.Failed, Reason: log},
						{From: lifecycle.Failed, To: lifecycle.Pending, Reason: "backoff"},
					}})
				e := failure(t, fail(t, f, append(strings.Fields(command), "-o", "json")...))
				require.Equal(t, c.code, e.Code)
				for _, says := range c.says {
					require.Contains(t, e.Message, says)
				}
			})
		}
	}
}

func TestPoolStartSucceedsOrSaysWhatToDo(t *testing.T) {
	unanswered := api.Errorf(api.CodeUnavailable, "the agent restarts")
	skipped := entry(1, lifecycle.Starting, 9, "host a has run incarnation 8 of python/1 for an earlier pool")
	skipped.Starts = 0 // the number of an incarnation says nothing about failures
	ready, starting := entry(0, lifecycle.Ready, 1, ""), entry(1, lifecycle.Starting, 1, "")
	for name, c := range map[string]struct {
		pool     fakePool
		startErr error
		missing  []string
		listErr  error // of the search attributes
		code     int
		says     string // a pattern of the errors
	}{
		"numbers that an earlier pool has used": {pool: fakePool{statuses: steps(roster(ready, skipped), bothReady)}},
		"a worker that was ready fails during the wait": {pool: fakePool{statuses: steps(
			roster(ready, starting), roster(entry(0, lifecycle.Failed, 7, "crashed"), starting), bothReady)}},
		"polls without an answer": {pool: fakePool{statusErrors: []error{unanswered, unanswered},
			statuses: steps(bothReady)}, says: "python: waiting for an agent to answer\n"},
		"no answer, despite a recent poller": {pool: fakePool{err: unanswered}, code: ExitFailed,
			says: "probably no agent is running; start one with: tempool agent"},
		"missing search attributes": {pool: fakePool{statuses: steps(bothReady)}, missing: []string{"TempoolPool"},
			says: "tempool: warning: namespace test lacks the search attributes TempoolPool.*tempool setup"},
		"search attributes that this user may not list": {pool: fakePool{statuses: steps(bothReady)},
			listErr: api.Errorf(api.CodeForbidden, "denied"), says: "^python: 2/2 ready\n$"},
		"a running pool": {startErr: api.Errorf(api.CodePoolExists, "pool python is running already"), code: ExitFailed,
			says: "^tempool: pool python is running already\n$"},
	} {
		t.Run(name, func(t *testing.T) {
			c.pool.name, c.pool.view = "python", exampleView()
			f := newFakeControlPlane(&c.pool)
			f.startErr, f.missing, f.listErr = c.startErr, c.missing, c.listErr
			limit := map[int]string{ExitOK: "1m", ExitFailed: "30ms"}[c.code]
			r := ctl(t, f, "pool", "start", "-f", poolFile(t), "--wait-timeout", limit)
			requireCode(t, c.code, r)
			require.Regexp(t, c.says, r.err)
		})
	}
}

func TestPoolStartSaysHowToStartAnAgentWhenNoneRuns(t *testing.T) {
	unanswered := api.Errorf(api.CodeUnavailable, "no answer in time")
	f := newFakeControlPlane(&fakePool{name: "python", err: unanswered})
	f.agents = 0
	r := fail(t, f, "pool", "start", "-f", poolFile(t), "--wait-timeout", "30ms", "--address", "h:1", "-o", "json")
	e := failure(t, r)
	require.Equal(t, "timeout", e.Code)
	require.Contains(t, e.Message, "no agent is running; start one with: tempool agent --address h:1")
	require.Contains(t, r.err, `"warning"`, "it says so at once, not only in the end")
}

func TestPoolStartRefusesABadFileBeforeItSendsRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool.toml")
	require.NoError(t, os.WriteFile(path, []byte("[pool]\nname = \"python\"\nsise = 2\n"), 0o600))
	for _, command := range []string{"start", "apply"} {
		f := newFakeControlPlane()
		r := fail(t, f, "pool", command, "-f", path)
		require.Contains(t, r.err, "pool.toml:3: pool.sise")
		require.Empty(t, f.requests)
	}
}

func TestAnInterruptedWaitFailsWithItsCode(t *testing.T) {
	for _, args := range [][]string{{"pool", "start", "-f", poolFile(t)}, {"pool", "stop", "python"}} {
		f := newFakeControlPlane(&fakePool{name: "python", neverEnds: true,
			statuses: steps(roster(entry(0, lifecycle.Starting, 1, "")))})
		ctx, cancel := context.WithCancel(t.Context())
		f.onRequest = cancel
		r := ctlWith(ctx, f, append(args, "-o", "json")...)
		requireCode(t, ExitFailed, r)
		require.Equal(t, "interrupted", failure(t, r).Code)
	}
}

func TestPoolStopWaitsUntilThePoolHasStopped(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady)})
	r := succeed(t, f, "pool", "stop", "python", "--reason", "night", "-o", "json")
	require.JSONEq(t, `{"pool": "python", "stopping": 2, "ended": true}`, r.out)
	require.True(t, strings.HasPrefix(f.requests[0], "stop python: night (by "), f.requests)

	require.Contains(t, ctl(t, f, "pool", "stop", "python", "--no-wait", "-o", "json").out, `"ended": false`)
}

func TestApplyWaitsForTheRolloutAndShowsProgress(t *testing.T) {
	rolling := roster(entry(0, lifecycle.Ready, 2, ""), entry(1, lifecycle.Draining, 1, "a new spec"))
	rolling.Rollout = &api.Rollout{Reason: "apply of spec version 2", Done: 1, Current: []int{1}}
	f := newFakeControlPlane(&fakePool{name: "python", changed: true, statuses: steps(bothReady, rolling, bothReady)})
	r := succeed(t, f, "pool", "apply", "-f", poolFile(t))
	require.Equal(t, "pool python runs spec version 2\n", r.out)
	require.Equal(t, "python: apply of spec version 2: 1 done, restarting [1], waiting []; "+
		"python/1 draining: a new spec\n", r.err)
}

func TestApplyNamesTheVersionTheReasonAndTheOperator(t *testing.T) {
	pool := &fakePool{name: "python", changed: true, statuses: steps(bothReady)}
	succeed(t, newFakeControlPlane(pool), "pool", "apply", "-f", poolFile(t), "--if-version", "1", "--reason",
		"new model")
	require.Equal(t, "python", pool.applied.Spec.Pool.Name)
	pool.applied.Spec = spec.Spec{}
	require.Equal(t, api.ApplyRequest{IfVersion: 1, Reason: "new model", By: operator()}, pool.applied)
}

func TestApplyAndDiffSayWhatChangesAndWhoRestarts(t *testing.T) {
	file := poolFile(t)
	same, err := spec.Load(file)
	require.NoError(t, err)
	larger, other := same, same
	larger.Pool.Size, other.Pool.Command = 7, []string{"false"}
	for name, c := range map[string]struct {
		running spec.Spec
		says    []string
		diff    string
		rollout *api.Rollout
	}{
		"nothing": {same, []string{"runs this spec already", "no worker restarts"}, `"changes": [], "restarts": []`, nil},
		"nothing, of a halted rollout": {same, []string{"version 3; its rollout has halted, and apply begins it again",
			"2 restarts of python: python/0, python/1."}, `"changes": [], "restarts": ["python/0", "python/1"]`,
			&api.Rollout{Halted: "halted: odd"}},
		"the size": {larger, []string{"pool.size", "7", "No worker restarts."},
			`"changes": [{"key": "pool.size", "from": "7", "to": "2"}], "restarts": []`, nil},
		"the size, of a halted rollout": {larger, []string{"pool.size", "7", "2 restarts of python: python/0, python/1."},
			`"changes": [{"key": "pool.size", "from": "7", "to": "2"}], "restarts": ["python/0", "python/1"]`,
			&api.Rollout{Halted: "halted: odd"}},
		"the command": {other, []string{"pool.command", "2 restarts of python: python/0, python/1."},
			`"changes": [{"key": "pool.command", "from": "[\"false\"]", "to": "[\"true\"]"}],
				"restarts": ["python/0", "python/1"]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			running := bothReady
			running.Spec, running.SpecVersion, running.Rollout = c.running, 3, c.rollout
			f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(running)})
			for _, command := range []string{"diff", "apply"} { // the fake restarts nobody
				r := succeed(t, f, "pool", command, "-f", file)
				for _, words := range c.says {
					require.Contains(t, r.out, words)
				}
			}
			require.JSONEq(t, `{"pool": "python", "spec_version": 3, `+c.diff+`}`, ctl(t, f, "pool", "diff", "-f", file, "-o",
				"json").out)
			require.Contains(t, ctl(t, f, "pool", "apply", "-f", file, "-o", "json").out,
				fmt.Sprintf(`"changed": %t`, !strings.HasPrefix(name, "nothing")))
		})
	}
}

func TestAnOperatorHaltsARollout(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python"})
	require.Equal(t, "pool python: new model: 1 done, restarting [], waiting [2]; halted: odd\n",
		ctl(t, f, "pool", "halt", "python", "--reason", "odd").out)
	require.Contains(t, f.requests, "halt the rollout of python: odd")
}

func TestUnansweredRequestsSayWhetherAnAgentRuns(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", err: api.Errorf(api.CodeUnavailable, "no answer in time")})
	require.Equal(t, "tempool: no answer in time\n", ctl(t, f, "ps", "python").err)
	f.agents = 0
	r := fail(t, f, "ps", "python")
	require.Equal(t, "tempool: no agent is running; start one with: tempool agent (no answer in time)\n", r.err)
}

func TestScaleShowsTheChange(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python"})
	require.Equal(t, "pool python: scaling from 1 worker to 8; run tempool ps python to follow\n",
		ctl(t, f, "pool", "scale", "python", "8").out)
	require.JSONEq(t, `{"from": 1, "to": 8}`, ctl(t, f, "pool", "scale", "python", "8", "-o", "json").out)
	require.Equal(t, "pool python: keeps 1 worker\n", ctl(t, f, "pool", "scale", "python", "1").out)
	require.Equal(t, "pool python: 0 to 20 workers, by demand; run tempool pool status python to follow\n",
		ctl(t, f, "pool", "scale", "python", "0..20").out)
	require.JSONEq(t, `{"from": 4, "to": 4, "bounds": {"min": 2, "max": 20}}`,
		ctl(t, f, "pool", "scale", "python", "2..20", "-o", "json").out)
}
