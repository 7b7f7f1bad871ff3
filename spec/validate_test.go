package spec

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// good is a spec that validates.
func good() Spec {
	s := Default()
	s.Pool.Name, s.Pool.Command = "p", []string{"run"}
	return s
}

func TestValidateReportsTheErrorsOfParseWithoutALine(t *testing.T) {
	for want, spoil := range map[string]func(s *Spec){
		`pool.size: 0 is not allowed; allowed: a whole number from 1 to 1000; to have no workers, stop the pool`: func(s *Spec) {
			s.Pool.Size = 0
		},
		`recovery.backoff_multiplier: NaN is not allowed; allowed: a number from 1 to 100`: func(s *Spec) {
			s.Recovery.BackoffMultiplier = math.NaN()
		},
		`pool.command[1]: contains a NUL character; allowed: the program and its arguments, such as ["python3", ` +
			`"worker.py"]`: func(s *Spec) { s.Pool.Command = []string{"a", "b\x00"} },
		`mcp.env: has no effect with mcp.mode = "none"; allowed: mcp.mode = "session"`: func(s *Spec) {
			s.MCP.Env = map[string]string{"A": "header:X-A"}
		},
		`mcp.env.A: "key" is no source of mcp.env; allowed: "header:X-…" or "file:/run/secrets/{principal}"`: func(s *Spec) {
			s.Pool.Protocol, s.MCP.Mode, s.MCP.Env = ProtocolJSONRPC, MCPSession, map[string]string{"A": "key"}
		},
		`mcp.env.A: is also in pool.env or pool.env_from; allowed: each variable in one of them`: func(s *Spec) {
			s.Pool.Protocol, s.Pool.EnvFrom = ProtocolJSONRPC, []string{"A"}
			s.MCP.Mode, s.MCP.Env = MCPSession, map[string]string{"A": "header:X-A"}
		},
		`pool.dir: "\x00" is not allowed; allowed: a string without NUL characters`: func(s *Spec) { s.Pool.Dir = "\x00" },
		`pool.env."": is an empty name; allowed: strings without NUL, such as LANG = "C"; ` +
			`names without = that do not begin with TEMPOOL_`: func(s *Spec) { s.Pool.Env = map[string]string{"": "x"} },
		`pool.env.A: contains a NUL character; allowed: strings without NUL, such as LANG = "C"; ` +
			`names without = that do not begin with TEMPOOL_`: func(s *Spec) { s.Pool.Env = map[string]string{"A": "\x00"} },
		`pool.env_from[0]: "A=B" is not a valid variable name; allowed: names without = that do not begin with TEMPOOL_`: func(s *Spec) {
			s.Pool.EnvFrom = []string{"A=B"}
		},
		`start.warmup[0].params: is not JSON; allowed: [[start.warmup]] tables, each with a method (a string), ` +
			`params (any value; {} without) and notification (true or false)`: func(s *Spec) {
			s.Start.Warmup = []Warmup{{Method: "a", Params: json.RawMessage("{")}}
		},
		`scale.max: 1001 is not allowed; allowed: a whole number from 0 to 1000; 0 keeps pool.size workers`: func(s *Spec) {
			s.Scale.Max = 1001
		},
		`scale.min: 5 is more than scale.max = 4; allowed: at most scale.max`: func(s *Spec) {
			s.Scale.Min, s.Scale.Max = 5, 4
		},
		`scale.min: 5 has no effect with scale.max = 0; allowed: scale.max of 1 to 1000, ` +
			`the most workers that the pool may have`: func(s *Spec) {
			s.Scale.Min = 5
		},
		`scale.down_after: "1m" has no effect with scale.max = 0; allowed: scale.max of 1 to 1000, ` +
			`the most workers that the pool may have`: func(s *Spec) {
			s.Scale.DownAfter = Duration(time.Minute)
		},
		`scale.idle_to_zero: "1m" has no effect with scale.min = 1; allowed: scale.min = 0, or no scale.idle_to_zero`: func(s *Spec) {
			s.Scale.Min, s.Scale.Max, s.Scale.IdleToZero = 1, 4, Duration(time.Minute)
		},
		`resources.memory_budget: "4GiB" has no effect with resources.allocation = "none"; allowed: ` +
			`resources.allocation = "equal" or "adaptive"`: func(s *Spec) {
			s.Resources.MemoryBudget = 4 << 30
		},
		`watch.mode: "all" has no effect with watch.paths = []; allowed: files or folders in watch.paths`: func(s *Spec) {
			s.Watch.Mode = WatchAll
		},
		`scale.target_inflight: 1.1 is not allowed; allowed: a number from 0.05 to 1`: func(s *Spec) {
			s.Scale.Max, s.Scale.TargetInflight = 4, 1.1
		},
		`sessions.url: is not a URL; allowed: ` + redisURLAllowed: func(s *Spec) {
			s.Sessions.Store, s.Sessions.URL = StoreRedis, "redis://:secret@local host"
		},
	} {
		s := good()
		spoil(&s)
		err := s.Validate()
		require.EqualError(t, err, want)
		var shape *Error
		require.ErrorAs(t, err, &shape)
	}
}

func TestEveryKeyHasOneRuleThatAllowsItsDefault(t *testing.T) {
	s := good()
	for _, k := range keys {
		require.NotEmpty(t, k.allowed, k.key())
		_, problem := k.check(k.value(&s).Interface())
		require.Empty(t, problem, k.key())
	}
	for key := range ownRules {
		require.Contains(t, keyByName, key)
		field := reflect.TypeFor[Spec]().FieldByIndex(keyByName[key].index)
		require.Empty(t, field.Tag.Get("rule"), "%s has two rules", key)
	}
}

func rejects(t *testing.T, key string, value any) {
	t.Helper()
	require.Contains(t, keyByName, key)
	_, problem := keyByName[key].check(value)
	require.NotEmpty(t, problem, "%s = %v", key, value)
}

func TestRulesRejectInvalidValues(t *testing.T) {
	for key, bad := range map[string][]any{
		"start.rate_per_second": {-1.0, math.Inf(1), math.NaN()},
		"health.memory_bands": {Bands{1, 2, 3}, Bands{0, 1, 2, 3}, Bands{1, 3, 2, 4}, Bands{1, 2, 3, math.NaN()},
			Bands{1, 2, 3, math.Inf(1)}},
		"health.cpu_bands":     {[]float64{50}},
		"health.calls_bands":   {[]float64{-1, 2, 3, 4}},
		"rotation.jitter":      {-0.1, 1.0, math.NaN()},
		"rotation.max_memory":  {Bytes(-2)},
		"rotation.max_uptime":  {Duration(-time.Second), Duration(1)},
		"limits.cpu_affinity":  {[]int{0, -1}, []int{4096}},
		"limits.nice":          {-21, 20},
		"limits.oom_score_adj": {-1001, 1001},
		"sessions.url": {
			"\x00", "localhost:6379", "http://localhost", "redis://", "redis://:6379", "redis://h/x", "redis://h/-1",
			"redis://h/0?db=1", "redis://h#x", "redis://h?addr=%", "redis://h/1?addr=a:1",
			"redis://h?addr=a", "redis://h?addr=:1", "redis://h:port", "unix:///redis.sock",
		},
		"prediction.window":        {0, 2},
		"pool.max_inflight":        {0, -1, 1001},
		"rotation.max_unavailable": {0, 1001},
		"health.max_call_errors":   {-1, 1_000_001},
		"health.port":              {-1, 65536},
		"health.method":            {"", "\x00"},
		"pool.placement":           {"", "A"},
	} {
		for _, value := range bad {
			rejects(t, key, value)
		}
	}
	s := good()
	for _, key := range strings.Fields(`queue.size queue.timeout watch.debounce sessions.ttl sessions.anonymous_ttl
		sessions.max sessions.affinity_ttl resources.rebalance prediction.horizon rotation.drain_timeout
		health.max_failures start.timeout recovery.healthy_reset recovery.backoff_initial pool.stop_grace`) {
		rejects(t, key, reflect.Zero(keyByName[key].value(&s).Type()).Interface())
	}
	negative := map[reflect.Type]any{reflect.TypeFor[int](): -1, reflect.TypeFor[float64](): -1.0,
		reflect.TypeFor[Bytes](): Bytes(-1), reflect.TypeFor[Duration](): Duration(-time.Second)}
	for _, k := range keys {
		if value := negative[k.value(&s).Type()]; value != nil && k.key() != "rotation.max_memory" &&
			k.key() != "limits.nice" && k.key() != "limits.oom_score_adj" {
			rejects(t, k.key(), value)
		}
	}
	s.Sessions.Store = StoreRedis
	e, with := checkConflicts(&s)
	require.Equal(t, "sessions.url", e.Key)
	require.Equal(t, "sessions.store", with)
	s.Sessions.Store, s.Sessions.URL = StoreMemory, "redis://localhost"
	e, _ = checkConflicts(&s)
	require.Equal(t, "sessions.url", e.Key)
}

func TestValidRedisURLs(t *testing.T) {
	for _, address := range []string{
		"redis://localhost", "redis://localhost/", "redis://localhost:6379/0", "rediss://user:p%40ss@redis.example:6380/15",
		"redis://:secret@[::1]:6379", "redis://a:1?addr=b:1&addr=c:1",
	} {
		s := good()
		s.Sessions.Store, s.Sessions.URL = StoreRedis, address
		require.NoError(t, s.Validate(), address)
	}
}

func TestASpecIsBounded(t *testing.T) {
	s := good()
	s.Pool.Env = map[string]string{"LARGE": strings.Repeat("x", 45<<10)}
	require.NoError(t, s.Validate())
	s.Pool.Env["LARGE"] = strings.Repeat("x", MaxBytes)
	require.ErrorContains(t, s.Validate(), "the spec is too large: it has 6")
	require.ErrorContains(t, s.Validate(), "at most 65536 bytes in all")
}
