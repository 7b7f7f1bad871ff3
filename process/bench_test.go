package process

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
)

func benchSupervisor(b *testing.B) *Supervisor {
	s, err := Open(b.Context(), Config{StateDir: b.TempDir(), HostID: "bench", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// BenchmarkSpawn compares, turn by turn in one run, the time until a Python worker has said its hello when the
// supervisor starts it and when it is started by hand. supervised-ms and by-hand-ms are means.
func BenchmarkSpawn(b *testing.B) {
	s := benchSupervisor(b)
	sp := python(b)
	sp.Pool.Command[0] = "/usr/bin/python3" // python3 may be a wrapper, whose time would hide ours
	var supervised, byHand time.Duration
	b.ResetTimer()
	for i := range b.N {
		began := time.Now()
		p, err := s.Start(b.Context(), launch("p/0", int64(i+1), sp))
		require.NoError(b, err)
		supervised += time.Since(began)
		p.Kill("measured")
		<-p.Done()

		began = time.Now()
		ours, theirs, err := launcher.SocketPair()
		require.NoError(b, err)
		answers, out, err := os.Pipe()
		require.NoError(b, err)
		cmd := exec.Command(sp.Pool.Command[0], sp.Pool.Command[1:]...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), EnvFD + "=" + strconv.Itoa(framesFD), EnvOut + "=" +
			strconv.Itoa(outFD), EnvWorker + "=p/0"}
		for name, value := range sp.Pool.Env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.ExtraFiles = []*os.File{theirs, out}
		require.NoError(b, tree.StartChild(cmd))
		theirs.Close()
		out.Close()
		conn, err := wire.NewFrames(answers, ours, wire.Options{})
		require.NoError(b, err)
		require.NoError(b, wire.AwaitReady(b.Context(), conn))
		byHand += time.Since(began)
		require.NoError(b, cmd.Process.Kill())
		_ = tree.WaitChild(cmd)
		conn.Close()
	}
	b.ReportMetric(supervised.Seconds()*1000/float64(b.N), "supervised-ms")
	b.ReportMetric(byHand.Seconds()*1000/float64(b.N), "by-hand-ms")
}

// BenchmarkCrashToDone measures from the death of a process until its tree is known to be gone and its Exit is there.
func BenchmarkCrashToDone(b *testing.B) {
	s := benchSupervisor(b)
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		p, err := s.Start(b.Context(), launch("p/0", int64(i+1), runs("sleep", "1000")))
		require.NoError(b, err)
		b.StartTimer()
		require.NoError(b, p.cmd.Process.Kill())
		<-p.Done()
	}
}

// BenchmarkSampleOf100 measures one round of the sampler over 100 workers, each a tree of ten processes, and reports
// what rounds every DefaultSampleEvery take of one core.
func BenchmarkSampleOf100(b *testing.B) {
	s := benchSupervisor(b)
	sp := runs("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; sleep 1000; exit")
	for i := range 100 {
		_, err := s.Start(b.Context(), launch("p/"+strconv.Itoa(i), 1, sp))
		require.NoError(b, err)
	}
	round := func() {
		t, err := s.tables.Recent(0)
		require.NoError(b, err)
		for _, p := range s.List() {
			_, err := p.meter.Sample(t, p.treeKey(), &s.pss)
			require.NoError(b, err)
		}
	}
	round() // reads PSS for the first time
	before := cpuTime(b)
	b.ResetTimer()
	for range b.N {
		round()
	}
	used := (cpuTime(b) - before).Seconds() / float64(b.N)
	b.ReportMetric(100*used/DefaultSampleEvery.Seconds(), "%core")
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var used unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
