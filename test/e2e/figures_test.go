package e2e

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
)

// TestTheFiguresOfAPoolAreThoseOfAllHosts calls a pool with a worker on each of two hosts, and deploys another spec.
func TestTheFiguresOfAPoolAreThoseOfAllHosts(t *testing.T) {
	env := newEnv(t)
	env.startAgent("first", "--capacity", "1")
	env.startAgent("second", "--capacity", "1")
	s := echoSpec("figures", 2)
	pool := env.startPool(s)
	for _, host := range []string{"first", "second"} {
		for range 20 {
			mustRequest(t, env.gatewayClient(host), "POST", "/v1/pools/figures/call/echo", `["x"]`, "")
		}
	}
	status, _ := request(t, env.gatewayClient("first"), "POST", "/v1/pools/figures/call/nothing", `[]`, "")
	require.Equal(t, http.StatusNotFound, status)

	var last *api.Rates
	require.Eventually(t, func() bool {
		last = ctlJSON[api.PoolWorkers](env, "ps", "figures").LastMinute
		return last != nil && last.CallsPerSecond*float64(last.Seconds) > 40.5
	}, waitTimeout, 100*time.Millisecond, "the heartbeats of both hosts")
	require.Positive(t, last.ErrorsPerSecond[string(api.CodeMethodNotFound)])
	require.Positive(t, last.ServingMS.P50)
	out, _ := env.ctl(cli.ExitOK, "pool", "status", "figures")
	require.Regexp(t, `Last minute +[0-9.]+ calls/s, .*\n +Waiting +p50 0ms, (.|\n)* method_not_found`, out)

	s.Pool.Env["OTHER"] = "1"
	_, err := pool.ApplySpec(t.Context(), api.ApplyRequest{Spec: s})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		all, err := pool.RecentQueue(t.Context(), tempool.GatewayOptions{})
		if err != nil || len(all) != 2 {
			return false
		}
		var processes api.Counts
		for _, host := range all {
			for _, minute := range host.Minutes {
				for _, one := range minute.Processes {
					processes.Add(one.Name, one.Count)
				}
			}
		}
		methods := api.AddMethods(append(all[0].Methods, all[1].Methods...)...)
		return slices.Contains(processes, api.Count{Name: api.Deployed, Count: 2}) && processes.Sum() == 4 &&
			len(methods) == 2 && methods[0].Method == api.OtherMethods && methods[1].Calls == 40
	}, waitTimeout, 200*time.Millisecond, "a deploy and an end on each host, and the calls by method")
}
