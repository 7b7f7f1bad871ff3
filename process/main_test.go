package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// waitTimeout bounds every wait of these tests; only a failing test waits so long.
const waitTimeout = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(kindWorkerEnv) != "" {
		runKindWorker()
	}
	if agent := os.Getenv(keepingAgentEnv); agent != "" {
		runKeepingAgent(agent)
	}
	goleak.VerifyTestMain(m)
}

// keepingAgentEnv makes the test binary an agent that starts one worker and, when its input ends, hands it over and
// exits.
const keepingAgentEnv = "TEMPOOL_TEST_KEEPING_AGENT"

// keepingAgent is what that agent is to do.
type keepingAgent struct {
	Dir       string
	Spec      spec.Spec
	Two       bool // workers
	NoCgroups bool
}

// runKeepingAgent prints the PIDs of the worker and of the reaper.
func runKeepingAgent(text string) {
	var a keepingAgent
	err := errors.Join(Protect(), json.Unmarshal([]byte(text), &a))
	ctx := context.Background()
	var s *Supervisor
	if err == nil {
		config := Config{StateDir: a.Dir, HostID: "test", Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
			TakeOver: true}
		if a.NoCgroups {
			withoutCgroups(&config)
		}
		s, err = Open(ctx, config)
	}
	var p *Process
	if err == nil {
		if kept := s.TakenOver(); len(kept) > 0 {
			p = kept[0].Process
		} else {
			p, err = s.Start(ctx, launch("p/0", 1, a.Spec))
		}
		if err == nil && a.Two {
			_, err = s.Start(ctx, launch("p/1", 1, a.Spec))
		}
	}
	if err == nil {
		fmt.Println(p.Info().PID, s.reaper.PID())
		_, _ = os.Stdin.Read(make([]byte, 1))
		_, err = s.HandOver(ctx, noted)
	}
	if err == nil {
		err = s.Close(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func noted(p *Process) json.RawMessage { return json.RawMessage(`"of ` + p.Worker() + `"`) }

// startKeepingAgent starts cmd, which runs this test binary, as an agent with one worker. The agent lasts until in is
// closed, and writes the PIDs of its worker and of its reaper to out.
func startKeepingAgent(t *testing.T, cmd *exec.Cmd, agent keepingAgent) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	text, err := json.Marshal(agent)
	require.NoError(t, err)
	cmd.Env = append(os.Environ(), keepingAgentEnv+"="+string(text))
	cmd.Stderr = t.Output()
	in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err = cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tree.StartChild(cmd))
	return in, out
}

// printed returns the process whose PID an agent writes next.
func printed(t *testing.T, out io.Reader) tree.Identity {
	t.Helper()
	var pid int
	require.NoError(t, errorOf(fmt.Fscan(out, &pid)))
	id, found := tree.Identify(pid)
	require.True(t, found)
	return id
}

// startTestAgent starts an agent without cgroups, in a process group of its own, that is killed with the test. Its
// worker runs a script.
func startTestAgent(t *testing.T, dir, script string) (agent *exec.Cmd, reaper tree.Identity) {
	t.Helper()
	agent = exec.Command(os.Args[0])
	agent.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_, out := startKeepingAgent(t, agent, keepingAgent{Dir: dir, Spec: sh(script), NoCgroups: true})
	t.Cleanup(func() {
		_ = agent.Process.Kill()
		_ = tree.WaitChild(agent)
	})
	printed(t, out)
	return agent, printed(t, out)
}

// open returns a supervisor that is closed with the test.
func open(t *testing.T, change ...func(*Config)) *Supervisor {
	t.Helper()
	config := Config{StateDir: t.TempDir(), HostID: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, c := range change {
		c(&config)
	}
	s, err := Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { closes(t, s) })
	return s
}

// withoutCgroups makes a supervisor kill what it finds: with a cgroup, the kernel would hide what it does not find.
func withoutCgroups(c *Config) {
	c.cgroupFS = func() (limits.CgroupFS, error) { return limits.CgroupFS{}, errors.New("not in this test") }
}

// closes closes a supervisor.
func closes(t *testing.T, s *Supervisor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	require.NoError(t, s.Close(ctx))
}

// runs is the spec of a program that speaks no protocol and counts as ready as soon as it runs.
func runs(command ...string) spec.Spec {
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Command, sp.Pool.Protocol = "p", command, spec.ProtocolNone
	sp.Health.Kind, sp.Health.Command = spec.HealthExec, []string{"true"}
	return sp
}

// sh is runs with a script.
func sh(script string) spec.Spec { return runs("sh", "-c", script) }

// limited is sh with limits.
func limited(script string, l spec.Limits) spec.Spec {
	sp := sh(script)
	sp.Limits = l
	return sp
}

// once is a piece of script that waits for a file, so that a program does nothing before it counts as ready.
func once(file string) string { return "while [ ! -e " + file + " ]; do sleep 0.01; done; " }

// start starts incarnation 1 of p/0.
func begin(t *testing.T, s *Supervisor, sp spec.Spec) *Process {
	t.Helper()
	return starts(t, s, launch("p/0", 1, sp))
}

func starts(t *testing.T, s *Supervisor, l Launch, message ...any) *Process {
	t.Helper()
	p, err := s.Start(t.Context(), l)
	require.NoError(t, err, message...)
	return p
}

// startFails requires that a start fails for reasons that say each text.
func startFails(t *testing.T, s *Supervisor, l Launch, texts ...string) error {
	t.Helper()
	_, err := s.Start(t.Context(), l)
	require.ErrorIs(t, err, ErrStartFailed)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
	return err
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// startsTooLate starts incarnations of p/0 under ever longer start.timeouts, until one's error says that it was not
// ready in time, and each text. A short timeout may end before a busy machine has executed the program.
func startsTooLate(t *testing.T, s *Supervisor, sp spec.Spec, texts ...string) (incarnation int64) {
	t.Helper()
	for timeout := 200 * time.Millisecond; ; timeout *= 2 {
		incarnation++
		sp.Start.Timeout = spec.Duration(timeout)
		_, err := s.Start(t.Context(), launch("p/0", incarnation, sp))
		require.ErrorIs(t, err, ErrStartFailed)
		late := fmt.Sprintf("did not become ready within start.timeout (%s)", sp.Start.Timeout)
		if !slices.ContainsFunc(append(texts, late), func(text string) bool { return !strings.Contains(err.Error(), text) }) {
			return incarnation
		}
		require.Less(t, timeout, waitTimeout, "%v", err)
	}
}

// ends waits for the end of a process.
func ends(t *testing.T, p *Process) Exit {
	t.Helper()
	await(t, p.Done(), "the process did not end")
	return p.Exit()
}

// background calls run in a goroutine and delivers its result.
func background[T any](run func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- run() }()
	return done
}

func await[T any](t *testing.T, from <-chan T, message ...any) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(waitTimeout):
		require.FailNow(t, "timed out", message...)
		panic("unreachable")
	}
}

// errorOf is the error of a call whose result does not matter.
func errorOf[T any](_ T, err error) error { return err }

// stops stops a process.
func stops(t *testing.T, p *Process) Exit {
	t.Helper()
	exit, err := p.Stop(t.Context(), waitTimeout)
	require.NoError(t, err)
	return exit
}

// pidIn waits until a script has written a PID to a file, and returns which process has it.
func pidIn(t *testing.T, name string) tree.Identity {
	t.Helper()
	var id tree.Identity
	eventually(t, func() bool {
		data, err := os.ReadFile(name)
		if err != nil {
			return false
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			return false
		}
		var found bool
		id, found = tree.Identify(pid)
		return found
	}, "no living process in %s", filepath.Base(name))
	return id
}

func eventually(t *testing.T, condition func() bool, message string, args ...any) {
	t.Helper()
	require.Eventually(t, condition, waitTimeout, 2*time.Millisecond, append([]any{message}, args...)...)
}

// lives reports whether the very process is there and not a zombie.
func lives(t *testing.T, id tree.Identity) bool {
	t.Helper()
	entry, err := tree.ReadEntry(id.PID)
	require.NoError(t, err)
	return entry != nil && entry.Start == id.Start && !entry.Zombie
}

// pauses stops a process with all of its threads.
func pauses(t *testing.T, id tree.Identity) {
	t.Helper()
	require.NoError(t, tree.Signal(id, syscall.SIGSTOP))
	eventually(t, func() bool {
		entry, err := tree.ReadEntry(id.PID)
		return err == nil && entry != nil && entry.Stopped
	}, "the process must stop")
}

// cookieHolders returns the living processes whose cookie holds the text.
func cookieHolders(t *testing.T, text string) []int {
	t.Helper()
	table, err := tree.ScanTable(nil)
	require.NoError(t, err)
	var pids []int
	for cookie, rows := range table.CookieHolders {
		if strings.Contains(cookie, text) {
			for _, r := range rows {
				pids = append(pids, r.PID)
			}
		}
	}
	return pids
}
