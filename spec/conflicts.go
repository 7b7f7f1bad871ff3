package spec

import (
	"bytes"
	"fmt"
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
	{"pool.framing", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Pool.Framing != FramingLine && s.Pool.Protocol != ProtocolJSONRPC,
			"%q has no effect with pool.protocol = %q", s.Pool.Framing, s.Pool.Protocol)
	}, `pool.protocol = "jsonrpc", or no pool.framing`},
	{"pool.env_from", "pool.env", func(s *Spec) (string, string) {
		for i, name := range s.Pool.EnvFrom {
			if _, twice := s.Pool.Env[name]; twice {
				return fmt.Sprintf("[%d]", i), fmt.Sprintf("%q is also in pool.env", name)
			}
		}
		return "", ""
	}, "each variable in either pool.env or pool.env_from"},
	{"pool.env", "pool.protocol", func(s *Spec) (string, string) {
		_, set := s.Pool.Env["PORT"]
		return ".PORT", problemIf(set && s.Pool.Protocol == ProtocolNone,
			`is set by Tempool for each worker with pool.protocol = "none"`)
	}, "no PORT in pool.env; use health.port for a fixed port"},
	{"pool.env_from", "pool.protocol", func(s *Spec) (string, string) {
		i := slices.Index(s.Pool.EnvFrom, "PORT")
		return fmt.Sprintf("[%d]", i), problemIf(i >= 0 && s.Pool.Protocol == ProtocolNone,
			`"PORT" is set by Tempool for each worker with pool.protocol = "none"`)
	}, "no PORT in pool.env_from; use health.port for a fixed port"},
	{"start.warmup", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(len(s.Start.Warmup) > 0 && s.Pool.Protocol == ProtocolNone,
			`cannot be sent with pool.protocol = "none"`)
	}, `no start.warmup, or pool.protocol = "frames" or "jsonrpc"`},
	{"start.warmup", "pool.protocol", func(s *Spec) (string, string) {
		i := slices.IndexFunc(s.Start.Warmup, func(w Warmup) bool { return !isStructured(w.Params) })
		return fmt.Sprintf("[%d].params", i), problemIf(i >= 0 && s.Pool.Protocol == ProtocolJSONRPC,
			`must be a table or a list with pool.protocol = "jsonrpc"`)
	}, "a table or a list"},
	{"start.fork", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Start.Fork && s.Pool.Protocol == ProtocolNone,
			`cannot be used with pool.protocol = "none": a fork serves the connection that it is given`)
	}, `pool.protocol = "frames" or "jsonrpc", or no start.fork`},
	{"start.fork", "sandbox.private_tmp", func(s *Spec) (string, string) {
		return "", problemIf(s.Start.Fork && s.Sandbox.PrivateTmp,
			"cannot be used with sandbox.private_tmp: the processes of one template would share its /tmp")
	}, "one of the two"},
	{"isolation.by", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Isolation.By != IsolateNone && s.Pool.Protocol == ProtocolNone,
			"%q cannot be kept with pool.protocol = \"none\": holders of leases call the program past the gateway",
			s.Isolation.By)
	}, `pool.protocol = "frames" or "jsonrpc", or no isolation.by`},
	withoutKey("isolation.idle", func(i Isolation) any { return i.Idle }),
	withoutKey("isolation.max_lifetime", func(i Isolation) any { return i.MaxLifetime }),
	withoutKey("isolation.max_per_key", func(i Isolation) any { return i.MaxPerKey }),
	withoutKey("isolation.spares", func(i Isolation) any { return i.Spares }),
	{"isolation.env", "isolation.by", func(s *Spec) (string, string) {
		return "", problemIf(s.Isolation.By != IsolateKey && len(s.Isolation.Env) > 0,
			"has no effect with isolation.by = %q", s.Isolation.By)
	}, `isolation.by = "key"`},
	onlySource("isolation.env", func(s *Spec) map[string]string { return s.Isolation.Env }),
	onlySource("mcp.env", func(s *Spec) map[string]string { return s.MCP.Env }),
	{"mcp.env", "mcp.mode", func(s *Spec) (string, string) {
		return "", problemIf(s.MCP.Mode != MCPSession && len(s.MCP.Env) > 0, "has no effect with mcp.mode = %q", s.MCP.Mode)
	}, `mcp.mode = "session"`},
	{"mcp.env", "", func(s *Spec) (string, string) {
		for _, name := range sortedNames(s.MCP.Env) {
			if s.MCP.Env[name] == EnvKey {
				return "." + quoteKey(name), `"key" is no source of mcp.env`
			}
		}
		return "", ""
	}, `"header:X-…" or "file:/run/secrets/{principal}"`},
	{"pool.dir", "isolation.by", func(s *Spec) (string, string) {
		return "", problemIf(s.IsolatedBy() != IsolateKey && s.keyInPaths(),
			`or a path of the sandbox holds {key}, and isolation.by = %q has no keys`, s.Isolation.By)
	}, `isolation.by = "key", or mcp.mode = "session", or no {key} in pool.dir, sandbox.read and sandbox.write`},
	{"start.fork", "isolation.env", func(s *Spec) (string, string) {
		return "", problemIf(s.Start.Fork && s.StartsForKey(),
			"cannot be used with isolation.env or {key} in paths: a fork has the environment and the folder of its template")
	}, "one of the two"},
	{"watch.paths", "pool.dir", func(s *Spec) (string, string) {
		return "", problemIf(len(s.Watch.Paths) > 0 && strings.Contains(s.Pool.Dir, KeyMark),
			"cannot be watched with {key} in pool.dir")
	}, "no watch.paths, or a pool.dir without {key}"},
	{"isolation.by", "pool.max_inflight", func(s *Spec) (string, string) {
		return "", problemIf(s.Isolation.By == IsolateUse && s.Pool.MaxInflight > 1,
			`"use" gives each call a process of its own, so pool.max_inflight = %d has no effect`, s.Pool.MaxInflight)
	}, "pool.max_inflight = 1"},
	{"isolation.by", "lease.on_expiry", func(s *Spec) (string, string) {
		return "", problemIf(s.Isolation.By == IsolateUse && s.Lease.OnExpiry == ExpiryReset,
			`"use" replaces the process after each lease, so lease.on_expiry = "reset" has no effect`)
	}, `lease.on_expiry = "replace"`},
	{"mcp.mode", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.MCP.On() && (s.Pool.Protocol != ProtocolJSONRPC || s.Pool.Framing != FramingLine),
			"%q needs pool.protocol = \"jsonrpc\" and pool.framing = \"line\", which MCP servers speak", s.MCP.Mode)
	}, `pool.protocol = "jsonrpc" and pool.framing = "line"`},
	{"mcp.mode", "isolation.by", func(s *Spec) (string, string) {
		return "", problemIf(s.MCP.On() && s.Isolation.By != IsolateNone,
			"%q says who shares a process, so isolation.by = %q cannot", s.MCP.Mode, s.Isolation.By)
	}, `mcp.mode = "session" for a process of its own for each client, without isolation.by`},
	{"mcp.mode", "start.warmup", func(s *Spec) (string, string) {
		i := slices.IndexFunc(s.Start.Warmup, func(w Warmup) bool { return w.Method == "initialize" })
		return "", problemIf(s.MCP.On() && i >= 0,
			"%q sends initialize itself, so start.warmup must not", s.MCP.Mode)
	}, "no initialize and notifications/initialized in start.warmup"},
	{"mcp.mode", "lease.on_expiry", func(s *Spec) (string, string) {
		return "", problemIf(s.MCP.Mode == MCPSession && s.Lease.OnExpiry == ExpiryReset,
			`"session" lets nobody inherit a client's process, so lease.on_expiry = "reset" has no effect`)
	}, `lease.on_expiry = "replace"`},
	withoutMCP("mcp.max_sessions", MCPNone, func(m MCP) any { return m.MaxSessions }),
	withoutMCP("mcp.idle", MCPNone, func(m MCP) any { return m.Idle }),
	withoutMCP("mcp.after_crash", MCPNone, func(m MCP) any { return m.AfterCrash }),
	withoutMCP("mcp.after_crash", MCPShared, func(m MCP) any { return m.AfterCrash }),
	withoutMCP("mcp.sse_after", MCPNone, func(m MCP) any { return m.SSEAfter }),
	withoutMCP("mcp.keep_alive", MCPNone, func(m MCP) any { return m.KeepAlive }),
	{"lease.on_expiry", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Lease.OnExpiry == ExpiryReset && s.Pool.Protocol == ProtocolNone,
			`"reset" is not supported with pool.protocol = "none"`)
	}, `"replace" with that protocol`},
	{"health.kind", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Kind == HealthRPC && s.Pool.Protocol == ProtocolNone,
			`"rpc" is not supported with pool.protocol = "none"`)
	}, `"http", "tcp" or "exec" with that protocol`},
	{"health.port", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(needsPort(s) && s.Health.Port == 0 && s.Pool.Protocol != ProtocolNone,
			`is missing: health.kind = %q needs a port, because only pool.protocol = "none" sets $PORT`, s.Health.Kind)
	}, "the port that the program listens on, 1 to 65535, such as 8080"},
	{"health.port", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Port != 0 && !needsPort(s) && s.Pool.Protocol != ProtocolNone,
			"%d has no effect with health.kind = %q", s.Health.Port, s.Health.Kind)
	}, `health.kind = "http" or "tcp", or no health.port`},
	{"health.path", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Path != "/" && s.Health.Kind != HealthHTTP, "%q has no effect with health.kind = %q",
			s.Health.Path, s.Health.Kind)
	}, `health.kind = "http", or no health.path`},
	{"health.command", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Kind == HealthExec && len(s.Health.Command) == 0,
			`is missing: health.kind = "exec" needs a command`)
	}, `the program and its arguments, such as ["test", "-e", "ok"]`},
	{"health.command", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Kind != HealthExec && len(s.Health.Command) > 0, "has no effect with health.kind = %q",
			s.Health.Kind)
	}, `health.kind = "exec", or no health.command`},
	{"health.method", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Method != "ping" && s.Health.Kind != HealthRPC,
			"%q has no effect with health.kind = %q", s.Health.Method, s.Health.Kind)
	}, `health.kind = "rpc", or no health.method`},
	{"health.method", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Method != "ping" && s.Pool.Protocol != ProtocolJSONRPC,
			"%q has no effect with pool.protocol = %q, which has its own ping", s.Health.Method, s.Pool.Protocol)
	}, `pool.protocol = "jsonrpc", or no health.method`},
	{"scale.min", "scale.max", func(s *Spec) (string, string) {
		return "", problemIf(s.Scale.Follows() && s.Scale.Min > s.Scale.Max, "%d is more than scale.max = %d", s.Scale.Min,
			s.Scale.Max)
	}, "at most scale.max"},
	{"scale.idle_to_zero", "scale.min", func(s *Spec) (string, string) {
		return "", problemIf(s.Scale.IdleToZero > 0 && s.Scale.Min > 0, "%q has no effect with scale.min = %d",
			s.Scale.IdleToZero, s.Scale.Min)
	}, "scale.min = 0, or no scale.idle_to_zero"},
	withoutMax("scale.min", func(s Scale) any { return s.Min }),
	withoutMax("scale.target_inflight", func(s Scale) any { return s.TargetInflight }),
	withoutMax("scale.up_after", func(s Scale) any { return s.UpAfter }),
	withoutMax("scale.down_after", func(s Scale) any { return s.DownAfter }),
	withoutMax("scale.idle_to_zero", func(s Scale) any { return s.IdleToZero }),
	{"recovery.backoff_max", "recovery.backoff_initial", func(s *Spec) (string, string) {
		r := s.Recovery
		return "", problemIf(r.BackoffMax < r.BackoffInitial, "%q is less than recovery.backoff_initial = %q", r.BackoffMax,
			r.BackoffInitial)
	}, "at least recovery.backoff_initial"},
	{"lease.ttl", "lease.max_ttl", func(s *Spec) (string, string) {
		return "", problemIf(s.Lease.TTL > s.Lease.MaxTTL, "%q is more than lease.max_ttl = %q", s.Lease.TTL, s.Lease.MaxTTL)
	}, "at most lease.max_ttl"},
	{"sessions.url", "sessions.store", func(s *Spec) (string, string) {
		return "", problemIf(s.Sessions.Store == StoreRedis && s.Sessions.URL == "",
			`is missing: sessions.store = "redis" needs a server`)
	}, `a URL such as "redis://localhost:6379/0"`},
	{"sessions.url", "sessions.store", func(s *Spec) (string, string) {
		return "", problemIf(s.Sessions.Store != StoreRedis && s.Sessions.URL != "", "has no effect with sessions.store = %q",
			s.Sessions.Store)
	}, `sessions.store = "redis", or no sessions.url`},
	{"sessions.sync", "sessions.store", func(s *Spec) (string, string) {
		return "", problemIf(s.Sessions.Sync != SyncAlways && s.Sessions.Store != StoreEmbedded,
			"%q has no effect with sessions.store = %q", s.Sessions.Sync, s.Sessions.Store)
	}, `sessions.store = "embedded", or no sessions.sync`},
}

// withoutMax is the conflict of a key of [scale] with a pool that does not follow the demand.
func withoutMax(key string, value func(Scale) any) conflict {
	return conflict{key, "scale.max", func(s *Spec) (string, string) {
		return "", problemIf(!s.Scale.Follows() && value(s.Scale) != value(Default().Scale),
			"%s has no effect with scale.max = 0", quoteValue(value(s.Scale)))
	}, "scale.max of 1 to 1000, the most workers that the pool may have"}
}

// withoutMCP is the conflict of a key of [mcp] with a mode in which it has no effect.
func withoutMCP(key, mode string, value func(MCP) any) conflict {
	return conflict{key, "mcp.mode", func(s *Spec) (string, string) {
		return "", problemIf(s.MCP.Mode == mode && value(s.MCP) != value(Default().MCP),
			"%s has no effect with mcp.mode = %q", quoteValue(value(s.MCP)), mode)
	}, `another mcp.mode, such as "session"`}
}

// withoutKey is the conflict of a key of [isolation] with a pool whose processes serve no key.
func withoutKey(key string, value func(Isolation) any) conflict {
	return conflict{key, "isolation.by", func(s *Spec) (string, string) {
		return "", problemIf(s.Isolation.By != IsolateKey && value(s.Isolation) != value(Default().Isolation),
			"%s has no effect with isolation.by = %q", quoteValue(value(s.Isolation)), s.Isolation.By)
	}, `isolation.by = "key"`}
}

// onlySource is the conflict of a table of sources with variables that are given otherwise.
func onlySource(key string, env func(*Spec) map[string]string) conflict {
	return conflict{key, "pool.env", func(s *Spec) (string, string) {
		for _, name := range sortedNames(env(s)) {
			if _, twice := s.Pool.Env[name]; twice || slices.Contains(s.Pool.EnvFrom, name) {
				return "." + quoteKey(name), "is also in pool.env or pool.env_from"
			}
		}
		return "", ""
	}, "each variable in one of them"}
}

// problemIf formats a problem if the condition holds, else it returns "".
func problemIf(condition bool, problem string, args ...any) string {
	if !condition {
		return ""
	}
	return fmt.Sprintf(problem, args...)
}

func needsPort(s *Spec) bool { return s.Health.Kind == HealthHTTP || s.Health.Kind == HealthTCP }

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
