package spec

import (
	"bytes"
	"fmt"
	"slices"
)

// conflict is a combination of two keys, each good in itself, that cannot work or that would leave one of them without effect.
type conflict struct {
	key, with string
	// check returns where below key, and why, the two clash; no problem means that they do not.
	check   func(s *Spec) (at, problem string)
	allowed string
}

var conflicts = []conflict{
	{"pool.framing", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Pool.Framing != FramingLine && s.Pool.Protocol != ProtocolJSONRPC,
			"%q has no effect with pool.protocol = %q", s.Pool.Framing, s.Pool.Protocol)
	}, `pool.protocol = "jsonrpc" with it, or no pool.framing`},
	{"pool.env_from", "pool.env", func(s *Spec) (string, string) {
		for i, name := range s.Pool.EnvFrom {
			if _, twice := s.Pool.Env[name]; twice {
				return fmt.Sprintf("[%d]", i), fmt.Sprintf("%q is in pool.env as well", name)
			}
		}
		return "", ""
	}, "each variable in one of pool.env and pool.env_from"},
	{"pool.env", "pool.protocol", func(s *Spec) (string, string) {
		_, set := s.Pool.Env["PORT"]
		return ".PORT", problemIf(set && s.Pool.Protocol == ProtocolNone, `is given by Tempool with pool.protocol = "none", to each worker its own`)
	}, "no PORT in pool.env; health.port for a fixed one"},
	{"pool.env_from", "pool.protocol", func(s *Spec) (string, string) {
		i := slices.Index(s.Pool.EnvFrom, "PORT")
		return fmt.Sprintf("[%d]", i), problemIf(i >= 0 && s.Pool.Protocol == ProtocolNone,
			`"PORT" is given by Tempool with pool.protocol = "none", to each worker its own`)
	}, "no PORT in pool.env_from; health.port for a fixed one"},
	{"start.warmup", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(len(s.Start.Warmup) > 0 && s.Pool.Protocol == ProtocolNone, `cannot be sent with pool.protocol = "none"`)
	}, `no start.warmup, or pool.protocol = "frames" or "jsonrpc"`},
	{"start.warmup", "pool.protocol", func(s *Spec) (string, string) {
		i := slices.IndexFunc(s.Start.Warmup, func(w Warmup) bool { return !isStructured(w.Params) })
		return fmt.Sprintf("[%d].params", i), problemIf(i >= 0 && s.Pool.Protocol == ProtocolJSONRPC,
			`are neither a table nor a list, which pool.protocol = "jsonrpc" asks for`)
	}, "a table or a list"},
	{"lease.on_expiry", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Lease.OnExpiry == ExpiryReset && s.Pool.Protocol == ProtocolNone, `"reset" cannot be asked of a worker with pool.protocol = "none"`)
	}, `"replace" with that protocol`},
	{"health.kind", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Kind == HealthRPC && s.Pool.Protocol == ProtocolNone, `"rpc" cannot be asked with pool.protocol = "none"`)
	}, `"http", "tcp" or "exec" with that protocol`},
	{"health.port", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(needsPort(s) && s.Health.Port == 0 && s.Pool.Protocol != ProtocolNone,
			`is missing: health.kind = %q must know where to connect, since only pool.protocol = "none" gives workers a $PORT`, s.Health.Kind)
	}, "the port the program listens on, 1 to 65535"},
	{"health.port", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Port != 0 && !needsPort(s) && s.Pool.Protocol != ProtocolNone,
			"%d has no effect with health.kind = %q", s.Health.Port, s.Health.Kind)
	}, `health.kind = "http" or "tcp" with it, or no health.port`},
	{"health.path", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Path != "/" && s.Health.Kind != HealthHTTP, "%q has no effect with health.kind = %q", s.Health.Path, s.Health.Kind)
	}, `health.kind = "http" with it, or no health.path`},
	{"health.command", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Kind == HealthExec && len(s.Health.Command) == 0, `is missing: health.kind = "exec" has nothing to run`)
	}, `the program and its arguments, such as ["test", "-e", "ok"]`},
	{"health.command", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Kind != HealthExec && len(s.Health.Command) > 0, "has no effect with health.kind = %q", s.Health.Kind)
	}, `health.kind = "exec" with it, or no health.command`},
	{"health.method", "health.kind", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Method != "ping" && s.Health.Kind != HealthRPC, "%q has no effect with health.kind = %q", s.Health.Method, s.Health.Kind)
	}, `health.kind = "rpc" with it, or no health.method`},
	{"health.method", "pool.protocol", func(s *Spec) (string, string) {
		return "", problemIf(s.Health.Method != "ping" && s.Pool.Protocol != ProtocolJSONRPC,
			"%q has no effect with pool.protocol = %q, which has a ping of its own", s.Health.Method, s.Pool.Protocol)
	}, `pool.protocol = "jsonrpc" with it, or no health.method`},
	{"recovery.backoff_max", "recovery.backoff_initial", func(s *Spec) (string, string) {
		r := s.Recovery
		return "", problemIf(r.BackoffMax < r.BackoffInitial, "%q is less than recovery.backoff_initial = %q", r.BackoffMax, r.BackoffInitial)
	}, "at least recovery.backoff_initial"},
	{"lease.ttl", "lease.max_ttl", func(s *Spec) (string, string) {
		return "", problemIf(s.Lease.TTL > s.Lease.MaxTTL, "%q is more than lease.max_ttl = %q", s.Lease.TTL, s.Lease.MaxTTL)
	}, "at most lease.max_ttl"},
	{"sessions.url", "sessions.store", func(s *Spec) (string, string) {
		return "", problemIf(s.Sessions.Store == StoreRedis && s.Sessions.URL == "", `is missing: sessions.store = "redis" must know where to connect`)
	}, `a URL such as "redis://localhost:6379/0"`},
	{"sessions.url", "sessions.store", func(s *Spec) (string, string) {
		return "", problemIf(s.Sessions.Store != StoreRedis && s.Sessions.URL != "", "has no effect with sessions.store = %q", s.Sessions.Store)
	}, `sessions.store = "redis" with it, or no sessions.url`},
	{"sessions.sync", "sessions.store", func(s *Spec) (string, string) {
		return "", problemIf(s.Sessions.Sync != SyncAlways && s.Sessions.Store != StoreEmbedded, "%q has no effect with sessions.store = %q", s.Sessions.Sync, s.Sessions.Store)
	}, `sessions.store = "embedded" with it, or no sessions.sync`},
}

// problemIf is the problem's text if there is one.
func problemIf(is bool, problem string, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(problem, args...)
}

func needsPort(s *Spec) bool { return s.Health.Kind == HealthHTTP || s.Health.Kind == HealthTCP }

// isStructured holds for what JSON-RPC 2.0 (4.2) takes as params: an object, an array or nothing.
func isStructured(params []byte) bool {
	trimmed := bytes.TrimLeft(params, " \t\r\n")
	return len(trimmed) == 0 || trimmed[0] == '{' || trimmed[0] == '['
}

// checkConflicts returns the error of the first conflict in s and the key it has it with.
func checkConflicts(s *Spec) (e *Error, with string) {
	for _, c := range conflicts {
		if at, problem := c.check(s); problem != "" {
			return &Error{Key: c.key + at, Problem: problem, Allowed: c.allowed}, c.with
		}
	}
	return nil, ""
}
