package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// made waits for a process that begin has made, and returns why there is none.
func made(t *testing.T, p *Process, begin func(done func(error))) error {
	t.Helper()
	done := make(chan error, 1)
	begin(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-p.Done():
		require.Fail(t, "the incarnation ended: "+p.Exit().Reason)
	case <-time.After(waitTimeout):
		require.Fail(t, "no process was made")
	}
	return nil
}

// recycle has a clean process made, and waits for it.
func recycle(t *testing.T, p *Process) {
	t.Helper()
	require.NoError(t, made(t, p, func(done func(error)) { p.Recycle(func() { done(nil) }) }))
}

// bind has a key's process started, and returns why it was not.
func bind(t *testing.T, p *Process, b Binding) error {
	t.Helper()
	return made(t, p, func(done func(error)) { p.Bind(b, done) })
}

func TestAnIncarnationHasCleanProcessesOneAfterTheOther(t *testing.T) {
	for _, fork := range []bool{true, false} {
		t.Run(fmt.Sprintf("fork %v", fork), func(t *testing.T) {
			sp := forks(t, forkedProgram)
			sp.Start.Fork = fork
			if !fork {
				sp.Pool.Env["X"] = "1"
			}
			s := open(t)
			p := starts(t, s, launch("p/0", 7, sp))
			seen := map[int]bool{}
			for number := range 4 {
				require.EqualValues(t, number+1, p.Info().Number)
				require.True(t, p.Use(""))
				require.False(t, p.Use(""), "a process has one use")
				child := ask[int](t, p, "fork_holder")
				pid := p.Info().PID
				require.False(t, seen[pid])
				seen[pid] = true
				recycle(t, p)
				require.ErrorIs(t, syscall.Kill(child, 0), syscall.ESRCH, "the old tree is gone before")
				require.Nil(t, p.Used())
				require.NoError(t, p.Probe(t.Context()))
			}
			require.Equal(t, []*Process{p}, s.List())
			found, _ := s.Get("p/0", 7)
			require.Same(t, p, found)

			// A process that ends on its own ends the incarnation.
			_, _ = p.Conn().Call(t.Context(), wire.Request{Method: "leave", Payload: []byte("7")})
			<-p.Done()
			require.Equal(t, 7, p.Exit().Code)
			require.Empty(t, s.List())

			// So does a stop while a clean process is made.
			p = starts(t, s, launch("p/0", 8, sp))
			p.Recycle(func() {})
			stops(t, p)
			require.Empty(t, s.List())
		})
	}
}

func TestLimitsAppliedBetweenTwoProcessesAreThoseOfTheNext(t *testing.T) {
	fs, _ := fakeCgroupFS(t, "memory")
	between := func() {}
	s := open(t, func(c *Config) {
		c.cgroupFS = func() (limits.CgroupFS, error) { return fs, nil }
		c.fork = func(cmd *exec.Cmd) error { between(); return tree.StartChild(cmd) }
	})
	sp := forks(t, forkedProgram)
	sp.Start.Fork, sp.Limits.Memory = false, 1<<40
	p := starts(t, s, launch("p/0", 1, sp))
	require.NoError(t, errorOf(p.ApplyLimits(1<<39, 2)))
	err := errors.New("it was not tried")
	between = func() { err = errorOf(p.ApplyLimits(1<<40, 0)) } // the old process is gone, the next one is not there
	recycle(t, p)
	require.NoError(t, err)
	require.Equal(t, []any{spec.Bytes(1 << 40), 0.0}, []any{p.Limits().Memory, p.Limits().CPU})

	between = func() { err = errorOf(p.ApplyLimits(1<<38, 0)) }
	recycle(t, p)
	require.NoError(t, err)
	require.EqualValues(t, 1<<38, p.Limits().Memory)
	require.Contains(t, textOf(t, filepath.Join(p.now().plan.cgroup.Dir, "memory.max")), strconv.Itoa(1<<38))
}

func TestAnIncarnationEndsWithAProcessThatDoesNotBecomeReady(t *testing.T) {
	file := t.TempDir() + "/broken"
	sp := forks(t, fmt.Sprintf(`
@tempool.after_fork
def check():
    if os.path.exists(%q): raise RuntimeError("broken")`, file))
	s := open(t)
	p := starts(t, s, launch("p/0", 1, sp))
	p.Use("")
	require.NoError(t, syscall.Mkdir(file, 0o755))
	p.Recycle(func() { t.Error("it is not ready") })
	<-p.Done()
	require.Contains(t, p.Exit().Reason, "broken")
}

func TestAProcessStartsWhenItsKeyComes(t *testing.T) {
	root := t.TempDir()
	sp := forks(t, `
token = os.environ["TOKEN"]
if token == "wrong": sys.exit("no such token")
@tempool.method
def facts():
    tempool.context().count("asked")
    return [os.environ["WHO"], token, os.environ["FILE"], os.getcwd()]`)
	sp.Start.Fork, sp.Isolation.By, sp.Pool.Dir = false, spec.IsolateKey, root+"/{key}"
	sp.Isolation.Env = map[string]string{"WHO": "key", "TOKEN": "header:X-Token", "FILE": "file:" + root + "/{key}.secret"}
	require.NoError(t, os.WriteFile(root+"/ann.secret", []byte("blue\n"), 0o600))
	require.NoError(t, os.WriteFile(root+"/bob.secret", []byte("red"), 0o600))
	of := func(key, token string) Binding {
		return Binding{Owner: key + token, Key: key, Headers: map[string]string{"x-token": token}}
	}
	dir := shortDir(t)
	s := open(t, in(dir), takeOver)
	p := starts(t, s, launch("p/0", 1, sp))
	vacant := func() {
		t.Helper()
		require.True(t, p.Vacant())
		require.Nil(t, p.Conn())
		require.Zero(t, p.Info().PID)
		require.NoError(t, p.Probe(t.Context()))
		require.ErrorIs(t, p.CollectGarbage(t.Context()), ErrUnavailable)
		require.NoError(t, p.Freeze(1))
		p.Thaw(1)
		require.NoError(t, errorOf(p.ApplyLimits(1<<40, 2)))
		require.Nil(t, p.Used())
	}
	for range 2 {
		vacant()
		require.NoError(t, bind(t, p, of("ann", "A")))
		require.Equal(t, []string{"ann", "A", "blue", root + "/ann"}, ask[[]string](t, p, "facts"))
		require.EqualValues(t, 1<<40, p.Limits().Memory)
		require.Equal(t, "annA", p.Used().Key)
		recycle(t, p)
	}
	vacant()

	// A key whose process does not start is no fault of the worker.
	for reason, b := range map[string]Binding{
		"exited with code 1": of("bob", "wrong"), "{key}.secret": of("cat", "C"), "part of a path": of("../ann", "A"),
	} {
		err := bind(t, p, b)
		require.ErrorContains(t, err, reason)
		require.NotContains(t, err.Error(), "no such token", "the output may be another key's")
		vacant()
	}
	require.NoFileExists(t, root+"/../ann")

	// The next agent knows whose it is, and starts the next key's process from the spec, not from this key's.
	require.NoError(t, bind(t, p, of("bob", "B")))
	require.NoError(t, errorOf(s.HandOver(t.Context(), noted)))
	require.NoError(t, s.Close(t.Context()))
	s = open(t, in(dir), takeOver)
	p = s.TakenOver()[0].Process
	require.Equal(t, "bobB", p.Used().Key)
	require.Equal(t, "red", ask[[]string](t, p, "facts")[2])
	require.EqualValues(t, 3, p.Counts()["asked"], "of all processes of the incarnation")
	recycle(t, p)
	require.True(t, p.Vacant())
	require.NoError(t, bind(t, p, of("ann", "A")))
	require.Equal(t, []string{"ann", "A", "blue", root + "/ann"}, ask[[]string](t, p, "facts"))
}
