package spec

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"
)

// documented is the reference block of the file format, one key a line: what every default is meant to be.
const documented = `
pool.size=4
pool.kind="process"
pool.function=""
pool.image=""
pool.run_args=[]
pool.protocol="frames"
pool.framing="line"
pool.placement="default"
pool.max_inflight=1
pool.env={}
pool.env_from=[]
pool.dir=""
pool.user=""
pool.group=""
pool.umask=""
pool.on_partition="serve"
pool.on_suspend="run"
pool.stop_grace="5s"
pool.max_message="64MiB"
start.timeout="30s"
start.concurrency=0
start.rate_per_second=0.0
health.kind="rpc"
health.interval="30s"
health.checkpoint="5m"
health.timeout="5s"
health.max_failures=3
health.max_call_errors=10
health.method="ping"
health.path="/"
health.port=0
health.command=[]
health.memory_bands="auto"
health.cpu_bands=[]
health.calls_bands=[]
rotation.max_requests=10000
rotation.jitter=0.10
rotation.max_memory="auto"
rotation.max_uptime="24h"
rotation.drain_timeout="5s"
rotation.max_unavailable=1
rotation.surge=true
scale.min=0
scale.max=0
scale.target_inflight=0.7
scale.up_after="1s"
scale.down_after="5m"
scale.idle_to_zero=""
recovery.restart="always"
recovery.max_consecutive_failures=10
recovery.backoff_initial="100ms"
recovery.backoff_max="60s"
recovery.backoff_multiplier=3.0
recovery.healthy_reset="60s"
lease.ttl="60s"
lease.max_ttl="24h"
lease.idle_return="2s"
lease.on_expiry="replace"
call.timeout="10m"
call.cancel_grace="5s"
queue.size=1000
queue.timeout="30s"
limits.memory=""
limits.cpu=0.0
limits.open_files=1024
limits.processes=0
limits.cpu_time=""
limits.cpu_affinity=[]
limits.cpu_affinity_each=0
limits.nice=0
limits.oom_score_adj=0
limits.calls_per_minute=0
watch.paths=[]
watch.ignore=[]
watch.debounce="500ms"
watch.mode="rolling"
sessions.store="embedded"
sessions.url=""
sessions.ttl="1h"
sessions.anonymous_ttl="5m"
sessions.sync="always"
sessions.max=10000
sessions.on_full="refuse"
sessions.affinity_ttl="5m"
resources.allocation="none"
resources.memory_budget=""
resources.cpu_budget=0.0
resources.rebalance="5m"
prediction.enabled=true
prediction.window=10
prediction.horizon="5m"
pressure.enabled=true
sandbox.read=[]
sandbox.write=[]
sandbox.network="host"
sandbox.private_tmp=false
policy.mode="enforce"
`

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	var tree map[string]any
	require.NoError(t, toml.Unmarshal([]byte(documented), &tree))
	want, e := fromTree(tree)
	require.Nil(t, e)
	require.Equal(t, want, Default())

	for _, k := range keys {
		section, found := tree[k.section].(map[string]any)
		require.True(t, found, k.section)
		_, found = section[k.name]
		switch k.key() {
		case "pool.name", "pool.command", "start.warmup": // no default, and none by default
			require.False(t, found, k.key())
			continue
		}
		require.True(t, found, "%s is not in the reference block", k.key())
	}
}

// A default that a comparison of whole specs cannot see, because it was never laid over: each key must be read from the block.
func TestEveryDefaultCanBeSetExplicitly(t *testing.T) {
	for line := range strings.Lines(documented) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var tree map[string]any
		require.NoError(t, toml.Unmarshal([]byte(line), &tree))
		name, _, _ := strings.Cut(line, "=")
		k, found := keyByName[name]
		require.True(t, found, name)
		data, err := json.Marshal(tree)
		require.NoError(t, err)
		var zero Spec
		type bare Spec
		require.NoError(t, json.Unmarshal(data, (*bare)(&zero)))
		defaults := Default()
		require.True(t, sameValue(k.value(&defaults), k.value(&zero)), line)
	}
}

func TestTheFullFileEqualsTheDefaults(t *testing.T) {
	s, err := Load("testdata/full.toml")
	require.NoError(t, err)
	want := Default()
	want.Pool.Name, want.Pool.Command = "python", []string{"python3", "worker.py"}
	want.Pool.Dir = s.Pool.Dir
	want.Start.Warmup = []Warmup{{Method: "initialize", Params: json.RawMessage("{}")}}
	require.Equal(t, want, s)
}

func TestTheFullFileHasEveryKey(t *testing.T) {
	data, err := os.ReadFile("testdata/full.toml")
	require.NoError(t, err)
	mentions, _, err := locate(data)
	require.NoError(t, err)
	mentioned := map[string]bool{}
	for _, m := range mentions {
		mentioned[joinKey(m.parts[:min(len(m.parts), 2)])] = true
	}
	for _, k := range keys {
		require.True(t, mentioned[k.key()], k.key())
	}
}

func TestDefaultNeedsOnlyNameAndCommand(t *testing.T) {
	s := Default()
	require.EqualError(t, s.Validate(), "pool.name: is missing; allowed: 1 to 63 characters of a-z, 0-9, _ and -, the first a letter or digit, such as \"web-1\"")
	s.Pool.Name = "python"
	require.EqualError(t, s.Validate(), `pool.command: is missing; allowed: the program and its arguments, such as ["python3", "worker.py"]`)
	s.Pool.Command = []string{"python3"}
	require.NoError(t, s.Validate())
}

func TestDefaultsAreNotShared(t *testing.T) {
	s := Default()
	s.Pool.Env["A"] = "b"
	require.Empty(t, Default().Pool.Env)
}
