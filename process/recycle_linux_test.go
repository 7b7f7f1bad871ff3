package process

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/wire"
)

// recycle has a clean process made, and waits for it.
func recycle(t *testing.T, p *Process) {
	t.Helper()
	clean := make(chan struct{})
	p.Recycle(func() { close(clean) })
	select {
	case <-clean:
	case <-p.Done():
		require.Fail(t, "the incarnation ended: "+p.Exit().Reason)
	case <-time.After(waitTimeout):
		require.Fail(t, "no clean process")
	}
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
			p := started(t, s, launch("p/0", 7, sp))
			seen := map[int]bool{}
			for number := range 4 {
				require.EqualValues(t, number+1, p.Info().Number)
				require.True(t, p.Use(""))
				require.False(t, p.Use(""), "a process has one use")
				child := ask[int](t, p, "spawn")
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
			_, _ = p.Conn().Call(t.Context(), wire.Request{Method: "crash"})
			<-p.Done()
			require.Equal(t, 7, p.Exit().Code)
			require.Empty(t, s.List())

			// So does a stop while a clean process is made.
			p = started(t, s, launch("p/0", 8, sp))
			p.Recycle(func() {})
			_, err := p.Stop(t.Context(), 0)
			require.NoError(t, err)
			require.Empty(t, s.List())
		})
	}
}

func TestAnIncarnationEndsWithAProcessThatDoesNotBecomeReady(t *testing.T) {
	file := t.TempDir() + "/broken"
	sp := forks(t, fmt.Sprintf(`
@tempool.after_fork
def check():
    if os.path.exists(%q): raise RuntimeError("broken")`, file))
	s := open(t)
	p := started(t, s, launch("p/0", 1, sp))
	p.Use("")
	require.NoError(t, syscall.Mkdir(file, 0o755))
	p.Recycle(func() { t.Error("it is not ready") })
	<-p.Done()
	require.Contains(t, p.Exit().Reason, "broken")
}
