package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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
	env := oneHost(t, "notebook")
	s := loadSpec(t, "../../examples/notebook")
	s.Pool.Size = 1
	pool := env.startPool(s)
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
	_, err := pool.CallRaw(t.Context(), "run", []byte(`{"cell": ""}`))
	require.ErrorIs(t, err, api.ErrKeyRequired)

	run("anna", "x = 2")
	env.waitFor(pool, "the host reports whose process it is", func(v api.PoolWorkers) bool {
		return v.Workers[0].Key != nil && v.Workers[0].Key.Key == "55579b55" && v.Workers[0].Process == 3
	})
	out, _ := env.ctl(cli.ExitOK, "workers", "release", "notebook/0")
	require.Contains(t, out, "notebook/0 ends the process of key 55579b55 after its calls")
	require.Contains(t, run("anna", "print(x)"), "NameError")
}

// Clients call a pool of two hosts, and lease its workers from Temporal, while processes, templates and agents are
// killed, an agent is replaced that keeps its processes, and a host is cut off from Temporal: each process serves one
// key, or one use.
func TestNoProcessServesTwoKeysOrUses(t *testing.T) {
	t.Parallel()
	for _, by := range []string{spec.IsolateKey, spec.IsolateUse} {
		t.Run(by, func(t *testing.T) { attackIsolation(t, by) })
	}
}

func attackIsolation(t *testing.T, by string) {
	env := newEnv(t)
	hosts := []string{by + "-a", by + "-b"}
	link := newLink(t, ownAddress(t), dials(env.server.Address()))
	start := func(host string) *agent {
		address := env.server.Address()
		if host == hosts[1] {
			address = link.addr
		}
		return env.startAgent(host, "--capacity", "4", "--keep-processes", "--address", address)
	}
	agents := []*agent{start(hosts[0]), start(hosts[1])}
	notes := filepath.Join(env.dir, "notes")
	require.NoError(t, os.Mkdir(notes, 0o700))
	s := pythonSpec(by, 6, "keys.py")
	s.Pool.Env["KEYS"] = notes
	if s.Isolation.By, s.Start.Fork = by, true; by == spec.IsolateKey {
		s.Isolation.Idle = spec.Duration(2 * time.Second)
	}
	s.Recovery.MaxConsecutiveFailures, s.Recovery.BackoffMax = 1_000_000, spec.Duration(time.Second)
	pool := env.startPool(s)

	ctx, cancel := context.WithTimeout(t.Context(), *soak)
	defer cancel()
	// patient lasts until the holder on a slow machine has called, too
	patient, end := context.WithTimeout(t.Context(), *soak+waitTimeout)
	defer end()
	lasts := func(d time.Duration) bool { return wait(ctx, d) } // the attack, for so long
	var group sync.WaitGroup
	var answered, leased, uses, kills, templates atomic.Int64
	whose := func() (name, key string) {
		if by == spec.IsolateUse {
			return fmt.Sprint("use ", uses.Add(1)), ""
		}
		key = fmt.Sprint("key ", rand.N(50))
		return key, key
	}
	for client := range 16 {
		group.Go(func() {
			gateway := env.gatewayClient(hosts[client%2])
			for ctx.Err() == nil {
				name, key := whose()
				response, _, err := send(ctx, gateway, http.MethodPost, "/v1/pools/"+by+"/call/use", fmt.Sprintf("%q", name),
					api.HeaderKey, key)
				if err != nil { // the agent is away
					lasts(10 * time.Millisecond)
					continue
				}
				if response.StatusCode == http.StatusOK {
					answered.Add(1)
				}
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil || leased.Load() == 0 && patient.Err() == nil {
			name, key := whose()
			lease, err := pool.Checkout(patient, tempool.CheckoutOptions{Holder: "holder", Key: key})
			if err != nil {
				continue
			}
			for range 3 {
				if _, err := lease.CallRaw(patient, "use", fmt.Appendf(nil, "%q", name)); err == nil {
					leased.Add(1)
				}
			}
			_ = lease.Checkin(patient, api.OutcomeOK)
		}
	})
	group.Go(func() {
		for n := 0; lasts(time.Second); n++ {
			own := processesWith("KEYS=" + notes)
			// one that the log names may have ended, and its number may be a process's of another test
			template := newestTemplate(env, hosts[n/10%2])
			if n%10 == 5 && slices.Contains(own, template) && syscall.Kill(template, syscall.SIGKILL) == nil {
				templates.Add(1)
			}
			if killOneOf(slices.DeleteFunc(own, func(pid int) bool {
				served, _ := filepath.Glob(filepath.Join(notes, fmt.Sprint(pid, "-*")))
				return len(served) == 0 // it may be a template, which takes seconds to load
			})) {
				kills.Add(1)
			}
		}
	})
	// longer than the grace of a host that is silent, if there is time
	pause := func() bool { return lasts(min(*soak/5, 25*time.Second)) }
	faults := []func(){
		func() { link.cut(); pause(); link.heal() },
		func() { agents[0].stop(); agents[0] = start(hosts[0]) },
		func() { agents[1].kill(); agents[1] = start(hosts[1]) },
	}
	group.Go(func() { // as an operator does: starts fail with their template, which opens the breaker
		for lasts(5 * time.Second) {
			if status, err := pool.Status(ctx); err == nil && status.StartsPaused != "" {
				_, _ = pool.Restart(ctx, api.RestartRequest{Reason: "the breaker is open"})
			}
		}
	})
	happened := 0
	for ; pause(); happened++ {
		faults[happened%len(faults)]()
	}
	group.Wait()
	env.waitReady(pool, 6)

	files, err := os.ReadDir(notes)
	require.NoError(t, err)
	served := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(notes, file.Name()))
		require.NoError(t, err)
		names := slices.Compact(slices.Sorted(strings.Lines(string(text))))
		require.LessOrEqual(t, len(names), 1, "process %s has served two", file.Name())
		for _, name := range names { // none if it was killed before it wrote
			served[name]++
		}
	}
	t.Logf("%d calls and %d under leases answered; %d processes for %d; %d kills of processes, %d of templates, "+
		"%d faults of agents and links", answered.Load(), leased.Load(), len(files), len(served), kills.Load(),
		templates.Load(), happened)
	require.Greater(t, len(served), 6)
	require.Positive(t, leased.Load())
}

// newestTemplate is the process of the template that a host has started last, as its agent logs it; 0 for none.
func newestTemplate(env *testEnv, hostID string) (pid int) {
	log, _ := os.ReadFile(filepath.Join(env.dir, hostID+".log"))
	if all := templateReady.FindAllSubmatch(log, -1); len(all) > 0 {
		pid, _ = strconv.Atoi(string(all[len(all)-1][1]))
	}
	return pid
}

var templateReady = regexp.MustCompile(`"template is ready".*"pid":(\d+)`)

// What isolation.env has given a process is in its environment, and in nothing that Tempool writes or shows.
func TestTheSecretsOfAKeyAreNowhereElse(t *testing.T) {
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
	require.Empty(t, hostProcesses("vault"), "no key has come")
	as := func(key string) *tempool.Pool {
		return pool.With(tempool.CallOptions{Key: key, Header: http.Header{"X-Token": {"legible-header"}}})
	}
	events := env.followEvents("vault")
	stored := func() string {
		out, _ := env.ctl(cli.ExitOK, "ps", "-o", "json")
		all := string(env.stored()) + out + scrapeText(t, env.gatewayClient("vault"))
		for _, page := range []string{"/ui/pools/vault", "/ui/pools/vault/workers/0"} {
			all += mustRequest(t, env.gatewayClient("vault"), http.MethodGet, page, "", "")
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
		text := []byte(nil)
		if err == nil && entry.Type().IsRegular() {
			text, err = os.ReadFile(path)
			files[path] = string(text)
		}
		if errors.Is(err, fs.ErrNotExist) { // a file of an agent that runs
			return nil
		}
		return err
	}))
	return files
}
