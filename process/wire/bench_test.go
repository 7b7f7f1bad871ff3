package wire

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// socketPair returns this side's end, ready for NewFrames, and the worker's.
func socketPair(t testing.TB) (net.Conn, *os.File) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	ours := os.NewFile(uintptr(fds[0]), "host")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	require.NoError(t, err)
	return conn, os.NewFile(uintptr(fds[1]), "worker")
}

func sdkDir(t testing.TB, name string) string {
	dir, err := filepath.Abs(filepath.Join("..", "..", "sdk", name))
	require.NoError(t, err)
	return dir
}

// echoPython starts the SDK's echo and returns the Conn to it.
func echoPython(t testing.TB, o Options) Conn {
	ours, theirs := socketPair(t)
	cmd := exec.Command("python3", "-c", strings.Join([]string{
		"import tempool",
		"@tempool.method(raw=True)",
		"def echo(body): return body",
		"tempool.run()",
	}, "\n"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+sdkDir(t, "python"), "TEMPOOL_FD=3")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	require.NoError(t, cmd.Start())
	theirs.Close()
	c, err := NewFrames(ours, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.NoError(t, cmd.Wait())
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, AwaitReady(ctx, c))
	return c
}

// BenchmarkEchoPython measures calls a second of 100 bytes; ns/op is the time per call over all callers.
func BenchmarkEchoPython(b *testing.B) {
	for _, shape := range []struct{ workers, callers, inflight int }{{1, 1, 1}, {2, 8, 1}, {2, 8, 4}} {
		b.Run(fmt.Sprintf("workers=%d/callers=%d/inflight=%d", shape.workers, shape.callers, shape.inflight), func(b *testing.B) {
			conns := make([]Conn, shape.workers)
			for i := range conns {
				conns[i] = echoPython(b, Options{MaxInflight: shape.inflight})
			}
			payload := []byte(strings.Repeat("x", 100))
			var callers sync.WaitGroup
			b.ResetTimer()
			b.ReportAllocs()
			for i := range shape.callers {
				callers.Go(func() {
					for n := i; n < b.N; n += shape.callers {
						resp, err := conns[i%len(conns)].Call(context.Background(), Request{Method: "echo", Payload: payload})
						if err != nil || len(resp.Payload) != len(payload) {
							b.Errorf("echo: %v", err)
							return
						}
					}
				})
			}
			callers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}
