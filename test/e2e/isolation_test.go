package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Users of the example share one process, one after the other: each finds what it has left, unless it gave way.
func TestAUserOfANotebookFindsItsOwnNamesOnly(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("notebook")
	s, err := spec.Load("../../examples/notebook/pool.toml")
	require.NoError(t, err)
	s.Pool.Size = 1
	pool := env.startPool(patient(s))
	run := func(user, cell string) string {
		answer, err := pool.With(tempool.CallOptions{Key: user}).CallRaw(t.Context(), "run",
			fmt.Appendf(nil, `{"cell": %q}`, cell))
		require.NoError(t, err)
		return string(answer)
	}
	run("anna", "x = 1")
	require.JSONEq(t, `{"output": "1\n"}`, run("anna", "print(x)"))
	require.Contains(t, run("bob", "print(x)"), "NameError")
	require.Contains(t, run("anna", "print(x)"), "NameError", "her process gave way")
	_, err = pool.CallRaw(t.Context(), "run", []byte(`{"cell": ""}`))
	require.ErrorIs(t, err, api.ErrKeyRequired)
}

// Clients with more keys than processes call a pool of two hosts, and lease its workers from Temporal, while a process
// is killed each second and an agent is replaced that keeps its processes: each process serves one key.
func TestNoProcessServesTwoKeys(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	hosts := []string{"keys-a", "keys-b"}
	agents := map[string]*agent{}
	for _, host := range hosts {
		agents[host] = env.startAgent(host, "--capacity", "4", "--keep-processes")
	}
	notes := filepath.Join(env.dir, "keys")
	require.NoError(t, os.Mkdir(notes, 0o700))
	s := pythonSpec("keys", 6, "keys.py")
	s.Pool.Env["KEYS"] = notes
	s.Isolation = spec.Isolation{By: spec.IsolateKey, Idle: spec.Duration(2 * time.Second), MaxPerKey: 1}
	s.Start.Fork = true
	s.Recovery.MaxConsecutiveFailures, s.Recovery.BackoffMax = 1_000_000, spec.Duration(time.Second)
	pool := env.startPool(s)
	env.waitReady(pool, 6)

	ctx, cancel := context.WithTimeout(t.Context(), *soak)
	defer cancel()
	var group sync.WaitGroup
	var answered, leased atomic.Int64
	for client := range 16 {
		group.Go(func() {
			gateway := env.gatewayClient(hosts[client%2])
			for ctx.Err() == nil {
				key := fmt.Sprint("key ", rand.N(50))
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/v1/pools/keys/call/use",
					strings.NewReader(fmt.Sprintf("%q", key)))
				assert.NoError(t, err)
				request.Header.Set(api.HeaderKey, key)
				if response, err := gateway.Do(request); err == nil {
					if response.StatusCode == http.StatusOK {
						answered.Add(1)
					}
					assert.NoError(t, response.Body.Close())
				}
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			key := fmt.Sprint("key ", rand.N(50))
			lease, err := pool.Checkout(ctx, tempool.CheckoutOptions{Holder: "holder", Key: key})
			if err != nil {
				continue
			}
			for range 3 {
				if _, err := lease.CallRaw(ctx, "use", fmt.Appendf(nil, "%q", key)); err == nil {
					leased.Add(1)
				}
			}
			_ = lease.Checkin(ctx, api.OutcomeOK)
		}
	})
	replaced := false
	for end := time.Now().Add(*soak); time.Now().Before(end); sleep(t, time.Second) {
		killRandomWorker(hosts[rand.N(2)])
		if !replaced && time.Until(end) < *soak/2 {
			agents["keys-a"].stop()
			env.startAgent("keys-a", "--capacity", "4", "--keep-processes")
			replaced = true
		}
	}
	cancel()
	group.Wait()

	files, err := os.ReadDir(notes)
	require.NoError(t, err)
	served := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(notes, file.Name()))
		require.NoError(t, err)
		keys := slices.Compact(slices.Sorted(strings.Lines(string(text))))
		require.Len(t, keys, 1, "process %s has served two keys", file.Name())
		served[keys[0]]++
	}
	t.Logf("%d calls and %d under leases answered; %d processes for %d keys", answered.Load(), leased.Load(), len(files),
		len(served))
	require.Greater(t, len(served), 6)
	require.Positive(t, leased.Load())
}
