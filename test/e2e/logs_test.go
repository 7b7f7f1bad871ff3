package e2e

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/internal/logging/logtest"
)

func TestTheLogsOfAPoolOnTwoHosts(t *testing.T) {
	env := newEnv(t)
	first := env.startAgent("first", "--capacity", "1")
	env.startAgent("second", "--capacity", "1")
	pool := env.startPool(shellSpec("talks", 2, "echo hello from $TEMPOOL_WORKER; while :; do sleep 0.2; done"))
	contains := func(text *string, what string, args ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			var out, failure bytes.Buffer // Temporal waits ten seconds for the cache of an agent that was killed
			code := env.tempool(t.Context(), &out, &failure, append([]string{"logs"}, args...)...)
			*text = out.String()
			return code == cli.ExitOK && strings.Contains(*text, what)
		}, waitTimeout, 200*time.Millisecond, "no %q", what)
	}
	var text string
	contains(&text, "talks/0 #1 stdout: hello from talks/0", "talks")
	contains(&text, "talks/1 #1 stdout: hello from talks/1", "talks")
	_, failure := env.ctl(cli.ExitFailed, "logs", "talks/7")
	require.Contains(t, failure, "no worker 7")
	_, failure = env.ctl(cli.ExitFailed, "logs", "nosuch")
	require.Contains(t, failure, "nosuch")

	var followed logtest.Log
	ctx, stop := context.WithCancel(t.Context())
	following := make(chan int, 1)
	go func() {
		following <- env.tempool(ctx, &followed, &followed, "logs", "talks", "-f", "--timeout", waitTimeout.String())
	}()
	defer stop()
	view := env.waitReady(pool, 2)
	killProcess(t, view.Workers[0].PID)
	env.waitFor(pool, "the next process",
		func(view api.PoolWorkers) bool { return view.Ready == 2 && view.Workers[0].Incarnation > 1 })
	contains(&text, "tempool: ended: killed by SIGKILL", "talks/0", "--previous")
	require.Contains(t, text, "#1 stdout: hello from talks/0")
	require.NotContains(t, text, "#2")
	require.Eventually(t, func() bool {
		return strings.Contains(followed.String(),
			"talks/0 #2 stdout: hello from talks/0")
	}, waitTimeout, 100*time.Millisecond)

	host := view.Workers[0].Host
	if host != "first" {
		host = view.Workers[1].Host
	}
	require.Equal(t, "first", host)
	first.kill()
	contains(&text, "hello from", "talks") // of the second host, at once
	env.startAgent("first", "--capacity", "1")
	env.waitForWithin(2*waitTimeout, pool, "both workers", func(view api.PoolWorkers) bool {
		return view.Ready == 2 && view.Workers[0].Incarnation+view.Workers[1].Incarnation >= 4
	})
	contains(&text, "talks/0 #1 stdout: hello from talks/0", "talks") // the lines of before the kill are still there
	contains(&text, "talks/1 #1 stdout: hello from talks/1", "talks")
	stop()
	require.Equal(t, cli.ExitOK, <-following)
}
