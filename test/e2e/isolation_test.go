package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/lifecycle"
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

// What isolation.env has given a process is in its environment, and in nothing that Tempool writes or shows.
func TestTheSecretsOfAKeyAreNowhereElse(t *testing.T) {
	t.Parallel()
	receiver := receiveTraces(t)
	env := newEnv(t)
	env.startAgentBy([]string{"env", "OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY=100"},
		"vault", "--log-level", "debug")
	secrets := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(secrets, "legible-key"), []byte("legible-file"), 0o600))
	s := echoSpec("vault", 1)
	s.Isolation = spec.Default().Isolation
	s.Isolation.By = spec.IsolateKey
	s.Isolation.Env = map[string]string{"WHO": "key", "TOKEN": "header:X-Token", "FILE": "file:" + secrets + "/{key}"}
	pool := env.startPool(s)
	env.waitReady(pool, 1)
	require.Empty(t, hostProcesses("vault"), "no key has come")
	as := func(key string) *tempool.Pool {
		return pool.With(tempool.CallOptions{Key: key, Header: http.Header{"X-Token": {"legible-header"}}})
	}
	events := env.followEvents("vault", "")
	stored := func() string {
		out, _ := env.ctl(cli.ExitOK, "ps", "-o", "json")
		all := string(env.stored()) + out + string(scrapeText(t, env.gatewayClient("vault")))
		for _, page := range []string{"/ui/pools/vault", "/ui/pools/vault/workers/0"} {
			response, err := env.gatewayClient("vault").Get("http://gateway" + page)
			require.NoError(t, err)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, errors.Join(err, response.Body.Close()))
			require.Equal(t, http.StatusOK, response.StatusCode, "%s", text)
			all += string(text)
		}
		for name, text := range filesBelow(t, env.dir) {
			all += name + text
		}
		return all
	}
	require.Contains(t, stored(), "X-Token", "the source is no secret: what is searched is what is written")
	for _, crash := range []bool{true, false} {
		_, err := as("legible-key").CallRaw(t.Context(), "echo", []byte(`"x"`))
		require.NoError(t, err)
		pids := hostProcesses("vault")
		require.Len(t, pids, 1)
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pids[0]))
		require.NoError(t, err)
		for _, variable := range []string{"WHO=legible-key\x00", "TOKEN=legible-header\x00", "FILE=legible-file\x00"} {
			require.Contains(t, string(environ), variable)
		}
		_, err = as("legible-stranger").CallRaw(t.Context(), "echo", []byte(`"x"`))
		require.ErrorIs(t, err, &api.Error{Code: api.CodeStartFailed}, "it has no file")
		if crash {
			before := env.waitState(pool, 0, lifecycle.Ready).Incarnation
			_, err = as("legible-key").CallRaw(t.Context(), "echo", []byte(`"x"`))
			require.NoError(t, err)
			killProcess(t, hostProcesses("vault")[0])
			env.waitFor(pool, "the worker was replaced", func(v api.PoolWorkers) bool {
				return v.Workers[0].Incarnation > before && v.Workers[0].State == lifecycle.Ready
			})
		}
	}
	receiver.find("the call", func(span *tracepb.Span) bool { return strings.Contains(span.Name, "echo") })
	receiver.mu.Lock()
	spans := fmt.Sprint(receiver.spans)
	receiver.mu.Unlock()
	events.mu.Lock()
	happened := fmt.Sprint(events.events)
	events.mu.Unlock()
	require.NotEmpty(t, happened)
	for _, place := range []string{stored(), spans, happened} {
		for _, secret := range []string{"legible-header", "legible-file", "legible-key", "legible-stranger", "bGVnaWJsZ"} {
			require.NotContains(t, place, secret)
		}
	}
}

// filesBelow are the contents of all files in a directory.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	}))
	return files
}
