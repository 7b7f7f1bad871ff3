package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/buildinfo"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// healthySetup is a set-up without a finding above note.
func healthySetup(t *testing.T) *fakeControlPlane {
	t.Helper()
	hostname, err := os.Hostname()
	require.NoError(t, err)
	status := roster(entry(0, lifecycle.Ready, 1, ""))
	status.Spec, status.Ready = spec.Default(), 1
	status.Spec.Pool.Placement = "default"
	f := newFakeControlPlane(&fakePool{name: "python", statuses: []api.PoolStatus{status}})
	f.server = tempool.Server{Version: "1.32.0", Retention: 72 * time.Hour}
	f.hosts = []tempool.Host{{ID: "a", HeardAt: noon, Heartbeat: api.HostHeartbeat{
		Processes: []api.ProcessReport{{Process: api.Process{Worker: "python/0", Incarnation: 1},
			Sample: &api.Sample{MemorySource: "pss"}}},
		Agent: &api.AgentReport{
			Endpoint: "https://a:7460", Access: api.AccessTokens, Epoch: 3, Version: buildinfo.Read().String(),
			Platform: "linux/amd64", Hostname: hostname, Labels: []string{"default"},
			Capacity: 10, Clock: noon, Cgroups: []string{"cpu", "memory"}, OpenFiles: 1 << 20, DiskFreeBytes: 50 << 30,
			DiskTotalBytes: 100 << 30,
		},
	}}}
	f.checks = map[string]tempool.GatewayCheck{"https://a:7460": {ControlPlane: "ok", Clock: noon, At: noon,
		CertificateExpires: noon.Add(90 * 24 * time.Hour)}}
	return f
}

func TestDoctorFindsNothingInAHealthySetup(t *testing.T) {
	r := succeed(t, healthySetup(t), "doctor")
	require.Contains(t, r.out, "0 problems, 0 warnings")
	for line := range strings.Lines(r.out) {
		require.Regexp(t, "^(ok  |0 problems)", line)
	}
	require.Contains(t, r.out, "epoch 3")
}

// setup is a set-up that a test spoils.
type setup struct {
	*fakeControlPlane
	agent *api.AgentReport
	pool  *api.PoolStatus
}

func changed(f *fakeControlPlane, change func(*setup)) *fakeControlPlane {
	change(&setup{f, f.hosts[0].Heartbeat.Agent, &f.pools["python"].statuses[0]})
	return f
}

func TestDoctorSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		change                       func(*setup)
		level, check, says, remedies string
	}{
		"no server": {func(s *setup) { s.dialErr = api.Errorf(api.CodeUnavailable, "nobody answers") },
			levelProblem, "temporal", "nobody answers", "TEMPORAL_ADDRESS"},
		"no namespace": {func(s *setup) { s.serverErr = api.Errorf(api.CodeInvalid, "no namespace test") },
			levelProblem, "namespace", "no namespace", "namespace create"},
		"no permission": {func(s *setup) { s.serverErr = api.Errorf(api.CodeForbidden, "denied") },
			levelProblem, "temporal", "denied", "permissions"},
		"old server": {func(s *setup) { s.server.Version = "1.26.2" }, levelProblem, "temporal", "1.26.2", "upgrade"},
		"retention":  {func(s *setup) { s.server.Retention = time.Hour }, levelWarning, "namespace", "1h0m", "--retention"},
		"attributes": {func(s *setup) { s.missing = []string{"TempoolPool"} },
			levelProblem, "search_attributes", "TempoolPool", "tempool setup"},
		"no agent": {func(s *setup) { s.hosts = nil }, levelProblem, "agents", "none is running",
			"tempool agent --address"},
		"a lost host": {func(s *setup) { s.hosts = append(s.hosts, tempool.Host{ID: "b"}) },
			levelWarning, "agents", "lost since", "--host-id b"},
		"two builds": {func(s *setup) {
			other := *s.agent
			other.Version = "v9"
			s.hosts = append(s.hosts, tempool.Host{ID: "b", HeardAt: noon, Heartbeat: api.HostHeartbeat{Agent: &other}})
		}, levelWarning, "versions", "2 different builds", "one version"},
		"a draining host": {func(s *setup) { s.draining = "new kernel" },
			levelNote, "agents", "takes no new workers: new kernel", "hosts undrain a"},
		"another tempool": {func(s *setup) { s.agent.Version = "v9" }, levelNote, "versions", "unlike the agents", "tempool"},
		"a slow clock": {func(s *setup) { s.agent.Clock = noon.Add(-time.Minute) },
			levelWarning, "clock", "1m0s", "chrony"},
		"a fast clock": {func(s *setup) { s.agent.Clock = noon.Add(time.Hour) }, levelWarning, "clock", "1h0m", "chrony"},
		"this clock": {withCheck(func(g *tempool.GatewayCheck) { g.Clock = noon.Add(time.Minute) }),
			levelWarning, "clock", "1m0s", "chrony"},
		"no cgroups": {func(s *setup) { s.agent.Cgroups, s.agent.NoCgroups = nil, "read-only" },
			levelWarning, "cgroups", "read-only", "Delegate=yes"},
		"no cgroups, kept processes": {func(s *setup) {
			s.agent.Cgroups, s.agent.NoCgroups, s.agent.KeepsProcesses = nil, "kept", true
		}, levelWarning, "cgroups", "kept", "without --keep-processes"},
		"macOS": {func(s *setup) { s.agent.Cgroups, s.agent.Platform = nil, "darwin/arm64" },
			levelNote, "cgroups", "no cgroups", ""},
		"unreadable PSS": {func(s *setup) { s.hosts[0].Heartbeat.Processes[0].Sample.MemorySource = "rss" },
			levelWarning, "pss", "1 worker", "CAP_SYS_PTRACE"},
		"few files":    {func(s *setup) { s.agent.OpenFiles = 256 }, levelWarning, "open_files", "256", "LimitNOFILE"},
		"little space": {func(s *setup) { s.agent.DiskFreeBytes = 500 << 20 }, levelWarning, "disk", "free", "--state-dir"},
		"no space":     {func(s *setup) { s.agent.DiskFreeBytes = 0 }, levelProblem, "disk", "0 B are free", "--state-dir"},
		"no gateway":   {func(s *setup) { s.checks = nil }, levelProblem, "gateway", "connection refused", "firewall"},
		"another machine": {func(s *setup) { s.agent.Endpoint, s.agent.Hostname = "unix:/gw.sock", "elsewhere" },
			levelNote, "gateway", "its own machine only", "--listen"},
		"a lost Temporal": {withCheck(func(g *tempool.GatewayCheck) { g.ControlPlane = "lost" }),
			levelProblem, "gateway", "does not reach Temporal", "connection"},
		"no token": {withCheck(func(g *tempool.GatewayCheck) { g.Refused = api.Errorf(api.CodeUnauthorized, "no token") }),
			levelWarning, "access", "no token", "TEMPOOL_TOKEN"},
		"a certificate": {withCheck(func(g *tempool.GatewayCheck) { g.CertificateExpires = noon.Add(time.Hour) }),
			levelWarning, "certificate", "expires", "renew"},
		"open to all": {func(s *setup) { s.agent.Access = api.AccessOpen }, levelNote, "access", "any program", "--tokens"},
		"a fenced gateway": {withCheck(func(g *tempool.GatewayCheck) { g.Status, g.ControlPlane = "fenced", "lost" }),
			levelProblem, "gateway", "serves no calls", "connection"},
		"a closing gateway": {withCheck(func(g *tempool.GatewayCheck) { g.Status = "closing" }),
			levelWarning, "gateway", "is closing", "start it again"},
		"no label": {func(s *setup) { s.pool.Spec.Pool.Placement = "gpu" },
			levelProblem, "placement", `"gpu"`, "--labels gpu"},
		"a waiting worker": {func(s *setup) { s.pool.Workers[0].State = lifecycle.Pending },
			levelProblem, "pools", "python/0: It waits for its start", "tempool pool status python"},
		"a worker that has failed since its report": {func(s *setup) {
			s.pool.Ready, s.pool.Workers[0].State = 0, lifecycle.Starting
			s.pools["python"].states = map[int][]api.WorkerState{0: {state(0, lifecycle.Pending, 1)}}
		}, levelProblem, "pools", "python/0: It waits for its start", "tempool pool status python"},
		"paused starts": {func(s *setup) { s.pool.StartsPaused = "7 starts failed in a row" },
			levelProblem, "pools", "7 starts failed in a row", "starts are retried"},
		"a rolling restart that an operator halted": {func(s *setup) {
			s.pool.Rollout = &api.Rollout{Reason: "apply of spec version 2", Waiting: []int{1},
				Halted: "halted: odd answers (by ada)", ByOperator: true}
		}, levelNote, "pools", "halted: odd answers (by ada)", "tempool workers restart python"},
		"root": {func(s *setup) { s.agent.Root = true }, levelWarning, "root", "run as root", "pool.user"},
		"a silent pool": {func(s *setup) { s.pools["python"].statusErrors = []error{api.ErrUnavailable} },
			levelProblem, "pools", "does not answer", "tempool ps"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ctl(t, changed(healthySetup(t), c.change), "doctor", "-o", "json")
			result := decode[doctorResult](t, r)
			require.NotContains(t, r.out, `#"`, "a kind without a section of the runbook")
			found := false
			for _, one := range result.Findings {
				if one.Level == c.level && one.Check == c.check && strings.Contains(one.Message, c.says) {
					found = true
					require.Contains(t, one.Action, c.remedies)
					require.NotEmpty(t, one.Runbooks)
				}
			}
			require.True(t, found, r.out)
			want := ExitOK
			if c.level == levelProblem {
				want = ExitFailed
				require.Contains(t, r.err, "problems")
			}
			requireCode(t, want, r)
		})
	}
}

func withCheck(change func(*tempool.GatewayCheck)) func(*setup) {
	return func(s *setup) {
		check := s.checks[s.agent.Endpoint]
		change(&check)
		s.checks[s.agent.Endpoint] = check
	}
}

func TestDoctorShowsNoSecretsOfURLs(t *testing.T) {
	for name, change := range map[string]func(*setup){
		"an address with a token": func(s *setup) { s.agent.Endpoint = "https://s3cret@a:7460" },
		"a failure": withCheck(func(g *tempool.GatewayCheck) {
			g.Err = api.Errorf(api.CodeUnavailable, "https://me:s3cret@a:7460/readyz?token=s3cret does not answer")
		}),
		"a refusal": withCheck(func(g *tempool.GatewayCheck) {
			g.Refused = api.Errorf(api.CodeUnauthorized, "https://s3cret@a:7460 refuses")
		}),
	} {
		f := changed(healthySetup(t), change)
		for _, format := range []string{"table", "json"} {
			r := ctl(t, f, "doctor", "-o", format)
			require.Contains(t, r.out, "(hidden)", name)
			require.NotContains(t, r.out+r.err, "s3cret", name)
		}
	}
}
