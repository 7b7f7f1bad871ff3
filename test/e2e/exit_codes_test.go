package e2e

import (
	"encoding/json"
	"html"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/internal/logging/logtest"
)

// exits runs tempool with -o json and requires its exit code and the code of the error that it prints.
func (env *testEnv) exits(code int, says api.Code, args ...string) {
	env.t.Helper()
	var stdout, stderr logtest.Log
	patience := waitTimeout
	if says == api.CodeUnavailable {
		patience = 3 * time.Second
	}
	got := env.tempool(env.t.Context(), &stdout, &stderr, append(args, "-o", "json", "--timeout", patience.String())...)
	require.Equal(env.t, code, got, "tempool %v\n%s%s", args, &stdout, &stderr)
	var failure struct{ Error struct{ Code api.Code } }
	require.NoError(env.t, json.Unmarshal([]byte(stderr.String()), &failure), "%s", &stderr)
	require.Equal(env.t, says, failure.Error.Code, "tempool %v: %s", args, &stderr)
}

// viewsOf are the commands that show a pool.
func viewsOf(pool string) [][]string {
	return [][]string{{"ps", pool}, {"pool", "status", pool}, {"workers", "stats", pool}}
}

// page is a page of the dashboard of a host, as text.
func (env *testEnv) page(host, path string) string {
	env.t.Helper()
	_, page := request(env.t, env.gatewayClient(host), http.MethodGet, path, "", "")
	return html.UnescapeString(page)
}

// requireExitCodes are those of docs/operations/commands.md that no situation of a pool shows.
func (env *testEnv) requireExitCodes() {
	for _, view := range viewsOf("nosuch") {
		env.exits(cli.ExitFailed, api.CodePoolNotFound, view...)
	}
	env.exits(cli.ExitFailed, api.CodeWorkerNotFound, "history", "nosuch/0")
	env.exits(cli.ExitUsage, "usage", "ps", "one", "two")
	env.exits(cli.ExitUsage, "usage", "doctor", "--nosuch")
}

// requireViewsWithoutTemporal kills Temporal for a while: commands say so, and what an agent serves is as of
// the last answer.
func (env *testEnv) requireViewsWithoutTemporal(host, pool string) {
	scales(2)(env, env.client.Pool(pool))
	says := func(up float64) func() bool {
		return func() bool {
			s := readScrape(env.t, env.gatewayClient(host))
			return s.has(up, "tempool_control_plane_up") && s.has(2, "tempool_pool_ready", "pool", pool)
		}
	}
	// the gauges stay for a minute after the last answer, which this makes a new one
	require.Eventually(env.t, says(1), waitTimeout, 500*time.Millisecond)
	require.NoError(env.t, env.server.Kill())
	<-env.server.Done()
	require.Eventually(env.t, says(0), waitTimeout, 500*time.Millisecond)
	for _, view := range append(viewsOf(pool), [][]string{{"history", pool + "/0"}, {"ps"}, {"pool", "list"},
		{"hosts"}}...) {
		env.exits(cli.ExitFailed, api.CodeUnavailable, view...)
	}
	doctor := env.doctor()
	require.True(env.t, doctor.has("problem", "temporal", env.server.Address()), "%+v", doctor)
	for _, path := range []string{"/ui/", "/ui/pools/" + pool} {
		require.Eventually(env.t, func() bool { // viewers share an answer for a second
			page := env.page(host, path)
			return strings.Contains(page, "This is as of ") && strings.Contains(page, "healthy")
		}, waitTimeout, 500*time.Millisecond, path)
	}
	require.NoError(env.t, env.server.Restart(env.t.Context())) // the agents stop at once
}
