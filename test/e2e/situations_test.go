package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// situation is a pool that an operator finds at night, and what every view must say of it.
type situation struct {
	program string // of sh; "" sleeps
	size    int    // 0 is 1
	set     func(s *spec.Spec)
	act     func(env *testEnv, p *tempool.Pool) // once all its workers are ready
	// own is like act, for a pool that has a host of its name to itself.
	own func(env *testEnv, p *tempool.Pool, a *agent)

	status policy.Status   // "" is healthy, and the two next are those of a pool whose workers are ready if they are ""
	state  lifecycle.State // of worker 0
	cause  string          // in its reason, or if it is in service in the pool's summary or alerts
	advice string          // among what to do
}

func once(s *spec.Spec) { s.Recovery.MaxConsecutiveFailures = 1 }

// handshake makes a program that says nothing one that is never ready.
func handshake(s *spec.Spec) { s.Pool.Protocol = spec.ProtocolFrames }

// never is a start that hangs, apart from those of other pools.
func never(s *spec.Spec) { s.Start.Timeout, s.Start.Concurrency = spec.Duration(time.Hour), 1 }

func applies(change func(*spec.Spec)) func(*testEnv, *tempool.Pool) {
	return func(env *testEnv, p *tempool.Pool) {
		status, err := p.Status(env.t.Context())
		require.NoError(env.t, err)
		change(&status.Spec)
		_, err = p.Apply(env.t.Context(), status.Spec)
		require.NoError(env.t, err)
	}
}

func both(changes ...func(*spec.Spec)) func(*spec.Spec) {
	return func(s *spec.Spec) {
		for _, change := range changes {
			change(s)
		}
	}
}

func then(steps ...func(*testEnv, *tempool.Pool)) func(*testEnv, *tempool.Pool) {
	return func(env *testEnv, p *tempool.Pool) {
		for _, step := range steps {
			step(env, p)
		}
	}
}

func longBackoff(s *spec.Spec) {
	s.Recovery.BackoffInitial, s.Recovery.BackoffMax = spec.Duration(time.Hour), spec.Duration(time.Hour)
}

func restarts(when string) func(*spec.Spec) {
	return func(s *spec.Spec) { s.Recovery.Restart = when }
}

func (env *testEnv) restart(pool *tempool.Pool, request api.RestartRequest) {
	env.t.Helper()
	_, err := pool.Restart(env.t.Context(), request)
	require.NoError(env.t, err)
}

func scales(size int) func(*testEnv, *tempool.Pool) {
	return func(env *testEnv, p *tempool.Pool) {
		_, err := p.Scale(env.t.Context(), size)
		require.NoError(env.t, err)
	}
}

func stops(env *testEnv, p *tempool.Pool) {
	_, err := p.Stop(env.t.Context(), "the end")
	require.NoError(env.t, err)
}

// runs makes the pool one of a Python program.
func runs(script string) func(*spec.Spec) {
	return func(s *spec.Spec) {
		python := pythonSpec(s.Pool.Name, s.Pool.Size, script)
		python.Pool.Env["NOTES"] = "/dev/null"
		*s = python
	}
}

func failsCalls(env *testEnv, p *tempool.Pool) {
	for n := range 24 {
		method, input := "add", any([]int{1, 2})
		if n%4 == 0 {
			method, input = "fail", []string{"by intention"}
		}
		err := p.Call(env.t.Context(), method, input, nil)
		require.Equal(env.t, n%4 == 0, err != nil, "%v", err)
	}
}

func workers(command string, further ...string) func(*testEnv, *tempool.Pool) {
	return func(env *testEnv, p *tempool.Pool) {
		env.ctl(cli.ExitOK, append([]string{"workers", command, p.Name() + "/0", "--wait-timeout", waitTimeout.String()},
			further...)...)
	}
}

func isKilled(times int64) func(*testEnv, *tempool.Pool) {
	return func(env *testEnv, p *tempool.Pool) {
		for n := range times {
			killProcess(env.t, env.waitLater(p, "it is ready", n).Workers[0].PID)
		}
		env.waitLater(p, "the next process is ready", times)
	}
}

func leaks(env *testEnv, p *tempool.Pool) {
	l := startLoad(env.t, env.gatewayClient("night"), "/v1/pools/"+p.Name()+"/call/leak", 4, 1)
	env.waitFor(p, "it was replaced repeatedly", func(v api.PoolWorkers) bool {
		return v.Workers[0].RotationsByReason["memory"] >= 3
	})
	l.stop()
}

func findNoWorker(env *testEnv, p *tempool.Pool) {
	startLoad(env.t, env.gatewayClient("night"), "/v1/pools/"+p.Name()+"/call/nap", 10, 2)
}

func leases(env *testEnv, p *tempool.Pool) {
	env.checkout(p, tempool.CheckoutOptions{Holder: "batch", TTL: time.Hour, Wait: waitTimeout})
}

const ignoresTERM = `trap "" TERM; until [ -e "$0" ]; do sleep 0.1; done`

const restartAdvice = "tempool workers restart"

// listed is a pool in tempool pool list.
type listed struct {
	Pool        string
	Ready, Size int
}

// views is what an operator sees of a pool.
type views struct {
	ps     api.PoolWorkers
	list   listed
	status policy.Report
	page   string // of the dashboard
	// metrics are the gauges of its size and, by state, its workers.
	metrics map[string]int
}

// metrics are what the agents of these hosts say of each pool. Answers that are late for a scrape are in the next one,
// if that comes within a minute.
func (env *testEnv) metrics(names, hosts []string) (all map[string]map[string]int) {
	lacks := func(name string) bool { return all[name] == nil }
	for range 20 {
		if all = env.scrape(hosts); !slices.ContainsFunc(names, lacks) {
			return all
		}
		sleep(env.t, time.Second)
	}
	return all
}

// scrape reads the metrics of the agents of these hosts once.
func (env *testEnv) scrape(hosts []string) map[string]map[string]int {
	all := map[string]map[string]int{}
	for _, host := range hosts {
		s := readScrape(env.t, env.gatewayClient(host))
		for _, m := range append(s.series("tempool_pool_size"), s.series("tempool_pool_workers")...) {
			labels := map[string]string{}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if all[labels["pool"]] == nil {
				all[labels["pool"]] = map[string]int{}
			}
			if n := int(m.GetGauge().GetValue()); n > 0 {
				all[labels["pool"]][labels["state"]] = n
			}
		}
	}
	return all
}

// views asks all views about these pools, and the agents of these hosts for metrics.
func (env *testEnv) views(names, hosts []string) map[string]views {
	all, metrics := map[string]views{}, env.metrics(names, hosts)
	for _, roster := range ctlJSON[[]api.PoolWorkers](env, "ps") {
		all[roster.Pool] = views{ps: roster}
	}
	for _, l := range ctlJSON[[]listed](env, "pool", "list") {
		v := all[l.Pool]
		v.list = l
		all[l.Pool] = v
	}
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(4)
	for _, name := range names {
		asking.Go(func() error {
			status := ctlJSON[struct{ Report policy.Report }](env, "pool", "status", name).Report
			page := env.page("night", "/ui/pools/"+name)
			mu.Lock()
			defer mu.Unlock()
			v := all[name]
			v.status, v.page, v.metrics = status, page, metrics[name]
			all[name] = v
			return nil
		})
	}
	require.NoError(env.t, asking.Wait())
	return all
}

// disagreement is what one of the views says of a pool that it should not, or another does not; "" for nothing.
func (s situation) disagreement(v views, d doctor, name string) string {
	if s.status == "" {
		s.status, s.state, s.cause = policy.StatusHealthy, cmp.Or(s.state, lifecycle.Ready), cmp.Or(s.cause, "is healthy")
	}
	report := v.status
	if report.Overview.Status != s.status {
		return fmt.Sprintf("pool status: %s", report.Overview.Summary)
	}
	for _, other := range [][2]int{{v.ps.Ready, v.ps.Size}, {v.list.Ready, v.list.Size}} {
		if other != [2]int{report.Overview.Ready, report.Overview.Size} {
			return fmt.Sprintf("ps or pool list: %v, pool status: %s", other, report.Overview.Summary)
		}
	}
	if want := states(report.Overview); !maps.Equal(want, v.metrics) {
		return fmt.Sprintf("metrics: %v, pool status: %v", v.metrics, want)
	}
	said, critical := report.Overview.Summary, s.status == policy.StatusDown
	for _, alert := range report.Alerts {
		said, critical = said+"\n"+alert.Text, critical || alert.Severity == policy.SeverityCritical
		if !strings.HasPrefix(alert.Runbook, "https://") || strings.HasSuffix(alert.Runbook, "#") {
			return "no runbook: " + alert.Text
		}
	}
	for i, w := range report.Health {
		if len(v.ps.Workers) != len(report.Health) || v.ps.Workers[i].State != w.State {
			return fmt.Sprintf("ps: %+v, pool status: %+v", v.ps.Workers, report.Health)
		}
		if !strings.Contains(v.page, string(w.State)) {
			return "the dashboard does not say " + string(w.State)
		}
		if i == 0 && s.state != "" && w.State != s.state {
			return fmt.Sprintf("worker 0 is %s: %s", w.State, w.Reason)
		}
		if i == 0 && !w.State.InService() {
			said += "\n" + w.Reason
			reason := strings.Join(strings.Fields(w.Reason), " ") // a program's last output has lines of its own
			if first, last, cut := strings.Cut(v.ps.Workers[i].Reason, "…"); !strings.HasPrefix(reason, first) ||
				!strings.HasSuffix(reason, last) || !cut && first != reason {
				return fmt.Sprintf("ps: %s, pool status: %s", v.ps.Workers[i].Reason, w.Reason)
			}
		}
	}
	if !strings.Contains(said, s.cause) {
		return fmt.Sprintf("nothing says %q: %s", s.cause, said)
	}
	advice := strings.Join(report.Recommendations, "\n")
	if !strings.Contains(advice, s.advice) {
		return fmt.Sprintf("no advice says %q: %s", s.advice, advice)
	}
	if len(report.Alerts) > 0 && !strings.Contains(v.page, report.Overview.Summary) {
		return "the dashboard does not say: " + report.Overview.Summary
	}
	for _, f := range d.Findings {
		if f.Subject == "pool "+name && f.Check != "root" {
			switch {
			case critical != (f.Level == "problem"):
				return fmt.Sprintf("doctor: %+v", f)
			case f.Check == "pools" && f.Level != "ok" && s.advice != "" && !strings.Contains(f.Action, s.advice):
				return fmt.Sprintf("doctor advises %q, pool status %q", f.Action, advice)
			}
			return ""
		}
	}
	return "doctor says nothing"
}

// states are what the metrics of a pool have to say: they count busy workers as ready, and one that stops wants none.
func states(o policy.Overview) map[string]int {
	all := maps.Clone(o.States)
	all["ready"] += all["busy"]
	delete(all, "busy")
	if o.Status != policy.StatusStopping {
		all[""] = o.Size
	}
	if all["ready"] == 0 {
		delete(all, "ready")
	}
	return all
}

// In each situation ps, pool status, pool list, doctor, the dashboard and the metrics tell the same state, cause and
// remedy; and a command's exit code is 1 only if it cannot, or if doctor finds a problem.
func TestAllViewsTellTheSameOfEachSituation(t *testing.T) {
	env := oneHost(t, "night", "--capacity", "100")
	env.startAgent("tiny", "--labels", "tiny", "--capacity", "1")
	end := filepath.Join(env.dir, "end") // ends the programs that do not end otherwise
	t.Cleanup(func() { require.NoError(t, os.WriteFile(end, nil, 0o600)) })
	hosts := []string{"night", "tiny", "host-drains"} // of the agents that live to the end
	// forty at once are a load, which is not what this test is about
	var acting errgroup.Group
	acting.SetLimit(8)
	for name, s := range situations {
		acting.Go(func() error {
			env.begin(name, s, end)
			return nil
		})
	}
	require.NoError(t, acting.Wait())
	left := map[string]string{}
	for name := range situations {
		left[name] = "not looked at"
	}
	deadline := time.Now().Add(2 * waitTimeout) // a look at all of them takes minutes on a busy machine
	for ; len(left) > 0 && time.Now().Before(deadline); sleep(t, time.Second) {
		began, doctor := time.Now(), env.doctor()
		seen := env.views(slices.Collect(maps.Keys(left)), hosts)
		for name := range left {
			if left[name] = situations[name].disagreement(seen[name], doctor, name); left[name] == "" {
				delete(left, name)
			}
		}
		t.Logf("a look of %s leaves %d situations", time.Since(began).Round(time.Second), len(left))
	}
	for name, says := range left {
		t.Errorf("%s: %s", name, says)
		env.logHistories(env.client.Pool(name), 1)
	}
	env.requireExitCodes()
	env.page("night", "/ui/")
	env.requireViewsWithoutTemporal("night", "healthy")
}

// begin makes a situation in a pool of its name.
func (env *testEnv) begin(name string, s situation, end string) {
	shell := shellSpec(name, max(1, s.size), cmp.Or(s.program, "exec sleep 1000"), end)
	shell.Health.Interval = spec.Duration(time.Hour)
	if s.set != nil {
		s.set(&shell)
	}
	act := s.act
	if s.own != nil {
		shell.Pool.Placement = name
		agent := env.startAgent(name, "--labels", name)
		act = func(env *testEnv, p *tempool.Pool) { s.own(env, p, agent) }
	}
	pool := env.beginPool(shell)
	if act != nil {
		env.waitReady(pool, max(1, s.size))
		act(env, pool)
	}
}

// failed is a pool whose only worker fails at its start, for a cause, until somebody restarts it.
func failed(program, cause string, set ...func(*spec.Spec)) situation {
	return situation{program: program, set: both(set...), status: policy.StatusDown, state: lifecycle.Failed,
		cause: cause, advice: restartAdvice}
}

var situations = map[string]situation{
	"healthy":      {advice: policy.NothingToDo},
	"killed-once":  {act: isKilled(1)},
	"killed-often": {act: isKilled(3), advice: "end unexpectedly"},
	"template-fails": failed("", "model file is missing", runs("broken.py"), once,
		func(s *spec.Spec) { s.Start.Fork = true }),
	"agent-gone": {own: func(_ *testEnv, _ *tempool.Pool, a *agent) { a.kill() },
		status: policy.StatusDown, state: lifecycle.Pending, cause: "agent-gone", advice: "Start an agent"},
	"host-drains": {own: func(env *testEnv, p *tempool.Pool, _ *agent) {
		env.ctl(cli.ExitOK, "hosts", "drain", p.Name(), "--reason", "new kernel", "--no-wait")
	}, status: policy.StatusDown, state: lifecycle.Pending, cause: "host-drains", advice: "tempool hosts undrain"},
	"queue-full": {set: both(runs("trouble.py"), func(s *spec.Spec) { s.Queue.Size = 1 }), act: findNoWorker,
		cause: "queue_full", advice: "pool scale queue-full 2"},
	"leaks": {set: both(runs("leak.py"), func(s *spec.Spec) {
		s.Pool.Env["LEAK"], s.Rotation.MaxMemory = "40", 80<<20
	}), act: leaks, advice: "Look for a leak"},
	"dead-at-start":    failed("exit 3", "code 3", once, handshake),
	"dead-in-a-second": failed("sleep 0.3; exit 4", "code 4", once),
	"says-why":         failed("echo no licence >&2; exit 1", "no licence", once, handshake),
	"killed-itself":    failed("kill -SEGV $$", "SIGSEGV", once, handshake),
	"no-program": failed("", "nosuch-program", once,
		func(s *spec.Spec) { s.Pool.Command = []string{"nosuch-program"} }),
	"no-folder": failed("", "/nosuch-folder", once, func(s *spec.Spec) { s.Pool.Dir = "/nosuch-folder" }),
	"no-user":   failed("", "nosuch-user", once, func(s *spec.Spec) { s.Pool.User = "nosuch-user" }),
	"too-slow": failed("", "start.timeout", once, handshake,
		func(s *spec.Spec) { s.Start.Timeout = spec.Duration(2 * time.Second) }),
	"slow": {set: both(handshake, never), status: policy.StatusDown, state: lifecycle.Starting},
	"in-backoff": {program: "exit 3", set: both(handshake, longBackoff),
		status: policy.StatusDown, state: lifecycle.Pending, cause: "failure 2 of 10"},
	"finished": {program: "sleep 3", set: restarts(spec.RestartOnFailure),
		status: policy.StatusDown, state: lifecycle.Finished, cause: "recovery.restart"},
	"never-restarted": failed("sleep 0.3; exit 5", "code 5", restarts(spec.RestartNever)),
	"drained": {act: workers("drain", "--reason", "disk swap"),
		status: policy.StatusDown, state: lifecycle.Stopped, cause: "disk swap", advice: restartAdvice},
	"half-drained": {size: 2, act: workers("drain", "--reason", "disk swap"),
		status: policy.StatusShort, state: lifecycle.Stopped, cause: "disk swap", advice: restartAdvice},
	"suspended": {act: workers("suspend", "--reason", "night"),
		status: policy.StatusDown, state: lifecycle.Suspended, cause: "night", advice: "tempool workers resume"},
	"half-suspended": {size: 2, act: workers("suspend", "--reason", "night"),
		status: policy.StatusShort, state: lifecycle.Suspended, cause: "night", advice: "tempool workers resume"},
	"resumed":   {act: then(workers("suspend"), workers("resume")), advice: policy.NothingToDo},
	"restarted": {act: workers("restart"), advice: policy.NothingToDo},
	"drains": {set: func(s *spec.Spec) { s.Rotation.DrainTimeout = spec.Duration(time.Hour) },
		act: then(leases, workers("drain", "--no-wait")), status: policy.StatusDown, state: lifecycle.Draining},
	"without-label": {set: func(s *spec.Spec) { s.Pool.Placement = "gpu" },
		status: policy.StatusDown, state: lifecycle.Pending, cause: "gpu"},
	"without-room": {size: 2, set: func(s *spec.Spec) { s.Pool.Placement = "tiny" },
		status: policy.StatusShort, cause: "", advice: "--capacity"},
	"scaled-up": {act: scales(3), cause: "3 of 3", advice: policy.NothingToDo},
	"rollout-halted": {act: applies(both(handshake, once, func(s *spec.Spec) { s.Pool.Command = []string{"false"} })),
		cause: "has halted", advice: "tempool pool apply"},
	"rollout-under-way": {act: applies(both(handshake, never)), cause: "rolling restart is under way"},
	"rollout-done":      {act: applies(func(s *spec.Spec) { s.Pool.Env["NEW"] = "1" }), advice: policy.NothingToDo},
	"stopping": {program: ignoresTERM, set: func(s *spec.Spec) { s.Pool.StopGrace = spec.Duration(time.Hour) },
		act:    stops,
		status: policy.StatusStopping, state: lifecycle.Stopping, cause: "is stopping",
		advice: "the pool is stopping"},
	"ignores-sigterm": {program: ignoresTERM, set: func(s *spec.Spec) { s.Pool.StopGrace = spec.Duration(time.Second) },
		act: workers("restart"), advice: "end on SIGTERM"},
	"starts-held": {size: 3, program: "exit 3", set: handshake,
		status: policy.StatusDown, advice: "retried one at a time"},
	"fails-calls": {set: runs("trouble.py"), act: failsCalls, cause: "of its calls failed", advice: "failing calls"},
	"called": {set: runs("health.py"), act: func(env *testEnv, p *tempool.Pool) {
		require.NoError(env.t, p.Call(env.t.Context(), "echo", []int{7}, nil))
	}, advice: policy.NothingToDo},
	"leased": {act: leases, state: lifecycle.Busy},
	"bounded": {set: both(runs("hold.py"), func(s *spec.Spec) { s.Rotation.MaxMemory = 4 << 30 }),
		advice: policy.NothingToDo},
}
