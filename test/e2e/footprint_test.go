package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// footprint is the resource usage of an agent after a garbage collection.
type footprint struct {
	HeapBytes  int64 `json:"heap_bytes"`
	Goroutines int   `json:"goroutines"`
	Files      int   `json:"-"` // open files
	Threads    int   `json:"-"`
}

// writeFootprints runs in the agent: at each SIGUSR1 it writes a footprint and a heap profile to dir. It never returns.
func writeFootprints(dir string) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	for range asked {
		runtime.GC()
		runtime.GC() // frees what finalizers and sync.Pools still held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		content, err := json.Marshal(footprint{HeapBytes: int64(m.HeapAlloc), Goroutines: runtime.NumGoroutine()})
		if err != nil {
			continue
		}
		if profile, err := os.Create(filepath.Join(dir, fmt.Sprintf("heap.%d.pprof", os.Getpid()))); err == nil {
			_ = pprof.Lookup("heap").WriteTo(profile, 0)
			_ = profile.Close()
		}
		next := filepath.Join(dir, fmt.Sprintf("footprint.%d.next", os.Getpid()))
		if os.WriteFile(next, content, 0o600) == nil {
			_ = os.Rename(next, footprintFile(dir, os.Getpid()))
		}
	}
}

func footprintFile(dir string, pid int) string {
	return filepath.Join(dir, fmt.Sprintf("footprint.%d", pid))
}

// footprint requests a footprint from the agent.
func (a *agent) footprint(t *testing.T) (f footprint) {
	t.Helper()
	path := footprintFile(filepath.Dir(a.log), a.cmd.Process.Pid)
	_ = os.Remove(path)
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGUSR1))
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(content, &f) == nil
	}, waitTimeout, 20*time.Millisecond)
	count := func(kind string) int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", a.cmd.Process.Pid, kind))
		require.NoError(t, err)
		return len(entries)
	}
	f.Files, f.Threads = count("fd"), count("task")
	return f
}
