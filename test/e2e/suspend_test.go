package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// signal signals a worker as a user's workflow does. Tempool's own clients send an order.
func (env *testEnv) signal(pool *tempool.Pool, slot int, signal, reason string) {
	env.t.Helper()
	env.send(api.WorkerWorkflowID(pool.Name(), slot), signal, api.Control{Reason: reason})
}

func TestASuspension(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"its hooks run and delay nothing":                       hooksOfASuspension,
		"a frozen worker is not probed, and continues or stops": frozenWorkers,
	})
}

// startLingering starts a call that lasts until the folder has a file "release", and returns once it is in flight.
func startLingering(t *testing.T, lease *tempool.Lease) (folder string, ended <-chan error) {
	t.Helper()
	folder = t.TempDir()
	answered := make(chan error, 1)
	go func() { answered <- lease.Call(t.Context(), "linger", []string{folder}, nil) }()
	require.Eventually(t, func() bool { return exists(folder, "begun") }, waitTimeout, 10*time.Millisecond,
		"a call is in flight")
	return folder, answered
}

func exists(folder, file string) bool {
	_, err := os.Stat(filepath.Join(folder, file))
	return err == nil
}
