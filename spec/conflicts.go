package spec

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// conflict is a combination of two valid keys that cannot work, or that leaves one of them without effect.
type conflict struct {
	key, with string
	// check returns where below key, and why, the two conflict. No problem means that they do not.
	check   func(s *Spec) (at, problem string)
	allowed string
}

var conflicts = []conflict{
	noEffect("pool.framing", "pool.protocol", isJSONRPC, `pool.protocol = "jsonrpc", or no pool.framing`),
	{"pool.env_from", "pool.env", func(s *Spec) (string, string) {
		return each(func(name string) string {
			_, twice := s.Pool.Env[name]
			return problemIf(twice, fmt.Sprintf("%q is also in pool.env", name))
		})(s.Pool.EnvFrom)
	}, "each variable in either pool.env or pool.env_from"},
	{"pool.env", "pool.protocol", func(s *Spec) (string, string) {
		_, set := s.Pool.Env["PORT"]
		return ".PORT", problemIf(set && isPlain(s), `is set by Tempool for each worker with pool.protocol = "none"`)
	}, "no PORT in pool.env; use health.port for a fixed port"},
	{"pool.env_from", "pool.protocol", func(s *Spec) (string, string) {
		i := slices.Index(s.Pool.EnvFrom, "PORT")
		return fmt.Sprintf("[%d]", i), problemIf(i >= 0 && isPlain(s),
			`"PORT" is set by Tempool for each worker with pool.protocol = "none"`)
	}, "no PORT in pool.env_from; use health.port for a fixed port"},
	clash("start.warmup", "pool.protocol", func(s *Spec) bool { return len(s.Start.Warmup) > 0 && isPlain(s) },
		`cannot be sent with pool.protocol = "none"`, `no start.warmup, or pool.protocol = "frames" or "jsonrpc"`),
	{"start.warmup", "pool.protocol", func(s *Spec) (string, string) {
		i := slices.IndexFunc(s.Start.Warmup, func(w Warmup) bool { return !isStructured(w.Params) })
		return fmt.Sprintf("[%d].params", i), problemIf(i >= 0 && isJSONRPC(s),
			`must be a table or a list with pool.protocol = "jsonrpc"`)
	}, "a table or a list"},
	clash("start.fork", "pool.protocol", func(s *Spec) bool { return s.Start.Fork && isPlain(s) },
		`cannot be used with pool.protocol = "none": a fork serves the connection that it is given`,
		`pool.protocol = "frames" or "jsonrpc", or no start.fork`),
	clash("start.fork", "sandbox.private_tmp", func(s *Spec) bool { return s.Start.Fork && s.Sandbox.PrivateTmp },
		"cannot be used with sandbox.private_tmp: the processes of one template would share its /tmp", "one of the two"),
	clash("isolation.by", "pool.protocol", func(s *Spec) bool { return s.Isolation.By != IsolateNone && isPlain(s) },
		`{value} cannot be kept with pool.protocol = "none": holders of leases call the program past the gateway`,
		`pool.protocol = "frames" or "jsonrpc", or no isolation.by`),
	noEffect("isolation.idle", "isolation.by", hasKeys, `isolation.by = "key"`),
	noEffect("isolation.max_lifetime", "isolation.by", hasKeys, `isolation.by = "key"`),
	noEffect("isolation.max_per_key", "isolation.by", hasKeys, `isolation.by = "key"`),
	noEffect("isolation.spares", "isolation.by", hasKeys, `isolation.by = "key"`),
	noEffect("isolation.env", "isolation.by", hasKeys, `isolation.by = "key"`),
	onlySource("isolation.env", func(s *Spec) map[string]string { return s.Isolation.Env }),
	onlySource("mcp.env", func(s *Spec) map[string]string { return s.MCP.Env }),
	noEffect("mcp.env", "mcp.mode", func(s *Spec) bool { return s.MCP.Mode == MCPSession }, `mcp.mode = "session"`),
	{"mcp.env", "", func(s *Spec) (string, string) {
		return eachNamed(func(_, source string) string {
			return problemIf(source == EnvKey, `"key" is no source of mcp.env`)
		})(s.MCP.Env)
	}, `"header:X-…" or "file:/run/secrets/{principal}"`},
	clash("pool.dir", "isolation.by", func(s *Spec) bool { return s.IsolatedBy() != IsolateKey && s.keyInPaths() },
		`or a path of the sandbox holds {key}, and isolation.by = {with} has no keys`,
		`isolation.by = "key", or mcp.mode = "session", or no {key} in pool.dir, sandbox.read and sandbox.write`),
	clash("start.fork", "isolation.env", func(s *Spec) bool { return s.Start.Fork && s.StartsForKey() },
		"cannot be used with isolation.env or {key} in paths: a fork has the environment and the folder of its template",
		"one of the two"),
	clash("watch.paths", "pool.dir",
		func(s *Spec) bool { return len(s.Watch.Paths) > 0 && strings.Contains(s.Pool.Dir, KeyMark) },
		"cannot be watched with {key} in pool.dir", "no watch.paths, or a pool.dir without {key}"),
	clash("isolation.by", "pool.max_inflight",
		func(s *Spec) bool { return s.Isolation.By == IsolateUse && s.Pool.MaxInflight > 1 },
		`"use" gives each call a process of its own, so pool.max_inflight = {with} has no effect`, "pool.max_inflight = 1"),
	clash("mcp.mode", "pool.max_inflight",
		func(s *Spec) bool { return s.MCP.Mode == MCPRequest && s.Pool.MaxInflight > 1 },
		`"request" gives each request a process of its own, so pool.max_inflight = {with} has no effect`,
		"pool.max_inflight = 1"),
	clash("isolation.by", "lease.on_expiry", func(s *Spec) bool { return s.Isolation.By == IsolateUse && resets(s) },
		`"use" replaces the process after each lease, so lease.on_expiry = "reset" has no effect`,
		`lease.on_expiry = "replace"`),
	clash("mcp.mode", "pool.protocol",
		func(s *Spec) bool { return s.MCP.On() && (!isJSONRPC(s) || s.Pool.Framing != FramingLine) },
		`{value} needs pool.protocol = "jsonrpc" and pool.framing = "line", which MCP servers speak`,
		`pool.protocol = "jsonrpc" and pool.framing = "line"`),
	clash("mcp.mode", "isolation.by", func(s *Spec) bool { return s.MCP.On() && s.Isolation.By != IsolateNone },
		"{value} says who shares a process, so isolation.by = {with} cannot",
		`mcp.mode = "session" for a process of its own for each client, without isolation.by`),
	clash("mcp.mode", "start.warmup", func(s *Spec) bool {
		return s.MCP.On() && slices.ContainsFunc(s.Start.Warmup, func(w Warmup) bool { return w.Method == "initialize" })
	}, "{value} sends initialize itself, so start.warmup must not",
		"no initialize and notifications/initialized in start.warmup"),
	clash("mcp.mode", "lease.on_expiry",
		func(s *Spec) bool { return (s.MCP.Mode == MCPSession || s.MCP.Mode == MCPRequest) && resets(s) },
		`{value} lets nobody inherit a client's process, so lease.on_expiry = "reset" has no effect`,
		`lease.on_expiry = "replace"`),
	noEffect("mcp.era", "mcp.mode", isMCP, anotherMode),
	noEffect("mcp.max_sessions", "mcp.mode", isMCP, anotherMode),
	noEffect("mcp.max_sessions_per_principal", "mcp.mode", isMCP, anotherMode),
	noEffect("mcp.idle", "mcp.mode", isMCP, anotherMode),
	noEffect("mcp.park", "mcp.mode", isMCP, anotherMode),
	noEffect("mcp.after_crash", "mcp.mode", func(s *Spec) bool { return s.MCP.Mode == MCPSession }, anotherMode),
	noEffect("mcp.sse_after", "mcp.mode", isMCP, anotherMode),
	noEffect("mcp.keep_alive", "mcp.mode", isMCP, anotherMode),
	noEffect("mcp.tools", "mcp.mode", isMCP, anotherMode),
	noEffect("mcp.tools_deny", "mcp.mode", isMCP, anotherMode),
	noEffect("mcp.origins", "mcp.mode", isMCP, anotherMode),
	clash("lease.on_expiry", "pool.protocol", func(s *Spec) bool { return resets(s) && isPlain(s) },
		`"reset" is not supported with pool.protocol = "none"`, `"replace" with that protocol`),
	clash("health.kind", "pool.protocol", func(s *Spec) bool { return s.Health.Kind == HealthRPC && isPlain(s) },
		`"rpc" is not supported with pool.protocol = "none"`, `"http", "tcp" or "exec" with that protocol`),
	clash("health.port", "health.kind", func(s *Spec) bool { return needsPort(s) && s.Health.Port == 0 && !isPlain(s) },
		`is missing: health.kind = {with} needs a port, because only pool.protocol = "none" sets $PORT`,
		"the port that the program listens on, 1 to 65535, such as 8080"),
	noEffect("health.port", "health.kind", func(s *Spec) bool { return needsPort(s) || isPlain(s) },
		`health.kind = "http" or "tcp", or no health.port`),
	noEffect("health.path", "health.kind", func(s *Spec) bool { return s.Health.Kind == HealthHTTP },
		`health.kind = "http", or no health.path`),
	clash("health.command", "health.kind",
		func(s *Spec) bool { return s.Health.Kind == HealthExec && len(s.Health.Command) == 0 },
		`is missing: health.kind = "exec" needs a command`, `the program and its arguments, such as ["test", "-e", "ok"]`),
	noEffect("health.command", "health.kind", func(s *Spec) bool { return s.Health.Kind == HealthExec },
		`health.kind = "exec", or no health.command`),
	noEffect("health.method", "health.kind", func(s *Spec) bool { return s.Health.Kind == HealthRPC },
		`health.kind = "rpc", or no health.method`),
	clash("health.method", "pool.protocol", func(s *Spec) bool { return s.Health.Method != "ping" && !isJSONRPC(s) },
		"{value} has no effect with pool.protocol = {with}, which has its own ping",
		`pool.protocol = "jsonrpc", or no health.method`),
	clash("scale.min", "scale.max", func(s *Spec) bool { return s.Scale.Follows() && s.Scale.Min > s.Scale.Max },
		"{value} is more than scale.max = {with}", "at most scale.max"),
	noEffect("scale.idle_to_zero", "scale.min", func(s *Spec) bool { return s.Scale.Min == 0 },
		"scale.min = 0, or no scale.idle_to_zero"),
	noEffect("scale.min", "scale.max", follows, aMaximum),
	noEffect("scale.target_inflight", "scale.max", follows, aMaximum),
	noEffect("scale.up_after", "scale.max", follows, aMaximum),
	noEffect("scale.down_after", "scale.max", follows, aMaximum),
	noEffect("scale.idle_to_zero", "scale.max", follows, aMaximum),
	clash("recovery.backoff_max", "recovery.backoff_initial",
		func(s *Spec) bool { return s.Recovery.BackoffMax < s.Recovery.BackoffInitial },
		"{value} is less than recovery.backoff_initial = {with}", "at least recovery.backoff_initial"),
	clash("lease.ttl", "lease.max_ttl", func(s *Spec) bool { return s.Lease.TTL > s.Lease.MaxTTL },
		"{value} is more than lease.max_ttl = {with}", "at most lease.max_ttl"),
	clash("sessions.url", "sessions.store", func(s *Spec) bool { return isRedis(s) && s.Sessions.URL == "" },
		`is missing: sessions.store = "redis" needs a server`, `a URL such as "redis://localhost:6379/0"`),
	clash("sessions.url", "sessions.store", func(s *Spec) bool { return !isRedis(s) && s.Sessions.URL != "" },
		"has no effect with sessions.store = {with}", `sessions.store = "redis", or no sessions.url`),
	noEffect("sessions.sync", "sessions.store", func(s *Spec) bool { return s.Sessions.Store == StoreEmbedded },
		`sessions.store = "embedded", or no sessions.sync`),
	noEffect("resources.memory_budget", "resources.allocation", allocates, anAllocation),
	noEffect("resources.cpu_budget", "resources.allocation", allocates, anAllocation),
	noEffect("resources.rebalance", "resources.allocation", allocates, anAllocation),
	noEffect("watch.ignore", "watch.paths", watches, "files or folders in watch.paths"),
	noEffect("watch.debounce", "watch.paths", watches, "files or folders in watch.paths"),
	noEffect("watch.mode", "watch.paths", watches, "files or folders in watch.paths"),
}

const (
	anAllocation = `resources.allocation = "equal" or "adaptive"`
	anotherMode  = `another mcp.mode, such as "session"`
	aMaximum     = "scale.max of 1 to 1000, the most workers that the pool may have"
)

func isJSONRPC(s *Spec) bool { return s.Pool.Protocol == ProtocolJSONRPC }
func isPlain(s *Spec) bool   { return s.Pool.Protocol == ProtocolNone }
func hasKeys(s *Spec) bool   { return s.Isolation.By == IsolateKey }
func isMCP(s *Spec) bool     { return s.MCP.On() }
func allocates(s *Spec) bool { return s.Resources.Allocation != AllocationNone }
func watches(s *Spec) bool   { return len(s.Watch.Paths) > 0 }
func follows(s *Spec) bool   { return s.Scale.Follows() }
func resets(s *Spec) bool    { return s.Lease.OnExpiry == ExpiryReset }
func isRedis(s *Spec) bool   { return s.Sessions.Store == StoreRedis }
func needsPort(s *Spec) bool { return s.Health.Kind == HealthHTTP || s.Health.Kind == HealthTCP }

// clash is the conflict of two keys whose values exclude each other. {value} and {with} in the problem are these
// values; a list or a table with items is left out.
func clash(key, with string, exclude func(*Spec) bool, problem, allowed string) conflict {
	return conflict{key, with, func(s *Spec) (string, string) {
		if !exclude(s) {
			return "", ""
		}
		value := func(key string) string {
			switch v := keyByName[key].value(s); {
			case v.Kind() != reflect.Slice && v.Kind() != reflect.Map:
				return quoteValue(v.Interface())
			case v.Len() == 0:
				return "[]"
			}
			return ""
		}
		problem := strings.NewReplacer("{value}", value(key), "{with}", value(with)).Replace(problem)
		return "", strings.TrimPrefix(problem, " ")
	}, allowed}
}

// noEffect is the conflict of a key that is set with a value of another key with which it has no effect.
func noEffect(key, with string, has func(*Spec) bool, allowed string) conflict {
	set := func(s *Spec) bool { return !has(s) && !hasDefault(s, key) }
	return clash(key, with, set, "{value} has no effect with "+with+" = {with}", allowed)
}

// onlySource is the conflict of a table of sources with variables that are given otherwise.
func onlySource(key string, env func(*Spec) map[string]string) conflict {
	return conflict{key, "pool.env", func(s *Spec) (string, string) {
		return eachNamed(func(name, _ string) string {
			_, twice := s.Pool.Env[name]
			return problemIf(twice || slices.Contains(s.Pool.EnvFrom, name), "is also in pool.env or pool.env_from")
		})(env(s))
	}, "each variable in one of them"}
}

// problemIf returns a problem if the condition holds, else "".
func problemIf(condition bool, problem string) string {
	if !condition {
		return ""
	}
	return problem
}

// isStructured reports whether JSON-RPC 2.0 (4.2) allows these params: an object, an array or nothing.
func isStructured(params []byte) bool {
	trimmed := bytes.TrimLeft(params, " \t\r\n")
	return len(trimmed) == 0 || trimmed[0] == '{' || trimmed[0] == '['
}

// checkConflicts returns the error of the first conflict in s, and its other key.
func checkConflicts(s *Spec) (e *Error, with string) {
	for _, c := range append(kindConflicts, conflicts...) {
		if at, problem := c.check(s); problem != "" {
			return &Error{Key: c.key + at, Problem: problem, Allowed: c.allowed}, c.with
		}
	}
	return nil, ""
}
